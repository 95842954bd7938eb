"""Joint distribution tests (Geweke 2004) of chains of items that share a slope, or steps.

As :mod:`test_bayes_models_joint`; what items share they share within a replicate.
"""

from __future__ import annotations

import numpy as np
import pytest
import test_bayes_models_joint as alone
from scipy.stats import truncnorm
from test_bayes_models_joint import TIGHT

from irt_dask.calibrate.bayes import model_chain, shared_parameters
from irt_dask.calibrate.bayes.common_slope import CommonSlope
from irt_dask.calibrate.bayes.item_density import Conditional
from irt_dask.calibrate.bayes.item_moves import Abilities
from irt_dask.calibrate.bayes.item_step import Reference
from irt_dask.calibrate.bayes.shared_parameters import CommonSlopeLearned, CommonSlopeMoves
from irt_dask.curves.priors import ItemPrior
from irt_dask.kernels.gibbs.learned_item_draws import ALL_POSITIVE
from irt_dask.kernels.gibbs.table_draws import lay_out

#: Models of the items of a replicate, and categories.
TESTS = {
    "1pl": [("1pl", 2)] * 4,
    "pcm": [("pcm", 4)] * 4,
    "rating": [("rating", 4)] * 4,
    "mixture": [("2pl", 2), ("rating", 3), ("gpcm", 3), ("rating", 3), ("1pl", 2), ("pcm", 3)],
}
SHARING = ("1pl", "pcm", "rating")


def steps_about(rng, d, shape):
    """Step intercepts that are cumulated, whose mean is d."""
    steps = rng.normal(0.0, 2.0, shape)
    return np.cumsum(steps - steps.mean(axis=1, keepdims=True) + d[:, None], axis=1)


def prior_draws(rng, test, n, kind):
    """Parameters (n, P) of each item of a replicate, in textbook parameters."""
    m, shares = len(test), np.array([name in SHARING for name, _ in test])
    if kind == "fixed":
        a = truncnorm.rvs(-1.0, np.inf, loc=1.0, size=(n, m), random_state=rng)
        d = rng.normal(0.0, 2.0, (n, m))
    else:
        a, d = np.empty((2, n, m))
        (mean_u, mean), (sd_u, sd) = TIGHT.mean, TIGHT.mean_sd
        if not shares.all():
            own = alone.prior_draws(rng, [("2pl", 2)] * int((~shares).sum()), n, "learned")
            a[:, ~shares], d[:, ~shares] = np.moveaxis(np.array(own), 2, 0).transpose(0, 2, 1)
        a[:, shares] = np.exp(rng.normal(mean_u, sd_u, (n, 1)))
        s2 = TIGHT.scale[1][1] / rng.chisquare(TIGHT.df - 1.0, (n, 1))
        d[:, shares] = rng.normal(rng.normal(mean, sd, (n, 1)), np.sqrt(s2), (n, shares.sum()))
    a[:, shares] = a[:, shares][:, :1]
    common = {k: steps_about(rng, np.zeros(n), (n, k - 1))[:, :-1] for _, k in test}
    items = []
    for j, (name, k) in enumerate(test):
        own = [a[:, j], d[:, j]]
        if name == "rating":
            own += [*common[k].T]
        elif name in ("gpcm", "pcm"):
            own[1:] = steps_about(rng, d[:, j], (n, k - 1)).T
        items.append(np.stack(own, axis=1))
    return items


class Replicates(alone.Replicates):
    """Chains of replicates whose items share something; ``error`` is planted."""

    prior_draws = staticmethod(prior_draws)

    def __init__(self, seed, test, kind, n_replicates, n_persons, error=None):
        super().__init__(seed, test, kind, n_replicates, n_persons, error)
        models, each = self.shapes.models, np.arange(self.y.shape[1]) // self.m
        own = models.of_all
        models.__dict__["of_all"] = np.where(own >= 0, own + each * (own.max() + 1), -1)
        for name in ("first_of", "once"):
            models.__dict__.pop(name, None)
        x = np.zeros((models.size, models.n_items))
        for part, it in zip(self.parts, prior_draws(self.rng, test, self.r, kind), strict=True):
            x[: it.shape[1], part.at] = it.T
        self.y = self.shapes.of(x)
        np.testing.assert_array_equal(models.tied(self.y), self.y)
        self.reference = Reference(self.shapes, np.zeros_like(self.y), self.nodes)
        self.accepted = np.zeros(shared_parameters.n_accepted(models), dtype=np.int64)
        self.moves = [self._shared_moves(k) for k in range(self.r)]

    def _moves(self, k):
        return None

    def _shared_moves(self, k):
        once = self.shapes.models.once[0, k * self.m : (k + 1) * self.m].copy()
        if self.kind == "fixed":
            moves = CommonSlopeMoves(ItemPrior(), 1.0, once)
            if self.error == "Jacobian":  # of each item, in moves along the scale alone
                after = CommonSlopeMoves(ItemPrior(), 1.0, np.ones(self.m, dtype=bool)).after
                moves.after = after
            return moves
        log_a, d = self._own(k)
        sharing = np.array([name in SHARING for name, _ in self.test])
        prior = CommonSlope.of(TIGHT, sharing)
        return CommonSlopeLearned(prior, 1.0, self.m, {"log_a": log_a, "d": d}, ALL_POSITIVE)

    def sweep(self):
        """Data given items, then one sweep given data."""
        shard = model_chain.Shard(lay_out(self.data(), self.shapes.models.n_categories))
        u = self.rng.random(self.r * self.n)
        persons, seen, higher = model_chain.draw(shard, self.shapes, self.y, self.nodes, u)
        of_each = self._persons(seen)
        nodes = self.nodes * self.wide
        counts = model_chain.counts_of(self.shapes, nodes, persons, seen, higher, 1.0)
        density, at = Conditional(self.shapes, counts, self), np.flatnonzero(persons)
        words = self.rng.random(shared_parameters.words(self.shapes))
        shared_parameters.draw_items(density, self.reference, at, words, self.y, self.accepted)
        for k, moves in enumerate(self.moves):
            log_a, d = self._own(k)
            moves.after(Abilities(of_each[k], nodes), self.rng.random(moves.words_after), log_a, d)


def prior_z(seed, test, kind, n_sweeps, *, n_replicates=100, n_persons=8, error=None):
    """As in :mod:`test_bayes_models_joint`."""
    chains = Replicates(seed, test, kind, n_replicates, n_persons, error)
    drawn = prior_draws(np.random.default_rng(seed + 1), test, alone.n_drawn(n_sweeps), kind)
    z = alone.compared(chains, drawn, n_sweeps)
    items = chains.y.shape[1]
    rate = chains.accepted / n_sweeps
    return z, rate[:items].mean(), rate[items:].mean()


NIGHTLY = pytest.mark.nightly


# At most 60 z-scores a test below 5 (t with 99 degrees of freedom): false-alarm rate 2e-4.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "n_sweeps"), [
    ("mixture", "learned", 20), ("rating", "fixed", 20),
    *(pytest.param(n, kind, 1_000, marks=NIGHTLY) for n in TESTS for kind in ("fixed", "learned")),
])  # fmt: skip
def test_joint_distribution(name, kind, n_sweeps):
    z, own, shared = prior_z(31, TESTS[name], kind, n_sweeps)
    assert max(map(abs, z.values())) < 5, z
    assert own > 0.4
    assert shared > 0.4


# The slope's Jacobian counted for each item: the 1PL's slope comes out too large at once.
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["1pl", pytest.param("rating", marks=NIGHTLY)])
def test_joint_distribution_sees_a_jacobian_for_each_item(name):
    z, _, _ = prior_z(32, TESTS[name], "fixed", 24, error="Jacobian")
    assert max(map(abs, z.values())) > 6, z


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "n_sweeps"), [  # one slope says less than four
    ("1pl", 3_000), ("pcm", 1_000), ("rating", 2_000), ("mixture", 2_000),
])  # fmt: skip
def test_joint_distribution_sees_mistakes_of_one_percent(name, n_sweeps):
    right, wrong = alone.with_and_without(prior_z, TESTS[name], "learned", n_sweeps)
    assert right < 5 < 6 < wrong
