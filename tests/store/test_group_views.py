"""Persons in groups by a covariate: what groups that were given with them give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli

N, M = 400, 8
ITEMS = [f"q{j}" for j in range(M)]


def persons() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    sex = rng.choice(["girl", "boy", ""], N, p=[0.5, 0.4, 0.1])
    return {
        "sex": [s or None for s in sex], "grade": rng.integers(7, 9, N).astype(float),
        "escs": rng.standard_normal(N), "group": rng.choice(["north", "south"], N),
    }  # fmt: skip


def answers() -> Any:
    return irt.simulate(N, M, seed=7).to_xarray()["response"].values


@pytest.fixture(scope="module")
def bank() -> xr.Dataset:
    return irt.fit_marginal(irt.from_array(answers(), item_id=ITEMS), standard_errors=False)


def responses(**given: Any) -> irt.Responses:
    return irt.from_array(answers(), item_id=ITEMS, persons=given, rows_per_block=70)


def test_groups_are_labels_or_whole_numbers_or_missing() -> None:
    about = persons()
    r = responses(**about)
    by_sex, by_grade = r.select(groups="sex"), r.select(groups="grade")
    found = np.concatenate([ref.groups() for ref in by_sex.refs])
    assert found.tolist() == [s or "missing" for s in about["sex"]]
    assert {*np.concatenate([ref.groups() for ref in by_grade.refs])} == {"7", "8"}
    assert len({x.fingerprint for x in (r, by_sex, by_grade)}) == 3
    some = r.select(groups="sex", items=ITEMS[:3], persons=slice(10, 90))
    assert np.concatenate([ref.groups() for ref in some.refs]).tolist() == found[10:90].tolist()


@pytest.mark.parametrize("method", ["dif", "fit_marginal", "item_fit", "score"])
def test_methods_see_groups_that_were_given(method: str, bank: xr.Dataset) -> None:
    about = persons()
    viewed = responses(**about).select(groups="sex")
    labels = [s or "missing" for s in about["sex"]]
    given = responses(**{**about, "group": labels})
    call = {
        "dif": lambda r: irt.dif(r, bank, reference="boy", focal="girl"),
        "fit_marginal": lambda r: irt.fit_marginal(r, groups=True, standard_errors=False),
        "item_fit": lambda r: irt.item_fit(r, bank, groups=True),
        "score": lambda r: irt.score(r, bank, prior="groups"),
    }[method]
    one, two = call(viewed), call(given)
    for name in one.variables:
        np.testing.assert_array_equal(one[name].values, two[name].values)


def test_what_is_no_group_is_refused() -> None:
    r = responses(**persons())
    with pytest.raises(irt.InputError, match="groups='town' is no covariate of the persons; they"):
        r.select(groups="town")
    with pytest.raises(irt.InputError, match="groups are labels or whole numbers"):
        r.select(groups="escs").refs[0].groups()
    with pytest.raises(irt.InputError, match="has the label 'missing'"):
        responses(sex=["missing", "girl"] * (N // 2)).select(groups="sex")


def test_the_command_takes_them(bank: xr.Dataset, tmp_path: Path) -> None:
    about = pd.DataFrame(persons()).assign(person=[f"p{i}" for i in range(N)])
    about.to_csv(tmp_path / "persons.csv", index=False)
    table = pd.DataFrame(answers(), columns=ITEMS).assign(person=about["person"])
    table.to_csv(tmp_path / "y.csv", index=False)
    r = irt.ingest(
        tmp_path / "y.csv", tmp_path / "store", persons=tmp_path / "persons.csv",
        columns={"labels": "sex"},
    )  # fmt: skip
    irt.write_items(bank, tmp_path / "bank.csv")
    words = ["dif", tmp_path / "store", tmp_path / "bank.csv", "--by", "sex", "--reference", "boy"]
    words += ["--focal", "girl", "--out", tmp_path / "dif.csv", "--cluster", "none"]
    ran = CliRunner().invoke(cli, [str(w) for w in words])
    assert ran.exit_code == 0, ran.output
    want = irt.dif(
        r.select(groups="sex"), irt.read_items(tmp_path / "bank.csv"), reference="boy",
        focal="girl",
    )  # fmt: skip
    got = pd.read_csv(tmp_path / "dif.csv")
    np.testing.assert_allclose(got["uniform_p_value"], want["item_dif_uniform_p_value"], rtol=1e-9)
