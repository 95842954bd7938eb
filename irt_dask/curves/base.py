"""What an item model says, and what follows from it for every model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Parameter:
    """A number of each item.

    ``variable`` is what it is called in results, ``letter`` in files of banks, ``name`` in words.
    ``bounds`` are those of marginal maximum likelihood, far from what items have; a value that ends
    there is none, but for a bound that is an ``answer`` (nobody guesses).  ``neutral`` is the value
    at which the model is one without the parameter (None: there is no such value), ``usual`` where
    searches start, ``prior`` the Beta(alpha, beta) density that estimation uses unless told
    otherwise.  ``joint`` are the bounds of joint maximum likelihood, which is available where all
    are finite; ``joint_starts`` the value that it starts from (none: the usual one) and others at
    which it looks for higher maxima.
    """

    letter: str
    variable: str
    name: str
    bounds: tuple[float, float]
    usual: float
    neutral: float | None = None
    answer: float | None = None
    prior: tuple[float, float] | None = None
    joint: tuple[float, float] = (-np.inf, np.inf)
    joint_starts: tuple[float, ...] = ()
    #: Whether files of banks have its column even where no item needs it.
    always_written: bool = False
    #: Of the parameters that are one variable of (items, steps): the step, from 1; else 0.
    step: int = 0


class ItemModel:
    """Curves of the items of one family: P(category | ability).

    Parameters ``x`` have shape (parameters, items), nodes of ability (nodes,).
    """

    name: str
    #: K: responses are 0 to K - 1.
    n_categories: int = 2
    parameters: tuple[Parameter, ...]
    #: Parameters that all items share when they are estimated.
    shared: tuple[str, ...] = ()
    #: Two categories, whose log odds are ``x[0] theta + x[1]``: formulas of their own pay for them.
    log_odds: bool = False
    #: Two categories, ``P = c + (u - c) sigma(x[0] theta + x[1])``: places of c and u in x; None
    #: where it is 0, or 1.
    asymptotes: tuple[int | None, int | None] | None = None
    #: What :meth:`valid` asks of parameters, in words.
    rule: str

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """Log probability of each category, (items, categories, nodes)."""
        raise NotImplementedError

    def by_ability(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of ``log_p`` by ability, in its shape."""
        raise NotImplementedError

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """Derivatives of ``log_p`` by the parameters, (parameters, items, categories, nodes)."""
        raise NotImplementedError

    def scores(self, x: Floats) -> Floats | None:
        """Scores s, (items, categories), where ``log P = s theta + c - log Z(theta)``; else None.

        A person's likelihood depends on the responses through the sum of their scores alone then.
        """
        return None

    def rescaling(self, mean: float, sd: float) -> Floats:
        """Matrix (parameters, parameters) to the items' parameters for ``(theta - mean) / sd``."""
        raise NotImplementedError

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """Ability at the middle of an item, (items,), and its gradient, (parameters, items)."""
        raise NotImplementedError

    def step_intercepts(self, x: Floats) -> tuple[Floats, Floats]:
        """Intercepts d_1 to d_{K-1} (steps, items); their gradients (steps, parameters, items)."""
        raise NotImplementedError

    def step_difficulties(self, x: Floats) -> tuple[Floats, Floats]:
        """Abilities b_1 to b_{K-1} at which steps are as likely as not, and their gradients.

        Shapes as those of :meth:`step_intercepts`.
        """
        raise NotImplementedError

    def ends(self, x: Floats) -> tuple[Ints, Ints]:
        """Category of those with the lowest abilities, and with the highest, (items,)."""
        lowest = np.zeros(x.shape[1], dtype=np.int64)
        return lowest, lowest + (self.n_categories - 1)

    def floor(self, x: Floats) -> Floats:
        """Probability of the highest category far below the item, (items,)."""
        return np.zeros(x.shape[1])

    def where(self, difficulty: Floats, discrimination: Floats) -> Floats:
        """Intercept of items that are given by their difficulty."""
        raise NotImplementedError

    def valid(self, x: Floats) -> Bools:
        """Whether parameters, which are finite, describe an item; (items,)."""
        raise NotImplementedError

    def steepness(self, x: Floats) -> Floats:
        """A slope s such that ``log_p`` has no singularity within pi / s of real abilities."""
        raise NotImplementedError

    # --- what follows ---------------------------------------------------------------------------

    def in_words(self, x: Floats) -> str:
        """Parameters of one item for a message."""
        words = [f"{p.name} {v:.6g}" for p, v in zip(self.parameters, x, strict=True)]
        return f"{', '.join(words[:-1])} and {words[-1]}"

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters of the parameters."""
        return tuple(p.letter for p in self.parameters)

    def information(self, x: Floats, nodes: Floats) -> Floats:
        """Fisher information on ability, (items, nodes)."""
        slope, _ = self.by_ability(x, nodes)
        return np.asarray((np.exp(self.log_p(x, nodes)) * slope**2).sum(axis=1))

    def sharpness(self, x: Floats, nodes: Floats) -> Floats:
        """Largest curvature that a response can give a log posterior, (items, nodes)."""
        return np.asarray(np.maximum(-self.by_ability(x, nodes)[1].min(axis=1), 0.0))
