"""z-scores of means of dependent draws, for tests of joint distributions (Geweke 2004)."""

from __future__ import annotations


def z_scores(functionals):
    """Of the means of 100 batches, by name; each functional is its values and its expectation."""
    z = {}
    for name, (value, exact) in functionals.items():
        batches = value.reshape(100, -1).mean(1)
        z[name] = float((batches.mean() - exact) / (batches.std(ddof=1) / 10.0))
    return z


def worst(z):
    return max(abs(v) for v in z.values())
