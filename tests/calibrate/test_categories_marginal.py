"""Marginal maximum likelihood of items of any number of categories.

Against brute force over textbook probabilities, and what other programs print (R mirt 1.45.1, TAM
4.3-25; Science data of the Eurobarometer 1992).
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from categories import category_probability

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError
from irt_dask.items.mixture import mixture_named

SCIENCE = Path(__file__).parents[1] / "oracles" / "science.csv"
#: Log-likelihood at the maximum, slopes, and step intercepts.
MAXIMA = {
    "graded": (
        -1608.869411,
        [1.0406, 1.2258, 2.3006, 1.0938],
        [(4.8627, 2.6392, -1.4655), (2.9240, 0.9011, -2.2664), (5.2452, 2.2186, -1.9675),
         (3.3469, 0.9914, -1.6875)],
    ),
    "gpcm": (
        -1612.681598,
        [0.8611, 0.8400, 2.2374, 0.7204],
        [(2.8224, 5.3132, 3.9889), (1.7099, 2.5777, 0.8483), (4.6607, 6.8417, 4.9815),
         (2.0948, 2.8939, 1.7186)],
    ),
    "nominal": (-1608.452001, None, None),
    "pcm": (-1619.274099, [1.00125] * 4, None),
    "rating": (-1636.908446, None, None),
}  # fmt: skip
ABILITY = np.linspace(-10.0, 10.0, 801)
DENSITY = np.exp(-0.5 * ABILITY**2) / np.sqrt(2.0 * np.pi) * (ABILITY[1] - ABILITY[0])


def science():
    table = pd.read_csv(SCIENCE)
    y = np.repeat(table.values[:, :4], table["persons"], axis=0)
    return irt.from_array(y, categories=4, item_id=list(table.columns[:4]))


def fit(responses, **options):
    return irt.fit_marginal(responses, progress=False, **options)


def columns_of(model, k):
    """Names and steps of a model's parameters in results, in the order of the textbook's."""
    steps = [("item_step_intercept", s) for s in range(k - 1)]
    if model == "nominal":
        return [("item_category_score", s) for s in range(1, k)] + steps
    if model in ("graded", "gpcm", "pcm"):
        return [("item_discrimination", None), *steps]
    more = {"3pl": ["item_guessing"], "4pl": ["item_guessing", "item_upper_asymptote"]}
    names = ["item_discrimination", "item_intercept", *more.get(model, [])]
    return [(name, None) for name in names]


def item_of(result, j):
    """Model and textbook parameters of an item of a fit; a rating scale as partial credit."""
    model, k = str(result["item_model"].values[j]), int(result["item_n_categories"].values[j])
    model = "gpcm" if model == "rating" else model
    values = []
    for name, step in columns_of(model, k):
        values.append(
            float(result[name].values[j] if step is None else result[name].values[j, step])
        )
    return model, np.array(values)


def log_likelihood(y, items, ability=ABILITY, density=DENSITY):
    """Sum over persons of log marginal likelihoods; -1 is not observed."""
    like = np.ones((len(y), ability.size))
    for j, (model, x) in enumerate(items):
        p = category_probability(model, ability, x)
        seen = y[:, j] >= 0
        like[seen] *= p[:, y[seen, j]].T
    return float(np.log(like @ density).sum())


def simulated(n, models, categories, seed, missing=0.0):
    r = irt.simulate(n, len(models), model=dict(zip(names(len(models)), models, strict=True)),
                     categories=categories, seed=seed, missing=missing)  # fmt: skip
    return r, r.to_xarray()["response"].values


def names(m):
    return [f"item{j + 1}" for j in range(m)]


# --- what other programs find ---------------------------------------------------------------------


@pytest.mark.parametrize("model", MAXIMA)
def test_maxima_of_the_science_data(model):
    found = fit(science(), model=model)
    value, slopes, steps = MAXIMA[model]
    assert found.attrs["log_likelihood"] == pytest.approx(value, abs=2e-6)
    if slopes is not None:
        np.testing.assert_allclose(found["item_discrimination"], slopes, atol=1e-4)
    if steps is not None:
        np.testing.assert_allclose(found["item_step_intercept"], steps, atol=2e-4)
    y = science().to_xarray()["response"].values
    brute = log_likelihood(y, [item_of(found, j) for j in range(4)])
    assert found.attrs["log_likelihood"] == pytest.approx(brute, rel=1e-11)


def test_errors_of_the_science_data():
    """R mirt's, by Oakes' formula."""
    found = fit(science(), model="graded")
    assert float(found["item_discrimination_se"][0]) == pytest.approx(0.188194, rel=1e-4)
    np.testing.assert_allclose(
        found["item_step_intercept_se"][0], [0.490461, 0.222466, 0.158551], rtol=1e-4
    )


def test_a_model_for_each_item():
    models = dict.fromkeys(("Comfort", "Work", "Future"), "graded") | {"Benefit": "gpcm"}
    found = fit(science(), model=models)
    assert found.attrs["log_likelihood"] == pytest.approx(-1610.26549, abs=1e-5)
    np.testing.assert_allclose(
        found["item_discrimination"], [1.0565, 1.2190, 2.2548, 0.7704], atol=1e-4
    )
    assert found["item_model"].values.tolist() == ["graded"] * 3 + ["gpcm"]


# --- brute force ----------------------------------------------------------------------------------

MIXTURES = {
    "graded": (["graded"] * 4, [3, 4, 3, 2]),
    "gpcm": (["gpcm"] * 4, [4, 3, 3, 2]),
    "pcm": (["pcm"] * 4, [3, 4, 3, 2]),
    "rating": (["rating"] * 5, [3, 3, 4, 4, 3]),
    "mixed": (["3pl", "gpcm", "graded", "2pl", "nominal"], [2, 3, 4, 2, 3]),
}


@pytest.mark.parametrize("case", MIXTURES)
def test_the_maximum_and_its_errors(case):
    """No parameter can move; errors are those of the curvature of the brute-force likelihood."""
    models, categories = MIXTURES[case]
    m = len(models)
    r, y = simulated(400, models, categories, seed=3, missing=0.15)
    found = fit(r, model=dict(zip(names(m), models, strict=True)), tolerance=1e-12)
    prior = 0.0
    items = [item_of(found, j) for j in range(m)]
    if case == "mixed":  # the prior of guessing, Beta(5, 17)
        prior = found.attrs["log_prior"]
    assert found.attrs["log_likelihood"] == pytest.approx(log_likelihood(y, items), rel=1e-11)
    free = free_parameters(models, categories, items)

    def value(t):
        moved = [(model, x.copy()) for model, x in items]
        for (places, weights), step in zip(free, t, strict=True):
            for (j, k), w in zip(places, weights, strict=True):
                moved[j][1][k] += w * step
        c = moved[0][1][2] if case == "mixed" else 0.5
        beta = 4.0 * np.log(c) + 16.0 * np.log1p(-c) if case == "mixed" else 0.0
        return log_likelihood(y, moved) + beta

    h, zero = 1e-3, np.zeros(len(free))
    steps = np.eye(len(free)) * h
    gradient = np.array([(value(s) - value(-s)) / (2.0 * h) for s in steps])
    at = value(zero)
    hessian = np.empty((len(free), len(free)))
    for a, b in itertools.combinations_with_replacement(range(len(free)), 2):
        cross = sum(
            s * t * value(s * steps[a] + t * steps[b]) for s in (1.0, -1.0) for t in (1.0, -1.0)
        ) / (4.0 * h * h)
        if a == b:
            cross = (value(steps[a]) + value(-steps[a]) - 2.0 * at) / h**2
        hessian[a, b] = hessian[b, a] = cross
    covariance = np.linalg.inv(-hessian)
    se = np.sqrt(np.diag(covariance))
    np.testing.assert_array_less(np.abs(covariance @ gradient) / se, 2e-4)  # in standard errors
    assert np.isfinite(prior)
    for (places, weights), error in zip(free, se, strict=True):
        (j, k), w = places[0], weights[0]
        name, step = columns_of(*kind(models, categories, j))[k]
        values = found[f"{name}_se"].values[j]
        got = float(values if step is None else values[step])
        if case != "rating":
            assert got == pytest.approx(w * error, rel=2e-4)
    if case == "rating":  # the last step's intercept is (K - 1) times the location
        for j, k in enumerate(categories):
            own = [(j, step) for step in range(1, k)]
            at_j = next(n for n, (places, _) in enumerate(free) if places == own)
            got = float(found["item_step_intercept_se"].values[j, k - 2])
            assert got == pytest.approx((k - 1) * se[at_j], rel=2e-4)


def kind(models, categories, j):
    model = models[j]
    model = "gpcm" if model == "rating" else model
    if categories[j] == 2 and model in ("graded", "gpcm", "pcm"):
        return "2pl", 2
    return model, categories[j]


def free_parameters(models, categories, items):
    """What may move: places (item, parameter) with weights; those of one move together."""
    single = [
        ([(j, k)], [1.0])
        for j, (model, x) in enumerate(items)
        for k in range(len(x))
        if not (models[j] in ("pcm", "rating") and (k == 0 or models[j] == "rating"))
    ]
    shared = [j for j, model in enumerate(models) if model in ("pcm", "rating", "1pl")]
    if shared:
        single.append(([(j, 0) for j in shared], [1.0] * len(shared)))
    if "rating" in models:
        for j, k in enumerate(categories):  # a location: d_k = k d
            single.append(([(j, s) for s in range(1, k)], [float(s) for s in range(1, k)]))
        for k in set(categories):
            own = [j for j in range(len(models)) if categories[j] == k]
            for s in range(1, k - 1):
                single.append(([(j, s) for j in own], [1.0] * len(own)))
    return single


@pytest.mark.filterwarnings("ignore::irt_dask.errors.DataWarning")  # their SD is at a bound
def test_three_persons():
    """The likelihood of almost nothing, items fixed."""
    models, categories = ["3pl", "gpcm", "graded"], [2, 4, 3]
    r, _ = simulated(3, models, categories, seed=1)
    y = np.array([[1, 2, 0], [0, 3, -1], [1, 0, 2]])
    given = irt.from_array(y, categories=categories, item_id=names(3))
    bank = r.truth
    fixed = fit(
        given.select(), model=dict(zip(names(3), models, strict=True)), fixed_items=bank,
        standard_errors=False,
    )  # fmt: skip
    mean, sd = float(fixed["group_mean"][0]), float(fixed["group_sd"][0])
    ability = mean + sd * ABILITY
    brute = log_likelihood(y, [item_of(bank, j) for j in range(3)], ability)
    assert fixed.attrs["log_likelihood"] == pytest.approx(brute, rel=1e-9)


# --- one model within another ---------------------------------------------------------------------


def test_items_of_two_categories_are_those_of_the_2pl():
    r = irt.simulate(800, 6, seed=2)
    plain = fit(r)
    for model in ("graded", "gpcm"):
        other = fit(r, model=model)
        assert other.attrs["log_likelihood"] == plain.attrs["log_likelihood"]
        np.testing.assert_array_equal(other["item_discrimination"], plain["item_discrimination"])
    for model in ("pcm", "rating"):
        assert (
            fit(r, model=model).attrs["log_likelihood"]
            == fit(r, model="1pl").attrs["log_likelihood"]
        )
    nominal = fit(r, model="nominal")
    assert nominal.attrs["log_likelihood"] == pytest.approx(plain.attrs["log_likelihood"], abs=1e-6)
    np.testing.assert_allclose(
        nominal["item_category_score"][:, 1], plain["item_discrimination"], atol=1e-4
    )


def test_a_rating_scale_of_one_item_in_each_block_is_partial_credit():
    r = science()
    blocks = {i: f"rating:{i}" for i in r.item_id}
    one, two = fit(r, model=blocks), fit(r, model="pcm")
    assert one.attrs["log_likelihood"] == pytest.approx(two.attrs["log_likelihood"], abs=1e-7)
    assert one.attrs["n_parameters"] == two.attrs["n_parameters"] == 13
    np.testing.assert_allclose(one["item_step_intercept"], two["item_step_intercept"], atol=1e-5)
    np.testing.assert_allclose(
        one["item_step_intercept_se"], two["item_step_intercept_se"], rtol=1e-4
    )


def test_a_nominal_scale_that_is_turned_round():
    """An item whose categories run the other way has negative scores, and the likelihood stays."""
    y = science().to_xarray()["response"].values.copy()
    y[:, 1] = 3 - y[:, 1]
    turned = fit(irt.from_array(y, categories=4), model="nominal")
    assert turned.attrs["log_likelihood"] == pytest.approx(-1608.452001, abs=1e-5)
    assert (turned["item_category_score"].values[1, 1:] < 0.0).all()
    assert "reversed" not in str(turned["item_flag"].values[1])
    graded = fit(irt.from_array(y, categories=4), model="graded")
    assert "reversed" in str(graded["item_flag"].values[1])


# --- everything else that a fit takes -------------------------------------------------------------


def test_weights_groups_and_layouts_are_as_with_persons_written_out():
    models, categories = ["2pl", "gpcm", "graded", "gpcm"], [2, 3, 4, 5]
    r, y = simulated(600, models, categories, seed=8, missing=0.2)
    model = dict(zip(names(4), models, strict=True))
    rng = np.random.default_rng(0)
    times, group = rng.integers(1, 4, 600), np.array(["a", "b"])[rng.integers(0, 2, 600)]
    counted = irt.from_array(
        y,
        categories=categories,
        item_id=names(4),
        persons={"weight": times, "group": group},
        weight_kind="frequency",
    )
    written = irt.from_array(
        np.repeat(y, times, axis=0), categories=categories, item_id=names(4),
        persons={"group": np.repeat(group, times)}, rows_per_block=101,
    )  # fmt: skip
    one, two = (fit(x, model=model) for x in (counted, written))
    for name in ("item_step_intercept", "item_discrimination", "group_mean", "group_sd"):
        np.testing.assert_allclose(one[name], two[name], atol=1e-7)
        np.testing.assert_allclose(one[f"{name}_se"], two[f"{name}_se"], rtol=1e-6)
    assert one.attrs["log_likelihood"] == pytest.approx(two.attrs["log_likelihood"], rel=1e-12)
    assert r.n_persons == 600


def test_anchors_of_more_categories():
    """Fixed items keep what the bank has, and the others come to its scale."""
    models, categories = ["gpcm"] * 4 + ["graded"] * 4, [3, 4] * 4
    r, _ = simulated(4000, models, categories, seed=6)
    model = dict(zip(names(8), models, strict=True))
    bank = fit(r, model=model)
    fixed = bank.isel(items=slice(0, 5))
    again = fit(r, model=model, fixed_items=fixed)
    np.testing.assert_array_equal(again["item_step_intercept"][:5], bank["item_step_intercept"][:5])
    np.testing.assert_allclose(again["item_step_intercept"], bank["item_step_intercept"], atol=1e-4)
    assert abs(float(again["group_mean"][0])) < 1e-4
    # At the bank's own maximum nothing pulls at an anchor, and slopes and steps are all tested.
    np.testing.assert_allclose(again["item_anchor_chi2"][:5], 0.0, atol=1e-4)
    assert again.attrs["anchor_df"] == sum(categories[:5]) - 2
    wrong = fixed.copy(deep=True)
    wrong["item_step_intercept"][1] += np.array([0.8, 0.0, 0.0])
    with pytest.warns(irt.DataWarning, match="item2"):
        tested = fit(r, model=model, fixed_items=wrong)
    worst = int(np.nanargmax(tested["item_anchor_chi2"].values))
    assert worst == 1
    with pytest.raises(InputError, match="item1 is of model gpcm with 3 categories"):
        fit(r, model=model | {"item1": "graded"}, fixed_items=fixed)


def test_a_histogram_of_ability_is_rescaled_with_all_steps():
    models, categories = (
        ["gpcm", "graded", "2pl", "nominal", "rating", "rating"],
        [3, 4, 2, 3, 3, 3],
    )
    r, y = simulated(3000, models, categories, seed=7)
    found = fit(
        r,
        model=dict(zip(names(6), models, strict=True)),
        latent="histogram",
        max_iterations=2000,
        tolerance=1e-8,
    )
    share = found["group_ability_share"].values[0]
    x = found["ability"].values
    assert share @ x == pytest.approx(0.0, abs=1e-9)
    assert share @ x**2 == pytest.approx(1.0, abs=1e-9)
    brute = log_likelihood(y, [item_of(found, j) for j in range(6)], x, share)
    assert found.attrs["log_likelihood"] == pytest.approx(brute, rel=1e-9)


def test_starting_at_the_end():
    for model in MAXIMA:
        first = fit(science(), model=model)
        again = fit(science(), model=model, start=first)
        assert again.attrs["log_likelihood"] == pytest.approx(
            first.attrs["log_likelihood"], abs=1e-7
        )


@pytest.mark.slow
def test_recovery_and_coverage_of_one_data_set():
    """100,000 persons, mixed: errors of +- 4.5 among some 110 parameters, chance 1e-3."""
    categories = [2] * 8 + [3, 4, 5] * 4
    r = irt.simulate(100_000, 20, model="3pl+gpcm", categories=categories, seed=1)
    found = fit(r, model="3pl+gpcm", guessing_prior=None)
    for name in ("item_discrimination", "item_step_intercept", "item_threshold", "item_guessing"):
        z = ((found[name] - r.truth.get(name, np.nan)) / found[f"{name}_se"]).values
        assert np.nanmax(np.abs(z)) < 4.5
        assert np.isfinite(z).any() or name == "item_threshold"


# --- mistakes -------------------------------------------------------------------------------------


def test_models_that_items_cannot_have():
    r = science()
    for model, said in {
        "2pl": r"model='2pl' is for items of two categories, and 4 have more: Comfort \(4\)",
        "3pl+2pl": "model='2pl' is not available here",
        "lpcm": "model='lpcm' is not available here",
        "gpcm:A": "only rating has blocks",
    }.items():
        with pytest.raises(InputError, match=said):
            fit(r, model=model)
    with pytest.raises(InputError, match="names no model for 3 item"):
        fit(r, model={"Work": "gpcm"})
    with pytest.raises(InputError, match=r"1 item\(s\) that the responses do not have: Play"):
        fit(r, model=dict.fromkeys((*r.item_id, "Play"), "gpcm"))
    with pytest.raises(InputError, match="guessing_prior"):
        fit(r, model="gpcm", guessing_prior=(2.0, 8.0))


def test_a_category_that_nobody_has():
    y = science().to_xarray()["response"].values.copy()
    y[y[:, 2] == 1, 2] = 2
    with pytest.raises(EstimationError, match=r"2 \(1\)"):
        fit(irt.from_array(y, categories=4), model="gpcm")


def test_parameters_that_are_shared():
    """Slopes over all that share them, steps in blocks of as many categories."""
    models = mixture_named(
        {"a": "1pl", "b": "pcm", "c": "rating", "d": "rating", "e": "rating:x", "f": "gpcm"},
        list("abcdef"), (2, 3, 4, 4, 4, 3),
    )  # fmt: skip
    shared = models.of_all
    assert len(set(shared[0, :5])) == 1
    assert shared[0, 0] >= 0
    assert shared[0, 5] == -1
    assert (shared[2:, 2] == shared[2:, 3]).all()
    assert not np.intersect1d(shared[2:, 2], shared[2:, 4]).size
    assert (shared[1] == -1).all()


# --- real data: R mirt 1.45.1 ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "tag, model, name, n_items",
    [
        ("science_gpcm", "gpcm", "science.csv", 4),
        ("science_rsm", "rating", "science.csv", 4),
        ("timss_2pl_grm", "2pl+graded", "timss_aus_twn.csv", 11),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("science_grm", "graded", "science.csv", 4),
                ("science_pcm", "pcm", "science.csv", 4),
                ("timss_2pl_gpcm", "2pl+gpcm", "timss_aus_twn.csv", 11),
                ("timss_pcm", "pcm", "timss_aus_twn.csv", 11),
                ("eclsk_grm", "graded", "eclsk_atl.csv", 12),
                ("eclsk_gpcm", "gpcm", "eclsk_atl.csv", 12),
                ("eclsk_rsm", "rating", "eclsk_atl.csv", 12),
            ]
        ),
    ],
)
def test_maxima_of_mirt(real_data, tag, model, name, n_items):
    """Likelihoods, and parameters with their errors (Oakes) on the scale that mirt has them."""
    folder = real_data / "reference_r"
    y = pd.read_csv(folder / "data" / name).iloc[:, :n_items]
    k = y.max().astype(int) + 1
    found = fit(irt.from_array(y, categories=k.to_dict()), model=model)
    models = pd.read_csv(folder / "models.csv").set_index("tag")
    assert found.attrs["log_likelihood"] == pytest.approx(models.loc[tag, "logLik"], abs=1e-3)
    assert found.attrs["n_parameters"] == models.loc[tag, "npar"]
    table = pd.read_csv(folder / "params" / f"{tag}.csv")
    table = table[table["form"] == "slope-intercept"].set_index(["item", "par"])
    for j, item in enumerate(y.columns):
        steps = found["item_step_intercept"].values[j, : k[item] - 1]
        errors = found["item_step_intercept_se"].values[j, : k[item] - 1]
        names = [f"d{s}" for s in range(1, k[item])] if k[item] > 2 else ["d"]
        if (item, names[0]) not in table.index:  # the rating scale has b and c there
            continue
        if ("GroupPars", "COV_11") in table.index and model == "pcm":
            sd = np.sqrt(table.loc[("GroupPars", "COV_11"), "est"])
            assert float(found["item_discrimination"][j]) == pytest.approx(sd, abs=1e-3)
        else:
            slope = table.loc[(item, "a1")]
            assert float(found["item_discrimination"][j]) == pytest.approx(slope["est"], abs=1e-3)
            got = float(found["item_discrimination_se"][j])
            assert got == pytest.approx(slope["se"], rel=1e-3)
        of_steps = table.loc[[(item, n) for n in names]]
        np.testing.assert_allclose(steps, of_steps["est"], atol=1e-3)
        np.testing.assert_allclose(errors, of_steps["se"], rtol=1e-3)


def test_nominal_items_of_two_categories_say_their_model():
    """A falling one too is scored as it was fitted."""
    y = irt.simulate(800, 6, seed=2).to_xarray()["response"].values.copy()
    y[:, 2] = 1 - y[:, 2]
    r = irt.from_array(y)
    found = fit(r, model="nominal")
    assert found["item_model"].values.tolist() == ["nominal"] * 6
    assert float(found["item_category_score"][2, 1]) < 0.0
    own = irt.score(r, found, progress=False)["person_ability"].values
    y[:, 2] = 1 - y[:, 2]
    turned = irt.from_array(y)
    other = irt.score(turned, fit(turned), progress=False)["person_ability"].values
    np.testing.assert_allclose(own, other, atol=2e-4)


def test_fixed_items_keep_their_curves_or_are_refused():
    r = irt.simulate(2000, 4, model="gpcm", categories=3, seed=1)
    bank = r.truth.drop_dims("persons").isel(items=slice(0, 2)).copy(deep=True)
    bank["item_model"] = ("items", np.array(["nominal"] * 2))
    for scores, same in (([0.0, 2.0, -1.0], False), ([0.0, 0.8, 1.6], True)):
        bank["item_category_score"] = (("items", "categories"), np.array([scores, [0, 1, 2.0]]))
        if same:
            found = fit(r, model="gpcm", fixed_items=bank, standard_errors=False)
            assert float(found["item_discrimination"][0]) == pytest.approx(0.8)
            continue
        with pytest.raises(
            InputError, match="item1 is of model nominal, and no item of model gpcm"
        ):
            fit(r, model="gpcm", fixed_items=bank)


def test_a_reversed_item_beside_others_of_one_slope_is_flagged():
    """It cannot fall below the slope that all share, so the responses decide."""
    y = irt.simulate(2000, 10, model="1pl", seed=3).to_xarray()["response"].values.copy()
    y[:, 0] = 1 - y[:, 0]
    more = irt.simulate(2000, 10, model="gpcm", categories=3, seed=3)
    theta_same = np.concatenate([y, more.to_xarray()["response"].values[:, :3]], axis=1)
    r = irt.from_array(theta_same, categories=[2] * 10 + [3] * 3)
    flags = fit(r, model="1pl+gpcm")["item_flag"].values
    assert "reversed" in flags[0]
    assert not any("reversed" in f for f in flags[1:])


def test_a_rating_scale_borrows_categories():
    """A category that nobody has on one item is known from the others of its block."""
    y = irt.simulate(1500, 6, model="rating", categories=4, seed=3).to_xarray()["response"].values
    y = y.copy()
    y[y[:, 2] == 3, 2] = 2
    r = irt.from_array(y, categories=4)
    assert np.isfinite(fit(r, model="rating")["item_step_intercept"]).all()
    with pytest.raises(EstimationError, match=r"2 \(3\)"):
        fit(r, model="pcm")


def test_what_nominal_items_alone_are_measured_on():
    found = fit(science(), model="nominal")
    assert "direction is free" in found.attrs["identification"]
    assert found.attrs["n_flat_items"] == 0
