"""Standard errors beyond matrices: against the dense inverse, and against matrices by hand."""

import numpy as np
import pytest
import scipy.sparse

import irt_dask as irt
from irt_dask.calibrate.marginal import inverse_blocks, sampling
from irt_dask.errors import DataWarning


def simulated(n, m, seed, *, categories=None, observed=1.0, booklets=None):
    """Responses, -1 where not observed; booklets are so many sets of neighbouring items."""
    rng = np.random.default_rng(seed)
    k = np.full(m, 2) if categories is None else categories
    a, theta = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(size=(n, 1))
    y = np.empty((n, m), dtype=np.int8)
    for j in range(m):
        steps = np.sort(rng.normal(size=k[j] - 1)) + 0.5 * np.arange(k[j] - 1)
        above = 1.0 / (1.0 + np.exp(-a[j] * (theta - steps)))
        y[:, j] = (rng.random((n, 1)) < above).sum(axis=1)
    y[rng.random((n, m)) > observed] = -1
    if booklets:
        own = np.arange(n)[:, None] % booklets
        y[np.arange(m) * booklets // m != own] = -1
    return y


def difference(monkeypatch, responses, **options):
    """Largest relative difference of standard errors to those of the dense inverse; attrs."""
    want = irt.fit_marginal(responses, standard_errors=True, **options)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    found = irt.fit_marginal(responses, standard_errors=True, **options)
    names = [name for name in want if name.endswith("_se")]
    worst = 0.0
    for name in names:
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(want[name]))
        if np.isfinite(want[name]).any():
            worst = max(worst, float(np.nanmax(np.abs(found[name] / want[name] - 1.0))))
            estimate = name.removesuffix("_se")
            np.testing.assert_allclose(found[estimate], want[estimate], atol=1e-7)
    assert "standard_errors" not in want.attrs
    return worst, found


def small_steps(monkeypatch):
    """A space that does not hold all parameters of a small test, and few signs."""
    monkeypatch.setattr(inverse_blocks, "_WIDTH", 12)
    monkeypatch.setattr(inverse_blocks, "_STEPS", 3)


def models(k):
    return {str(j): {2: "2pl", 3: "gpcm", 4: "graded"}[c] for j, c in enumerate(k)}


MIXED = np.array([2, 3, 4] * 8)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        pytest.param({}, {}, id="complete", marks=pytest.mark.slow),
        pytest.param({"observed": 0.5}, {"model": "1pl"}, id="shared slope"),
        pytest.param({"booklets": 2}, {}, id="booklets", marks=pytest.mark.slow),
        pytest.param(
            {"categories": MIXED, "observed": 0.6}, {"model": models(MIXED)},
            id="categories", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_as_the_dense_inverse(monkeypatch, given, options):
    y = simulated(800, 24, 3, **given)
    small_steps(monkeypatch)
    k = given.get("categories")
    data = irt.from_array(y, categories=k)
    worst, found = difference(monkeypatch, data, **options)
    assert worst < 1e-3
    assert found.attrs["standard_errors"].startswith(
        "conjugate gradients (relative residual 1e-05)"
    )


def test_groups_and_frequency_weights(monkeypatch):
    y = simulated(600, 24, 5, observed=0.7)
    small_steps(monkeypatch)
    persons = {"group": np.repeat(["a", "b", "c"], 200), "weight": np.arange(600) % 3 + 1.0}
    data = irt.from_array(y, persons=persons, weight_kind="frequency")
    worst, found = difference(monkeypatch, data)
    assert worst < 1e-3
    assert np.isfinite(found["group_mean_se"][1:]).all()


@pytest.mark.slow
def test_same_bits_for_any_blocks_and_layout(monkeypatch):
    y = simulated(500, 24, 7, observed=0.6)
    small_steps(monkeypatch)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    stored = scipy.sparse.csr_matrix(np.where(y >= 0, y + 1, 0))
    stored.data -= 1
    datas = [irt.from_array(y, rows_per_block=r) for r in (500, 61)]
    datas.append(irt.from_array(stored, observed="stored", rows_per_block=200))
    one, *others = (irt.fit_marginal(data, standard_errors=True) for data in datas)
    for other in others:
        for name in ("item_discrimination_se", "item_difficulty_se", "item_intercept"):
            np.testing.assert_array_equal(one[name], other[name])
        assert one.attrs["standard_errors"] == other.attrs["standard_errors"]


@pytest.mark.slow
def test_same_bits_with_workers(monkeypatch, client):
    y = simulated(500, 24, 7, observed=0.6)
    small_steps(monkeypatch)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    data = irt.from_array(y, rows_per_block=70)
    one = irt.fit_marginal(data, standard_errors=True)
    other = irt.fit_marginal(data, standard_errors=True, client=client)
    np.testing.assert_array_equal(one["item_difficulty_se"], other["item_difficulty_se"])
    assert one.attrs["standard_errors"] == other.attrs["standard_errors"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [{}, {"observed": 0.2}, {"booklets": 6}, {"categories": np.array([2, 3, 4] * 100)}],
    ids=["complete", "random", "booklets", "categories"],
)
def test_300_items(monkeypatch, given):
    k = given.get("categories")
    data = irt.from_array(simulated(3000, 300, 1, **given), categories=k)
    options = {} if k is None else {"model": models(k)}
    assert difference(monkeypatch, data, **options)[0] < 1e-3


def random_part(size, rng):
    """X and its blocks: two large eigenvalues that all columns share, and noise."""
    common = rng.normal(size=(size, 2)) / np.sqrt(size)
    noise = rng.normal(size=(size, size)) * 0.1 / np.sqrt(size)
    x = 0.9 * common @ common.T + 0.5 * (noise + noise.T)
    at = rng.permutation(size).reshape(-1, 2)
    at[::3, 1] = -1  # some blocks have one column: number the others anew
    at[at >= 0] = np.argsort(np.argsort(at[at >= 0]))
    x = x[: (at >= 0).sum(), : (at >= 0).sum()]
    blocks = inverse_blocks.Blocks(at)
    x[blocks.number[:, None] == blocks.number] = 0.0
    return x, blocks


def test_blocks_of_an_inverse(monkeypatch):
    x, blocks = random_part(300, np.random.default_rng(2))
    monkeypatch.setattr(inverse_blocks, "_WIDTH", 32)
    monkeypatch.setattr(inverse_blocks, "_STEPS", 3)
    low = inverse_blocks.low_rank(lambda v: x @ v, blocks)
    assert low.q.shape[1] < len(x) / 2
    inverse = inverse_blocks.Inverse(lambda v: x @ v, low)
    columns = np.random.default_rng(3).normal(size=(len(x), 2))
    found, solved, deviation = inverse.blocks(blocks, columns)
    want = np.linalg.inv(np.eye(len(x)) - x)
    np.testing.assert_allclose(solved, want @ columns, atol=1e-4)
    own = blocks.sparse(np.ones(found.shape)).toarray() > 0.0
    found = blocks.sparse(found).toarray()
    assert np.abs(found - want)[own].max() < 1e-3
    assert deviation < 5e-4
    assert np.abs(np.diag(want) - 1.0).max() > 2e-3  # blocks alone are not it


def test_no_inverse():
    x, blocks = random_part(60, np.random.default_rng(4))
    worst = x * (1.001 / np.linalg.eigvalsh(x)[-1])
    with pytest.raises(inverse_blocks.SingularError):
        inverse_blocks.low_rank(lambda v: worst @ v, blocks)


def test_what_cannot_be_had_is_said(monkeypatch):
    y = simulated(500, 12, 9)
    bank = irt.fit_marginal(y).isel(items=slice(0, 4))
    monkeypatch.setattr(sampling, "MAX_MATRIX", 10)
    with pytest.warns(DataWarning, match=r"fixed_items are taken as known: with 18 parameters"):
        found = irt.fit_marginal(y, fixed_items=bank, standard_errors=True)
    assert found.attrs["anchor_errors"].startswith("taken as known")
    assert "item_anchor_chi2" not in found


@pytest.mark.parametrize("grouped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_fixed_items_of_more_categories(monkeypatch, grouped):
    """As the dense inverse, of anchors that are known for certain: their bank's errors are not in.

    Two items each of 2, 3 and 4 categories are fixed; abilities of all groups are free.
    """
    k = MIXED[:12]
    y, other = np.split(simulated(9900, 12, 4, categories=k, observed=0.7), [900])
    bank = irt.fit_marginal(irt.from_array(other, categories=k), model=models(k), progress=False)
    bank = bank.isel(items=slice(0, 6))
    known = bank[[v for v in bank if not v.endswith("_se") and "covariance" not in v]]
    persons = {"group": np.repeat(["a", "b", "c"], 300)} if grouped else None
    data = irt.from_array(y, categories=k, persons=persons)
    options = {"model": models(k), "standard_errors": True, "progress": False}
    want = irt.fit_marginal(data, fixed_items=known, **options)
    uncertain = irt.fit_marginal(data, fixed_items=bank, **options)
    small_steps(monkeypatch)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 1)
    with pytest.warns(DataWarning, match="fixed_items are taken as known"):
        found = irt.fit_marginal(data, fixed_items=bank, **options)
    assert found.attrs["standard_errors"].startswith("conjugate gradients")
    errors = [name for name in want if name.endswith("_se")]
    assert {"item_step_intercept_se", "item_threshold_se", "group_sd_se"} <= {*errors}
    for name in errors:
        estimate = name.removesuffix("_se")
        np.testing.assert_allclose(found[estimate], want[estimate], atol=1e-7)
        np.testing.assert_allclose(found[name], want[name], rtol=1e-3)
        assert np.isnan(found[name][:6]).all() == name.startswith("item")
    free = uncertain["item_difficulty_se"].values[6:]
    assert (free > 1.005 * found["item_difficulty_se"].values[6:]).all()
