"""Coresets drawn over blocks: unbiased, the same for any blocks, as good as their size promises."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from parts import cells, csr_of

import irt_dask as irt
from irt_dask.calibrate.joint import coreset_data, coreset_draws, person_step
from irt_dask.calibrate.joint import coreset_spec as coresets
from irt_dask.calibrate.joint.coreset_data import draw_coreset, to_frame
from irt_dask.calibrate.joint.coreset_spec import LABELS, METHODS, SAMPLING, Coreset, Labels, Scores
from irt_dask.calibrate.joint.item_step import AtAbilities
from irt_dask.calibrate.joint.person_step import N_NODES
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.kernels.coresets import sensitivities as kernels
from irt_dask.kernels.joint import ability_axis
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store import Block

#: Of gathered scores, and of items.
GATHERED = SAMPLING[:2]


def items_of(r):
    return r.truth[["item_discrimination", "item_intercept"]]


def direct(y, a, d, method=None):
    """Ability, histogram and labels without blocks."""
    theta, ll = _ability_of(y, a, d, method)
    scale = fixed_point.scale_for(theta.size)
    count = ability_axis.persons(theta, np.ones(theta.size), 6.0, N_NODES, scale) / scale
    labels = Labels((y == 0).sum(axis=0), (y == 1).sum(axis=0), np.full(a.size, 0.2))
    return theta, ll, count, labels


def _preparation(method):
    return person_step.prepare_rows if method == LABELS else person_step.prepare


def _ability_of(y, a, d, method=None):
    block = _preparation(method)(Block(0, 0, Dense(y)))
    scales = person_step.Scales.of(len(y), float(a.size))
    return person_step.abilities(block, Items.of("2pl", a, d), scales)


@pytest.fixture(scope="module")
def small():
    """300 persons, some without responses, with items."""
    r = irt.simulate(300, 8, seed=1, missing=0.2)
    y = cells(r)
    y[::41] = -1
    return y, r.truth["item_discrimination"].values, r.truth["item_intercept"].values


@pytest.mark.parametrize("sampling", GATHERED)
@pytest.mark.parametrize("method", METHODS)
def test_draws_over_blocks_are_those_of_the_whole(small, method, sampling):
    """Any blocks, either layout, and the draw from gathered scores: the same bits."""
    y, a, d = small
    theta, ll, count, labels = direct(y, a, d, method)
    for size in (12, 120):  # 120: some persons are certain
        spec = Coreset(size, method, sampling=sampling)
        score = Scores.of(method, size, count, labels)(Dense(y), theta)
        want = coreset_draws.draw_gathered(spec, size, score, theta, ll, (5, "coreset", 3))
        assert want.times.sum() == size
        for r in (
            irt.from_array(y),
            irt.from_array(y, rows_per_block=7),
            irt.from_array(csr_of(y), observed="stored", rows_per_block=50),
        ):
            scales = person_step.Scales.of(r.n_persons, float(a.size))
            with Engine(r, prepare=_preparation(method)) as engine:
                got = coreset_draws.draw(
                    engine, spec, Items.of("2pl", a, d), scales, (5, "coreset", 3), count, labels
                )
            for name in ("rows", "times", "weight", "theta", "ll"):
                np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
            np.testing.assert_array_equal(layouts.to_dense(got.data).values, y[got.rows])


@pytest.mark.parametrize("sampling", GATHERED)
@pytest.mark.parametrize("method", METHODS)
def test_weighted_sums_are_unbiased(small, method, sampling):
    """600 draws from gathered scores; z of 3 sums in each of 12 cases: false alarm 36 x 6e-5."""
    y, a, d = small
    theta, ll, count, labels = direct(y, a, d)
    spec = Coreset(40, method, sampling=sampling)
    score = Scores.of(method, 40, count, labels)(Dense(y), theta)
    seen = ~np.isnan(theta)
    values = np.stack([np.ones(theta.size), np.where(seen, theta, 0.0), ll], axis=1)
    sums = []
    for k in range(600):
        s = coreset_draws.draw_gathered(spec, 40, score, theta, ll, (k, "unbiased"))
        assert seen[s.rows].all()
        sums.append(s.weight @ values[s.rows])
    sums, want = np.array(sums), values[seen].sum(axis=0)
    error = sums.std(axis=0, ddof=1) / np.sqrt(600)
    # uniform weights sum to the number of persons exactly
    assert (np.abs(sums.mean(axis=0) - want) <= 4 * error + 1e-6 * np.abs(want)).all()


def test_items():
    rng = np.random.default_rng(0)
    a, d = rng.lognormal(0, 0.5, 60), rng.normal(0, 1.5, 60)
    x = np.stack([a, d], axis=1)
    leverage = np.sqrt((np.linalg.qr(x)[0] ** 2).sum(axis=1)) + 1 / 60
    np.testing.assert_allclose(kernels.row_scores("root-leverage", x, np.ones(60)), leverage)
    for method in kernels.METHODS:
        for sampling in GATHERED:
            sums = []
            for k in range(150):
                args = (a, d, 20, method, keyed_random.generator(k, "items"), sampling)
                index, weight = coresets.draw_items(*args)
                assert (np.diff(index) > 0).all()
                if k == 0:
                    again = coresets.draw_items(
                        *args[:4], keyed_random.generator(k, "items"), sampling
                    )
                    np.testing.assert_array_equal(again[0], index)
                    np.testing.assert_array_equal(again[1], weight)
                sums.append([weight @ d[index], weight @ a[index]])
            gap = np.abs(np.mean(sums, axis=0) - [d.sum(), a.sum()])  # false alarm 20 x 6e-5
            assert (gap < 4 * np.std(sums, axis=0, ddof=1) / np.sqrt(150)).all()
            index, weight = coresets.draw_items(
                a, d, 60, method, keyed_random.generator(0, "i"), sampling
            )
            assert (weight == 1).all()
            assert index.size == 60
    # items that are multiples of each other, as in a 1PL with one difficulty
    index, weight = coresets.draw_items(
        np.ones(9), np.ones(9), 3, "lewis", keyed_random.generator(0, "i"), "reservoir"
    )
    np.testing.assert_allclose(weight, 3.0)


# --- the public function --------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLING)
def test_dataset(bits, small, sampling):
    y, a, d = small
    items = xr_items(a, d)
    theta, _ = _ability_of(y, a, d)
    ids = [f"p{i}" for i in range(300)]
    want = None
    for rows in (300, 64, 9):
        r = irt.from_array(y, person_id=ids, rows_per_block=rows)
        got = draw_coreset(r, items, 50, sampling=sampling, seed=4)
        want = got if want is None else want
        assert got.attrs == want.attrs
        assert bits(got) == bits(want)
    at = want["person_row"].values
    assert (np.diff(at) > 0).all()
    assert [ids[i] for i in at] == list(want["person_id"].values)
    np.testing.assert_array_equal(want["response"], y[at])
    np.testing.assert_array_equal(want["person_ability"], theta[at])
    assert want["response"].dtype == np.int8
    if sampling == "poisson":  # 50 are expected
        assert abs(at.size - 50) < 4 * 50**0.5
    else:
        assert want["person_n_draws"].sum() == 50
    assert want.attrs["n_drawn"] == at.size
    assert want.attrs["n_persons_with_responses"] == 292
    other = draw_coreset(irt.from_array(y), items, 50, sampling=sampling, seed=5)
    assert set(other["person_row"].values) != set(at)


def xr_items(a, d):
    import xarray as xr

    return xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
        coords={"item_id": ("items", [str(j) for j in range(a.size)])},
    )


def test_two_processes(bits, client, small):
    y, a, d = small
    r = irt.from_array(y, rows_per_block=40)
    options = {"sampling": "reservoir", "method": "labels-3pl"}
    here = draw_coreset(r, xr_items(a, d), 40, **options)
    assert bits(draw_coreset(r, xr_items(a, d), 40, client=client, **options)) == bits(here)


def test_everybody_in_the_reservoir_is_exact(small):
    y, a, d = small
    got = draw_coreset(y, xr_items(a, d), 1000, sampling="reservoir", method="lewis")
    assert (got["person_weight"] == 1).all()
    assert got.sizes["persons"] == 292
    assert got.attrs["error_max"] < 1e-9


@pytest.mark.parametrize("guessing", [0.0, 0.2])
@pytest.mark.parametrize("n_copies", [1, 500])  # at the abilities; on the axis
def test_costs_are_those_of_the_responses(small, guessing, n_copies):
    y, a, d = small
    y = np.tile(y, (n_copies, 1))
    theta = np.tile(_ability_of(small[0], a, d)[0], n_copies)
    weight = np.random.default_rng(0).uniform(0.5, 3, theta.size)
    items = Items.of("3pl", a, d, np.full(a.size, guessing)) if guessing else Items.of("2pl", a, d)
    for data in (Dense(y), layouts.to_sparse(Dense(y))):
        counts = AtAbilities(theta, weight, few=n_copies == 1).counts(data, guessing > 0)
        got = coreset_data.costs(items.curves, counts)
        p = guessing + (1 - guessing) / (1 + np.exp(-(np.nan_to_num(theta)[:, None] * a + d)))
        loss = -np.log(np.where(y == 1, p, 1 - p)) * (y >= 0)
        np.testing.assert_allclose(got, weight @ loss, rtol=1e-9 if n_copies == 1 else 1e-4)


@pytest.mark.parametrize("method", ["root-leverage", "uniform", "labels-3pl"])
def test_errors_fall_like_the_root_of_the_size(method):
    """16 times the persons, a quarter of the error; averaged over 4 seeds within a factor 1.6."""
    r = irt.simulate(4000, 10, seed=6)
    small, large = (
        np.mean([draw_coreset(r, items_of(r), k, method=method, seed=s).attrs["error_median"]
                 for s in range(4)])
        for k in (100, 1600)
    )  # fmt: skip
    assert 4 / 1.6 < small / large < 4 * 1.6
    assert 0.005 < small < 0.2


def test_weights_sum_to_about_the_persons():
    r = irt.simulate(5000, 10, seed=7)
    for sampling in SAMPLING:
        got = draw_coreset(r, items_of(r), 1000, sampling=sampling)
        assert got.attrs["sum_of_weights"] == pytest.approx(5000, rel=0.1)
        assert got.attrs["error_objective"] < 0.1
        assert got.attrs["error_median"] <= got.attrs["error_max"] < 0.5


def test_csv_round_trip(tmp_path, small):
    y, a, d = small
    y[5] = [1, 0, -1, 1, 0, 1, 1, 0]
    ids = [f"{i:04d}" for i in range(300)]
    got = draw_coreset(irt.from_array(y, person_id=ids), xr_items(a, d), 80)
    path = tmp_path / "coreset.csv"
    to_frame(got).to_csv(path, index=False)
    back = pd.read_csv(path, dtype={"person_id": str})
    assert list(back["person_id"]) == list(got["person_id"].values)
    np.testing.assert_allclose(back["person_weight"], got["person_weight"], rtol=1e-14)
    np.testing.assert_allclose(back["person_ability"], got["person_ability"], rtol=1e-14)
    again = irt.from_array(back[list(got["item_id"].values)])
    np.testing.assert_array_equal(cells(again), got["response"])
    clash = got.assign_coords(item_id=("items", ["person_weight", *"bcdefgh"]))
    with pytest.raises(InputError, match="person_weight are names of columns"):
        to_frame(clash)


def test_refusals(small, monkeypatch):
    y, a, d = small
    items = xr_items(a, d)
    weighted = irt.from_array(y, persons={"weight": np.ones(300)})
    with pytest.raises(InputError, match="draw_coreset does not support person weights"):
        draw_coreset(weighted, items, 10)
    with pytest.raises(EstimationError, match="no person has any response"):
        draw_coreset(np.full((5, 8), -1), items, 3)
    with pytest.raises(InputError, match="not in items"):
        draw_coreset(y, items.isel(items=slice(3)), 10)
    monkeypatch.setattr(coreset_data, "MAX_CELLS", 400)
    with pytest.raises(InputError, match=r"more than 400 responses.*at most 50 persons"):
        draw_coreset(y, items, 51)
    with pytest.raises(InputError, match="numbers wrong and right"):
        Scores.of("labels-3pl", 5, np.ones(N_NODES))
    for options, message in (
        ({"size": 0}, "size=0 must be a whole number"),
        ({"size": True}, "size=True must be a whole number"),
        ({"size": 5, "method": "leverage"}, "method='leverage'; choose one of root-leverage"),
        ({"size": 5, "reduce": "rows"}, "reduce='rows'; choose one of persons"),
        ({"size": 5, "sampling": "chao"}, "sampling='chao'; choose one of replacement"),
        ({"size": (5, 6)}, 'a pair is for reduce="both"'),
        ({"size": (5, 6, 7), "reduce": "both"}, r"must be one number or \(persons, items\)"),
        ({"size": (5, 0), "reduce": "both"}, r"size=\(5, 0\) must be a whole number"),
        ({"size": 5, "method": "labels-3pl", "reduce": "items"}, "it draws persons"),
    ):
        with pytest.raises(InputError, match=message):
            Coreset(**options)


def test_sizes():
    assert Coreset(50).sizes(20, 8) == (50, None)
    assert Coreset(50, reduce="items").sizes(20, 8) == (None, 8)
    assert Coreset(50, reduce="both").sizes(20, 60) == (20, 50)
    assert Coreset([50, 9], reduce="both").sizes(20, 8) == (50, 8)
    assert Coreset([50, 9], reduce="both") == Coreset((50, 9), reduce="both")
