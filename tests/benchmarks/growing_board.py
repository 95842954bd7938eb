"""A board that grows against one joint fit: abilities, drift of questions, intervals of new ones.

    python tests/benchmarks/growing_board.py [--sets 20] [--models 300,75,75,75,75]
        [--questions 100] [--prior bank]

Simulated: five waves of models, each .4 SD abler than the one before on average, and three of
questions (with the first, third and fifth wave of models), harder by .6 each time.  A model answers
the questions that there are when it joins, and older models answer no new ones.  The bank of the
first wave is a fit with a learned prior; ``grow_bank`` takes it from wave to wave.

``joint`` is one fit of all with a group for each wave.  Shown of all sets: the correlation of
abilities (WLE) with those of the joint fit, and the mean shift in SDs of the board, overall and at
most of any wave; the same against the truth for both.  Then 5% of the first questions leak: models
of the third wave and later answer them with logits 1.5 and 2.5 higher.  How many are found, the
share of false ones, and the shift of the last wave's ability against the fit without a leak, freed
and not.  Last, how often intervals of new questions (estimate +- 1.96 SE) hold the true difficulty
and slope: abilities of the first wave have mean 0 and SD 1 exactly, so that its scale is the true
one.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy.special import expit

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning

RISE, HARDER, LEAK_AT = 0.4, 0.6, 2


class Board:
    """True abilities and questions, and answers."""

    def __init__(self, seed, models, questions, leak=0.0, share=0.05):
        rng = np.random.default_rng([seed, 77])
        self.models, self.n = models, np.cumsum(models)
        self.wave = np.repeat(np.arange(5), models)
        self.theta = rng.standard_normal(self.n[-1]) + RISE * self.wave
        self.theta[: models[0]] -= self.theta[: models[0]].mean()
        self.theta[: models[0]] /= self.theta[: models[0]].std()
        self.first = np.repeat([0, 2, 4], questions)  # wave with which a question comes
        m = self.first.size
        self.a = np.exp(0.15 + 0.3 * rng.standard_normal(m))
        self.b = rng.standard_normal(m) + HARDER * self.first / 2
        u = rng.random((self.n[-1], m))
        old = np.flatnonzero(self.first == 0)
        self.leaked = np.zeros(m, dtype=bool)
        self.leaked[rng.choice(old, int(share * old.size), replace=False)] = leak > 0
        logits = self.a * (self.theta[:, None] - self.b)
        logits += leak * (self.leaked & (self.wave[:, None] >= LEAK_AT))
        self.y = (u < expit(logits)).astype(np.int8)
        self.y[self.wave[:, None] < self.first] = -1

    def responses(self, waves):
        """The board when so many waves have joined."""
        m = int((self.first < waves).sum())
        return irt.from_array(self.y[: self.n[waves - 1], :m], item_id=[f"q{j}" for j in range(m)])

    def joint(self):
        """All in one fit."""
        persons = {"group": [f"w{w}" for w in self.wave]}
        ids = [f"q{j}" for j in range(self.first.size)]
        r = irt.from_array(self.y, persons=persons, item_id=ids)
        fit = irt.fit_marginal(r, prior="empirical", standard_errors=False)
        return irt.score(r, fit, method="wle")["person_ability"].values, fit

    def grown(self, **options):
        """Bank by bank; abilities, the last bank, and those found to have drifted by wave."""
        bank = irt.fit_marginal(self.responses(1), prior="empirical", standard_errors=True)
        found = []
        for waves in range(2, 6):
            bank = irt.grow_bank(self.responses(waves), bank, **options)
            tested = bank["item_drift_q_value"].values
            found.append({str(i) for i, q in zip(bank["item_id"].values, tested, strict=True)
                          if q <= 0.05})  # fmt: skip
        r = irt.board_responses(self.responses(5), bank)
        return irt.score(r, bank, method="wle")["person_ability"].values, bank, found


def compared(x, y, wave):
    """Correlation, mean shift and largest mean shift of a wave, in SDs of y."""
    ok = np.isfinite(x) & np.isfinite(y)
    apart = (x - y)[ok] / y[ok].std()
    by_wave = [apart[wave[ok] == w].mean() for w in range(5)]
    return np.corrcoef(x[ok], y[ok])[0, 1], apart.mean(), max(by_wave, key=abs)


def held(board, bank):
    """Whether intervals of new questions hold the truth."""
    ids = bank["item_id"].values.astype(str)
    place = np.array([int(i.split("@")[0][1:]) for i in ids])
    new = (bank["item_wave"].values > 1) & np.array(["@" not in i for i in ids])
    out = {"wave": bank["item_wave"].values[new]}
    for name, truth in {"difficulty": board.b, "discrimination": board.a}.items():
        x, se = bank[f"item_{name}"].values[new], bank[f"item_{name}_se"].values[new]
        out[name] = np.abs(x - truth[place[new]]) <= 1.96 * se
    return out


def main():
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--models", default="300,75,75,75,75")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--prior", default="bank")
    args = parser.parse_args()
    models = [int(n) for n in args.models.split(",")]
    began = time.time()
    print(f"{args.sets} sets, models {models}, {args.questions} questions three times")
    rows, cover, bases = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        for seed in range(args.sets):
            board = Board(seed, models, args.questions)
            joint, _ = board.joint()
            x, bank, found = board.grown(prior=args.prior)
            rows.append(
                [
                    *compared(x, joint, board.wave),
                    *compared(x, board.theta, board.wave),
                    *compared(joint, board.theta, board.wave),
                    len(set().union(*found)),
                ]
            )
            cover.append(held(board, bank))
            bases.append(x)
    rows = np.array(rows)
    for k, name in enumerate(("grown and joint", "grown and truth", "joint and truth")):
        r, shift, wave = rows[:, 3 * k : 3 * k + 3].T
        print(f"{name}: r {r.mean():.4f} (least {r.min():.4f}), shift {shift.mean():.4f}, absolute "
              f"{np.abs(shift).mean():.4f} (largest {np.abs(shift).max():.4f}), of a wave "
              f"{np.abs(wave).mean():.4f} (largest {np.abs(wave).max():.4f})")  # fmt: skip
    print(
        f"no leak: {int((rows[:, 9] > 0).sum())} sets with a question named, {rows[:, 9].sum():g}"
    )
    for w in (3, 5):
        for name in ("difficulty", "discrimination"):
            ok = np.concatenate([c[name][c["wave"] == w] for c in cover])
            print(f"intervals of {name}, wave {w}: {ok.mean():.3f} of {ok.size}")
    for leak in (1.5, 2.5):
        leaked(args, models, leak, bases)
    print(f"{time.time() - began:.0f} s")


def leaked(args, models, leak, bases):
    """Questions that leak."""
    rows, late = [], 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        for seed, base in enumerate(bases):
            board = Board(seed, models, args.questions, leak)
            own = board.wave == late
            freed, _, found = board.grown(prior=args.prior)
            flagged = board.grown(on_drift="flag", prior=args.prior)[0]
            wrong = {f"q{j}" for j in np.flatnonzero(board.leaked)}
            now = {i.split("@")[0] for i in found[1]}
            ever = {i.split("@")[0] for some in found for i in some}
            apart = [(x - base)[own].mean() / base.std() for x in (freed, flagged)]
            rows.append([len(wrong & now) / len(wrong), len(wrong & ever) / len(wrong),
                         len(ever - wrong) / max(len(ever), 1), *apart])  # fmt: skip
    rows = np.array(rows).mean(axis=0)
    print(f"leak {leak}: found at once {rows[0]:.3f}, ever {rows[1]:.3f}, false {rows[2]:.3f}; "
          f"last wave moves by {rows[3]:.4f} SD freed, {rows[4]:.4f} not")  # fmt: skip


if __name__ == "__main__":
    main()
