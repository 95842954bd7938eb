"""The named errors and warnings of the package, each with what went wrong and what to do."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

#: User and password of a URL (to the last @ before a blank, as passwords may hold any sign), and
#: what lets somebody in among the words after its "?" or "#".
_LOGIN = re.compile(r"(?i)(?<=://)[^\s/?#:]*:\S*@|(?<=http://)[^\s/?#]+@|(?<=https://)[^\s/?#]+@")
_TOKEN = re.compile(
    r"(?i)([?&;#][\w-]*(?:token|secret|sig|signature|credential|passw|pwd|pw|auth|key|code|access)"
    r"[\w-]*=)(?:[^&;\s'\"]|['\"](?=\w))+"
)


def without_credentials(text: str) -> str:
    """Return text in which passwords and tokens of URLs are three asterisks."""
    if "://" not in text:
        return text
    return _TOKEN.sub(r"\1***", _LOGIN.sub("***@", text))


class _Said(Exception):  # noqa: N818 (a base of warnings too)
    """What errors and warnings say: no credentials of URLs, whoever made the text."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*(without_credentials(a) if isinstance(a, str) else a for a in args))


class IrtDaskError(_Said):
    """Base of every error that irt_dask raises on purpose."""


class InputError(IrtDaskError, ValueError):
    """Something the user gave (data, option, configuration) breaks a rule that the text states."""


class StoreError(IrtDaskError):
    """A store of responses is damaged, incomplete, or of another format version."""


class NoStoreError(StoreError, InputError):
    """There is no store of responses where the user says."""


class AccessError(StoreError, InputError):
    """Object storage refuses the credentials, or there are none."""


class DiskError(IrtDaskError):
    """A file system is full, read-only or fails, or does not return what was written to it."""


class ThreadsError(IrtDaskError, RuntimeError):
    """The system lets this process start no more threads."""


class BudgetError(InputError):
    """A private release would spend more than the budget of its ledger; nothing was released."""


class TooLargeError(IrtDaskError, MemoryError):
    """The work would need more memory than there is; it was not begun."""


class CheckpointError(IrtDaskError):
    """A checkpoint is damaged or belongs to another computation."""


class ClusterError(IrtDaskError):
    """The cluster cannot run the work: unreachable, other versions, or another view of the data."""


class ChainError(IrtDaskError):
    """A sampling chain broke down (not-a-number) or its tasks died too often."""


class EstimationError(IrtDaskError):
    """The data do not determine the estimate asked for."""


class RunError(IrtDaskError):
    """A run directory is damaged or cannot be used."""


class ChangedRunError(RunError, InputError):
    """A run directory belongs to another configuration, other data or other versions."""


class BusyError(IrtDaskError):
    """Another run is working in the same folder: try again when it has ended."""


class IrtDaskWarning(_Said, UserWarning):
    """Base of the warnings."""

    #: What a line that says it to a person begins with.
    label = "warning"


class Notice(IrtDaskWarning):
    """A fact worth knowing, where nothing is wrong: what was found out because nobody said it."""

    label = "note"


class IrtDaskDeprecationWarning(IrtDaskWarning, FutureWarning):
    """A name that goes away with the next minor version; the text says what to write instead."""


class ConvergenceWarning(IrtDaskWarning):
    """An iteration stopped before it converged; the result says so in ``attrs['converged']``."""


class ApproximationWarning(IrtDaskWarning):
    """An approximation is being used outside the range in which it was checked."""


class StallWarning(IrtDaskWarning):
    """For a long time no task has finished; the text says where tasks are."""


class MachineWarning(IrtDaskWarning):
    """Processors differ, among workers or from before: last bits of results may differ too."""


class DataWarning(IrtDaskWarning):
    """Some of what was given is not used, for a reason that the text says."""


class ItemWarning(DataWarning):
    """Some items are flagged (``item_flag``): what was found of them is not to be relied on."""


class SparseDataWarning(ItemWarning):
    """Responses are too few for some of what was asked; the text names what, and the items."""


@contextmanager
def starting_threads() -> Iterator[None]:
    """Turn the refusal of the system to start a thread into an error with a remedy."""
    try:
        yield
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise ThreadsError(
            "the system lets this process start no more threads: end other programs of this user, "
            "or raise the limit ('ulimit -u', TasksMax of systemd, pids of a container)"
        ) from error


def listed(names: Iterable[str], most: int = 20, n: int | None = None) -> str:
    """Return names for a message, in quotes, the first of many; ``n`` counts them if not all."""
    names = list(names)
    n = len(names) if n is None else n
    more = f" and {n - most} more" if n > most else ""
    return ", ".join(map(repr, names[:most])) + more


def first_of(names: Sequence[str], most: int = 10) -> str:
    """Return names that carry their own quotes, the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that stand more than once, in the order of their first places."""
    return [name for name, n in Counter(names).items() if n > 1]
