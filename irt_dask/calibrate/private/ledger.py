"""Accounting of private releases: the noise that a budget asks for, and the privacy ledger.

The ledger is a file with every private release about one set of persons, and its cost.  It belongs
to whoever holds the data (it is written with mode 0600) and is no part of a release.  It is one
JSON document with a checksum, replaced as a whole: temporary file, fsync, rename, fsync of the
folder.  There are no torn lines to interpret: a file that does not match its checksum was damaged
from outside, what was spent is then unknown, and nothing more is released.  An entry is on disk
before its release is returned; what dies before that has released nothing.

Budgets add up over *all* entries, whatever the data were called: the same persons in other blocks,
in a store that has grown or in a selection have another fingerprint, and are the same persons.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask._version import __version__
from irt_dask.errors import BudgetError, InputError, StoreError
from irt_dask.store.documents import from_json
from irt_dask.store.manifest import replacing, settle
from irt_dask.store.places import local_path, read_bytes

FORMAT = "irt_dask privacy ledger"
#: With a budget it is 2: what reads version 1 alone would spend more.
VERSION, VERSION_WITH_BUDGET = 1, 2
#: Share by which a sum of budgets may exceed their limit: what rounding makes of equal ones.
_ROUNDING = 1e-9

#: Of epsilon and rho, far beyond any protection: OpenDP's conversion gets slow, then overflows.
_LARGEST_BUDGET = 1e4
#: Of the noise: beyond it counts of 64 bits would saturate, and below its inverse there is none.
_LARGEST_SCALE = 1e15

Json = dict[str, Any]


# --- budgets --------------------------------------------------------------------------------------


def check_budget(epsilon: Any, delta: Any, rho: Any) -> Json:
    """Return the three as numbers: epsilon and delta, or rho, perhaps with a delta."""
    budget = {"epsilon": epsilon, "delta": delta, "rho": rho}
    for name, value in budget.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise InputError(f"{name}={value!r} must be a number")
        limit = 1.0 if name == "delta" else _LARGEST_BUDGET
        if not 0.0 < value < limit:
            raise InputError(f"{name}={value} must be above 0 and below {limit:g}")
        budget[name] = float(value)
    if (epsilon is None) == (rho is None):
        found = "neither" if rho is None else "both"
        raise InputError(f"give either epsilon and delta, or rho; {found} of them is given")
    if epsilon is not None and delta is None:
        raise InputError(
            f"epsilon={epsilon} needs a delta: the probability, far below 1 / persons, with which "
            f"the bound may not hold"
        )
    return budget


def check_ledger_budget(budget: Any, ledger: Any) -> Json | None:
    """Return the budget of a ledger as numbers, with the rho that it stands for; None for none.

    Budgets add up as zero-concentrated ones: epsilon at delta becomes the rho whose epsilon it is.
    """
    if budget is None:
        return None
    if ledger is None:
        raise InputError("budget= is that of a ledger: give ledger=, the path of its file")
    names = ("epsilon", "delta", "rho")
    if not isinstance(budget, Mapping) or {*budget} - {*names}:
        raise InputError(
            f"budget={budget!r} must be a dict such as {{'rho': 0.5}} or "
            f"{{'epsilon': 3.0, 'delta': 1e-6}}"
        )
    numbers = check_budget(*(budget.get(name) for name in names))
    if numbers["rho"] is None:
        numbers["rho"] = calibrate(1.0, numbers)[1]["rho"]
    elif numbers["delta"] is not None:
        raise InputError("budget= has rho and delta; give rho alone, or epsilon and delta")
    return numbers


def calibrate(distance: float, budget: Json) -> tuple[float, Json]:
    """Least discrete Gaussian noise that OpenDP certifies: its scale, and the whole budget."""
    epsilon, delta, rho = budget["epsilon"], budget["delta"], budget["rho"]
    if rho is not None:
        sigma = _least_scale(lambda s: gaussian(s).map(distance) <= rho, distance, rho)
        if delta is not None:
            epsilon = epsilon_of(rho, delta)
    else:
        log = math.log(1.0 / delta)
        enough = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
        sigma = _least_scale(
            lambda s: _approximate(s, delta).map(distance)[0] <= epsilon, distance, enough**2
        )
        rho = float(gaussian(sigma).map(distance))
    return sigma, {"rho": rho, "epsilon": epsilon, "delta": delta}


def _least_scale(certified: Callable[[float], bool], distance: float, rho: float) -> float:
    """Bisect for the least scale that is certified, from one that should be enough: that of rho.

    OpenDP's own search starts far away, where its maps overflow if distances are large.
    """
    import opendp.prelude as dp

    def enough(scale: float) -> bool:
        try:
            return bool(certified(scale))
        except dp.OpenDPException:  # an overflow: epsilon is out of range
            return False

    high = low = distance / math.sqrt(2.0 * rho) if rho > 0.0 else math.inf
    while high < _LARGEST_SCALE and not enough(high):
        high *= 2.0
    while low > 1.0 / _LARGEST_SCALE and enough(low):
        low /= 2.0
    if not (low > 1.0 / _LARGEST_SCALE and high < _LARGEST_SCALE):
        raise InputError(
            f"noise for this budget has a scale outside {1 / _LARGEST_SCALE:g} to "
            f"{_LARGEST_SCALE:g}; give a larger budget"
        )
    while high > low * (1.0 + 1e-12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def epsilon_of(rho: float, delta: float) -> float:
    """Epsilon at delta of a zero-concentrated budget, as OpenDP converts it."""
    import opendp.prelude as dp

    distance = math.nextafter(math.sqrt(2.0 * rho), math.inf)
    try:
        return float(_approximate(1.0, delta).map(distance)[0])
    except dp.OpenDPException as error:
        raise InputError(
            f"rho={rho:.6g} has no epsilon at delta={delta} that OpenDP can compute ({error}); "
            f"give a smaller rho, or no delta"
        ) from error


def gaussian(scale: float) -> Any:
    """OpenDP's discrete Gaussian mechanism for vectors of integers, by L2 distance."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)


def _approximate(scale: float, delta: float) -> Any:
    import opendp.prelude as dp

    return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian(scale)), delta)


# --- the ledger -----------------------------------------------------------------------------------


class Ledger:
    """A ledger, held by this process alone while the context is open; others wait.

    The first entry makes the file; its folder must exist.  All releases have one ``adjacency``, and
    with a budget none is recorded that would exceed it, whatever data it is about.

    Raises
    ------
    InputError
        If the file is none or cannot be written, or holds releases of the other adjacency.
    StoreError
        If it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], adjacency: str) -> None:
        try:
            self.path = local_path(path, "a privacy ledger").resolve()
        except TypeError:
            raise InputError(f"ledger must be a path, not {type(path).__name__}") from None
        self._adjacency = adjacency
        self._lock = -1
        self._content: Json = {}

    def __enter__(self) -> Ledger:
        if self.path.is_dir():
            raise InputError(f"the ledger {self.path} is a folder; give the path of a file")
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path.parent}, the folder of the ledger, does not exist")
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            self._unlock()
            raise InputError(
                f"the ledger {self.path} cannot be locked through {lock} ({error.strerror}); give "
                f"a path in a folder that you may write to, on a file system with flock"
            ) from error
        try:
            self._content = self._read()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def _read(self) -> Json:
        try:
            content = from_json(read_bytes(self.path))
        except FileNotFoundError:
            return {
                "format": FORMAT,
                "format_version": VERSION,
                "adjacency": self._adjacency,
                "key": secrets.token_hex(32),
                "entries": [],
            }
        except OSError as error:
            raise InputError(f"the ledger {self.path} cannot be read: {error}") from error
        except ValueError:
            content = None
        damaged = not isinstance(content, dict) or content.get("format") != FORMAT
        version = None if damaged else content.get("format_version")
        if not damaged and version not in (VERSION, VERSION_WITH_BUDGET):
            raise StoreError(
                f"the ledger {self.path} has format version {version!r}, this irt_dask reads "
                f"{VERSION} and {VERSION_WITH_BUDGET}; use the irt_dask that wrote it"
            )
        if damaged or content.pop("checksum", None) != _digest(content) or not _sound(content):
            raise StoreError(
                f"{self.path} is not a privacy ledger, or is damaged: what was spent is not known, "
                f"so nothing is released; bring back an undamaged copy that has every release"
            )
        if content["adjacency"] != self._adjacency:
            raise InputError(
                f"the ledger {self.path} holds releases for adjacency {content['adjacency']!r}, "
                f"this one is for {self._adjacency!r}: their budgets do not add up; use the same "
                f"adjacency throughout"
            )
        return content

    def limit(self, budget: Json | None) -> None:
        """Set the budget for all releases, once: on return it is on disk.  None leaves it.

        Raises
        ------
        InputError
            If there is another one.
        BudgetError
            If more is spent already.
        """
        old = self._content.get("budget")
        if budget is None or budget == old:
            return
        if old is not None:
            raise InputError(
                f"the ledger {self.path} has a budget of {_in_words(old)}, which was set for good; "
                f"{_in_words(budget)} is another: leave budget= out"
            )
        spent = self._spent()
        if spent > budget["rho"] * (1.0 + _ROUNDING):
            raise BudgetError(
                f"the ledger {self.path} cannot have a budget of {_in_words(budget)}: rho = "
                f"{spent:.6g} is spent already"
            )
        self._write({**self._content, "format_version": VERSION_WITH_BUDGET, "budget": budget})

    def check(self, spent: Json) -> None:
        """Raise BudgetError if one more release of this cost would exceed the budget."""
        budget = self._content.get("budget")
        if budget is None:
            return
        total, before = self.total({**spent, "delta": None})["total_rho"], self._spent()
        if total <= budget["rho"] * (1.0 + _ROUNDING):
            return
        raise BudgetError(
            f"the ledger {self.path} has a budget of {_in_words(budget)}; rho = {before:.6g} is "
            f"spent, this release asks for {spent['rho']:.6g}, and "
            f"{max(0.0, budget['rho'] - before):.6g} is left: nothing was released"
        )

    def _spent(self) -> float:
        return math.fsum(entry["rho"] for entry in self._content["entries"])

    def has_request(self, request: Json) -> bool:
        """Whether a release was recorded for the same request, about whatever data."""
        return any(entry["request"] == request for entry in self._content["entries"])

    def total(self, budget: Json) -> Json:
        """Return what is spent with one more release: zero-concentrated budgets add up."""
        rho = [entry["rho"] for entry in self._content["entries"]] + [budget["rho"]]
        total = math.nextafter(math.fsum(rho), math.inf) if len(rho) > 1 else rho[0]
        delta = budget["delta"]
        epsilon = None if delta is None else epsilon_of(total, delta)
        return {"total_rho": total, "total_epsilon": epsilon}

    def find(self, fingerprint: str, request: Json) -> Json | None:
        """Return the release recorded for the same data and the same request, if there is one."""
        data = self._keyed(fingerprint)
        for entry in self._content["entries"]:
            if entry["data"] == data and entry["request"] == request:
                return dict(entry["release"])
        return None

    def record(self, fingerprint: str, request: Json, release: Json, cost: Json) -> None:
        """Add an entry; on return it is on disk.  ``cost``: the budget and the new totals."""
        entry = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "data": self._keyed(fingerprint),
            "request": request,
            **cost,
            "release": release,
        }
        self._write({**self._content, "entries": [*self._content["entries"], entry]})

    def _write(self, content: Json) -> None:
        text = json.dumps({**content, "checksum": _digest(content)}, indent=1, allow_nan=False)
        try:
            _replace(self.path, text.encode())
        except OSError as error:
            raise StoreError(
                f"the ledger {self.path} could not be written ({error}); nothing was released"
            ) from error
        self._content = content

    def _keyed(self, fingerprint: str) -> str:
        """Keyed hash of the data's fingerprint: says nothing to who does not have the ledger."""
        key = bytes.fromhex(self._content["key"])
        return hashlib.blake2b(fingerprint.encode(), key=key, digest_size=32).hexdigest()


def _in_words(budget: Json) -> str:
    if budget["epsilon"] is None:
        return f"rho = {budget['rho']:.6g}"
    return (
        f"epsilon = {budget['epsilon']:g} at delta = {budget['delta']:g} (rho = "
        f"{budget['rho']:.6g})"
    )


def _sound(content: Json) -> bool:
    """Whether what is added up is there: a checksum can be made for anything."""
    entries, budget = content.get("entries"), content.get("budget")
    has_budget = content.get("format_version") == VERSION_WITH_BUDGET
    if not isinstance(entries, list) or (budget is not None) != has_budget:
        return False
    needed = [(x, {"rho", "data", "request", "release"}) for x in entries]
    needed += [(budget, {"rho", "epsilon", "delta"})] * has_budget
    if not all(isinstance(x, dict) and names <= x.keys() for x, names in needed):
        return False
    costs = [x["rho"] for x, _ in needed]
    key, adjacency = content.get("key"), content.get("adjacency")
    return (
        all(isinstance(x, (int, float)) and 0.0 < x < math.inf for x in costs)
        and isinstance(key, str) and re.fullmatch(r"[0-9a-f]{64}", key) is not None
        and isinstance(adjacency, str)
    )  # fmt: skip


def _digest(content: Json) -> str:
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    except RecursionError:  # nothing that was written here
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def _replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, readable by its owner alone from the first byte on."""
    with replacing(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
    settle(path)
