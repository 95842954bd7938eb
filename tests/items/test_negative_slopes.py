"""Items that fall with ability: a test with some items reversed is the same test.

What is reversed: ``y -> K - 1 - y`` of an item, with the parameters of the same curve counted back,
whose slope has the other sign.  Likelihoods stay what they are.  Turned: ``theta -> -theta``, all
slopes with the other sign.  Neither shares anything with how the package computes.
"""

from __future__ import annotations

import itertools
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from categories import category_probability

import irt_dask as irt
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.errors import InputError, IrtDaskWarning
from irt_dask.evaluate import dif_directions
from irt_dask.items import checks
from irt_dask.items.parameters import item_set
from irt_dask.kernels.posterior import tables

N = 120


class Item(NamedTuple):
    """An item by its textbook parameters in our order: slope, step intercepts, asymptotes."""

    model: str
    x: list[float]

    @property
    def k(self) -> int:
        """Categories."""
        return len(self.x) if self.model in ("graded", "gpcm") else 2

    def reversed(self) -> Item:
        """The item whose category K - 1 - y is y of this one."""
        a, *d = self.x
        if self.model == "graded":  # 1 - P(y >= K - j)
            return Item("graded", [-a, *(-v for v in d[::-1])])
        if self.model == "gpcm":  # log P(k) = k a theta + d_k, less that of the last category
            below = [0.0, *d[:-1]]
            return Item("gpcm", [-a, *(v - d[-1] for v in below[::-1])])
        c, u = (*d[1:], *(0.0, 1.0)[len(d) - 1 :])
        more = [1.0 - u, 1.0 - c]
        return Item("2pl" if more == [0.0, 1.0] else "4pl", [-a, -d[0], *more[: 2 * (c > 0)]])

    def turned(self) -> Item:
        """The same item for the ability with the other sign."""
        return Item(self.model, [-self.x[0], *self.x[1:]])


TWO = [
    Item("2pl", [1.2, 0.3]), Item("2pl", [0.8, -0.9]), Item("2pl", [1.9, 0.6]),
    Item("2pl", [0.6, 1.1]), Item("2pl", [1.4, -0.2]), Item("2pl", [1.0, 0.0]),
]  # fmt: skip
PARTIAL = [
    Item("gpcm", [0.9, 0.4, -0.3]), Item("gpcm", [0.7, 0.2, 0.9, -0.8]),
    Item("gpcm", [1.3, -0.6, -1.0]),
]  # fmt: skip
OTHERS = [
    Item("graded", [1.1, 1.2, -0.1, -1.4]), Item("graded", [1.6, 0.3, -0.7]),
    Item("3pl", [1.5, -0.4, 0.2]), Item("4pl", [1.3, 0.2, 0.1, 0.93]),
]  # fmt: skip
#: Items of two categories; with a sum of scores that says all; of any kind.
TESTS = {"linear": TWO, "scores": TWO[:3] + PARTIAL, "curves": TWO[:3] + PARTIAL[:2] + OTHERS}
every = pytest.mark.parametrize("kind", TESTS)


def bank(items, item_id=None):
    """Items as a fit returns them."""
    m, most = len(items), max(i.k for i in items)
    steps, c, u = np.full((m, most - 1), np.nan), np.zeros(m), np.ones(m)
    for j, item in enumerate(items):
        steps[j, : item.k - 1] = item.x[1 : item.k]
        if item.k == 2 and len(item.x) > 2:
            c[j], u[j] = (*item.x[2:], 1.0)[:2]
    data = {
        "item_model": np.array([i.model for i in items]),
        "item_n_categories": np.array([i.k for i in items]),
        "item_discrimination": np.array([i.x[0] for i in items]),
        "item_step_intercept": steps, "item_guessing": c, "item_upper_asymptote": u,
    }  # fmt: skip
    if most == 2:
        for name in ("item_model", "item_n_categories"):
            data.pop(name)
        data["item_intercept"] = data.pop("item_step_intercept")[:, 0]
    ids = tuple(f"i{j}" for j in range(m)) if item_id is None else item_id
    return dataset(data, item_id=ids, attrs={"model": "by item"})


def probabilities(items, theta):
    """P(category) of each item, (abilities, K)."""
    return [category_probability(i.model, theta, i.x) for i in items]


def answers(items, missing=0.1, n=N):
    """Responses of persons from N(0, 1), among them such as have everything, and nothing, right."""
    rng = np.random.default_rng(len(items))
    y = np.empty((n, len(items)), dtype=np.int8)
    for j, p in enumerate(probabilities(items, rng.standard_normal(n))):
        y[:, j] = (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    y[rng.random(y.shape) < missing] = -1
    y[0], y[1], y[2] = 0, [i.k - 1 for i in items], -1
    return y


def responses(y, items):
    ids = tuple(f"i{j}" for j in range(len(items)))
    persons = {"group": np.where(np.arange(len(y)) % 2, "f", "r")}
    return irt.from_array(y, item_id=ids, categories=[i.k for i in items], persons=persons)


def counted_back(y, items, which):
    """Responses and items, some of them reversed."""
    y, items = y.copy(), list(items)
    for j in which:
        y[:, j] = np.where(y[:, j] < 0, -1, items[j].k - 1 - y[:, j])
        items[j] = items[j].reversed()
    return y, items


class Pair(NamedTuple):
    """A test, and the same with every second item reversed, or with ability turned."""

    y: np.ndarray
    items: list[Item]
    plain: tuple
    other: tuple
    turned: tuple


@pytest.fixture(scope="module", params=TESTS)
def pair(request):
    items = TESTS[request.param]
    y = answers(items)
    back, reverse = counted_back(y, items, range(0, len(items), 2))
    turned = [i.turned() for i in items]
    of = ((y, items), (back, reverse), (y, turned))
    return Pair(y, items, *((responses(a, b), bank(b)) for a, b in of))


def same(got, want, *names, atol=1e-8, sign=1.0):
    for name in names:
        np.testing.assert_allclose(
            got[name], sign * want[name], rtol=1e-8, atol=atol, err_msg=str(name)
        )


# --- the oracle of the oracle ---------------------------------------------------------------------


@every
def test_reversed_items_have_the_same_probabilities(kind):
    theta = np.linspace(-4.0, 4.0, 17)
    items = TESTS[kind]
    for p, q in zip(
        probabilities(items, theta), probabilities([i.reversed() for i in items], theta),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(p, q[:, ::-1], atol=1e-14)


def test_scores_by_brute_force(pair):
    """Means and spreads of posteriors by sums over a fine grid; the marginal likelihood."""
    theta = np.linspace(-9.0, 9.0, 3601)
    responses_, items = pair.other
    y, reverse = counted_back(pair.y, pair.items, range(0, len(pair.items), 2))
    like = np.ones((len(y), theta.size))
    for j, p in enumerate(probabilities(reverse, theta)):
        like *= np.where(y[:, [j]] < 0, 1.0, p.T[np.maximum(y[:, j], 0)])
    w = like * np.exp(-0.5 * theta**2) / np.sqrt(2.0 * np.pi) * (theta[1] - theta[0])
    mean = w @ theta / w.sum(axis=1)
    got = irt.score(responses_, items)
    np.testing.assert_allclose(got["person_ability"], mean, atol=1e-8)
    sd = np.sqrt(w @ theta**2 / w.sum(axis=1) - mean**2)
    np.testing.assert_allclose(got["person_ability_sd"], sd, atol=1e-7)
    if all(i.k == 2 for i in pair.items):
        held_out = irt.evaluate(responses_, items)
        np.testing.assert_allclose(held_out["log_likelihood"], np.log(w.sum(axis=1)).sum())


# --- persons --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["eap", "map", "ml", "wle"])
def test_scores(pair, method):
    error = "person_ability_sd" if method == "eap" else "person_ability_se"
    drawn = {"n_plausible": 2, "seed": 3} if method == "eap" else {}
    want = irt.score(*pair.plain, method=method, **drawn)
    got = irt.score(*pair.other, method=method, **drawn)
    same(got, want, "person_ability", error)
    if drawn:
        same(got, want, "person_plausible_value")
    turned = irt.score(*pair.turned, method=method)
    same(turned, want, "person_ability", sign=-1.0)
    same(turned, want, error)
    if method == "ml":  # what is right on the items that rise and wrong on the others
        assert want["person_ability"][1] == -turned["person_ability"][1] > 5.9
        assert np.isnan(got["person_ability_se"][1])


def test_populations(pair):
    """Means, SDs and errors of groups, items held."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)  # of few persons
        of = [irt.score(*one, prior="groups") for one in (pair.plain, pair.other, pair.turned)]
    names = ("group_mean", "group_mean_se", "group_sd", "group_sd_se")
    same(of[1], of[0], *names, atol=1e-6)
    same(of[2], of[0], names[0], sign=-1.0, atol=1e-6)
    same(of[2], of[0], *names[1:], atol=1e-6)


def test_fit_of_persons_and_items(pair):
    ability = {"ability": (0.0, 1.0)}
    of = [irt.person_fit(*one, **ability) for one in (pair.plain, pair.other, pair.turned)]
    for got in of[1:]:
        same(got, of[0], "person_infit", "person_outfit", "person_lz")
    of = [irt.item_fit(*one, **ability) for one in (pair.plain, pair.other, pair.turned)]
    for got in of[1:]:
        same(got, of[0], "item_infit", "item_outfit", "item_infit_z", "item_outfit_z", atol=1e-6)
    same(of[2], of[0], "item_chi2", atol=1e-6)
    of = [irt.residual_correlations(*one, **ability) for one in (pair.plain, pair.other)]
    q3 = [{(a, b): q for a, b, q in zip(*(f[n].values for n in ("pair_first", "pair_second",
          "pair_q3")), strict=True)} for f in of]  # fmt: skip
    for (a, b), q in q3[0].items():
        sign = 1.0 if (int(a[1:]) - int(b[1:])) % 2 == 0 else -1.0
        assert q3[1][a, b] == pytest.approx(sign * q, abs=1e-6)


@every
def test_tests_of_complete_data(kind):
    """S-X2 goes by the sum of the responses, which is another one of reversed items."""
    items = TESTS[kind]
    y = answers(items, missing=0.0)
    y[2] = y[3]
    of = [
        irt.item_fit(responses(y, items), bank(b), ability=(0.0, 1.0))
        for b in (items, [i.turned() for i in items])
    ]
    same(of[1], of[0], "item_sx2", "item_sx2_p_value", "item_chi2", atol=1e-6)
    back, reverse = counted_back(y, items, [0])
    found = irt.item_fit(responses(back, reverse), bank(reverse), ability=(0.0, 1.0))
    assert (found["item_sx2_p_value"] > 1e-3).all()  # the model is true


def test_curves_and_information(pair):
    of = [irt.item_curves(*one, groups=False) for one in (pair.plain, pair.other)]
    same(of[1], of[0], "group_item_rmsd", atol=1e-6)
    sign = np.where(np.arange(len(pair.items)) % 2, 1.0, -1.0)
    same(of[1], of[0], "group_item_md", atol=1e-6, sign=sign)
    theta = np.linspace(-3.0, 3.0, 7)
    plain, other = (irt.information(one[1], theta) for one in (pair.plain, pair.other))
    same(other, plain, "item_information", "test_information", "ability_se")
    assert other.attrs["marginal_reliability"] == pytest.approx(plain.attrs["marginal_reliability"])
    turned = irt.information(pair.turned[1], -theta)
    same(turned, plain, "item_information", "ability_se")


@every
def test_directions_of_differential_functioning(kind):
    """A shift is one of the intercept: the other way of reversed items, the same of turned ones."""
    theta, items = np.linspace(-3.0, 3.0, 7), TESTS[kind]
    back = [i.reversed() for i in items]
    known, reverse, turned = (
        item_set(bank(b), tuple(f"i{j}" for j in range(len(b))))
        for b in (items, back, [i.turned() for i in items])
    )
    want = dif_directions.tables(known, theta)[:2]
    got = dif_directions.tables(turned, -theta)[:2]
    np.testing.assert_allclose(got, want * np.array([1.0, -1.0])[:, None, None], atol=1e-12)
    got = dif_directions.tables(reverse, theta)[:2]
    for lo, hi in itertools.pairwise(known.first):
        if known.n_categories[known.first[:-1] == lo][0] > 2:  # of two, asymptotes stay
            np.testing.assert_allclose(got[:, lo:hi], -want[:, lo:hi][:, ::-1], atol=1e-12)


def test_groups_are_compared():
    of, y = [], answers(TWO[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        for a, b in ((y, TWO[:4]), counted_back(y, TWO[:4], range(0, 4, 2))):
            of.append(irt.dif(responses(a, b), bank(b), reference="r", focal="f"))
    sign = np.where(np.arange(4) % 2, 1.0, -1.0)
    for name in ("item_dif_shift", "item_dif_slope"):  # next to persons who are simulated
        np.testing.assert_allclose(of[1][name], sign * of[0][name], rtol=0.1, atol=0.05)
    chi2 = [x["item_dif_joint_chi2"] for x in of]
    np.testing.assert_allclose(chi2[1], chi2[0], rtol=0.1, atol=0.1)


def test_predictions():
    """AUC goes by P(right), so that all items are reversed; the hardest items are the same."""
    y = answers(TWO)
    back, reverse = counted_back(y, TWO, range(len(TWO)))
    turned = [i.turned() for i in TWO]
    want = irt.evaluate(responses(y, TWO), bank(TWO), top=(1, 3))
    got = irt.evaluate(responses(y, TWO), bank(turned), top=(1, 3))
    same(got, want, "log_likelihood", "log_score", "auc", "top_accuracy", atol=1e-4)
    got = irt.evaluate(responses(back, reverse), bank(reverse), top=(1, 3))
    same(got, want, "log_likelihood", "log_score", "auc", atol=1e-4)
    assert (got["top_accuracy"] == 1.0).all()
    y = answers(TWO, missing=0.0)[3:]
    back, reverse = counted_back(y, TWO, range(len(TWO)))
    check = irt.predictive_check(responses(y, TWO), bank(TWO), n_replicates=10)
    other = irt.predictive_check(responses(back, reverse), bank(reverse), n_replicates=10)
    np.testing.assert_array_equal(check["score_count"], other["score_count"][::-1])
    assert other.attrs["p_value"] > 0.05


def test_replicates_follow_the_curves():
    _, reverse = counted_back(answers(TWO), TWO, range(0, 6, 2))
    y = np.zeros((20_000, 6), dtype=np.int8)
    again = irt.replicate(responses(y, reverse), bank(reverse), ability=(1.0, 0.5), seed=1)
    theta = np.linspace(-3.0, 5.0, 801)
    w = np.exp(-2.0 * (theta - 1.0) ** 2)
    want = [(p.T @ w / w.sum())[1] for p in probabilities(reverse, theta)]
    share = again.to_xarray()["response"].values.mean(axis=0)
    np.testing.assert_allclose(share, want, atol=0.02)


# --- many items -----------------------------------------------------------------------------------


def test_long_tests():
    """More nodes than are kept: sums about the mode alone."""
    rng = np.random.default_rng(3)
    items = [Item("2pl", [a, d]) for a, d in zip(rng.uniform(0.5, 3.0, 250), rng.normal(size=250),
                                                 strict=True)]  # fmt: skip
    y = answers(items, n=40)
    back, reverse = counted_back(y, items, range(0, 250, 2))
    of = [(responses(a, b), bank(b)) for a, b in ((y, items), (back, reverse))]
    want, got = (irt.score(*one) for one in of)
    same(got, want, "person_ability", "person_ability_sd")
    want, got = (irt.evaluate(*one)["log_score"] for one in of)
    np.testing.assert_allclose(got, want, rtol=1e-8)


def test_products_of_falling_items_do_not_overflow():
    """They are largest at the first of neighbouring nodes."""
    a, nodes = np.full(80, -8.0), np.arange(-160, 160) / 8.0
    d = np.resize(np.arange(-3.0, 4.0), 80)
    z = np.multiply.outer(a, nodes) + d[:, None]
    total = tables.tables(ItemSet.of("2pl", a, d), nodes).total
    np.testing.assert_allclose(total, -np.logaddexp(0.0, z).sum(axis=0), rtol=1e-12, atol=1e-12)


# --- tables, banks and links ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "curves"])
def test_score_tables(kind):
    items = TESTS[kind]
    turned = bank([i.turned() for i in items])
    for method, error in (("eap", "sd"), ("tcc", "se")):
        want, got = (irt.score_table(b, method=method) for b in (bank(items), turned))
        same(got, want, "score_ability", sign=-1.0)
        same(got, want, f"score_ability_{error}", "score_probability")
    everything = bank([i.reversed() for i in items])
    got = irt.score_table(everything)
    np.testing.assert_allclose(
        got["score_ability"], irt.score_table(bank(items))["score_ability"][::-1], atol=1e-8
    )
    some = bank([items[0].reversed(), *items[1:]])
    with pytest.raises(InputError, match=r"all fall, and 1 of . fall: 'i0'"):
        irt.score_table(some, method="tcc")


def test_a_table_of_one_negative_slope():
    items = [Item("2pl", [-1.0, d]) for d in (-1.0, 0.0, 0.5)]
    got = irt.score_table(bank(items), method="wle")
    want = irt.score_table(bank([i.turned() for i in items]), method="wle")
    same(got, want, "score_ability", sign=-1.0)
    with pytest.raises(InputError, match="one discrimination"):
        irt.score_table(bank([*items, Item("2pl", [1.0, 0.0])]), method="wle")


@every
@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_banks_keep_signs(kind, ending, tmp_path):
    items = [i.reversed() if j % 2 else i for j, i in enumerate(TESTS[kind])]
    path = irt.write_items(bank(items), tmp_path / f"bank{ending}")
    again = irt.read_items(path)
    np.testing.assert_allclose(again["item_discrimination"], [i.x[0] for i in items], rtol=1e-15)
    theta = np.linspace(-2.0, 2.0, 5)
    want, got = (irt.information(b, theta) for b in (bank(items), again))
    same(got, want, "item_information")
    assert set(checks.of_items(again)) == {"ok"}


def test_tables_of_mirt_keep_signs(tmp_path):
    items = [i.reversed() for i in TESTS["curves"]]
    path = irt.write_items(bank(items), tmp_path / "m.csv", convention="mirt")
    again = irt.read_items(path, convention="mirt", ability=None)
    assert list(again["item_model"].values) == [i.model for i in items]
    theta = np.linspace(-2.0, 2.0, 5)
    same(irt.information(again, theta), irt.information(bank(items), theta), "item_information")


@pytest.mark.parametrize(
    ("text", "column"), [("item,a,b\nx,0,1\n", "a = 0"), ("item,model,a,d1,d2\nx,gpcm,0,1,0\n",
                                                          "column a")]
)  # fmt: skip
def test_a_slope_of_0_is_no_item(text, column, tmp_path):
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(InputError, match=rf"item x.*{column}.*must not be 0"):
        irt.read_items(tmp_path / "b.csv")
    with pytest.raises(InputError, match=r"item i0 has discrimination 0.*must not be 0"):
        irt.information(bank([Item("2pl", [0.0, 1.0])]))


@pytest.mark.parametrize("method", ["haebara", "stocking-lord", "mean-sigma", "mean-mean"])
def test_links(method):
    items = [i.reversed() if j % 2 else i for j, i in enumerate(TESTS["curves"])]

    def moved(item):  # on the scale of (theta - 0.4) / 1.5: a theta + d of the old ability
        a, k = item.x[0], np.arange(1, item.k)
        shift = 0.4 * a * (k if item.model == "gpcm" else 1.0)
        steps = np.array(item.x[1 : item.k]) + shift
        return Item(item.model, [1.5 * a, *steps, *item.x[item.k :]])

    linked = irt.link(bank(items), bank([moved(i) for i in items]), method=method)
    assert linked.attrs["A"] == pytest.approx(1.5, abs=1e-6)
    assert linked.attrs["B"] == pytest.approx(0.4, abs=1e-6)
    np.testing.assert_allclose(linked["item_discrimination"], [i.x[0] for i in items], atol=1e-6)
    np.testing.assert_allclose(linked["item_link_rmsd"], 0.0, atol=1e-6)


def test_no_link_of_items_that_rise_and_fall():
    other = [TWO[0], TWO[1].reversed(), *TWO[2:]]
    with pytest.raises(InputError, match=r"1 of 6 common items have other signs.*'i1'; leave"):
        irt.link(bank(TWO), bank(other))
    with pytest.raises(InputError, match=r"6 of 6 common items.* its ability runs the other way"):
        irt.link(bank(TWO), bank([i.turned() for i in TWO]))


def test_a_link_of_one_slope():
    one = [
        Item("2pl", [s, d])
        for s, d in zip((1.0, -1.0, 1.0, -1.0), (0.0, 0.3, -1.0, 1.2), strict=True)
    ]
    two = [Item("2pl", [2.0 * i.x[0], i.x[1]]) for i in one]
    assert irt.link(bank(one), bank(two)).attrs["A"] == pytest.approx(2.0)


def test_plots():
    items = [i.reversed() for i in TESTS["curves"]]
    drawn = irt.link(bank(items), bank(items))  # has all that plots take
    line = irt.plot.icc(drawn, which=["i3"]).lines[0]
    p = category_probability(items[3].model, line.get_xdata(), items[3].x)
    np.testing.assert_allclose(line.get_ydata(), p @ np.arange(3.0) / 2.0, atol=1e-12)
    ax = irt.plot.wright_map(drawn, None)
    labels = {text.get_text().strip() for text in ax.texts}
    assert {"i5 ≥ 1", "i5 ≥ 2", "i5 ≥ 3", "i0"} <= labels


# --- flags, and methods that need items that rise -------------------------------------------------


def test_items_are_not_flagged_for_their_sign():
    rng = np.random.default_rng(1)
    items = [Item("2pl", [a, 0.0]) for a in (1.2, -1.0, 0.9, -1.4, 1.1, -0.01)]
    fit = {"item_discrimination": np.array([i.x[0] for i in items]),
           "item_discrimination_se": np.full(6, 0.1), "item_intercept": np.zeros(6)}  # fmt: skip
    assert list(checks.flags(fit)) == ["ok"] * 5 + ["flat"]
    theta = rng.standard_normal(2000)
    p = np.stack([q[:, 1] for q in probabilities(items, theta)], axis=1)
    y = (rng.random(p.shape) < p).astype(np.int8)
    y[:, 5] = 1 - (rng.random(2000) < probabilities([TWO[0]], theta)[0][:, 1])
    counts = {"item_n_right": y.sum(axis=0), "item_n_responses": np.full(6, 2000)}
    with checks.Engine(irt.from_array(y), progress=False) as engine:
        assert list(checks.of_fit(engine, fit | counts)) == ["ok"] * 5 + ["flat"]
        fit["item_discrimination"][5] = 0.01  # which says the contrary of the responses
        assert list(checks.of_fit(engine, fit | counts)) == ["ok"] * 5 + ["flat|reversed"]


def test_anchors_that_fall():
    """Items that keep the parameters of a bank may fall; those that are estimated rise."""
    y = answers(TWO)
    back, reverse = counted_back(y, TWO, (0, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        want = irt.fit_marginal(responses(y, TWO), fixed_items=bank(TWO[:3]), groups=False)
        got = irt.fit_marginal(responses(back, TWO), fixed_items=bank(reverse[:3]), groups=False)
    same(got[{"items": slice(3, 6)}], want[{"items": slice(3, 6)}], "item_discrimination",
         "item_intercept", "item_difficulty_se", atol=1e-5)  # fmt: skip
    same(got, want, "group_mean", "group_sd", atol=1e-5)


@pytest.mark.parametrize(
    "fit",
    [
        lambda r, b: irt.fit_joint(r, start=b),
        lambda r, b: irt.fit_marginal(r, start=b),
        lambda r, b: irt.fit_bayes(r, start=b),
        lambda r, b: irt.coreset_complexity(r, b),
    ],
    ids=["joint", "marginal", "bayes", "complexity"],
)
def test_methods_whose_items_rise(fit):
    y, reverse = counted_back(answers(TWO), TWO, [1])
    with pytest.raises(InputError, match=r"item i1 has the discrimination -0\.8, and here discr"):
        fit(responses(y, TWO), bank(reverse))
