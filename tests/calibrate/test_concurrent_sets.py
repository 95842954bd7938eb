"""Concurrent calibration by sets of groups: one own item for all groups of a set."""

import json
import warnings

import numpy as np
import pytest
import xarray as xr
from scipy.special import expit
from scipy.stats import norm

import irt_dask as irt
from irt_dask.banks.saved import read_bank, write_result
from irt_dask.calibrate.concurrent import links
from irt_dask.calibrate.concurrent.sets import Sets
from irt_dask.errors import EstimationError, InputError
from irt_dask.report import figures, methods
from irt_dask.report.fitted import freed_table
from irt_dask.store.freed_items import Naming, under_their_names

FAST = {"standard_errors": False, "progress": False}


def simulated(n_sets, size, n, m, share=0.0, seed=0, shift=0.5):
    """Responses, group of each person, by how much items are harder in groups, and the sets."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.normal(0.0, 0.25, m)), rng.normal(0.0, 0.9, m)
    dif = rng.choice([-1.0, 1.0], (n_sets, m)) * (rng.random((n_sets, m)) < share)
    dif = np.repeat(shift * dif, size, axis=0)
    n_groups = n_sets * size
    mean = np.append(0.0, rng.normal(0.0, 0.5, n_groups - 1))
    group = np.repeat(np.arange(n_groups), n)
    theta = mean[group] + rng.normal(size=group.size)
    y = rng.random((group.size, m)) < expit(a * (theta[:, None] - b - dif[group]))
    labels = np.array([f"g{g:02d}" for g in range(n_groups)])
    sets = {str(label): f"s{g // size}" for g, label in enumerate(labels)}
    return y.astype(np.int8), labels[group], dif, sets


def calibrated(y, group, **options):
    return irt.fit_concurrent(irt.from_array(y, persons={"group": group}), **FAST | options)


def by_hand(y, group, fit, sets):
    """The same responses with a column for each item of the fit, made without the package."""
    of = np.array([sets.get(g, g) for g in group])
    columns = {str(j): y[:, j].copy() for j in range(y.shape[1])}
    each = zip(fit["item_id"].values, fit["item_freed_group"].values, strict=True)
    for name, label in each:
        if label:
            item = name.split("@")[0]
            columns[str(name)] = np.where(of == label, y[:, int(item)], -1)
            columns[item] = np.where(of == label, -1, columns[item])
    named = [str(name) for name in fit["item_id"].values]
    values = np.stack([columns[name] for name in named], axis=1)
    return irt.from_array(values, persons={"group": group}, item_id=named)


@pytest.fixture(scope="module")
def some():
    """Four sets of three groups; one group of the last two sets is alone, and one is their set."""
    y, group, dif, sets = simulated(4, 3, 200, 10, share=0.12, seed=5)
    y[np.ix_(group == "g02", [8])] = -1  # freed in its set, which knows it from the others
    return y, group, dif, sets, calibrated(y, group, sets=sets)


def test_sets_of_one_group_are_no_sets():
    y, group, _, sets = simulated(5, 1, 600, 8, share=0.2, seed=2)
    plain = calibrated(y, group)
    assert plain.attrs["n_freed"] > 1
    same = calibrated(y, group, sets={g: g for g in sets})
    more = {"group_set", "item_set_groups", *(f"origin_set_{n}" for n in _DISTANCES)}
    assert {*same.variables} - {*plain.variables} == more
    assert same.drop_vars(more).identical(plain)
    for name in _DISTANCES:
        np.testing.assert_array_equal(same[f"origin_set_{name}"], plain[f"origin_{name}"])
    other = calibrated(y, group, sets=sets)
    for name in plain.variables:
        if plain[name].dtype.kind == "f":
            np.testing.assert_array_equal(other[name], plain[name])
    assert [json.loads(x) for x in other["item_set_groups"].values if x] == [
        [g] for g in plain["item_freed_group"].values if g
    ]


_DISTANCES = ("rmsd", "rmsd_expected", "rmsd_corrected", "md")


def test_a_set_s_item_is_that_of_items_renamed_by_hand():
    y, group, _, sets = simulated(4, 3, 200, 10, share=0.12, seed=5)
    fit = calibrated(y, group, sets=sets, tolerance=1e-14)
    assert fit["item_id"].values[10:].tolist() == ["0@s1", "4@s2", "8@s0"]
    renamed = by_hand(y, group, fit, sets)
    other = irt.fit_marginal(renamed, groups=True, tolerance=1e-14, **FAST)
    for name in ("item_discrimination", "item_intercept", "group_mean", "group_sd"):
        np.testing.assert_allclose(fit[name], other[name], rtol=0, atol=1e-6)
    assert fit.attrs["log_likelihood"] == pytest.approx(other.attrs["log_likelihood"], abs=1e-6)


def test_statistics_are_near_likelihood_ratios():
    """Of an item of a set of its own against the common one, by two fits of everything."""
    y, group, _, sets = simulated(3, 2, 400, 8, share=0.1, seed=11, shift=0.4)
    fit = calibrated(y, group, sets=sets, free=None)
    common = fit.attrs["log_likelihood"]
    of = np.array([sets[g] for g in group])
    place = {g: k for k, g in enumerate(fit["group_label"].values)}
    largest = 0.0
    for item, label, first in ((0, "s0", "g00"), (2, "s1", "g02"), (5, "s2", "g04")):
        own = np.where(of == label, y[:, item], -1)
        both = np.column_stack([y, own]).astype(np.int8)
        both[of == label, item] = -1
        data = irt.from_array(both, persons={"group": group})
        ratio = irt.fit_marginal(data, groups=True, **FAST).attrs["log_likelihood"] - common
        chi2 = fit["origin_chi2"].values[place[first], item]
        assert chi2 == pytest.approx(2.0 * ratio, rel=0.15, abs=0.3)
        largest = max(largest, chi2)
    assert largest > 4.0


def test_distances_of_a_set_are_of_its_curve():
    """Posterior weights, the groups' curves as one and the mixture of densities, by plain sums."""
    y, group, _, sets = simulated(2, 2, 300, 6, share=0.2, seed=4)
    y[np.ix_(group == "g01", [1])] = -1
    y[np.flatnonzero(group == "g02")[:200], 3] = -1
    fit = calibrated(y, group, sets=sets, free=None)
    nodes = np.linspace(-8.0, 8.0, 801)
    a, d = fit["item_discrimination"].values, fit["item_intercept"].values
    p = expit(np.outer(nodes, a) + d)
    where = np.searchsorted(fit["group_label"].values.astype(str), group)
    density = np.array([
        norm.pdf(nodes, m, s) for m, s in zip(fit["group_mean"], fit["group_sd"], strict=True)
    ])  # fmt: skip
    log_w = np.log(density[where]) + (y == 1) @ np.log(p).T + (y == 0) @ np.log1p(-p).T
    w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    for k, own in enumerate(([0, 1], [2, 3])):
        inside = np.isin(where, own)
        seen = w[inside].T @ (y[inside] >= 0)
        off = w[inside].T @ (y[inside] == 1) / seen - p
        n = np.array([(y[where == g] >= 0).sum(axis=0) for g in own])
        mass = density[own].T @ n / n.sum(axis=0)
        mass /= mass.sum(axis=0)
        first = own[0]
        found = fit["origin_set_rmsd"].values[first], fit["origin_set_md"].values[first]
        np.testing.assert_allclose(found[0], np.sqrt((mass * off**2).sum(axis=0)), atol=2e-5)
        np.testing.assert_allclose(found[1], (mass * off).sum(axis=0), atol=2e-5)
        assert fit["group_set"].values[first] == f"s{k}"
    assert np.isnan(fit["origin_set_rmsd"].values[1, 1])  # the group did not answer


def test_differences_inside_a_set_are_not_the_set_s():
    """Harder by .6 in one group and easier in the other: by itself either would be freed."""
    rng = np.random.default_rng(8)
    group = np.repeat([f"g{g}" for g in range(6)], 1500)
    harder = np.zeros((9000, 8))
    harder[:1500, 2], harder[1500:3000, 2] = 0.6, -0.6
    y = (rng.logistic(size=(9000, 8)) < rng.normal(size=(9000, 1)) - harder).astype(np.int8)
    sets = {"g0": "s", "g1": "s"}
    alone = calibrated(y, group, free=0.06)
    assert alone["origin_freed"].values[:2, 2].all()
    for options in ({"free": 0.06}, {"least": 0.06}):
        fit = calibrated(y, group, sets=sets, **options)
        assert not fit["origin_freed"].values[:, 2].any()
    assert (fit["origin_rmsd"].values[:2, 2] > 0.06).all()
    assert (fit["origin_set_rmsd"].values[:2, 2] < 0.03).all()
    y = (rng.logistic(size=(9000, 8)) < rng.normal(size=(9000, 1)) - abs(harder)).astype(np.int8)
    fit = calibrated(y, group, sets=sets, free=0.06)
    assert fit["item_id"].values[8:].tolist() == ["2@s"]


def test_more_is_found_than_by_single_groups():
    """24 groups of 200, a tenth of (item, set) shifted by .5, twice: some 30 pairs of 320.

    By groups once alone, of which some 45 are shifted.
    """
    true, found, false, single = 0, 0, 0, [0, 0]
    for seed in range(2):
        y, group, dif, sets = simulated(8, 3, 200, 20, share=0.1, seed=seed)
        freed = calibrated(y, group, sets=sets)["origin_freed"].values
        np.testing.assert_array_equal(freed, np.repeat(freed[::3], 3, axis=0))
        shifted = dif[::3] != 0.0
        true, found = true + shifted.sum(), found + (freed[::3] & shifted).sum()
        false += (freed[::3] & ~shifted).sum()
        if seed:
            continue
        alone = calibrated(y, group)["origin_freed"].values
        single[0] += (alone & (dif != 0.0)).sum()
        single[1] += (dif != 0.0).sum()
    assert found / true > single[0] / single[1] + 0.25
    assert found / true >= 0.7
    assert false / (320 - true) <= 0.02
    assert false / (false + found) <= 0.1


def test_without_differences_p_values_of_sets_are_uniform():
    """2,080 tests of sets of three groups of 100, which do not agree about ability."""
    p, squares, expected = [], 0.0, 0.0
    for seed in range(13):
        y, group, _, sets = simulated(8, 3, 100, 20, seed=60 + seed)
        fit = calibrated(y, group, sets=sets, free=None)
        p.append(fit["origin_p_value"].values[::3].ravel())
        squares += (fit["origin_set_rmsd"].values[::3] ** 2).sum()
        expected += (fit["origin_set_rmsd_expected"].values[::3] ** 2).sum()
    p = np.concatenate(p)
    assert p.size == 2080
    assert np.isfinite(p).all()
    assert 0.03 <= (p < 0.05).mean() <= 0.07
    for level in (0.01, 0.25, 0.5):
        apart = abs((p < level).mean() - level)
        assert apart < 5.0 * np.sqrt(level * (1.0 - level) / p.size)
    assert squares / expected == pytest.approx(1.0, abs=0.08)


def test_what_takes_the_fit_takes_the_set_s_item(some, tmp_path):
    y, group, _, sets, fit = some
    assert fit["item_id"].values[10:].tolist() == ["0@s1", "4@s2", "8@s0"]
    given = irt.from_array(y, persons={"group": group})
    want = irt.score(by_hand(y, group, fit, sets), fit, prior="groups", progress=False)
    view = irt.with_freed_items(given, fit)
    assert view.item_id == tuple(fit["item_id"].values)
    irt.write_items(fit, tmp_path / "bank.csv")
    irt.write_items(fit, tmp_path / "bank.json")
    write_result(fit, tmp_path / "fit.nc")
    files = [read_bank(tmp_path / name) for name in ("bank.csv", "bank.json", "fit.nc")]
    for items in (fit, *files):
        found = irt.score(given, items, prior="groups", progress=False)
        for name in ("group_mean", "person_ability"):
            np.testing.assert_allclose(found[name], want[name], atol=1e-9)
        assert [x for x in items["item_set_groups"].values if x][-1] == '["g00", "g01", "g02"]'
    population = irt.fit_population(given, files[0], progress=False)
    np.testing.assert_allclose(population["group_mean"].values[:, 0], want["group_mean"], atol=1e-5)
    assert irt.item_fit(given, files[1], progress=False).sizes["items"] == 13
    linked = irt.link(fit, fit)
    assert linked["item_set_groups"].values.tolist() == fit["item_set_groups"].values.tolist()
    names = ["item_discrimination", "item_intercept", "item_freed_group", "item_set_groups"]
    other = fit[names[:2]].isel(items=[0]).assign_coords(item_id=("items", ["new"]))
    both = xr.concat([fit[names], other], "items", data_vars="all", coords="minimal")
    irt.write_items(both, tmp_path / "both.csv")
    for items in (both, irt.read_items(tmp_path / "both.csv")):
        assert under_their_names(given, items, "score").item_id == view.item_id
    # of a group that was not given an item in the calibration it is the set's too
    new = np.ones((2, 10), dtype=np.int8)
    seen = under_their_names(irt.from_array(new, persons={"group": ["g02", "g03"]}), fit, "score")
    answered = seen.to_xarray()["response"].values >= 0
    here = {g: {n for n, a in zip(seen.item_id, answered[k], strict=True) if a}
            for k, g in enumerate(("g02", "g03"))}  # fmt: skip
    assert "8@s0" in here["g02"] - here["g03"]
    assert "8" in here["g03"] - here["g02"]
    # a group that joins the set by its list
    text = (tmp_path / "bank.csv").read_text()
    (tmp_path / "bank.csv").write_text(text.replace('""g03"", ', '""new"", ""g03"", '))
    joined = irt.read_items(tmp_path / "bank.csv")
    of_new = irt.from_array(new, persons={"group": ["new", "who"]})
    answered = under_their_names(of_new, joined, "score").to_xarray()["response"]
    at = under_their_names(of_new, joined, "score").item_id.index("0@s1")
    assert answered.values[:, at].tolist() == [1, -1]


def test_records_are_of_sets(some):
    _, _, _, sets, fit = some
    assert fit["group_set"].values.tolist() == [sets[g] for g in fit["group_label"].values]
    assert fit.attrs["n_freed"] == 3
    assert fit["origin_freed"].values.sum() == 9
    assert {*fit["change_group"].values} <= {"s0", "s1", "s2", "s3"}
    first, one = fit["group_set"].values.tolist().index("s1"), fit["origin_p_value"].values
    np.testing.assert_array_equal(one[first], one[first + 1])
    assert np.isnan(one[2, 8])
    assert fit["origin_rmsd"].values[first, 0] != fit["origin_rmsd"].values[first + 1, 0]


def test_what_is_shown_of_sets(some):
    _, _, _, _, fit = some
    table = freed_table(fit)
    assert table.head == ("item", "set", "groups", "mean difference", "RMSD", "q")
    rows = {(item, label): (groups, md) for item, label, groups, md, *_ in table.rows}
    assert {*rows} == {("0", "s1"), ("4", "s2"), ("8", "s0")}
    groups, md = rows["8", "s0"]  # of which the last group did not answer
    assert groups == "g00, g01, g02"
    assert float(md) == pytest.approx(fit["origin_set_md"].values[0, 8], abs=5e-4)
    assert figures.freed_image(fit).caption.endswith("of one set, which shares them.")
    said = methods.paragraph(fit)[0]
    assert "worked otherwise in a set of groups were freed there (3 times)" in said
    mixed = fit.assign(group_set=("groups", np.array([*"abcabcabcabc"])))
    ax = irt.plot.item_groups(mixed)
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert names[:5] == ["a: g00", "a: g03", "a: g06", "a: g09", "b: g01"]
    dots = {tuple(x) for x in np.asarray(ax.collections[0].get_offsets()).astype(int).tolist()}
    freed = mixed["origin_freed"].values[[int(name[-2:]) for name in names]]
    assert dots == {(j, g) for g, j in np.argwhere(freed).tolist()}
    assert "9 of 119 items in groups freed, 3 items of sets" in irt.plot.item_groups(
        fit).get_title()  # fmt: skip


def test_groups_that_a_set_s_own_item_ties():
    """Group b shares with its set alone what is freed in that; the set has more with others."""
    there = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=bool)
    groups = ("a", "b", "c", "d")
    sets = Sets.of(groups, {"a": "s", "b": "s"})
    freed = np.zeros((3, 3), dtype=bool)
    freed[0, 0] = True
    links.refuse_apart(groups, there, freed, sets, "now")
    with pytest.raises(EstimationError, match=r"now 1 group\(s\) have no item in common .*: 'b'"):
        links.refuse_apart(groups, there, freed[[0, 0, 1, 2]] * np.array([[0], [1], [0], [0]]) > 0,
                           Sets.of(groups, None), "now")  # fmt: skip


def test_names_are_of_sets():
    freed = np.array([[0, 1], [1, 1], [0, 1]], dtype=bool)
    sets = np.array([["z"], ["b"], ["z"]])
    naming = Naming.of(("x", "y"), ("a", "b", "c"), freed, sets)
    assert naming.item_id == ("x", "x@b", "y@z", "y@b")
    np.testing.assert_array_equal(naming.columns, [[0, 2], [1, 3], [0, 2]])
    assert naming.owner == ("", "b", "z", "b")
    assert naming.group.tolist() == [-1, 1, 0, 1]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ({"zz": "s", "g00": "s"}, r"sets= names 1 group\(s\) that the responses do not have: 'zz'"),
        ({"g00": "g02", "g01": "g02"}, r"as a group is called that is not in it: 'g02'"),
        ({"g00": "g01", "g01": "g00"}, r"calls 2 set\(s\) as a group is called"),
        ({f"g{g:02d}": "s" for g in range(12)}, "all groups are in the set 's'"),
        ({}, "give a mapping from labels of groups"),
        ([["g00", "g01"]], "give a mapping from labels of groups"),
        ({"g00": ""}, r"sets= names no set for 1 group\(s\): 'g00'"),
        ({"g00": "s", "g01": float("nan"), "g02": None}, r"for 2 group\(s\): 'g01', 'g02'"),
    ],
)
def test_complaints(some, sets, said):
    with pytest.raises(InputError, match=said):
        calibrated(some[0], some[1], sets=sets)


def test_complaints_about_items_of_sets(some):
    y, group, _, _, fit = some
    given = irt.from_array(y, persons={"group": group})
    wrong = fit["item_set_groups"].values.astype(object)
    wrong[10] = "g03, g04"
    with pytest.raises(InputError, match="item 0@s1: the groups of its set are 'g03, g04'"):
        irt.score(given, fit.assign(item_set_groups=("items", wrong)), progress=False)
    ids = fit["item_id"].values.astype(object)
    ids[11], wrong[10:12] = "0@other", ['["g03", "g04"]', '["g04", "g07"]']
    owner = fit["item_freed_group"].values.astype(object)
    owner[11] = "other"
    both = fit.assign(item_set_groups=("items", wrong), item_freed_group=("items", owner))
    with pytest.raises(InputError, match="group 'g04' has two items of its own for '0': 0@s1 and"):
        irt.score(given, both.assign_coords(item_id=("items", ids)), progress=False)
    with pytest.raises(InputError, match=r"3 of the items .* one set of groups, .*'0@s1', '4@s2'"):
        irt.score(irt.from_array(y), fit, progress=False)


def test_a_set_s_label_may_be_that_of_a_group_in_it():
    y, group, _, sets = simulated(4, 3, 200, 10, share=0.12, seed=5)
    named = {g: {"s0": "g00", "s1": "g04"}.get(s, s) for g, s in sets.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = calibrated(y, group, sets=named)
    assert fit["item_id"].values[10:].tolist() == ["0@g04", "4@s2", "8@g00"]
    given = irt.from_array(y, persons={"group": group})
    asked = irt.with_freed_items(given, fit)
    seen = under_their_names(given, fit, "score")
    np.testing.assert_array_equal(
        seen.to_xarray()["response"].values, asked.to_xarray()["response"].values
    )
    assert (asked.to_xarray()["response"].values[:, 10] >= 0).sum() == 600
