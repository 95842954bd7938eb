"""Sensitivity bounds of responses under the 3PL model (Frick et al., appendix A.3), by person."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: mu-complexity where none is given: the median on the paper's 3PL data (Table 20: 2.00-2.19).
MU = 2.0
#: Below this guessing parameter an item counts as one that nobody guesses.
_LEAST_GUESSING = 1e-3


class LabelTerms(NamedTuple):
    """Score of a response y to item j: ``slope[y, j] |U_i| + base[y, j]``; shapes (2, items)."""

    slope: Floats
    base: Floats


def label_terms(wrong: Floats, right: Floats, guessing: Floats, mu: float = MU) -> LabelTerms:
    """Sensitivity bounds of a response in the problem of its item (Lemmas A.14 and A.15).

    With n' persons wrong on the item, n'' right, guessing parameter c:
    ``42.5 mu^2 (|U_i| + 1/n')`` for a wrong answer, ``3.5 E (1 + mu) / n''`` for a right one,
    E the largest ``log(1/c)`` over items.

    Deviations from the paper, whose lemmas are for one person's problem over items:

    - Rows are persons, ``(theta_i, 1)``, and there is one problem for each item, so m', m'' become
      n', n''.  U is of the rows of all persons, as Lemma 3.1 allows where all answer all items.
    - A loss that nobody guesses is not bounded, and E is infinite.  Items with c below 0.001 are
      left out of E; for them right and wrong answers have the same loss with opposite signs, so
      Lemma A.14 holds for right answers too, n'' in place of n'.
    - The paper prints h(z) with exp(-z), which falls; ``x_i = -y_i (theta_i, 1)`` needs
      exp(z), which rises, as the proof of A.15 assumes.
    - The proof of A.12 needs ``|X''eta|_1 <= 2 mu |X'eta|_1``; Theorem 3.3 assumes the converse.
      And no finite mu bounds X' or X'' alone: their rows all have the same sign in the constant
      column, so ``eta = (0, 1)`` has no negative entries.  The lemmas are therefore no guarantee
      here, for any mu: mu only says how much responses that are wrong count next to rare right
      ones.  Sums stay unbiased whatever the scores.
    """
    linear = 42.5 * mu * mu
    # an item that nobody has wrong (right) has no such responses to score
    one_wrong, one_right = (
        np.divide(1.0, n, out=np.zeros(n.size), where=n > 0) for n in (wrong, right)
    )
    guessed = guessing >= _LEAST_GUESSING
    largest = -np.log(guessing[guessed].min()) if guessed.any() else 0.0
    slope = np.stack([np.full(wrong.size, linear), np.where(guessed, 0.0, linear)])
    factor = np.where(guessed, 3.5 * largest * (1.0 + mu), linear)
    return LabelTerms(slope, np.stack([linear * one_wrong, factor * one_right]))


@jit
def _largest(
    indptr: Any, indices: Any, values: Any, length: Floats, slope: Floats, base: Floats, out: Floats
) -> None:
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            y = row[k]
            if y >= 0:
                j = item(items, k)
                out[i] = max(out[i], slope[y, j] * length[i] + base[y, j])


def label_scores(data: Layout, length: Floats, terms: LabelTerms) -> Floats:
    """Largest sensitivity bound of each person over the items; NaN without responses; (persons,).

    One coreset serves all items, so a person's score is the largest of its responses'.
    ``length`` is ``|U_i|``, the square root of the leverage score.
    """
    out = np.where(np.isnan(length), np.nan, 0.0)
    _largest(*rows.arrays(data), length, *terms, out)
    return out
