"""What unknown abilities take away from the information: by set of items, and person by person."""

import numpy as np
import pandas as pd
import pytest
from parts import both, csr_of
from scipy.special import softmax

import irt_dask as irt
from irt_dask.calibrate.marginal import rounds
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.posterior import lost_information, lost_information_linear, person_weights
from irt_dask.kernels.posterior.lost_information_linear import Columns, Scores
from irt_dask.kernels.posterior.tables import padded, tables
from irt_dask.kernels.responses import item_sets, layouts

M, N = 7, 150
NODES = padded(np.arange(-40, 41) * 0.15)
LOG_MASS, OF_ABILITY = -0.5 * NODES**2, np.stack([NODES, NODES**2 - 1.0])


def drawn(model, rng, steepness, shared):
    """Items of a model, and how many categories they have."""
    k = 2 if model == "2pl" else 4
    a = np.full(M, steepness) if shared else steepness * rng.uniform(0.5, 1.0, M)
    return ItemSet.of(model, a, *rng.normal(size=(k - 1, M)) * steepness, n_categories=k), k


def brute(x, y, weight, column, ability_column, size):
    """Sums of covariances and of squares of means, from the formulas, with all nodes a person."""
    out, k = np.zeros((2, size, size)), len(x)
    for row, w in zip(y, weight, strict=True):
        seen = np.flatnonzero(row >= 0)
        constant = np.concatenate([np.zeros((1, M)), x[1:]])[:, seen]
        logit = np.arange(k)[:, None, None] * x[0, seen, None] * NODES + constant[:, :, None]
        p = softmax(logit, axis=0)  # (categories, items, nodes)
        mass = np.log(p[row[seen], np.arange(seen.size)]).sum(axis=0) + LOG_MASS
        mass = softmax(mass)
        category = np.arange(k)[:, None, None]
        own = np.zeros((size, NODES.size))
        np.add.at(own, column[0, seen], (row[seen, None] - (category * p).sum(axis=0)) * NODES)
        for step in range(1, k):
            np.add.at(own, column[step, seen], (row[seen, None] == step) - p[step])
        own[ability_column] += OF_ABILITY
        mean = own @ mass
        square = np.outer(mean, mean)
        out += [w * ((own * mass) @ own.T - square), w**2 * square]
    return out


@pytest.mark.parametrize(("shared", "weighted"), [(False, True), (True, False)])
@pytest.mark.parametrize(("model", "steepness"), [("2pl", 1.0), ("2pl", 25.0), ("gpcm", 1.0)])
def test_sums_are_those_of_the_formulas(model, steepness, shared, weighted):
    """Both ways; with steep items a posterior may be one node: a variance of rounding.

    Terms that are rounded once err more.
    """
    rng = np.random.default_rng(3)
    items, k = drawn(model, rng, steepness, shared)
    x = items.groups[0].x
    column, ability_column = 1 + np.arange(x.size).reshape(x.shape), np.array([0, 1 + x.size])
    if shared:
        column[0] = 1
    size = 2 + x.size
    y = rng.integers(0, k, (N, M)).astype(np.int8)
    observed = np.ones((2, M), dtype=bool)
    observed[1, 3:5] = False
    number = rng.integers(0, 2, N)
    y[~observed[number]] = -1
    weight = rng.uniform(0.5, 3.0, N) if weighted else np.ones(N)
    want = brute(x, y, weight, column, ability_column, size)

    by_parameter = items.by_parameter(NODES, len(x))
    scores = lost_information.scores(
        by_parameter, items.first, OF_ABILITY[None], column, ability_column[:, None]
    )
    largest, g = float(weight.max()), tables(items, NODES)
    u = lost_information.units_for(N, NODES.size, size)
    assert u.fine
    for data in both(y):
        sets = item_sets.common_sets(data)
        each, roughly = (
            lost_information.value(
                lost_information.sums(
                    data, g, person_weights.shared(sets, g), sets.observed,
                    person_weights.prior(LOG_MASS), np.arange(N), scores, weight, largest, unit,
                    True,
                ),
                scores.bound, largest, unit,
            )
            for unit in (u, u._replace(fine=False))
        )  # fmt: skip
        columns, by_set = Columns.of(items, NODES[NODES.size // 2]), u.for_rows(64)
        together = np.zeros((2, size, size))
        for s, its in enumerate(observed):
            log_total = person_weights.bases(its[None], g)[0] + LOG_MASS
            found = lost_information_linear.sums(
                data, np.flatnonzero(number == s), columns.among(its), NODES, log_total, weight,
                largest, by_set, True,
            )  # fmt: skip
            mine = Scores.of(
                by_parameter, items.first, columns, its, OF_ABILITY, NODES, column, ability_column
            )
            at = np.ix_(mine.column, mine.column)
            together[0][at] += mine.covariance(found[0], NODES, largest, by_set)
            together[1][at] += mine.squares(found[1], NODES, largest, by_set)
        for one, x_, z, rough in zip(want, together, each, roughly, strict=True):
            np.testing.assert_allclose(rough, one, rtol=0, atol=1e-4 * np.abs(one).max())
            np.testing.assert_allclose(x_, one, rtol=0, atol=1e-9 * np.abs(one).max())
            np.testing.assert_allclose(z, one, rtol=0, atol=1e-9 * np.abs(one).max())


@pytest.mark.parametrize("model", ["2pl", "gpcm"])
def test_what_is_left_out_of_large_tests_is_little(model, monkeypatch):
    """Terms of scores below the limit for many scores, here with seven items, in two slices."""
    items, k = drawn(model, np.random.default_rng(5), 2.0, False)
    x = items.groups[0].x
    column, none = np.arange(x.size).reshape(x.shape), np.full((2, 1), -1)
    y = np.random.default_rng(6).integers(0, k, (N, M)).astype(np.int8)
    scores = lost_information.scores(
        items.by_parameter(NODES, len(x)), items.first, OF_ABILITY[None], column, none
    )
    g, u = tables(items, NODES), lost_information.units_for(N, NODES.size, x.size)
    data = layouts.Dense(y)
    sets = item_sets.common_sets(data)

    def found():
        exact = lost_information.sums(
            data, g, person_weights.shared(sets, g), sets.observed, person_weights.prior(LOG_MASS),
            np.arange(N), scores, np.ones(N), 1.0, u, False,
        )  # fmt: skip
        return lost_information.value(exact, scores.bound, 1.0, u)[0]

    want = found()
    monkeypatch.setattr(lost_information, "_SMALL", lost_information._SMALL_OF_SLICE)
    sd = np.sqrt(np.diag(want))
    off = np.abs(found() - want) / np.outer(sd, sd)
    assert 0.0 < off.max() < 2e-6


# --- which sets -----------------------------------------------------------------------------------


def booklets(n, m, seed):
    """Observed cells of three overlapping booklets, and of some persons who omit an item."""
    rng = np.random.default_rng(seed)
    observed = (np.arange(m) * 3 // m - rng.integers(0, 3, (n, 1))) % 3 != 0
    return observed & (rng.random((n, m)) < 0.99)


def test_common_sets_in_any_blocks_and_orders():
    """Booklets, although many persons who omitted something fall among theirs; no others."""
    n, m, n_buckets = 5000, 12, 8  # so few that every bucket has others
    observed = booklets(n, m, 1)
    y = np.where(observed, 1, -1).astype(np.int8)
    rng = np.random.default_rng(2)
    found = []
    for rows, layout in ((n, 0), (700, 1), (64, 0)):
        order = rng.permutation(n)
        blocks = [both(y[order[k : k + rows]])[layout] for k in range(0, n, rows)]
        found.append(item_sets.majorities(sum(item_sets.tally(b, n_buckets) for b in blocks), 200))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    names, count = np.unique(observed, axis=0, return_counts=True)
    common = {name.tobytes() for name in names[count >= 1000]}
    assert len(common) == 3
    assert common <= {name.tobytes() for name in found[0]}
    number = item_sets.number_among(layouts.Dense(y), found[0])
    for s, its in enumerate(found[0]):
        np.testing.assert_array_equal(number == s, (observed == its).all(axis=1))


def test_buckets_fit_and_grow_with_the_persons():
    assert item_sets.buckets_for(10**9, 60) == 4096
    assert item_sets.buckets_for(10**9, 100_000) == 2
    assert item_sets.buckets_for(3, 60) == 1


# --- standard errors ------------------------------------------------------------------------------

KINDS = {"2pl": 2, "gpcm": 4, "nominal": 3, "2pl+gpcm": [2, 3] * 6}


def responses(model, **options):
    """1,500 persons with booklets; 12 items."""
    source = irt.simulate(1500, 12, model=model, categories=KINDS[model], seed=4, progress=False)
    y = np.concatenate([source.read_block(k).data.values for k in range(source.n_blocks)])
    y[~booklets(1500, 12, 5)] = -1
    return y, {"categories": KINDS[model], **options}


def errors_of(data, model, **options):
    fit = irt.fit_marginal(data, model=model, progress=False, **options)
    return {k: v.values for k, v in fit.data_vars.items() if k.endswith("_se")}


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("columns", [(), ("weight", "group")])
def test_standard_errors_by_set_are_those_person_by_person(model, columns, monkeypatch):
    rng = np.random.default_rng(6)
    table = pd.DataFrame({
        "weight": rng.uniform(0.5, 2.0, 1500), "group": np.array(["a", "b"])[np.arange(1500) % 2]
    })  # fmt: skip
    y, options = responses(model, persons=table[list(columns)] if columns else None)
    data = irt.from_array(y, **options)
    used = []
    inner = lost_information_linear.sums
    monkeypatch.setattr(
        lost_information_linear, "sums", lambda *a: used.append(a[1].size) or inner(*a)
    )
    found = errors_of(data, model)
    assert sum(used) > 1200  # booklets, but not those who omitted an item
    monkeypatch.setattr(rounds, "_COMMON", 10_000)
    used.clear()
    want = errors_of(data, model)
    assert not used
    for name, errors in want.items():
        np.testing.assert_allclose(found[name], errors, rtol=2e-6, err_msg=name)


def test_standard_errors_are_the_same_bits_in_any_blocks_and_layout():
    y, options = responses("2pl+gpcm")
    order = np.random.default_rng(7).permutation(1500)
    want = errors_of(irt.from_array(y, **options), "2pl+gpcm")
    for other in (
        irt.from_array(y, rows_per_block=64, **options),
        irt.from_array(csr_of(y), observed="stored", **options),
        irt.from_array(y[order], rows_per_block=501, **options),
    ):
        for name, errors in errors_of(other, "2pl+gpcm").items():
            np.testing.assert_array_equal(errors, want[name], err_msg=name)
