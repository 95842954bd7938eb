"""Runs whose posterior is of items of other models than the 2PL, or of slopes of any sign."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.errors import ChangedRunError, InputError, IrtDaskWarning
from irt_dask.workflow import RunConfig, read_config, run, stages

pytestmark = pytest.mark.usefixtures("without_pictures")


def mixed(path, n=400):
    """A file of items of two and of three categories, of which two fall with ability."""
    rng = np.random.default_rng(3)
    a = np.array([-1.3, 1.1, 1.2, 1.0, -1.2, 1.4, 1.3])
    z = rng.standard_normal(n)[:, None] * a + rng.logistic(size=(n, a.size))
    y = np.digitize(z, [-0.8, 0.9])
    y[:, :3] = z[:, :3] > 0.0
    frame = pd.DataFrame(y, columns=[f"q{j}" for j in range(a.size)])
    frame.insert(0, "person", [f"p{i}" for i in range(n)])
    frame.to_csv(path, index=False)
    return a


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
def test_a_run_of_mixed_items_of_either_sign(tmp_path):
    a = mixed(tmp_path / "d.csv")
    bayes = {"model": "2pl+graded", "positive": "none", "draws": 120, "warmup": 80, "chains": 1}
    sections = {
        "data": {"source": str(tmp_path / "d.csv"), "categories": "data"}, "bayes": bayes,
        "check": {"replicates": 10}, "score": {"item_draws": 5},
    }  # fmt: skip
    config = RunConfig.model_validate({"directory": str(tmp_path / "r"), **sections})
    run(config, say=lambda _: None)
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert [*record["stages"]] == ["ingest", "summary", "bayes", "check", "score", "report"]
    with xr.open_dataset(tmp_path / "r" / "posterior.nc") as fit:
        np.testing.assert_array_equal(np.sign(fit["item_discrimination"]), np.sign(a))
        again = irt.fit_bayes(
            irt.open_responses(tmp_path / "r" / "responses"), model="2pl+graded", positive="none",
            n_draws=120, n_warmup=80, seed=1,
        )  # fmt: skip
        xr.testing.assert_identical(fit["item_discrimination"], again["item_discrimination"])
    page = (tmp_path / "r" / "report.html").read_text()
    assert "first principal component" in page


@pytest.mark.parametrize(("toml", "message"), [
    ("[bayes]\nmodel = '5pl'\n", "'5pl' is not available"),
    ("[bayes]\nguessing_prior = [5, 17]\n", "items of model = '2pl' have no guessing"),
    ("[bayes]\npositive = 'anchors'\n", "bayes.positive"),
    ("[bayes]\nmodel = 'nominal'\n", "nominal items have any sign: positive = 'none'"),
    (
        "[bayes]\nmodel = 'gpcm+nominal'\npositive = 'none'\nprior = 'hierarchical'\n",
        "are not of nominal items",
    ),
    ("[bayes]\nmodel = 'rating:a'\npositive = 'none'\n", "items of rating share one slope"),
    ("[bayes]\nmodel = '2pl+pcm'\nitem_table = 't.csv'\n", "items of pcm share one slope"),
    (
        "[calibrate]\nmethod = 'marginal'\n[marginal]\nmodel = '1pl'\nprior = 'empirical'\n",
        "of slopes and intercepts of items, not of 1pl",
    ),
    ("[bayes]\npositive = 'none'\nprior_discrimination = [1, 1]\n", "is of positive slopes"),
    (
        "[calibrate]\nmethod = 'marginal'\n[marginal]\nmodel = '1pl'\npositive = 'none'\n",
        "items of 1pl share one slope",
    ),
    ("[bayes]\nitem_table = 't.csv'\nprior = 'fixed'\n", "item_table is of the learned prior"),
    ("[bayes]\nmodel = '3pl'\n[joint]\n", r"\[joint\] makes start values of the 2PL"),
    ("[bayes]\npositive = 'none'\n[spectral]\n", r"\[spectral\] makes start values of the 2PL"),
])  # fmt: skip
def test_bad_files_of_other_models(tmp_path, toml, message):
    (tmp_path / "p.toml").write_text("[data]\nbuiltin = 'lsat'\n" + toml)
    with pytest.raises(InputError, match=message):
        read_config(tmp_path / "p.toml")


@pytest.mark.slow
def test_a_run_whose_items_have_blocks_and_covariates(tmp_path):
    mixed(tmp_path / "d.csv")
    table = pd.DataFrame({"item": [f"q{j}" for j in range(7)], "block": list("aaabbbb")})
    table["length"] = np.arange(7.0)
    table.to_csv(tmp_path / "t.csv", index=False)
    bayes = (
        "model = '2pl+graded'\nitem_table = 't.csv'\npositive = 'none'\ndraws = 100\nwarmup = 60\n"
    )
    (tmp_path / "p.toml").write_text(
        "directory = 'r'\n[data]\nsource = 'd.csv'\ncategories = 'data'\n[check]\nreplicates = 10\n"
        f"[bayes]\nchains = 1\n{bayes}"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        run(read_config(tmp_path / "p.toml"), say=lambda _: None)
        with xr.open_dataset(tmp_path / "r" / "posterior.nc") as fit:
            assert fit["block"].values.tolist() == ["a", "b"]
            assert fit["covariate"].values.tolist() == ["length"]
            assert fit["item_block_mean_draw"].shape == (100, 2, 2)
        with xr.open_dataset(tmp_path / "r" / "check.nc") as found:
            assert found["block_score_variance"].shape == (2,)
        table["block"] = list("aabbbbb")
        table.to_csv(tmp_path / "t.csv", index=False)
        with pytest.raises(ChangedRunError):
            run(read_config(tmp_path / "p.toml"), say=lambda _: None)
    for content, message in [
        ("item,block\nq0,\n", "item q0, column block: there is no label"),
        ("item,x\nq0,long\n", "item q0, column x: 'long' is not a finite number"),
        ("item,x\nq0,1\nq0,2\n", "has the item 'q0' twice"),
        ("item\nq0\n", "has no column besides item"),
    ]:
        (tmp_path / "t.csv").write_text(content)
        with pytest.raises(InputError, match=message):
            run(read_config(tmp_path / "p.toml"), say=lambda _: None)


def test_a_table_of_items_that_changes_during_a_run(tmp_path, monkeypatch):
    """The check would have other blocks than the fit."""
    table = tmp_path / "t.csv"
    table.write_text("item,block\n" + "".join(f"LSAT{k},a\n" for k in range(1, 6)))
    honest = stages.fit_bayes

    def changing(*args, **options):
        fit = honest(*args, **options)
        table.write_text(table.read_text().replace("LSAT5,a", "LSAT5,b"))
        return fit

    monkeypatch.setattr(stages, "fit_bayes", changing)
    bayes = {"item_table": str(table), "draws": 100, "warmup": 50, "chains": 1}
    sections = {"data": {"builtin": "lsat"}, "bayes": bayes, "check": {"replicates": 10}}
    config = RunConfig.model_validate({"directory": str(tmp_path / "r"), **sections})
    with pytest.raises(ChangedRunError, match=r"bayes\.item_table .* changed while"):
        run(config, say=lambda _: None)


def test_a_run_takes_items_of_more_categories_as_right_and_wrong(tmp_path):
    mixed(tmp_path / "d.csv", 300)
    data = {"source": str(tmp_path / "d.csv"), "categories": "data"}
    sections = {"calibrate": {"method": "marginal"}, "marginal": {"model": "2pl"},
                "tests": {"item_fit": True}}  # fmt: skip
    whole = {"directory": str(tmp_path / "r"), "data": data | {"dichotomise": 2}, **sections}
    config = RunConfig.model_validate(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)  # two slopes fall
        run(config, say=lambda _: None)
        stored = irt.open_responses(tmp_path / "r" / "responses")
        want = irt.fit_marginal(stored.dichotomise(at=2))
    assert max(stored.n_categories) == 3
    with xr.open_dataset(tmp_path / "r" / "marginal.nc") as fit:
        np.testing.assert_array_equal(fit["item_difficulty"], want["item_difficulty"])
    other = RunConfig.model_validate(whole | {"data": data | {"dichotomise": {"q3": 1}}})
    assert other.digest() != config.digest()
    file = tmp_path / "two.toml"
    file.write_text('[data]\nstore = "r/responses"\ndichotomise = 0\n')
    with pytest.raises(InputError, match=r"data\.dichotomise"):
        read_config(file)


def test_what_is_not_used_does_not_change_what_runs_are_known_by():
    # Runs that were begun before [bayes] had a model can go on.
    content = RunConfig.model_validate({"data": {"builtin": "lsat"}}).computed()
    assert {"model", "guessing_prior", "positive", "item_table"}.isdisjoint(content["bayes"])
    marginal = {"data": {"builtin": "lsat"}, "calibrate": {"method": "marginal"}}
    assert "positive" not in RunConfig.model_validate(marginal).computed()["marginal"]
