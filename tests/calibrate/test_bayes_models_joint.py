"""Joint distribution tests (Geweke 2004) of chains of items of any model.

Many small replicates run side by side as one data set, in which each person answers the items of
one of them.  Each starts in its prior and alternates data given items with one sweep given data,
and so stays in the prior.
"""

from __future__ import annotations

import numpy as np
import pytest
from categories import category_probability
from scipy.stats import truncnorm

from irt_dask.calibrate.bayes import model_chain
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.item_moves import Abilities, FixedMoves, LearnedMoves
from irt_dask.calibrate.bayes.item_step import Reference, metropolis, words_per_item
from irt_dask.calibrate.bayes.scored_moves import ScoredMoves
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.calibrate.shared.shape_priors import guessing_priors
from irt_dask.curves import model_named
from irt_dask.curves.coordinates import Density, nothing
from irt_dask.curves.grids import Grid
from irt_dask.curves.priors import ItemPrior
from irt_dask.items.mixture import Mixture, Part
from irt_dask.kernels.gibbs.learned_item_draws import ALL_POSITIVE
from irt_dask.kernels.gibbs.table_draws import lay_out
from irt_dask.kernels.posterior.tables import padded
from irt_dask.kernels.responses.layouts import Sparse

TIGHT = Hierarchy(
    mean=(0.1, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((1.5, 0.5), (0.5, 13.0))
)  # fmt: skip
SIGNED = ItemPrior(loading=(0.2, 0.8), intercept=(0.0, 1.5))
SIGNED_TIGHT = SignedHierarchy(
    mean=(0.1, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((8.0, 0.5), (0.5, 13.0))
)  # fmt: skip
KINDS = ("fixed", "learned", "signed", "signed, learned")
#: Models of the items of a replicate, and categories.
TESTS = {
    "3pl": [("3pl", 2)] * 4,
    "4pl": [("4pl", 2)] * 4,
    "gpcm": [("gpcm", 4)] * 4,
    "graded": [("graded", 4)] * 4,
    "mixture": [("2pl", 2), ("3pl", 2), ("graded", 3), ("gpcm", 5)],
}
#: Of a fixed prior and slopes of any sign alone.
SCORED = {"scores": [("nominal", 4), ("2pl", 2), ("nominal", 3), ("nominal", 2)]}


# --- items from the prior, in textbook parameters -------------------------------------------------


def prior_draws(rng, test, n, kind):
    """Parameters (n, P) of each item of a replicate."""
    m = len(test)
    if kind == "fixed":
        a = truncnorm.rvs(-1.0, np.inf, loc=1.0, size=(n, m), random_state=rng)
        d = rng.normal(0.0, 2.0, (n, m))
    elif kind == "signed":
        a, d = rng.normal(*SIGNED.loading, (n, m)), rng.normal(*SIGNED.intercept, (n, m))
    else:
        prior = SIGNED_TIGHT if kind == "signed, learned" else TIGHT
        mean = rng.normal(prior.mean, prior.mean_sd, (n, 2))
        # the inverse of a Wishart matrix: sums of outer products of normals
        root = np.linalg.cholesky(np.linalg.inv(np.array(prior.scale)))
        z = rng.standard_normal((n, int(prior.df), 2)) @ root.T
        sigma = np.linalg.inv(z.transpose(0, 2, 1) @ z)
        x = mean[:, None] + rng.standard_normal((n, m, 2)) @ np.linalg.cholesky(sigma).transpose(
            0, 2, 1
        )
        a, d = prior.slopes(np.moveaxis(x, 2, 1)), x[..., 1]
    items = []
    for j, (name, k) in enumerate(test):
        if name in ("2pl", "3pl", "4pl"):
            own = [a[:, j], d[:, j]]
            if name != "2pl":
                own.append(rng.beta(5.0, 17.0, n))
            if name == "4pl":
                own.append(rng.beta(17.0, 5.0, n))
        elif name == "gpcm":
            steps = rng.normal(0.0, 2.0, (n, k - 1))
            steps += d[:, j, None] - steps.mean(axis=1, keepdims=True)
            own = [a[:, j], *np.cumsum(steps, axis=1).T]
        elif name == "nominal":  # lines, and what departs from them
            shapes = [
                np.cumsum(z - z.mean(axis=1, keepdims=True), axis=1)
                for z in (rng.normal(0.0, sd, (n, k - 1)) for sd in (1.0, 2.0))
            ]
            line = np.arange(1.0, k)
            own = [*(a[:, j, None] * line + shapes[0]).T, *(d[:, j, None] * line + shapes[1]).T]
        else:
            gaps = np.exp(rng.normal(np.log(4.0 / (k - 1)), 1.0, (n, k - 2)))
            steps = -np.cumsum(np.concatenate([np.zeros((n, 1)), gaps], axis=1), axis=1)
            own = [a[:, j], *(steps + (d[:, j] - steps.mean(axis=1))[:, None]).T]
        items.append(np.stack(own, axis=1))
    return items


def functionals(items):
    """Values by name of replicates' items, each (n, P).

    They are bounded: means of 100 replicates of squares of sums of log-normal distances of steps
    are far from normal.
    """
    falls = any((x[:, 0] < 0.0).any() for x in items)
    out, slopes = {}, [np.tanh(x[:, 0] if falls else np.log(x[:, 0])) for x in items]
    for j, (a, x) in enumerate(zip(slopes, items, strict=True)):
        rest = np.tanh(x[:, 1:] / 2.0)
        out |= {f"{j} a": a, f"{j} a^2": a**2}
        for k in range(rest.shape[1]):
            out |= {f"{j} x{k}": rest[:, k], f"{j} x{k}^2": rest[:, k] ** 2}
        out |= {f"{j} a x0": a * rest[:, 0], f"{j} x0 x-1": rest[:, 0] * rest[:, -1]}
    size = np.abs(slopes) if falls else np.array(slopes)
    return out | {"a a": slopes[0] * slopes[1], "size of a": size.mean(axis=0)}


# --- the chain ------------------------------------------------------------------------------------


class Some:
    """The prior of (log a, d) of some items of replicates."""

    towards = ALL_POSITIVE

    def __init__(self, of_all, items):
        self.of_all, self.items = of_all, items

    def log_prior(self, log_a, d):
        both = np.zeros((2, self.of_all.y.shape[1]))
        both[:, self.items] = log_a, d
        value, gradient, information = self.of_all.log_prior(*both)
        return Density(value[self.items], gradient[:, self.items], information[self.items])

    def log_density(self, log_a, d):
        return self.log_prior(log_a, d).value


class Replicates:
    """What chains of replicates hold, in the coordinates of the package.

    Slopes of any sign are not kept to one of the two directions here, which are alike.
    """

    towards = ALL_POSITIVE

    def __init__(self, seed, test, kind, n_replicates, n_persons, error=None):
        self.rng = np.random.default_rng(seed)
        self.test, self.kind, self.error = test, kind, error
        self.r, self.n, self.m = n_replicates, n_persons, len(test)
        self.parts = tuple(
            Part(model_named(name, k), np.arange(self.r) * self.m + j)
            for j, (name, k) in enumerate(test)
        )
        models = Mixture(self.parts)
        priors = guessing_priors(models, (5.0, 17.0))
        self.shapes = Shapes(models, priors, signed=kind.startswith("signed"))
        x = np.zeros((models.size, models.n_items))
        for part, own in zip(self.parts, prior_draws(self.rng, test, self.r, kind), strict=True):
            x[: own.shape[1], part.at] = own.T
        self.y = self.shapes.of(x)
        self.accepted = np.zeros(models.n_items, dtype=np.int64)
        self.nodes = padded(Grid(71).nodes)
        usual = np.zeros(models.has.shape)
        usual[2:] = np.where(models.has[2:], -0.5, 0.0)
        self.reference = Reference(self.shapes, usual, self.nodes)
        self.moves = [self._moves(k) for k in range(self.r)]

    def _moves(self, k):
        if self.kind == "fixed":
            return FixedMoves(ItemPrior(), 1.0, self.m)
        if self.kind == "signed" and self.shapes.scored:
            own = self.shapes.take(np.arange(k * self.m, (k + 1) * self.m))
            moves = ScoredMoves(SIGNED, 1.0, own, np.ones(self.m))
            if self.error == "Jacobian":  # that of the scores left out
                moves.m -= int(own.rising.sum())
            return moves
        if self.kind == "signed":
            return FixedMoves(SIGNED, 1.0, self.m, np.ones(self.m))
        log_a, d = self._own(k)
        state = {"log_a": log_a, "d": d}
        if self.kind == "learned":
            return LearnedMoves(TIGHT, 1.0, self.m, state)
        return LearnedMoves(SIGNED_TIGHT, 1.0, self.m, state, np.ones(self.m))

    def _own(self, k):
        return self.y[:2, k * self.m : (k + 1) * self.m]

    def log_prior(self, log_a, d):
        """Of all replicates' items: what a chain asks of its moves."""
        out = nothing(np.stack([log_a, d]))
        for k, moves in enumerate(self.moves):
            at = slice(k * self.m, (k + 1) * self.m)
            own = moves.log_prior(log_a[at], d[at])
            out.value[at], out.gradient[:, at], out.information[at] = own
        return out

    def log_density(self, log_a, d):
        return self.log_prior(log_a, d).value

    def take(self, items):
        return Some(self, items)

    def parameters(self):
        """Textbook parameters (n, P) of each item."""
        x = self.shapes.parameters(self.y)
        return [x[: len(p.model.parameters), p.at].T for p in self.parts]

    def data(self):
        """Responses of each replicate's persons, person after person."""
        theta = self.rng.standard_normal((self.r, self.n))
        values = np.empty((self.r, self.n, self.m), dtype=np.int8)
        for j, ((name, _), own) in enumerate(zip(self.test, self.parameters(), strict=True)):
            p = _probability(name, theta, own)
            at_least = self.rng.random((self.r, self.n, 1)) > p.cumsum(axis=-1)[..., :-1]
            values[..., j] = at_least.sum(axis=-1)
        indices = np.arange(self.r)[:, None, None] * self.m + np.arange(self.m)
        indices = np.broadcast_to(indices, values.shape)
        persons = self.r * self.n
        return Sparse(
            np.arange(persons + 1, dtype=np.int64) * self.m,
            np.ascontiguousarray(indices.ravel(), dtype=np.int32), values.ravel(),
            self.r * self.m,
        )  # fmt: skip

    def sweep(self):
        """Data given items, then one sweep given data."""
        data = self.data()
        shard = model_chain.Shard(lay_out(data, self.shapes.models.n_categories))
        u = self.rng.random(self.r * self.n)
        persons, seen, higher = model_chain.draw(shard, self.shapes, self.y, self.nodes, u)
        of_each = self._persons(seen)
        nodes = self.nodes * self.wide
        counts = model_chain.counts_of(self.shapes, nodes, persons, seen, higher, 1.0)
        words = self.rng.random((self.y.shape[1], words_per_item(len(self.y))))
        density = Conditional(self.shapes, counts, self)
        at = np.flatnonzero(persons)
        metropolis(density, self.reference, at, words, self.y, self.accepted)
        for k, moves in enumerate(self.moves):
            u = self.rng.random(moves.words_after)
            own = self.y[:, k * self.m : (k + 1) * self.m]
            moves.move(Abilities(of_each[k], nodes), u, own)

    @property
    def wide(self):
        """What abilities are multiplied by when items are drawn: 1, unless that is planted."""
        return 1.01 if self.error == "abilities 1% wide" else 1.0

    def _persons(self, seen):
        """Persons of each replicate by node: all answered its first item."""
        return np.ascontiguousarray(seen[:, :: self.m].T)


def _probability(name, theta, own):
    """P (replicates, persons, categories) of an item that differs between replicates."""
    each = [category_probability(name, t, x) for t, x in zip(theta, own, strict=True)]
    return np.stack(each)


def prior_z(seed, test, kind, n_sweeps, *, n_replicates=100, n_persons=8, error=None):
    """z-scores of functionals' means over sweeps, from the replicates', against the prior's."""
    chains = Replicates(seed, test, kind, n_replicates, n_persons, error)
    rng = np.random.default_rng(seed + 1)
    z = compared(chains, prior_draws(rng, test, n_drawn(n_sweeps), kind), n_sweeps)
    return z, chains.accepted.mean() / n_sweeps


def n_drawn(n_sweeps):
    """So many draws of the prior that their error is small beside that of 100 replicates."""
    return min(5_000 * n_sweeps, 1_000_000)


def compared(chains, drawn, n_sweeps):
    """z-score of each functional: its mean over sweeps, from the replicates', against draws'."""
    sums = {}
    for _ in range(n_sweeps):
        chains.sweep()
        for name, value in functionals(chains.parameters()).items():
            sums[name] = sums.get(name, 0.0) + value / n_sweeps
    exact, z = functionals(drawn), {}
    for name, value in sums.items():
        error_of = np.hypot(*(x.std(ddof=1) / x.size**0.5 for x in (value, exact[name])))
        z[name] = float((value.mean() - exact[name].mean()) / error_of)
    return z


NIGHTLY = pytest.mark.nightly


# At most 45 z-scores a test below 5 (t with 99 degrees of freedom): false-alarm rate 1e-4.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "n_sweeps"), [
    ("mixture", "learned", 20), ("mixture", "signed, learned", 20), ("scores", "signed", 20),
    *(pytest.param(name, kind, 1_000, marks=NIGHTLY) for name in TESTS for kind in KINDS),
    pytest.param("scores", "signed", 1_000, marks=NIGHTLY),
])  # fmt: skip
def test_joint_distribution(name, kind, n_sweeps):
    z, acceptance = prior_z(31, (TESTS | SCORED)[name], kind, n_sweeps)
    assert max(map(abs, z.values())) < 5, z
    assert acceptance > 0.4


def with_and_without(prior_z, test, kind, n_sweeps=1_000):
    """Largest |z| of chains that are right, and of chains with a mistake of one percent.

    Of replicates of 100 persons: what these say of the items outweighs the prior, so that a mistake
    in it moves them most.
    """
    found = []
    for error in (None, "abilities 1% wide"):
        z, *_ = prior_z(32, test, kind, n_sweeps, n_persons=100, error=error)
        found.append(max(map(abs, z.values())))
    print(f"{found[0]:.1f} without, {found[1]:.1f} with the mistake")
    return found


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", [*TESTS])
def test_joint_distribution_sees_mistakes_of_one_percent(name):
    right, wrong = with_and_without(prior_z, TESTS[name], "learned")
    assert right < 5 < 6 < wrong


@pytest.mark.slow
def test_joint_distribution_sees_a_jacobian_without_scores():
    z, _ = prior_z(33, SCORED["scores"], "signed", 40, error="Jacobian")
    assert max(map(abs, z.values())) > 6, z
