"""Bifactor fits and scores, against sums over grids of all abilities at once."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.calibrate.bifactor import errors
from irt_dask.calibrate.bifactor import model as bifactor
from irt_dask.calibrate.shared.start_values import response_counts
from irt_dask.engine import Engine
from irt_dask.errors import ConvergenceWarning, DataWarning, InputError, ItemWarning
from irt_dask.items.bifactor import BlockItems, grids_of, in_part
from irt_dask.kernels.responses.layouts import Dense, to_sparse
from irt_dask.kernels.several import bifactor_posterior

#: Blocks of items: two of three, and an item by itself.
OF = np.array([0, 1, 0, 1, -1, 1, 0])
LABELS = ["p", "q", "p", "q", "alone", "q", "p"]


def made(n, of, a, s, d, seed, missing=0.0):
    """Responses (n, items), general and block abilities."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(n, 1)), rng.normal(size=(n, of.max() + 1))
    own = np.where(of >= 0, z[:, of], 0.0)
    y = (rng.random((n, of.size)) < 1.0 / (1.0 + np.exp(-(a * x + s * own + d)))).astype(np.int8)
    y[rng.random(y.shape) < missing] = -1
    return y, x[:, 0], z


def some_slopes(seed=0, of=OF):
    rng = np.random.default_rng(seed)
    a, d = rng.uniform(0.6, 1.6, of.size), rng.normal(0.0, 0.8, of.size)
    return np.stack([a, np.where(of >= 0, rng.normal(0.6, 0.5, of.size), 0.0), d])


def hanging_together():
    """Responses of 150 persons, more alike within blocks than the general ability says."""
    a, _, d = some_slopes(1)
    return made(150, OF, a, np.where(OF >= 0, 1.2 * a, 0.0), d, seed=6)[0]


def brute(y, slopes, of, h=0.4, bound=6.8):
    """Log marginals, and means and SDs of all three abilities: a sum over a cube."""
    t = np.arange(-bound, bound + h / 2, h)
    cube = np.stack([v.ravel() for v in np.meshgrid(t, t, t, indexing="ij")])
    log = -0.5 * (cube**2).sum(axis=0) + 3.0 * np.log(h / np.sqrt(2.0 * np.pi))
    z = slopes[0][:, None] * cube[0] + slopes[2][:, None]
    for j in np.flatnonzero(of >= 0):
        z[j] += slopes[1, j] * cube[1 + of[j]]
    w = np.exp(log + (y == 1) @ -np.logaddexp(0.0, -z) + (y == 0) @ -np.logaddexp(0.0, z))
    total = w.sum(axis=1)
    mean = w @ cube.T / total[:, None]
    return np.log(total), mean, np.sqrt(w @ (cube.T**2) / total[:, None] - mean**2)


def rounds(engine, *, testlet=False, prior=None, of=OF):
    n = int(of.max()) + 1
    return bifactor.Rounds(engine, bifactor.Model(testlet, of, n, in_part(engine, of, n), prior))


# --- sums over planes -----------------------------------------------------------------------------


def test_posteriors_are_those_of_sums_over_a_cube():
    """Complete, incomplete and empty rows, in both layouts, to the bit; whole blocks either way."""
    slopes = some_slopes()
    y = made(40, OF, *slopes, seed=1, missing=0.3)[0]
    y[:8] = np.abs(y[:8])
    y[8], y[9, OF == 0] = -1, -1
    items = BlockItems(slopes, OF, 2, np.array([True, True, False]))
    grids = grids_of(items)
    g = items.planes(grids.nodes, grids.block_nodes)
    found = bifactor_posterior.moments(Dense(y), g)
    value, mean, sd = brute(y, slopes, OF, bound=8.4)
    np.testing.assert_allclose(found[2], value, rtol=0, atol=5e-11)
    np.testing.assert_allclose(found[0][:, :3], mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.sqrt(found[1][:, :3]), sd, rtol=0, atol=1e-8)
    for one, other in zip(found, bifactor_posterior.moments(to_sparse(Dense(y)), g), strict=True):
        assert one.tobytes() == other.tobytes()
    without = BlockItems(slopes, OF, 2, np.zeros(3, dtype=bool))
    g = without.planes(grids.nodes, grids.block_nodes)
    for one, other in zip(found, bifactor_posterior.moments(Dense(y[:8]), g), strict=True):
        assert one[:8].tobytes() == other.tobytes()


@pytest.mark.parametrize("steepness", [1.0, 4.0])
def test_half_the_spacing_and_a_wider_grid_change_nothing(steepness):
    """Long blocks, steep items, and answers that lead far out."""
    of = np.repeat([0, 1, 2], 30)
    slopes = some_slopes(3, of) * [[steepness], [steepness], [1.0]]
    y = made(12, of, *slopes, seed=4)[0]
    y[0], y[1], y[2] = 1, 0, of == 1
    items = BlockItems(slopes, of, 3, np.zeros(4, dtype=bool))
    found = []
    for share, more in ((0.75, 0), (0.35, 40)):
        grids = grids_of(items, share=share)
        both = []
        for x in (grids.nodes, grids.block_nodes):
            half = x.size // 2 + more
            both.append(np.arange(-half, half + 1) * (x[1] - x[0]))
        found.append(bifactor_posterior.moments(Dense(y), items.planes(*both)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=3e-6)
    np.testing.assert_allclose(found[0][2][3:], found[1][2][3:], rtol=0, atol=1e-9)


def test_without_slopes_on_blocks_it_is_the_2pl():
    y = made(200, OF, *some_slopes(), seed=2, missing=0.2)[0]
    fit = irt.fit_marginal(y, standard_errors=False)
    a, d = fit["item_discrimination"].values, fit["item_intercept"].values
    with Engine(irt.from_array(y)) as engine:
        r = rounds(engine)
        value, _ = r.expect(r.model.pack(np.stack([a, 0.0 * a, d]), np.empty(0)))
    assert abs(value - fit.attrs["log_likelihood"]) < 1e-8


# --- the maximum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("testlet", [False, True])
@pytest.mark.parametrize("prior", [None, "centred", irt.ItemPrior()])
@pytest.mark.parametrize("expanded", [False, True])
def test_steps_without_acceleration_rise(testlet, prior, expanded):
    y = made(100, OF, *some_slopes(), seed=5, missing=0.2)[0]
    with Engine(irt.from_array(y)) as engine:
        r = rounds(engine, testlet=testlet, prior=prior)
        x, values = r.model.start(response_counts(engine)), []
        for _ in range(6):
            value, _, seen = r.round(x)
            values.append(value)
            x = r.item_step(seen, x)
            if expanded:
                x = r.further(x, seen)
    assert (np.diff(values) > 0.0).all()


def objective(x, y, model):
    """Log-likelihood over the cube and log prior, written anew."""
    m = OF.size
    if model.testlet:
        a, d, scale = x[:m], x[m : 2 * m], x[2 * m :]
        s = np.array([scale[b] * v if b >= 0 else 0.0 for b, v in zip(OF, a, strict=True)])
    else:
        a, s, d = x.reshape(3, m)
    value = brute(y, np.stack([a, s, d]), OF, h=0.5)[0].sum()
    if model.prior == "centred":
        for b in (0, 1, -1):
            la, own, logit = np.log(a[b == OF]), a[b == OF], d[b == OF]
            rest = np.linalg.lstsq(own[:, None], logit, rcond=None)[1].sum()
            if own.size > 1:
                value -= ((la - la.mean()) ** 2).sum() / (2 * 0.5**2) + rest / 8.0
    elif model.prior is not None:
        value -= ((a - 1.0) ** 2).sum() / 2.0 + (d**2).sum() / 8.0
    if model.prior is not None and not model.testlet:
        value -= (s[OF >= 0] ** 2).sum() / 2.0
    return value


@pytest.mark.parametrize(
    ("loadings", "prior"),
    [
        ("testlet", "centred"),
        pytest.param("testlet", None, marks=pytest.mark.slow),
        pytest.param("free", irt.ItemPrior(), marks=pytest.mark.slow),
    ],
)
def test_the_gradient_is_0_where_it_ends(loadings, prior):
    """Finite differences of sums over a cube; and the log-likelihood is theirs."""
    y = hanging_together()
    fit = irt.fit_bifactor(
        y, item_blocks=LABELS, loadings=loadings, prior=prior, tolerance=1e-13, max_iterations=2000
    )
    slopes = np.stack([
        fit["item_loading"].values[:, 0], fit["item_loading"].values[:, 1:].sum(axis=1),
        fit["item_intercept"].values,
    ])  # fmt: skip
    assert fit["domain"].values.tolist() == ["general", "p", "q"]
    assert abs(brute(y, slopes, OF)[0].sum() - fit.attrs["log_likelihood"]) < 1e-8
    model = bifactor.Model(loadings == "testlet", OF, 2, np.zeros(3, dtype=bool), prior)
    x = model.pack(slopes, fit["block_effect_sd"].values)[:, 0]
    free = np.ones(x.size, dtype=bool)
    if loadings == "free":
        free[7 + 4] = False  # the item by itself has no other slope
    for direction in np.random.default_rng(7).normal(size=(4, x.size)) * free:
        step = 1e-4 * direction
        slope = (objective(x + step, y, model) - objective(x - step, y, model)) / 2e-4
        assert abs(slope) < 5e-3


def test_a_fit_goes_on_from_its_checkpoint(tmp_path, bits):
    y = hanging_together()
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 iterations"):
        irt.fit_bifactor(y, item_blocks=LABELS, max_iterations=3, checkpoint=tmp_path)
    again = irt.fit_bifactor(y, item_blocks=LABELS, checkpoint=tmp_path)
    assert bits(again) == bits(irt.fit_bifactor(y, item_blocks=LABELS))


@pytest.mark.slow
def test_few_persons_and_an_item_that_all_have_right():
    """Nothing runs away, and the scale is that of the persons: SD 1 about."""
    of = np.repeat([0, 1, 2], 10)
    a, d = np.full(30, 2.2), some_slopes(0, of)[2]
    y = made(30, of, a, 1.2 * a, d, seed=10)[0]
    y[:, 3] = 1
    with pytest.warns(ItemWarning, match="all_right: 3"):
        fit = irt.fit_bifactor(y, item_blocks=of)
    assert not fit["item_at_bound"].any()
    assert float(abs(fit["item_loading"]).max()) < 6.0
    scores = irt.score(y, fit, n_item_draws=0)
    second = (scores["person_ability"] ** 2 + scores["person_ability_sd"] ** 2).mean("persons")
    assert abs(float(second[0]) - 1.0) < 0.01


# --- standard errors ------------------------------------------------------------------------------


def pooled(fit):
    """Slopes (3, items) of a result."""
    loading = np.asarray(fit["item_loading"])
    return np.stack([loading[:, 0], loading[:, 1:].sum(axis=1), np.asarray(fit["item_intercept"])])


@pytest.mark.parametrize(
    ("loadings", "prior"),
    [
        ("testlet", "centred"),
        pytest.param("free", irt.ItemPrior(), marks=pytest.mark.slow),
    ],
)
def test_errors_are_the_curvature_of_the_objective(loadings, prior):
    """Second differences of sums over a cube along some directions, and errors of s by hand."""
    y = hanging_together()
    fit = irt.fit_bifactor(
        y, item_blocks=LABELS, loadings=loadings, prior=prior, tolerance=1e-13, max_iterations=2000
    )
    with Engine(irt.from_array(y)) as engine:
        r = rounds(engine, testlet=loadings == "testlet", prior=prior)
        x = r.model.pack(pooled(fit), fit["block_effect_sd"].values)
        found = errors.found(r, x, True, len(y))
    np.testing.assert_allclose(found.x, x, rtol=0, atol=1e-7)  # Newton steps were there before
    assert found.free.sum() == r.model.n_parameters
    information = np.linalg.inv(found.covariance)
    for v in np.random.default_rng(8).normal(size=(4, x.size)) * found.free:
        step = 1e-2 * v / np.linalg.norm(v)
        at = [objective(x[:, 0] + k * step, y, r.model) for k in (-2, -1, 0, 1, 2)]
        curvature = (at[0] - 16 * at[1] + 30 * at[2] - 16 * at[3] + at[4]) / 12
        own = step[found.free]
        assert own @ information @ own == pytest.approx(curvature, rel=1e-5)
    if loadings == "testlet":
        a, se = fit["item_loading"].values[3, 0], fit["block_effect_sd_se"].values
        k = [3, 15]  # item 3, of block 1
        some = found.covariance[np.ix_(k, k)]
        gradient = np.array([fit["block_effect_sd"].values[1], a])
        assert fit["item_loading_se"].values[3, 2] == pytest.approx(
            np.sqrt(gradient @ some @ gradient), rel=1e-5
        )
        np.testing.assert_allclose(se, np.sqrt(np.diag(found.covariance)[14:]), rtol=1e-5)


@pytest.mark.slow
def test_sampling_weights_have_the_sandwich():
    """Scores of persons by differences of sums over a cube."""
    y = hanging_together()
    weight = np.random.default_rng(9).uniform(0.3, 3.0, len(y))
    weight /= weight.mean()
    table = {"weight": weight}
    data = irt.from_array(y, persons=table, weight_kind="sampling")
    fit = irt.fit_bifactor(data, item_blocks=LABELS, prior=None)
    with Engine(data) as engine:
        r = rounds(engine, testlet=True)
        x = r.model.pack(pooled(fit), fit["block_effect_sd"].values)
        found = errors.found(r, x, True, len(y))
        bread = np.linalg.inv(errors._observed(r, x, r.expect(x)[1])[0])

    def values(v):
        slopes, _ = r.model.unpack(v[:, None])
        return brute(y, slopes, OF, h=0.5)[0]

    steps = 1e-4 * np.eye(x.size)
    scores = np.array([(values(x[:, 0] + e) - values(x[:, 0] - e)) / 2e-4 for e in steps])
    want = bread @ (scores * weight**2) @ scores.T @ bread * len(y) / (len(y) - 1)
    assert fit.attrs["standard_errors"] == "sandwich"
    np.testing.assert_allclose(np.diag(found.covariance), np.diag(want), rtol=1e-4)


@pytest.mark.slow
def test_frequency_weights_are_repetitions():
    y = hanging_together()
    times = np.random.default_rng(10).integers(1, 5, len(y))
    data = irt.from_array(
        y, persons={"weight": times.astype(float)}, weight_kind="frequency", rows_per_block=60
    )
    one = irt.fit_bifactor(data, item_blocks=LABELS)
    two = irt.fit_bifactor(np.repeat(y, times, axis=0), item_blocks=LABELS)
    for name in ("item_loading_se", "item_intercept_se", "block_effect_sd_se"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-7, err_msg=name)


@pytest.mark.slow
def test_what_has_no_standard_errors():
    y = hanging_together()
    fit = irt.fit_bifactor(y, item_blocks=LABELS, standard_errors=False)
    for name in ("item_loading", "item_intercept", "block_effect_sd"):
        assert np.isnan(fit[f"{name}_se"]).all()
    known = ~np.isnan(irt.fit_bifactor(y, item_blocks=LABELS)["item_loading_se"].values)
    want = np.column_stack([np.ones(7), OF == 0, OF == 1]).astype(bool)
    np.testing.assert_array_equal(known, want)
    with pytest.raises(InputError, match="9000 parameters, and 6000 is the most"):
        irt.fit_bifactor(
            np.ones((3, 3000), dtype=int) - np.eye(3, 3000, dtype=int),
            item_blocks=np.repeat([0, 1, 2], 1000), loadings="free", max_iterations=1,
            standard_errors=True,
        )  # fmt: skip


@pytest.mark.nightly
def test_intervals_cover():
    """25 data sets: pooled by kind, 95% intervals hold within 3.5 standard errors of .95."""
    of = np.repeat([0, 1, 2], 6)
    a, _, d = some_slopes(2, of)
    lam = np.array([0.9, 1.1, 1.3])
    held = {"item_loading": [], "item_intercept": [], "block_effect_sd": []}
    for seed in range(25):
        y = made(600, of, a, lam[of] * a, d, seed)[0]
        fit = irt.fit_bifactor(y, item_blocks=of, prior=None)
        for name, truth in zip(held, (a, d, lam), strict=True):
            value, se = fit[name].values, fit[f"{name}_se"].values
            if name == "item_loading":
                value, se = value[:, 0], se[:, 0]
                truth, value, se = np.log(truth), np.log(value), se / value
            held[name].append(np.abs(value - truth) < 1.96 * se)
    for name, inside in held.items():
        share = np.mean(inside)
        error = np.std(np.mean(inside, axis=1)) / np.sqrt(len(inside))
        assert abs(share - 0.95) < 3.5 * error, (name, share, error)


# --- simulated data -------------------------------------------------------------------------------


@pytest.mark.slow
def test_parameters_and_abilities_are_recovered():
    """Limits are some 4 standard errors: one false alarm in thousands of fresh seeds."""
    of, lam = np.repeat(np.arange(5), 8), np.array([0.4, 0.6, 0.8, 1.0, 1.2])
    a, _, d = some_slopes(9, of)
    y, x, z = made(2000, of, a, lam[of] * a, d, seed=10)
    fit = irt.fit_bifactor(y, item_blocks=of)
    assert abs(fit["block_effect_sd"].values - lam).max() < 0.25
    assert abs(fit["item_loading"].values[:, 0] - a).mean() < 0.12
    scores = irt.score(y, fit)
    error = scores["person_ability"].values - np.column_stack([x, z])
    inside = (np.abs(error) < 1.96 * scores["person_ability_sd"].values).mean(axis=0)
    assert (abs(inside - 0.95) < 0.025).all()

    # The 2PL takes the same answers for more than they are.
    plain = irt.score(y, irt.fit_marginal(y, standard_errors=False))
    error = plain["person_ability"].values - x
    assert (np.abs(error) < 1.96 * plain["person_ability_sd"].values).mean() < 0.88
    ratio = scores["person_ability_sd"][:, 0].mean() / plain["person_ability_sd"].mean()
    assert float(ratio) > 1.25


# --- what is said ---------------------------------------------------------------------------------


def answers(m, n=60, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (n, m))


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["a"] * 6, {}, "all items are of the one block 'a'"),
        (list("abcdef"), {}, "no block has two items"),
        (list("aaabbb"), {}, "of two blocks ('a', 'b') and nothing beside"),
        (["general", "general", "b", "b", "c", "c"], {}, "'general' is the name"),
        (["a", "a", "b", "b", "c", None], {}, "item_blocks has no label"),
        (list("aabbcc"), {"loadings": "tied"}, "loadings='tied' is not available"),
        (list("aabbcc"), {"prior": "empirical"}, "prior='empirical' is not available"),
    ],
)
def test_what_is_refused(labels, options, message):
    with pytest.raises(InputError) as caught:
        irt.fit_bifactor(answers(6), item_blocks=labels, **options)
    assert message in str(caught.value)


@pytest.mark.slow
def test_blocks_that_data_say_little_of_are_named():
    short = {"loadings": "free", "max_iterations": 1}
    with (
        pytest.warns(DataWarning, match=r"2 block\(s\) have two items: a, c"),
        pytest.warns(ConvergenceWarning),
    ):
        irt.fit_bifactor(answers(7), item_blocks=list("aabbbcc"), **short)
    with (
        pytest.warns(DataWarning, match="held apart by their differences"),
        pytest.warns(ConvergenceWarning),
    ):
        irt.fit_bifactor(answers(6), item_blocks=list("aaabbb"), **short)
    # Answers that have nothing to do with each other within a block, beyond the general ability.
    of = np.repeat([0, 1, 2], 6)
    a, _, d = some_slopes(2, of)
    y = made(400, of, a, a * np.array([1.0, 1.0, 0.0])[of], d, seed=13)[0]
    with pytest.warns(DataWarning, match=r"cannot be told from the general one.*: z;"):
        fit = irt.fit_bifactor(y, item_blocks=np.array(["x", "y", "z"])[of])
    assert fit["block_effect_sd"].values[2] < 0.05


# --- scores ---------------------------------------------------------------------------------------


def bank(slopes):
    loading = np.zeros((OF.size, 3))
    loading[:, 0] = slopes[0]
    for j in np.flatnonzero(OF >= 0):
        loading[j, 1 + OF[j]] = slopes[1, j]
    ids = [f"i{j}" for j in range(OF.size)]
    return xr.Dataset(
        {
            "item_loading": (("items", "latent_dims"), loading),
            "item_intercept": ("items", slopes[2]),
        },
        coords={"item_id": ("items", ids), "domain": ("latent_dims", ["general", "p", "q"])},
        attrs={"model": "bifactor"},
    )


def test_scores_are_matched_by_item():
    """Some of the items, in another order; who answered nothing has the prior."""
    slopes = some_slopes(4)
    y = made(20, OF, *slopes, seed=13, missing=0.2)[0]
    at = [6, 0, 3, 1]
    y[5, at] = -1
    r = irt.from_array(y[:, at], item_id=[f"i{j}" for j in at])
    found = irt.score(r, bank(slopes))
    _, mean, sd = brute(y[:, at], slopes[:, at], OF[at], bound=8.4)
    np.testing.assert_allclose(found["person_ability"], mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["person_ability_sd"], sd, rtol=0, atol=1e-8)
    assert found["person_ability"].values[5].tolist() == [0.0, 0.0, 0.0]
    assert found["person_ability_sd"].values[5].tolist() == [1.0, 1.0, 1.0]
    assert found["domain"].values.tolist() == ["general", "p", "q"]
    assert len(found.attrs["reliability"]) == 3
    more = irt.from_array(
        np.column_stack([y[:, at], y[:, 0]]), item_id=[*(f"i{j}" for j in at), "other"]
    )
    with pytest.warns(irt.IrtDaskWarning, match="other"):
        same = irt.score(more, bank(slopes), unknown_items="ignore")
    assert same["person_ability"].equals(found["person_ability"])
    with pytest.raises(InputError, match="not in items: other"):
        irt.score(more, bank(slopes))


@pytest.mark.slow
def test_scores_average_over_draws_of_items():
    """Means and variances of brute force under each draw; the same bits in any blocks."""
    y = hanging_together()[:30]
    fit = irt.fit_bifactor(hanging_together(), item_blocks=LABELS, n_draws=5, seed=3)
    assert fit["item_loading_draw"].shape == (5, 7, 3)
    under = [
        brute(y, pooled({"item_loading": a, "item_intercept": d}), OF, h=0.25, bound=8.5)[1:]
        for a, d in zip(fit["item_loading_draw"], fit["item_intercept_draw"], strict=True)
    ]
    means, sds = (np.stack(v) for v in zip(*under, strict=True))
    scores = irt.score(y, fit)
    assert scores.attrs["n_item_draws"] == 5
    np.testing.assert_allclose(scores["person_ability"], means.mean(axis=0), rtol=0, atol=1e-8)
    want = np.sqrt((sds**2).mean(axis=0) + means.var(axis=0, ddof=1))
    np.testing.assert_allclose(scores["person_ability_sd"], want, rtol=0, atol=1e-7)
    cut = irt.score(irt.from_array(y, rows_per_block=7), fit)
    assert cut["person_ability_sd"].values.tobytes() == scores["person_ability_sd"].values.tobytes()
    known = irt.score(y, fit, n_item_draws=0)
    assert known["person_ability_sd"].mean() < scores["person_ability_sd"].mean()
    with pytest.raises(InputError, match="n_item_draws=6 exceeds the 5 draws"):
        irt.score(y, fit, n_item_draws=6)


@pytest.mark.slow
def test_draws_have_the_errors():
    """2,000 draws: SDs within 5 standard errors of what is said, of log a and d."""
    fit = irt.fit_bifactor(hanging_together(), item_blocks=LABELS, n_draws=2000)
    a, d = fit["item_loading"].values[:, 0], fit["item_intercept_draw"].values
    drawn = np.log(fit["item_loading_draw"].values[:, :, 0])
    for x, se in ((drawn, fit["item_loading_se"].values[:, 0] / a), (d, fit["item_intercept_se"])):
        np.testing.assert_allclose(x.std(axis=0), se, rtol=5 / np.sqrt(2 * 2000))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"method": "ml"}, "method"),
        ({"prior": "population"}, "prior"),
        ({"n_plausible": 2}, "n_plausible"),
        ({"store": "scores"}, "store"),
    ],
)
def test_what_scores_do_not_do_is_refused(options, name):
    r = irt.from_array(answers(7), item_id=[f"i{j}" for j in range(7)])
    with pytest.raises(InputError, match=f"leave {name} at its default"):
        irt.score(r, bank(some_slopes()), **options)


def test_others_refuse_its_items_by_name():
    r = irt.from_array(answers(7), item_id=[f"i{j}" for j in range(7)])
    for method in (irt.item_fit, irt.person_fit):
        with pytest.raises(InputError, match="item_loading"):
            method(r, bank(some_slopes()))
    both = bank(some_slopes())
    both["item_loading"][0] = 1.0
    with pytest.raises(InputError, match="several blocks"):
        irt.score(r, both)
