"""Marginal maximum likelihood beside the implementations on PyPI: seconds, likelihood, errors.

    pip install mirt==1.2.0 girth==0.8.0        (for these tables only)
    python tests/benchmarks/marginal.py speed        2PL, 500,000 x 40 and 50,000 x 200
    python tests/benchmarks/marginal.py guessing     3PL, 50,000 x 60: errors         [data sets]
    python tests/benchmarks/marginal.py constant     the same, c = 0, .1, .33 for all [data sets]

Each prints one table, with the reference in the same run.  ``guessing`` draws c from Beta(5, 17),
which is our default prior: a comparison in our favour.  ``constant`` has c where the prior is wrong
or vague, and shows our fits with the prior and without.  ``irt_dask`` estimates and gives
standard errors; ``mirt`` and ``girth`` estimate without.  Log-likelihoods of both are evaluated by
the same plain sum over 161 abilities, because those that a program reports are of its own grid.
Seeds are fixed.
"""

import sys
import time

import mirt
import numpy as np

import irt_dask as irt


def simulated(n, m, seed, guessing=0.0):
    """Responses, slopes, intercepts and guessing parameters: a constant, or None: Beta(5, 17)."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(size=m)
    c = rng.beta(5, 17, m) if guessing is None else np.full(m, guessing)
    y = np.empty((n, m), dtype=np.int8)
    for lo in range(0, n, 50_000):
        part = y[lo : lo + 50_000]
        theta = rng.normal(size=len(part))
        p = c + (1.0 - c) / (1.0 + np.exp(-a * (theta[:, None] - b)))
        part[:] = rng.random(p.shape) < p
    return y, a, -a * b, c


def log_likelihood(y, a, d, c=0.0):
    """Marginal log-likelihood by a sum over 161 abilities from -6 to 6."""
    nodes = np.linspace(-6.0, 6.0, 161)
    log_prior = -0.5 * nodes**2 - np.log(np.exp(-0.5 * nodes**2).sum())
    p = c + (1.0 - c) / (1.0 + np.exp(-(np.outer(nodes, a) + d)))
    right, wrong = np.log(p), np.log1p(-p)
    total = 0.0
    for lo in range(0, len(y), 20_000):
        part = y[lo : lo + 20_000].astype(float)
        log_w = part @ (right - wrong).T + wrong.sum(axis=1) + log_prior
        peak = log_w.max(axis=1)
        total += (peak + np.log(np.exp(log_w - peak[:, None]).sum(axis=1))).sum()
    return float(total)


def seconds(function):
    begun = time.perf_counter()
    result = function()
    return time.perf_counter() - begun, result


def ours(y, model="2pl", **options):
    fit = irt.fit_marginal(y, model=model, progress=False, **options)
    return fit, (fit["item_discrimination"].values, fit["item_intercept"].values)


def by_mirt(y, model="2PL"):
    fit = mirt.fit_mirt(y, model=model, compute_standard_errors=False)
    p = fit.model.parameters
    return fit, (np.ravel(p["discrimination"]), np.ravel(p["difficulty"]))


def speed():
    import girth

    print("2PL, median seconds of each; log-likelihoods on one grid; passes over the data")
    print(f"{'persons':>8} {'items':>6} {'ours':>7} {'passes':>7} {'mirt':>7} {'mirt/ours':>10}"
          f" {'girth':>7} {'girth/ours':>11} {'ours - mirt':>12} {'ours - girth':>13}")  # fmt: skip
    ours(simulated(500, 10, 0)[0])
    by_mirt(simulated(500, 10, 0)[0].astype(int))
    for n, m, repeat in ((500_000, 40, 3), (50_000, 200, 3)):
        y, *_ = simulated(n, m, 1)
        wide = y.astype(int)
        runs = [(seconds(lambda y=y: ours(y)), seconds(lambda w=wide: by_mirt(w)))
                for _ in range(repeat)]  # fmt: skip
        mine = float(np.median([r[0][0] for r in runs]))
        theirs = float(np.median([r[1][0] for r in runs]))
        fit, (a, d) = runs[0][0][1]
        _, (a2, b2) = runs[0][1][1]
        # girth is slow: a tenth of the persons, and its seconds times ten.
        t3, g = seconds(lambda y=y: girth.twopl_mml(y[::10].T.astype(int)))
        a3, b3 = np.asarray(g["Discrimination"]), np.asarray(g["Difficulty"])
        value = log_likelihood(y, a, d)
        print(
            f"{n:>8} {m:>6} {mine:>7.2f} {fit.attrs['n_iterations']:>7} {theirs:>7.2f} "
            f"{theirs / mine:>10.1f} {10 * t3:>7.1f} {10 * t3 / mine:>11.1f} "
            f"{value - log_likelihood(y, a2, -a2 * b2):>12.4f} "
            f"{value - log_likelihood(y, a3, -a3 * b3):>13.1f}",
            flush=True,
        )


def guessing(sets=10):
    print("3PL, 50,000 x 60, c from Beta(5, 17), our default prior")
    _compare(None, sets)


def constant(sets=5):
    for c in (0.0, 0.1, 0.33):
        print(f"3PL, 50,000 x 60, c = {c} for all items")
        _compare(c, sets)


def _compare(c, sets):
    """Root mean square errors of a, b, c: with our default prior, without one, and of ``mirt``."""
    names = [f"{who} {x}" for who in ("prior", "none", "mirt") for x in "abc"]
    ratios = [f"{who}/mirt {x}" for who in ("prior", "none") for x in "abc"]
    print(f"{'set':>4} " + " ".join(f"{x:>12}" for x in (*names, *ratios)) + "  seconds of each")
    squares = []
    for seed in range(sets):
        y, *truth = simulated(50_000, 60, 100 + seed, c)
        fits = (
            lambda y=y: _parameters(ours(y, "3pl")),
            lambda y=y: _parameters(ours(y, "3pl", guessing_prior=None)),
            lambda y=y: _of_mirt(y),
        )
        runs = [seconds(fit) for fit in fits]
        a, d, c_true = truth
        squares.append(
            [[np.mean((x - t) ** 2) for x, t in zip(found, (a, -d / a, c_true), strict=True)]
             for _, found in runs]
        )  # fmt: skip
        _line(str(seed), squares[-1], [t for t, _ in runs])
    _line("all", np.mean(squares, axis=0), [])


def _parameters(fitted):
    fit, (a, d) = fitted
    return a, -d / a, fit["item_guessing"].values


def _of_mirt(y):
    fit, (a, b) = by_mirt(y.astype(int), "3PL")
    return a, b, np.ravel(fit.model.parameters["guessing"])


def _line(name, squares, times):
    errors = np.sqrt(np.asarray(squares))
    cells = [*errors.ravel(), *(errors[:2] / errors[2]).ravel()]
    text = " ".join(f"{x:>12.4f}" for x in cells)
    print(f"{name:>4} {text}  " + " ".join(f"{t:.1f}" for t in times), flush=True)


if __name__ == "__main__":
    part, *rest = sys.argv[1:] or ["speed"]
    {"speed": speed, "guessing": guessing, "constant": constant}[part](*map(int, rest))
