"""The loop on all persons: rough rounds far from the maximum, where it ends, and going on."""

from types import SimpleNamespace

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.calibrate.marginal import rounds
from irt_dask.calibrate.shared import climb
from irt_dask.engine import Checkpoint
from irt_dask.kernels.joint.item_maximum import Box

CENTRE = np.array([[1.0, -2.0], [0.3, 4.0]])
RATE = np.array([[0.2, 0.9], [0.5, 0.7]])


class Bowl:
    """Steps lead a part of the way, another one by parameter; rough rounds are off by ``off``."""

    def __init__(self, off=0.0):
        self.engine = SimpleNamespace(progress=SimpleNamespace(update=lambda *_: None))
        self.box = Box(np.full(2, -9.0), np.full(2, 9.0))
        self.off, self.seen = off, []

    def value(self, x):
        return -1000.0 - 40.0 * float(((x - CENTRE) ** 2).sum())

    def round(self, x):
        self.seen.append(("round", x.copy(), self.value(x)))
        return self.value(x), None, None

    def early(self, x):
        self.seen.append(("early", x.copy(), self.value(x)))
        return self.value(x) + self.off, None, None

    def item_step(self, seen, x, *, everywhere=True):
        return CENTRE + RATE * (x - CENTRE)

    def further(self, image, seen):
        return image


def full(bowl, *, saved=None, most=200, early=True):
    return climb.full(
        bowl, np.zeros((2, 2)), most, 1e-12, saved or Checkpoint(None, {}), "bowl",
        early=bowl.early if early else None,
    )  # fmt: skip


@pytest.mark.parametrize("off", [0.0, 4e-3, -4e-3])
def test_rounds_are_rough_only_far_from_the_maximum(off):
    """Rough values may be wrong by a share of 4e-6, either way: they decide nothing at the end."""
    bowl = Bowl(off)
    end = full(bowl)
    kinds = [kind for kind, *_ in bowl.seen]
    assert kinds[:2] == ["early", "early"]
    assert kinds[-3:] == ["round"] * 3
    assert end.converged
    np.testing.assert_allclose(end.x, CENTRE, atol=1e-5)
    # The last point that was looked at, and what was found there.
    np.testing.assert_array_equal(end.seen_at, bowl.seen[-1][1])
    assert end.trace[-1] == bowl.seen[-1][2]
    for (kind, *_), before, after in zip(
        bowl.seen[2:], end.trace[:-2], end.trace[1:-1], strict=True
    ):
        assert (kind == "early") == (after - before > 1e-5 * abs(after))


def test_without_rough_rounds_there_are_none():
    bowl = Bowl()
    full(bowl, early=False)
    assert {kind for kind, *_ in bowl.seen} == {"round"}


@pytest.mark.parametrize("after", [1, 3, 6])
def test_going_on_is_as_never_stopped(tmp_path, after):
    want = full(Bowl(2e-3))
    saved = Checkpoint(tmp_path, {"of": "bowl"})
    full(Bowl(2e-3), saved=saved, most=after)
    again = full(Bowl(2e-3), saved=Checkpoint(tmp_path, {"of": "bowl"}))
    np.testing.assert_array_equal(again.x, want.x)
    np.testing.assert_array_equal(again.seen_at, want.seen_at)
    assert again.trace == want.trace


@pytest.mark.parametrize("model", ["graded", "gpcm", "3pl"])
def test_a_marginal_fit_ends_where_it_would_without_rough_rounds(model, monkeypatch):
    k = 2 if model == "3pl" else 4
    r = irt.simulate(1500, 20, model=model, categories=k, seed=4)
    found = irt.fit_marginal(r, model=model, progress=False)
    used = []
    monkeypatch.setattr(rounds.Rounds, "early", lambda fit, x: used.append(x) or fit.round(x))
    want = irt.fit_marginal(r, model=model, progress=False)
    assert len(used) >= 2
    assert found.attrs["log_likelihood"] == pytest.approx(want.attrs["log_likelihood"], rel=1e-10)
    for name in ("item_discrimination", "item_discrimination_se"):
        np.testing.assert_allclose(found[name], want[name], rtol=1e-4)


def test_the_last_counts_are_kept(monkeypatch):
    """Without errors a fit ends at the last point whose likelihood was found: no further pass."""
    r = irt.simulate(800, 10, model="graded", categories=3, seed=5)
    passes = []
    of = rounds.expect
    monkeypatch.setattr(
        rounds, "expect", lambda *a, **k: passes.append(k.get("width")) or of(*a, **k)
    )
    fit = irt.fit_marginal(r, model="graded", standard_errors=False, progress=False)
    assert len(passes) == fit.attrs["n_iterations"]
    assert passes[0] == rounds.ROUGH
    assert passes[-1] == rounds.FINE


class Cliff(Bowl):
    """Beyond a place there are no items: the objective is minus infinity."""

    def value(self, x):
        return -np.inf if (x > 5.0).any() else super().value(x)

    def item_step(self, seen, x, *, everywhere=True):
        assert np.isfinite(self.value(x))
        return super().item_step(seen, x, everywhere=everywhere)


def test_a_point_that_is_none_is_refused_whatever_the_round(monkeypatch):
    """Also where it is a rough round's, which may be off by something."""
    monkeypatch.setattr(climb.Accelerator, "propose", lambda self, x, image: image + 8.0)
    bowl = Cliff()
    end = full(bowl, most=9)
    assert sum(not np.isfinite(value) for *_, value in bowl.seen) > 1
    assert np.isfinite(end.trace).all()
    np.testing.assert_allclose(bowl.value(end.x), end.trace[-1], rtol=0.05)
