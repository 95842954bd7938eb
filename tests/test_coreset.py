"""Coresets: unbiased, drawn with the stated probabilities, independent of the blocks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

import irt_dask as irt
from irt_dask.calibrate.alternation import Coreset, Rounds
from irt_dask.calibrate.axis import AXIS
from irt_dask.engine import Engine
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.kernels import items, modes
from irt_dask.kernels.layouts import Dense


def fit(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return irt.fit_joint(data, **options)


def cells(r):
    return np.concatenate([r.read_block(k).data.values for k in range(r.n_blocks)])


def probabilities(theta):
    """Of the paper, from the hat matrix: square root of the leverage plus 1/n, normalised."""
    x = np.stack([theta, np.ones(theta.size)], axis=1)
    score = np.sqrt((np.linalg.qr(x)[0] ** 2).sum(axis=1)) + 1 / theta.size
    return score / score.sum()


def test_weighted_counts_are_unbiased():
    """400 draws; z of 24 sums of counts, and the objective: false alarm 25 x 6e-5."""
    r = irt.simulate(300, 6, seed=1, missing=0.1, rows_per_block=64)
    a, d = r.truth["item_discrimination"].values, r.truth["item_intercept"].values
    n_draws = 400
    halves = [AXIS <= 0, AXIS > 0]
    got, estimates = [], []
    with Engine(r) as engine:
        rounds = Rounds(engine, "2pl", Coreset(40), seed=0)
        value, _, counts = rounds.round(a, d)
        want = np.array([c[h].sum(axis=0) for c in (counts.right, counts.seen) for h in halves])
        for k in range(n_draws):
            same, _, counts, estimate = rounds.coreset_round(a, d, k)
            assert same == value
            got.append([c[h].sum(axis=0) for c in (counts.right, counts.seen) for h in halves])
            estimates.append(estimate)
    got = np.array(got)
    z = (got.mean(axis=0) - want) / (got.std(axis=0, ddof=1) / np.sqrt(n_draws))
    assert np.abs(z).max() < 4
    e = np.array(estimates)
    assert abs(e.mean() - value) < 4 * e.std(ddof=1) / np.sqrt(n_draws)
    assert e.std() > 0


def test_inclusion_frequencies_are_the_probabilities():
    """Persons recognised by their patterns of 12 items; chi-square, false alarm 1e-4."""
    y = np.unique(cells(irt.simulate(400, 12, seed=2)), axis=0)
    y = np.ascontiguousarray(y[np.random.default_rng(0).permutation(len(y))][:120])
    a, d = np.ones(12), np.linspace(-1, 1, 12)
    theta, _ = modes.modes(Dense(y), a, d, 6.0)
    p = probabilities(theta)
    index = {row.tobytes(): i for i, row in enumerate(y)}
    counts, size, n_draws = np.zeros(len(y)), 500, 40
    picked = []
    with Engine(irt.from_array(y, rows_per_block=32)) as engine:
        map_some = engine.map_some
        engine.map_some = lambda *args: picked.append(map_some(*args)) or picked[-1]
        rounds = Rounds(engine, "2pl", Coreset(size), seed=3)
        for k in range(n_draws):
            seen = rounds.coreset_round(a, d, k)[2].seen
            at, times = [], []
            for chosen, _, _, _, often in picked[-1].values():
                at += [index[row.tobytes()] for row in chosen.values]
                times += list(often)
            assert len(set(at)) == len(at)
            assert sum(times) == size
            counts[at] += times
            # each drawn person stands for times / (size p) persons
            weight = np.array(times) / (size * p[at])
            assert seen[:, 0].sum() == pytest.approx(weight.sum(), rel=1e-6)
            assert seen[:, 0] @ AXIS == pytest.approx(weight @ theta[at], abs=1e-4)
    # with equal probabilities the same test would fail: it has power
    assert stats.chisquare(counts, counts.sum() * p).pvalue > 1e-4
    assert stats.chisquare(counts).pvalue < 1e-4


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


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path):
    r = irt.simulate(300, 5, seed=5)
    options = {"coreset": Coreset(50), "seed": 2}
    whole = fit(r, max_iterations=12, **options)
    fit(r, max_iterations=8, checkpoint=tmp_path, **options)
    got = fit(r, max_iterations=12, checkpoint=tmp_path, **options)
    assert got.drop_attrs().identical(whole.drop_attrs())
    assert got.attrs == whole.attrs


def test_coreset_fit_is_close_to_the_full_fit():
    r = irt.simulate(20_000, 20, seed=6)
    full = fit(r, max_iterations=24)
    core = fit(r, coreset=Coreset(1000), max_iterations=24)
    assert np.corrcoef(core["item_difficulty"], full["item_difficulty"])[0, 1] > 0.995
    assert np.corrcoef(core["item_discrimination"], full["item_discrimination"])[0, 1] > 0.95
    gap = (full.attrs["objective"] - core.attrs["objective"]) / abs(full.attrs["objective"])
    assert 0 < gap < 0.01
    estimate = core.attrs["coreset_objective"]
    assert estimate == pytest.approx(full.attrs["objective"], rel=0.1)
    assert core.attrs["coreset_size"] == 1000


def test_item_that_the_sample_missed_keeps_its_value():
    y = np.random.default_rng(0).integers(0, 2, (3000, 6))
    y[2:, 5] = -1
    got = fit(y, coreset=Coreset(50), max_iterations=8)
    assert np.isfinite(got["item_difficulty"]).all()


def test_item_step_on_the_coreset_maximises_its_weighted_likelihood():
    """A coreset of every person with weight 1 is the full problem."""
    y = cells(irt.simulate(200, 5, seed=7))
    a, d = np.ones(5), np.zeros(5)
    theta, _ = modes.modes(Dense(y), a, d, 6.0)
    right, seen = (
        c / 2.0**20 for c in modes.axis_counts(Dense(y), theta, np.ones(200), 6.0, 481, 2.0**20)
    )
    new_a, new_d = items.maximise(
        right, seen, AXIS, a, d, a_bounds=(1e-3, 5.0), d_bounds=(-6.0, 6.0)
    )
    for j in range(5):
        z = new_a[j] * theta + new_d[j]
        residual = y[:, j] - 1 / (1 + np.exp(-z))
        if 1e-3 < new_a[j] < 5 and abs(new_d[j]) < 6:
            # zero but for the binning of abilities
            assert abs(residual.sum()) < 0.02
            assert abs(residual @ theta) < 0.1


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
        ({"size": 5, "method": "lewis"}, "method='lewis'; choose one of root-leverage"),
        ({"size": 5, "reduce": "items"}, "reduce='items'; choose one of persons"),
    ):
        with pytest.raises(InputError, match=message):
            irt.Coreset(**options)
