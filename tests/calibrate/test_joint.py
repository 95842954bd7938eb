"""Joint maximum likelihood against scipy's optimisers, and what must not change a bit of it."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from items import quiet
from parts import cells, csr_of
from scipy import optimize, special, stats

import irt_dask as irt
from irt_dask.calibrate.joint import item_step
from irt_dask.calibrate.joint.scale import standard_errors
from irt_dask.curves import model_named
from irt_dask.engine.person_files import DONE
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError

FINE = {"max_iterations": 400, "tolerance": 1e-11}
fit = partial(quiet, irt.fit_joint, kinds=(ConvergenceWarning,))


def drawn_cells(n, m, seed, **options):
    return cells(irt.simulate(n, m, seed=seed, **options))


def mixed(y):
    """Without persons and items that are all right or all wrong, which are at the bounds."""
    right, seen = (y == 1).sum(axis=1), (y >= 0).sum(axis=1)
    y = y[(right > 0) & (right < seen)]
    right, seen = (y == 1).sum(axis=0), (y >= 0).sum(axis=0)
    return y[:, (right > 0) & (right < seen)]


def middling(y):
    """Persons with a fifth to four fifths right, whose abilities are far from the bounds."""
    share = (y == 1).sum(axis=1) / (y >= 0).sum(axis=1)
    return y[(share >= 0.2) & (share <= 0.8)]


# --- brute force ----------------------------------------------------------------------------------


def negative(x, y, one):
    """Minus the log-likelihood of all abilities, intercepts (and slopes), and its gradient."""
    n, m = y.shape
    theta, d = x[:n], x[n : n + m]
    a = np.ones(m) if one else x[n + m :]
    z = theta[:, None] * a + d
    e = np.exp(-np.abs(z))
    seen = y >= 0
    ll = (seen * ((y == 1) * z - np.maximum(z, 0.0) - np.log1p(e))).sum()
    r = seen * ((y == 1) - np.where(z >= 0, 1.0, e) / (1.0 + e))
    return -ll, -np.concatenate([r @ a, r.sum(axis=0), *([] if one else [theta @ r])])


def brute_force(y, one, start, **precision):
    n, m = y.shape
    bounds = [(-6, 6)] * (n + m) + ([] if one else [(1e-3, 5)] * m)
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-9}
    options |= precision
    return optimize.minimize(
        negative, start, args=(y, one), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )


def standardised(x, n, m):
    theta, d, a = x[:n], x[n : n + m], x[n + m :]
    theta = theta[np.abs(theta) < 6]
    return a * theta.std(), d + a * theta.mean()


def test_gradient_of_the_brute_force_is_right():
    y = drawn_cells(5, 3, 0, missing=0.2)
    x = np.random.default_rng(0).uniform(0.5, 1.5, 5 + 3 + 3)
    error = optimize.check_grad(
        lambda v: negative(v, y, False)[0], lambda v: negative(v, y, False)[1], x
    )
    assert error < 1e-5


@pytest.mark.parametrize(
    "n, m, seed, missing", [(8, 4, 1, 0.1), (60, 10, 1, 0.1), (150, 12, 3, 0.3)]
)
def test_1pl_is_the_joint_maximum(n, m, seed, missing):
    y = mixed(drawn_cells(n, m, seed, missing=missing))
    n, m = y.shape
    got = fit(y, model="1pl", **FINE)
    best = brute_force(y, True, np.zeros(n + m))
    d = best.x[n:]
    assert got.attrs["objective"] == pytest.approx(-best.fun, rel=1e-7)
    assert got.attrs["objective"] <= -best.fun * (1 - 1e-9)
    # scipy stops where the gradient is 1e-9 but the counts are binned with spacing 0.025
    np.testing.assert_allclose(got["item_difficulty"], d.mean() - d, atol=2e-3)
    assert got["item_difficulty"].values.mean() == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_array_equal(got["item_discrimination"], 1.0)


@pytest.mark.parametrize("seed, missing", [(5, 0.0), pytest.param(7, 0.05, marks=pytest.mark.slow)])
def test_2pl_is_the_joint_maximum(seed, missing):
    y = mixed(drawn_cells(200, 20, seed, missing=missing))
    n, m = y.shape
    got = fit(y, **FINE)
    rng = np.random.default_rng(seed)
    starts = [np.concatenate([np.zeros(n + m), np.ones(m)])]
    starts += [
        np.concatenate([rng.normal(size=n), rng.normal(size=m), rng.uniform(0.5, 2, m)])
        for _ in range(2)
    ]
    best = min((brute_force(y, False, s) for s in starts), key=lambda r: r.fun)
    assert got.attrs["objective"] == pytest.approx(-best.fun, rel=1e-5)
    assert got.attrs["objective"] <= -best.fun + 1e-5 * best.fun
    a, d = standardised(best.x, n, m)
    np.testing.assert_allclose(got["item_discrimination"], a, rtol=0.03)
    np.testing.assert_allclose(got["item_intercept"], d, atol=0.03)


def reaches_the_best_of_many_starts(model, missing, seed, n_starts):
    """No lower than L-BFGS-B from random starts; its best end is polished."""
    y = drawn_cells(300, 20, seed, missing=missing)
    n, m = y.shape
    one = model == "1pl"
    got = fit(y, model=model, max_iterations=2000, tolerance=1e-12)
    assert got.attrs["converged"] == 1
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_starts):
        slopes = [] if one else [rng.uniform(0.3, 2, m)]
        start = np.concatenate([rng.normal(size=n), rng.normal(size=m), *slopes])
        found.append(brute_force(y, one, start, maxiter=150))
    best = -brute_force(y, one, min(found, key=lambda r: r.fun).x, ftol=1e-12, gtol=1e-7).fun
    assert got.attrs["objective"] >= best * (1 + 1e-6)  # both are negative
    trace = got["iteration_objective"].values
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])
    assert got.attrs["objective"] >= trace[-1] * (1 + 1e-12)


@pytest.mark.parametrize("model", [pytest.param("1pl", marks=pytest.mark.slow), "2pl"])
@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_converged_fit_is_the_best_of_many_starts(model, missing):
    reaches_the_best_of_many_starts(model, missing, seed=0, n_starts=8)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["1pl", "2pl"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_converged_fit_is_the_best_of_thirty_starts(model, missing, seed):
    reaches_the_best_of_many_starts(model, missing, seed, n_starts=30)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_acceleration_beyond_the_bounds_is_dropped(missing):
    """Proposals are far from here at times, so far that everybody would be at a bound."""
    got = fit(drawn_cells(300, 20, 2, missing=missing), max_iterations=150, tolerance=-1.0)
    trace = got["iteration_objective"].values
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])


def test_one_ability_at_the_start_is_left_where_others_are_likelier():
    """Everybody has one right answer of three: the symmetric point is a saddle, not the maximum."""
    y = np.array([[1, 0, 0]] * 3 + [[0, 1, 0]] * 5 + [[0, 0, 1]] * 3)
    got = fit(y, max_iterations=300, tolerance=1e-12)
    symmetric = sum(k * np.log(k / 11) + (11 - k) * np.log(1 - k / 11) for k in (3, 5, 3))
    assert got["iteration_objective"][0] <= symmetric + 1e-9
    assert got.attrs["objective"] > symmetric + 1


@pytest.mark.parametrize("model", ["1pl", "2pl"])
def test_objective_is_the_log_likelihood_at_the_estimates(model):
    """Abilities from scipy; none is at the bound, so that the change of scale changes nothing."""
    y = middling(drawn_cells(300, 30, 11, missing=0.05))
    got = fit(y, model=model, start=irt.fit_spectral(y))  # one start, whose end is inside
    a, d = got["item_discrimination"].values, got["item_intercept"].values
    total = 0.0
    for row in y:
        s = row >= 0

        def ll(t, row=row, s=s):
            z = a[s] * t + d[s]
            return float(np.logaddexp(0, np.where(row[s] == 1, -z, z)).sum())

        total -= optimize.minimize_scalar(ll, bounds=(-15, 15), method="bounded").fun
    assert got.attrs["objective"] == pytest.approx(total, abs=1e-5)
    np.testing.assert_allclose(got["item_difficulty"], -d / a)
    np.testing.assert_array_equal(got["item_n_responses"], (y >= 0).sum(axis=0))
    np.testing.assert_array_equal(got["item_n_right"], (y == 1).sum(axis=0))


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl"])
@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
def test_objective_never_falls(model, missing):
    """Small data are treated at the abilities themselves, without any error."""
    y = drawn_cells(800, 12, 12, missing=missing)
    trace = fit(y, model=model, max_iterations=60, tolerance=-1.0)["iteration_objective"].values
    assert len(trace) == 60
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])
    assert trace[-1] > trace[0] + 1


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("model", [pytest.param("1pl", marks=pytest.mark.slow), "2pl"])
def test_objective_falls_by_the_error_of_the_axis_at_most(model, missing):
    """Abilities of larger data are shared out between nodes, 0.025 apart."""
    r = irt.simulate(30_000, 40, seed=12, missing=missing)
    got = fit(r, model=model, max_iterations=20, tolerance=-1.0)
    trace = got["iteration_objective"].values
    n, steepest = got["item_n_responses"].values.sum(), 5.0 if model == "2pl" else 1.0
    # the error before and after a step, either way, next to the ends of the axis too
    assert np.diff(trace).min() >= -2 * n * (steepest * 0.025) ** 4 / 192
    assert np.diff(trace).min() >= -1e-9 * abs(trace[-1])  # far less in practice
    assert trace[-1] > trace[0] + 1
    assert got.attrs["objective"] == pytest.approx(trace[-1], rel=1e-5)


def test_standard_errors_of_what_is_not_determined_are_huge():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2, 9, 3))
    rows[1, 2:] = 0.0  # two persons for three parameters
    info = (rows.mT @ rows).transpose(1, 2, 0)
    x = np.array([[1.0, 0.8], [0.3, -0.2], [0.1, 0.1]])
    moment, free = np.array([100.0, 0.0, 100.0, 0.0, 0.0]), np.ones(3, dtype=bool)
    se, of_b = standard_errors(model_named("3pl"), info, x, moment, free)
    cov = np.linalg.inv(info[..., 0])
    np.testing.assert_allclose(se[:, 0], np.sqrt(np.diag(cov)))
    assert all(1e4 < v[1] < np.inf for v in (*se, of_b))


def test_standard_errors_from_the_curvature_at_known_abilities():
    """The slopes' and intercepts' curvature by finite differences, abilities of the fit's scale."""
    y = middling(drawn_cells(1500, 20, 13))
    got = fit(y, max_iterations=10)  # few: the scale has not drifted to the bounds
    a, d = got["item_discrimination"].values, got["item_intercept"].values
    n = len(y)
    theta = np.array(
        [
            optimize.minimize_scalar(
                lambda t, row=row: np.logaddexp(0, np.where(row == 1, -1, 1) * (a * t + d)).sum(),
                bounds=(-15, 15),
                method="bounded",
            ).x
            for row in y
        ]
    )
    assert theta.mean() == pytest.approx(0.0, abs=1e-3)
    assert theta.std() == pytest.approx(1.0, abs=1e-3)
    x, h = np.stack([theta, np.ones(n)], axis=1), 1e-4

    def score(j, v):
        return x.T @ ((y[:, j] == 1) - 1 / (1 + np.exp(-x @ v)))

    for j in range(0, y.shape[1], 5):
        v = np.array([a[j], d[j]])
        info = -np.stack(
            [(score(j, v + h * e) - score(j, v - h * e)) / (2 * h) for e in np.eye(2)], axis=1
        )
        cov = np.linalg.inv(info)
        g = np.array([d[j] / a[j] ** 2, -1 / a[j]])
        want = np.sqrt([cov[0, 0], g @ cov @ g, cov[1, 1]])
        names = ("item_discrimination_se", "item_difficulty_se", "item_intercept_se")
        np.testing.assert_allclose([got[k].values[j] for k in names], want, rtol=0.01)


# --- statistics -----------------------------------------------------------------------------------


def test_estimates_follow_the_truth():
    r = irt.simulate(20_000, 40, seed=14)
    got = fit(r, max_iterations=15)
    t = r.truth
    for name, least in (("item_discrimination", 0.98), ("item_difficulty", 0.995)):
        assert np.corrcoef(got[name], t[name])[0, 1] > least
    one = irt.simulate(20_000, 40, seed=14, model="1pl")
    got = irt.fit_joint(one, model="1pl")
    assert np.corrcoef(got["item_difficulty"], one.truth["item_difficulty"])[0, 1] > 0.999
    assert got.attrs["converged"] == 1


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["1pl", "2pl"])
def test_integer_weights_are_repeated_persons(model):
    y = drawn_cells(300, 8, 15, missing=0.1)
    w = np.random.default_rng(0).integers(1, 6, 300)
    # 1e-7: the item step stops where the likelihood no longer grows in double precision
    options = {"model": model, "max_iterations": 20}
    weighted = fit(irt.from_array(y, persons={"weight": w}, weight_kind="frequency"), **options)
    repeated = fit(np.repeat(y, w, axis=0), **options)
    for name in ("item_discrimination", "item_difficulty", "item_intercept", "item_intercept_se"):
        np.testing.assert_allclose(weighted[name], repeated[name], rtol=1e-7, atol=1e-7)
    assert weighted.attrs["objective"] == pytest.approx(repeated.attrs["objective"], rel=1e-9)


@pytest.mark.parametrize("unit", [1e6, 1e-3])
def test_unit_of_the_weights_does_not_matter(unit):
    y = drawn_cells(300, 6, 16)
    w = np.random.default_rng(1).uniform(0.5, 2, 300)
    one, other = (
        fit(irt.from_array(y, persons={"weight": w * u}), max_iterations=10) for u in (1.0, unit)
    )
    np.testing.assert_allclose(other["item_difficulty"], one["item_difficulty"], rtol=1e-7)


@pytest.mark.parametrize("unit", [1e-9, 1e-12])
def test_tiny_weights_are_not_rounded_away(unit):
    y = drawn_cells(300, 6, 16)
    w = np.random.default_rng(1).uniform(0.5, 2, 300)
    one, other = (
        fit(irt.from_array(y, persons={"weight": w * u}), max_iterations=10) for u in (1.0, unit)
    )
    np.testing.assert_allclose(other["item_difficulty"], one["item_difficulty"], rtol=1e-6)


# --- what cannot be estimated ---------------------------------------------------------------------


def test_bounds_and_perfect_scores_are_reported():
    y = mixed(drawn_cells(400, 12, 23, missing=0.2))
    n = len(y)
    y[:, 2] = np.where(y[:, 2] >= 0, 1, -1)
    y[:, 5] = np.where(y[:, 5] >= 0, 0, -1)
    y[0], y[1], y[2] = -1, np.where(np.arange(12) == 5, -1, 1), -1
    y[1, 3] = -1
    y[3], y[4] = 0, 0
    y[3, 2] = y[4, 2] = -1
    right, seen = (y == 1).sum(axis=1), (y >= 0).sum(axis=1)
    got = fit(y)
    assert got.attrs["n_items_all_right"] == 1
    assert got.attrs["n_items_all_wrong"] == 1
    assert got.attrs["n_persons_all_right"] == ((right == seen) & (seen > 0)).sum() >= 1
    assert got.attrs["n_persons_all_wrong"] == ((right == 0) & (seen > 0)).sum() >= 2
    assert got.attrs["n_persons_without_responses"] == (seen == 0).sum() >= 2
    assert got.attrs["n_persons"] == n
    assert got.attrs["n_linked_groups"] == 1
    np.testing.assert_array_equal(got["item_linked_group"], 0)
    assert got["item_at_bound"].dtype == bool
    assert got["item_at_bound"].values[[2, 5]].all()
    assert not got["item_at_bound"].values.all()
    np.testing.assert_array_equal(got["item_n_right"], (y == 1).sum(axis=0))
    np.testing.assert_array_equal(got["item_n_responses"], (y >= 0).sum(axis=0))


def test_perfect_scores_of_complete_rows_are_reported():
    y = drawn_cells(200, 6, 24)
    y[:3], y[3:8] = 1, 0
    got = fit(y, model="1pl")
    assert got.attrs["n_persons_all_right"] == (y == 1).all(axis=1).sum()
    assert got.attrs["n_persons_all_wrong"] == (y == 0).all(axis=1).sum()
    assert got.attrs["n_items_all_right"] == got.attrs["n_items_all_wrong"] == 0
    assert got.attrs["n_persons_without_responses"] == 0
    assert not got["item_at_bound"].values.any()  # slopes are held, not at a bound


def test_item_that_able_persons_get_wrong_is_flat_and_at_its_bound():
    y = drawn_cells(500, 10, 25)
    y[:, 4] = 1 - y[:, [0, 1, 2]].max(axis=1)
    got = fit(y)
    assert got.attrs["n_flat_items"] == 1
    assert got["item_discrimination"].values[4] < 0.01
    assert got["item_at_bound"].values[4]


# --- bias correction ------------------------------------------------------------------------------


def test_bias_correction_shrinks_difficulties():
    y = np.vstack([drawn_cells(300, 10, 26), np.full((4, 10), -1)])
    plain, got = (fit(y, model="1pl", bias_correction=on) for on in (False, True))
    for name in ("item_difficulty", "item_difficulty_se", "item_intercept", "item_intercept_se"):
        np.testing.assert_allclose(got[name], 0.9 * plain[name], rtol=1e-12, err_msg=name)
    assert got.attrs["bias_correction"] == 1
    assert plain.attrs["bias_correction"] == 0
    assert got.attrs["objective"] == plain.attrs["objective"]


def test_bias_correction_of_two_items_is_exact():
    """The conditional estimate of the difference is the log odds of the discordant pairs."""
    y = np.array([[1, 0]] * 60 + [[0, 1]] * 25)  # others are at the bounds of ability
    got = fit(y, model="1pl", bias_correction=True, **FINE)
    b = got["item_difficulty"].values
    assert b[1] - b[0] == pytest.approx(np.log(60 / 25), abs=1e-6)


def test_bias_correction_needs_complete_data():
    with pytest.raises(InputError, match="bias_correction is known for the 1PL on complete data"):
        fit(drawn_cells(100, 8, 27, missing=0.1), model="1pl", bias_correction=True)


# --- abilities in files ---------------------------------------------------------------------------


def read_abilities(folder):
    done = json.loads((folder / DONE).read_text())
    assert done["method"] == "joint maximum likelihood"
    files = sorted(set(folder.iterdir()) - {folder / DONE})
    assert [f.name for f in files] == [f"part-{k:06d}.parquet" for k in range(len(files))]
    tables = [pq.read_table(f).to_pandas() for f in files]
    return {k: np.concatenate([t[k].to_numpy() for t in tables]) for k in tables[0]}, len(files)


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl"])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_abilities_of_all_persons_in_files(tmp_path, model, missing):
    y = middling(drawn_cells(300, 25, 28, missing=missing))
    y[7] = -1
    n = len(y)
    r = irt.from_array(y, rows_per_block=64)
    got = fit(r, model=model, persons=tmp_path / "new" / "here", max_iterations=10)
    columns, n_files = read_abilities(tmp_path / "new" / "here")
    assert n_files == -(-n // 64)
    assert list(columns) == ["person_id", "person_ability", "n_responses"]
    assert list(columns["person_id"]) == [str(i) for i in range(n)]
    np.testing.assert_array_equal(columns["n_responses"], (y >= 0).sum(axis=1))
    ability = columns["person_ability"]
    assert np.isnan(ability[7])
    a, d = got["item_discrimination"].values, got["item_intercept"].values
    c = got["item_guessing"].values if model == "3pl" else np.zeros_like(a)
    inside = []
    grid = np.linspace(np.nanmin(ability), np.nanmax(ability), 601)  # within the bounds
    for row, x in zip(np.delete(y, 7, axis=0), np.delete(ability, 7), strict=True):
        s = row >= 0

        def slope(t, right=row[s] == 1, a=a[s], d=d[s], c=c[s]):
            p = special.expit(a * t + d)
            right_slope = np.where(c > 0, (1 - c) * p * (1 - p) / (c + (1 - c) * p + 1e-300), 1 - p)
            return (np.where(right, right_slope, -p) * a).sum()

        if model != "3pl":  # one mode
            assert x == pytest.approx(optimize.brentq(slope, -15, 15, xtol=1e-12), abs=1e-6)
            inside.append(x)
            continue
        p = special.expit(np.multiply.outer(np.append(grid, x), a[s]) + d[s])
        p = c[s] + (1 - c[s]) * p
        ll = np.log(np.where(row[s] == 1, p, 1 - p)).sum(axis=1)
        assert ll[-1] >= ll[:-1].max() - 1e-6
        if grid[0] < x < grid[-1] or abs(slope(x)) < 1e-5:
            assert abs(slope(x)) < 1e-5
            inside.append(x)
    if model == "1pl":
        assert got["item_difficulty"].values.mean() == pytest.approx(0.0, abs=1e-12)
    else:  # the scale of those who are not at a bound
        known = ability[~np.isnan(ability)]
        outside = [np.mean(known < min(inside)), np.mean(known > max(inside))]
        ends = stats.norm.ppf([outside[0], 1.0 - outside[1]])
        assert np.mean(inside) == pytest.approx(stats.truncnorm.mean(*ends), abs=1e-6)
        assert np.std(inside) == pytest.approx(stats.truncnorm.std(*ends), abs=1e-6)
    fit(
        irt.from_array(y, rows_per_block=n),
        model=model,
        persons=tmp_path / "one",
        max_iterations=10,
    )
    other, n_files = read_abilities(tmp_path / "one")
    assert n_files == 1
    for name, values in columns.items():
        np.testing.assert_array_equal(other[name], values)


def test_abilities_at_corrected_difficulties(tmp_path):
    y = mixed(drawn_cells(400, 5, 30))
    fit_options = {"model": "1pl", "bias_correction": True}
    got = fit(y, persons=tmp_path / "f", **fit_options)
    columns, _ = read_abilities(tmp_path / "f")
    b = got["item_difficulty"].values
    expected = special.expit(columns["person_ability"][:, None] - b).sum(axis=1)
    np.testing.assert_allclose(expected, (y == 1).sum(axis=1), atol=1e-6)


def test_folder_of_abilities_must_be_new(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "thesis.txt").touch()
    r = drawn_cells(50, 5, 29)
    with pytest.raises(InputError, match="exists and holds other files"):
        fit(r, persons=folder)
    assert [f.name for f in folder.iterdir()] == ["thesis.txt"]
    with pytest.raises(EstimationError):  # the fit stops; the same call with good data may go on
        fit(np.ones((4, 3)), persons=tmp_path / "g")
    fit(r, persons=tmp_path / "g")
    assert len(read_abilities(tmp_path / "g")[0]["person_id"]) == 50
    with pytest.raises(InputError, match="holds finished scores"):
        fit(r, persons=tmp_path / "g")


# --- the same bits --------------------------------------------------------------------------------


def same(x, y):
    return x.drop_attrs().identical(y.drop_attrs()) and x.attrs == y.attrs


@pytest.mark.parametrize("gathered", [False, True], ids=["by items", "counts gathered"])
@pytest.mark.parametrize("model", ["1pl", "2pl", pytest.param("3pl", marks=pytest.mark.slow)])
def test_blocks_order_and_storage_do_not_change_a_bit(tmp_path, monkeypatch, model, gathered):
    if gathered:  # small data as if they were large
        monkeypatch.setattr(item_step, "_SMALL", -1)
    options = {"model": model, "max_iterations": 8}
    y = drawn_cells(301, 7, 17, missing=0.2)
    assert 30 < (y >= 0).all(axis=1).sum() < 271  # complete rows among others
    want = fit(irt.from_array(y, rows_per_block=301), **options)
    ids = [str(j) for j in range(7)]
    for rows in (1, 13, 100):
        assert same(fit(irt.from_array(y, rows_per_block=rows), **options), want)
    order = np.random.default_rng(2).permutation(301)
    assert same(fit(irt.from_array(y[order], rows_per_block=50), **options), want)
    assert same(
        fit(irt.from_array(csr_of(y), observed="stored", rows_per_block=64), **options), want
    )
    for rows in (16, 400):
        with irt_store(tmp_path / f"s{rows}", ids, rows, 301) as writer:
            for k in range(0, 301, rows):
                part = y[k : k + rows]
                writer.write(part, person_id=[str(k + i) for i in range(len(part))])
            stored = writer.commit()
        assert same(fit(stored, **options), want)


def irt_store(path, ids, rows, n):
    from irt_dask.store import StoreWriter

    return StoreWriter(path, item_id=ids, n_persons=n, rows_per_block=rows)


@pytest.mark.filterwarnings(
    "ignore:the items were calibrated with persons:irt_dask.errors.DataWarning"
)
@pytest.mark.slow
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(12, 60),
    m=st.integers(2, 6),
    missing=st.sampled_from([0.0, 0.2]),
    rows=st.integers(1, 40),
)
def test_chunks_order_and_sparsity_never_matter(seed, n, m, missing, rows):
    """All methods whose sums are exact: joint, spectral, evaluate; scores belong to the person."""
    y = drawn_cells(n, m, seed, missing=missing)
    # every pair of items is seen together, every item has a right and a wrong answer, and a person
    # is in the middle: the estimates exist
    y[:2] = [[1, 0] * 3, [0, 1] * 3][0][:m], [[1, 0] * 3, [0, 1] * 3][1][:m]
    order = np.random.default_rng(seed).permutation(n)
    sparse = csr_of(y)
    variants = [
        irt.from_array(y, rows_per_block=rows),
        irt.from_array(y[order], rows_per_block=rows + 3),
        irt.from_array(sparse, observed="stored", rows_per_block=rows),
    ]
    items = irt.fit_spectral(y)
    joint = fit(y, model="1pl", max_iterations=4)
    score, evaluation = irt.score(y, items), irt.evaluate(y, items)
    for k, r in enumerate(variants):
        assert irt.fit_spectral(r).identical(items)
        assert same(fit(r, model="1pl", max_iterations=4), joint)
        assert irt.evaluate(r, items).identical(evaluation)
        got = irt.score(r, items)
        want = score["person_ability"].values
        np.testing.assert_array_equal(got["person_ability"], want[order] if k == 1 else want)
        assert got.attrs == score.attrs


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path):
    r = irt.simulate(300, 8, seed=18, missing=0.1)
    whole = fit(r, max_iterations=12, tolerance=0.0)
    for k in (1, 5, 12):
        got = fit(r, max_iterations=k, tolerance=0.0, checkpoint=tmp_path / "c")
    assert same(got, whole)
    assert same(fit(r, max_iterations=12, tolerance=0.0, checkpoint=tmp_path / "c"), whole)


def test_checkpoint_of_other_data_or_options_is_refused(tmp_path):
    r = irt.simulate(100, 5, seed=1)
    fit(r, max_iterations=2, checkpoint=tmp_path)
    for other, options in (
        (irt.simulate(100, 5, seed=2), {}),
        (r, {"model": "1pl"}),
        (r, {"tolerance": 1e-3}),
        (r, {"start": r.truth}),
    ):
        with pytest.raises(irt_errors().CheckpointError, match="another computation"):
            fit(other, max_iterations=3, checkpoint=tmp_path, **options)


def irt_errors():
    from irt_dask import errors

    return errors


# --- start, convergence, refusals -----------------------------------------------------------------


def test_start_values_lead_to_the_same_maximum():
    r = irt.simulate(1000, 20, seed=19)
    plain = fit(r, **FINE)
    from_truth = fit(r, start=r.truth, **FINE)
    assert from_truth.attrs["objective"] == pytest.approx(plain.attrs["objective"], rel=1e-5)
    again = fit(r, start=plain, max_iterations=1)
    assert again["iteration_objective"][0] == pytest.approx(plain.attrs["objective"], rel=2e-4)


def test_not_converging_is_a_warning_and_says_so():
    r = irt.simulate(200, 6, seed=20)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        got = irt.fit_joint(r, max_iterations=2)
    assert got.attrs["converged"] == 0
    assert got.attrs["n_iterations"] == 2
    assert np.isfinite(got["item_difficulty"]).all()


def test_item_without_responses_is_named():
    y = drawn_cells(50, 4, 21)
    y[:, 2] = -1
    r = irt.from_array(y, item_id=["a", "b", "gone", "d"])
    with pytest.raises(EstimationError, match=r"1 item\(s\) have no response.*gone"):
        irt.fit_joint(r)


def test_persons_without_responses_change_nothing():
    y = drawn_cells(100, 5, 22)
    more = np.vstack([y, np.full((7, 5), -1)])
    x, z = fit(y, max_iterations=5), fit(more, max_iterations=5)
    np.testing.assert_array_equal(x["item_difficulty"], z["item_difficulty"])
    assert x.attrs["objective"] == pytest.approx(z.attrs["objective"], rel=1e-12)


@pytest.mark.parametrize(
    "y",
    [
        np.ones((10, 3), dtype=int),
        np.array([[1, 0]] * 5 + [[0, 1]] * 5),
    ],
    ids=["all right", "one ability, two items"],
)
def test_abilities_without_spread_are_an_estimation_error(y):
    with pytest.raises(EstimationError):
        fit(y)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"model": "4pl"}, "model='4pl' is not available here; choose one of 1pl, 2pl, 3pl"),
        ({"tolerance": float("nan")}, "tolerance is not a number"),
        ({"model": "3pl", "guessing_min": 0.5}, "guessing_min=0.5 must be at least 0"),
        ({"model": "3pl", "guessing_min": -0.1}, "guessing_min=-0.1 must be at least 0"),
        ({"guessing_min": 0.2}, "guessing_min=0.2 needs model='3pl', not '2pl'"),
        ({"bias_correction": True}, "bias_correction is known for the 1PL on complete data"),
        ({"max_iterations": 0}, "max_iterations=0 must be at least 1"),
        ({"start": 3}, "start must be a Dataset"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        fit(irt.simulate(20, 3), **options)
