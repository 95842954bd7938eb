"""What a run is of: configuration, data, versions; how these differ from those of a manifest."""

from __future__ import annotations

from typing import Any

import pandas as pd

from irt_dask.clusters.checks import versions

#: Of the configuration, in a manifest and in an identity.
DIGEST = "config_digest"


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What an identity has otherwise than the content of a manifest, for people.

    Tables and the title may change; all else decides what the results are.
    """
    found = []
    # runs that were begun when tables were a part of the checksum go on
    if old[DIGEST] != new[DIGEST] and _but_tables(old) != _but_tables(new):
        found.append(f"the configuration changed ({_differences(old, new)})")
    if old["data_checksum"] != new["data_checksum"]:
        found.append("the data changed")
    if old.get("bank_checksum") != new.get("bank_checksum"):
        found.append("the bank marginal.fixed_items changed")
    if old["versions"] != versions():
        now = versions()
        other = [f"{k} {old['versions'].get(k)} -> {v}" for k, v in now.items()
                 if old["versions"].get(k) != v]  # fmt: skip
        found.append(f"versions changed ({', '.join(other)})")
    return found


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    (a,), (b,) = (pd.json_normalize(_but_tables(of)).to_dict("records") for of in (old, new))
    keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
    return ", ".join(f"{k}: {a.get(k)!r} -> {b.get(k)!r}" for k in keys)


def _but_tables(of: dict[str, Any]) -> dict[str, Any]:
    """The configuration that a manifest, or an identity, has, without its tables."""
    return {k: v for k, v in of["config"].items() if k != "tables"}
