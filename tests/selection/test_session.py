"""One person's adaptive test: estimates, rules, state, and totals by design over all its paths."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from items import answers, bank, probability, quiet
from scipy.special import expit
from test_next_items import BANK, IDS, WEIGHTS, K

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, DataWarning, InputError, IrtDaskWarning
from irt_dask.selection import sequential

A = np.array([1.2, -0.8, 2.0, 0.5, 1.5, -2.0, 0.9, 1.0])
D = np.array([0.1, -0.6, 0.8, 1.2, -1.0, 0.3, 0.0, -0.4])
NAMES = [f"q{j}" for j in range(A.size)]
TWO = bank(A, -D / A, item_id=NAMES)
#: Answers that these items find strange.
Y = np.array([1, 1, 0, 0, 1, 1, 0, 1])


def finished(session, y, names=NAMES):
    """The session at its end, with these answers."""
    while (item := session.next()) is not None:
        session.answer(item, y[names.index(item)])
    return session


# --- by design: all paths -------------------------------------------------------------------------


def paths(base, y, n, monkeypatch, names, **options):
    """Every order in which n questions can come, its probability, and its session."""
    options = {"max_items": n, "person": "x", **options}

    def go_on(state, chance):
        session = (
            irt.Session(base, **options)
            if state is None
            else irt.Session.from_json(state, base, strata=options.get("strata"))
        )
        if session.stopped:
            yield chance, session
            return
        q = session._probabilities()[1]
        assert q.sum() == pytest.approx(1.0, abs=1e-14)
        for j in np.flatnonzero(q):
            session._pending = None
            monkeypatch.setattr("irt_dask.selection.session.drawn", lambda q, u, j=j: int(j))
            session.next()
            again = irt.Session.from_json(session.to_json(), base, strata=options.get("strata"))
            again.answer(names[j], y[j])
            yield from go_on(again.to_json(), chance * q[j])

    yield from go_on(None, 1.0)


def over(found, y, weights, n_items):
    """Means over paths: of T at each step, the estimate, and its variance twice."""
    chance, t, total, variance = [], [], [], []
    for c, session in found:
        steps = [s.known for s in session._steps]
        got = [session._worth(s) for s in session._steps]
        own, w = sequential.estimates(steps, got), sequential.weights(len(got), n_items)
        chance.append(c)
        t.append(own)
        total.append(w @ own)
        variance.append(sequential.variance(own, w))
    chance, total = np.array(chance), np.array(total)
    truth = weights @ y
    assert chance.sum() == pytest.approx(1.0, abs=1e-12)
    return chance @ np.array(t) - truth, chance @ total - truth, (
        chance @ (total - truth) ** 2, chance @ np.array(variance),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"exploration": 0.3},
        {"criterion": "total", "exploration": 0.5, "among": 2},
        {"criterion": "information", "exploration": 0.2, "strata": list("aaabbbba")},
        {"criterion": "design"},
    ],
    ids=str,
)
def test_over_all_paths_the_estimate_by_design_is_the_total(options, monkeypatch):
    """Each step's, and their mean; so is the variance, on average, that of the mean.

    The items know nothing of these answers.
    """
    base = irt.Session(TWO)
    found = list(paths(base, Y, 3, monkeypatch, NAMES, **options))
    steps, mean, (true, estimated) = over(found, Y, np.ones(8), 8)
    assert len(found) == 8 * 7 * 6
    assert np.abs(steps).max() < 1e-12
    assert abs(mean) < 1e-12
    assert abs(estimated - true) < 1e-12 * true
    # what the model says is not right on average, nor would other probabilities be
    assert abs(sum(c * quiet(s.estimates)["person_total"].item() for c, s in found) - 5 / 8) > 1e-3
    wrong = sum(
        c * sequential.estimates(
            [k.known._replace(probability=1 / (8 - i)) for i, k in enumerate(s._steps)],
            [s._worth(k) for k in s._steps],
        ).mean()
        for c, s in found
    )  # fmt: skip
    assert abs(wrong - 5.0) > 1e-3


def test_items_of_any_format_and_weights_over_all_paths(monkeypatch):
    y = np.array([1, 0, 1, 0, 2, 1, 2, 0])
    base = irt.Session(BANK, item_weights=WEIGHTS)
    found = paths(base, y, 3, monkeypatch, IDS, criterion="total", exploration=0.4)
    steps, mean, (true, estimated) = over(found, y / (K - 1), WEIGHTS, 8)
    assert np.abs(steps).max() < 1e-12
    assert abs(mean) < 1e-12
    assert abs(estimated - true) < 1e-12 * true


def test_all_alike_the_mean_varies_as_that_of_a_simple_random_sample():
    """Of residuals e, without an adaptive step: N^2 (1 - n / N) / n times their variance."""
    for n, n_all in ((3, 8), (5, 40)):
        left = n_all - np.arange(n)
        w = sequential.weights(n, n_all)
        assert (w**2 * left * (left - 1.0)).sum() == pytest.approx(n_all * (n_all - n) / n)


def test_whoever_was_asked_everything_has_the_total():
    session = finished(irt.Session(TWO, exploration=0.5), Y)
    found = quiet(session.estimates)
    assert session.stopped == "bank"
    for name in ("person_total", "person_total_design", "person_total_design_lower"):
        assert found[name].item() == pytest.approx(5 / 8, abs=1e-15)
    assert found["person_total_design_se"].item() == 0.0


def held(n_persons, seed, **options):
    """Sessions of 60 of 200 questions: share of intervals that hold, by design and by the model.

    Two abilities that have nothing to do with each other: the steeper half of the questions, which
    are asked first, say nothing of the others.
    """
    rng = np.random.default_rng(seed)
    a, d = np.sort(rng.lognormal(0.0, 0.4, 200)), rng.normal(0.3, 1.2, 200)
    names = [f"q{j}" for j in range(200)]
    base = irt.Session(bank(a, -d / a, item_id=names))
    theta = rng.standard_normal((n_persons, 2)).repeat(100, axis=1)
    y = (rng.random((n_persons, 200)) < expit(theta * a + d)).astype(int)
    out = np.zeros((n_persons, 2))
    for i in range(n_persons):
        session = irt.Session(base, person=str(i), seed=seed, max_items=60, **options)
        found = quiet(finished(session, y[i], names).estimates)
        for k, name in enumerate(("person_total_design", "person_total")):
            low, high = (found[f"{name}_{end}"].item() for end in ("lower", "upper"))
            out[i, k] = low <= y[i].mean() <= high
    return out.mean(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"criterion": "total", "exploration": 0.5}, 0.8),
        ({"criterion": "design", "exploration": 0.3}, 0.95),
    ],
    ids=str,
)
def test_intervals_by_design_hold_where_those_of_the_model_do_not(options, most):
    """95% of 400 persons, within 3.5 standard errors (one false alarm in 2,000)."""
    design, model = held(400, 1, **options)
    assert abs(design - 0.95) < 3.5 * math.sqrt(0.95 * 0.05 / 400)
    assert model < most


# --- rules ----------------------------------------------------------------------------------------


def test_next_is_what_next_items_says_and_estimates_are_those_of_scores():
    session = irt.Session(BANK, person="p", exploration=0.4, seed=7, max_items=6)
    y = np.array([1, 0, 1, 0, 2, 1, 2, 0])
    while (item := session.next()) is not None:
        so_far = irt.from_array(
            np.array([[y[j] if i in session.asked else -1 for j, i in enumerate(IDS)]]),
            item_id=IDS, categories=K, person_id=["p"],
        )  # fmt: skip
        found = irt.next_items(so_far, BANK, exploration=0.4, seed=7)
        assert found["person_next_item"].item() == item == session.next()
        session.answer(item, y[IDS.index(item)])
    own, r = quiet(session.estimates), session.responses()
    scored, total = irt.score(r, BANK), irt.predict_total(r, BANK)
    assert own["person_ability"].item() == pytest.approx(scored["person_ability"].item(), rel=1e-9)
    for name in ("person_total", "person_total_lower", "person_total_upper"):
        assert own[name].item() == pytest.approx(total[name].item(), rel=1e-9)
    low, high = (own[f"person_ability_{end}"].item() for end in ("lower", "upper"))
    assert low < own["person_ability"].item() < high
    assert high - low == pytest.approx(3.92 * own["person_ability_sd"].item(), rel=0.1)


def test_tests_end_by_their_rules():
    a = np.full(60, 2.0)
    easy = bank(a, np.linspace(-2.0, 2.0, 60))
    y, names = np.arange(60) % 2, list(map(str, range(60)))
    session = finished(irt.Session(easy, ability_se=0.35), y, names)
    assert session.stopped == "ability_se"
    n = len(session.asked)
    assert quiet(session.estimates)["person_ability_sd"].item() <= 0.35
    longer = finished(irt.Session(easy, ability_se=0.35, min_items=n + 3), y, names)
    assert len(longer.asked) == n + 3
    by_total = finished(irt.Session(easy, total_se=0.06, criterion="total"), y, names)
    assert by_total.stopped == "total_se"
    assert quiet(by_total.estimates)["person_total_sd"].item() <= 0.06
    assert finished(irt.Session(easy, max_items=4), y, names).stopped == "max_items"


@pytest.mark.parametrize("criterion", ["ability", "information", "total", "design"])
def test_somebody_far_beyond_all_questions_is_asked_on(criterion):
    """Steep questions up to a difficulty of 14, all right: the next are about ability."""
    difficulty = np.linspace(-1.0, 14.0, 76)
    items = bank(np.full(76, 3.0), difficulty)
    session = irt.Session(items, criterion=criterion, max_items=70, seed=3)
    beyond = []
    while (item := session.next()) is not None:
        ability = quiet(session.estimates)["person_ability"].item() if session.asked else 0.0
        if 7.0 < ability < 12.0:  # the nearest ones have been asked, as ability follows
            beyond.append(abs(difficulty[int(item)] - ability))
        session.answer(item, 1)
    found, scored = quiet(session.estimates), quiet(irt.score, session.responses(), items)
    assert scored["person_ability"].item() > 9.0
    assert found["person_ability"].item() == pytest.approx(scored["person_ability"].item(), 1e-6)
    if criterion in ("ability", "information"):
        assert len(beyond) > 20
        assert max(beyond) < 1.0


def test_a_session_goes_on_from_its_state_to_the_same_bits(tmp_path):
    path = tmp_path / "bank.json"
    irt.write_items(TWO, path)
    options = {"person": "Ann", "exploration": 0.5, "seed": 3, "max_items": 7}
    whole = irt.Session(path, **options)
    state = irt.Session(path, **options).to_json()
    while (item := whole.next()) is not None:
        part = irt.Session.from_json(state, path)
        assert part.next() == item
        part = irt.Session.from_json(part.to_json(), whole)  # with a question that waits
        part.answer(item, Y[NAMES.index(item)])
        whole.answer(item, Y[NAMES.index(item)])
        state = part.to_json()
        assert state == whole.to_json()
        assert quiet(part.estimates).identical(quiet(whole.estimates))
    assert json.loads(state)["version"] == 1
    other = finished(irt.Session(path, **{**options, "person": "Bob"}), Y)
    assert other.asked != whole.asked


def test_states_of_other_questions_and_damaged_ones_are_refused():
    session = finished(irt.Session(TWO, max_items=3), Y)
    state = session.to_json()
    changed = TWO.assign(item_intercept=TWO["item_intercept"] + 1e-9)
    for items, more in (
        (changed, {}),
        (TWO.isel(items=slice(0, 7)), {}),
        (TWO, {"item_weights": [2.0] + [1.0] * 7}),
        (TWO, {"strata": list("aabbaabb")}),
    ):
        with pytest.raises(InputError, match="this session is of other questions"):
            irt.Session.from_json(state, items, **more)
    content = json.loads(state)
    for change, text in (
        ({"format": "x"}, "no state of a session"),
        ({"version": 2}, "version 2, and version 1 is read"),
        ({"steps": content["steps"][:1] * 2}, "has item 'q5' twice"),
        ({"steps": [{**content["steps"][0], "value": 2}]}, "the answer 2 is no category"),
        ({"steps": [{**content["steps"][0], "item": "z"}]}, "'z', is not in the bank"),
        ({"steps": [{**content["steps"][0], "probability": 0.0}]}, "has the probability 0"),
        ({"steps": [{"item": "q1"}]}, "lacks some of its content"),
        ({"steps": [{**content["steps"][0], "chances": [0.5]}]}, "lacks numbers"),
        ({"steps": [{**content["steps"][0], "known": [0.5] * 5}]}, "lacks numbers"),
        ({"steps": [{**content["steps"][0], "item": ["q1"]}]}, "is not in the bank"),
        ({"pending": 3}, "lacks some of its content"),
        ({"options": {}}, "lacks some of its content"),
    ):
        with pytest.raises(InputError, match=text):
            irt.Session.from_json(json.dumps(content | change), TWO)
    for damaged in (state[:-9], "[" * 100_000):
        with pytest.raises(InputError, match="no state of a session"):
            irt.Session.from_json(damaged, TWO)


def test_answers_that_cannot_be_are_refused():
    session = irt.Session(BANK, max_items=5)
    first = session.next()
    wrong = next(i for i in IDS if i != first)
    for item, value, text in (
        ("zz", 1, "is not among the 8 of the bank"),
        (wrong, 1, r"is not the question that next\(\) gave"),
        (first, -1, "the answer -1 is no category"),
        (first, K[IDS.index(first)], "is no category; give 0 to"),
        (first, 0.5, "the answer 0.5 is no category"),
        (first, None, "the answer None is no category"),
    ):
        with pytest.raises(InputError, match=text):
            session.answer(item, value)
    session.answer(first, 1.0)
    with pytest.raises(InputError, match="was answered before; nobody is asked twice"):
        session.answer(first, 1)
    with pytest.raises(InputError, match=r"\(none: call next\(\)\)"):
        session.answer(wrong, 1)
    for options, text in (
        ({"max_items": 2, "min_items": 3}, "min_items=3 is above max_items=2"),
        ({"ability_se": 0.0}, "ability_se=0.0 must be a number above 0"),
        ({"max_exposure": 0.2}, "max_exposure needs exposure"),
        ({"level": 95}, "level=95 must be"),
    ):
        with pytest.raises(InputError, match=text):
            irt.Session(TWO, **options)
    with pytest.raises(InputError, match="a shared bank has those of the session"):
        irt.Session(session, item_weights=np.ones(8))
    with pytest.raises(InputError, match="no question was answered yet"):
        irt.Session(TWO).responses()


# --- what is warned of ----------------------------------------------------------------------------


def said(session):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IrtDaskWarning)
        found = session.estimates()
    return found, {w.category: str(w.message) for w in caught}


def test_ends_priors_and_misfit_are_warned_of():
    m = 60
    wide = bank(np.full(m, 1.5), np.linspace(-3.0, 3.0, m))
    names, b = list(map(str, range(m))), np.linspace(-3.0, 3.0, m)
    found, texts = said(finished(irt.Session(wide, max_items=8), np.ones(m, dtype=int), names))
    assert "all 8 answers are those of the most able" in texts[DataWarning]
    able = (b < 2.6).astype(int)
    _, texts = said(finished(irt.Session(wide, max_items=10), able, names))
    assert "the prior N(0, 1) moves ability by about" in texts[DataWarning]
    _, texts = said(finished(irt.Session(wide, max_items=30), (b < 0.0).astype(int), names))
    assert texts == {}
    odd = finished(irt.Session(wide, max_items=40, criterion="design", exploration=1.0),
                   (b > 0.0).astype(int), names)  # fmt: skip
    found, texts = said(odd)
    assert found["person_surprise"].item() < -3.0
    assert "standard errors less likely than the model expects" in texts[DataWarning]
    assert ApproximationWarning not in texts


def test_surprise_is_standard_normal_however_questions_are_chosen():
    """Mean and SD over 100 persons of the model, within 4 standard errors (one in 8,000 each)."""
    rng = np.random.default_rng(5)
    a, d = rng.lognormal(0.0, 0.3, 80), rng.normal(0.0, 1.0, 80)
    names, n = list(map(str, range(80))), 100
    base = irt.Session(bank(a, -d / a))
    y = answers(rng, probability(rng.standard_normal(n), a, d))
    z = [
        quiet(finished(irt.Session(base, max_items=20), row, names).estimates)
        ["person_surprise"].item()
        for row in y
    ]  # fmt: skip
    assert abs(np.mean(z)) < 4.0 / math.sqrt(n)
    assert abs(np.std(z) - 1.0) < 4.0 / math.sqrt(2.0 * n)


def test_intervals_by_design_from_few_draws_or_a_length_by_the_answers_are_warned_of():
    _, texts = said(finished(irt.Session(TWO, max_items=5, exploration=0.5), Y))
    assert "by design rests on the model" in texts[ApproximationWarning]
    m = 60
    wide, names = bank(np.full(m, 1.5), np.linspace(-3.0, 3.0, m)), list(map(str, range(m)))
    one = irt.Session(wide, ability_se=0.3, criterion="design", exploration=1.0, min_items=25)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IrtDaskWarning)
        finished(one, np.arange(m) < 30, names).estimates()
    assert any("its length depends on the answers" in str(w.message) for w in caught)
