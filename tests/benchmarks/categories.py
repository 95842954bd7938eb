"""Items of more than two categories: coverage of intervals, levels of tests, speed.

    python tests/benchmarks/categories.py coverage [N]      # data sets of 2,000 x 12 in booklets
    python tests/benchmarks/categories.py guessing [N]      # four 3PL items in place of 2PL ones
    python tests/benchmarks/categories.py levels [N]        # S-X2, chi-square of groups, l_z*
    python tests/benchmarks/categories.py rmsd [N]          # p-values of RMSD, 39 replicates
    python tests/benchmarks/categories.py dif [N] [FOCAL ...]  # tests without DIF, by focal size
    python tests/benchmarks/categories.py speed             # one core, medians of 5

Coverage: 95% intervals of estimate +- 1.96 SE, slopes on the log scale, steps with at least 25
expected answers on each side.  Simulated data: graded response, generalised partial credit and 2PL
items, four each.  3PL items apart, of complete data: guessing as the prior has it, with the prior
and without, and guessing of .08 at most, for which the prior is wrong.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from results import Table

MODELS = ["2pl"] * 4 + ["graded"] * 4 + ["gpcm"] * 4
K = [2] * 4 + [3, 4, 3, 4] * 2
NAMES = [f"item{j + 1}" for j in range(12)]
NORMAL = 1.959963984540054


def simulated(n: int, seed: int, *, booklets: bool) -> Any:
    """Mixed items; in booklets everybody has eight of the twelve, as two of three thirds."""
    import irt_dask as irt

    model = dict(zip(NAMES, MODELS, strict=True))
    r = irt.simulate(n, 12, model=model, categories=K, seed=seed)
    if not booklets:
        return r, r.truth
    y = r.to_xarray()["response"].values.copy()
    y[np.arange(n)[:, None] % 3 == np.arange(12) % 3] = -1
    return irt.from_array(y, categories=K, item_id=NAMES), r.truth


def fitted(r: Any, **options: Any) -> Any:
    """The fit, or None where a category has no response."""
    import irt_dask as irt
    from irt_dask.errors import EstimationError

    try:
        return irt.fit_marginal(r, model=dict(zip(NAMES, MODELS, strict=True)), progress=False,
                                **options)  # fmt: skip
    except EstimationError:
        return None


def coverage(n_sets: int) -> None:
    """Shares of intervals that hold the truth, by kind of parameter."""
    held: dict[str, list[np.ndarray]] = {}
    left_out = 0
    for seed in range(n_sets):
        r, truth = simulated(2000, seed, booklets=True)
        fit = fitted(r)
        if fit is None:
            left_out += 1
            continue
        y = np.concatenate([b.data.values for b in (r.read_block(k) for k in range(r.n_blocks))])
        above = np.stack([(y >= k).sum(axis=0) for k in range(1, 4)], axis=1)
        below = (y >= 0).sum(axis=0)[:, None] - above
        enough = (np.minimum(above, below) >= 25) & (np.arange(1, 4) < np.array(K)[:, None])
        a, se = fit["item_discrimination"].values, fit["item_discrimination_se"].values
        z = np.log(a / truth["item_discrimination"].values) * a / se
        kinds = {"log slope": np.abs(z) < NORMAL}
        for name in ("step_intercept", "step_difficulty", "threshold"):
            apart = fit[f"item_{name}"].values - truth[f"item_{name}"].values
            inside = np.abs(apart) < NORMAL * fit[f"item_{name}_se"].values
            for kind in ("2pl", "graded", "gpcm"):
                of = np.array(MODELS) == kind
                kinds[f"{name}, {kind}"] = inside[of][enough[of]]
        for kind, inside in kinds.items():
            held.setdefault(kind, []).append(inside)
    with Table() as table:
        for kind, parts in held.items():
            every = np.concatenate(parts)
            table.add(kind=kind, intervals=every.size, held=float(every.mean()),
                      se=float(np.sqrt(0.05 * 0.95 / every.size)))  # fmt: skip
    print(f"{n_sets} data sets, {left_out} left out: a category without a response")


def guessing(n_sets: int) -> None:
    """Shares of intervals of 3PL items that hold the truth, and bias over the mean error."""
    import irt_dask as irt

    models = dict(zip(NAMES, ["3pl"] * 4 + MODELS[4:], strict=True))
    with Table() as table:
        given = "as the prior"
        for prior, truth in (("default", given), (None, given), ("default", 0.08)):
            z: dict[str, list[np.ndarray]] = {"log slope": [], "intercept": [], "guessing": []}
            left_out = 0
            for seed in range(n_sets):
                r = irt.simulate(2000, 12, model=models, categories=K, seed=30_000 + seed)
                if truth == 0.08:
                    bank = r.truth.drop_dims("persons")
                    bank["item_guessing"] = bank["item_guessing"].clip(max=truth)
                    r = irt.simulate(2000, items=bank, seed=40_000 + seed)
                more = {} if prior else {"guessing_prior": None}
                try:
                    fit = irt.fit_marginal(r, model=models, progress=False, **more)
                except irt.errors.EstimationError:
                    left_out += 1
                    continue
                for kind in z:
                    name = {"log slope": "item_discrimination"}.get(kind, f"item_{kind}")
                    found, se = fit[name].values[:4], fit[f"{name}_se"].values[:4]
                    true = r.truth[name].values[:4]
                    apart = np.log(found / true) * found if kind == "log slope" else found - true
                    z[kind].append(apart / se)
            for kind, parts in z.items():
                every = np.concatenate(parts)
                known = every[np.isfinite(every)]
                table.add(prior=str(prior), truth=str(truth), kind=kind, intervals=every.size,
                          without_error=int(every.size - known.size),
                          held=float((np.abs(known) < NORMAL).mean()),
                          median_z=float(np.median(known)), left_out=left_out)  # fmt: skip


def levels(n_sets: int) -> None:
    """Shares of p-values below 5% under the model."""
    import irt_dask as irt

    with Table() as table:
        for n in (500, 1000, 2000):
            p: list[Any] = []
            low = []
            for seed in range(n_sets):
                r, _ = simulated(n, 10_000 + seed, booklets=False)
                fit = fitted(r, standard_errors=False)
                if fit is None:
                    continue
                found = irt.item_fit(r, fit, progress=False)
                p.append([found["item_sx2_p_value"].values, found["item_chi2_p_value"].values])
                low.append(irt.person_fit(r, fit, progress=False).attrs["share_below_5"])
            sx2, chi2 = (np.nanmean(np.array(p)[:, k] < 0.05) for k in (0, 1))
            table.add(persons=n, items=12, sets=len(p), sx2=float(sx2), chi2=float(chi2),
                      lz=float(np.mean(low)))  # fmt: skip
        for m in (20, 40):
            low = []
            for seed in range(max(1, n_sets // 10)):
                r = irt.simulate(2000, m, model="graded", categories=4, seed=seed)
                low.append(irt.person_fit(r, r.truth.drop_dims("persons"), progress=False)
                           .attrs["share_below_5"])  # fmt: skip
            table.add(persons=2000, items=m, sets=len(low), sx2=np.nan, chi2=np.nan,
                      lz=float(np.mean(low)))  # fmt: skip


def rmsd(n_sets: int) -> None:
    """Shares of p-values of RMSD of at most 5% under the model: items of a bank, fitted, groups."""
    import irt_dask as irt
    from irt_dask.errors import EstimationError

    with Table() as table:
        for n, groups, model in (
            (300, 1, "2pl"), (2000, 1, "2pl"), (2000, 2, "2pl"), (2000, 1, "gpcm"),
        ):  # fmt: skip
            p: dict[bool, list[Any]] = {False: [], True: []}
            for seed in range(n_sets):
                r = irt.simulate(n, 12, model=model, categories=2 if model == "2pl" else 3,
                                 seed=20_000 + seed)  # fmt: skip
                bank = r.truth.drop_dims("persons")
                label = np.arange(n) % groups
                ability = {str(g): (0.5 * g, 1.0) for g in range(groups)}
                r = irt.replicate(irt.from_array(r.to_xarray()["response"].values,
                                                 item_id=list(r.item_id), categories=r.categories,
                                                 persons={"group": label}),
                                  bank, ability=ability, seed=seed)  # fmt: skip

                def refit(x: Any, model: str = model) -> Any:
                    return irt.fit_marginal(x, model=model, standard_errors=False, progress=False)

                for fitted_to in p:
                    try:
                        found = irt.item_curves(
                            r, refit(r) if fitted_to else bank, n_replicates=39, seed=seed,
                            refit=refit if fitted_to else None, progress=False,
                        )  # fmt: skip
                    except EstimationError:  # a category without a response, in some replicate
                        continue
                    p[fitted_to].append(found["group_item_rmsd_p_value"].values)
            bank_level, fitted_level = (float(np.mean(np.array(p[k]) <= 0.05)) for k in p)
            table.add(persons=n, items=12, groups=groups, model=model, tests=np.size(p[True]),
                      bank=bank_level, fitted=fitted_level)  # fmt: skip


def dif(n_sets: int, sizes: list[int]) -> None:
    """Shares of p-values below 5% without DIF, 1,000 reference persons, impact of half an SD."""
    import irt_dask as irt

    with Table() as table:
        for focal in sizes or (60, 100, 200, 1000):
            p: list[Any] = []
            for seed in range(n_sets):
                r, truth = simulated(2 * (1000 + focal), 20_000 + seed, booklets=False)
                theta = truth["person_ability"].values
                u = np.random.default_rng(seed).random(theta.size)
                lower = np.flatnonzero(u < 1.0 / (1.0 + np.exp(0.5 * theta)))
                chosen = lower[:focal]
                rest = np.setdiff1d(np.arange(theta.size), lower)[:1000]
                y = r.to_xarray()["response"].values[np.concatenate([rest, chosen])]
                group = np.repeat(["a", "b"], [rest.size, chosen.size])
                both = irt.from_array(y, categories=K, item_id=NAMES, persons={"group": group})
                fit = fitted(both, standard_errors=False)
                if fit is None:
                    continue
                found = irt.dif(both, fit, reference="a", focal="b", progress=False)
                p.append([found[f"item_dif_{x}_p_value"].values
                          for x in ("uniform", "nonuniform", "joint")])  # fmt: skip
            every = np.array(p)
            share = [float(np.nanmean(every[:, k] < 0.05)) for k in range(3)]
            table.add(focal=focal, tests=int(np.isfinite(every[:, 0]).sum()), uniform=share[0],
                      nonuniform=share[1], joint=share[2])  # fmt: skip


def timed() -> Iterator[tuple[str, Any]]:
    """What is timed."""
    import irt_dask as irt

    for model, k in (("2pl", 2), ("graded", 4), ("gpcm", 4), ("pcm", 4), ("nominal", 4)):
        r = irt.simulate(10_000, 40, model=model, categories=k, seed=1)
        for se in (False, True):
            label = f"{model}, K = {k}, 10,000 x 40{', errors' * se}"
            yield (
                label,
                lambda r=r, model=model, se=se: irt.fit_marginal(
                    r, model=model, standard_errors=se, progress=False
                ),
            )
    for model, k in (("2pl", 2), ("gpcm", 4), ("graded", 4), ("gpcm", 15)):
        r = irt.simulate(200_000, 40, model=model, categories=k, seed=1)
        bank = r.truth.drop_dims("persons")
        yield (
            f"EAP, {model}, K = {k}, 200,000 x 40",
            lambda r=r, bank=bank: irt.score(r, bank, progress=False),
        )


def speed() -> None:
    """Medians of five, after a first call that compiles."""
    with Table() as table:
        for label, call in timed():
            call()
            seconds = []
            for _ in range(5):
                began = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - began)
            table.add(what=label, seconds=float(np.median(seconds)))


#: What there is to do.
WHAT: dict[str, Any] = {
    "coverage": coverage, "guessing": guessing, "levels": levels, "rmsd": rmsd, "dif": dif,
    "speed": speed,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=tuple(WHAT))
    parser.add_argument("n", nargs="?", type=int, default=100)
    parser.add_argument("sizes", nargs="*", type=int, help="focal persons, of dif")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "speed":
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
            os.environ[name] = "1"
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # it computes on all it may use
        speed()
    elif options.what == "dif":
        dif(options.n, options.sizes)
    else:
        WHAT[options.what](options.n)


if __name__ == "__main__":
    main()
