"""Bias of links by items of which some have drifted, with and without robust weights.

    python tests/benchmarks/drift.py [--links 100] [--figure drift.png]

Banks of 25 common items on scales theta_a = 1.2 theta_b + .4, whose b and log a are off by .1 in
either; a share of the items is .5 harder in the second.  Printed for each method and share: bias
and root mean square error of B, without and with ``robust="bisquare"``, and items dropped.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import irt_dask as irt
from irt_dask.engine import dataset

SHARES = (0.0, 0.1, 0.2, 0.3)


def bank(a, b):
    data = {"item_discrimination": a, "item_difficulty": b, "item_intercept": -a * b}
    return dataset(data, item_id=tuple(f"i{k}" for k in range(a.size)), attrs={"model": "2pl"})


def drifted(rng, share, n=25, sd=0.1):
    a, b = np.exp(rng.normal(0, 0.3, n)), rng.normal(size=n)
    later = b.copy()
    later[rng.permutation(n)[: round(share * n)]] += 0.5
    two = bank(a * 1.2 * np.exp(rng.normal(0, sd, n)), (later - 0.4 + rng.normal(0, sd, n)) / 1.2)
    return bank(a * np.exp(rng.normal(0, sd, n)), b + rng.normal(0, sd, n)), two


def errors(method, robust, share, links):
    """B less what it should be, and items dropped, (links, 2)."""
    rng, out = np.random.default_rng(7), []
    for _ in range(links):
        found = irt.link(*drifted(rng, share), method=method, robust=robust).attrs
        out.append((found["B"] - 0.4, found.get("n_dropped", 0)))
    return np.array(out)


def drawn(table, path):
    """Bias by the share of items that have drifted, as a figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    _, axes = plt.subplots(figsize=(5, 3.2))
    for (method, robust), rows in table.items():
        style = "o-" if robust else "s--"
        axes.plot(SHARES, rows, style, label=f"{method}{', bisquare' if robust else ''}")
    axes.axhline(0.0, color="grey", lw=0.5)
    axes.set(xlabel="share of items that are 0.5 harder", ylabel="bias of B")
    axes.legend(fontsize=7)
    plt.tight_layout()
    plt.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--links", type=int, default=100)
    parser.add_argument("--methods", nargs="+", default=["haebara", "stocking-lord", "mean-mean"])
    parser.add_argument("--figure")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = {}
    for method in options.methods:
        for robust in (None, "bisquare"):
            bias = table[method, robust] = []
            for share in SHARES:
                e = errors(method, robust, share, options.links)
                bias.append(e[:, 0].mean())
                rmse = np.sqrt((e[:, 0] ** 2).mean())
                print(f"{method:14} {robust or '-':9} {share:.1f}  bias {bias[-1]:+.3f}  "
                      f"rmse {rmse:.3f}  dropped {e[:, 1].mean():.1f}", flush=True)  # fmt: skip
    if options.figure:
        drawn(table, options.figure)


if __name__ == "__main__":
    main()
