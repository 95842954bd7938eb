"""Plots of how items fit, of coresets and of ranks; and that every plot is in the gallery."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.report.flags import misfits

M = 6
IDS = [f"$i{k}" for k in range(M)]  # no mathematics is made of a name
GALLERY = Path(irt.__file__).parent / "docs" / "gallery.md"


def drawn(ax):
    ax.figure.canvas.draw()
    return ax


def words(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def points(collection):
    return np.asarray(collection.get_offsets())


def all_pairs(matrix, ids=IDS):
    i, j = np.triu_indices(len(ids), 1)
    names = np.array(ids)
    q3 = matrix[i, j]
    order = np.argsort(-np.abs(q3))
    return xr.Dataset({
        "pair_first": ("pairs", names[i][order]), "pair_second": ("pairs", names[j][order]),
        "pair_q3": ("pairs", q3[order]), "pair_q3_adjusted": ("pairs", q3[order] - q3.mean()),
        "pair_n_persons": ("pairs", np.full(i.size, 500)),
    })  # fmt: skip


def correlations(seed, m=M):
    x = np.random.default_rng(seed).normal(size=(40, m))
    return np.corrcoef(x, rowvar=False)


def test_every_plot_is_in_the_gallery_with_a_sentence():
    text = GALLERY.read_text(encoding="utf-8")
    cells = re.findall(r"^```\{code-cell\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for name in irt.plot.__all__:
        own = [c for c in cells if f"irt.plot.{name}(" in c]
        assert len(own) == 1, name
        assert own[0].startswith("# picture: "), name
        assert f"`irt.plot.{name}`: " in text, name


def test_observed_points_are_those_of_each_group_near_its_mean():
    ability = np.linspace(-3, 3, 61)
    seen = np.tile(1 / (1 + np.exp(-ability)), (2, M, 1))
    seen[1] **= 2
    seen[1, :, :35] = np.nan
    curves = xr.Dataset({
        "group_item_observed_score": (("groups", "items", "ability"), seen),
        "item_expected_score": (("items", "ability"), seen[0]),
        "group_item_rmsd": (("groups", "items"), np.array([[0.0] * M, [0.25] * M])),
        "group_mean": ("groups", [-1.0, 1.0]), "group_sd": ("groups", [0.5, 1.0]),
        "group_label": ("groups", ["boys", "girls"]),
    }, {"item_id": ("items", IDS), "ability": ability})  # fmt: skip
    ax = drawn(irt.plot.observed(curves, "$i2"))
    assert words(ax) == ["model", "boys, RMSD 0.000", "girls, RMSD 0.250"]
    boys, girls = (points(c) for c in ax.collections)
    assert (np.abs(boys[:, 0] + 1.0) <= 1.0 + 1e-9).all()
    assert girls[0, 0] == pytest.approx(0.5)
    np.testing.assert_allclose(girls[:, 1], 1 / (1 + np.exp(-girls[:, 0])) ** 2)
    mine = Figure().add_subplot()
    assert irt.plot.observed(curves.isel(groups=[0]), ax=mine) is mine
    assert words(mine)[1] == "observed, RMSD 0.000"
    with pytest.raises(InputError, match="of 8 groups, and 6"):
        irt.plot.observed(curves.isel(groups=[0, 1] * 4))
    with pytest.raises(InputError, match="no item 'x'"):
        irt.plot.observed(curves, "x")


def mean_squares(p, name="item_sx2_p_value"):
    infit = np.linspace(0.9, 1.2, len(p))
    data = {"item_infit": infit, "item_outfit": infit**2, name: p}
    ids = [f"$i{k}" for k in range(len(p))]
    return xr.Dataset({k: ("items", v) for k, v in data.items()}, {"item_id": ("items", ids)})


def test_item_fit_rings_what_the_test_rejects():
    p = np.array([0.5, 0.5, 0.009, 0.007, np.nan, 0.9])  # five are tested: below .01
    ax = drawn(irt.plot.item_fit(mean_squares(p)))
    assert ax.get_title() == "Fit of 6 items: 2 rejected by S-X2; 1 not tested"
    infit, outfit, ring = (points(c) for c in ax.collections[1:])
    np.testing.assert_allclose(outfit[:, 0], infit[:, 0] ** 2)
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert {names[int(y)] for y in ring[:, 1]} == {"$i2", "$i3"}
    assert names[-1] == "$i5"  # the farthest from 1 on top
    tests = mean_squares(p, "item_chi2_p_value")
    tests["item_infit"][0] = np.nan
    assert irt.plot.item_fit(tests).get_title().endswith("by chi-square; 1 without; 1 not tested")
    tests["item_sx2_p_value"] = "items", np.full(6, np.nan)  # of incomplete data: nobody said 0
    assert "by chi-square" in irt.plot.item_fit(tests).get_title()
    assert len(irt.plot.item_fit(mean_squares(np.ones(61))).get_yticks()) == 0
    with pytest.raises(InputError, match="no item has mean squares"):
        irt.plot.item_fit(mean_squares(np.ones(2)) * np.nan)


def test_residuals_are_a_symmetric_map_with_blanks():
    matrix = correlations(1)
    pairs = all_pairs(matrix)
    ax = drawn(irt.plot.residuals(pairs))
    shown = ax.images[0].get_array()
    assert [t.get_text() for t in ax.get_xticklabels()] == IDS
    off = ~np.eye(M, dtype=bool)
    mean = matrix[np.triu_indices(M, 1)].mean()
    np.testing.assert_allclose(shown[off], (matrix - mean)[off])
    assert shown.mask[~off].all()
    some = irt.plot.residuals(pairs.isel(pairs=[0, 1]))
    assert some.get_title().startswith("Residual correlations of 2 pairs of ")


def test_scree_has_the_eigenvalues_and_counts_those_above_replicates():
    matrix = correlations(2)
    ax = drawn(irt.plot.scree(all_pairs(matrix)))
    np.testing.assert_allclose(
        ax.lines[0].get_ydata(), np.linalg.eigvalsh(matrix)[::-1], atol=1e-12
    )
    assert ax.get_title().count(",") == 0  # nothing is judged
    with pytest.raises(InputError, match=r"1 of the 15 pairs of 6 items .* largest=15"):
        irt.plot.scree(all_pairs(matrix).isel(pairs=slice(0, 14)))
    two = np.full((M, M), -0.05)
    two[:3, :3] = two[3:, 3:] = 0.2
    np.fill_diagonal(two, 1.0)
    replicates = [all_pairs(np.eye(M) + 0.02 * correlations(k)) for k in range(4)]
    ax = drawn(irt.plot.scree(all_pairs(two), replicates))
    assert ax.get_title() == "Residuals of 6 items: largest 1.55, 2 above all replicates"
    with pytest.raises(InputError, match="one is of 5 items"):
        irt.plot.scree(all_pairs(two), [all_pairs(np.eye(5), IDS[:5])])


@pytest.mark.slow
def test_scree_tells_a_second_ability_from_none():
    """Of data of one ability 5% are above all of 19 replicates: 4 or more of 10 by 1 in 1,000."""

    def above(seed, second):
        g = np.random.default_rng(seed)
        logit = np.exp(0.2 * g.normal(size=12)) * (g.normal(size=(400, 1)) - g.normal(size=12))
        logit[:, :6] += second * g.normal(size=(400, 1))
        responses = irt.from_array((g.random((400, 12)) < 1 / (1 + np.exp(-logit))).astype("i1"))

        def pairs(y):
            return irt.residual_correlations(
                y, irt.fit_marginal(y, standard_errors=False), largest=66
            )

        fit = irt.fit_marginal(responses, standard_errors=False)
        drawn = [pairs(irt.replicate(responses, fit, seed=k)) for k in range(19)]
        return (
            not irt.plot.scree(pairs(responses), drawn)
            .get_title()
            .endswith(", 0 above all replicates")
        )

    assert sum(above(seed, 0.0) for seed in range(10)) <= 3
    assert all(above(seed, 1.5) for seed in range(3))


def groups(n_focal):
    shift = np.array([0.1, -1.2, 0.6, np.nan, 0.0, -0.2])
    data = {"item_dif_shift": shift, "item_dif_shift_se": np.where(np.isnan(shift), np.nan, 0.1),
            "item_dif_class": np.array(["A", "C", "B", "", "A", "A"])}  # fmt: skip
    if n_focal:
        found = {k: (("focal", "items"), np.stack([v] * n_focal)) for k, v in data.items()}
        coords = {"item_id": ("items", IDS), "focal": [f"g{k}" for k in range(n_focal)]}
        return xr.Dataset(found, coords)
    return xr.Dataset({k: ("items", v) for k, v in data.items()}, {"item_id": ("items", IDS)},
                      {"focal": "south"})  # fmt: skip


def test_dif_is_drawn_by_size_and_class():
    ax = drawn(irt.plot.dif(groups(0)))
    assert ax.get_title() == "DIF of 5 items: 1 of class C, 1 of class B; 1 not tested"
    assert words(ax) == ["A, negligible", "B, moderate", "C, large"]
    assert [t.get_text() for t in ax.get_yticklabels()][-2:] == ["$i2", "$i1"]
    bars = np.array([s[:, 0] for s in ax.collections[0].get_segments()])
    np.testing.assert_allclose(bars[-1], [-1.2 - 0.196, -1.2 + 0.196], atol=1e-4)
    assert irt.plot.dif(groups(2), "g1").get_title() == ax.get_title()
    with pytest.raises(InputError, match=r"focal=None: there are several; choose one of"):
        irt.plot.dif(groups(2))
    with pytest.raises(InputError, match="the result is of 'south'"):
        irt.plot.dif(groups(0), "north")


def sample(size, error, method="uniform", n=2000):
    attrs = {"size": size, "error_median": error, "error_max": 3 * error, "method": method,
             "sampling": "poisson", "n_persons": n}  # fmt: skip
    return xr.Dataset(attrs=attrs)


def test_coreset_errors_are_lines_by_method():
    samples = [sample(400, 0.02), sample(100, 0.04), sample(100, 0.06), sample(100, 0.1, "lewis")]
    ax = drawn(irt.plot.coreset_errors(samples))
    assert words(ax) == ["uniform, poisson", "lewis, poisson"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[100, 0.05], [400, 0.02]])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [0.15, 0.06])
    with pytest.raises(InputError, match=r"of other persons: of \[2000, 3000\]"):
        irt.plot.coreset_errors([*samples, sample(100, 0.1, n=3000)])
    for none in ([], [xr.Dataset()]):
        with pytest.raises(InputError, match="results of draw_coreset"):
            irt.plot.coreset_errors(none)


def test_rank_intervals_of_items_and_persons():
    rank = np.array([2, 1, 4, 3, 6, 5])
    low, high = np.maximum(rank - 1, 1), np.minimum(rank + 1, M)
    data = {"rank": rank, "rank_lower": low, "rank_upper": high, "in_top": rank <= 2}
    for of, plural in (("item", "items"), ("person", "persons")):
        found = xr.Dataset({f"{of}_{k}": (plural, v) for k, v in data.items()},
                           {f"{of}_id": (plural, IDS)}, {"level": 0.9})  # fmt: skip
        ax = drawn(irt.plot.rank_intervals(found))
        assert ax.get_title() == f"Ranks of 6 {plural}, 90% intervals for all together"
        assert [t.get_text() for t in ax.get_yticklabels()][:2] == ["$i1", "$i0"]
        assert words(ax) == ["first 2", "others", "interval"]
        bars = np.array([s[:, 0] for s in ax.collections[0].get_segments()])
        np.testing.assert_allclose(bars[:2], [[1, 2], [1, 3]])
    with pytest.raises(InputError, match="a result of top_items or top_persons"):
        irt.plot.rank_intervals(found.drop_vars("person_rank_lower"))


def test_mean_squares_of_few_responses_are_no_misfit():
    """1.4 and .6 of 28 persons are chance, of 1,000 they are not."""
    infit, outfit = np.array([1.0, 1.35, 1.6]), np.array([1.9, 1.0, 1.0])
    for n, wanted in ((28, [False, False, True]), (1000, [True, True, True])):
        tests = xr.Dataset({
            "item_infit": ("items", infit), "item_outfit": ("items", outfit),
            "item_n_responses": ("items", np.full(3, n)),
            "item_chi2_p_value": ("items", np.full(3, 0.5)),
        })  # fmt: skip
        assert misfits(tests).tolist() == wanted
