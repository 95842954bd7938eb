"""From a store to published tables in one run, again, and what is refused before it begins."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.banks.saved import write_result
from irt_dask.cli.main import cli
from irt_dask.errors import ChangedRunError, InputError
from irt_dask.workflow import publishing, read_config
from irt_dask.workflow.publishing import TableSection

PIPELINE = """
seed = 3
[population]
out = "population.nc"
covariates = "x + C(grade)"
components = 3
domains = "domains.csv"
composites = { all = { maths = 0.5, reading = 0.5 } }
[scoring]
store = "store"
bank = "bank.csv"
out = "scores"
plausible = 3
report = "tables.html"
[[tables]]
out = "means.csv"
title = "Means & gaps"
values = { maths = "pv*_maths", all = "pv*_all" }
by = ["person_group", "sex"]
gaps = ["sex"]
statistics = ["mean"]
persons = "persons.csv"
on = "person"
weight = "weight"
replicates = ["w*"]
method = "jk1"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    rng = np.random.default_rng(12)
    n, m = 600, 12
    ids, items = [f"p{i}" for i in range(n)], [f"q{j}" for j in range(m)]
    x, grade, sex = rng.normal(size=n).round(3), rng.integers(7, 10, n), rng.integers(0, 2, n)
    theta = 0.5 * x[:, None] + rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], n)
    a, d = np.full(m, 1.2), rng.normal(size=m)
    p = 1.0 / (1.0 + np.exp(-(a * theta[:, np.arange(m) % 2] + d)))
    y = (rng.random((n, m)) < p).astype(int)
    pd.DataFrame(y, columns=items).assign(person=ids).to_csv(root / "y.csv", index=False)
    group = np.where(np.arange(n) % 3 == 0, "a", "b")
    stored = pd.DataFrame({"person": ids, "group": group, "x": x, "grade": grade})
    stored.to_csv(root / "stored.csv", index=False)
    of = rng.permutation(n) % 10
    weights = {f"w{k + 1}": np.where(of == k, 0.0, 10.0 / 9.0) for k in range(10)}
    about = pd.DataFrame({"person": ids, "sex": sex, "weight": 1.0, "person_group": group})
    about.assign(**weights).sample(frac=1.0, random_state=1).to_csv(
        root / "persons.csv", index=False
    )
    domain = ["maths", "reading"] * 6
    pd.DataFrame({"item": items, "domain": domain}).to_csv(root / "domains.csv", index=False)
    bank = xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
        coords={"item_id": ("items", items)}, attrs={"model": "2pl"},
    )  # fmt: skip
    irt.write_items(bank, root / "bank.csv")
    irt.ingest(root / "y.csv", root / "store", persons=root / "stored.csv")
    (root / "tables.toml").write_text(PIPELINE)
    return root


def run(*arguments: object) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_one_run_makes_the_tables_and_another_changes_nothing(folder: Path) -> None:
    said = run("run", folder / "tables.toml", "--cluster", "none")
    assert f"table: {folder / 'means.csv'}" in said
    table = pd.read_csv(folder / "means.csv")
    assert table["statistic"].unique().tolist() == ["mean"]
    assert table.groupby("row").size().to_dict() == {"gap": 4, "group": 8}
    assert (table["se"] > table["se_sampling"]).all()
    page = (folder / "tables.html").read_text()
    assert "Means &amp; gaps" in page
    assert page.count("<img") == 4  # means and gaps of two variables
    r = irt.open_responses(folder / "store")
    domains = pd.read_csv(folder / "domains.csv")
    population = irt.fit_population(
        r, irt.read_items(folder / "bank.csv"), covariates="x + C(grade)", n_components=3,
        domains={k: v["item"].tolist() for k, v in domains.groupby("domain", sort=False)},
    )  # fmt: skip
    scores = irt.score(
        r, irt.read_items(folder / "bank.csv"), prior=population, n_plausible=3, seed=3,
        composites={"all": {"maths": 0.5, "reading": 0.5}},
    )  # fmt: skip
    kept = pd.read_parquet(folder / "scores")
    np.testing.assert_array_equal(
        kept[["pv2_maths", "pv2_reading", "pv2_all"]],
        scores["person_domain_plausible_value"].values[:, 1],
    )
    before = (folder / "means.csv").read_bytes()
    again = run("run", folder / "tables.toml", "--cluster", "none")
    assert "n blocks scored  0" in again
    assert (folder / "means.csv").read_bytes() == before


def test_tables_of_a_run_may_be_parquet_files(folder: Path) -> None:
    path = folder / "parquet.toml"
    path.write_text(PIPELINE.replace('"means.csv"', '"means.parquet"'))
    run("run", folder / "tables.toml", "--cluster", "none")
    said = run("run", path, "--cluster", "none")
    assert f"table: {folder / 'means.parquet'}" in said
    found, wanted = pd.read_parquet(folder / "means.parquet"), pd.read_csv(folder / "means.csv")
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


@pytest.mark.parametrize("said", ["tab", r"\\t"])
def test_persons_of_a_run_may_stand_in_a_file_with_tabs(folder: Path, said: str) -> None:
    """The sign is named as everywhere, before anything runs too."""
    persons = pd.read_csv(folder / "persons.csv")
    persons.to_csv(folder / "tabs.csv", sep="\t", index=False)
    text = FROM_FILES.replace('"persons.csv"', f'"tabs.csv"\ndelimiter = "{said}"')
    (folder / "tabs.toml").write_text(text)
    publishing.check_columns(read_config(folder / "tabs.toml"))
    (folder / "tabs.toml").write_text(text.replace('"sex"', '"sx"'))
    with pytest.raises(InputError, match=r"no column is 'sx'; there are .*'sex', 'weight'"):
        publishing.check_columns(read_config(folder / "tabs.toml"))


def test_persons_may_stand_in_a_file_with_semicolons(folder: Path) -> None:
    persons = pd.read_csv(folder / "persons.csv")
    persons.to_csv(folder / "semicolons.csv", sep=";", decimal=",", index=False)
    path = folder / "semicolons.toml"
    other = PIPELINE.replace('"persons.csv"', '"semicolons.csv"\ndelimiter = ";"\ndecimal = ","')
    path.write_text(other.replace('"means.csv"', '"other.csv"'))
    run("run", folder / "tables.toml", "--cluster", "none")
    run("run", path, "--cluster", "none")
    assert (folder / "other.csv").read_bytes() == (folder / "means.csv").read_bytes()


FROM_FILES = """
title = "From files"
directory = "from_files"
[data]
source = "y.csv"
shape = "wide"
columns = { person = "person" }
persons = "stored.csv"
[calibrate]
method = "marginal"
[check]
replicates = 0
[population]
covariates = "x + C(grade)"
domains = "domains.csv"
item_draws = 2
composites = { all = { maths = 0.5, reading = 0.5 } }
[score]
plausible = 2
[[tables]]
out = "means.csv"
values = { all = "pv*_all" }
by = ["person_group", "sex"]
gaps = ["sex"]
statistics = ["mean"]
persons = "persons.csv"
on = "person"
weight = "weight"
replicates = ["w*"]
method = "jk1"
"""


@pytest.mark.slow
def test_a_run_from_files_to_tables(folder: Path) -> None:
    """The values are those of the functions one after the other; a run that is done stays."""
    (folder / "files.toml").write_text(FROM_FILES)
    run("run", folder / "files.toml", "--cluster", "none")
    out = folder / "from_files"
    r, fit = irt.open_responses(out / "responses"), xr.load_dataset(out / "marginal.nc")
    domains = pd.read_csv(folder / "domains.csv")
    population = irt.fit_population(
        r, fit, covariates="x + C(grade)", n_item_draws=2,
        domains={k: v["item"].tolist() for k, v in domains.groupby("domain", sort=False)},
    )  # fmt: skip
    scores = irt.score(
        r, fit, prior=population, n_plausible=2, n_item_draws=2, seed=1,
        composites={"all": {"maths": 0.5, "reading": 0.5}},
    )  # fmt: skip
    kept = pd.read_parquet(out / "scores")
    np.testing.assert_array_equal(
        kept[["pv2_maths", "pv2_reading", "pv2_all"]],
        scores["person_domain_plausible_value"].values[:, 1],
    )
    assert pd.read_csv(out / "means.csv").groupby("row").size().to_dict() == {"gap": 2, "group": 4}
    assert (out / "tables.html").read_text().count("<img") == 2
    assert "given covariates" in (out / "report.html").read_text()
    before = (out / "means.csv").read_bytes()
    assert "tables: done before" in run("run", folder / "files.toml", "--cluster", "none")
    (out / "means.csv").unlink()
    run("run", folder / "files.toml", "--cluster", "none")
    assert (out / "means.csv").read_bytes() == before
    (folder / "files.toml").write_text(FROM_FILES.replace('"means.csv"', '"means.parquet"'))
    (out / "means.csv").rename(folder / "kept.csv")
    run("run", folder / "files.toml", "--cluster", "none", "--fresh")
    found, wanted = pd.read_parquet(out / "means.parquet"), pd.read_csv(folder / "kept.csv")
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"x + C(grade)"', '"x + C(sex)"', "no column is 'sex'"),
        ('"means.csv"', '"items.csv"', "a file of its own in the folder of the run"),
        ('"means.csv"', '"there/means.csv"', "a file of its own in the folder of the run"),
        ("[population]", '[population]\nout = "population.nc"', "a run keeps the model"),
        ("plausible = 2", 'plausible = 2\nprior = "groups"', "where persons come from"),
        ('domains = "domains.csv"', 'domains = "none.csv"', "there is no file"),
        ('"means.csv"', '"run.json"', "ends in .csv or .parquet"),
        ("item_draws = 2", "item_draws = 1", "one draw does not tell"),
        ("maths = 0.5, reading", "physics = 0.5, reading", "no domain is 'physics'"),
        ("plausible = 2", 'plausible = 2\nomitted = "wrong"', "with a population as in"),
        ('"person_group", "sex"]', '"person_group", "sx"]', "means.csv: no column is 'sx'; there"),
        (
            'gaps = ["sex"]',
            'gaps = ["grade"]',
            "means.csv: gaps = has 'grade', which is not in by = [",
        ),
        ('"pv*_all"', '"pv*_al"', "'pv*_al'; 'pv*_all' would; there are 'person_id',"),
        ('"pv*_all"', '"pv3_all"', "means.csv: no column is 'pv3_all'"),
        ('weight = "weight"', 'weight = "w"', "means.csv: no column is 'w'; there are"),
        ('["w*"]', '["r*"]', "means.csv: no column matches (a * is a number) 'r*'"),
        ('["mean"]', '["meen"]', "means.csv: statistics = has 'meen'"),
        ('on = "person"', 'on = "pupil"', 'means.csv: on = "pupil": no column of'),
        ('"persons.csv"', '"persons.csv"\ndelimiter = ";;"', "it is a sign such as"),
        ('persons = "persons.csv"', 'delimiter = ";"', "of CSV files (.csv, .csv.gz), and there"),
        (
            '"persons.csv"',
            '"p.parquet"\ndecimal = ","',
            "of CSV files (.csv, .tsv, .gz), and there",
        ),
    ],
)
def test_what_a_run_refuses(folder: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FROM_FILES
    text = FROM_FILES.replace(old, new).replace("from_files", str(tmp_path / "wrong"))
    (folder / "wrong.toml").write_text(text)
    result = CliRunner().invoke(cli, ["run", str(folder / "wrong.toml"), "--cluster", "none"])
    assert result.exit_code != 0
    assert message in str(result.exception) + result.output
    assert not (tmp_path / "wrong" / "marginal.nc").exists()
    if "means.csv: " in message:
        assert "[[tables]] means.csv: " in str(result.exception)
        assert not (tmp_path / "wrong").exists()


SMALL = """
directory = "small"
[data]
source = "y.csv"
shape = "wide"
columns = { person = "person" }
persons = "stored.csv"
[calibrate]
method = "marginal"
[check]
replicates = 0
[population]
covariates = "x"
[score]
plausible = 2
[[tables]]
out = "means.csv"
values = { all = "pv*_ability" }
by = ["sex"]
statistics = ["mean"]
persons = "persons.csv"
on = "person"
[[tables]]
out = "shares.csv"
values = { all = "pv*_ability" }
by = ["person_group"]
statistics = ["at least 9"]
persons = "weights.csv"
on = "person"
weight = "weight"
replicates = ["w*"]
method = "jk1"
"""


@pytest.mark.slow
def test_other_tables_of_a_run_are_made_without_its_other_stages(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that changed alone; and the page, whose notes are those of all."""
    made: list[str] = []
    tabulated = publishing.tabulated
    monkeypatch.setattr(
        publishing, "tabulated", lambda t, scores: made.append(t.out) or tabulated(t, scores)
    )
    path, out, persons = (folder / name for name in ("small.toml", "small", "persons.csv"))
    (folder / "weights.csv").write_bytes(persons.read_bytes())

    def again(text: str) -> tuple[list[str], list[str]]:
        """Tables that were made, and stages."""
        made.clear()
        path.write_text(text)
        said = run("run", path, "--cluster", "none")
        lines = [line.partition(" ...") for line in said.splitlines()]
        return [*made], [name for name, dots, _ in lines if dots and ":" not in name]

    both = ["means.csv", "shares.csv"]
    assert again(SMALL)[0] == both
    first, page = (out / "means.csv").read_bytes(), (out / "tables.html").read_bytes()
    record = json.loads((out / "run.json").read_text())
    assert again(SMALL) == ([], [])
    other = SMALL.replace("at least 9", "at least 0")
    assert again(other) == (["shares.csv"], ["tables", "report"])
    assert set(pd.read_csv(out / "shares.csv")["statistic"]) == {"at least 0"}
    assert (out / "tables.html").read_bytes() != page
    assert again(SMALL) == (["shares.csv"], ["tables", "report"])
    assert (out / "tables.html").read_bytes() == page
    now = json.loads((out / "run.json").read_text())
    notes = [r["stages"]["tables"]["notes"] for r in (now, record)]
    assert notes[0] == notes[1]
    assert any(n.startswith("[[tables]] shares.csv: ") for n in notes[0])
    for r in (now, record):
        del r["checksum"]
        for stage in r["stages"].values():
            del stage["seconds"]
        del r["stages"]["report"]["files"]
    assert now == record
    # a title is of the page, a name of the file
    assert again(SMALL.replace('"means.csv"', '"means.csv"\ntitle = "By sex"'))[0] == []
    assert "By sex" in (out / "tables.html").read_text()
    assert again('title = "Whole"' + SMALL) == ([], ["tables", "report"])
    assert "Whole" in (out / "tables.html").read_text()
    assert again(SMALL.replace("shares.csv", "parts.csv"))[0] == ["parts.csv"]
    assert not (out / "shares.csv").exists()
    (out / "means.csv").unlink()
    assert again(SMALL)[0] == both
    assert (out / "means.csv").read_bytes() == first
    (out / "means.csv").unlink()
    assert again(SMALL) == (["means.csv"], ["tables"])
    # the model, and no tables at all
    model = (out / "population.nc").read_bytes()
    (out / "population.nc").unlink()
    assert again(SMALL)[1] == ["population"]
    assert (out / "population.nc").read_bytes() == model
    assert again(SMALL.partition("[[tables]]")[0]) == ([], ["report"])
    assert not any((out / name).exists() for name in (*both, "tables.html"))
    # persons of another file
    kept = persons.read_text()
    assert again(SMALL) == (both, ["tables", "report"])
    persons.write_text(kept.replace("sex", "SEX"))
    assert again(SMALL.replace('"sex"', '"SEX"'))[0] == ["means.csv"]
    persons.write_text(kept)
    with pytest.raises(ChangedRunError, match=r"changed \(seed: 1 -> 2\)"):
        again("seed = 2" + SMALL)


def test_tables_that_cannot_be_made_leave_no_old_ones(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the new configuration; others, and what comes before, stay."""
    (folder / "weights.csv").write_bytes((folder / "persons.csv").read_bytes())
    path, out = folder / "fails.toml", tmp_path / "run"
    text = SMALL.replace('directory = "small"', f'directory = "{out}"')
    path.write_text(text)
    run("run", path, "--cluster", "none")
    first = {name: (out / name).read_bytes() for name in ("means.csv", "shares.csv")}
    tabulated = publishing.tabulated

    def failing(table: TableSection, scores: str) -> pd.DataFrame:
        if "at least 0" in table.statistics:
            raise InputError("this one fails")
        return tabulated(table, scores)

    monkeypatch.setattr(publishing, "tabulated", failing)
    path.write_text(text.replace("at least 9", "at least 0"))
    with pytest.raises(InputError, match="this one fails"):
        run("run", path, "--cluster", "none")
    assert (out / "means.csv").read_bytes() == first["means.csv"]
    assert (out / "scores").exists()
    assert not (out / "shares.csv").exists()
    assert not (out / "tables.html").exists()
    path.write_text(text)
    run("run", path, "--cluster", "none")
    assert {name: (out / name).read_bytes() for name in first} == first
    assert (out / "tables.html").exists()


def test_a_key_that_is_not_given_is_not_there(folder: Path) -> None:
    """So that runs from before there was the key are asked for the same tables."""
    (folder / "key.toml").write_text(FROM_FILES)
    assert "decimal" not in read_config(folder / "key.toml").computed()["tables"][0]
    given = FROM_FILES.replace('"persons.csv"', '"persons.csv"\ndecimal = "."')
    (folder / "key.toml").write_text(given)
    assert read_config(folder / "key.toml").computed()["tables"][0]["decimal"] == "."


@pytest.mark.slow
def test_columns_of_scores_are_known_before(folder: Path) -> None:
    for name in ("from_files", "small"):
        config = read_config(folder / ("files.toml" if name == "from_files" else "small.toml"))
        found = pd.read_parquet(folder / name / "scores").columns.tolist()
        assert sorted(publishing.score_columns(config)) == sorted(found)


def test_the_same_by_single_commands(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "population.nc"
    said = run(
        "population", folder / "store", folder / "bank.csv", "--covariates", "x + C(grade)",
        "--components", 3, "--domains", folder / "domains.csv", "--out", model,
        "--cluster", "none",
    )  # fmt: skip
    assert "maths with reading" in said
    known = xr.load_dataset(model, engine="scipy")
    x = known["regression_coefficient"].sel(covariate="x").values  # groups, domains
    table = said.partition("Ability by covariates:")[2].splitlines()
    lines = [line.split() for line in table if line.split()[-3:-2] == ["x"]]
    assert [line[-4] for line in lines] == ["maths", "reading"] * x.shape[0]
    assert [line[-2] for line in lines] == [f"{value:.3f}" for value in x.ravel()]
    run(
        "score", folder / "store", folder / "bank.csv", "--population", model, "--plausible", 3,
        "--seed", 3, "--composite", "all=maths:0.5,reading:0.5", "--out", tmp_path / "scores",
        "--cluster", "none",
    )  # fmt: skip
    run("run", folder / "tables.toml", "--cluster", "none")
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "scores"), pd.read_parquet(folder / "scores")
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('out = "means.csv"', 'out = "means.txt"', "must end in .csv or .parquet"),
        ('persons = "persons.csv"', 'persons = "nobody.csv"', "there is no file"),
        ("components = 3", "components = 3.5", "a whole number, or a share"),
        ('method = "jk1"', "", "belong together"),
        ("plausible = 3", 'plausible = 3\nprior = "groups"', "no prior"),
        ('domains = "domains.csv"', 'domains = "stored.csv"', "no column is 'item', 'domain'"),
        ("[[tables]]", "[[tables]]\nwhat = 1", "what"),
        ('persons = "persons.csv"', 'decimal = ","', "of CSV files (.csv, .tsv, .gz), and there"),
    ],
)
def test_what_is_refused(folder: Path, old: str, new: str, message: str) -> None:
    assert old in PIPELINE
    path = folder / "wrong.toml"
    path.write_text(PIPELINE.replace(old, new))
    result = CliRunner().invoke(cli, ["run", str(path), "--cluster", "none"])
    assert result.exit_code != 0
    assert message in str(result.exception), result.exception


def test_the_file_to_begin_with_is_read(tmp_path: Path) -> None:
    """All its keys are known ones."""
    from irt_dask.workflow import read_scoring

    path = Path(__file__).parents[2] / "pipelines" / "published_tables.toml"
    config = read_scoring(path)
    assert config is not None
    assert config.population is not None
    assert config.tables[0].design() is not None
    assert tomllib.loads(path.read_text())["scoring"]["plausible"] == 10


def test_sampling_units_of_a_table_are_columns_of_its_persons() -> None:
    told = {"out": "t.csv", "values": {"all": "pv*"}, "units": "school"}
    assert TableSection(**told).design() == irt.Replicates.from_units("school")
    both = TableSection(**told, strata="region").design()
    assert both == irt.Replicates.from_units("school", "region")
    for more, message in (
        ({"method": "jk1", "replicates": ["w*"]}, "units makes replicate weights"),
        ({"preset": "pisa"}, "preset says all of their design: leave out units"),
        ({"zone": "zone"}, "leave out zone"),
        ({"units": None, "strata": "region"}, "strata are those of units"),
    ):
        with pytest.raises(ValueError, match=message):
            TableSection(**told | more)


def test_pairs_of_units_and_scales_are_keys_of_a_table() -> None:
    told = {"out": "t.csv", "values": {"all": "pv*"}}
    zones = {"zone": "block", "unit": "school"}
    assert TableSection(**told, **zones, method="fay", fay=0.3).design() == (
        irt.Replicates.from_zones("fay", "block", "school", fay=0.3)
    )
    of = {"replicates": ["w*"], "method": "jkn"}
    for scale in (0.5, [0.5, 0.75]):
        assert TableSection(**told, **of, scale=scale).design() == (
            irt.Replicates("jkn", ["w*"], scale=scale)
        )
    for more, message in (
        (zones, "zone, unit and method"), (of, "needs scale="),
        ({**zones, "method": "jk1"}, "'jk1' is not made from zones"),
        ({**zones, "method": "jk2", "scale": 1.0}, "leave out scale"),
        ({"fay": 0.5}, "fay and scale are of a method"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            TableSection(**told, **more)


def test_links_are_drawn_into_the_values_of_a_file_and_of_a_command(
    folder: Path, tmp_path: Path
) -> None:
    bank = irt.read_items(folder / "bank.csv")
    known = {"A": 1.1, "B": 0.2, "A_se": 0.05, "B_se": 0.06, "AB_covariance": 0.001, "n_units": 12}
    for name, change in (("maths", {}), ("reading", {"A": 0.9, "B": 0.0})):
        made = bank.assign_attrs(known | change | {"error": "jackknife"})
        write_result(made, folder / f"{name}.nc")
    links = 'linking = { maths = "maths.nc", reading = "reading.nc" }'
    path = folder / "linked.toml"
    path.write_text(PIPELINE.replace("plausible = 3", f"plausible = 5\n{links}")
                    .replace('out = "scores"', 'out = "linked"'))  # fmt: skip
    said = run("run", path, "--cluster", "none")
    assert "linking error    drawn into the plausible values" in said
    assert set(pd.read_csv(folder / "means.csv")["linking"]) == {"drawn"}
    assert "and so in se_imputation" in (folder / "tables.html").read_text()
    options = (
        "score", folder / "store", folder / "bank.csv", "--population", folder / "population.nc",
        "--plausible", 5, "--seed", 3, "--composite", "all=maths:0.5,reading:0.5",
        "--cluster", "none",
    )  # fmt: skip
    both = [f"--linking={name}={folder / name}.nc" for name in ("maths", "reading")]
    run(*options, *both, "--out", tmp_path / "scores", "--csv", tmp_path / "scores.csv")
    made = pd.read_parquet(tmp_path / "scores")
    pd.testing.assert_frame_equal(made, pd.read_parquet(folder / "linked"))
    assert pd.read_csv(tmp_path / "scores.csv").columns.tolist() == made.columns.tolist()
    table = irt.tabulate(tmp_path / "scores.csv", "pv*_all", progress=False)
    assert set(table["linking"]) == {"drawn"}
    one = f"--linking={folder / 'maths.nc'}"
    run(*options, one, "--out", tmp_path / "one")
    assert "person_linking_error_reading" in pd.read_parquet(tmp_path / "one")
    for more, message in (
        ((one, one), "--linking is given more than once: say of which domain"),
        ((both[0], both[0]), "--linking is given more than once"),
        (("--linking=art=x.nc",), "there is no file x.nc"),
        ((f"--linking={folder / 'bank.csv'}",), "--linking is a Dataset and no link: give the fi"),
        ((*both, "--plausible", 4), "A and B of 2 links need 5 values at least"),
    ):
        result = CliRunner().invoke(cli, [*map(str, options), *map(str, more), "--out", "none"])
        assert result.exit_code != 0
        assert message in str(result.exception), result.exception
