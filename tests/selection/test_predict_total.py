"""Totals from answers to some questions: against sums over all samples, and plain quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import registry
import xarray as xr
from items import bank, probability
from scipy import stats
from scipy.special import expit

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, DataWarning, InputError
from irt_dask.selection.misfit import Misfit

A = np.array([1.2, -0.8, 2.0, 0.5, 1.5, -2.0, 0.9, 1.0])
D = np.array([0.1, -0.6, 0.8, 1.2, -1.0, 0.3, 0.0, -0.4])
IDS = [f"q{j}" for j in range(A.size)]
BANK = bank(A, -D / A, item_id=IDS)
#: Answers that a model of these items finds strange.
Y = np.array([1, 1, 0, 0, 1, 1, 0, 1])
W = np.array([1.0, 2.0, 0.5, 1.0, 0.0, 3.0, 1.0, 1.5])
#: Abilities of the references, in steps of .005.
THETA = np.linspace(-9.0, 9.0, 3601)
MASS = stats.norm.pdf(THETA) * (THETA[1] - THETA[0])


def samples(y, chosen):
    """Responses of which those of the chosen questions are there, one row a sample."""
    out = np.full((len(chosen), len(y)), -1, dtype=np.int8)
    for row, own in zip(out, chosen, strict=True):
        row[list(own)] = y[list(own)]
    return irt.from_array(out, item_id=IDS)


def some(n, among=range(A.size)):
    return list(itertools.combinations(among, n))


def quiet(*args, **options):
    with pytest.warns(ApproximationWarning, match="questions were drawn: 10 residuals"):
        return irt.predict_total(*args, **options)


# --- plain quadrature -----------------------------------------------------------------------------


def posterior(y, asked, a=A, d=D):
    """Weights of the abilities, from the answers to some questions."""
    p = probability(THETA, a[asked], d[asked])
    log = np.log(np.where(y[asked] == 1, p, 1.0 - p)).sum(axis=1)
    w = MASS * np.exp(log - log.max())
    return w / w.sum()


def by_model(y, asked, weights, a=A, d=D):
    """Mean and variance of the total, answers not asked for drawn given ability."""
    w, p = posterior(y, asked, a, d), probability(THETA, a, d)
    rest = np.setdiff1d(np.arange(a.size), asked)
    given = p[:, rest] @ weights[rest]
    noise = (p * (1.0 - p))[:, rest] @ weights[rest] ** 2
    mean = w @ given
    return weights[asked] @ y[asked] + mean, w @ (noise + (given - mean) ** 2)


def by_design(y, asked, weights, a=A, d=D, factor=None):
    """Estimate of the total and its variance, each posterior summed anew; one stratum."""
    n_all, n = a.size, len(asked)
    factor = n_all - n + 1 if factor is None else factor
    p = probability(THETA, a, d)
    totals, residuals, variances = [], [], []
    for j in asked:
        others = np.array([i for i in asked if i != j], dtype=int)
        predicted = posterior(y, others, a, d) @ p
        unseen = np.setdiff1d(np.arange(n_all), others)
        left = weights[j] * (y[j] - predicted[j])
        totals.append(
            weights[others] @ y[others] + weights[unseen] @ predicted[unseen] + factor * left
        )
        residuals.append(left)
        variances.append(weights[j] ** 2 * predicted[j] * (1.0 - predicted[j]))
    expected = np.mean(variances)
    squares = np.square(np.array(residuals) - np.mean(residuals)).sum()
    pooled = (squares + 10.0 * expected) / (n - 1 + 10.0)
    return np.mean(totals), n_all**2 * (1.0 - n / n_all) / n * pooled


# --- by design ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("weights", [None, W])
def test_over_all_samples_the_design_estimate_is_the_total(n, weights):
    """The items know nothing of these answers, so the model's own estimate is far off."""
    r = samples(Y, some(n))
    found = quiet(r, BANK, inclusion_probability=n / 8, item_weights=weights)
    w = np.ones(8) if weights is None else weights
    truth = w @ Y / w.sum()
    assert found.sizes["persons"] == 56
    assert abs(found["person_total_design"].values.mean() - truth) < 1e-12
    assert abs(found["person_total"].values.mean() - truth) > 1e-3


@pytest.mark.parametrize("n", [3, 5])
def test_without_the_factor_it_would_be_biased(n):
    plain = [by_design(Y, np.array(s), np.ones(8), factor=1.0)[0] for s in some(n)]
    assert abs(np.mean(plain) - Y.sum()) > 0.05


@pytest.mark.parametrize("weights", [None, W])
def test_strata_with_probabilities_of_their_own(weights):
    """2 of 5, all of 2 and the one that there is: over all samples the total again."""
    strata = ["a"] * 5 + ["b"] * 2 + ["c"]
    chosen = [(*s, 5, 6, 7) for s in some(2, range(5))]
    p = dict(zip(IDS, [2 / 5] * 5 + [1.0] * 3, strict=True))
    r = samples(Y, chosen)
    found = quiet(r, BANK, inclusion_probability=p, strata=strata, item_weights=weights)
    w = np.ones(8) if weights is None else weights
    assert abs(found["person_total_design"].values.mean() - w @ Y / w.sum()) < 1e-12
    by_probability = quiet(r, BANK, inclusion_probability=p, item_weights=weights)
    same = "person_total_design"
    np.testing.assert_allclose(by_probability[same], found[same], rtol=1e-12)
    assert found.attrs["degrees_of_freedom"] == 1


def test_strata_of_the_same_probability_are_kept_apart():
    """2 of 4 twice: as one stratum of 8 the mean over these samples would not be the total."""
    chosen = [(*s, *t) for s in some(2, range(4)) for t in some(2, range(4, 8))]
    r, strata = samples(Y, chosen), np.repeat(["a", "b"], 4)
    apart = quiet(r, BANK, inclusion_probability=0.5, strata=strata)
    assert abs(apart["person_total_design"].values.mean() - Y.mean()) < 1e-12
    together = quiet(r, BANK, inclusion_probability=0.5)
    assert abs(together["person_total_design"].values.mean() - Y.mean()) > 1e-3


def test_items_of_any_model_and_format():
    """Over all samples of 3 of 5 questions of four models, of up to 4 categories."""
    mixed = registry.BANKS["mixed"]
    y = np.array([[1, 2, 0, 1, 2]], dtype=np.int8)
    chosen = some(3, range(5))
    out = np.full((len(chosen), 5), -1, dtype=np.int8)
    for row, own in zip(out, chosen, strict=True):
        row[list(own)] = y[0, list(own)]
    k = dict(zip(registry.ITEMS, [2, 3, 4, 3, 3], strict=True))
    r = irt.from_array(out, item_id=registry.ITEMS, categories=k)
    found = quiet(r, mixed, inclusion_probability=3 / 5)
    truth = np.mean(y[0] / np.array([1, 2, 3, 2, 2]))
    assert abs(found["person_total_design"].values.mean() - truth) < 1e-12
    assert ((found["person_total"] >= 0.0) & (found["person_total"] <= 1.0)).all()


@pytest.mark.parametrize("weights", [None, W])
def test_against_posteriors_summed_anew(weights):
    chosen = some(5)[::7]
    found = quiet(samples(Y, chosen), BANK, inclusion_probability=5 / 8, item_weights=weights)
    w = np.ones(8) if weights is None else weights
    for k, own in enumerate(chosen):
        asked = np.array(own)
        total, variance = by_design(Y, asked, w)
        values = found.isel(persons=k)
        assert values["person_total_design"] == pytest.approx(total / w.sum(), abs=1e-9)
        assert values["person_total_design_se"] == pytest.approx(
            math.sqrt(variance) / w.sum(), rel=1e-8
        )
        mean, variance = by_model(Y, asked, w)
        assert values["person_total"] == pytest.approx(mean / w.sum(), abs=1e-9)
        assert values["person_total_sd"] == pytest.approx(math.sqrt(variance) / w.sum(), rel=1e-8)


def test_intervals_are_the_named_quantiles():
    r = samples(Y, some(5)[:3])
    found = quiet(r, BANK, inclusion_probability=5 / 8, level=0.8)
    t = stats.t.ppf(0.9, 4)
    for k, own in enumerate(some(5)[:3]):
        v = {name: float(x[k]) for name, x in found.data_vars.items()}
        got = Y[list(own)].sum() / 8
        far = t * v["person_total_design_se"]
        for end, side in (("lower", -1.0), ("upper", 1.0)):
            expected = np.clip(v["person_total_design"] + side * far, got, got + 3 / 8)
            assert v[f"person_total_design_{end}"] == pytest.approx(expected, abs=1e-12)
        m = (v["person_total"] - got) / (3 / 8)
        size = m * (1.0 - m) / (v["person_total_sd"] / (3 / 8)) ** 2 - 1.0
        beta = stats.beta(m * size, (1.0 - m) * size)
        for end, p in (("lower", 0.1), ("upper", 0.9)):
            of_rest = 3 * beta.ppf(p)  # points, 0 and 3 if less than half of one from there
            of_rest = 0.0 if of_rest < 0.5 else 3.0 if of_rest > 2.5 else of_rest
            assert v[f"person_total_{end}"] == pytest.approx(got + of_rest / 8, abs=1e-9)


def test_a_surprising_answer_to_a_steep_question():
    """Left out, its 1 / P lifts weights that the posterior all but rules out."""
    a = np.array([60.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.5, 1.0])
    d = np.array([120.0, 3.0, 2.0, 2.5, 3.0, 2.0, 1.0, 2.0])
    y = np.array([0, 1, 1, 1, 1, 1, 1, 1])
    asked = np.array([0, 1, 2, 4, 6])
    with np.errstate(all="ignore"):
        found = quiet(
            samples(y, [asked]), bank(a, -d / a, item_id=IDS), inclusion_probability=5 / 8
        )

    def log_posterior(others):
        z = np.multiply.outer(THETA, a[others]) + d[others]
        log = -np.logaddexp(0.0, np.where(y[others] == 1, -z, z)).sum(axis=1)
        w = MASS * np.exp(log - log.max())
        return w / w.sum()

    p, totals = expit(np.multiply.outer(THETA, a) + d), []
    for j in asked:
        others = asked[asked != j]
        predicted = log_posterior(others) @ p
        unseen = np.setdiff1d(np.arange(8), others)
        totals.append(y[others].sum() + predicted[unseen].sum() + 4 * (y[j] - predicted[j]))
    # The steep question bends within .02 of ability: sums over steps of .005 are right to 1e-6.
    assert float(found["person_total_design"][0]) == pytest.approx(np.mean(totals) / 8, abs=1e-6)


def test_who_answered_everything_has_that_total():
    r = irt.from_array(Y[None].astype(np.int8), item_id=IDS)
    found = irt.predict_total(r, BANK, inclusion_probability=1.0)
    for name, value in found.data_vars.items():
        assert float(value[0]) == pytest.approx(0.0 if name[-3:] in ("_sd", "_se") else Y.mean())
    assert found.attrs["degrees_of_freedom"] == 0


def test_who_answered_nothing_has_the_total_of_the_population():
    r = irt.from_array(np.full((2, 8), -1, dtype=np.int8), item_id=IDS)
    found = irt.predict_total(r, BANK)
    mean, variance = by_model(Y, np.array([], dtype=int), np.ones(8))
    np.testing.assert_allclose(found["person_total"], mean / 8, atol=1e-9)
    np.testing.assert_allclose(found["person_total_sd"], math.sqrt(variance) / 8, atol=1e-9)


def test_questions_that_the_responses_do_not_have_count_too():
    asked = np.array([0, 2, 5])
    short = irt.from_array(Y[None, asked].astype(np.int8), item_id=[IDS[j] for j in asked])
    full = samples(Y, [asked])
    for one, other in zip(
        irt.predict_total(short, BANK).data_vars.values(),
        irt.predict_total(full, BANK).data_vars.values(),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_many_questions_have_fine_grids():
    """More than 256 nodes, where tables of the 2PL are made around the mode alone."""
    rng = np.random.default_rng(4)
    a, d = rng.normal(0.8, 0.7, 1500), rng.normal(0.0, 1.5, 1500)
    ids = [f"q{j}" for j in range(1500)]
    y = (rng.random(1500) < probability(np.array([0.7]), a, d)[0]).astype(np.int8)
    asked = np.sort(rng.choice(1500, 60, replace=False))
    row = np.full((1, 1500), -1, dtype=np.int8)
    row[0, asked] = y[asked]
    r = irt.from_array(row, item_id=ids)
    found = irt.predict_total(r, bank(a, -d / a, item_id=ids), inclusion_probability=60 / 1500)
    total, variance = by_design(y, asked, np.ones(1500), a, d)
    assert float(found["person_total_design"][0]) == pytest.approx(total / 1500, abs=1e-8)
    assert float(found["person_total_design_se"][0]) == pytest.approx(
        math.sqrt(variance) / 1500, rel=1e-7
    )


# --- draws, weights, files ------------------------------------------------------------------------


def test_draws_of_the_items_are_averaged():
    """The means of the totals' means, and the mean variance plus the variance of the means."""
    rng = np.random.default_rng(2)
    a, d = A + rng.normal(0.0, 0.3, (20, 8)), D + rng.normal(0.0, 0.3, (20, 8))
    drawn = {
        "item_discrimination_draw": (("draw", "items"), a),
        "item_intercept_draw": (("draw", "items"), d),
    }
    asked = np.array([1, 2, 5, 6])
    found = irt.predict_total(samples(Y, [asked]), BANK.assign(drawn))
    each = np.array([by_model(Y, asked, np.ones(8), *one) for one in zip(a, d, strict=True)])
    assert found.attrs["n_item_draws"] == 20
    assert float(found["person_total"][0]) == pytest.approx(each[:, 0].mean() / 8, abs=1e-9)
    sd = math.sqrt(each[:, 1].mean() + each[:, 0].var()) / 8
    assert float(found["person_total_sd"][0]) == pytest.approx(sd, rel=1e-8)


def test_weights_by_name_position_or_array():
    r = samples(Y, some(4)[:5])
    named = dict(zip(IDS, W, strict=True))
    del named["q4"]  # weight 0, as in W
    array = xr.DataArray(W[::-1], dims="items", coords={"item_id": ("items", IDS[::-1])})
    plain = irt.predict_total(r, BANK, item_weights=W)
    for weights in (named, array, list(W), 7.0 * W):
        found = irt.predict_total(r, BANK, item_weights=weights)
        np.testing.assert_allclose(found["person_total_upper"], plain["person_total_upper"])


def test_files_hold_what_is_returned(tmp_path):
    y = registry.values(60)
    r = irt.from_array(y, item_id=registry.ITEMS)
    kept = irt.predict_total(r, registry.BANKS["2pl"])
    told = irt.predict_total(r, registry.BANKS["2pl"], store=tmp_path / "totals")
    table = pd.read_parquet(tmp_path / "totals")
    assert not told.data_vars
    assert told.attrs["store"] == str(tmp_path / "totals")
    for name in kept.data_vars:
        np.testing.assert_array_equal(table[name], kept[name])
    assert table["person_id"].tolist() == kept["person_id"].values.tolist()


# --- how wide -------------------------------------------------------------------------------------


def simulated(seed, second=0.0, n_all=300, n=40, persons=600):
    """Answers of two abilities, a sample of questions for each person, and a bank of the first.

    Slopes of either sign: the second ability, which helps with all questions, looks like no first.
    """
    rng = np.random.default_rng(seed)
    a, d = rng.normal(0.0, 1.0, n_all), rng.normal(0.0, 1.2, n_all)
    theta, other = rng.standard_normal((2, persons, 1))
    p = expit(theta * a + d + second * other)
    y = (rng.random(p.shape) < p).astype(np.int8)
    asked = np.array([rng.permutation(n_all) < n for _ in range(persons)])
    ids = [f"q{j}" for j in range(n_all)]
    return y, irt.from_array(np.where(asked, y, -1), item_id=ids), bank(a, -d / a, item_id=ids)


def held(found, name, truth):
    low, high = (found[f"{name}_{end}"].values for end in ("lower", "upper"))
    return float(((low <= truth) & (truth <= high)).mean())


def test_intervals_hold_where_the_model_does():
    """Of 600 intervals 95% +- .9% hold: 92.5 to 97.5% leave a false alarm of one in a hundred."""
    y, r, items = simulated(1)
    found = irt.predict_total(r, items, inclusion_probability=40 / 300)
    for name in ("person_total", "person_total_design"):
        assert 0.925 < held(found, name, y.mean(axis=1)) < 0.975
    assert found["person_total_design_se"].mean() > found["person_total_sd"].mean()


def test_where_it_does_not_the_design_does_and_calibration_tells():
    """A second ability that the bank does not know of."""
    y, r, items = simulated(2, second=0.8)
    truth = y[:300].mean(axis=1)
    some_r = r.select(persons=slice(0, 300))
    plain = irt.predict_total(some_r, items, inclusion_probability=40 / 300)
    assert "not measured" in plain.attrs["interval"]
    assert held(plain, "person_total", truth) < 0.6
    assert 0.92 < held(plain, "person_total_design", truth) < 0.98
    full = irt.from_array(y[300:], item_id=r.item_id)
    wide = irt.predict_total(some_r, items, calibration=full)
    assert 0.92 < held(wide, "person_total", truth) < 0.98
    assert wide.attrs["misfit_ratio"] > 1.1
    assert "widened" in wide.attrs["interval"]
    share, model, design = wide.attrs["design_share"], plain["person_total"], "person_total_design"
    assert 0.0 < share < 1.0
    np.testing.assert_allclose(wide["person_total"], model + share * (plain[design] - model))
    apart = [np.abs(x - truth).mean() for x in (wide["person_total"], model, plain[design])]
    assert apart[0] < min(apart[1:])


def test_calibration_adds_little_where_the_model_holds():
    y, r, items = simulated(3)
    some_r = r.select(persons=slice(0, 300))
    full = irt.from_array(y[300:], item_id=r.item_id)
    found = irt.predict_total(some_r, items, calibration=full)
    assert found.attrs["n_calibration"] == 300
    assert 0.93 < found.attrs["misfit_ratio"] < 1.07


def test_calibration_looks_at_the_questions_that_were_asked():
    """Two topics with an ability each, and questions of one alone: it is measured on the same."""
    rng = np.random.default_rng(4)
    a, d = np.full(300, 1.2), rng.normal(0.0, 1.0, 300)
    p = expit(np.repeat(rng.standard_normal((600, 2)), 150, axis=1) * a + d)
    y = (rng.random(p.shape) < p).astype(np.int8)
    items, truth = bank(a, -d / a), y[:300].mean(axis=1)
    ids, ratios = items["item_id"].values, []
    for own in (np.arange(0, 300, 5), np.arange(60)):
        r = irt.from_array(y[:300, own], item_id=ids[own])
        found = irt.predict_total(r, items, calibration=irt.from_array(y[300:], item_id=ids))
        ratios.append(found.attrs["misfit_ratio"])
        assert 0.92 < held(found, "person_total", truth) < 0.998
    assert ratios[0] < 1.3
    assert ratios[1] > 3.0


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::irt_dask.errors.ApproximationWarning")
@pytest.mark.parametrize(
    "options, message",
    [
        ({"item_weights": -W}, "item q0 has -1.0; weights are finite and not negative"),
        ({"item_weights": W * np.nan}, "item q0 has nan"),
        ({"item_weights": 0.0 * W}, "item_weights are all 0"),
        ({"item_weights": W[:3]}, r"item_weights has shape \(3,\)"),
        ({"item_weights": {"q9": 1.0}}, "item_weights names 1 item.* 'q9'"),
        ({"item_weights": ["x"] * 8}, "item_weights must be numbers"),
        ({"inclusion_probability": 0.0}, "item q0 has 0.0; probabilities are above 0"),
        ({"inclusion_probability": 1.5}, "item q0 has 1.5; probabilities are above 0"),
        ({"inclusion_probability": {"q0": 0.5}}, "lacks 7 item"),
        ({"inclusion_probability": 0.3}, "0.3 of the 8 questions .* is 2.4 questions"),
        ({"inclusion_probability": 1 / 8}, "one question was drawn"),
        ({"inclusion_probability": 0.5}, "person 1 answered 3 of the 8 .* says that 4 were drawn"),
        (
            {"inclusion_probability": [1.0] + [3 / 7] * 7},
            "person 1 answered 0 of the 1 questions of stratum 'probability 1'",
        ),
        (
            {"inclusion_probability": [0.25] * 4 + [0.75] * 4, "strata": ["a"] * 8},
            "'a' has inclusion probabilities from 0.25 to 0.75",
        ),
        ({"strata": ["a"] * 8}, "give inclusion_probability"),
        ({"inclusion_probability": 0.5, "strata": {"q0": "a"}}, "no label for 7 item"),
        ({"level": 1.0}, "level=1.0"),
    ],
)
def test_refusals(options, message):
    r = samples(Y, [(0, 1, 2, 3), (1, 2, 3)])
    with pytest.raises(InputError, match=message):
        irt.predict_total(r, BANK, **options)


def test_a_chosen_set_has_no_estimate_by_design():
    chosen = irt.choose_items(BANK, 4)
    r = samples(Y, [np.flatnonzero(chosen["item_selected"].values)])
    with pytest.raises(InputError, match="Questions that were chosen, not drawn"):
        irt.predict_total(r, BANK, inclusion_probability=chosen)


def test_calibration_that_cannot_serve():
    r = samples(Y, [(0, 1, 2)])
    short = irt.from_array(np.ones((3, 7), dtype=np.int8), item_id=IDS[:7])
    with pytest.raises(InputError, match=r"calibration lacks 1 of the 8 items \('q7'"):
        irt.predict_total(r, BANK, calibration=short)
    with pytest.raises(InputError, match=r"calibration has 0 person\(s\) who answered all 8"):
        irt.predict_total(r, BANK, calibration=samples(Y, [(0, 1)]))


def test_another_population_is_warned_of():
    r = samples(Y, some(4)[:2])
    for more in ({"calibration_groups": 2}, {"latent": "histogram"}):
        with pytest.warns(DataWarning, match="totals take everybody from N"):
            irt.predict_total(r, BANK.assign_attrs(more))


@pytest.mark.parametrize(
    ("share", "kappa", "attrs", "said"),
    [
        (0.0, 0.0, {}, "its misfit not measured"),
        (0.0, 0.0, {"n_calibrated": 3}, "nothing to correct or to widen"),
        (0.2, 0.0, {"n_calibrated": 3}, "corrected and widened"),
        (0.0, 0.1, {"n_calibrated": 3}, "corrected and widened"),
    ],
)
def test_what_is_said_of_misfit(share, kappa, attrs, said):
    assert said in Misfit(share, kappa, 10, 10.0, attrs).said("one ability")
