"""What an item model says, and what follows from it for every model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.coordinates import Coordinates


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
    #: Its items without bounds, for Bayesian estimation; None: that is not available.
    coordinates: Coordinates | None = None
    #: Whether scores are the discrimination times numbers of categories, which need not be 0, 1, 2.
    numbered: bool = False
    #: Whether a category that nobody has is one like others, as it has no parameter of its own.
    all_categories: bool = False

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
        falls, last = self.slope(x)[0] < 0.0, self.n_categories - 1
        return np.where(falls, last, 0), np.where(falls, 0, last)

    def floor(self, x: Floats) -> Floats:
        """Probability of the highest category at the end of abilities that have it least."""
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
    def without_bounds(self) -> bool:
        """Whether it has coordinates of all its parameters."""
        c = self.coordinates
        return c is not None and c.size == len(self.parameters)

    @property
    def slopes_alone(self) -> bool:
        """Whether it has coordinates, and a slope is all of them that has the unit of ability."""
        return self.coordinates is not None and not self.coordinates.scored

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
        falls, turn = self.slope(x)[0] < 0.0, self.rescaling(0.0, -1.0)
        value, gradient = _thresholds(self, np.where(falls, turn @ x, x))
        return np.where(falls, -value, value), np.where(falls, -(turn.T @ gradient), gradient)

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

#: Doublings of an interval that a threshold may lie in, and steps until it is found.
_DOUBLINGS, _STEPS = 40, 200
#: The error of P at a threshold, or of that, next to its size if it is above 1.
_NEAR = 4e-15


class _Higher:
    """P of category k or a higher one for all k > 0: items follow each other once for each k."""

    def __init__(self, model: ItemModel, x: Floats) -> None:
        self.model, self.x = model, np.tile(x, model.n_categories - 1)
        k = np.repeat(np.arange(1, model.n_categories), x.shape[1])
        self.counts = np.arange(model.n_categories) >= k[:, None]
        # scales change by matrices that are linear in the mean
        self.still = model.rescaling(0.0, 1.0)[:, :, None]
        self.by_mean = model.rescaling(1.0, 1.0)[:, :, None] - self.still

    def change(self, ability: Floats) -> Floats:
        """Derivatives by x of what has at 0 what x has at abilities, one an item."""
        return self.still + self.by_mean * ability

    def moved(self, ability: Floats) -> Floats:
        """Parameters that have at 0 what x has at abilities."""
        return np.einsum("pqm,qm->pm", self.change(ability), self.x)

    def excess(self, ability: Floats) -> Floats:
        """P less 1/2."""
        log_p = self.model.log_p(self.moved(ability), np.zeros(1))[:, :, 0]
        return np.asarray((np.exp(log_p) * self.counts).sum(axis=1) - 0.5)

    def at(self, ability: Floats) -> tuple[Floats, Floats]:
        """P less 1/2, and its derivative by ability."""
        moved, zero = self.moved(ability), np.zeros(1)
        p = np.exp(self.model.log_p(moved, zero))[:, :, 0] * self.counts
        rise = (p * self.model.by_ability(moved, zero)[0][:, :, 0]).sum(axis=1)
        return p.sum(axis=1) - 0.5, rise

    def by_parameter(self, ability: Floats) -> Floats:
        """Derivatives of P by x, (parameters, items)."""
        moved, zero = self.moved(ability), np.zeros(1)
        p = np.exp(self.model.log_p(moved, zero))[:, :, 0] * self.counts
        by_moved = (p * self.model.by_parameter(moved, zero)[..., 0]).sum(axis=2)
        return np.einsum("pm,pqm->qm", by_moved, self.change(ability))


def _thresholds(model: ItemModel, x: Floats) -> tuple[Floats, Floats]:
    """Roots by Newton steps, or halvings where these leave the interval or are slow.

    Slopes are positive: P(category k or higher) rises.
    """
    higher, shape = _Higher(model, x), (model.n_categories - 1, x.shape[1])
    low, high = np.full((2, shape[0] * shape[1]), [[-1.0], [1.0]])
    for _ in range(_DOUBLINGS):
        too_high, too_low = higher.excess(low) > 0.0, higher.excess(high) < 0.0
        if not (too_high | too_low).any():
            break
        low, high = np.where(too_high, 2.0 * low, low), np.where(too_low, 2.0 * high, high)
    known = (higher.excess(low) <= 0.0) & (higher.excess(high) >= 0.0)
    at, step, done = 0.5 * (low + high), high - low, ~known
    for _ in range(_STEPS):
        excess, rise = higher.at(at)
        low, high = np.where(excess > 0.0, low, at), np.where(excess > 0.0, at, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            to = at - excess / rise
        done |= (np.abs(excess) <= _NEAR) | (high - low <= _NEAR * np.maximum(np.abs(at), 1.0))
        if done.all():
            break
        fast = (to >= low) & (to <= high) & (np.abs(to - at) <= 0.5 * step)
        to = np.where(fast, to, 0.5 * (low + high))
        step, at = np.abs(to - at), np.where(done, at, to)
    rise, by_x = higher.at(at)[1], higher.by_parameter(at)
    with np.errstate(divide="ignore", invalid="ignore"):
        gradient = np.where(known, -by_x / rise, np.nan)
    return (
        np.where(known, at, np.nan).reshape(shape),
        gradient.reshape(len(x), *shape).swapaxes(0, 1),
    )
