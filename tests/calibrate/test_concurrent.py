"""Concurrent calibration of many groups: what is freed, why, and what chance would free."""

import json
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner
from scipy.special import expit

import irt_dask as irt
from irt_dask.banks.saved import write_result
from irt_dask.calibrate.concurrent import outliers, pair_tests, residual_sums, rounds
from irt_dask.calibrate.concurrent.in_groups import Known
from irt_dask.cli.main import cli
from irt_dask.errors import (
    ConvergenceWarning,
    DataWarning,
    EstimationError,
    InputError,
    ItemWarning,
)
from irt_dask.store.freed_items import Naming, freed_of, view

FAST = {"standard_errors": False, "progress": False}


def simulated(n_groups, n, m, share=0.0, seed=0, shift=0.5, booklets=1, **options):
    """Responses of groups of n persons, and by how much each item is harder in each group."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.normal(0.0, 0.25, m)), rng.normal(0.0, 0.9, m)
    mean = np.append(0.0, rng.normal(0.0, 0.5, n_groups - 1))
    dif = shift * rng.choice([-1.0, 1.0], (n_groups, m)) * (rng.random((n_groups, m)) < share)
    group = np.repeat(np.arange(n_groups), n)
    theta = mean[group] + rng.normal(size=group.size)
    y = (rng.random((group.size, m)) < expit(a * (theta[:, None] - b - dif[group]))).astype(np.int8)
    if booklets > 1:
        own = rng.integers(booklets, size=(group.size, 1))
        y[(np.arange(m) * booklets // m + own) % booklets == 0] = -1
    labels = [f"g{g:03d}" for g in group]
    return irt.from_array(y, persons={"group": labels}, **options), dif


def calibrated(responses, **options):
    return irt.fit_concurrent(responses, **FAST | options)


def rates(fit, dif):
    """Sensitivity, share of the others that are freed, and share of false ones among the freed."""
    freed, true = fit["origin_freed"].values, dif != 0.0
    return (
        (freed & true).sum() / true.sum(),
        (freed & ~true).sum() / (~true).sum(),
        (freed & ~true).sum() / max(freed.sum(), 1),
    )


@pytest.fixture(scope="module")
def some():
    responses, dif = simulated(12, 1000, 16, share=0.1, seed=2, rows_per_block=2500)
    return responses, dif, calibrated(responses)


def test_what_differs_is_freed(some):
    _, dif, fit = some
    sensitivity, false, _ = rates(fit, dif)
    assert sensitivity >= 0.9
    assert false <= 0.02
    assert fit.attrs["stable"] == 1
    assert fit.attrs["converged"] == 1
    assert fit.attrs["n_freed"] == fit["origin_freed"].values.sum()
    shifted = dif != 0.0
    assert np.corrcoef(-dif[shifted], fit["origin_md"].values[shifted])[0, 1] > 0.9


def test_names_and_record(some):
    _, _, fit = some
    own = fit["item_freed_group"].values != ""
    both = zip(fit["item_origin"].values, fit["item_freed_group"].values, strict=True)
    named = [f"{item}@{group}" if group else item for item, group in both]
    assert fit["item_id"].values.tolist() == named
    assert own.sum() == fit.attrs["n_freed"]
    # Replaying the changes gives what is freed at the end.
    state = np.zeros(fit["origin_freed"].shape, dtype=bool)
    group = {g: k for k, g in enumerate(fit["group_label"].values)}
    item = {i: k for k, i in enumerate(fit["origin_id"].values)}
    order = fit["change_round"].values
    assert (np.diff(order) >= 0).all()
    for g, i, freed in zip(
        fit["change_group"].values, fit["change_item"].values, fit["change_freed"].values,
        strict=True,
    ):  # fmt: skip
        assert state[group[g], item[i]] != freed
        state[group[g], item[i]] = freed
    np.testing.assert_array_equal(state, fit["origin_freed"].values)
    freed = fit["change_freed"].values
    assert (fit["change_q_value"].values[freed] <= 0.05).all()
    assert fit.sizes["rounds"] == fit.attrs["n_rounds"]


def test_the_fit_is_the_marginal_one_of_the_view(some):
    """The same maximum by another way: freed items as items, a grid for whoever answers them."""
    responses, _, fit = some
    other = irt.fit_marginal(irt.with_freed_items(responses, fit), standard_errors=False)
    assert other["item_id"].values.tolist() == fit["item_id"].values.tolist()
    assert fit.attrs["log_likelihood"] == pytest.approx(other.attrs["log_likelihood"], abs=2e-3)
    for name in ("item_discrimination", "item_intercept", "group_mean", "group_sd"):
        np.testing.assert_allclose(fit[name], other[name], atol=5e-3)


def test_distances_are_those_of_item_curves():
    responses, _ = simulated(3, 400, 8, share=0.2, seed=4)
    fit = calibrated(responses, free=None)
    curves = irt.item_curves(responses, fit, groups=True)
    np.testing.assert_allclose(fit["origin_rmsd"], curves["group_item_rmsd"], atol=3e-5)
    np.testing.assert_allclose(fit["origin_md"], curves["group_item_md"], atol=3e-5)
    assert fit.attrs["n_freed"] == 0
    assert fit.attrs["free"] == "none"


def test_the_statistic_is_near_that_of_dif():
    """Of two groups; there all items' scores are taken out, here the item's and the ability's."""
    responses, _ = simulated(2, 1500, 20, share=0.15, seed=5)
    fit = calibrated(responses, free=None)
    tests = irt.dif(responses, fit, reference="g000", focal="g001")
    ours, theirs = fit["origin_chi2"].values, tests["item_dif_joint_chi2"].values
    np.testing.assert_allclose(ours[0], ours[1], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours[1], theirs, rtol=0.15, atol=0.3)


def test_without_differences_p_values_are_uniform():
    """1,760 tests; five standard errors of a share are a false alarm in 10^6."""
    p, squares, expected = [], 0.0, 0.0
    for seed in range(4):
        fit = calibrated(simulated(20, 400, 22, seed=20 + seed)[0], free=None)
        p.append(fit["origin_p_value"].values.ravel())
        squares += (fit["origin_rmsd"].values ** 2).sum()
        expected += (fit["origin_rmsd_expected"].values ** 2).sum()
    p = np.concatenate(p)
    for level in (0.01, 0.05, 0.25, 0.5):
        apart = abs((p < level).mean() - level)
        assert apart < 5.0 * np.sqrt(level * (1.0 - level) / p.size)
    assert squares / expected == pytest.approx(1.0, abs=0.1)


def test_weights_of_a_sample():
    """Unequal weights make more chance, which the tests know; equal ones change nothing."""
    responses, _ = simulated(6, 500, 10, seed=7)
    y = responses.to_xarray()["response"].values
    group = np.concatenate([responses.groups(k) for k in range(responses.n_blocks)])
    rng = np.random.default_rng(1)
    plain = calibrated(responses, free=None)
    same = irt.from_array(y, persons={"group": group, "weight": np.full(len(y), 2.0)})
    equal = calibrated(same, free=None)
    np.testing.assert_allclose(equal["origin_rmsd"], plain["origin_rmsd"], atol=1e-6)
    np.testing.assert_allclose(equal["origin_chi2"], plain["origin_chi2"], rtol=1e-6)
    unequal = np.exp(rng.normal(0.0, 0.8, len(y)))
    weighted = irt.from_array(y, persons={"group": group, "weight": unequal})
    found = calibrated(weighted, free=None)
    ratio = (found["origin_rmsd_expected"] / plain["origin_rmsd_expected"]).values.mean()
    effect = len(y) * (unequal**2).sum() / unequal.sum() ** 2
    assert ratio == pytest.approx(np.sqrt(effect), rel=0.15)
    assert (found["origin_p_value"].values < 0.01).sum() <= 5  # of 60


def test_what_chance_makes_of_few_groups_with_weights():
    """Common items follow much of three groups: 1.5 where weights were counted twice in that."""
    squares = expected = 0.0
    for seed in range(12):
        y = simulated(3, 400, 12, seed=seed)[0].to_xarray()["response"].values
        weight = np.exp(np.random.default_rng(seed).normal(0.0, 0.8, len(y)))
        persons = {"group": np.repeat(["a", "b", "c"], 400), "weight": weight}
        fit = calibrated(irt.from_array(y, persons=persons), free=None)
        squares += (fit["origin_rmsd"].values ** 2).sum()
        expected += (fit["origin_rmsd_expected"].values ** 2).sum()
    assert squares / expected == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("groups", [2, 3])
def test_an_item_is_never_freed_in_all_groups(groups):
    """A large difference in one of few groups draws the common curve away from all of them."""
    responses, _ = simulated(groups, 1500, 8, seed=9)
    y = responses.to_xarray()["response"].values
    rng = np.random.default_rng(3)
    y[-1500:, 0] = rng.random(1500) < 0.15 + 0.7 * (y[-1500:, 0] == 0)
    labels = np.repeat([f"g{g}" for g in range(groups)], 1500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ItemWarning)  # of two groups half, and the slope is odd
        fit = calibrated(irt.from_array(y, persons={"group": labels}), max_rounds=6)
    np.testing.assert_array_equal(fit["origin_freed"].values[:, 0], np.arange(groups) == groups - 1)


def test_groups_that_agree():
    """Of one parameter and information 1: distances 0, 0, 0, 0, 4, and one that is drawn along."""
    distance = np.array([0.1, -0.1, 0.0, 0.2, 12.0, -3.0])[:, None, None]
    one = np.ones((6, 1, 1, 1))
    parts = [Known(d, v, v, v) for d, v in zip(distance, one, strict=True)]
    among = outliers.Among.of(parts, np.zeros((6, 1), dtype=bool), 0.0 * distance, np.ones((1, 1)))
    everybody = np.ones((6, 1), dtype=bool)
    agree = outliers.agreeing(among, everybody, lambda _: np.array([6.6]))
    np.testing.assert_array_equal(agree[:, 0], [True, True, True, True, False, False])
    found = among.statistics(agree)[:, 0]
    rest = distance[:4, 0, 0]
    assert found[4] == pytest.approx((12.0 - rest.mean()) ** 2 / 1.25)
    assert found[0] == pytest.approx((0.1 - rest[1:].mean()) ** 2 / (1.0 + 1.0 / 3.0))
    np.testing.assert_allclose(among.errors(agree)[0], [[0.25]])


def test_adjusted_p_values():
    from scipy.stats import false_discovery_control

    p = np.random.default_rng(0).random(50) ** 3
    with_gap = np.insert(p, 7, np.nan)
    q = pair_tests.adjusted(with_gap)
    assert np.isnan(q[7])
    np.testing.assert_allclose(np.delete(q, 7), false_discovery_control(p))


def test_views_rename_and_copy_nothing_else():
    y = np.array([[1, 0, -1], [0, 1, 1], [1, -1, 0]], dtype=np.int8)
    given = irt.from_array(y, persons={"group": ["b", "a", "b"]}, item_id=["x", "y", "z"])
    freed = np.array([[False, False, True], [True, False, True]])
    naming = Naming.of(given.item_id, ("a", "b"), freed)
    assert naming.item_id == ("x", "y", "x@b", "z@a", "z@b")  # z is common nowhere
    np.testing.assert_array_equal(naming.freed, freed)
    seen = view(given, naming)
    block = seen.read_block(0).data
    from irt_dask.kernels.responses.layouts import to_dense

    np.testing.assert_array_equal(
        to_dense(block).values, [[-1, 0, 1, -1, -1], [0, 1, -1, 1, -1], [-1, -1, 1, -1, 0]]
    )
    assert seen.fingerprint != given.fingerprint
    assert seen.groups(0).tolist() == ["b", "a", "b"]


def test_new_persons_and_unknown_groups(some):
    responses, _, fit = some
    y = np.zeros((2, 2), dtype=np.int8)
    ids = fit["origin_id"].values[[3, 1]].tolist()
    new = irt.from_array(y, persons={"group": ["g001", "g002"]}, item_id=ids)
    assert set(irt.with_freed_items(new, fit).item_id) <= set(fit["item_id"].values)
    other = irt.from_array(y, persons={"group": ["g001", "who"]}, item_id=ids)
    with pytest.raises(InputError, match="'who': no such group was calibrated"):
        irt.with_freed_items(other, fit).read_block(0)
    with pytest.raises(InputError, match="were not calibrated: 'new'"):
        irt.with_freed_items(
            irt.from_array(y, persons={"group": ["g001"] * 2}, item_id=["new", ids[0]]), fit
        )
    with pytest.raises(InputError, match="this is none"):
        irt.with_freed_items(responses, irt.load_lsat().to_xarray())


@pytest.mark.slow
def test_freed_items_are_taken_without_asking(some, tmp_path):
    """By whatever takes items: of a fit, of a bank in a file, scores in memory and in a folder."""
    responses, _, fit = some
    asked = irt.with_freed_items(responses, fit)
    assert asked.n_items > responses.n_items
    want = irt.score(asked, fit, prior="groups", progress=False)
    irt.write_items(fit, tmp_path / "bank.csv")
    bank = irt.read_items(tmp_path / "bank.csv")
    for items in (fit, bank):
        found = irt.score(responses, items, prior="groups", progress=False)
        for name in ("group_mean", "person_ability"):
            np.testing.assert_allclose(found[name], want[name], atol=1e-9)
    common = bank.isel(items=np.flatnonzero(bank["item_freed_group"].values == ""))
    other = irt.score(responses, common, prior="groups", progress=False)
    assert np.abs(other["group_mean"].values - want["group_mean"].values).max() > 0.01
    irt.score(responses, bank, prior="groups", store=tmp_path / "scores", progress=False)
    kept = pd.concat(pd.read_parquet(f) for f in sorted((tmp_path / "scores").glob("**/*.parquet")))
    by_id = dict(zip(kept["person_id"], kept["person_ability"], strict=True))
    np.testing.assert_allclose(
        [by_id[i] for i in want["person_id"].values], want["person_ability"], atol=1e-9
    )
    population = irt.fit_population(responses, bank, progress=False)
    np.testing.assert_allclose(population["group_mean"].values[:, 0], want["group_mean"], atol=1e-5)
    assert irt.item_fit(responses, bank, progress=False).sizes["items"] == asked.n_items
    of_all, of_view = (irt.evaluate(r, bank, progress=False) for r in (responses, asked))
    assert of_all.equals(of_view)
    assert irt.replicate(responses, bank, progress=False).item_id == asked.item_id
    again = irt.fit_marginal(responses, fixed_items=bank, **FAST)
    np.testing.assert_allclose(again["group_mean"], want["group_mean"], atol=1e-4)


def test_freed_items_and_other_groups(some):
    responses, _, fit = some
    y = np.arange(2 * responses.n_items).reshape(2, -1).astype(np.int8) % 2
    who = irt.from_array(y, persons={"group": ["who"] * 2}, item_id=responses.item_id)
    alone = irt.from_array(y, item_id=responses.item_id)
    common = fit.isel(items=np.flatnonzero(fit["item_freed_group"].values == ""))
    ml = {"method": "ml", "progress": False}
    want = irt.score(alone, common, **ml)["person_ability"]
    np.testing.assert_allclose(irt.score(who, fit, **ml)["person_ability"], want)
    with pytest.raises(InputError, match=r"score: .* of the items are those of one group each"):
        irt.score(alone, fit, **ml)
    own = fit["item_id"].values[-1].split("@")[0]  # one that stays for nobody
    rest = fit.isel(items=np.flatnonzero(fit["item_id"].values != own))
    with pytest.raises(InputError, match="item"):
        irt.score(who, rest, **ml)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:correlation of 'odd'")
def test_freed_items_of_banks_that_were_put_together(some):
    """Items of another bank have no group (NaN), which switches nothing off; domains follow."""
    responses, _, fit = some
    names = ["item_discrimination", "item_intercept", "item_freed_group"]
    other = fit[["item_discrimination", "item_intercept"]].isel(items=[0])
    other = other.assign_coords(item_id=("items", ["new"]))
    both = xr.concat([fit[names], other], "items", data_vars="all", coords="minimal")
    assert freed_of(both) == freed_of(fit)
    ml = {"method": "ml", "progress": False}
    want = irt.score(responses, fit, **ml)["person_ability"]
    np.testing.assert_allclose(irt.score(responses, both, **ml)["person_ability"], want)
    ids = list(responses.item_id)
    domains = {"odd": ids[::2], "even": ids[1::2]}
    model = irt.fit_population(responses, fit, domains=domains, progress=False)
    kept = [i for of in json.loads(model.attrs["domains"]).values() for i in of]
    assert set(kept) == set(irt.with_freed_items(responses, fit).item_id)


def test_the_page_of_a_concurrent_calibration(some, tmp_path):
    """A heat map and a table of what was freed, by the command as by the function."""
    _, _, fit = some
    write_result(fit, tmp_path / "fit.nc")
    told = CliRunner().invoke(
        cli, ["report", str(tmp_path / "fit.nc"), "--out", str(tmp_path / "p.html")]
    )
    assert told.exit_code == 0, told.output
    page = (tmp_path / "p.html").read_text()
    part = page[page.index('id="freed"') :]
    assert part.count("<img", 0, part.index("</figure>")) == 1
    group, item = np.argwhere(fit["origin_freed"].values)[0]
    assert str(fit["origin_id"].values[item]) in part
    assert str(fit["group_label"].values[group]) in part
    assert f"were freed there ({int(fit['origin_freed'].sum())} times)" in page


def test_layouts_and_blocks_do_not_matter():
    responses, _ = simulated(4, 500, 9, share=0.15, seed=11, booklets=3)
    y = responses.to_xarray()["response"].values
    group = np.concatenate([responses.groups(k) for k in range(responses.n_blocks)])
    order = np.random.default_rng(0).permutation(len(y))
    other = irt.from_array(y[order], persons={"group": group[order]}, rows_per_block=300)
    one, two = calibrated(responses), calibrated(other)
    assert one["item_id"].values.tolist() == two["item_id"].values.tolist()
    for name in ("item_intercept", "group_mean", "origin_rmsd", "origin_chi2"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-6, atol=1e-6)


def test_cutoff(some):
    responses, _, _ = some
    fit = calibrated(responses, free=0.06)
    assert fit.attrs["free"] == 0.06
    assert "rate" not in fit.attrs
    freed = fit["origin_freed"].values
    assert freed.any()
    assert (fit["origin_rmsd"].values[freed] > 0.06).all()
    assert (fit["origin_rmsd"].values[~freed] <= 0.06).all()


def test_least(some):
    responses, _, fit = some
    fewer = calibrated(responses, least=0.08)
    assert 0 < fewer.attrs["n_freed"] < fit.attrs["n_freed"]
    assert (fewer["origin_rmsd_corrected"].values[fewer["origin_freed"].values] >= 0.08).all()


def test_checkpoints_go_on(some, tmp_path):
    responses, _, fit = some
    for _ in range(2):
        again = calibrated(responses, checkpoint=tmp_path)
        np.testing.assert_array_equal(again["item_intercept"], fit["item_intercept"])
    assert len([*tmp_path.iterdir()]) == fit.attrs["n_rounds"]


def test_weak_links_are_named():
    responses, _ = simulated(3, 600, 6, seed=13)
    y = responses.to_xarray()["response"].values
    y[1200:, :4] = -1  # two items tie the last group
    weak = irt.from_array(y, persons={"group": np.repeat(["a", "b", "c"], 600)})
    with pytest.warns(DataWarning, match=r"1 group\(s\) are tied .* 'c' \(2 of 2\)"):
        calibrated(weak)
    y[1200:, 4:], y[1200:, :4] = -1, 1 - y[:600, :4]
    y[:1200, :4] = -1
    apart = irt.from_array(y, persons={"group": np.repeat(["a", "b", "c"], 600)})
    with pytest.raises(EstimationError, match=r"1 group\(s\) have no item in common .*: 'c'"):
        calibrated(apart)


def test_rounds_that_do_not_end(some):
    with pytest.warns(ConvergenceWarning, match="max_rounds=1"):
        fit = calibrated(some[0], max_rounds=1, rate=0.4)
    assert fit.attrs["stable"] == 0
    assert fit.attrs["converged"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"free": "all"}, "free='all' is not available"),
        ({"free": 1.5}, "lies between 0 and 1"),
        ({"free": True}, "free=True is not available"),
        ({"free": 0.1, "rate": 0.01}, "belong to free='test'"),
        ({"free": None, "least": 0.01}, "belong to free='test'"),
        ({"rate": 0.0}, "rate=0.0"),
        ({"least": -0.1}, "least=-0.1"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"standard_errors": "robust"}, "standard_errors='robust' is not available"),
        ({"sampling_unit": "person_group"}, "has no use for sampling_unit"),
        ({"reference_group": "zz"}, "'zz' is not a group"),
        ({"model": {"0": "2pl"}}, "names no model for"),
    ],
)
def test_complaints(some, options, said):
    with pytest.raises(InputError, match=said):
        calibrated(some[0], **options)


def test_complaints_about_groups():
    y = irt.load_lsat().to_xarray()["response"].values
    with pytest.raises(InputError, match="needs groups"):
        calibrated(irt.from_array(y))
    with pytest.raises(InputError, match="everybody belongs to group 'a'"):
        calibrated(irt.from_array(y, persons={"group": ["a"] * len(y)}))


def test_names_that_clash():
    with pytest.raises(InputError, match="would have the name of another"):
        Naming.of(("x", "x@a"), ("a", "b"), np.array([[True, False], [False, False]]))


def test_more_categories():
    """Graded items of which one is harder in a group, all steps by .7."""
    rng = np.random.default_rng(17)
    n, groups, m = 700, 5, 8
    b = np.sort(rng.normal(0.0, 1.0, (m, 2)), axis=1)
    group = np.repeat(np.arange(groups), n)
    theta = rng.normal(0.2 * group, 1.0)[:, None, None]
    harder = np.zeros((groups, m))
    harder[3, 2] = 0.7
    p = expit(1.3 * (theta - b - harder[group][:, :, None]))
    y = (rng.random((group.size, m, 1)) < p).sum(axis=2).astype(np.int8)
    data = irt.from_array(y, categories=3, persons={"group": [f"g{g}" for g in group]})
    fit = calibrated(data, model="graded")
    assert fit["origin_freed"].values[3, 2]
    assert fit.attrs["n_freed"] <= 2
    assert (fit["origin_df"].values == 3).all()
    at = fit["item_id"].values.tolist().index("2@g3")
    shift = fit["item_threshold"].values[at] - fit["item_threshold"].values[2]
    np.testing.assert_allclose(shift[:2], 0.7, atol=0.3)


@pytest.mark.parametrize("given", [0, 1])
def test_an_item_that_all_of_a_group_have_right_is_freed_there(given):
    # It was not tested, as nobody was in its other category, and drew the group's mean to 10.
    responses, _ = simulated(3, 400, 8, seed=0)
    y = responses.to_xarray()["response"].values.copy()
    y[800:, 3] = given
    groups = np.repeat(["a", "b", "c"], 400)
    fit = calibrated(irt.from_array(y, persons={"group": groups}))
    freed = fit["item_id"].values[fit["item_freed_group"].values != ""]
    assert freed.tolist() == ["3@c"]
    assert fit.attrs["stable"] == 1
    others = irt.from_array(np.delete(y, 3, axis=1), persons={"group": groups})
    wanted = calibrated(others, free=None)["group_mean"].values
    np.testing.assert_allclose(fit["group_mean"], wanted, atol=0.1)


def test_sampling_units_are_those_of_the_marginal_fit():
    responses, _ = simulated(2, 400, 6, seed=4)
    school = np.arange(800) // 10
    with pytest.warns(DataWarning, match="tests of items in groups are not"):
        fit = irt.fit_concurrent(responses, sampling_unit=school, progress=False)
    wanted = irt.fit_marginal(
        irt.with_freed_items(responses, fit), groups=True, sampling_unit=school, progress=False
    )
    assert fit.attrs["degrees_of_freedom"] == wanted.attrs["degrees_of_freedom"] == 79
    for name in ("item_discrimination_se", "item_difficulty_se"):
        np.testing.assert_allclose(fit[name], wanted[name], rtol=1e-5)
    quiet = irt.fit_concurrent(responses, sampling_unit=school, free=None, progress=False)
    assert quiet.attrs["n_sampling_units"] == 80


@pytest.mark.slow
def test_a_pass_holds_sums_of_all_groups_once_for_each_thread():
    # Persons of all groups in every block: sums of each block and group were kept apart.
    n_groups, m = 30, 40
    responses, _ = simulated(n_groups, 40, m, seed=6)
    rng = np.random.default_rng(1)
    order = rng.permutation(n_groups * 40)
    given = responses.to_xarray()
    mixed = irt.from_array(
        given["response"].values[order],
        persons={"group": given["person_group"].values[order]}, rows_per_block=50,
    )  # fmt: skip
    peak, sizes = [], []
    original = residual_sums.measure

    def measured(engine, setting):
        tracemalloc.start()
        try:
            out = original(engine, setting)
            peak.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        sizes.append((sum(x.nbytes for s in out for x in s.arrays), engine.n_held))
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residual_sums, "measure", measured)
        calibrated(mixed, free=None)
    size, held = sizes[0]
    assert size > 5e6
    assert peak[0] < (held + 2) * size


def test_plot(some):
    _, _, fit = some
    for show in ("md", "rmsd", "rmsd_corrected"):
        ax = irt.plot.item_groups(fit, show=show)
        assert len(ax.collections[0].get_offsets()) == fit.attrs["n_freed"]
        assert len(ax.get_yticks()) == fit.sizes["groups"]
    with pytest.raises(InputError, match="show='mean'"):
        irt.plot.item_groups(fit, show="mean")


def test_two_groups_of_mirt_and_tam(real_data, monkeypatch):
    """FIMS, 14 items, Australia and Japan: R mirt's multipleGroup, and RMSD and MD of TAM.

    TAM weighs abilities by the persons expected there, this package by the group's normal density:
    with those weights digits agree, with these to .0003.
    """
    folder = real_data / "reference_r"
    data = pd.read_csv(folder / "data" / "fims_aus_jpn.csv")
    country = np.where(data["country"] == 1, "AUS", "JPN")
    y = data.iloc[:, 1:15]
    kept = []
    compare = pair_tests.compare
    monkeypatch.setattr(
        rounds.pair_tests, "compare", lambda *args: kept.append(args[:2]) or compare(*args)
    )
    fit = calibrated(irt.from_array(y, persons={"group": country}), free=None)
    models = pd.read_csv(folder / "models.csv").set_index("tag")
    assert fit.attrs["log_likelihood"] == pytest.approx(
        models.loc["fims_mg_scalar", "logLik"], abs=1e-5
    )
    of_r = pd.read_csv(folder / "params" / "fims_mg_scalar.csv")
    of_r = of_r[of_r["form"] == "slope-intercept"].set_index(["group", "item", "par"])["est"]
    slopes = of_r.loc["AUS", :, "a1"].loc[list(y.columns)].values
    np.testing.assert_allclose(fit["item_discrimination"], slopes, atol=2e-4)
    mean, variance = (of_r.loc["JPN", "GroupPars", p] for p in ("MEAN_1", "COV_11"))
    assert fit["group_mean"].values[1] == pytest.approx(mean, abs=2e-4)
    assert fit["group_sd"].values[1] ** 2 == pytest.approx(variance, abs=1e-3)
    tam = pd.read_csv(folder / "itemfit" / "tam_fims_mg_2pl_rmsd.csv")
    np.testing.assert_allclose(fit["origin_rmsd"][0], tam["RMSD"], atol=4e-4)
    np.testing.assert_allclose(fit["origin_md"][0], tam["MD"], atol=4e-4)
    (sums, setting), counts = kept[0], kept[0][0][0].counts
    assert isinstance(sums[0], residual_sums.Sums)
    seen = counts.sum(axis=0)
    weight = seen / seen.sum(axis=1, keepdims=True)
    apart = counts[1] / np.where(seen > 0.0, seen, 1.0) - setting.tables.expected
    np.testing.assert_allclose(np.sqrt((weight * apart**2).sum(axis=1)), tam["RMSD"], atol=2e-5)
    np.testing.assert_allclose((weight * apart).sum(axis=1), tam["MD"], atol=2e-5)


@pytest.mark.slow
@pytest.mark.nightly
def test_sensitivity_and_false_flags():
    """60 groups x 1,250 x 60 items in three booklets, a tenth of pairs shifted by .5 either way.

    833 responses a pair.  Some 360 of 3,600 pairs: sensitivity has a standard error of .01 where it
    is .96, and the share of false ones among the freed one of .012 where it is .05.
    """
    responses, dif = simulated(60, 1250, 60, share=0.1, seed=1, booklets=3, rows_per_block=5000)
    fit = calibrated(responses)
    sensitivity, false, discoveries = rates(fit, dif)
    assert sensitivity >= 0.9
    assert false <= 0.012
    assert discoveries <= 0.05 + 3 * 0.012
    assert fit.attrs["stable"] == 1
