"""Compare what every public method returns at two commits, on this machine.

    python tests/compare_commits.py OLD [NEW]        commits; without NEW the working tree

Every method of the registry is called on small data of every kind (complete, with gaps, sparse,
booklets; with and without groups and weights; 5 and 24 items) at both commits, by the registry of
the working tree.  Printed are the variables that differ, with the largest difference relative to
the largest value, and what only one of the two returns.  Exit code 1 where anything differs.

Nothing is tracked: bits depend on the processor and the libraries, so both commits run here, now,
in the environment of this interpreter.  Methods whose noise is secret are left out.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import commits
import numpy as np

#: Differences in these attributes are no change of a result.
UNCOMPARED = {"irt_dask_version", "created", "seconds"}


# --- one commit -----------------------------------------------------------------------------------


def datasets() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Responses and layout by name; methods take columns and weights as they can."""
    from registry import values

    booklets = values(1200, m=24, seed=3)
    kind = np.arange(1200)[:, None] % 3
    booklets[30:] = np.where((np.arange(24) // 8 == kind)[30:], -1, booklets[30:])
    return {
        "complete": (values(), {}),
        "gaps": (values(missing=0.15, seed=1), {"rows_per_block": 150}),
        "sparse": (values(missing=0.6, seed=2), {"layout": "csr", "rows_per_block": 90}),
        "24 items": (values(600, m=24, seed=4), {"rows_per_block": 250}),
        "booklets": (booklets, {"rows_per_block": 500}),
    }


def results() -> dict[str, dict[str, Any]]:
    """Variables and attributes of every method on all data, or the error's text."""
    from registry import METHODS, as_responses, banks, table, values, weights

    out = {}
    for data, (y, options) in datasets().items():
        known = banks(y.shape[1])
        for method in METHODS:
            if method.random == "secret":
                continue
            columns = {k: v for k, v in table(len(y)).items() if k != "group"}
            given = {"": columns}
            if method.groups != "no":
                given["groups"] = table(len(y))
            if method.weights and method.uses_weights:
                given["weights"] = table(len(y)) | {"weight": weights(len(y))}
            if method.groups == "needs":
                del given[""]
            for extra, persons in given.items():
                label = ", ".join(x for x in (method.label, data, extra) if x)
                try:
                    own = y
                    if method.categories is not None:  # as many are not observed
                        own = values(*y.shape[:1], m=y.shape[1], of=method)
                        own[y < 0] = -1
                    given_data = as_responses(own, of=method, persons=persons, **options)
                    found = method(given_data, banks=known)
                except Exception as error:
                    out[label] = {"error": f"{type(error).__name__}: {error}"}
                else:
                    out[label] = {str(k): found[k].values for k in found.variables}
                    out[label] |= {f"attrs[{k!r}]": v for k, v in found.attrs.items()}
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return out


# --- two commits ----------------------------------------------------------------------------------


def results_of(commit: str | None) -> dict[str, dict[str, Any]]:
    """Results of a commit, or the working tree, from a process of its own."""
    with commits.checked_out(commit) as root, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.pickle"
        subprocess.run(
            [sys.executable, __file__, str(root), "--write", str(file)],
            env=commits.environment(root, commits.ROOT / "tests" / "contracts"),
            cwd=folder,
            check=True,
        )
        with file.open("rb") as f:
            return pickle.load(f)  # noqa: S301 (written a moment ago, by this very script)


def difference(one: Any, two: Any) -> str | None:
    """How two values differ; None: not at all, to the last bit."""
    a, b = np.asarray(one), np.asarray(two)
    if a.dtype == object or b.dtype == object:
        a, b = a.astype("U"), b.astype("U")
    if a.shape != b.shape:
        return f"shape {a.shape} -> {b.shape}"
    if a.dtype != b.dtype:
        return f"{a.dtype} -> {b.dtype}"
    if a.tobytes() == b.tobytes():
        return None
    if a.dtype.kind not in "fc":
        return f"{(a != b).sum()} of {a.size} values" if a.ndim else f"{a!r} -> {b!r}"
    if (np.isnan(a) != np.isnan(b)).any():
        return f"NaN: {np.isnan(a).sum()} -> {np.isnan(b).sum()}"
    gap, size = np.nanmax(np.abs(a - b)), np.nanmax(np.abs(a))
    return f"{gap / size if size else gap:.1e}"


def compare(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> int:
    """Print every difference; return how many calls differ."""
    changed = 0
    for label in old | new:
        a, b = old.get(label), new.get(label)
        if a is None or b is None:
            lines = ["only new" if a is None else "only old"]
        else:
            lines = []
            for k in a | b:
                if k in UNCOMPARED or any(f"attrs[{u!r}]" == k for u in UNCOMPARED):
                    continue
                if k not in a or k not in b:
                    lines.append(f"{k}: only {'new' if k not in a else 'old'}")
                elif (how := difference(a[k], b[k])) is not None:
                    lines.append(f"{k}: {how}")
        if lines:
            changed += 1
            print(label, *lines, sep="\n    ")
    print(f"{changed} of {len(old | new)} calls differ")
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", nargs="?")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        commits.check(Path(options.old))
        with options.write.open("wb") as f:
            pickle.dump(results(), f)
        return
    if not options.old:
        parser.error("which commit?")
    old, new = results_of(options.old), results_of(options.new)
    sys.exit(compare(old, new) > 0)


if __name__ == "__main__":
    main()
