"""Covariates that are labels: from files and tables to regressions, and on to other stores."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import StoreError
from irt_dask.store import labels, manifest

N, M = 300, 8
ITEMS = [f"q{j}" for j in range(M)]
LABELS = {"labels": ["school", "sex"]}


def made(n: int = N, seed: int = 0) -> tuple[Any, pd.DataFrame]:
    """Answers and a table of persons; girls are abler, some say nothing of their sex."""
    rng = np.random.default_rng(seed)
    about = pd.DataFrame({
        "person": [f"p{seed}-{i}" for i in range(n)],
        "school": [f"École {s}" for s in rng.integers(0, 40, n)],
        "sex": rng.choice(["girl", "boy", ""], n, p=[0.5, 0.45, 0.05]),
        "escs": rng.standard_normal(n).round(3),
    })  # fmt: skip
    theta = rng.standard_normal(n) + 0.8 * (about["sex"] == "girl").to_numpy()
    p = 1.0 / (1.0 + np.exp(-(theta[:, None] - np.linspace(-1, 1, M))))
    return (rng.random((n, M)) < p).astype(np.int8), about


def written(folder: Path, y: Any, about: pd.DataFrame, name: str = "") -> tuple[Path, Path]:
    answers, persons = folder / f"y{name}.csv", folder / f"persons{name}.csv"
    pd.DataFrame(y, columns=ITEMS).assign(person=about["person"]).to_csv(answers, index=False)
    about.to_csv(persons, index=False)
    return answers, persons


@pytest.fixture(scope="module")
def bank() -> Any:
    return irt.fit_marginal(made(1000, 9)[0], standard_errors=False).assign_coords(
        item_id=("items", ITEMS)
    )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    answers, persons = written(tmp_path, *made())
    return irt.ingest(answers, tmp_path / "store", persons=persons, columns=LABELS)


def test_numbers_of_labels_are_those_of_their_sha256() -> None:
    """By hashlib, in normal form C; whole numbers that doubles hold."""
    for text in ("girl", "École 7", "E\u0301cole 7", "-1", "学校"):
        normal = text.replace("E\u0301", "É").encode()
        expected = int(hashlib.sha256(normal).hexdigest()[:13], 16)
        assert labels.number(text) == expected < 2**52
    assert labels.by_number(["a", "b"])[labels.number("b")] == "b"


def test_two_labels_of_one_number_and_too_many_are_refused(monkeypatch: Any) -> None:
    assert labels.together([{"x": ["b"]}, {"x": ["a"], "y": []}]) == {"x": ("a", "b"), "y": ()}
    monkeypatch.setattr(labels, "_BITS", 2)
    with pytest.raises(irt.InputError, match="two labels of covariate 'x' have the same number"):
        labels.together([{"x": [*"abcde"]}])
    monkeypatch.setattr(labels, "MOST", 3)
    with pytest.raises(irt.InputError, match="'x' has more than 3 labels"):
        labels.together([{"x": [*"abcd"]}])


def test_a_store_lists_its_labels(store: Any, tmp_path: Path) -> None:
    about = made()[1]
    assert store.covariate_names == ("school", "sex", "escs")
    assert store.covariate_labels["sex"] == ("boy", "girl")
    assert store.covariate_labels["school"] == tuple(sorted(set(about["school"])))
    x = np.concatenate([store.covariates(k) for k in range(store.n_blocks)])
    known = labels.by_number(store.covariate_labels["school"])
    assert [known[v] for v in x[:, 0]] == about["school"].tolist()
    assert (np.isnan(x[:, 1]) == (about["sex"] == "")).all()
    content = json.loads((tmp_path / "store" / manifest.NAME).read_text())
    assert (content["format_version"], content["needs"]) == (3, ["labels"])
    assert irt.open_responses(tmp_path / "store").select(items=ITEMS[:3]).covariate_labels
    said = CliRunner().invoke(cli, ["info", str(tmp_path / "store")]).output
    assert "school (40 labels), sex (2 labels), escs" in said


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "jsonl", "frame", "beside", "array"])
def test_every_form_has_the_same_labels(form: str, store: Any, tmp_path: Path) -> None:
    y, about = made()
    answers, columns = tmp_path / "y.csv", dict(LABELS)
    persons: Any = tmp_path / f"also.{form}"
    if form in ("csv", "tsv"):
        about.to_csv(persons, index=False, sep="," if form == "csv" else "\t")
    elif form == "parquet":
        about.astype({"sex": "category"}).to_parquet(persons)
    elif form == "jsonl":
        none = about.astype(object).where(about != "", None)
        none.to_json(persons, orient="records", lines=True)
    elif form == "frame":
        persons = about
    elif form == "beside":
        answers, persons = tmp_path / "both.csv", None
        both = pd.DataFrame(y, columns=ITEMS)
        pd.concat([about, both], axis=1).to_csv(answers, index=False)
        columns |= {"items": "q*", "covariates": ["school", "sex", "escs"]}
    if form == "array":
        given = about.drop(columns="person").replace({"sex": {"": None}})
        found = irt.from_array(y, item_id=ITEMS, person_id=about["person"], persons=given)
    else:
        found = irt.ingest(answers, tmp_path / "other", persons=persons, columns=columns)
    assert found.covariate_labels == store.covariate_labels
    assert found.covariate_names == store.covariate_names
    np.testing.assert_array_equal(found.covariates(0), store.covariates(0))


def test_words_are_no_numbers_unless_somebody_says_so(tmp_path: Path) -> None:
    answers, persons = written(tmp_path, *made())
    said = r"line 2: column 'school' has the value 'École \d+'; .* columns={'labels': \['school', "
    with pytest.raises(irt.InputError, match=said):
        irt.ingest(answers, tmp_path / "store", persons=persons)
    with pytest.raises(irt.InputError, match="there is no column 'town'"):
        irt.ingest(answers, tmp_path / "store", persons=persons, columns={"labels": ["town"]})
    with pytest.raises(irt.InputError, match="there is no column 'school'"):
        irt.ingest(answers, tmp_path / "store", columns=LABELS)
    ran = CliRunner().invoke(cli, [
        "ingest", str(answers), str(tmp_path / "store"), "--persons", str(persons),
        "--column", "labels=school,sex", "--cluster", "none",
    ])  # fmt: skip
    assert ran.exit_code == 0, ran.output
    numbers = irt.from_array(np.eye(3), persons={"grade": ["7", "8", "9"]})
    assert numbers.covariate_labels == {}
    assert numbers.covariates(0)[:, 0].tolist() == [7.0, 8.0, 9.0]


def test_what_is_appended_brings_new_labels(store: Any, tmp_path: Path) -> None:
    """Without being told again which covariates are labels; handles from before stay."""
    before = json.loads((tmp_path / "store" / manifest.NAME).read_text())
    y, about = made(50, 1)
    about["school"] = "New"
    answers, persons = written(tmp_path, y, about, "2")
    grown = irt.append(answers, tmp_path / "store", persons=persons)
    assert grown.n_persons == N + 50
    assert len(grown.covariate_labels["school"]) == 41
    now = json.loads((tmp_path / "store" / manifest.NAME).read_text())
    assert now["parts"][1]["labels"] == {"school": ["New"]}
    assert now["checksum"] != before["checksum"] == store.fingerprint
    assert manifest.as_of(now, store.fingerprint) is not None
    found = store.covariates(0)  # the handle from before reads what it knew
    assert found.shape == (N, 3)
    y, about = made(20, 2)
    numbers = about.assign(school=3, sex=1)
    answers, persons = written(tmp_path, y, numbers, "3")
    irt.append(answers, tmp_path / "store", persons=persons)
    assert "3" in irt.open_responses(tmp_path / "store").covariate_labels["school"]


def test_persons_who_are_merged_keep_their_labels(store: Any, tmp_path: Path) -> None:
    y, about = made()
    about.loc[4, "school"] = "Another"
    answers, persons = written(tmp_path, y, about, "again")
    said = r"p0-4' \(another school\)"
    with pytest.raises(irt.InputError, match=said):
        irt.append(answers, tmp_path / "store", persons=persons, on_duplicate="merge")


def test_forged_lists_of_labels_are_refused(store: Any, tmp_path: Path) -> None:
    path = tmp_path / "store" / manifest.NAME
    whole = json.loads(path.read_text())
    del whole["checksum"]
    for forged in ({"town": ["a"]}, {"sex": "boy"}, {"sex": ["a", "a"]}, {}, ["sex"]):
        content = json.loads(json.dumps(whole))
        content["parts"][0]["labels"] = forged
        path.write_bytes(manifest.encoded(content))
        with pytest.raises(StoreError, match=r"is none that irt_dask writes: .*labels"):
            irt.open_responses(tmp_path / "store")


def test_categories_are_called_by_their_labels(store: Any, bank: Any) -> None:
    """As codes in the order of the labels have it; the level that is not known is one too."""
    y, about = made()
    fit = irt.fit_population(store, bank, covariates="sex + escs", sampling_unit="school")
    assert fit["covariate"].values.tolist() == [
        "intercept",
        "sex[T.girl]",
        "sex[T.missing]",
        "escs",
    ]
    assert fit.attrs["degrees_of_freedom"] == [39]
    code = about["sex"].map({"boy": 1.0, "girl": 2.0}).to_numpy(float, na_value=np.nan)
    school = pd.factorize(about["school"])[0].astype(float)
    columns = {"sex": code, "escs": about["escs"].to_numpy(), "school": school}
    coded = irt.from_array(y, item_id=ITEMS, persons=columns)
    same = irt.fit_population(coded, bank, covariates="C(sex) + escs", sampling_unit="school")
    for name in ("regression_coefficient", "regression_coefficient_se", "residual_sd"):
        np.testing.assert_allclose(fit[name], same[name], rtol=1e-13)  # units in another order
    as_category = irt.fit_population(store, bank, covariates="C(sex) + escs")
    assert as_category["covariate"].values[1] == "C(sex)[T.girl]"
    with pytest.raises(irt.InputError, match="sex has labels, and this regression takes numbers"):
        irt.score(store, bank, prior=["sex"])


def test_a_model_knows_labels_of_another_store(store: Any, bank: Any) -> None:
    """Where they are met in another order, beside others; a label that it does not know stops."""
    y, about = made(200, 3)
    fit = irt.fit_population(store, bank, covariates="sex + escs")
    about = about.iloc[::-1].reset_index(drop=True)
    given = about.drop(columns=["person", "school"]).replace({"sex": {"": None}})
    other = irt.from_array(y, item_id=ITEMS, person_id=about["person"], persons=given)
    scores = irt.score(other, bank, prior=fit, n_plausible=2)
    code = {"boy": 1.0, "girl": 2.0, None: np.nan}
    coded = irt.from_array(
        y, item_id=ITEMS, person_id=about["person"],
        persons={"sex": [code[s] for s in given["sex"]], "escs": given["escs"]},
    )  # fmt: skip
    z, own = made()
    known = irt.from_array(
        z, item_id=ITEMS, person_id=own["person"],
        persons={"sex": [code[s or None] for s in own["sex"]], "escs": own["escs"]},
    )  # fmt: skip
    of_codes = irt.fit_population(known, bank, covariates="C(sex) + escs")
    same = irt.score(coded, bank, prior=of_codes, n_plausible=2)
    for name in ("person_domain_ability", "person_domain_plausible_value"):
        np.testing.assert_array_equal(scores[name].values, same[name].values)
    with pytest.raises(irt.InputError, match="'sex' has numbers here, and had labels where"):
        irt.score(coded, bank, prior=fit)
    given.loc[3, "sex"] = "diverse"
    third = irt.from_array(y, item_id=ITEMS, person_id=about["person"], persons=given)
    with pytest.raises(irt.InputError, match=r"label 'diverse' is none of those .* boy, girl"):
        irt.score(third, bank, prior=fit)


def test_words_for_nothing_are_labels_and_are_named(tmp_path: Path) -> None:
    """As of groups, and as from_array has them; an empty cell is what is not known."""
    y, about = made(40)
    about["country"] = ["NA", "US", "", "None"] * 10
    answers, persons = written(tmp_path, y, about.drop(columns=["school", "sex"]))
    with pytest.warns(irt.IrtDaskWarning, match="labels of 'country' have 'NA', 'None', which may"):
        r = irt.ingest(answers, tmp_path / "store", persons=persons, columns={"labels": "country"})
    assert r.covariate_labels == {"country": ("NA", "None", "US")}
    assert np.isnan(r.covariates(0)[:, 1]).sum() == 10
    given = about[["escs", "country"]].astype({"country": "string"})
    given.loc[given["country"] == "", "country"] = pd.NA
    found = irt.from_array(y, persons=given)
    np.testing.assert_array_equal(found.covariates(0), r.covariates(0))
    about["country"] = ["missing", "US", "", "None"] * 10
    of_array = irt.from_array(y, item_id=ITEMS, persons=about[["country"]])
    bank = irt.fit_marginal(of_array, standard_errors=False)
    with pytest.raises(irt.InputError, match="'country' has the label 'missing'"):
        irt.fit_population(of_array, bank, covariates="country")


def test_arrays_have_labels_where_text_is_no_numbers() -> None:
    y = np.ones((3, 2))
    table = pd.DataFrame({
        "grade": ["7", "8", None], "code": pd.Categorical(["7", "8", None]),
        "age": pd.array([7, 8, None], dtype="Int64"), "sex": ["girl ", "boy", None],
        "nothing": [None, None, None], "real": [0.5, np.nan, 1.0],
    })  # fmt: skip
    r = irt.from_array(y, persons=table)
    assert r.covariate_labels == {"code": ("7", "8"), "nothing": (), "sex": ("boy", "girl")}
    x = r.covariates(0)
    np.testing.assert_array_equal(x[:, [0, 2]], [[7, 7], [8, 8], [np.nan, np.nan]])
    assert np.isnan(x[2, [1, 3]]).all()
    assert np.isnan(x[:, 4]).all()


def test_an_append_without_a_covariate_of_labels_merges(store: Any, tmp_path: Path) -> None:
    """As one without a covariate of numbers does."""
    y, about = made()
    answers, persons = written(tmp_path, y, about[["person"]], "more")
    with pytest.warns(irt.IrtDaskWarning, match="adds nothing"):
        irt.append(answers, tmp_path / "store", persons=persons, on_duplicate="merge")
