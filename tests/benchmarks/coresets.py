"""Accuracy and time of coreset fits, beside Tables 2-5, 7-10 and 14-19 of Frick et al.

    python tests/benchmarks/coresets.py [--repeat 20] [--full] [--all] [--plots FOLDER] [TABLE ...]

Tables: ``synthetic``: the paper's 2PL data, root leverage with replacement and as a Poisson sample,
fair uniform sampling (``--all``: all methods).  ``npi``: real data (../shared/data/npi_wide.csv.gz,
11,243 x 40), five methods with replacement and sizes from 100 to 5,000, then root leverage with the
other samplings.  ``3pl``: the paper's 3PL data.  ``missing``: 2PL data of which 30% are missing.
50 iterations each; ``--full``: all sizes of the paper.  ``--plots`` also draws the bias as in
Figures 3-13, of one repetition.

"error" is |f(coreset) / f(full) - 1|, f the negative log-likelihood that the last iteration's
coreset estimates and that of the full fit: median of the repetitions; "paper's" is the paper's
statistic |min over repetitions of f(coreset) - f(full)| / f(full).  mad(alpha) is the mean of
|a - a_full| + |d - d_full| over items (3PL: + |c - c_full|), mad(theta) that of abilities (of the
first 20,000 persons), on the standardised scale, medians of the repetitions; the paper has one
value, of the repetition with the smallest objective; its columns, and its gain, are behind the bar.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import synthetic
from published import THREE as PUBLISHED_THREE
from published import TWO

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts

NPI = Path(__file__).resolve().parents[3] / "shared" / "data" / "npi_wide.csv.gz"
#: Rows of the paper's tables that are always measured; ``--full``: all of them.
SYNTHETIC = [(50_000, 200, 500), (100_000, 200, 1000), (500_000, 100, 5000)]
THREE = [(50_000, 100, 2000), (50_000, 100, 5000), (50_000, 100, 10_000)]
MISSING = [(50_000, 100, 1000)]
SIZES = (100, 200, 500, 1000, 2000, 5000)
METHODS = ("root-leverage", "leverage-l1", "lewis", "uniform", "kmeans")
#: Method and sampling.
WITH_REPLACEMENT = [(method, "replacement") for method in METHODS]
USUAL = [
    ("root-leverage", "replacement"),
    ("root-leverage", "poisson"),
    ("uniform", "replacement"),
    ("uniform", "poisson"),
]
HEAD = (
    f"{'persons':>8} {'items':>5} {'size':>6} {'method':<14} {'sampling':<11} {'s full':>7} "
    f"{'s core':>7} {'gain %':>7} {'error':>8} {'paper s':>8} {'mad(a)':>7} {'mad(th)':>7}"
)


def fit(r, model, **options):
    begun = time.perf_counter()
    out = irt.fit_joint(
        r, model=model, max_iterations=50, tolerance=-1.0, progress=False, **options
    )
    return time.perf_counter() - begun, out


def values(items):
    names = ("item_discrimination", "item_intercept", "item_guessing")
    return [items[n].values if n in items else np.zeros(items.sizes["items"]) for n in names]


def abilities(r, items):
    blocks, n = [], 0
    for k in range(r.n_blocks):
        blocks.append(layouts.to_dense(r.read_block(k).data))
        n += blocks[-1].shape[0]
        if n >= 20_000:
            break
    data = layouts.row_range(layouts.concatenate(blocks), 0, min(n, 20_000))
    return modes.modes(data, modes.tables(Items.of("3pl", *values(items)), 6.0))[0]


def compare(r, model, size, method, sampling, full, repeat):
    """One line of a table."""
    seconds, reference = full
    f = -reference.attrs["objective"]
    theta = abilities(r, reference)
    estimates, times, mad, mad_theta = [], [], [], []
    for seed in range(repeat):
        spec = irt.Coreset(size, method, sampling=sampling)
        taken, got = fit(r, model, coreset=spec, seed=seed)
        times.append(taken)
        estimates.append(-got.attrs["coreset_objective"])
        gaps = zip(values(got), values(reference), strict=True)
        mad.append(sum(np.abs(x - y).mean() for x, y in gaps))
        mad_theta.append(np.nanmean(np.abs(abilities(r, got) - theta)))
    error = np.median(np.abs(np.array(estimates) / f - 1.0))
    published = abs(min(estimates) - f) / f
    core = np.median(times)
    return (
        f"{r.n_persons:>8} {r.n_items:>5} {size:>6} {method:<14} {sampling:<11} {seconds:>7.2f} "
        f"{core:>7.2f} {100 * (1 - core / seconds):>7.1f} {error:>8.4f} {published:>8.4f} "
        f"{np.median(mad):>7.3f} {np.median(mad_theta):>7.4f}"
    )


def tables(cases, model, methods, folder, repeat, missing=0.0, plots=None):
    print(f"{HEAD} | paper: error, mad(alpha), mad(theta), gain %")
    published = {"2pl": TWO, "3pl": PUBLISHED_THREE}[model] if missing == 0.0 else {}
    done = {}
    for n, m, size in cases:
        _, gain, paper = published.get((n, m, size), (0.0, 0.0, {}))
        if (n, m) not in done:
            store = Path(folder) / f"{model}-{n}-{m}-{missing}"
            r = synthetic.write(store, n, m, model, missing)
            fit(r, model)  # reads the data, compiles
            done[n, m] = r, fit(r, model)
        r, full = done[n, m]
        for method, sampling in methods:
            line = compare(r, model, size, method, sampling, full, repeat)
            extra = " ".join(f"{x:>8.5f}" for x in paper.get(method, ()))
            extra += f" {gain:>7.1f}" if method == "root-leverage" and paper else ""
            print(f"{line} | {extra}", flush=True)
        if plots:
            plot(r, model, size, full[1], Path(plots) / f"{model}-{n}-{m}-{size}.png")


def plot(r, model, size, full, path):
    """Bias of slopes and intercepts by item, and abilities, coreset against full data."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    got = fit(r, model, coreset=irt.Coreset(size), seed=0)[1]
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for axis, name, x, y in zip(axes, "ad", values(full), values(got), strict=False):
        order = np.argsort(x)
        axis.plot(x[order], (y - x)[order], ".")
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set(xlabel=f"{name}, full data", ylabel=f"{name}, coreset - full data")
        axis.set_ylim(-2 * x.std(), 2 * x.std())
    theta, other = abilities(r, full), abilities(r, got)
    axes[2].hexbin(theta, other - theta, gridsize=60, bins="log", cmap="Blues")
    axes[2].axhline(0.0, color="black", linewidth=0.8)
    axes[2].set(xlabel="ability, full data", ylabel="coreset - full data")
    figure.suptitle(f"{model}: {r.n_persons} x {r.n_items}, coresets of {size}")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def npi(folder, repeat):
    r = irt.ingest(NPI, Path(folder) / "npi", progress=False)
    fit(r, "2pl")
    full = fit(r, "2pl")
    print(HEAD)
    for size in SIZES:
        for how in WITH_REPLACEMENT:
            print(compare(r, "2pl", size, *how, full, repeat), flush=True)
    for sampling in ("reservoir", "poisson"):
        for size in SIZES:
            print(compare(r, "2pl", size, "root-leverage", sampling, full, repeat), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--plots")
    parser.add_argument("tables", nargs="*", default=["synthetic", "npi", "3pl", "missing"])
    options = parser.parse_args()
    warnings.simplefilter("ignore", IrtDaskWarning)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.tables:
            print(f"\n{name}")
            if name == "synthetic":
                chosen = WITH_REPLACEMENT if options.all else USUAL
                cases = list(TWO) if options.full else SYNTHETIC
                tables(cases, "2pl", chosen, folder, options.repeat, plots=options.plots)
            elif name == "npi":
                npi(folder, options.repeat)
            elif name == "3pl":
                chosen = [*USUAL, ("labels-3pl", "replacement")]
                cases = list(PUBLISHED_THREE) if options.full else THREE
                tables(cases, "3pl", chosen, folder, options.repeat, plots=options.plots)
            elif name == "missing":
                tables(MISSING, "2pl", USUAL, folder, options.repeat, missing=0.3)
            else:
                parser.error(f"no table {name!r}")


if __name__ == "__main__":
    main()
