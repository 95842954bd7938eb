"""Errors of links: finite differences, draws of the banks, loops that leave items out, drift."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from items import bank, quiet, simulated_2pl

import irt_dask as irt
from irt_dask.banks.link_constants import METHODS, Pair, constants, moved
from irt_dask.banks.link_gradient import moves
from irt_dask.banks.link_robust import robust_constants, robust_moves, weights
from irt_dask.cli.main import cli
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import DataWarning, InputError, ItemWarning
from irt_dask.items.covariance import column_names, uncertain
from irt_dask.items.parameters import item_set

N = 12


def jittered(rng, items, sd=0.1):
    return ItemSet(
        tuple(g._replace(x=g.x * np.exp(rng.normal(0, sd, g.x.shape))) for g in items.groups)
    )


def pair_of(kind, method):
    rng = np.random.default_rng(5)
    if kind == "mixed":
        names = [f"item{j + 1}" for j in range(N)]
        model = dict(zip(names, ["nominal"] * 3 + ["gpcm"] * 4 + ["graded"] * 5, strict=True))
        truth = irt.simulate(10, N, model=model, categories=4, seed=2).truth
        one = item_set(truth, tuple(truth["item_id"].values))
    else:
        a, b = np.exp(rng.normal(0, 0.3, N)), rng.normal(size=N)
        one = ItemSet.of("3pl", a, -a * b, rng.uniform(0.05, 0.3, N))
    two = moved(jittered(rng, one), 0.9, 0.3)
    return Pair(method, one, two, False, np.linspace(0.3, 1.0, N))


def changed(items, k, j, h):
    groups = []
    for g in items.groups:
        x = g.x.copy()
        if k < len(x):
            x[k, g.at == j] += h
        groups.append(g._replace(x=x))
    return ItemSet(tuple(groups))


def differences(pair, at, found, which, k, j, h):
    """Central differences of the constants by one parameter."""
    ends = []
    for sign in (1, -1):
        items = {"one": pair.one, "two": pair.two}
        items[which] = changed(items[which], k, j, sign * h)
        other = Pair(pair.method, items["one"], items["two"], pair.one_slope, pair.weight)
        ends.append(found(other, at).both)
    return (ends[0] - ends[1]) / (2 * h)


@pytest.mark.parametrize(("kind", "method"), [
    pytest.param(kind, method, marks=[pytest.mark.slow] * (kind == "mixed" and method == "haebara"))
    for kind in ("3pl", "mixed") for method in METHODS
])  # fmt: skip
def test_gradients_are_finite_differences(kind, method):
    pair = pair_of(kind, method)
    at = constants(pair)
    got = moves(pair, at)
    for which in ("one", "two"):
        names = column_names(getattr(pair, which))
        for k, j in ((0, 1), (1, 4), (2, 9)):
            assert names[k, j]
            expected = differences(pair, at, constants, which, k, j, 2e-3)
            np.testing.assert_allclose(getattr(got, which)[:, k, j], expected, atol=2e-5)
    step = np.eye(N)[4] * 2e-3
    ends = [constants(pair.weighed(pair.weight + s * step), at).both for s in (1, -1)]
    np.testing.assert_allclose(got.weight[:, 4], (ends[0] - ends[1]) / 4e-3, atol=2e-5)


@pytest.mark.parametrize("method", ["mean-mean", "mean-sigma"])
def test_gradients_of_robust_links_have_weights_that_move(method):
    pair = pair_of("3pl", method).weighed(np.ones(N))
    found = robust_constants(pair)

    def again(other, at):  # the robust SDs are held
        w = found.pair.weight
        for _ in range(60):
            at = constants(other.weighed(w), at)
            w = weights(other, at.both, found.spread)
        return at

    got = robust_moves(found)
    for which in ("one", "two"):
        for k, j in ((0, 1), (1, 4), (1, 8)):
            expected = differences(found.pair, found.at, again, which, k, j, 1e-5)
            np.testing.assert_allclose(getattr(got, which)[:, k, j], expected, atol=1e-4)


# --- calibrations ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fits():
    y = simulated_2pl(3000, 10, seed=3)
    return irt.fit_marginal(y[:1500]), irt.fit_marginal(y[1500:])


def drawn(rng, fit, items):
    """Items drawn from what a fit knows of them."""
    known = uncertain(fit, tuple(fit["item_id"].values), items, "fit")
    z = rng.multivariate_normal(np.zeros(len(known.matrix)), known.matrix)
    (g,) = items.groups
    return ItemSet((g._replace(x=g.x + z[known.column]),))


@pytest.mark.parametrize(("method", "n"), [
    ("mean-mean", 300), ("mean-sigma", 300),
    pytest.param("stocking-lord", 300, marks=pytest.mark.slow),
    pytest.param("haebara", 300, marks=pytest.mark.slow),
])  # fmt: skip
def test_banks_drawn_from_their_covariances_link_as_the_error_says(fits, method, n):
    rng, ids = np.random.default_rng(4), tuple(fits[0]["item_id"].values)
    sets = [item_set(fit, ids) for fit in fits]
    one = constants(Pair(method, *sets, False, np.ones(10)))
    found = np.array([
        constants(Pair(method, *(drawn(rng, f, s) for f, s in zip(fits, sets, strict=True)),
                       False, np.ones(10)), one).both
        for _ in range(n)
    ])  # fmt: skip
    said = irt.link(*fits, method=method, error="delta").attrs
    tolerance = 2.5 / np.sqrt(2 * n)
    sd = found.std(axis=0, ddof=1)
    np.testing.assert_allclose([said["A_se"], said["B_se"]], sd, rtol=tolerance)
    correlation = said["AB_covariance"] / said["A_se"] / said["B_se"]
    assert correlation == pytest.approx(np.corrcoef(found.T)[0, 1], abs=3 / np.sqrt(n))
    at = irt.link(*fits, method=method, error="delta", at=1.5).attrs
    assert at["linking_error"] == pytest.approx((found @ [1.5, 1.0]).std(ddof=1), rel=tolerance)


def test_a_fit_says_the_covariance_of_which_it_says_the_errors():
    y = irt.simulate(800, 6, model="gpcm", categories=3, seed=1)
    for model in ("gpcm", "rating", "nominal"):
        fit = irt.fit_marginal(y, model=model)
        error = np.sqrt(np.diag(fit["item_parameter_covariance"]))
        column = fit["parameter_column"].values
        np.testing.assert_allclose(error[column == "d2"], fit["item_step_intercept_se"][:, 1])
        if model == "nominal":
            np.testing.assert_allclose(error[column == "s1"], fit["item_category_score_se"][:, 1])
        else:
            np.testing.assert_allclose(error[column == "a"], fit["item_discrimination_se"])


def test_banks_carry_the_covariance_and_say_if_they_do_not(fits, tmp_path):
    whole = irt.link(*fits, error="delta").attrs
    banks = [irt.read_items(irt.write_items(f, tmp_path / f"{k}.json")) for k, f in enumerate(fits)]
    assert irt.link(*banks, error="delta").attrs == whole
    assert whole["error_of"] == "covariances of items"
    paths = [irt.write_items(f, tmp_path / f"{k}.csv") for k, f in enumerate(fits)]
    assert irt.link(*map(irt.read_items, paths), error="delta").attrs == whole
    for path in paths:
        path.with_suffix(".covariance.csv").unlink()
    banks = [irt.read_items(path) for path in paths]
    with pytest.warns(DataWarning, match="of bank_a and bank_b standard errors of items are known"):
        alone = irt.link(*banks, error="delta").attrs
    assert alone["error_of"] == "standard errors alone of bank_a and bank_b"
    assert 0.3 * whole["B_se"] < alone["B_se"] < whole["B_se"]
    records = json.loads((tmp_path / "0.json").read_text())
    (tmp_path / "moved.json").write_text(json.dumps(records[::-1]))
    with pytest.raises(InputError, match="a row was moved, added or taken out"):
        irt.read_items(tmp_path / "moved.json")
    records[0]["covariance"][0] = "-1.0"
    (tmp_path / "none.json").write_text(json.dumps(records))
    with pytest.raises(InputError, match="are no covariance"):
        irt.read_items(tmp_path / "none.json")


def test_errors_that_cannot_be_had_are_refused():
    rng = np.random.default_rng(5)
    plain = bank(np.exp(rng.normal(0, 0.2, 6)), rng.normal(size=6))
    with pytest.raises(InputError, match=r"bank_a has no standard errors of 6 of 6 common items"):
        irt.link(plain, plain, error="delta")
    for options, text in (
        ({"error": "x"}, "error='x' is not available; choose one of None, delta, jackknife"),
        ({"robust": "x"}, "robust='x' is not available; choose one of None, bisquare"),
        ({"item_blocks": {}}, "item_blocks are the units of error='jackknife'"),
        ({"at": 1.0}, "at=1.0 is where an error is told, and there is none"),
        ({"at": np.nan, "error": "delta"}, "at=nan: give an ability"),
        ({"error": "jackknife", "item_blocks": dict.fromkeys(map(str, range(6)), "one")},
         "puts all 6 items that link into 'one'"),
        ({"error": "jackknife", "item_blocks": ["a", "b"]}, "item_blocks has 2 labels"),
        ({"error": "jackknife", "item_blocks": ["a"] * 5 + ["b"]}, "1 of 6 items link the banks"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=text):
            quiet(irt.link, plain, plain, kinds=(DataWarning,), **options)


# --- items as a sample ----------------------------------------------------------------------------


def two_rasch_banks(n=25):
    """Difficulties of two studies, in eight testlets of which each drifts together."""
    rng = np.random.default_rng(6)
    b, testlet = rng.normal(size=n), np.arange(n) * 8 // n
    b2 = b + 0.09 + rng.normal(0, 0.1, 8)[testlet] + rng.normal(0, 0.1, n)
    return b, b2, testlet


@pytest.mark.parametrize(("method", "by_testlet"), [
    ("mean-mean", False), ("mean-mean", True), ("stocking-lord", True),
    pytest.param("stocking-lord", False, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_jackknife_is_a_loop_that_leaves_units_out(method, by_testlet):
    """Monseur and Berezner's formula, as R sirt (equating.rasch.jackknife) has it."""
    b, b2, testlet = two_rasch_banks()
    unit = testlet if by_testlet else np.arange(b.size)
    a = np.ones(b.size)
    ids = np.arange(b.size)
    full = irt.link(bank(a, b2), bank(a, b), method=method)
    blocks = {str(j): f"text {t}" for j, t in enumerate(testlet)} if by_testlet else None
    got = irt.link(bank(a, b2), bank(a, b), method=method, error="jackknife", item_blocks=blocks)
    apart = []
    for k in np.unique(unit):
        kept = unit != k
        banks = (bank(a[kept], x[kept], item_id=ids[kept]) for x in (b2, b))
        apart.append(irt.link(*banks, method=method).attrs["B"] - full.attrs["B"])
    n = len(apart)
    expected = np.sqrt((n - 1) / n * np.sum(np.square(apart)))
    assert got.attrs["B"] == full.attrs["B"]
    assert got.attrs["B_se"] == pytest.approx(expected, rel=1e-6)
    assert (got.attrs["A_se"], got.attrs["n_units"]) == (0.0, n)
    assert got.attrs["error_of"] == ("testlets" if by_testlet else "items")
    if method == "mean-mean" and not by_testlet:  # .0297 = .1487 / 5 of PISA's 25 items
        assert expected == pytest.approx((b2 - b).std(ddof=1) / 5)


def test_few_testlets_are_said():
    b, b2, testlet = two_rasch_banks()
    a = np.exp(0.1 * b)
    with pytest.warns(DataWarning, match="the jackknife has 4 testlets, and with fewer than 5"):
        got = irt.link(
            bank(a, b2), bank(a, b), method="mean-sigma", error="jackknife",
            item_blocks=list(testlet // 2), at=0.5,
        ).attrs  # fmt: skip
    v = got["A_se"] ** 2 / 4 + got["AB_covariance"] + got["B_se"] ** 2
    assert got["linking_error"] == pytest.approx(np.sqrt(v))


# --- drift ----------------------------------------------------------------------------------------


def drifted(rng, share, n=25, sd=0.1):
    """Banks on scales theta_a = 1.2 theta_b + .4; some items are .5 harder in the second."""
    a, b = np.exp(rng.normal(0, 0.3, n)), rng.normal(size=n)
    moved = rng.permutation(n)[: round(share * n)]
    b2 = b.copy()
    b2[moved] += 0.5
    two = bank(a * 1.2 * np.exp(rng.normal(0, sd, n)), (b2 - 0.4 + rng.normal(0, sd, n)) / 1.2)
    return bank(a * np.exp(rng.normal(0, sd, n)), b + rng.normal(0, sd, n)), two, moved


@pytest.mark.parametrize(("share", "of_bias", "told"), [
    (0.2, 0.45, 0.7), pytest.param(0.1, 0.35, 0.8, marks=pytest.mark.slow),
    pytest.param(0.3, 0.7, 0.3, marks=pytest.mark.slow),
])  # fmt: skip
def test_drift_moves_robust_links_less(share, of_bias, told):
    rng, shift, found = np.random.default_rng(7), [], 0.0
    for _ in range(30):
        one, two, moved = drifted(rng, share)
        robust = quiet(
            irt.link, one, two, method="mean-mean", robust="bisquare",
            kinds=(ItemWarning, DataWarning),
        )  # fmt: skip
        shift.append([irt.link(one, two, method="mean-mean").attrs["B"], robust.attrs["B"]])
        weight = robust["item_link_weight"].values
        found += (weight[moved].mean() < 0.5 * np.delete(weight, moved).mean()) / 30
    bias = np.mean(shift, axis=0) - 0.4
    assert bias[0] == pytest.approx(-0.5 * share, abs=0.02)
    assert abs(bias[1]) < of_bias * abs(bias[0])
    assert found > told


@pytest.mark.parametrize("method", [
    "mean-sigma", pytest.param("haebara", marks=pytest.mark.slow),
    pytest.param("stocking-lord", marks=pytest.mark.slow),
])  # fmt: skip
def test_items_that_drift_far_are_dropped_by_name(method):
    rng = np.random.default_rng(8)
    a, b = np.exp(rng.normal(0, 0.2, N)), np.linspace(-1.5, 1.5, N)
    b2 = b + rng.normal(0, 0.03, N)
    b2[[2, 7]] += 1.0
    with (
        pytest.warns(ItemWarning, match=r"2 of 12 common items do not link .* SDs: '2', '7'"),
        pytest.warns(DataWarning, match=r"and without weights it is -0.1.*drifted to one side"),
    ):
        got = irt.link(bank(a, b), bank(a, b2), method=method, robust="bisquare", error="jackknife")
    assert (got.attrs["dropped"], got.attrs["n_dropped"], got.attrs["n_used"]) == ("2,7", 2, 10)
    np.testing.assert_array_equal(np.flatnonzero(got["item_link_weight"] == 0.0), [2, 7])
    assert got.attrs["B"] == pytest.approx(0.0, abs=0.03)
    assert got.attrs["linking_error"] < 0.03
    plain = irt.link(bank(a, b), bank(a, b2), method=method)
    for name in "AB":
        assert got.attrs[f"{name}_unweighted"] == pytest.approx(plain.attrs[name])
    with pytest.raises(InputError, match="has 4 common items to compare, and needs 5"):
        irt.link(bank(a[:4], b[:4]), bank(a[:4], b[:4]), robust="bisquare")


def test_drift_to_one_side_is_said_and_chance_is_not():
    # Without drift 5% of links by 25 items are said to have some; here 2 of 30, and 20 of 30 with
    # a fifth of the items .5 harder (45%).  False alarm of either bound: below 1%.
    def said(share):
        rng, times = np.random.default_rng(3), 0
        for _ in range(30):
            one, two, _ = drifted(rng, share)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                irt.link(one, two, method="mean-mean", robust="bisquare")
            times += any("drifted to one side" in str(w.message) for w in caught)
        return times

    assert said(0.0) <= 6
    assert said(0.2) >= 6


def test_nominal_items_are_not_weighed_which_is_said():
    model = dict.fromkeys(["item1", "item2"], "nominal")
    model |= dict.fromkeys([f"item{j + 1}" for j in range(2, 8)], "gpcm")
    bank = irt.simulate(10, 8, model=model, categories=3, seed=2).truth.drop_dims("persons")
    with pytest.warns(ItemWarning, match="nominal items link with weight 1, .*'item1', 'item2'"):
        got = irt.link(bank, bank, robust="bisquare")
    np.testing.assert_array_equal(got["item_link_weight"], 1.0)


# --- in a shell -----------------------------------------------------------------------------------


def test_the_command_links_robustly_with_errors(fits, tmp_path):
    paths = [str(irt.write_items(f, tmp_path / f"{k}.json")) for k, f in enumerate(fits)]
    blocks = tmp_path / "blocks.csv"
    ids = fits[0]["item_id"].values
    pd.DataFrame({"item": ids, "block": np.arange(10) // 2}).to_csv(blocks, index=False)
    kept = tmp_path / "link.nc"
    options = ["--method", "mean-mean", "--robust", "bisquare", "--error", "jackknife", "--at", "1"]
    done = CliRunner().invoke(cli, ["link", *paths, *options, "--item-blocks", str(blocks), "--out",
                                    str(tmp_path / "out.csv"), "--link", str(kept),
                                    "--json"])  # fmt: skip
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    expected = quiet(
        irt.link, *fits, method="mean-mean", robust="bisquare", error="jackknife", at=1.0,
        item_blocks=dict(zip(ids, np.arange(10) // 2, strict=True)), kinds=(ItemWarning,),
    ).attrs  # fmt: skip
    for name in ("A_se", "B_se", "linking_error", "linking_error_at", "error_of", "n_units"):
        assert said[name] == expected[name]
    assert kept.exists()
    assert "weight" in said["common_items"][0]
