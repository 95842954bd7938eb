"""Growing boards: the scale stays, drift is found and freed, persons are told by their places."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import irt_dask as irt
from irt_dask.calibrate.marginal.anchors import bank_errors
from irt_dask.errors import (
    DataWarning,
    EstimationError,
    InputError,
    IrtDaskWarning,
    ItemWarning,
    Notice,
)
from irt_dask.evaluate import anchor_drift, predicted_counts
from irt_dask.evaluate.predicted_counts import Classes, Counted
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import item_set
from irt_dask.workflow.board_prior import _spread
from irt_dask.workflow.board_waves import pools

OLD, NEW = 30, 12
FIRST, JOINED = 150, 60


def answers(seed=3, leak=0.0, waves=(FIRST, JOINED), rise=0.5):
    """Answers and truth; the second question leaked for all but the first wave."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.3 * rng.standard_normal(OLD + NEW)), rng.standard_normal(OLD + NEW)
    b[1] = 1.0
    wave = np.repeat(np.arange(len(waves)), waves)
    theta = rng.standard_normal(wave.size) + rise * wave
    logits = a * (theta[:, None] - b)
    logits[wave > 0, 1] += leak
    y = (rng.random(logits.shape) < expit(logits)).astype(np.int8)
    y[:FIRST, OLD:] = -1
    return y, theta, a, b


def ids(n):
    return [f"q{j}" for j in range(n)]


def board(y):
    return irt.from_array(y, item_id=ids(y.shape[1]), person_id=[f"m{i}" for i in range(len(y))])


@pytest.fixture(scope="module")
def bank():
    """Items of the first wave."""
    y = answers()[0]
    return irt.fit_marginal(board(y[:FIRST, :OLD]), prior="empirical", standard_errors=True)


@pytest.fixture(scope="module")
def leaked(bank):
    """A board whose second question leaked, and its bank."""
    y = answers(leak=4.0)[0]
    assert (y[:FIRST] == answers()[0][:FIRST]).all()  # the bank is that of these persons too
    with pytest.warns(ItemWarning, match="1 of 30 known items drifted, 1 of them easier.*q1"):
        return board(y), irt.grow_bank(board(y), bank)


def test_known_questions_keep_their_bits_and_new_ones_are_on_their_scale(bank):
    y, theta, _, b = answers()
    grown = irt.grow_bank(board(y), bank)
    for name in ("item_discrimination", "item_intercept", "item_discrimination_se", "item_flag"):
        assert (grown[name].values[:OLD] == bank[name].values).all()
    assert grown["item_wave"].values.tolist() == [1] * OLD + [2] * NEW
    assert grown["wave_n_persons"].values.tolist() == [FIRST, JOINED]
    assert not grown["item_drifted"].any()
    z = (grown["item_difficulty"] - b)[OLD:] / grown["item_difficulty_se"][OLD:]
    assert np.abs(z).max() < 3.5  # 12 of N(0, 1): one in 200
    # Abler persons answered them, and are not taken for easier questions.
    labels = grown["group_label"].values.tolist()
    at = dict(zip(labels, grown["group_mean"].values, strict=True))
    assert at["wave 2"] == pytest.approx(theta[FIRST:].mean(), abs=0.25)
    assert at["wave 1"] == pytest.approx(0.0, abs=0.05)
    assert "in the standard errors" in grown.attrs["anchor_errors"]


def test_the_covariance_of_all_questions_is_kept(bank, leaked):
    """That of the bank among its own, the drifted one too; errors are its roots."""
    grown = leaked[1]
    names = [f"{i} {c}" for i, c in zip(grown["parameter_item"].values,
             grown["parameter_column"].values, strict=True)]  # fmt: skip
    assert {n.split(" ")[0] for n in names} == set(grown["item_id"].values)
    matrix = grown["item_parameter_covariance"].values
    before = [f"{i} {c}" for i, c in zip(bank["parameter_item"].values,
              bank["parameter_column"].values, strict=True)]  # fmt: skip
    at = [names.index(n) for n in before]
    np.testing.assert_allclose(
        matrix[np.ix_(at, at)], bank["item_parameter_covariance"], rtol=1e-9, atol=1e-15
    )
    assert np.linalg.eigvalsh(matrix)[0] > 0.0
    of_d = [names.index(f"{i} d") for i in grown["item_id"].values]
    np.testing.assert_allclose(
        np.sqrt(np.diag(matrix)[of_d]), grown["item_intercept_se"], rtol=1e-6
    )
    assert "with their covariances" in grown.attrs["anchor_errors"]


def test_a_question_that_drifted_is_another_one_for_those_who_joined(bank, leaked):
    responses, grown = leaked
    names = grown["item_id"].values.tolist()
    assert names[-1] == "q1@2"
    assert grown["item_origin"].values[-1] == "q1"
    assert np.flatnonzero(grown["item_drifted"].values).tolist() == [1]
    assert grown["item_drift"].values[1] > 1.5
    # Easier: P at the mean of those who joined.
    theta = grown.attrs["ability_mean_joined"]
    a, d = grown["item_discrimination"].values, grown["item_intercept"].values
    assert a[-1] * theta + d[-1] > a[1] * theta + d[1] + 1.5
    view = irt.board_responses(responses, grown)
    data = np.concatenate([view.read_block(k).data.values for k in range(view.n_blocks)])
    old, new = names.index("q1"), names.index("q1@2")
    assert (data[FIRST:, old] == -1).all()
    assert (data[:FIRST, new] == -1).all()
    raw = np.concatenate([responses.read_block(k).data.values for k in range(responses.n_blocks)])
    assert (data[FIRST:, new] == raw[FIRST:, 1]).all()
    assert (np.delete(data, [old, new], axis=1) == np.delete(raw, 1, axis=1)).all()


def test_flagging_changes_nothing_but_the_flag(bank, leaked):
    responses, freed = leaked
    with pytest.warns(ItemWarning, match="drifted"):
        flagged = irt.grow_bank(responses, bank, on_drift="flag")
    assert flagged["item_id"].values.tolist() == ids(OLD + NEW)
    assert np.flatnonzero(flagged["item_drifted"].values).tolist() == [1]
    some = np.flatnonzero(np.isfinite(freed["item_drift"].values))
    assert (flagged["item_drift"].values[some] == freed["item_drift"].values[some]).all()


def test_scores_of_a_wave_alone_are_those_of_all(leaked):
    responses, grown = leaked
    view = irt.board_responses(responses, grown)
    both = irt.score(view, grown, method="wle")
    alone = irt.score(view.select(persons=slice(FIRST, None)), grown, method="wle")
    for name in ("person_ability", "person_ability_se"):
        assert (alone[name].values == both[name].values[FIRST:]).all()
    first = irt.score(view.select(persons=slice(0, FIRST)), grown, method="wle")
    assert (first["person_ability"].values == both["person_ability"].values[:FIRST]).all()


def test_the_next_wave_goes_on_from_a_file(leaked, tmp_path):
    from irt_dask.banks.saved import read_bank, write_result

    _, grown = leaked
    y = answers(leak=4.0, waves=(FIRST, JOINED, 40))[0]
    y[: FIRST + JOINED] = answers(leak=4.0)[0]
    write_result(grown, tmp_path / "bank.nc")
    again = irt.grow_bank(board(y), read_bank(tmp_path / "bank.nc"))
    assert again["wave_n_persons"].values.tolist() == [FIRST, JOINED, 40]
    assert again["wave_last_person"].values.tolist() == ["m149", "m209", "m249"]
    assert again.attrs["wave"] == 3
    tested = np.isfinite(again["item_drift"].values)
    names = again["item_id"].values
    # Nobody who joined answered that one; and nobody tests an item with a flag.
    assert [i for i in names[~tested] if grown["item_flag"].values[names == i] == "ok"] == ["q1"]
    assert "q1@2" in names
    assert (irt.grow_bank(board(y), grown).drop_attrs()).equals(again.drop_attrs())
    every = irt.grow_bank(board(y), grown, drift_since="calibration")
    assert np.isfinite(every["item_drift"].values).sum() == tested.sum()
    assert (every["item_drift_se"].values < again["item_drift_se"].values)[[0, 2, 3]].all()


def test_a_store_that_grew(bank, tmp_path):
    y = answers()[0]
    ends = [(0, FIRST, OLD), (FIRST, FIRST + JOINED, OLD + NEW)]
    for k, (lo, hi, m) in enumerate(ends):
        text = ["model," + ",".join(ids(m))]
        text += [f"m{i}," + ",".join(map(str, y[i, :m])) for i in range(lo, hi)]
        (tmp_path / f"{k}.csv").write_text("\n".join(text))
    columns = {"person": "model", "items": "q*"}
    irt.ingest(tmp_path / "0.csv", tmp_path / "board", columns=columns)
    with pytest.warns(Notice, match="12 item"):
        store = irt.append(
            tmp_path / "1.csv", tmp_path / "board", columns=columns, on_duplicate="merge"
        )
    found, direct = irt.grow_bank(store, bank), irt.grow_bank(board(y), bank)
    assert found.drop_attrs().equals(direct.drop_attrs())


def test_other_persons_are_refused(bank, leaked):
    responses, grown = leaked
    with pytest.raises(InputError, match="give the whole board"):
        irt.board_responses(responses.select(persons=slice(FIRST, None)), grown)
    y = answers()[0]
    shuffled = board(y).select(persons=[f"m{i}" for i in range(len(y))])
    turned = irt.from_array(y[::-1], item_id=ids(OLD + NEW))
    with pytest.raises(InputError, match="fewer responses of the first 150 persons"):
        irt.grow_bank(irt.from_array(np.where(np.arange(y.shape[0])[:, None] < 5, -1, y),
                                     item_id=ids(OLD + NEW)), bank)  # fmt: skip
    with pytest.raises(InputError, match="not in the order that they had"):
        irt.grow_bank(turned, bank)
    with pytest.raises(InputError, match="person 150 of the responses is"):
        irt.board_responses(turned, grown)
    assert irt.board_responses(shuffled, grown).n_persons == len(y)
    with pytest.raises(InputError, match="is none"):
        irt.board_responses(responses, bank)
    with pytest.raises(InputError, match="lack 1 item"):
        irt.grow_bank(responses.select(items=ids(OLD + NEW)[1:]), bank)
    with pytest.raises(InputError, match="no person and no item"):
        irt.grow_bank(board(y[:FIRST, :OLD]), bank)
    with pytest.raises(InputError, match="give known="):
        irt.grow_bank(board(y), bank.drop_attrs())


def test_what_ties_nothing_is_refused_and_thin_ties_are_named(bank):
    y = answers()[0]
    y[FIRST:, :OLD] = -1
    with pytest.raises(EstimationError, match="answered new items and none that the bank knows"):
        irt.grow_bank(board(y), bank)
    y[FIRST:, :3] = answers()[0][FIRST:, :3]
    with pytest.warns(DataWarning, match=r"answered 3\.0 items of the bank on average"):
        irt.grow_bank(board(y), bank)


def test_few_who_join_and_banks_without_errors_are_named(bank):
    y = answers()[0]
    with pytest.warns(DataWarning, match="4 person\\(s\\) joined: too few"):
        grown = irt.grow_bank(board(y[: FIRST + 4]), bank)
    assert np.isnan(grown["item_drift"].values).all()
    assert grown["group_label"].values.tolist() == ["waves 1-2"]
    plain = bank[["item_discrimination", "item_intercept", "item_difficulty"]]
    with pytest.warns(DataWarning, match="no standard errors"):
        grown = irt.grow_bank(board(y), plain, known=FIRST)
    assert "taken as known" in grown.attrs["anchor_errors"]
    with pytest.raises(InputError, match="too few to say what items"):
        irt.grow_bank(board(y), bank.isel(items=slice(0, 5)))


@pytest.mark.slow
def test_new_slopes_of_any_sign(bank):
    y = answers()[0]
    y[FIRST:, OLD] = 1 - y[FIRST:, OLD]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        grown = irt.grow_bank(board(y), bank, positive="none")
    slopes = grown["item_discrimination"].values[OLD:]
    assert slopes[0] < 0.0
    assert (slopes[1:] > 0.0).sum() >= 10


@pytest.mark.nightly
def test_five_waves_are_one_joint_fit():
    """Shifts of 8 boards like this one were .002 to .016 SD, correlations .9997 and above."""
    rng = np.random.default_rng(7)
    waves, m = np.repeat(np.arange(5), (300, 75, 75, 75, 75)), 100
    theta, first = rng.standard_normal(waves.size) + 0.4 * waves, np.repeat([0, 2, 4], m)
    a = np.exp(0.15 + 0.3 * rng.standard_normal(3 * m))
    b = rng.standard_normal(3 * m) + 0.3 * first
    y = (rng.random((waves.size, 3 * m)) < expit(a * (theta[:, None] - b))).astype(np.int8)
    y[waves[:, None] < first] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        joint = irt.from_array(y, item_id=ids(3 * m), persons={"group": waves.astype(str)})
        fit = irt.fit_marginal(joint, prior="empirical", standard_errors=False)
        grown = None
        for w in range(5):
            now = board(y[waves <= w][:, first <= w])
            if grown is None:
                grown = irt.fit_marginal(now, prior="empirical", standard_errors=True)
            else:
                grown = irt.grow_bank(now, grown)
        one = irt.score(joint, fit, method="wle")["person_ability"].values
        view = irt.board_responses(board(y), grown)
        two = irt.score(view, grown, method="wle")["person_ability"].values
    assert np.corrcoef(one, two)[0, 1] > 0.999
    assert abs((two - one).mean()) / one.std() < 0.02


# --- several attempts -----------------------------------------------------------------------------


def counted(seed=5, leak=0.0, n=5, joined=20, apart=0.0):
    """Counts of n attempts; questions suit a model or not by an SD of ``apart``."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.3 * rng.standard_normal(OLD + 3)), rng.standard_normal(OLD + 3)
    theta = rng.standard_normal(FIRST + joined) + 0.5 * (np.arange(FIRST + joined) >= FIRST)
    logits = a * (theta[:, None] - b) + apart * rng.standard_normal((theta.size, b.size))
    logits[FIRST:, 1] += leak
    y = rng.binomial(n, expit(logits)).astype(np.int8)
    y[:FIRST, OLD:] = -1
    ids = [f"m{i}" for i in range(len(y))]
    return irt.from_array(y, item_id=[f"q{j}" for j in range(OLD + 3)], person_id=ids,
                          categories=n + 1), a, b  # fmt: skip


def of_first(board):
    """The bank of the first wave."""
    first = board.select(items=ids(OLD), persons=slice(0, FIRST))
    return irt.fit_marginal(first, model="binomial", prior="empirical", standard_errors=True)


@pytest.fixture(scope="module")
def attempts():
    board, a, b = counted(leak=3.0, apart=0.8)
    return board, a, b, of_first(board)


def test_counts_of_attempts_grow_alike(attempts):
    board, _, b, bank = attempts
    with pytest.warns(ItemWarning, match="1 of 30 known items drifted, 1 of them easier.*q1"):
        grown = irt.grow_bank(board, bank)
    assert grown["item_id"].values[-1] == "q1@2"
    assert (grown["item_model"].values == "binomial").all()
    for name in ("item_discrimination", "item_intercept", "item_intercept_se"):
        assert (grown[name].values[:OLD] == bank[name].values).all()
    z = (grown["item_difficulty"].values[OLD:-1] - b[OLD:]) / grown["item_difficulty_se"][OLD:-1]
    assert np.abs(z).max() < 4.0  # of a model that leaves the suiting out
    assert 0.03 < grown.attrs["attempts_correlation"] < 0.25  # .8^2 P (1 - P) is .08 to .16
    view = irt.board_responses(board, grown)
    assert set(view.n_categories) == {6}
    scores = irt.score(view, grown, method="wle")
    assert np.isfinite(scores["person_ability"].values).all()


def test_predicted_counts_against_quadrature(attempts):
    """Chance and correlation of attempts given the other answers; the item's own are left out."""
    board, _, _, bank = attempts
    known = anchor_drift.Known.of(item_set(bank, tuple(ids(OLD))), anchor_drift.em.Population(
        np.array([[0.4]]), np.array([1.1])))  # fmt: skip
    own = board.select(items=ids(OLD), persons=slice(FIRST, None)).read_block(0).data
    n = np.full(OLD, 5)
    row, item, y, chance, alike = anchor_drift._of_own(own, known, np.arange(OLD), n)
    theta = np.linspace(-8, 9, 6001)
    a, d = bank["item_discrimination"].values, bank["item_intercept"].values
    p = expit(a[:, None] * theta + d[:, None])
    for k in range(0, row.size, 97):
        others = np.arange(OLD) != item[k]
        counts = y[row == row[k]][:, None]
        like = (counts * np.log(p) + (5 - counts) * np.log1p(-p))[others].sum(axis=0)
        weight = np.exp(like - like.max() - 0.5 * ((theta - 0.4) / 1.1) ** 2)
        weight /= weight.sum()
        mean = weight @ p[item[k]]
        spread = weight @ (p[item[k]] - mean) ** 2
        assert chance[k] == pytest.approx(mean, abs=1e-6)
        assert alike[k] == pytest.approx(spread / (mean * (1 - mean)), rel=1e-4, abs=1e-7)


def test_other_attempts_and_other_models_are_refused(attempts):
    board, _, _, bank = attempts
    other = counted(n=4)[0]
    with pytest.raises(InputError, match="item 'q0' has 4 attempts at most, and the bank has it"):
        irt.grow_bank(other, bank)
    first = board.select(items=ids(OLD), persons=slice(0, FIRST))
    with pytest.warns(DataWarning, match="category that nobody has"):
        graded = irt.fit_marginal(
            first, model="gpcm", standard_errors=False, null_categories="keep"
        )
    with pytest.raises(InputError, match="by the model 'gpcm' with 6: a board grows by items"):
        irt.grow_bank(board, graded)


@pytest.mark.slow
def test_attempts_that_are_alike_are_no_drift(monkeypatch):
    """Nothing drifted: 180 p-values of 6 boards, of which .05 are expected below .05.

    False alarm: one in 500, as if they were independent.  Of 600 such values 4.2% were below .05,
    and 13% where attempts were taken as independent: 24 of 180.
    """

    def below():
        found = []
        for seed in range(6):
            board, _, _ = counted(seed, n=10, joined=60, apart=1.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IrtDaskWarning)
                grown = irt.grow_bank(board, of_first(board), on_drift="flag")
            found += grown["item_drift_p_value"].values[:OLD].tolist()
        return int((np.array(found) < 0.05).sum())

    assert below() <= 18
    monkeypatch.setattr(anchor_drift, "_beyond_ability", lambda sums, se: 0.0)
    assert below() > 18


# --- parts ----------------------------------------------------------------------------------------


def test_sums_of_counts_against_all_outcomes():
    p, r = np.array([0.1, 0.5, 0.9, 0.3]), np.array([0.0, 0.2, 0.6, 1.0])
    for n in (1, 3):
        each = np.array([mass_of(n, *x) for x in zip(p, r, strict=True)])
        mass = np.zeros(4 * n + 1)
        for y in itertools.product(range(n + 1), repeat=4):
            mass[sum(y)] += np.prod(each[np.arange(4), y])
        found = predicted_counts.count_mass(np.stack([p, 1 - p], axis=1), r, n)
        assert np.allclose(found[:, :, 0], each, atol=1e-14)
        assert np.allclose(found[:, ::-1, 1], each, atol=1e-14)  # wrong for right
        assert np.allclose(predicted_counts.sum_of(found)[0], mass, atol=1e-14)


def mass_of(n, p, r):
    """Right attempts of n whose correlation is r, by scipy."""
    k = np.arange(n + 1)
    if r == 0.0:
        return stats.binom(n, p).pmf(k)
    if r == 1.0:
        return np.where(k == 0, 1 - p, np.where(k == n, p, 0.0))
    return stats.betabinom(n, p * (1 - r) / r, (1 - p) * (1 - r) / r).pmf(k)


@pytest.mark.parametrize("attempts", [1, 9])
def test_tails_of_many_are_those_of_the_exact_sum(monkeypatch, attempts):
    rng = np.random.default_rng(1)
    n = np.full(6, attempts)
    classes = Classes.of(n)
    size, persons = classes.logits.size, 280 if attempts == 1 else 33
    likely = (np.abs(classes.logits) < 5) & (classes.alike < 0.3)
    counts = rng.multinomial(persons, likely / likely.sum(), size=6)
    assert counts.shape == (6, size)
    p = expit(classes.logits)
    away = np.array([-12, -6, -2, 0, 3, 8])
    right = np.rint((counts * p).sum(axis=1) * attempts + away).astype(np.int64)
    counted, se = Counted(counts, right, n, classes), np.full(6, 0.2)
    exact = predicted_counts.tails(counted, se)
    monkeypatch.setattr(predicted_counts, "_EXACT", 0)
    assert np.allclose(predicted_counts.tails(counted, se), exact, rtol=0.08)


def test_classes_are_near_what_they_stand_for():
    rng = np.random.default_rng(2)
    chance, alike = expit(rng.uniform(-9, 9, 500)), np.exp(rng.uniform(-7, -0.6, 500))
    classes = Classes.of(np.array([1, 4]))
    at = classes.place(chance, alike)
    assert np.abs(classes.logits[at] - np.log(chance / (1 - chance))).max() < 0.1
    ratio = classes.alike[at] / alike
    assert ((ratio < 1.3) & (ratio > 0.75) | (alike < 0.001)).all()
    assert (classes.alike[classes.place(chance, np.zeros(500))] == 0.0).all()


def test_predictions_against_quadrature(bank):
    y = answers()[0][FIRST : FIRST + 7, :OLD]
    responses = board(y)
    models, x = Mixture.of_items(item_set(bank, tuple(ids(OLD))))
    errors = bank_errors(bank, tuple(ids(OLD)), models)[:, :2, :2]
    found = anchor_drift.drifts(responses, bank, errors, np.zeros(OLD, dtype=np.int64), 0.05)
    theta = np.linspace(-8, 8, 4001)
    prior = np.exp(-0.5 * ((theta - found.mean) / found.sd) ** 2)
    p = expit(x[0][:, None] * theta + x[1][:, None])
    like = np.where(y[:, :, None] == 1, p, 1 - p)
    for j in range(0, OLD, 7):
        weight = prior * np.delete(like, j, axis=1).prod(axis=1)
        chance = weight @ p[j] / weight.sum(axis=1)
        at = np.array([found.mean, 1.0])
        nodes, w = np.polynomial.hermite_e.hermegauss(11)
        moved = np.log(chance / (1 - chance))[:, None] + np.sqrt(at @ errors[j] @ at) * nodes
        each = predicted_counts.count_mass(expit(moved), np.zeros(len(y)), 1)
        mass = w / w.sum() @ predicted_counts.sum_of(each)
        k = int(y[:, j].sum())
        below = mass[:k].sum() + 0.5 * mass[k]
        # Classes of logits are .05 wide.
        assert found.p_value[j] == pytest.approx(min(1, 2 * min(below, 1 - below)), abs=0.02)


def test_spread_of_values_with_errors():
    rng = np.random.default_rng(5)
    true, se = 1.0 + 0.4 * rng.standard_normal(4000), rng.uniform(0.1, 0.8, 4000)
    seen = true + se * rng.standard_normal(4000)
    none, every = np.zeros(4000, dtype=bool), np.ones(4000, dtype=bool)
    assert _spread(seen, se**2, none) == pytest.approx((1.0, 0.4), abs=0.03)
    left = 1 / (1 / se**2 + 1 / 0.16)
    drawn = left * (seen / se**2 + 1.0 / 0.16)
    assert _spread(drawn, left, every) == pytest.approx((1.0, 0.4), abs=0.03)


def test_small_waves_are_joined():
    assert pools(np.array([50, 75, 80, 95, 100])).tolist() == [0, 1, 2, 2, 2]
    assert pools(np.array([10, 15, 18])).tolist() == [0, 0, 0]
