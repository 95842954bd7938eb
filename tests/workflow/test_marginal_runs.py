"""Runs that calibrate by marginal maximum likelihood; person weights in runs."""

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from run_results import results

import irt_dask as irt
from irt_dask.banks.saved import is_of
from irt_dask.errors import ChangedRunError, DataWarning, InputError, RunError
from irt_dask.workflow import RunConfig, read_config, read_scoring, run, score_store
from irt_dask.workflow.inputs import bank_checksum
from irt_dask.workflow.running import report_again
from irt_dask.workflow.sections import MarginalConfig
from irt_dask.workflow.stages import STAGES

pytestmark = pytest.mark.usefixtures("without_pictures")

OF_MARGINAL = ["ingest", "summary", "marginal", "check", "score", "report"]
ITEMS = [f"q{j}" for j in range(6)]


def source(path, n=400, weight=True, group=True, seed=1):
    """A wide file: persons of two groups, half a SD apart, whose weights differ."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n) + np.repeat([0.0, 0.5], n // 2)
    y = rng.random((n, 6)) < 1 / (1 + np.exp(-(theta[:, None] - np.linspace(-1, 1, 6))))
    frame = pd.DataFrame(y.astype(int), columns=ITEMS)
    frame.insert(0, "person", [f"p{i}" for i in range(n)])
    if weight:
        frame.insert(1, "w", rng.integers(1, 5, n) / 2)
    if group:
        frame.insert(1, "g", np.repeat(["a", "b"], n // 2))
    frame.to_csv(path, index=False)
    return path


def configured(folder, data, **sections):
    return RunConfig.model_validate(
        {"directory": str(folder), "data": data, "calibrate": {"method": "marginal"}, **sections}
    )


def weighted(folder, **sections):
    columns = {"person": "person", "items": ITEMS, "weight": "w", "group": "g"}
    data = {"source": str(folder.parent / "d.csv"), "columns": columns, "rows_per_block": 64}
    return configured(folder, data, **sections)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of persons with groups and weights, and its plausible values by group."""
    folder = tmp_path_factory.mktemp("marginal") / "r"
    source(folder.parent / "d.csv")
    said = []
    run(weighted(folder, score={"prior": "groups", "plausible": 2}), say=said.append)
    (folder.parent / "said").write_text("\n".join(said))
    return folder


def load(path):
    return xr.load_dataset(path, engine="scipy")


def test_a_marginal_run_leaves_what_it_promises(finished):
    """Groups and weights are used by all stages, and the report tells the fit."""
    record = json.loads((finished / "run.json").read_text())
    assert list(record["stages"]) == OF_MARGINAL
    assert record["config"]["calibrate"] == {"method": "marginal"}
    assert not record["config"].keys() & {"spectral", "joint", "bayes"}
    r = irt.open_responses(finished / "responses")
    fit, alone = load(finished / "marginal.nc"), irt.fit_marginal(r)
    for name in ("item_discrimination", "item_difficulty_se", "group_mean", "group_mean_se"):
        np.testing.assert_array_equal(fit[name], alone[name])
    assert fit.attrs["log_likelihood"] == alone.attrs["log_likelihood"]
    assert fit.attrs["mean_weight"] != 1.0
    assert abs(float(fit["group_mean"][1] - 0.5)) < 3 * float(fit["group_mean_se"][1])
    bank = irt.read_items(finished / "items.csv")
    np.testing.assert_array_equal(bank["item_discrimination"], fit["item_discrimination"])
    rows = [*zip(bank["parameter_item"].values, bank["parameter_column"].values, strict=True)]
    of_fit = [*zip(fit["parameter_item"].values, fit["parameter_column"].values, strict=True)]
    at = [of_fit.index(row) for row in rows]
    covariance = fit["item_parameter_covariance"].values[np.ix_(at, at)]
    np.testing.assert_allclose(bank["item_parameter_covariance"], covariance, rtol=1e-12)
    scores = pd.read_parquet(finished / "scores")
    again = irt.score(r, alone, prior="groups", n_plausible=2, seed=1)
    np.testing.assert_array_equal(scores["person_ability"], again["person_ability"])
    np.testing.assert_array_equal(scores[["pv1", "pv2"]], again["person_plausible_value"])


def test_the_report_of_a_marginal_run(finished):
    page = (finished / "report.html").read_text()
    fit = load(finished / "marginal.nc")
    for said in (
        "marginal maximum likelihood", "marginal ML a", "log likelihood", "<td>yes</td>",
        f"<td>{fit.attrs['aic']:,.3f}</td>", f"<td>{fit.attrs['bic']:,.3f}</td>",
        f"<td>{fit['group_mean'][1]:.3f} ± {fit['group_mean_se'][1]:.3f}</td>",
        f"<td>{fit['item_discrimination'][0]:.3f} ± {fit['item_discrimination_se'][0]:.3f}</td>",
    ):  # fmt: skip
        assert said in page, said
    assert "osterior" not in page.replace("osterior standard deviation", "")
    assert "joint ML" not in page


def test_a_check_that_cannot_be_made_is_said_not_to_be(finished):
    said = "no predictive check was made: it draws persons without weights from one normal"
    record = json.loads((finished / "run.json").read_text())
    assert record["stages"]["check"]["files"] == {}
    assert [said in note for note in record["stages"]["check"]["notes"]] == [True]
    for place in ("report.html", "log.txt", "../said"):
        assert said in (finished / place).read_text(), place
    assert "note: no predictive check" in (finished.parent / "said").read_text()


@pytest.mark.parametrize(
    "stage", ["marginal", *(pytest.param(s, marks=pytest.mark.slow) for s in ("check", "score"))]
)
def test_a_marginal_run_resumes_after_any_stage(finished, tmp_path, stage, monkeypatch):
    class Killed(BaseException):
        pass

    def die(context):
        raise Killed

    shutil.copy(finished.parent / "d.csv", tmp_path)
    config = weighted(tmp_path / "r", score={"prior": "groups", "plausible": 2})
    with monkeypatch.context() as m:
        m.setitem(STAGES, stage, die)
        with pytest.raises(Killed):
            run(config)
    run(config)
    assert results(tmp_path / "r") == results(finished)


def test_a_finished_marginal_run_is_left_as_it_is(finished):
    said = []
    run(weighted(finished, score={"prior": "groups", "plausible": 2}), say=said.append)
    assert said == [f"{name}: done before" for name in OF_MARGINAL]
    with pytest.raises(RunError, match=r"marginal.model: '2pl' -> '1pl'"):
        run(
            weighted(finished, score={"prior": "groups", "plausible": 2}, marginal={"model": "1pl"})
        )
    data = {"source": str(finished.parent / "d.csv"), "weights": "ignore"}
    other = RunConfig.model_validate({"directory": str(finished), "data": data})
    with pytest.raises(RunError, match=r"calibrate.method: 'marginal' -> None"):
        run(other)
    (finished / "report.html").unlink()
    assert "Ability of the groups" in report_again(finished).read_text()


def test_anchors_of_a_4pl_run_and_scoring_with_its_bank(tmp_path):
    """Items of a bank keep their parameters; the persons are drawn from their own distribution."""
    truth = irt.simulate(600, 8, model="4pl", seed=3, store=tmp_path / "s").truth
    bank = tmp_path / "bank.csv"
    known = truth.isel(items=slice(0, 3))
    irt.write_items(known.assign(item_difficulty_se=("items", [0.1, 0.2, 0.3])), bank)
    file = tmp_path / "p.toml"
    file.write_text(
        "[data]\nstore = 's'\n[calibrate]\nmethod = 'marginal'\n"
        "[marginal]\nmodel = '4pl'\nfixed_items = 'bank.csv'\nguessing_prior = [5, 20]\n"
        "max_iterations = 200\n[check]\nreplicates = 10\n"
    )
    config = read_config(file, {"directory": tmp_path / "r"})
    run(config)
    r, fit = irt.open_responses(tmp_path / "s"), load(tmp_path / "r" / "marginal.nc")
    alone = irt.fit_marginal(
        r, model="4pl", fixed_items=irt.read_items(bank), guessing_prior=(5, 20), max_iterations=200
    )
    np.testing.assert_array_equal(fit["item_upper_asymptote"], alone["item_upper_asymptote"])
    np.testing.assert_array_equal(
        fit["item_discrimination"][:3], irt.read_items(bank)["item_discrimination"]
    )
    for kept in (fit, irt.read_items(tmp_path / "r" / "items.csv")):
        np.testing.assert_array_equal(kept["item_difficulty_se"][:3], [0.1, 0.2, 0.3])
    page = (tmp_path / "r" / "report.html").read_text()
    for said in ("Items that kept the parameters of the bank", "marginal ML c", "marginal ML u",
                 "bank of fixed items", "Predictive check"):  # fmt: skip
        assert said in page, said
    assert load(tmp_path / "r" / "check.nc").attrs["n_item_draws"] == 0
    for kind in ("items.csv", "marginal.nc"):
        nightly = tmp_path / "n.toml"
        nightly.write_text(f"[scoring]\nstore = 's'\nbank = 'r/{kind}'\nout = 'scores of {kind}'\n")
        with pytest.warns(DataWarning, match="calibrated with persons"):
            result = score_store(read_scoring(nightly))
        assert result.attrs["n_persons"] == 600
    ours, banks = (
        pd.read_parquet(tmp_path / x)["person_ability"] for x in ("r/scores", "scores of items.csv")
    )
    np.testing.assert_allclose(ours, banks, atol=1e-9)
    bank.write_text(bank.read_text().replace(",", ", ", 1))
    with pytest.raises(ChangedRunError, match=r"the bank marginal.fixed_items changed"):
        run(config)


def test_rows_that_are_put_aside_are_told_of(tmp_path):
    file, said = source(tmp_path / "d.csv", n=50, weight=False, group=False), []
    file.write_text(file.read_text().replace("p7,0", "p7,8").replace("p7,1", "p7,8"))
    data = {"source": str(file), "on_error": "quarantine"}
    run(configured(tmp_path / "r", data, check={"replicates": 0}), say=said.append)
    assert said[1] == (
        "  note: 1 row(s) of d.csv were put aside: responses.quarantine.csv has them, with the "
        "reasons"
    )
    assert "1 row(s) of d.csv were put aside" in (tmp_path / "r" / "report.html").read_text()


@pytest.mark.parametrize(
    "prior, message", [("groups", "have no groups"), (["age"], "those that the responses have: no")]
)
def test_a_prior_that_nobody_has_stops_the_run_before_the_long_stages(prior, message, tmp_path):
    config = configured(tmp_path / "r", {"builtin": "lsat"}, score={"prior": prior})
    with pytest.raises(InputError, match=message):
        run(config)
    assert list(json.loads((tmp_path / "r" / "run.json").read_text())["stages"]) == ["ingest"]


@pytest.mark.slow
def test_the_check_is_on_the_scale_of_the_persons(tmp_path):
    """Of persons far above the bank's, drawn from their own distribution, the check says fine."""
    r = irt.simulate(800, 10, seed=2, store=tmp_path / "s")
    bank = r.truth.assign(
        item_intercept=r.truth["item_intercept"] - 1.5 * r.truth["item_discrimination"],
        item_difficulty=r.truth["item_difficulty"] + 1.5,
    )  # on the scale of a population that is 1.5 lower
    irt.write_items(bank.isel(items=slice(0, 5)), tmp_path / "bank.csv")
    config = configured(
        tmp_path / "r", {"store": str(tmp_path / "s")},
        marginal={"fixed_items": str(tmp_path / "bank.csv")}, check={"replicates": 19},
    )  # fmt: skip
    run(config)
    assert load(tmp_path / "r" / "marginal.nc")["group_mean"][0] == pytest.approx(1.5, abs=0.2)
    assert load(tmp_path / "r" / "check.nc").attrs["p_value"] > 0.05


MARGINAL = "[data]\nbuiltin = 'lsat'\n[calibrate]\nmethod = 'marginal'\n"


@pytest.mark.parametrize(
    "toml, message",
    [
        (MARGINAL + "[score]\nitem_draws = 5\n", "item_draws = 5: marginal .* has no draws"),
        (MARGINAL + "[score]\nmethod = 'wle'\nprior = 'groups'\n", "no effect on method = 'wle'"),
        (MARGINAL + "[bayes]\ndraws = 500\n", r"\[bayes\] belongs to calibrate.method = 'bayes'"),
        (MARGINAL + "[joint]\n", r"\[joint\] belongs to calibrate.method = 'bayes'"),
        ("[data]\nbuiltin = 'lsat'\n[marginal]\n", r"\[marginal\] belongs to .* = 'marginal'"),
        (
            MARGINAL + "[marginal]\nmodel = '5pl'\n",
            "'5pl' is not available here; choose one of 1pl, 2pl",
        ),
        (MARGINAL + "[marginal]\nguessing_prior = [5, 17]\n", "items of model = '2pl' have no gu"),
        (MARGINAL + "[marginal]\nshards = 2\n", "unknown key 'marginal.shards'"),
        (MARGINAL + "[marginal]\nlatent = 'skew'\n", "marginal.latent"),
        (MARGINAL + "[marginal]\nstandard_errors = 'robust'\n", "marginal.standard_errors"),
        (
            MARGINAL + "[marginal]\nsampling_unit = 'school'\nstandard_errors = false\n",
            "sampling_unit is of a sandwich",
        ),
        ("[data]\nbuiltin = 'lsat'\n[calibrate]\nmethod = 'joint'\n", "calibrate.method"),
        ("[data]\nbuiltin = 'lsat'\nweights = 'drop'\n", "data.weights"),
        ("[data]\nstore = 's'\nrows_per_block = 9\n", "the store has its blocks already"),
        (
            "[data]\nsource = 'd'\ncolumns = {weight = 'w'}\n[calibrate]\nmethod = 'marginal'\n"
            "[private]\nrho = 1.0\nledger = 'l'\n",
            r"\[private\] does not use person weights",
        ),
    ],
)
def test_bad_files_of_marginal_runs(tmp_path, toml, message):
    (tmp_path / "p.toml").write_text(toml)
    with pytest.raises(InputError, match=message):
        read_config(tmp_path / "p.toml")


def test_the_example_is_a_marginal_run():
    example = Path(__file__).parents[2] / "pipelines" / "marginal.toml"
    config = read_config(example)
    assert config.is_marginal
    keys = set(MarginalConfig.model_fields)
    commented = tomllib.loads(example.read_text().replace("\n# ", "\n").partition("[marginal]")[2])
    assert {k for k, v in commented.items() if not isinstance(v, dict)} <= keys


def test_options_of_a_marginal_file_are_those_of_the_function(tmp_path):
    (tmp_path / "p.toml").write_text(
        MARGINAL + "[marginal]\nmodel = '3pl'\nguessing_prior = 'none'\nstandard_errors = false\n"
    )
    config = read_config(tmp_path / "p.toml")
    assert config.marginal.options() == {
        "model": "3pl", "guessing_prior": None, "standard_errors": False,
    }  # fmt: skip
    assert config.score.item_draws == 0
    (tmp_path / "p.toml").write_text(
        MARGINAL + "[marginal]\nstandard_errors = 'sandwich'\nsampling_unit = 'school'\n"
    )
    given = {"model": "2pl", "standard_errors": "sandwich", "sampling_unit": "school"}
    assert read_config(tmp_path / "p.toml").marginal.options() == given


@pytest.mark.slow
def test_weights_are_used_or_ignored_never_a_dead_end(tmp_path):
    """Ignoring gives what a file without weights does, and says so."""
    for name, weight in (("with", True), ("without", False)):
        path = source(tmp_path / f"{name}.csv", n=200, weight=weight, group=False)
        columns = {"person": "person", "items": ITEMS} | ({"weight": "w"} if weight else {})
        irt.ingest(path, tmp_path / name, columns=columns)
    small = {
        "bayes": {"shards": 1, "draws": 100, "warmup": 50}, "check": {"replicates": 0},
        "calibrate": {"method": "bayes"},
    }  # fmt: skip

    def of(name, **data):
        data = {"store": str(tmp_path / name), **data}
        return configured(tmp_path / f"run {name}", data, **small)

    said = []
    used = of("with")
    used = used.model_copy(update={"check": used.check.model_copy(update={"replicates": 19})})
    run(used, say=said.append)
    assert "no predictive check was made" in "\n".join(said)
    assert load(tmp_path / "run with" / "posterior.nc").attrs["spread"] == "sandwich"
    assert "pseudo-likelihood, about its mode" in (tmp_path / "run with/report.html").read_text()
    shutil.rmtree(tmp_path / "run with")
    said.clear()
    run(of("with", weights="ignore"), say=said.append)
    assert "  note: the persons' sampling weights are ignored" in "\n".join(said)
    run(of("without"))
    ignored, never = (load(tmp_path / f"run {x}" / "posterior.nc") for x in ("with", "without"))
    np.testing.assert_array_equal(
        ignored["item_discrimination_draw"], never["item_discrimination_draw"]
    )
    for place in ("report.html", "log.txt"):
        assert "weights are ignored" in (tmp_path / "run with" / place).read_text()
        assert "weights are ignored" not in (tmp_path / "run without" / place).read_text()
    data = {"store": str(tmp_path / "with"), "weights": "ignore"}
    counted = configured(tmp_path / "run counted", data, check={"replicates": 0})
    run(counted)
    fit = load(tmp_path / "run counted" / "marginal.nc")
    assert fit.attrs["weight_kind"] == "ignored"
    assert is_of(fit, irt.open_responses(tmp_path / "with").fingerprint)
    assert is_of(fit, irt.open_responses(tmp_path / "without").fingerprint) is False


def test_weights_and_covariates_of_a_person_file(tmp_path):
    source(tmp_path / "d.csv", n=200, weight=False, group=False)
    persons, ids = tmp_path / "persons.csv", [f"p{i}" for i in range(200)]
    pd.DataFrame({"person": ids, "weight": 1.5, "age": np.arange(200) % 7}).to_csv(
        persons, index=False
    )
    data = {"source": str(tmp_path / "d.csv"), "persons": str(persons)}
    private = {"rho": 1.0, "ledger": str(tmp_path / "l.json"), "budget": {"rho": 2.0}}
    with pytest.raises(InputError, match=r"'weight' of .*persons.csv: \[private\] does not use"):
        run(configured(tmp_path / "r", data, private=private))
    of_units = {"model": "1pl", "sampling_unit": "age"}
    sections = {"marginal": of_units, "score": {"prior": ["age"]}}
    run(configured(tmp_path / "r", data | {"weights": "ignore"}, **sections))
    assert load(tmp_path / "r" / "marginal.nc").attrs["degrees_of_freedom"] == 6
    assert load(tmp_path / "r" / "scores.nc").attrs["prior"] == "age"
    assert "mean_weight" not in load(tmp_path / "r" / "marginal.nc").attrs
    assert "weights are ignored" in (tmp_path / "r" / "report.html").read_text()
    page = " ".join((tmp_path / "r" / "report.html").read_text().split())
    assert "7 sampling units (age), and with fewer than 30 standard errors are too small" in page
    assert "intervals are t with 6 degrees of freedom times these" in page
    assert "simulated from the estimates, taken as known came out" in page


def test_the_covariance_beside_a_bank_is_a_part_of_it(tmp_path):
    """What fixes the scale of a run is the bank with its covariance, not with another one."""
    path = irt.write_items(irt.fit_marginal(irt.load_lsat()), tmp_path / "bank.csv")
    config = configured(tmp_path / "r", {"builtin": "lsat"}, marginal={"fixed_items": str(path)})
    beside = tmp_path / "bank.covariance.csv"
    whole = bank_checksum(config)
    text = beside.read_text()
    beside.write_text(text.replace("1", "2", 1))
    other = bank_checksum(config)
    beside.unlink()
    assert len({whole, other, bank_checksum(config)}) == 3
