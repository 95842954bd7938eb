"""What an item model says, and what follows from it for every model."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def renumbered(p: Parameter, categories: Ints) -> Parameter:
    """The parameter of a step of some ``categories``, as one of the step to that category."""
    if not p.step:
        return p
    k = int(categories[p.step])
    return replace(p, letter=f"{p.letter[0]}{k}", name=f"{p.name.rpartition(' ')[0]} {k}", step=k)


#: Kinds of steps, see :attr:`ItemModel.steps`.
ADJACENT, CUMULATIVE = "adjacent", "cumulative"


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
    #: What its steps are, which files and Datasets say by intercepts d_k and difficulties b_k:
    #: ADJACENT (k against k - 1: d_k = -a (b_1 + ... + b_k)), CUMULATIVE (k or more: d_k = -a b_k,
    #: which rise), or a kind of its own, with d_k = -a b_k.  Of one kind the same numbers are the
    #: same curves.
    steps: str
    #: The model of MODELS that has its curves where there are two categories; "": itself.
    of_two: str = ""
    #: Whether scores are the discrimination times numbers of categories, which need not be 0, 1, 2.
    numbered: bool = False

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

    def start(self, x: Floats, n: Floats) -> None:
        """Fill in intercepts that belong to counts of categories, (items, categories), in place.

        Abilities are N(0, 1); the slopes of x are given.
        """
        raise NotImplementedError

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """Parameters of items with these scores (0 for the first category) and step intercepts.

        Both (steps, items); models with a discrimination a have scores a, 2 a, ...
        """
        raise NotImplementedError

    def category_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """Scores that are parameters (categories, items), and their gradients: nominal items."""
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

    @property
    def category_map(self) -> tuple[int, ...]:
        """Number of each code in the model's formulas; -1: a category that has P = 0."""
        return tuple(range(self.n_categories))

    def farthest(self, x: Floats, nodes: Floats) -> Floats:
        """Largest -log P of the categories at the nodes, (items,)."""
        return np.asarray(-self.log_p(x, nodes).min(axis=(1, 2)))

    def slope(self, x: Floats) -> tuple[Floats, Floats]:
        """Discrimination, (items,), and its gradient, (parameters, items)."""
        gradient = np.zeros_like(x)
        gradient[0] = 1.0
        return x[0], gradient

    def intercept(self, x: Floats) -> tuple[Floats, Floats]:
        """Discrimination times minus the difficulty, and its gradient."""
        (a, by_a), (b, by_b) = self.slope(x), self.difficulty(x)
        return -a * b, -by_a * b - a * by_b

    def thresholds(self, x: Floats) -> tuple[Floats, Floats]:
        """Abilities at which P(category k or higher) is 1/2 (Thurstone), and their gradients.

        Shapes as those of :meth:`step_intercepts`.  NaN where no ability has that, or several may.
        """
        return _thresholds(self, x)

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


# --- thresholds -----------------------------------------------------------------------------------

#: Doublings of an interval that a threshold may lie in, and halvings until it is found.
_DOUBLINGS, _BISECTIONS = 40, 80


def _moved(model: ItemModel, x: Floats, ability: Floats) -> tuple[Floats, Floats]:
    """Parameters that have at 0 what x has at abilities, one an item; their derivatives by x.

    (parameters, items) and (parameters, parameters, items): scales change by matrices that are
    linear in the mean.
    """
    still = model.rescaling(0.0, 1.0)
    by_mean = model.rescaling(1.0, 1.0) - still
    change = still[:, :, None] + by_mean[:, :, None] * ability
    return np.einsum("pqm,qm->pm", change, x), change


def _thresholds(model: ItemModel, x: Floats) -> tuple[Floats, Floats]:
    steps, zero = model.n_categories - 1, np.zeros(1)
    value, gradient = np.empty((steps, x.shape[1])), np.empty((steps, *x.shape))
    for k in range(1, steps + 1):

        def reaches(ability: Floats, k: int = k) -> Floats:
            log_p = model.log_p(_moved(model, x, ability)[0], zero)[:, :, 0]
            return np.asarray(np.exp(log_p[:, k:]).sum(axis=1))

        low, high = np.full(x.shape[1], -1.0), np.ones(x.shape[1])
        for _ in range(_DOUBLINGS):
            low = np.where(reaches(low) > 0.5, 2.0 * low, low)
            high = np.where(reaches(high) < 0.5, 2.0 * high, high)
        known = (reaches(low) <= 0.5) & (reaches(high) >= 0.5)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            above = reaches(middle) > 0.5
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        at = 0.5 * (low + high)
        moved, change = _moved(model, x, at)
        p = np.exp(model.log_p(moved, zero))[:, k:]
        rise = (p * model.by_ability(moved, zero)[0][:, k:]).sum(axis=(1, 2))
        by_moved = (p * model.by_parameter(moved, zero)[:, :, k:]).sum(axis=(2, 3))
        with np.errstate(divide="ignore", invalid="ignore"):
            by_x = -np.einsum("pm,pqm->qm", by_moved, change) / rise
        value[k - 1] = np.where(known, at, np.nan)
        gradient[k - 1] = np.where(known, by_x, np.nan)
    return value, gradient
