"""Linking: exact for a linear change of scale, scipy's minimum, symmetric, in simulations."""

from __future__ import annotations

import numpy as np
import pytest
from items import bank
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError, ItemWarning
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import item_set

METHODS = ("haebara", "stocking-lord", "mean-sigma", "mean-mean")


def items(rng, n=20):
    return np.exp(rng.normal(0, 0.3, n)), rng.normal(size=n), rng.uniform(0.0, 0.3, n)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("guessing", [False, True])
def test_a_linear_change_of_scale_is_undone(method, guessing):
    rng = np.random.default_rng(0)
    a, b, c = items(rng)
    c = c if guessing else None
    scale, shift = 1.3, -0.4  # theta_a = 1.3 theta_b - 0.4
    moved = bank(
        a[5:] * scale,
        (b[5:] - shift) / scale,
        None if c is None else c[5:],
        item_id=range(5, 20),
        item_discrimination_se=np.full(15, 0.1),
        item_difficulty_sd=np.full(15, 0.2),
    )
    got = irt.link(bank(a[:12], b[:12], None if c is None else c[:12]), moved, method=method)
    assert got.attrs["A"] == pytest.approx(scale, abs=1e-7)
    assert got.attrs["B"] == pytest.approx(shift, abs=1e-7)
    assert got.attrs["n_common"] == 7
    np.testing.assert_allclose(got["item_discrimination"], a[5:], atol=1e-6)
    np.testing.assert_allclose(got["item_difficulty"], b[5:], atol=1e-6)
    np.testing.assert_allclose(got["item_intercept"], -a[5:] * b[5:], atol=1e-6)
    np.testing.assert_allclose(got["item_discrimination_se"], 0.1 / scale, atol=1e-7)
    np.testing.assert_allclose(got["item_difficulty_se"], 0.2 * scale, atol=1e-7)
    np.testing.assert_allclose(got["item_link_rmsd"][:7], 0.0, atol=1e-6)
    assert np.isnan(got["item_link_rmsd"][7:]).all()
    assert list(got["item_id"].values) == [str(k) for k in range(5, 20)]
    if guessing:
        np.testing.assert_array_equal(got["item_guessing"], c[5:])


def loss(x, one, two, method):
    """Symmetric criterion, by a plain loop over abilities and items."""
    scale, shift = x
    t = np.linspace(-5, 5, 101)
    w = np.exp(-0.5 * t**2)
    w /= w.sum()

    def p(item, u):
        a, b, c = item
        return c + (1 - c) / (1 + np.exp(-a * (u - b)))

    total = 0.0
    for u, v in zip(t, w, strict=True):
        # the same persons on both scales: theta_b = (theta_a - B) / A
        on_a = [p(i, u) - p(k, (u - shift) / scale) for i, k in zip(one, two, strict=True)]
        on_b = [p(k, u) - p(i, scale * u + shift) for i, k in zip(one, two, strict=True)]
        for e in (on_a, on_b):
            total += v * (sum(e) ** 2 if method == "stocking-lord" else sum(x * x for x in e))
    return total


@pytest.mark.parametrize("method", ["haebara", "stocking-lord"])
def test_the_minimum_of_scipy(method):
    rng = np.random.default_rng(1)
    a, b, c = items(rng, 6)
    a2, b2, c2 = a * np.exp(rng.normal(0, 0.2, 6)), b + rng.normal(0, 0.2, 6), c * 0.9
    best = minimize(
        loss,
        [1.0, 0.0],
        (list(zip(a, b, c, strict=True)), list(zip(a2, b2, c2, strict=True)), method),
        "Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-14},
    )
    got = irt.link(bank(a, b, c), bank(a2, b2, c2), method=method)
    assert (got.attrs["A"], got.attrs["B"]) == pytest.approx(tuple(best.x), abs=1e-5)
    assert got.attrs["criterion"] == pytest.approx(best.fun, rel=1e-7)
    back = irt.link(bank(a2, b2, c2), bank(a, b, c), method=method)
    assert back.attrs["A"] == pytest.approx(1 / got.attrs["A"], abs=1e-6)
    assert back.attrs["B"] == pytest.approx(-got.attrs["B"] / got.attrs["A"], abs=1e-6)


def test_means_and_standard_deviations():
    a, b = np.array([1.0, 2.0, 1.5]), np.array([-1.0, 0.0, 2.0])
    a2, b2 = np.array([1.2, 1.8, 1.6]), np.array([-0.5, 0.1, 1.0])
    got = irt.link(bank(a, b), bank(a2, b2), method="mean-sigma").attrs
    assert got["A"] == pytest.approx(b.std() / b2.std())
    assert got["B"] == pytest.approx(b.mean() - got["A"] * b2.mean())
    got = irt.link(bank(a, b), bank(a2, b2), method="mean-mean").attrs
    assert got["A"] == pytest.approx(a2.mean() / a.mean())
    assert got["B"] == pytest.approx(b.mean() - got["A"] * b2.mean())


@pytest.mark.parametrize("method", METHODS)
def test_one_slope_stays_one_slope(method):
    rng = np.random.default_rng(2)
    b = rng.normal(size=8)
    one = bank(np.ones(8), b)
    two = bank(np.ones(8), b - 0.7 + rng.normal(0, 0.1, 8))
    got = irt.link(one, two, method=method)
    assert got.attrs["A"] == 1.0
    assert got.attrs["B"] == pytest.approx(0.7, abs=0.1)
    np.testing.assert_array_equal(got["item_discrimination"], 1.0)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=[pytest.mark.slow] * (m in ("haebara", "stocking-lord")))
        for m in METHODS
    ],
)
def test_noisy_calibrations(method):
    """Parameters off as by some 1,000 persons; A and B of 50 links are centred on the truth."""
    rng = np.random.default_rng(3)
    scale, shift, found = 0.8, 0.5, []
    for _ in range(50):
        a, b, _ = items(rng, 25)
        one = bank(a * np.exp(rng.normal(0, 0.08, 25)), b + rng.normal(0, 0.08, 25))
        a2, b2 = a * scale, (b - shift) / scale
        two = bank(a2 * np.exp(rng.normal(0, 0.08, 25)), b2 + rng.normal(0, 0.08, 25))
        got = irt.link(one, two, method=method).attrs
        found.append((got["A"], got["B"]))
    mean, se = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(50)
    assert np.std(found, axis=0).max() < 0.05
    np.testing.assert_allclose(mean, [scale, shift], atol=4 * se.max())


def test_items_that_drift_show():
    rng = np.random.default_rng(4)
    a, b, _ = items(rng, 15)
    b2 = b.copy()
    b2[3] += 1.0
    got = irt.link(bank(a, b), bank(a, b2))
    assert int(got["item_link_rmsd"].values.argmax()) == 3
    assert got["item_link_rmsd"].values[3] > 5 * np.median(got["item_link_rmsd"].values)


def test_refusals():
    rng = np.random.default_rng(5)
    a, b, _ = items(rng, 6)
    one = bank(a, b)
    with pytest.raises(InputError, match="method='x' is not available; choose one of haebara"):
        irt.link(one, one, method="x")
    with pytest.raises(
        InputError, match=r"have 1 item\(s\) in common and linking needs at least 2"
    ):
        irt.link(one, bank(a, b, item_id=range(5, 11)))
    with pytest.raises(InputError, match="bank_b must be a Dataset"):
        irt.link(one, 3)
    with pytest.raises(EstimationError, match=r"correlate -1\.00 between the banks"):
        irt.link(one, bank(a, -b))
    with pytest.raises(EstimationError, match="mean-sigma has no slope"):
        irt.link(one, bank(a, np.zeros(6)), method="mean-sigma")
    with pytest.raises(InputError, match="discriminations must not be 0"):
        irt.link(one, bank(0.0 * a, b))
    with pytest.raises(InputError, match="have other signs in bank_b"):
        irt.link(one, bank(-a, b))


# --- flat and extreme items -----------------------------------------------------------------------


def with_flat_items(rng, n=12):
    """Two banks on scales theta_a = 1.5 theta_b + 1.2; a flat item in one, an extreme one in the
    other, and the numbers of the others."""
    a, b, _ = items(rng, n)
    a2, b2 = a * 1.5 * np.exp(rng.normal(0, 0.1, n)), (b - 1.2) / 1.5 + rng.normal(0, 0.1, n)
    one, two = (a.copy(), b.copy()), (a2.copy(), b2.copy())
    two[0][3], two[1][3] = 0.001, 1383.0
    one[1][7] = -40.0
    return one, two, np.setdiff1d(np.arange(n), [3, 7])


@pytest.mark.parametrize("method", METHODS)
def test_flat_and_extreme_items_do_not_link(method):
    """With them Stocking and Lord's criterion had A = 1e51, moments nearly 100."""
    one, two, sound = with_flat_items(np.random.default_rng(6))
    with pytest.warns(
        ItemWarning, match=r"2 of 12 items in common .* 3 \(extreme\|flat in bank_b\)"
    ):
        got = irt.link(bank(*one), bank(*two), method=method)
    assert (got.attrs["n_common"], got.attrs["n_used"]) == (12, 10)
    assert got.attrs["A"] == pytest.approx(1.5, abs=0.15)
    assert got.attrs["B"] == pytest.approx(1.2, abs=0.15)
    if not method.startswith("mean"):
        parts = [[(a[k], b[k], 0.0) for k in sound] for a, b in (one, two)]
        best = min(
            (minimize(loss, x, (*parts, method), "Nelder-Mead") for x in ([1.0, 0.0], [2.0, 2.0])),
            key=lambda found: found.fun,
        )
        assert got.attrs["criterion"] <= best.fun * (1.0 + 1e-6)
        assert (got.attrs["A"], got.attrs["B"]) == pytest.approx(tuple(best.x), abs=1e-3)


def test_flags_of_banks_count():
    rng = np.random.default_rng(7)
    a, b, _ = items(rng, 6)
    flags = np.array(["ok", "few_responses", "at_bound", "ok", "reversed", "ok"])
    with pytest.warns(ItemWarning, match=r" 2 \(at_bound in bank_b\); 4 \(reversed in bank_b\)"):
        got = irt.link(bank(a, b), bank(a, b, item_flag=flags))
    assert got.attrs["n_used"] == 4
    np.testing.assert_array_equal(got["item_flag"].values, flags)
    flags[:] = "flat"
    flags[0] = "ok"
    with pytest.raises(EstimationError, match=r"1 of the 6 common items can link .* 1 \(flat in b"):
        irt.link(bank(a, b), bank(a, b, item_flag=flags))


def test_items_freed_in_a_group_link_nothing(tmp_path):
    # As of two cycles in which the group c has parameters of its own of an item, not the same.
    rng = np.random.default_rng(4)
    a, b, _ = items(rng, 12)
    ids = [f"i{j}" for j in range(12)]
    own = bank(a, b, item_id=ids)
    wanted = irt.link(own, own).attrs
    names, groups = [*ids, "i3@c"], [""] * 12 + ["c"]

    def cycle(shift):
        some = bank(np.append(a, a[3]), np.append(b, b[3] + shift), item_id=names)
        return some.assign(item_freed_group=("items", groups), item_origin=("items", [*ids, "i3"]))

    one, two = cycle(0.5), cycle(-0.5)
    got = irt.link(one, two, error="jackknife")
    assert got.attrs["n_common"] == 12
    assert (got.attrs["A"], got.attrs["B"]) == (wanted["A"], wanted["B"])
    assert got.attrs["linking_error"] < 1e-6  # .08 with the freed one
    assert got["item_freed_group"].values.tolist() == groups  # for the next cycle
    assert np.isnan(got["item_link_rmsd"][12])
    paths = [irt.write_items(x, tmp_path / f"{k}.{end}") for k, (x, end) in enumerate(
        ((one, "csv"), (two, "json")))]  # fmt: skip
    files = [irt.read_items(path) for path in paths]
    assert irt.link(*files).attrs["n_common"] == 12
    alone = [x.isel(items=[12]) for x in (one, two)]
    with pytest.raises(InputError, match=r"0 item\(s\) in common that are common to all groups"):
        irt.link(*alone)


def test_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(5)
    a, b, _ = items(rng, 40)
    two = bank(a * np.exp(rng.normal(0, 0.1, 40)), b + rng.normal(0, 0.1, 40))
    found = []
    for n in (1, 2, 4):
        with threadpool_limits(n, user_api="blas"):
            found.append(irt.link(bank(a, b), two).attrs)
    assert [x["A"] for x in found] == [found[0]["A"]] * 3
    assert [x["B"] for x in found] == [found[0]["B"]] * 3


def test_an_absurd_slope_is_an_error():
    """Difficulties that agree, discriminations that do not: no A fits both."""
    rng = np.random.default_rng(8)
    a, b, _ = items(rng, 8)
    with pytest.raises(EstimationError, match=r"method='mean-sigma' gives A = 10, but the discrim"):
        irt.link(bank(a, 10.0 * b), bank(a, b), method="mean-sigma")


# --- more than two categories ---------------------------------------------------------------------


def mixed(seed=2):
    names = [f"item{j + 1}" for j in range(10)]
    model = dict(zip(names, ["nominal"] * 4 + ["gpcm"] * 3 + ["graded"] * 3, strict=True))
    bank = irt.simulate(10, 10, model=model, categories=4, seed=seed).truth.drop_dims("persons")
    bank["item_category_score"][1:3] *= -1.0
    return bank


@pytest.mark.parametrize("method", ["haebara", "stocking-lord", "mean-sigma", "mean-mean"])
def test_a_scale_is_found_back_by_items_of_any_number_of_categories(method):
    """Moved by known A and B; nominal items, whose slopes have any sign, do not mislead."""
    bank = mixed()
    models, x = Mixture.of_items(item_set(bank, tuple(bank["item_id"].values)))
    moved = described(models, models.rescaled(x, 0.7, 1.4))
    other = bank.assign({n: (bank[n].dims, v.T) for n, (v, _) in moved.items() if n in bank})
    linked = irt.link(bank, other, method=method)
    assert linked.attrs["A"] == pytest.approx(1.4, rel=1e-6)
    assert linked.attrs["B"] == pytest.approx(0.7, rel=1e-6)
    for name in ("item_step_intercept", "item_category_score", "item_threshold"):
        np.testing.assert_allclose(linked[name], bank[name], atol=1e-5)
    np.testing.assert_allclose(linked["item_link_rmsd"], 0.0, atol=1e-6)


def test_links_that_moments_cannot_make():
    bank = mixed()
    with pytest.raises(InputError, match="two common items at least that are not nominal"):
        irt.link(bank.isel(items=slice(0, 5)), bank.isel(items=slice(0, 5)), method="mean-sigma")
    other = bank.copy(deep=True)
    other["item_model"][4] = "graded"
    other["item_step_intercept"][4] = [
        2.0,
        0.5,
        -1.0,
    ][: other.sizes["steps"]]
    with pytest.raises(InputError, match="item5 is gpcm in bank_a and graded in bank_b"):
        irt.link(bank, other, method="mean-mean")
    fewer = mixed().isel(items=slice(0, 9))
    fewer["item_n_categories"][8] = 3
    with pytest.raises(InputError, match="item9 has 3 and 4"):
        irt.link(bank, fewer)


#: Common items of Kolen and Brennan's example: a (D = 1.7), b, c on a new form and on an old one.
NEW = [
    (0.4551, -0.7101, 0.2087), (0.5839, -0.8567, 0.2038), (0.7544, 0.0212, 0.1600),
    (0.6633, 0.0506, 0.1240), (1.0690, 0.9610, 0.2986), (0.9672, 0.1950, 0.0535),
    (0.3479, 2.2768, 0.1489), (1.4579, 1.0241, 0.2453), (1.8811, 1.4062, 0.1992),
    (0.7020, 2.2401, 0.0853), (1.4080, 1.5556, 0.0789), (1.2993, 2.1589, 0.1075),
]  # fmt: skip
OLD = [
    (0.4416, -1.3349, 0.1559), (0.5730, -1.3210, 0.1913), (0.5987, -0.7098, 0.1177),
    (0.6041, -0.3539, 0.0818), (0.9902, 0.5320, 0.3024), (0.8081, -0.1156, 0.0648),
    (0.4140, 2.5538, 0.2410), (1.3554, 0.5811, 0.2243), (1.0417, 0.9392, 0.1651),
    (0.6336, 1.8960, 0.0794), (1.1347, 1.0790, 0.0630), (0.9255, 2.1337, 0.1259),
]  # fmt: skip


@pytest.mark.parametrize(("method", "scale", "shift", "within"), [
    ("mean-sigma", 1.168891, -0.515543, 1e-6),
    ("mean-mean", 1.217266, -0.557156, 1e-6),
    ("haebara", 1.067800, -0.471281, 0.02),
    ("stocking-lord", 1.083417, -0.487619, 0.02),
])  # fmt: skip
def test_constants_of_stuirt(method, scale, shift, within):
    """Of curves its ten abilities, and their weights, are others than ours."""
    old, new = (bank(1.7 * x[:, 0], x[:, 1], x[:, 2]) for x in map(np.array, (OLD, NEW)))
    found = irt.link(old, new, method=method).attrs
    assert (found["A"], found["B"]) == pytest.approx((scale, shift), abs=within)


def test_a_shift_of_sirt():
    """Eight Rasch items.  Its shifts by curves have even weights of abilities, ours normal ones."""
    b = [-3.188047976, 1.031760328, 0.819040914, -2.70694736, -0.094527077, 0.689697135,
         -0.551837153, -0.359559276]  # fmt: skip
    b2 = [-3.074599226, 1.01282435, 0.868538408, -2.404483603, 0.037402866, 0.70074742,
          -0.602555046, -0.350426446]  # fmt: skip
    banks = (bank(np.ones(8), x).assign_attrs(model="1pl") for x in (b2, b))
    found = irt.link(*banks, method="mean-mean").attrs
    assert (found["A"], found["B"]) == (1.0, pytest.approx(0.068484, abs=1e-6))
