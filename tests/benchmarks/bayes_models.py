"""The Bayesian calibration of models beside the 2PL: what dividing the data does, time of a sweep.

    python tests/benchmarks/bayes_models.py mixed      8 2PL, 6 graded, 6 GPCM items: 4,000 x 20
    python tests/benchmarks/bayes_models.py learned    the same with a learned prior
    python tests/benchmarks/bayes_models.py 3pl        20,000 x 20
                                                       each [shards ...]: K = 4 10, of the 3PL 4
    python tests/benchmarks/bayes_models.py speed      sweeps next to those of the 2PL
                                                       [persons items [rounds]]
    python tests/benchmarks/bayes_models.py loo        100,000 x 40, 500 draws: seconds, memory

The first three compare a combination of shards with one long chain on all persons: squared
2-Wasserstein distance of Gaussians over the trace of that chain's covariance, in log a, d, logits
of guessing and step intercepts less their mean, and ratios of SDs, averaged by kind.  The 3PL's
long chain takes an hour of a core.  Each prints one table; seeds are fixed.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np
from bayes import gaussian_distance
from scipy.special import expit, logit, softmax

import irt_dask as irt
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import IrtDaskWarning

MIXED = ["2pl"] * 8 + ["graded"] * 6 + ["gpcm"] * 6
#: Persons; draws of one chain, and of each shard; sweeps that nobody looks at.
SIZES = {"mixed": (4_000, 30_000, 4_000), "3pl": (20_000, 200_000, 60_000)}
WARMUP = 1_000


def mixed(n):
    """Responses of n persons to items of three models, some of four categories, none of them rare.

    (A category that next to nobody in a shard has is warned of: spreads come out too wide.)
    """
    rng = np.random.default_rng(4)
    m = len(MIXED)
    a, d = rng.lognormal(0.1, 0.25, m), rng.normal(0.0, 0.6, m)
    steps = np.array([1.3, 0.0, -1.3]) + rng.normal(0.0, 0.15, (m, 3))
    theta, y = rng.standard_normal(n), np.empty((n, m), dtype=np.int8)
    for j, name in enumerate(MIXED):
        of_steps = a[j] * theta[:, None] + d[j] + (np.zeros(1) if name == "2pl" else steps[j])
        at_least = expit(of_steps)
        if name == "gpcm":
            p = softmax(np.c_[np.zeros(n), np.cumsum(of_steps, axis=1)], axis=1)
            at_least = p[:, ::-1].cumsum(axis=1)[:, -2::-1]
        y[:, j] = (rng.random((n, 1)) < at_least).sum(axis=1)
    ids = [f"i{j:02d}" for j in range(m)]
    categories = [2 if name == "2pl" else 4 for name in MIXED]
    responses = irt.from_array(y, item_id=ids, categories=categories)
    return responses, dict(zip(ids, MIXED, strict=True))


def guessing(n, m=20):
    """Responses of n persons to 3PL items."""
    rng = np.random.default_rng(1)
    a, d, c = rng.lognormal(0.1, 0.3, m), rng.normal(0.0, 1.0, m), rng.beta(5.0, 17.0, m)
    p = c + (1.0 - c) * expit(np.outer(rng.standard_normal(n), a) + d)
    return irt.from_array((rng.random((n, m)) < p).astype(np.int8)), "3pl"


def coordinates(f):
    """Draws of each kind of coordinate, (draws, coordinates), without what items lack."""
    out = {
        "log a": np.log(f["item_discrimination_draw"].values), "d": f["item_intercept_draw"].values,
    }  # fmt: skip
    if "item_guessing_draw" in f:
        out["logit c"] = logit(f["item_guessing_draw"].values)
    if "item_step_intercept_draw" in f:
        steps = f["item_step_intercept_draw"].values - out["d"][..., None]
        steps = steps[..., :-1].reshape(len(steps), -1)  # they add up to nothing
        has = np.isfinite(steps).all(axis=0) & (steps.std(axis=0) > 1e-9)
        out["steps"] = steps[:, has]
    return out


def least_ess(f):
    """Effective draws of the parameter that has the fewest."""
    return min(float(f[k].min()) for k in f if k.endswith("_ess") and k.startswith("item_"))


def compared(name, *n_shards):
    """Print the distance of combined shards to one long chain."""
    learned = name == "learned"
    data, size = (guessing, "3pl") if name == "3pl" else (mixed, "mixed")
    n, of_chain, of_shard = SIZES[size]
    y, model = data(n)
    options = {"model": model, "n_warmup": WARMUP, "progress": False, "seed": 3}
    options["prior"] = "hierarchical" if learned else irt.ItemPrior()
    print(f"{n} x {y.n_items}, {of_chain} draws of one chain, {of_shard} of each shard")
    print(f"{'K':>3} {'seconds':>8} {'least ESS':>10} {'W2^2 / trace':>13}   SD ratios by kind")
    full, begun = None, time.perf_counter()
    for k in (1, *n_shards):
        f = irt.fit_bayes(y, n_shards=k, n_draws=of_shard if k > 1 else of_chain, **options)
        seconds, x = time.perf_counter() - begun, coordinates(f)
        row = f"{k:>3} {seconds:>8.0f} {least_ess(f):>10.0f}"
        if full is None:
            full = x
        else:
            both = [np.concatenate(list(v.values()), axis=1) for v in (x, full)]
            row += f" {gaussian_distance(*both):>13.4f}   "
            row += ", ".join(
                f"{kind} {(x[kind].std(axis=0) / full[kind].std(axis=0)).mean():.3f}" for kind in x
            )
        print(row, flush=True)
        begun = time.perf_counter()


# --- time of a sweep ------------------------------------------------------------------------------


def sweep_seconds(y, n_sweeps=100, **options):
    """Processor time of a sweep of one chain: that of more sweeps less that of fewer."""
    took = []
    for n in (n_sweeps, 3 * n_sweeps):
        begun = time.process_time()
        irt.fit_bayes(y, n_draws=n, n_warmup=50, progress=False, seed=1, **options)
        took.append(time.process_time() - begun)
    return (took[1] - took[0]) / (2 * n_sweeps)


def speed(n=100_000, m=40, rounds=5):
    """Print processor time of sweeps as multiples of the 2PL's, medians of rounds in turn."""
    rng = np.random.default_rng(2)
    a, d = rng.lognormal(0.1, 0.3, m), rng.normal(0.0, 1.0, m)
    z = np.outer(rng.standard_normal(n), a) + d
    right = irt.from_array((rng.random((n, m)) < expit(z)).astype(np.int8))
    steps = rng.random((n, m, 3)) < expit(z[..., None] + np.array([1.0, 0.0, -1.0]))
    graded = irt.from_array(steps.sum(axis=-1).astype(np.int8), categories=4)
    cases = {
        "2pl": (right, {}), "2pl, signed": (right, {"positive": "none"}),
        "3pl": (right, {"model": "3pl"}), "4pl": (right, {"model": "4pl"}),
        "gpcm": (graded, {"model": "gpcm"}), "graded": (graded, {"model": "graded"}),
    }  # fmt: skip
    for y, options in cases.values():  # compile
        irt.fit_bayes(y, n_draws=100, n_warmup=50, progress=False, seed=1, **options)
    took = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (y, options) in cases.items():
            took[name].append(sweep_seconds(y, **options))
    print(f"{n} x {m}, 4 categories of gpcm and graded, {rounds} rounds: processor time of a sweep")
    for name, x in took.items():
        ratio = np.array(x) / np.array(took["2pl"])
        print(f"{name:>12} {1e3 * np.median(x):8.2f} ms   {np.median(ratio):5.2f} times the 2PL's "
              f"({ratio.min():.2f} to {ratio.max():.2f})")  # fmt: skip


# --- leaving persons out --------------------------------------------------------------------------


def left_out(n=100_000, m=40, draws=500):
    """Print what leaving each of many persons out takes, complete and with gaps."""
    rng = np.random.default_rng(3)
    a, d = rng.lognormal(0.1, 0.3, m), rng.normal(0.0, 1.0, m)
    y = (rng.random((n, m)) < expit(np.outer(rng.standard_normal(n), a) + d)).astype(np.int8)
    for missing in (0.0, 0.3):
        responses = irt.from_array(np.where(rng.random((n, m)) < missing, -1, y).astype(np.int8))
        fit = irt.fit_bayes(responses, n_draws=draws, n_warmup=200, progress=False)
        before, begun = peak_gib(), time.perf_counter()
        found = irt.loo(responses, fit, progress=False)
        print(f"{n} x {m}, {missing:.0%} missing, {fit.sizes['draw']} draws: "
              f"{time.perf_counter() - begun:.1f} s, largest memory {peak_gib():.2f} GiB "
              f"({before:.2f} before), elpd {found.attrs['elpd_loo']:.1f} "
              f"(SE {found.attrs['elpd_loo_se']:.1f}), "
              f"p_loo {found.attrs['p_loo']:.1f}", flush=True)  # fmt: skip


def peak_gib():
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    """Run one part."""
    if len(sys.argv) < 2 or sys.argv[1] not in ("mixed", "learned", "3pl", "speed", "loo"):
        sys.exit(__doc__)
    warnings.simplefilter("ignore", IrtDaskWarning)
    name, *numbers = sys.argv[1], *map(int, sys.argv[2:])
    with single_threaded():
        if name == "speed":
            speed(*numbers)
        elif name == "loo":
            left_out(*numbers)
        else:
            compared(name, *(numbers or ((4,) if name == "3pl" else (4, 10))))


if __name__ == "__main__":
    main()
