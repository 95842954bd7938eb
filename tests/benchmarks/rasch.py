"""Rasch estimators next to each other, as in the figures and tables of two papers.

    pip install girth==0.8.0      (for ``settings`` only)
    python tests/benchmarks/rasch.py [--repeat 20] [--plots FOLDER] [PART ...]

Nguyen and Zhang, "A Spectral Approach to Item Response Theory": ``settings`` (Figures 1 and 2:
error in three settings, and seconds; marginal ML with the SD of ability estimated, and with N(0, 1)
as in the paper), ``real`` (the protocol of Tables 1 to 3: 80% of the persons
to fit, a tenth of them to choose the distribution of ability, 20% to test; ../shared/data, LSAT).

"Random pairing MLE": ``n``, ``p``, ``splits``, ``kappa``, ``top`` (Figures 1 to 5: largest error
over items and the share of the K hardest items found), ``trace`` (Figure 6: error over what Theorem
2 says), ``normal`` (Figure 7: quantiles of standardised errors), ``coverage`` (Table 1), ``lsat``
(Table 2 and Figure 8).  Numbers are means over the repetitions; without a part all are printed.
``--plots`` draws the tables of errors and shares.
"""

import argparse
import re
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import xarray as xr
from scipy import stats

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError, IrtDaskWarning

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
QUIET = {"progress": False}
#: Folder for figures, if they are wanted.
PLOTS: list[Path] = []


def spectral(y, **options):
    return irt.fit_spectral(y, regularization=0.0, standard_errors=False, **options, **QUIET)


def pairwise(y, splits=1, seed=0, errors=False, **options):
    kind = {"pairing": "random", "n_splits": splits, "seed": seed}
    kind = kind if splits else {"pairing": "all"}
    return irt.fit_pairwise(y, **kind, standard_errors=errors, **options, **QUIET)


def joint(y):
    return irt.fit_joint(y, model="1pl", **QUIET)


def centred(difficulty):
    return xr.Dataset({"item_difficulty": ("items", difficulty - difficulty.mean())})


def marginal(y):
    """Abilities N(0, SD^2), the SD estimated: it is the slope that all items share."""
    return centred(-irt.fit_marginal(y, model="1pl", **QUIET)["item_intercept"].values)


def marginal_n01(y):
    """Abilities N(0, 1), slopes 1, as the paper's baseline: the same program, on PyPI."""
    import girth

    known = np.where(y.T < 0, girth.INVALID_RESPONSE, y.T.astype(int))
    return centred(np.asarray(girth.rasch_mml(known)["Difficulty"]))


METHODS = {
    "spectral": spectral,
    "PMLE": lambda y: pairwise(y, 0),
    "RP-MLE": pairwise,
    "MRP-MLE(20)": lambda y: pairwise(y, 20),
}


def simulate(rng, n, m, p=1.0, b=None, theta=None):
    b = rng.normal(size=m) if b is None else b
    theta = rng.normal(size=n) if theta is None else theta
    y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(b - theta[:, None]))).astype(np.int8)
    if p < 1.0:
        y[rng.random((n, m)) >= p] = -1
    return y, b - b.mean()


def difficulty(fit):
    return fit["item_difficulty"].values


def largest(estimate, b):
    return np.abs(estimate - b).max()


def table(title, head, cases, methods, measure, repeat):
    """Mean of ``measure(estimate, truth)``; cases are (label, function of a generator)."""
    print(title)
    print(f"{head:>10} " + " ".join(f"{name:>12}" for name in methods))
    rows = []
    for label, draw in cases:
        values = {name: [] for name in methods}
        for k in range(repeat):
            y, b = draw(np.random.default_rng([k, 1]))
            for name, fit in methods.items():
                try:
                    values[name].append(measure(difficulty(fit(y)), b))
                except (EstimationError, InputError):
                    values[name].append(np.nan)
        rows.append([np.mean(v) for v in values.values()])
        print(f"{label:>10} " + " ".join(f"{x:>12.4f}" for x in rows[-1]), flush=True)
    if PLOTS and len(cases) > 1:
        plot(
            title,
            head,
            [label for label, _ in cases],
            dict(zip(methods, zip(*rows, strict=True), strict=True)),
        )


def plot(title, head, labels, lines):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, values in lines.items():
        axis.plot(labels, values, "o-", label=name)
    axis.set(xlabel=head, title=title)
    axis.title.set_fontsize(8)
    axis.legend()
    name = "-".join(re.findall("[a-z0-9]+", title.lower()))
    figure.savefig(PLOTS[0] / f"{name}.png", dpi=150)
    plt.close(figure)


# --- "Random pairing MLE" -------------------------------------------------------------------------


def n(repeat):
    title = "largest error, m = 50, p = .1"
    cases = [
        (str(n), lambda rng, n=n: simulate(rng, n, 50, 0.1)) for n in (5000, 10_000, 20_000, 40_000)
    ]
    table(title, "persons", cases, METHODS, largest, repeat)


def p(repeat):
    title = "largest error, m = 50, n = 10,000"
    cases = [
        (f"{p:.2f}", lambda rng, p=p: simulate(rng, 10_000, 50, p)) for p in (1 / 9, 0.25, 0.5, 1.0)
    ]
    table(title, "p", cases, METHODS, largest, repeat)


def splits(repeat):
    title = "largest error, m = 50, n = 10,000, p = .1, by number of splits"
    methods = {str(k): lambda y, k=k: pairwise(y, k) for k in (1, 2, 5, 10, 20, 50)}
    methods["PMLE"] = METHODS["PMLE"]
    table(title, "", [("", lambda rng: simulate(rng, 10_000, 50, 0.1))], methods, largest, repeat)


def kappa(repeat):
    title = "largest error, m = 50, n = 10,000, p = .1, abilities and difficulties U(0, log kappa)"

    def draw(rng, size):
        theta, b = (rng.uniform(0.0, np.log(size), k) for k in (10_000, 50))
        return simulate(rng, 10_000, 50, 0.1, b, theta)

    cases = [(str(k), lambda rng, k=k: draw(rng, k)) for k in (3, 10, 30, 100, 300)]
    table(title, "kappa", cases, METHODS, largest, repeat)


def top(repeat):
    title = "share of the 10 hardest found, m = 50, n = 10,000, p = .1, by how much harder they are"

    def draw(rng, step):
        b = np.where(np.arange(50) < 10, 0.8 * step, -0.2 * step)
        return simulate(rng, 10_000, 50, 0.1, b)

    def found(estimate, b):
        return np.mean(np.argsort(-estimate)[:10] < 10)

    cases = [(f"{s:.2f}", lambda rng, s=s: draw(rng, s)) for s in (0.1, 0.2, 0.3, 0.4)]
    table(title, "gap", cases, METHODS, found, repeat)


def trace(repeat):
    print("RP-MLE: error over the square root of the trace of the covariance, p = .1, m = 50")
    for size in (5000, 10_000, 20_000, 40_000):
        ratios = []
        for k in range(repeat):
            y, b = simulate(np.random.default_rng([k, 2]), size, 50, 0.1)
            fit = pairwise(y, 1, k, errors=True)
            expected = np.sqrt(np.trace(fit["item_difficulty_covariance"].values))
            ratios.append(np.linalg.norm(difficulty(fit) - b) / expected)
        print(f"{size:>10} {np.mean(ratios):.3f} (standard deviation {np.std(ratios):.3f})")


def normal(repeat):
    z = []
    for k in range(repeat):
        rng = np.random.default_rng([k, 3])
        y, b = simulate(rng, 10_000, 20, 0.1, np.zeros(20), np.zeros(10_000))
        fit = pairwise(y, 1, k, errors=True)
        z.append((difficulty(fit) - b) / fit["item_difficulty_se"].values)
    z = np.concatenate(z)
    levels = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
    print("RP-MLE: quantiles of errors over standard errors, and of the normal distribution")
    print(" ".join(f"{q:>7.2f}" for q in np.quantile(z, levels)))
    print(" ".join(f"{q:>7.2f}" for q in stats.norm.ppf(levels)))


def coverage(repeat):
    levels = np.array([0.8, 0.9, 0.95, 0.99])
    reach = stats.norm.ppf(0.5 + levels / 2)
    methods = {
        "RP-MLE": lambda y, k: pairwise(y, 1, k, errors=True),
        "MRP-MLE(20)": lambda y, k: pairwise(y, 20, k, errors=True),
        "PMLE": lambda y, k: pairwise(y, 0, errors=True),
        "spectral": lambda y, k: irt.fit_spectral(y, regularization=0.0, **QUIET),
        "spectral, 1": lambda y, k: irt.fit_spectral(y, regularization=1.0, **QUIET),
    }
    inside = {name: np.zeros(4) for name in methods}
    for k in range(repeat):
        y, b = simulate(np.random.default_rng([k, 4]), 10_000, 20, 0.1)
        for name, function in methods.items():
            fit = function(y, k)
            z = np.abs(difficulty(fit) - b) / fit["item_difficulty_se"].values
            inside[name] += (z[:, None] <= reach).mean(axis=0)
    print(f"coverage, n = 10,000, m = 20, p = .1; nominal {levels} (symmetric intervals)")
    for name, total in inside.items():
        print(f"{name:>12} " + " ".join(f"{x:.4f}" for x in total / repeat))


def lsat(repeat):
    r = irt.load_lsat()
    fit = pairwise(r, 1, errors=True, level=0.99)
    print("RP-MLE, one pairing: estimate and 99% interval; paper: -1.214 .409 1.112 .298 -.605")
    for j in range(5):
        low, high = (fit[f"item_difficulty_{end}"].values[j] for end in ("lower", "upper"))
        print(f"{r.item_id[j]:>10} {difficulty(fit)[j]:>7.3f} ({low:.3f}, {high:.3f})")
    y = np.concatenate([r.read_block(k).data.values for k in range(r.n_blocks)])
    title = "share of samples of persons of which item 3 is the hardest"

    def sample(rng, size):
        return y[rng.choice(1000, size, replace=False)], np.zeros(5)

    def third(estimate, b):
        return float(np.argmax(estimate) == 2)

    cases = [(str(s), lambda rng, s=s: sample(rng, s)) for s in (50, 100, 200, 400)]
    table(title, "persons", cases, METHODS, third, 5 * repeat)


# --- "A Spectral Approach to Item Response Theory" ------------------------------------------------


def settings(repeat):
    methods = {
        "spectral": spectral,
        "MML": marginal,
        "MML N(0, 1)": marginal_n01,
        "CML": lambda y: irt.fit_conditional(y, **QUIET),
        "JML": joint,
        "PMLE": METHODS["PMLE"],
        "row sums": lambda y: irt.fit_choppin(y, **QUIET),
        "eigenvector": lambda y: irt.fit_saaty(y, **QUIET),
    }
    for setting, sd, share in (
        ("complete, abilities N(0, 1)", 1.0, 1.0),
        ("complete, abilities N(0, 4)", 2.0, 1.0),
        ("20% observed, abilities N(0, 1)", 1.0, 0.2),
    ):
        title = f"root of the sum of squared errors, 100 items, {setting}"

        def draw(rng, size, sd=sd, share=share):
            return simulate(rng, size, 100, share, theta=rng.normal(0.0, sd, size))

        sizes = (500, 2000, 5000)
        cases = [(str(s), lambda rng, s=s, d=draw: d(rng, s)) for s in sizes]
        table(
            title,
            "persons",
            cases,
            methods,
            lambda x, b: np.linalg.norm(x - b),
            max(1, repeat // 4),
        )
    y, _ = simulate(np.random.default_rng(0), 100_000, 100)
    taken = {}
    for name, fit in methods.items():
        fit(y)
        begun = time.perf_counter()
        fit(y)
        taken[name] = time.perf_counter() - begun
    print("seconds, 100,000 x 100: " + ", ".join(f"{k} {v:.2f}" for k, v in taken.items()))


def real(repeat):
    methods = {
        "spectral": lambda r: irt.fit_spectral(r, standard_errors=False, **QUIET),
        "MML (1PL)": lambda r: irt.fit_marginal(r, model="1pl", **QUIET),
        "MML (2PL)": lambda r: irt.fit_marginal(r, **QUIET),
        "CML": lambda r: irt.fit_conditional(r, **QUIET),
        "PMLE": METHODS["PMLE"],
        "JML": joint,
        "bayes (2PL)": lambda r: irt.fit_bayes(r, n_draws=500, n_warmup=200, **QUIET),
    }
    head = (
        f"{'data':>8} {'method':>12} {'AUC':>6} {'own':>6} {'items':>6} {'log-lik':>8} "
        f"{'top 10 25 50':>15} {'seconds':>8}"
    )
    print(head)
    with tempfile.TemporaryDirectory() as folder:
        for name in (
            "lsat",
            "npi_wide",
            "eclsk_atl_wide",
            "pisa2012_us_math_long",
            "un_votes_long",
        ):
            path = DATA / f"{name}.csv.gz"
            if name == "lsat":
                r = irt.load_lsat()
            elif path.exists():
                r = irt.ingest(path, Path(folder) / name, **QUIET)
            else:
                continue
            train, test = r.split(0.8, seed=1)
            infer, validation = train.split(0.9, seed=2)
            top = (10, 25, 50) if r.n_items > 60 else ()
            for method, fit in methods.items():
                if method in ("MML (2PL)", "bayes (2PL)") and name == "un_votes_long":
                    continue  # minutes
                begun = time.perf_counter()
                try:
                    items = fit(infer)
                except (EstimationError, InputError) as error:
                    print(f"{name[:8]:>8} {method:>12} {str(error)[:90]}")
                    continue
                taken = time.perf_counter() - begun
                got, own, alone = (
                    irt.evaluate(
                        test, items, validation=validation, top=top, protocol=protocol, **QUIET
                    )
                    for protocol in ("held-out", "own", "items")  # the last: Table 1's
                )
                best = " ".join(f"{x:.2f}" for x in got["top_accuracy"].values) if top else ""
                print(
                    f"{name[:8]:>8} {method:>12} {got['auc'].item():>6.3f} "
                    f"{own['auc'].item():>6.3f} {alone['auc'].item():>6.3f} "
                    f"{got['log_score'].item():>8.4f} {best:>15} {taken:>8.2f}",
                    flush=True,
                )


PARTS = {
    f.__name__: f for f in (settings, real, n, p, splits, kappa, top, trace, normal, coverage, lsat)
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    options = parser.parse_args()
    warnings.simplefilter("ignore", IrtDaskWarning)
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
        PLOTS.append(options.plots)
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"no part {name!r}; there are {', '.join(PARTS)}")
        print(f"\n{name}")
        PARTS[name](options.repeat)


if __name__ == "__main__":
    main()
