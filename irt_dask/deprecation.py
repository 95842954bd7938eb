"""Names that go away: the old one works for one minor version, and says what to write instead.

    @renamed("n_draw", "n_draws", since="0.2")
    def fit(responses, *, n_draws=2000): ...

Whoever writes ``fit(r, n_draw=5)`` in 0.2 gets ``n_draws=5`` and a warning that tells both; from
0.3 on, the line is removed, and so is the name.  ``docs/stability.md`` has the policy.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from irt_dask.errors import InputError, IrtDaskDeprecationWarning

Function = TypeVar("Function", bound=Callable[..., Any])


class Leaving(NamedTuple):
    """A name on its way out: whose it is, and the version that no longer has it."""

    of: str
    name: str
    gone: str


#: All that were declared by what is loaded; a test says which of them are due.
LEAVING: list[Leaving] = []


def removed_in(since: str) -> str:
    """The minor version after the one that warns first: ``0.3`` for ``0.2``."""
    major, minor = map(int, since.split(".")[:2])
    return f"{major}.{minor + 1}"


def moved(
    given: dict[str, Any], old: str, new: str, *, of: str, since: str, level: int = 2
) -> dict[str, Any]:
    """What was given by name, with ``new`` in place of ``old``; a warning if ``old`` was there.

    For keys of a file too, in a validator of its section that runs before the others.

    Raises
    ------
    InputError
        If both are given.
    """
    if old not in given:
        return given
    if new in given:
        raise InputError(
            f"{of}: {old}={given[old]!r} and {new}={given[new]!r} are the same option; "
            f"leave {old} out"
        )
    warnings.warn(
        f"{of}: {old} is now called {new}; write {new}={given[old]!r}. The old name works until "
        f"irt_dask {removed_in(since)}",
        IrtDaskDeprecationWarning,
        stacklevel=level + 1,
    )
    return {new if name == old else name: value for name, value in given.items()}


def renamed(old: str, new: str, *, since: str) -> Callable[[Function], Function]:
    """Let a function take a keyword by its old name too; its signature has the new one alone."""

    def decorate(function: Function) -> Function:
        of = function.__name__
        LEAVING.append(Leaving(of, old, removed_in(since)))

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            return function(*args, **moved(options, old, new, of=of, since=since))

        return called  # type: ignore[return-value]

    return decorate


def retired(keyword: str, *, since: str, instead: str) -> Callable[[Function], Function]:
    """Warn whoever gives a keyword that will go; ``instead`` says how to get the same without it.

    Until then it does what it did.
    """

    def decorate(function: Function) -> Function:
        of, gone = function.__name__, removed_in(since)
        LEAVING.append(Leaving(of, keyword, gone))

        @functools.wraps(function)
        def called(*args: Any, **options: Any) -> Any:
            if keyword in options:
                warnings.warn(
                    f"{of}: {keyword} goes away in irt_dask {gone}; {instead}",
                    IrtDaskDeprecationWarning,
                    stacklevel=2,
                )
            return function(*args, **options)

        return called  # type: ignore[return-value]

    return decorate
