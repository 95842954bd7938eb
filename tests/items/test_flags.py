"""Flags of items: by hand, in every fit that estimates items, in banks, links and tests of DIF."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from items import bank, respond
from scipy.sparse import csr_array

import irt_dask as irt
from irt_dask.engine import Engine, dataset
from irt_dask.errors import InputError, ItemWarning
from irt_dask.items import checks
from irt_dask.variables import ITEM_FLAGS

N, M = 600, 10
BAD = {0: "reversed", 1: "flat", 2: "all_right", 3: "few_responses", 4: "all_wrong"}


@pytest.fixture(scope="module")
def y():
    """Ten items: one falls with ability, one has nothing to do with it, three say too little."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(N)
    a, b = np.exp(rng.normal(0.2, 0.2, M)), rng.normal(0.0, 0.8, M)
    a[0], a[1] = -1.2, 0.0
    out = respond(rng, theta, a, -a * b)
    out[:, 2], out[:, 4] = 1, 0
    out[20:, 3] = -1
    return out


#: Fits, and the items that they cannot take: conditional and pairwise likelihoods have no maximum.
FITS = {
    "marginal": (lambda r: irt.fit_marginal(r, progress=False), ()),
    "marginal 1PL": (lambda r: irt.fit_marginal(r, model="1pl", progress=False), ()),
    "joint": (lambda r: irt.fit_joint(r, progress=False), ()),
    "joint 1PL": (lambda r: irt.fit_joint(r, model="1pl", progress=False), ()),
    "bayes": (lambda r: irt.fit_bayes(r, n_draws=300, n_warmup=100, progress=False), ()),
    "spectral": (lambda r: irt.fit_spectral(r, progress=False), ()),
    "conditional": (lambda r: irt.fit_conditional(r, progress=False), (2, 4)),
    "pairwise": (lambda r: irt.fit_pairwise(r, pairing="all", progress=False), (2, 4)),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
def test_every_fit_flags_them_and_warns_by_name(y, name):
    fit, left_out = FITS[name]
    kept = [j for j in range(M) if j not in left_out]
    with pytest.warns(ItemWarning) as caught:
        got = fit(y[:, kept])
    text = "\n".join(str(w.message) for w in caught if w.category is ItemWarning)
    assert text.count("items are flagged") == 1
    flags = dict(zip(kept, checks.check_flags(got["item_flag"].values), strict=True))
    for j, flag in BAD.items():
        if j in left_out or (flag == "flat" and got.attrs["model"] == "1pl"):
            continue
        assert flag in flags[j].split("|"), (j, flags[j])
        assert f"{flag}: " in text
    for j in range(5, M):  # slopes of joint ML run away on so short a test
        assert flags[j] in (checks.OK, "at_bound" if name == "joint" else checks.OK)


def test_joint_fits_that_keep_complete_rows_as_bits_see_items_that_fall(y):
    got = irt.fit_joint(y[:, [0, 5, 6, 7, 8, 9]], max_iterations=10, tolerance=1.0, progress=False)
    assert "reversed" in got["item_flag"].values[0].split("|")


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("error::irt_dask.errors.ItemWarning")
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
def test_a_sensible_fit_is_quiet(name):
    responses = irt.simulate(1000, 30, seed=1)
    assert (FITS[name][0](responses)["item_flag"] == checks.OK).all()


def test_items_of_a_fit_by_hand():
    fit = {
        "item_discrimination": np.array([1.0, 0.05, 0.3, 2.0, 1.0, 1.0, 1.0]),
        "item_discrimination_se": np.array([0.1, 0.01, 0.25, 0.3, 2.5, 0.1, np.nan]),
        "item_difficulty": np.array([0.0, 0.0, 0.0, 0.0, 0.0, 12.0, 0.0]),
        "item_difficulty_se": np.array([0.1, 0.1, 0.1, 0.1, 0.1, 2.5, np.nan]),
        "item_at_bound": np.array([False] * 6 + [True]),
    }
    flags = checks.flags(fit)
    assert list(flags) == ["ok", "flat", "flat", "ok", "flat|large_se", "extreme|large_se",
                           "at_bound"]  # fmt: skip
    for scale in (0.01, 100.0):  # of ability
        other = {
            k: v / scale if "discr" in k else v * scale for k, v in fit.items() if "bound" not in k
        }
        other["item_at_bound"] = fit["item_at_bound"]
        np.testing.assert_array_equal(checks.flags(other, own_scale=False), flags)
    seen = checks.Counts(np.array([9, 0, 50, 99, 99, 99, 99]), np.array([9, 40] + [100] * 5))
    assert list(checks.flags(fit, seen=seen))[:3] == ["all_right|few_responses", "all_wrong|flat",
                                                      "flat"]  # fmt: skip
    alone = {"item_difficulty": np.array([0.0, 1.0, np.nan])}  # nobody links it
    assert list(checks.flags(alone)) == ["ok", "ok", "large_se"]
    fixed = np.array([True] * 7)
    assert list(checks.flags(fit, seen=seen, fixed=fixed)) == ["ok", "flat", "flat", "ok", "flat",
                                                               "extreme", "ok"]  # fmt: skip


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_association_with_the_rest_of_the_test(y, layout):
    """Sums and their standard errors, person by person; any blocks give the same flags."""
    y = y.copy()
    y[np.random.default_rng(1).random(y.shape) < 0.3] = -1
    seen = y >= 0
    share = ((y == 1).sum(0) + 0.5) / (seen.sum(0) + 1.0)
    x = np.where(seen, y - share, 0.0)
    product = np.where(seen, x * (x.sum(1, keepdims=True) - x), 0.0)
    with np.errstate(invalid="ignore"):
        z = product.sum(0) / np.sqrt((product**2).sum(0))
    if layout == "csr":
        at = np.nonzero(seen)
        data = csr_array((y[at].astype(float), at), shape=y.shape)
        responses = irt.from_array(data, observed="stored", rows_per_block=70)
    else:
        responses = irt.from_array(y)
    with Engine(responses, progress=False) as engine:
        counted = checks.count(engine)
    np.testing.assert_array_equal(counted.right, (y == 1).sum(0))
    np.testing.assert_array_equal(counted.seen, seen.sum(0))
    np.testing.assert_array_equal(counted.reversed, z < checks.REVERSED_Z)
    assert list(np.flatnonzero(counted.reversed)) == [0]


def test_one_name_for_each_flag():
    assert list(ITEM_FLAGS) == sorted(ITEM_FLAGS)
    with pytest.raises(InputError, match="item_flag 'flat\\|odd': give 'ok'"):
        checks.check_flags(np.array(["ok", "flat|odd"]))
    with pytest.raises(InputError, match="item_flag 'flat\\|ok'"):
        checks.check_flags(np.array(["flat|ok"]))


def test_banks_keep_flags(tmp_path):
    flags = np.array(["ok", "at_bound|flat", "few_responses"])
    items = bank([1.0, 0.001, 1.2], [0.0, 1383.0, 0.5], item_flag=flags)
    for ext in ("csv", "json"):
        again = irt.read_items(irt.write_items(items, tmp_path / f"b.{ext}"))
        np.testing.assert_array_equal(again["item_flag"].values, flags)
    old = tmp_path / "old.csv"
    old.write_text("item,a,b\nx,1,0\n")
    assert "item_flag" not in irt.read_items(old)
    old.write_text("item,a,b,flag\nx,1,0,\ny,1,0,flat\n")
    assert list(irt.read_items(old)["item_flag"].values) == ["ok", "flat"]
    old.write_text("item,a,b,flag\nx,1,0,broken\n")
    with pytest.raises(InputError, match=r"old\.csv: item x: item_flag 'broken': give 'ok'"):
        irt.read_items(old)


def test_lords_test_leaves_out_items_at_bounds_and_without_errors():
    """An error at a bound, .003 say, made a chi-square of 1044."""
    a, b, se = np.ones(4), np.array([0.0, 0.5, 1.0, -1.0]), np.full(4, 0.1)
    one = bank(a, b, item_difficulty_se=se, item_flag=np.array(["ok"] * 4))
    moved = b + np.array([0.0, 1.0, 0.1, 0.0])
    bad_se = np.array([0.1, 0.003, np.nan, 0.1])
    flags = np.array(["ok", "at_bound", "ok", "few_responses"])
    two = bank(a, moved, item_difficulty_se=bad_se, item_flag=flags)
    expected = r"2 of 4 items in common are not tested: 1 \(at_bound in focal\); 2 \(no standard "
    with pytest.warns(ItemWarning, match=expected):
        got = irt.lord_dif(one, two)["item_lord_difficulty_chi2"].values
    np.testing.assert_array_equal(np.isnan(got), [False, True, True, False])


def test_flagged_items_are_not_tested_for_dif(y):
    rng = np.random.default_rng(2)
    groups = np.array(["r", "f"])[rng.integers(0, 2, N)]
    groups[:4] = ["r", "f", "r", "f"]
    table = {"person_id": [str(i) for i in range(N)], "group": groups}
    kept = [0, 5, 6, 7, 8, 9]
    responses = irt.from_array(y[:, kept], persons=table, person_id=table["person_id"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        items = irt.fit_marginal(y[:, kept], progress=False)
        plain = irt.dif(
            responses, items.drop_vars("item_flag").assign(item_flag=("items", ["ok"] * 6)),
            reference="r", focal="f", progress=False,
        )  # fmt: skip
    with pytest.warns(ItemWarning, match="1 of 6 items are not tested, being flagged: 0 "):
        got = irt.dif(responses, items, reference="r", focal="f", progress=False)
    assert np.isnan(got["item_dif_uniform_chi2"].values[0])
    assert got["item_dif_class"].values[0] == ""
    for name in plain.data_vars:
        if not name.endswith("_q_value"):  # which are of five tests instead of six
            np.testing.assert_array_equal(got[name][1:], plain[name][1:])


def test_a_pattern_that_counts_often_is_as_many_persons(y):
    """Frequency weights; sampling weights say nothing of how many answered."""
    kept = y[:200, [0, 1, 5, 6, 7]]
    times = np.random.default_rng(3).integers(1, 4, 200)
    table = {"person_id": [str(i) for i in range(200)], "weight": times.astype(float)}
    options = {"persons": table, "person_id": table["person_id"]}
    often = irt.from_array(kept, weight_kind="frequency", **options)
    sampled = irt.from_array(kept, weight_kind="sampling", **options)
    for responses, same in ((often, np.repeat(kept, times, axis=0)), (sampled, kept)):
        found = []
        for r in (responses, irt.from_array(same)):
            with Engine(r, progress=False) as engine:
                sums = engine.map_reduce(
                    checks._rest, np.ones(5, dtype=int), np.full(5, 0.5), (2.0**20, 2.0**20)
                )[0]
                found.append((*engine.map_reduce(checks._count), sums))
        for got, expected in zip(*found, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_steep_and_flat_tests_measure_difficulties_in_standard_deviations():
    """Nothing is far away at 3 SDs, however steep the items; everything is at 25."""
    b = np.linspace(-3.0, 3.0, 21)
    steep = {"item_discrimination": np.linspace(3.5, 4.5, 21), "item_difficulty": b}
    steep |= {"item_difficulty_se": np.linspace(0.03, 0.6, 21)}
    assert (checks.flags(steep) == checks.OK).all()
    bank = dataset(steep, item_id=tuple(map(str, b)), attrs={"model": "2pl"})
    assert (checks.of_items(bank) == checks.OK).all()
    flat = {"item_discrimination": np.linspace(0.28, 0.32, 21), "item_difficulty": b.copy()}
    flat["item_difficulty"][20] = 25.0
    assert checks.flags(flat)[20] == "extreme"
    assert (checks.flags(flat)[:20] == checks.OK).all()
    # On a scale whose SD is 100 the same items are the same.
    wide = {"item_discrimination": steep["item_discrimination"] / 100.0, "item_difficulty": 100 * b}
    assert (checks.flags(wide, own_scale=False) == checks.OK).all()


def test_a_bank_may_lack_standard_errors(tmp_path):
    path = tmp_path / "bank.csv"
    path.write_text("item,a,b,se_b\nx,1,0,.1\ny,1.2,.5,\nz,.9,-.5,.1\nw,1.1,1,\n")
    bank = irt.read_items(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert irt.link(bank, bank).attrs["n_used"] == 4


def test_a_reversed_item_beside_anchors_of_other_slopes(y):
    anchors = dataset(
        {"item_discrimination": np.array([0.8, 1.2, 1.5]), "item_difficulty": np.zeros(3)},
        item_id=("5", "6", "7"),
        attrs={"model": "2pl"},
    )
    r = irt.from_array(y, item_id=tuple(map(str, range(M))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flags, and anchors that the data contradict
        got = irt.fit_marginal(r, model="1pl", fixed_items=anchors, progress=False)
    assert "reversed" in got["item_flag"].values[0].split("|")
