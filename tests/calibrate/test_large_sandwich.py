"""Sandwiches beyond matrices: against the dense sandwich, and against matrices by hand."""

import numpy as np
import pytest
import scipy.sparse
from test_large_errors import random_part, simulated

import irt_dask as irt
from irt_dask.calibrate.marginal import inverse_blocks, sampling, sandwich_blocks
from irt_dask.errors import DataWarning

#: Of standard errors, as a share: four of the standard deviations that end the search for the worst
#: one, when few of so many are as badly known as that.
NEAR = 2e-3
NIGHTLY = pytest.mark.nightly


def few_directions(monkeypatch):
    """A space of low rank that does not hold all parameters of a small test."""
    monkeypatch.setattr(inverse_blocks, "_WIDTH", 12)
    monkeypatch.setattr(inverse_blocks, "_STEPS", 3)


def differences(monkeypatch, responses, **options):
    """Relative differences of standard errors to those of the dense sandwich, and the large fit."""
    monkeypatch.setattr(sampling, "MAX_MATRIX", 10**6)
    want = irt.fit_marginal(responses, **options)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    found = irt.fit_marginal(responses, **options)
    out = {}
    for name in (name for name in want if name.endswith("_se")):
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(want[name]))
        if np.isfinite(want[name]).any():
            out[name] = np.abs(found[name].values / want[name].values - 1.0)
            estimate = name.removesuffix("_se")
            np.testing.assert_allclose(found[estimate], want[estimate], atol=1e-7)
    for name in ("n_sampling_units", "degrees_of_freedom"):
        assert found.attrs[name] == want.attrs[name]
    assert found.attrs["standard_errors"].startswith(f"{want.attrs['standard_errors']}: conjugate")
    return out, found


def worst(out):
    return max(float(np.nanmax(x)) for x in out.values())


GROUPS = np.repeat(["a", "b", "c"], 300)
WEIGHT = np.random.default_rng(8).gamma(3.0, 1.0, 900)
SCHOOL = np.random.default_rng(9).integers(0, 60, 900)


@pytest.mark.parametrize(
    ("given", "persons", "options"),
    [
        pytest.param({}, {"weight": WEIGHT}, {}, id="weights", marks=pytest.mark.slow),
        pytest.param(
            {}, {"weight": WEIGHT, "group": GROUPS}, {"model": "1pl"}, id="groups, shared slope"
        ),
        pytest.param({"booklets": 2}, None, {}, id="booklets", marks=pytest.mark.slow),
        pytest.param(
            {"categories": np.full(60, 3)}, {"weight": WEIGHT}, {"model": "gpcm"},
            id="gpcm", marks=[pytest.mark.slow, NIGHTLY],
        ),
        pytest.param({}, None, {"model": "3pl"}, id="prior", marks=[pytest.mark.slow, NIGHTLY]),
        pytest.param({}, {"weight": WEIGHT}, {"sampling_unit": SCHOOL}, id="units"),
        pytest.param(
            {}, {"group": GROUPS}, {"sampling_unit": SCHOOL, "model": "1pl"},
            id="units, groups, shared slope", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_as_the_dense_sandwich(monkeypatch, given, persons, options):
    """60 items, half of them observed.

    What the information says differs by more than 3%, so this would see it in the sandwich's place.
    """
    few_directions(monkeypatch)
    y = simulated(900, 60, 3, observed=0.5, **given)
    k = given.get("categories")
    data = irt.from_array(y, categories=k, persons=persons)
    how = {"standard_errors": True if "sampling_unit" in options else "sandwich"}
    out, found = differences(monkeypatch, data, **how, **options)
    assert worst(out) < NEAR
    if persons is None or "weight" not in persons:
        plain = irt.fit_marginal(
            data, standard_errors="information", model=options.get("model", "2pl")
        )
        name = "item_intercept_se"
        assert np.nanmax(np.abs(found[name] / plain[name] - 1.0)) > 0.03
    if persons is not None and "group" in persons:
        assert np.isfinite(found["group_mean_se"][1:]).all()
        assert max(np.nanmax(out[name]) for name in ("group_mean_se", "group_sd_se")) < 1e-4


@pytest.mark.slow
def test_frequencies_are_persons(monkeypatch):
    few_directions(monkeypatch)
    y, times = simulated(500, 60, 5, observed=0.6), np.arange(500) % 3 + 1
    data = irt.from_array(y, persons={"weight": times}, weight_kind="frequency")
    out, found = differences(monkeypatch, data, standard_errors="sandwich")
    assert worst(out) < NEAR
    rows = irt.fit_marginal(irt.from_array(np.repeat(y, times, axis=0)), standard_errors="sandwich")
    assert rows.attrs["n_sampling_units"] == found.attrs["n_sampling_units"] == times.sum()
    for name in out:
        np.testing.assert_allclose(found[name], rows[name], rtol=1e-6)


@pytest.mark.slow
def test_anchors_are_taken_as_known(monkeypatch):
    few_directions(monkeypatch)
    y = simulated(900, 60, 6, observed=0.5)
    names = ["item_discrimination", "item_intercept", "item_difficulty"]
    bank = irt.fit_marginal(y, standard_errors=False)[names].isel(items=slice(0, 6))
    data = irt.from_array(y, persons={"weight": WEIGHT})
    with pytest.warns(DataWarning, match=r"fixed_items are taken as known"):
        out, _ = differences(monkeypatch, data, fixed_items=bank, standard_errors=True)
    assert worst(out) < NEAR


@pytest.mark.slow
def test_same_bits_for_any_blocks_and_layout(monkeypatch):
    few_directions(monkeypatch)
    y = simulated(500, 24, 7, observed=0.6)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    stored = scipy.sparse.csr_matrix(np.where(y >= 0, y + 1, 0))
    stored.data -= 1
    persons = {"weight": WEIGHT[:500]}
    for unit in (None, SCHOOL[:500]):
        datas = [irt.from_array(y, persons=persons, rows_per_block=r) for r in (500, 61)]
        datas.append(irt.from_array(stored, observed="stored", persons=persons, rows_per_block=200))
        one, *others = (
            irt.fit_marginal(data, standard_errors=True, sampling_unit=unit) for data in datas
        )
        for other in others:
            for name in ("item_discrimination_se", "item_difficulty_se", "item_intercept_se"):
                np.testing.assert_array_equal(one[name], other[name])
            assert one.attrs["standard_errors"] == other.attrs["standard_errors"]


@pytest.mark.slow
def test_same_bits_with_workers(monkeypatch, client):
    few_directions(monkeypatch)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    y = simulated(500, 24, 7, observed=0.6)
    data = irt.from_array(y, persons={"weight": WEIGHT[:500]}, rows_per_block=70)
    one = irt.fit_marginal(data, standard_errors=True)
    other = irt.fit_marginal(data, standard_errors=True, client=client)
    np.testing.assert_array_equal(one["item_difficulty_se"], other["item_difficulty_se"])
    assert one.attrs["standard_errors"] == other.attrs["standard_errors"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"observed": 0.2},
        pytest.param({}, marks=NIGHTLY),
        pytest.param({"booklets": 6}, marks=NIGHTLY),
        pytest.param({"observed": 0.2, "categories": np.full(300, 4)}, marks=NIGHTLY),
    ],
    ids=["random", "complete", "booklets", "gpcm"],
)
def test_300_items(monkeypatch, given):
    k = given.get("categories")
    weight = np.random.default_rng(1).gamma(2.0, 1.0, 3000)
    data = irt.from_array(
        simulated(3000, 300, 1, **given), categories=k, persons={"weight": weight}
    )
    options = {} if k is None else {"model": "gpcm"}
    out, _ = differences(monkeypatch, data, standard_errors=True, **options)
    assert worst(out) < NEAR


@pytest.mark.slow
def test_a_steep_item(monkeypatch):
    """Slope 20: a person's scores have more degrees there; with 24 of them this is 3% off."""
    rng = np.random.default_rng(4)
    a, b = np.exp(rng.normal(0.1, 0.3, 40)), rng.normal(size=40)
    a[0], b[0] = 15.0, 0.3
    z = a * (rng.normal(size=(2000, 1)) - b)
    y = (rng.random((2000, 40)) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    for how in ("information", "sandwich"):
        monkeypatch.setattr(sampling, "MAX_MATRIX", 10**6)
        want = irt.fit_marginal(y, standard_errors=how)
        assert 15.0 < want["item_discrimination"][0] < 24.0
        monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
        found = irt.fit_marginal(y, standard_errors=how)
        for name in ("item_discrimination_se", "item_intercept_se"):
            np.testing.assert_allclose(found[name], want[name], rtol=1e-3)


# --- matrices by hand -----------------------------------------------------------------------------


def parts(size, spread, seed):
    """X, its blocks and its inverse, B, and square roots of blocks."""
    rng = np.random.default_rng(seed)
    x, own = random_part(size, rng)
    n = len(x)
    noise = rng.normal(size=(n, n)) * spread / np.sqrt(n)
    b = 1.7 * (np.eye(n) - x) + 0.5 * (noise + noise.T)
    of_root = np.where(own.there, rng.normal(size=own.there.shape), 0.0)
    return x, own, b, of_root, np.linalg.inv(np.eye(n) - x)


def test_blocks_of_a_sandwich(monkeypatch):
    """Within what is said: of 450 entries none is five standard deviations of the worst off."""
    monkeypatch.setattr(inverse_blocks, "_WIDTH", 16)
    monkeypatch.setattr(inverse_blocks, "_STEPS", 3)
    x, own, b, of_root, t = parts(300, 0.6, 2)
    inverse = inverse_blocks.Inverse(lambda v: x @ v, inverse_blocks.low_rank(lambda v: x @ v, own))
    assert inverse.low.q.shape[1] < len(x) / 3
    root = own.sparse(of_root).toarray()
    more = np.where(own.there, 0.3 * np.eye(2), 0.0)

    def blocks_of(matrix):
        at = np.where(own.at >= 0, own.at, 0)
        return np.where(own.there, matrix[at[:, :, None], at[:, None, :]], 0.0)

    want = blocks_of(root @ t @ b @ t @ root.T) + more
    squares = np.linalg.solve(root.T, b) @ np.linalg.inv(root)
    found, deviation = sandwich_blocks.blocks(
        inverse, own, of_root, blocks_of(root @ t @ root.T), blocks_of(squares),
        lambda v: b @ v, more,
    )  # fmt: skip
    diagonal = np.einsum("ijj->ij", want)[own.at >= 0]
    error = np.einsum("ijj->ij", found)[own.at >= 0] / diagonal - 1.0
    assert 0.0 < deviation < 1e-3
    assert np.abs(0.5 * error).max() < 5.0 * deviation
    assert np.abs(0.5 * error).max() > 0.3 * deviation
    np.testing.assert_allclose(found, found.transpose(0, 2, 1), rtol=1e-12)
    # What low rank alone says, and what is said without the rest R, is not that.
    e = sandwich_blocks.Difference.of(inverse, lambda v: b @ v, np.ones(len(x)))
    h = np.eye(len(x)) + inverse.low.q @ inverse.low.w @ inverse.low.q.T
    plain = np.diag(root @ h @ b @ h @ root.T) + 0.3
    assert e.eq.shape == inverse.low.q.shape
    assert np.abs(0.5 * (plain / diagonal - 1.0)).max() > 20.0 * deviation


def test_a_space_that_holds_everything_leaves_nothing_to_chance():
    x, own, b, of_root, t = parts(60, 0.6, 3)
    inverse = inverse_blocks.Inverse(lambda v: x @ v, inverse_blocks.low_rank(lambda v: x @ v, own))
    assert inverse.low.q.shape[1] == len(x)
    at = np.where(own.at >= 0, own.at, 0)
    root = own.sparse(of_root).toarray()
    of = [
        np.where(own.there, m[at[:, :, None], at[:, None, :]], 0.0)
        for m in (root @ t @ root.T, np.linalg.solve(root.T, b) @ np.linalg.inv(root))
    ]
    found, deviation = sandwich_blocks.blocks(
        inverse, own, of_root, *of, lambda v: b @ v, np.zeros(own.there.shape)
    )
    v = root @ t @ b @ t @ root.T
    want = np.where(own.there, v[at[:, :, None], at[:, None, :]], 0.0)
    np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-10)
    assert deviation < 1e-10
