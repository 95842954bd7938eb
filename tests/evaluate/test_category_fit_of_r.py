"""Tests of items of more than two categories beside those of R (mirt, TAM with CDM).

Where definitions differ, R's number is made here of this package's fit, abilities or tables by R's
definition: that shows what both rest on to be the same.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from reference_r import curve, fitted, folder_of, moments, posterior, unit
from scipy.stats import chi2

import irt_dask as irt
from irt_dask.evaluate import item_fit as of_items

TAGS = [
    *("science_grm", "science_gpcm", "science_rsm", "science_nominal", "timss_2pl_gpcm"),
    *(
        pytest.param(tag, marks=pytest.mark.slow)
        for tag in ("science_pcm", "timss_pcm", "timss_2pl_grm",
                    *(f"eclsk_{m}" for m in ("grm", "gpcm", "pcm", "rsm")))
    ),
]  # fmt: skip
#: Those of TAM, by those of mirt.
TAM = {"science_gpcm": "tam_science_gpcm", "science_pcm": "tam_science_pcm",
       "science_rsm": "tam_science_rsm", "timss_2pl_gpcm": "tam_timss_gpcm",
       "timss_pcm": "tam_timss_pcm"}  # fmt: skip
GRID = np.linspace(-8.0, 8.0, 321)


# --- S-X2 -----------------------------------------------------------------------------------------


def without_ends(o, e):
    """Scores at which a category is impossible join the next score at which none is."""
    n = e.shape[1] - 2
    if n == 0:
        return o, e
    lo, hi = n, len(e) - 1 - n
    rows = np.clip(np.arange(len(e)), lo, hi) - lo
    return tuple(np.array([x[rows == k].sum(axis=0) for k in range(hi - lo + 1)]) for x in (o, e))


def lone(o, e):
    """A score of one person joins the next score, the last one the score before."""
    o, e, k = list(o), list(e), 0
    while k < len(o) - 1:
        if o[k].sum() == 1:
            o[k + 1], e[k + 1] = o[k] + o[k + 1], e[k] + e[k + 1]
            del o[k], e[k]
        else:
            k += 1
    if o[-1].sum() == 1:
        o[-2:], e[-2:] = [o[-2] + o[-1]], [e[-2] + e[-1]]
    return np.array(o), np.array(e)


def joined(x, k, to):
    """Without row k, which is added to its neighbour."""
    x = np.array(x, dtype=float)
    x[to] += x[k]
    return np.delete(x, k, axis=0)


def smaller(sizes, k):
    """The neighbour of k that is smaller, the one before if they are alike."""
    if k in (0, len(sizes) - 1):
        return 1 if k == 0 else k - 1
    return k - 1 if sizes[k - 1] <= sizes[k + 1] else k + 1


def filled(o, e, width):
    """Categories of one score: the rarest joins a neighbour until all are expected once."""
    while len(e) > 2:
        k = len(e) - 1 - int(np.argmin(e[::-1]))
        to = smaller(e, k)
        o, e = joined(o, k, to), joined(e, k, to)
        if e.min() >= 1.0:
            break
    return tuple(np.pad(x, (0, width - len(x))) for x in (o, e))  # moved to the left


def of_mirt(o, e):
    """S-X2 and free cells as mirt pools them, of tables (scores, categories)."""
    o, e = without_ends(o, e)
    answered = o.sum(axis=1) > 0
    o, e = o[answered], e[answered]
    few = (e < 1.0).any(axis=1)  # rows are numbered before those of one person join others
    o, e = lone(o, e)
    if e.shape[1] > 2:
        rows = [filled(*x, e.shape[1]) if few[k] else x
                for k, x in enumerate(zip(o, e, strict=True))]  # fmt: skip
        o, e = np.array([x for x, _ in rows]), np.array([x for _, x in rows])
    k = e.shape[1] - 1  # columns with next to nothing
    while k > 1 and e[:, k].sum() < np.ceil(0.1 * len(e)):
        o, e, k = joined(o.T, k, k - 1).T, joined(e.T, k, k - 1).T, k - 1
    for k in range(e.shape[1] - 1, 0, -1):
        if (e[:, k] > 0).mean() < 0.05:
            o, e = joined(o.T, k, k - 1).T, joined(e.T, k, k - 1).T
    while ((e > 0) & (e < 1.0)).any():
        k = int(np.flatnonzero(((e > 0) & (e < 1.0)).any(axis=1))[0])
        to = smaller(o.sum(axis=1), k)
        o, e = joined(o, k, to), joined(e, k, to)
    some = e > 0
    return ((o - e)[some] ** 2 / e[some]).sum(), some.sum() - len(e)


def n_estimated(tag, j, k):
    """What mirt takes off for an item: common steps and a free variance count for each."""
    model = tag.partition("_")[2]
    if model == "rsm":
        return k + (j > 0)
    return 2 * (k - 1) if model == "nominal" else k


@pytest.mark.parametrize("tag", TAGS)
def test_s_x2_pooled_as_mirt_does(real_data, monkeypatch, tag):
    """The tables are mirt's; degrees of freedom and statistic follow from how cells are pooled."""
    folder = folder_of(real_data)
    y, r, fit = fitted(folder, tag)
    kept = []
    own = of_items.s_x2
    monkeypatch.setattr(of_items, "s_x2", lambda *given: kept.append(given) or own(*given))
    irt.item_fit(r, fit, ability=(0.0, 1.0), progress=False)
    items, of = kept[0]
    inside = slice(1, int(y.max().sum()))
    mirt = pd.read_csv(folder / "itemfit" / f"{tag}.csv")
    for j, k in enumerate(items.n_categories):
        at = slice(items.first[j], items.first[j + 1])
        value, free = of_mirt(of.counts[at, inside].T, of.expected[at, inside].T)
        assert free - n_estimated(tag, j, k) == mirt["df.S_X2"][j]
        assert value == pytest.approx(mirt["S_X2"][j], rel=5e-4)


def test_s_x2_of_two_categories_is_mirts(real_data):
    """Among others of more: no cell has to be pooled otherwise."""
    folder = folder_of(real_data)
    for tag in ("timss_2pl_gpcm", "timss_2pl_grm"):
        y, r, fit = fitted(folder, tag)
        found = irt.item_fit(r, fit, ability=(0.0, 1.0), progress=False)
        mirt = pd.read_csv(folder / "itemfit" / f"{tag}.csv")
        two = y.max().values == 1
        assert two.sum() == 7
        np.testing.assert_allclose(found["item_sx2"][two], mirt["S_X2"][two], rtol=1e-3)
        np.testing.assert_array_equal(found["item_sx2_df"][two], mirt["df.S_X2"][two])
        p = chi2.sf(mirt["S_X2"][two], mirt["df.S_X2"][two])
        np.testing.assert_allclose(found["item_sx2_p_value"][two], p, rtol=2e-3)


# --- residuals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", TAGS)
def test_mean_squares_at_the_eap_are_mirts(real_data, tag):
    """Mirt's are of residuals at the EAP, whose variance it takes as .00316 at least.

    These rest on the response itself, so they are below 1 on short tests; this package's, given the
    other responses, are not.
    """
    folder = folder_of(real_data)
    y, r, fit = fitted(folder, tag)
    mean, variance = moments(fit, irt.score(r, fit, progress=False)["person_ability"].values)
    square, variance = (y.values - mean) ** 2, np.maximum(variance, np.sqrt(1e-5))
    mirt = pd.read_csv(folder / "itemfit" / f"{tag}.csv")
    np.testing.assert_allclose((square / variance).mean(axis=0), mirt["outfit"], rtol=1e-4)
    infit = square.sum(axis=0) / variance.sum(axis=0)
    np.testing.assert_allclose(infit, mirt["infit"], rtol=1e-4)
    own = irt.item_fit(r, fit, ability=(0.0, 1.0), progress=False)
    if tag in ("science_grm", "science_gpcm", "science_nominal"):
        np.testing.assert_allclose(own["item_outfit"], 1.0, atol=0.025)
        assert (mirt["outfit"] < 0.94).all()
    assert (own["item_infit"].values > infit).all()


@pytest.mark.parametrize("tag", TAGS)
def test_q3(real_data, tag):
    """Mirt's, of residuals at the EAP; TAM's are of residuals from the posterior mean of E(y)."""
    folder = folder_of(real_data)
    y, r, fit = fitted(folder, tag)
    m = y.shape[1]
    pairs = irt.residual_correlations(r, fit, largest=m * m, ability=(0.0, 1.0), progress=False)
    first, second = (y.columns.get_indexer(pairs[f"pair_{n}"]) for n in ("first", "second"))
    mirt = pd.read_csv(folder / "q3" / f"{tag}.csv", index_col=0)
    assert pairs.sizes["pairs"] == m * (m - 1) // 2
    np.testing.assert_allclose(pairs["pair_q3"], mirt.values[first, second], atol=5e-5)
    if tag in TAM:
        w = posterior(fit, y.values, GRID)
        expected = np.stack([w @ (curve(fit, j, GRID) @ np.arange(k + 1))
                             for j, k in enumerate(y.max())], axis=1)  # fmt: skip
        tam = pd.read_csv(folder / "q3" / f"{TAM[tag]}_Q3.csv", index_col=0).values
        np.fill_diagonal(tam, 1.0)
        np.testing.assert_allclose(np.corrcoef((y.values - expected).T), tam, atol=1e-6)


@pytest.mark.parametrize("tag", TAM)
def test_rmsd(real_data, tag):
    """CDM's is of P of each category, over abilities of the persons; ours of the expected score.

    Root of the mean over categories and persons expected at each ability.  With two categories both
    are the same but for the weight of abilities, here the normal density.
    """
    folder = folder_of(real_data)
    y, r, fit = fitted(folder, tag)
    cdm = pd.read_csv(folder / "itemfit" / f"{TAM[tag]}_rmsd.csv")
    own = irt.item_curves(r, fit, progress=False)
    w = posterior(fit, y.values, GRID)
    persons, normal = w.sum(axis=0) / len(y), np.exp(-0.5 * GRID**2)
    normal /= normal.sum()
    for j, k in enumerate(y.max() + 1):
        seen = np.stack([w[y.values[:, j] == c].sum(axis=0) for c in range(k)], axis=1)
        apart = seen / w.sum(axis=0)[:, None] - curve(fit, j, GRID)
        each = np.sqrt(persons @ (apart**2).mean(axis=1))
        assert each == pytest.approx(cdm["RMSD"][j], abs=2e-6)
        score = apart @ np.arange(k)
        got = own["group_item_rmsd"].values[0, j]
        assert got == pytest.approx(np.sqrt(normal @ score**2), abs=3e-5)
        assert own["group_item_md"].values[0, j] == pytest.approx(normal @ score, abs=3e-5)
        if tag.startswith("science"):  # 0 at the maximum, over the persons
            assert persons @ score == pytest.approx(cdm["MD"][j], abs=1e-6)
        if k == 2:
            assert got == pytest.approx(cdm["RMSD"][j], rel=0.05)


# --- information ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", TAGS)
def test_information_of_items(real_data, tag):
    """Information is in one over the square of the unit of ability."""
    folder = folder_of(real_data)
    y, _, fit = fitted(folder, tag)
    mirt = pd.read_csv(folder / "info" / f"{tag}.csv")
    sd = unit(fit, tag)
    found = irt.information(fit, ability=mirt["theta"].values / sd)
    own = found["item_information"].values.T / sd**2
    np.testing.assert_allclose(own, mirt[list(y.columns)], rtol=1e-3)
    np.testing.assert_allclose(found["test_information"] / sd**2, mirt["TEST"], rtol=1e-3)


# --- differential functioning ---------------------------------------------------------------------


def test_items_of_two_countries(real_data):
    """Mirt's likelihood ratios, and the score tests that are as good as these in large samples.

    Ratios are of two fits here, the item cut in two by group; a score test of a chi-square c
    differs from it by a share of the order of the root of c / n, here up to .27.
    """
    folder = folder_of(real_data)
    data = pd.read_csv(folder / "data" / "timss_aus_twn.csv")
    y, country = data.iloc[:, :11], np.where(data["IDCNTRY"] == 36, "AUS", "TWN")
    k = y.max() + 1

    def fit(y, k):
        r = irt.from_array(y.fillna(-1).astype(int), categories=k.to_dict(),
                           persons={"group": country})  # fmt: skip
        model = {i: "2pl" if n == 2 else "gpcm" for i, n in k.items()}
        return r, irt.fit_marginal(r, model=model, reference_group="AUS", standard_errors=False,
                                   progress=False)  # fmt: skip

    r, same = fit(y, k)
    tests = irt.dif(r, same, reference="AUS", focal="TWN", progress=False)
    mirt = pd.read_csv(folder / "dif" / "timss_LR_drop.csv").set_index("item")
    assert mirt.index.tolist() == ["M032757", "M032692"]
    for item, row in mirt.iterrows():
        cut = y.astype(float)
        cut[f"{item}T"] = cut[item].where(country == "TWN")
        cut[item] = cut[item].where(country == "AUS")
        apart = fit(cut, pd.concat([k, pd.Series({f"{item}T": k[item]})]))[1]
        ratio = 2.0 * (apart.attrs["log_likelihood"] - same.attrs["log_likelihood"])
        assert ratio == pytest.approx(row["X2"], abs=1e-3)
        j = y.columns.get_loc(item)
        assert int(tests["item_dif_joint_df"][j]) == row["df"]
        share = float(tests["item_dif_joint_chi2"][j]) / row["X2"] - 1.0
        assert abs(share) < np.sqrt(row["X2"] / len(y))
