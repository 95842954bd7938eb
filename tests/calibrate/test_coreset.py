"""Coresets: unbiased, drawn with the stated probabilities, independent of the blocks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from items import quiet
from parts import cells
from scipy import stats

import irt_dask as irt
from irt_dask.calibrate.joint import coreset_draws, item_step, person_step
from irt_dask.calibrate.joint.coreset_spec import Coreset, Scores
from irt_dask.calibrate.joint.rounds import Rounds
from irt_dask.curves import model_named
from irt_dask.engine import Engine
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.item_maximum import Box
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Dense

fit = partial(quiet, irt.fit_joint, kinds=(ConvergenceWarning,))


def probabilities(theta):
    """Of the paper, from the hat matrix: square root of the leverage plus 1/n, normalised."""
    x = np.stack([theta, np.ones(theta.size)], axis=1)
    score = np.sqrt((np.linalg.qr(x)[0] ** 2).sum(axis=1)) + 1 / theta.size
    return score / score.sum()


BOX = Box(np.array([1e-3, -6.0]), np.array([5.0, 6.0]))
TWO = model_named("2pl")


@pytest.mark.parametrize("sampling", ["replacement", "poisson"])
def test_weighted_counts_are_unbiased(monkeypatch, sampling):
    """200 draws; z of 24 sums of counts, and the objective: false alarm 25 x 6e-5."""
    monkeypatch.setattr(item_step, "_SMALL", 0)  # counts on the axis, as of large data
    r = irt.simulate(300, 6, seed=1, missing=0.1, rows_per_block=64)
    x = np.stack([r.truth["item_discrimination"].values, r.truth["item_intercept"].values])
    n_draws = 200
    got, estimates = [], []

    def sums(counts):
        left = (counts.seen * (counts.nodes <= 0)).sum(axis=1)
        return np.array([counts.right, counts.right_ability, left, counts.seen.sum(axis=1)])

    with Engine(r, prepare=person_step.prepare) as engine:
        rounds = Rounds(engine, TWO, BOX, coreset=Coreset(40, sampling=sampling), seed=0)
        value, _, counts = rounds.round(x)
        want = sums(counts)
        for k in range(n_draws):
            same, _, counts, estimate, _ = rounds.coreset_round(x, k)
            assert same == (estimate if sampling == "poisson" else value)
            got.append(sums(counts))
            estimates.append(estimate)
    got = np.array(got)
    z = (got.mean(axis=0) - want) / (got.std(axis=0, ddof=1) / np.sqrt(n_draws))
    assert np.abs(z).max() < 4
    e = np.array(estimates)
    bias = 40 / 400 * e.std() if sampling == "poisson" else 0.0  # of a ratio, about 1 / size
    assert abs(e.mean() - value) < 4 * e.std(ddof=1) / np.sqrt(n_draws) + bias
    assert e.std() > 0


def drawn_in_blocks(engine, rounds, x, key):
    items, scales = rounds.items(x)
    count = engine.map_reduce(person_step.histogram, items, scales)[2] / scales.weight
    return coreset_draws.draw(engine, rounds.coreset, items, scales, key, count)


def test_poisson_sample_is_that_of_all_abilities():
    """Abilities of those alone who may be in: the same sample as when all are looked at."""
    r = irt.simulate(2000, 7, seed=3, missing=0.2, rows_per_block=300)
    x = np.stack([r.truth["item_discrimination"].values, r.truth["item_intercept"].values])
    key = (5, "coreset", 0)
    with Engine(r, prepare=person_step.prepare) as engine:
        rounds = Rounds(engine, TWO, BOX, coreset=Coreset(150, "kmeans", sampling="poisson"))
        sample = drawn_in_blocks(engine, rounds, x, key)
        items, scales = rounds.items(x)
        count = engine.map_reduce(person_step.histogram, items, scales)[2] / scales.weight
    theta, _ = modes.modes(Dense(cells(r)), modes.tables(items, 6.0))
    scores = Scores.of("kmeans", 150, count)
    score = np.interp(theta, person_step.AXIS, scores.table)
    p = np.minimum(1.0, 150 * score / (count @ scores.table))
    u = keyed_random.uniforms(keyed_random.key(*key), 0, theta.size)[:, 0]
    np.testing.assert_array_equal(sample.rows, np.flatnonzero(u < p))
    np.testing.assert_allclose(sample.weight, 1.0 / p[sample.rows], rtol=1e-7)
    np.testing.assert_allclose(sample.theta, theta[sample.rows], atol=1e-7)
    np.testing.assert_array_equal(layouts.to_dense(sample.data).values, cells(r)[sample.rows])


@pytest.mark.parametrize("sampling", ["replacement", "reservoir", "poisson"])
def test_inclusion_frequencies_are_the_probabilities(sampling):
    """120 persons, 40 or 400 draws of a coreset; chi-square, or z of each: false alarm 1e-4."""
    y = np.unique(cells(irt.simulate(400, 12, seed=2)), axis=0)
    y = np.ascontiguousarray(y[np.random.default_rng(0).permutation(len(y))][:120])
    x = np.stack([np.ones(12), np.linspace(-1, 1, 12)])
    theta, _ = modes.modes(Dense(y), modes.tables(Items.of("2pl", x[0], x[1]), 6.0))
    p = probabilities(theta)
    replaced, size_is_random = sampling == "replacement", sampling == "poisson"
    size, n_draws = (500, 40) if replaced else (20, 400)
    counts = np.zeros(len(y))
    with Engine(irt.from_array(y, rows_per_block=32), prepare=person_step.prepare) as engine:
        rounds = Rounds(engine, TWO, BOX, coreset=Coreset(size, sampling=sampling), seed=3)
        for k in range(n_draws):
            if size_is_random:
                at = drawn_in_blocks(engine, rounds, x, (3, "coreset", k))
            else:
                at = rounds.coreset_round(x, k).seen
            assert len(set(at.rows)) == len(at.rows)
            np.testing.assert_allclose(at.theta, theta[at.rows], atol=1e-7)
            if replaced:  # each drawn person stands for times / (size p) persons
                times = np.rint(at.weight * size * p[at.rows])
                np.testing.assert_allclose(at.weight, times / (size * p[at.rows]), rtol=1e-3)
            else:
                times = np.ones(len(at.rows))
                np.testing.assert_allclose(at.weight, 1 / (size * p[at.rows]), rtol=1e-3)
            assert times.sum() == size or size_is_random
            counts[at.rows] += times
    if replaced:  # with equal probabilities the same test would fail: it has power
        assert stats.chisquare(counts, counts.sum() * p).pvalue > 1e-4
        assert stats.chisquare(counts).pvalue < 1e-4
        return
    pi = size * p
    z = (counts / n_draws - pi) / np.sqrt(pi * (1 - pi) / n_draws)
    assert np.abs(z).max() < stats.norm.isf(1e-4 / 240)


OTHERS = [
    Coreset(60, method="leverage-l1"),
    Coreset(60, method="lewis", sampling="reservoir"),
    Coreset(60, method="uniform"),
    Coreset(60, sampling="poisson"),
    Coreset(60, method="uniform", sampling="poisson"),
    Coreset(60, method="kmeans", sampling="reservoir"),
    Coreset(16, reduce="items"),
    Coreset((60, 16), reduce="both"),
]


@pytest.mark.parametrize("spec", OTHERS, ids=lambda s: f"{s.method}-{s.reduce}-{s.sampling}")
@pytest.mark.parametrize("small", [True, False], ids=["gathered", "in blocks"])
def test_every_coreset_in_any_blocks(spec, small, monkeypatch):
    if not small:
        monkeypatch.setattr(item_step, "_SMALL", 0)
    y = cells(irt.simulate(500, 20, seed=4, missing=0.1))
    y[::3] = np.abs(y[::3])  # some are complete
    options = {"coreset": spec, "max_iterations": 8, "seed": 9}
    want = fit(irt.from_array(y, rows_per_block=500), **options)
    got = fit(irt.from_array(y, rows_per_block=33), **options)
    assert got.drop_attrs().identical(want.drop_attrs())
    assert got.attrs == want.attrs
    full = fit(y, max_iterations=30)
    gap = (full.attrs["objective"] - want.attrs["objective"]) / abs(full.attrs["objective"])
    assert -0.02 < gap < 0.08  # averages are on the standardised scale, where bounds are wider
    estimate, objective = want.attrs["coreset_objective"], want.attrs["objective"]
    if spec.reduce == "both":  # abilities fit the drawn items: an optimistic estimate
        assert objective < estimate < 0
    else:
        assert estimate == pytest.approx(objective, rel=0.5)


def test_labels_of_the_3pl():
    y = cells(irt.simulate(500, 8, seed=4, missing=0.1))
    options = {"model": "3pl", "max_iterations": 8, "guessing_min": 0.1}
    spec = Coreset(100, method="labels-3pl")
    want = fit(irt.from_array(y, rows_per_block=500), coreset=spec, **options)
    got = fit(irt.from_array(y, rows_per_block=33), coreset=spec, **options)
    assert got.drop_attrs().identical(want.drop_attrs())
    assert (want["item_guessing"] >= 0.1 - 1e-12).all()
    with pytest.raises(InputError, match=r"labels-3pl.* belongs to model='3pl'"):
        fit(y, coreset=spec)


@pytest.mark.parametrize("model", ["1pl", "2pl"])
def test_blocks_do_not_change_a_bit(model):
    y = cells(irt.simulate(500, 6, seed=4, missing=0.1))
    options = {"model": model, "coreset": Coreset(60), "max_iterations": 8, "seed": 9}
    want = fit(irt.from_array(y, rows_per_block=500), **options)
    for rows in (1, 33, 256):
        got = fit(irt.from_array(y, rows_per_block=rows), **options)
        assert got.drop_attrs().identical(want.drop_attrs())
        assert got.attrs == want.attrs
    other = fit(y, **{**options, "seed": 10})
    assert (other["item_difficulty"].values != want["item_difficulty"].values).any()


@pytest.mark.parametrize("sampling", ["replacement", "poisson"])
def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path, sampling):
    r = irt.simulate(300, 5, seed=5)
    options = {"coreset": Coreset(50, sampling=sampling), "seed": 2}
    whole = fit(r, max_iterations=12, **options)
    fit(r, max_iterations=8, checkpoint=tmp_path, **options)
    got = fit(r, max_iterations=12, checkpoint=tmp_path, **options)
    assert got.drop_attrs().identical(whole.drop_attrs())
    assert got.attrs == whole.attrs


@pytest.mark.parametrize("sampling", ["replacement", "poisson"])
def test_coreset_fit_is_close_to_the_full_fit(sampling):
    r = irt.simulate(20_000, 20, seed=6)
    full = fit(r, max_iterations=24)
    core = fit(r, coreset=Coreset(1000, sampling=sampling), max_iterations=24)
    assert np.corrcoef(core["item_difficulty"], full["item_difficulty"])[0, 1] > 0.995
    assert np.corrcoef(core["item_discrimination"], full["item_discrimination"])[0, 1] > 0.95
    gap = (full.attrs["objective"] - core.attrs["objective"]) / abs(full.attrs["objective"])
    assert 0 < gap < 0.01
    estimate = core.attrs["coreset_objective"]
    assert estimate == pytest.approx(full.attrs["objective"], rel=0.1)
    assert core.attrs["coreset_size"] == 1000
    assert core.attrs["coreset_sampling"] == sampling


def test_items_at_a_bound_are_told():
    y = cells(irt.simulate(2000, 8, seed=6))
    y[:, 0] = 1
    got = fit(y, coreset=Coreset(200), max_iterations=8)
    assert got["item_at_bound"].values[0]
    assert not got["item_at_bound"].values.all()


def test_item_that_the_sample_missed_keeps_its_value():
    y = np.random.default_rng(0).integers(0, 2, (3000, 6))
    y[2:, 5] = -1
    got = fit(y, coreset=Coreset(50), max_iterations=8)
    assert np.isfinite(got["item_difficulty"]).all()


def test_refusals():
    r = irt.simulate(50, 3)
    weighted = irt.from_array(cells(r), persons={"weight": np.ones(50)})
    with pytest.raises(
        InputError, match="fit_joint with a coreset does not support person weights"
    ):
        irt.fit_joint(weighted, coreset=Coreset(10))
    with pytest.raises(InputError, match="max_iterations=7 must be at least 8"):
        irt.fit_joint(r, coreset=Coreset(10), max_iterations=7)
    for options, message in (
        ({"size": 0}, "size=0 must be a whole number"),
        ({"size": 2.5}, r"size=2\.5 must be a whole number"),
        ({"size": 5, "method": "levis"}, "method='levis'; choose one of root-leverage"),
        ({"size": 5, "reduce": "columns"}, "reduce='columns'; choose one of persons"),
        ({"size": (5, 3)}, "a pair is for"),
        ({"size": 5, "method": "labels-3pl", "sampling": "poisson"}, "use another sampling"),
        ({"size": 5, "reduce": "both", "sampling": "poisson"}, "use another sampling"),
    ):
        with pytest.raises(InputError, match=message):
            irt.Coreset(**options)
