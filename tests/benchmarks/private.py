"""Error of private difficulties over epsilon, beside Figures 1 to 3 of Nguyen and Zhang.

    python tests/benchmarks/private.py [--repeat 20] [--plots FOLDER] [simulated | lsat | p0 ...]

``simulated``: 1PL, complete data, difficulties uniform in (-2, 2), abilities N(0, 1); 10, 50 and
100 items, 1,000 and 10,000 persons.  ``lsat``: 1,000 persons x 5 items.  ``p0``: the share of
pairs, 100 items.  delta = 1e-4; adjacency "replace" for all, as shuffling has no other.

Mean over the repetitions (new noise, the same data) of the largest difference (l-inf) and of the
root of the sum of squares (l2), to the non-private spectral estimate and to the truth.  In brackets
behind the name: p0, or the items used of each person.  The last line of each group is the error of
difficulties that are all 0: what is above it is worth nothing.  ``--plots`` draws the largest
difference to the truth over epsilon.
"""

import argparse
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np

import irt_dask as irt

sys.path.append(str(Path(__file__).parents[1] / "oracles"))
import private_baselines as baselines

DELTA = 1e-4
EPSILON = (0.01, 0.1, 1.0, 10.0)
HEAD = (
    f"{'epsilon':>7} {'mechanism':<22} {'fit l-inf':>9} {'fit l2':>8} {'true l-inf':>10} "
    f"{'true l2':>8}"
)


def simulated(n, m, seed=1):
    """Responses and true difficulties of mean 0."""
    rng = np.random.default_rng(seed)
    b = rng.uniform(-2, 2, m)
    b -= b.mean()
    right = rng.random((n, m)) < 1 / (1 + np.exp(b - rng.normal(size=(n, 1))))
    return irt.from_array(right.astype(np.int8)), b


def gaussian(r, epsilon, _, **options):
    return irt.fit_private_spectral(r, epsilon=epsilon, delta=DELTA, progress=False, **options)


def laplace(r, epsilon, _):
    return baselines.fit_discrete_laplace(r, epsilon=epsilon, progress=False)


def randomised(r, epsilon, k):
    options = {"epsilon": epsilon, "delta": DELTA, "complete": True, "progress": False}
    return baselines.fit_randomised_response(r, seed=k, **options)


def mechanisms(m):
    """What is compared, by name."""
    chosen = {"gaussian": gaussian}
    if m >= 50:
        p0 = 2 * np.log(m) / m
        chosen[f"gaussian (p0 {p0:.2f})"] = partial(gaussian, pairs="random", p0=p0)
        chosen["gaussian (20 items)"] = partial(gaussian, max_items_per_person=20)
    return {**chosen, "laplace": laplace, "randomised response": randomised}


def line(epsilon, name, differences):
    errors = [(np.abs(d).max(), np.sqrt((d**2).sum())) for pair in differences for d in pair]
    a, b, c, d = np.mean(np.reshape(errors, (-1, 4)), axis=0)
    print(f"{epsilon:>7} {name:<22} {a:9.3f} {b:8.3f} {c:10.3f} {d:8.3f}", flush=True)
    return c


def table(title, r, truth, chosen, repeat, plots):
    print(f"\n{title}")
    exact = irt.fit_spectral(r, progress=False)["item_difficulty"].values
    truth = exact if truth is None else truth
    print(HEAD)
    curves = {name: [] for name in chosen}
    for epsilon in EPSILON:
        for name, fit in chosen.items():
            found = [fit(r, epsilon, k)["item_difficulty"].values for k in range(repeat)]
            curves[name].append(line(epsilon, name, [(b - exact, b - truth) for b in found]))
    line("", "not private", [(exact - exact, exact - truth)])
    line("", "all 0", [(exact, truth)])
    if plots:
        plot(title, curves, plots)


def plot(title, curves, folder):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, values in curves.items():
        axis.loglog(EPSILON, values, "o-", label=name)
    axis.set(xlabel="epsilon", ylabel="largest difference to the truth", title=title)
    axis.title.set_fontsize(9)
    axis.legend(fontsize=7)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / ("-".join(re.findall("[a-z0-9]+", title.lower())) + ".png"), dpi=150)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", default=["simulated", "lsat", "p0"])
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--plots", type=Path)
    args = parser.parse_args()
    more = args.repeat, args.plots
    if "simulated" in args.tables:
        for n in (1000, 10_000):
            for m in (10, 50, 100):
                table(f"simulated, {n} persons x {m} items", *simulated(n, m), mechanisms(m), *more)
    if "lsat" in args.tables:
        title = "LSAT, 1,000 persons x 5 items (no truth: the columns repeat)"
        table(title, irt.load_lsat(), None, mechanisms(5), *more)
    if "p0" in args.tables:
        for n in (1000, 10_000):
            chosen = {f"p0 {p0}": partial(gaussian, pairs="random", p0=p0)
                      for p0 in (0.1, 0.2, 0.4, 0.7, 1.0)}  # fmt: skip
            title = f"share of pairs, {n} persons x 100 items"
            table(title, *simulated(n, 100), chosen, *more)


if __name__ == "__main__":
    main()
