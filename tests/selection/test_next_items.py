"""The next questions of persons: against plain quadrature over answers, and rules of choice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import registry
import xarray as xr
from categories import category_probability
from items import bank, intercept_bank, quiet
from scipy import stats

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError, ItemWarning
from irt_dask.selection.bank_tables import bank_of
from irt_dask.selection.criteria import tell
from irt_dask.selection.one_person import Person

#: Items of every kind of curve, slopes of both signs: model, parameters in the textbooks' order.
KINDS = (
    ("2pl", [1.3, 0.2]), ("2pl", [-0.9, 0.4]), ("3pl", [1.6, -0.5, 0.2]),
    ("4pl", [1.1, 0.3, 0.1, 0.9]), ("graded", [0.9, 1.0, 0.1, -1.2]), ("gpcm", [0.8, 0.6, 0.2]),
    ("nominal", [1.5, -0.8, 0.4, -0.2]), ("2pl", [0.7, -1.0]),
)  # fmt: skip
IDS = [f"q{j}" for j in range(len(KINDS))]
K = np.array([2, 2, 2, 2, 4, 3, 3, 2])
WEIGHTS = np.array([1.0, 2.0, 1.0, 0.5, 3.0, 1.0, 1.5, 1.0])
#: Abilities of the reference, in steps of .005.
THETA = np.linspace(-9.0, 9.0, 3601)
CURVES = [category_probability(model, THETA, x) for model, x in KINDS]
POINTS = [w * np.arange(k) / (k - 1) for w, k in zip(WEIGHTS, K, strict=True)]


def mixed_bank():
    """The items as a Dataset."""
    m = len(KINDS)
    a, c, u = np.ones(m), np.zeros(m), np.ones(m)
    steps, score = np.full((m, 3), np.nan), np.full((m, 4), np.nan)
    for j, (model, x) in enumerate(KINDS):
        if model == "nominal":
            score[j, : K[j]] = [0.0, *x[: K[j] - 1]]
            steps[j, : K[j] - 1] = x[K[j] - 1 :]
            continue
        a[j], steps[j, : K[j] - 1] = x[0], x[1 : K[j]]
        c[j], u[j] = (*x[2:], 0.0, 1.0)[:2] if model == "4pl" else ((x[2:] or [0.0])[0], 1.0)
        if model in ("graded", "gpcm"):
            c[j] = 0.0
    data = {
        "item_discrimination": ("items", a), "item_intercept": ("items", steps[:, 0]),
        "item_guessing": ("items", c), "item_upper_asymptote": ("items", u),
        "item_model": ("items", [model for model, _ in KINDS]), "item_n_categories": ("items", K),
        "item_step_intercept": (("items", "steps"), steps),
        "item_category_score": (("items", "categories"), score),
    }  # fmt: skip
    return xr.Dataset(data, coords={"item_id": ("items", IDS)}, attrs={"model": "by item"})


BANK = mixed_bank()


def person_of(answers):
    """The package's person with these answers, by place."""
    person = Person(bank_of(BANK, WEIGHTS))
    for j, k in answers.items():
        person.answered(j, k)
    return person


# --- plain sums -----------------------------------------------------------------------------------


def posterior(answers):
    w = stats.norm.pdf(THETA)
    for j, k in answers.items():
        w = w * CURVES[j][:, k]
    return w / w.sum(), w.sum() * (THETA[1] - THETA[0])


def variance_of_ability(answers):
    w, _ = posterior(answers)
    return w @ (THETA - w @ THETA) ** 2


def variance_of_total(answers):
    """Over all patterns of answers to the others, each with its probability."""
    w, _ = posterior(answers)
    rest = [j for j in range(len(KINDS)) if j not in answers]
    mean = square = 0.0
    for pattern in itertools.product(*(range(K[j]) for j in rest)):
        p = w.copy()
        for j, k in zip(rest, pattern, strict=True):
            p = p * CURVES[j][:, k]
        total = sum(POINTS[j][k] for j, k in zip(rest, pattern, strict=True))
        mean, square = mean + p.sum() * total, square + p.sum() * total**2
    return square - mean**2


def expected_after(answers, j, variance):
    """Expected variance after the answer to question j."""
    w, _ = posterior(answers)
    return sum(w @ CURVES[j][:, k] * variance({**answers, j: k}) for k in range(K[j]))


# --- criteria -------------------------------------------------------------------------------------

#: None yet; a few; one that finds the guessed one right.
ANSWERS = ({}, {0: 1, 5: 2}, {2: 0, 4: 3, 6: 1, 7: 0})


@pytest.mark.parametrize("answers", ANSWERS)
def test_expected_posterior_variance_of_ability(answers):
    told = tell(person_of(answers), "ability", predicted=False)
    before = variance_of_ability(answers)
    for j in set(range(len(KINDS))) - set(answers):
        plain = before - expected_after(answers, j, variance_of_ability)
        assert told.gain[j] == pytest.approx(plain, rel=2e-4, abs=1e-7)


@pytest.mark.parametrize("answers", ANSWERS[1:])
def test_expected_posterior_variance_of_the_total(answers):
    told = tell(person_of(answers), "total", predicted=True)
    before = variance_of_total(answers)
    assert told.rest_variance == pytest.approx(before, rel=2e-4)
    for j in set(range(len(KINDS))) - set(answers):
        plain = before - expected_after(answers, j, variance_of_total)
        assert told.gain[j] == pytest.approx(plain, rel=2e-4)


@pytest.mark.parametrize("answers", ANSWERS)
def test_information_predictions_and_spread(answers):
    """Information is the sum of P'^2 / P, by differences of the textbook's curves."""
    w, _ = posterior(answers)
    at, h = w @ THETA, 1e-5
    told = tell(person_of(answers), "information", predicted=True)
    design = tell(person_of(answers), "design", predicted=True)
    for j, (model, x) in enumerate(KINDS):
        low, p, high = (category_probability(model, at + d, x) for d in (-h, 0.0, h))
        assert told.gain[j] == pytest.approx((((high - low) / (2 * h)) ** 2 / p).sum(), rel=1e-5)
        chance = w @ CURVES[j]
        mean = chance @ POINTS[j]
        assert told.predicted[j] == pytest.approx(mean, rel=2e-4)
        assert design.gain[j] ** 2 == pytest.approx(chance @ (POINTS[j] - mean) ** 2, rel=2e-4)


def test_many_items_go_through_tables_in_parts(monkeypatch):
    """Choices and predictions do not depend on how many are multiplied at a time."""
    whole = [tell(person_of(ANSWERS[1]), c, predicted=True) for c in ("ability", "total")]
    monkeypatch.setattr("irt_dask.selection.criteria._AT_ONCE", 3)
    parts = [tell(person_of(ANSWERS[1]), c, predicted=True) for c in ("ability", "total")]
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(b.gain, a.gain, rtol=1e-10)
        np.testing.assert_allclose(b.predicted, a.predicted, rtol=1e-12)


def test_sums_of_large_banks_go_through_splines(monkeypatch):
    """As near to the sums themselves as matters for a total, and for its variance."""
    plain = bank_of(BANK, WEIGHTS).sums(0)
    monkeypatch.setattr("irt_dask.selection.bank_tables._FEW", 0)
    other = bank_of(BANK, 2.0 * WEIGHTS)  # another bank: nothing of the first is used
    np.testing.assert_allclose(other.sums(0)[0], 2.0 * plain[0], rtol=1e-6)
    np.testing.assert_allclose(other.sums(0)[1], 4.0 * plain[1], rtol=1e-5)


def test_where_items_inform_by_birnbaum():
    """Of items that differ in place alone the next is that whose information is largest here.

    Rasch: that with the nearest difficulty; 3PL: with b + log((1 + sqrt(1 + 8 c)) / 2) / a nearest
    to it (Birnbaum 1968), where c differs too little to matter otherwise.
    """
    b = np.linspace(-3.0, 3.0, 25)
    for guessing in (0.0, 0.2):
        some = bank(np.full(25, 1.4), b, np.full(25, guessing))
        y = np.full((2, 25), -1, dtype=np.int8)
        y[0, [2, 12]], y[1, [9, 15]] = [1, 1], [0, 0]
        r = irt.from_array(y, item_id=list(some["item_id"].values))
        found = irt.next_items(r, some, criterion="information")
        best = b + np.log(0.5 + 0.5 * np.sqrt(1.0 + 8.0 * guessing)) / 1.4
        for i in range(2):
            far = np.where(y[i] < 0, np.abs(best - found["person_ability"].values[i]), np.inf)
            assert found["person_next_item"].values[i, 0] == str(far.argmin())


# --- persons --------------------------------------------------------------------------------------


def rows(*answers):
    y = np.full((len(answers), len(KINDS)), -1, dtype=np.int8)
    for row, own in zip(y, answers, strict=True):
        for j, k in own.items():
            row[j] = k
    return irt.from_array(y, item_id=IDS, categories=K)


def test_best_question_of_each_person_and_what_scores_say():
    r = rows(*ANSWERS)
    found = irt.next_items(r, BANK, 2)
    for i, answers in enumerate(ANSWERS):
        left = [j for j in range(len(KINDS)) if j not in answers]
        after = {j: expected_after(answers, j, variance_of_ability) for j in left}
        best = sorted(left, key=after.__getitem__)[:2]
        assert [IDS[j] for j in best] == list(found["person_next_item"].values[i])
    assert (found["person_next_probability"] == 1.0).all()
    scored, total = irt.score(r, BANK), irt.predict_total(r, BANK)
    for name, other in (("person_ability", scored), ("person_ability_sd", scored),
                        ("person_total", total), ("person_total_sd", total)):  # fmt: skip
        np.testing.assert_allclose(found[name], other[name], rtol=1e-9, atol=1e-15)


def test_draws_of_items_are_averaged_over():
    bank_, y = registry.BANKS["draws"], registry.values(20, missing=0.4)
    r = irt.from_array(y, item_id=registry.ITEMS)
    found = quiet(irt.next_items, r, bank_)
    assert found.attrs["n_item_draws"] == 20
    scored, total = irt.score(r, bank_), irt.predict_total(r, bank_)
    np.testing.assert_allclose(found["person_ability_sd"], scored["person_ability_sd"], rtol=1e-9)
    np.testing.assert_allclose(found["person_total_sd"], total["person_total_sd"], rtol=1e-9)


def test_curves_of_some_persons_at_a_time(monkeypatch):
    """As of all questions at once: the same bits."""
    r = rows(*ANSWERS, {7: 1}, {0: 1, 1: 1, 2: 1, 3: 1})
    whole = irt.next_items(r, BANK, 2, exploration=0.5)
    for room in (1, 60_000):
        monkeypatch.setattr("irt_dask.selection.adaptive._ROOM", room)
        assert irt.next_items(r, BANK, 2, exploration=0.5).identical(whole)


def many(n=2000):
    """Persons without answers, who have the same probabilities."""
    return irt.from_array(np.full((n, len(KINDS)), -1, dtype=np.int8), item_id=IDS, categories=K)


def shares(found, k=0):
    chosen = found["person_next_item"].values[:, k]
    return np.array([(chosen == i).mean() for i in IDS])


@pytest.mark.parametrize(
    "options", [{"exploration": 0.4}, {"among": 3}, {"criterion": "design"}], ids=str
)
def test_recorded_probabilities_are_those_of_the_draws(options):
    """Shares among 2,000 persons, within 4.5 standard errors (one false alarm in 18,000)."""
    n = 2000
    found = irt.next_items(many(n), BANK, seed=3, **options)
    share = shares(found)
    said = {}
    for item, q in zip(found["person_next_item"].values[:, 0],
                       found["person_next_probability"].values[:, 0], strict=True):  # fmt: skip
        assert said.setdefault(item, q) == q
    q = np.array([said.get(i, 0.0) for i in IDS])
    assert q.sum() == pytest.approx(1.0)
    assert (np.abs(share - q) <= 4.5 * np.sqrt(q * (1.0 - q) / n)).all()


def test_among_bounds_how_often_a_question_is_seen_and_takes_the_best():
    found = irt.next_items(many(200), BANK, seed=3, among=3)
    gain = tell(person_of({}), "ability", predicted=False).gain
    best = {IDS[j] for j in np.argsort(-gain)[:3]}
    assert set(np.unique(found["person_next_item"])) == best
    assert np.allclose(found["person_next_probability"], 1.0 / 3.0)


def test_no_question_twice_and_none_where_none_is_left():
    r = rows(dict.fromkeys(range(7), 0), {})
    with pytest.warns(DataWarning, match="1 of 2 persons have fewer than 3 questions left"):
        found = irt.next_items(r, BANK, 3, exploration=0.5)
    chosen = found["person_next_item"].values
    assert list(chosen[0]) == ["q7", "", ""]
    assert len(set(chosen[1])) == 3
    assert np.isnan(found["person_next_probability"].values[0, 1:]).all()
    with pytest.warns(DataWarning, match="1 of 1 persons"):
        full = irt.next_items(rows(dict.fromkeys(range(8), 0)), BANK)
    assert full["person_total"].values[0] == 0.0


def test_blocks_have_their_shares():
    """Half of the questions are of block b, whatever they tell."""
    strata = dict(zip(IDS, "aaaaaabb", strict=True))
    found = irt.next_items(many(1), BANK, 4, strata=strata, strata_shares={"a": 0.5, "b": 0.5})
    assert sorted(strata[i] for i in found["person_next_item"].values[0]) == list("aabb")
    found = irt.next_items(many(1), BANK, 4, strata=strata)
    assert sorted(strata[i] for i in found["person_next_item"].values[0]) == list("aaab")


def test_exposure_of_the_persons_themselves_or_as_given():
    first = irt.next_items(many(1), BANK)["person_next_item"].values[0, 0]
    other = irt.next_items(many(1), BANK, exposure={first: 0.5}, max_exposure=0.5)
    assert other["person_next_item"].values[0, 0] != first
    place = IDS.index(first)
    r = rows(*[{place: 1}] * 3, {})
    found = irt.next_items(r, BANK, max_exposure=0.75)
    assert found["person_next_item"].values[3, 0] != first
    assert irt.next_items(r, BANK, max_exposure=0.8)["person_next_item"].values[3, 0] == first
    seen = dict.fromkeys(IDS, 1.0) | {"q3": 0.9}
    left = irt.next_items(many(1), BANK, exposure=seen, max_exposure=0.5)
    assert left["person_next_item"].values[0, 0] == "q3"


def test_what_is_wrong_is_said():
    r = many(2)
    other = irt.from_array(np.zeros((1, 1), dtype=np.int8), item_id=["z"])
    for options, text in (
        ({"criterion": "best"}, "criterion='best' is not available"),
        ({"exploration": 1.5}, "exploration=1.5 must be a number from 0 to 1"),
        ({"criterion": "design", "exploration": 0.0}, "needs exploration above 0"),
        ({"criterion": "design", "among": 2}, "draws among all questions"),
        ({"exposure": {"q1": 0.2}}, "exposure says nothing without max_exposure"),
        ({"exposure": {"q1": 2.0}, "max_exposure": 0.1}, "shares are from 0 to 1"),
        ({"strata_shares": {"a": 1}}, "strata_shares says nothing without strata"),
        ({"strata": ["a"] * 8, "strata_shares": {"b": 1}}, "give each its share"),
        ({"n": 0}, "n=0 must be a whole number of at least 1"),
        ({"among": 0}, "among=0 must be a whole number"),
    ):
        with pytest.raises(InputError, match=text):
            irt.next_items(r, BANK, **options)
    with pytest.raises(InputError, match="these persons answered other questions"):
        irt.next_items(other, BANK)
    with pytest.raises(InputError, match="several abilities"):
        irt.next_items(registry.as_responses(registry.values(9)), registry.BANKS["plane"])
    far = bank(np.full(40, 1.0), np.full(40, 60.0))
    y = np.ones((1, 40), dtype=np.int8)
    with pytest.raises(InputError, match=r"person 0: ability lies beyond 16 standard deviations"):
        quiet(irt.next_items, irt.from_array(y[:, :39], item_id=list(map(str, range(39)))), far)


def test_flagged_items_and_other_populations_are_warned_of():
    flagged = BANK.assign(item_flag=("items", ["ok"] * 7 + ["reversed"]))
    with pytest.warns(ItemWarning, match=r"1 of 8 items are flagged .* q7 \(reversed\)"):
        irt.next_items(many(1), flagged)
    groups = BANK.assign_attrs(calibration_groups=2)
    with pytest.warns(DataWarning, match="2 group"):
        irt.next_items(many(1), groups)


@pytest.mark.slow
def test_an_ability_that_nodes_do_not_resolve_is_refused():
    """4,000 answers to items of slope 4 and difficulty 0.01: a posterior SD of 0.008."""
    m = 4000
    items = intercept_bank(np.full(m, 4.0), np.full(m, -0.04))
    y = (np.random.default_rng(1).random((1, m)) < 0.5).astype(np.int8)
    y[0, -1] = -1
    with pytest.raises(InputError, match=r"person 0: ability is known to less than 0\.012"):
        irt.next_items(irt.from_array(y), items)
    some = irt.next_items(irt.from_array(y).select(items=[str(j) for j in range(900)]), items)
    assert 0.012 < float(some["person_ability_sd"][0]) < 0.02
