"""The named errors and warnings of the package, each with what went wrong and what to do."""

from collections import Counter
from collections.abc import Iterable


class IrtDaskError(Exception):
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


class IrtDaskWarning(UserWarning):
    """Base of the warnings."""


class ConvergenceWarning(IrtDaskWarning):
    """An iteration stopped before it converged; the result says so in ``attrs['converged']``."""


class ApproximationWarning(IrtDaskWarning):
    """An approximation is being used outside the range in which it was checked."""


class StallWarning(IrtDaskWarning):
    """For a long time no task has finished; the text says where tasks are."""


class DataWarning(IrtDaskWarning):
    """Some of what was given is not used, for a reason that the text says."""


class ItemWarning(DataWarning):
    """Some items are flagged (``item_flag``): what was found of them is not to be relied on."""


class SparseDataWarning(ItemWarning):
    """Responses are too few for some of what was asked; the text names what, and the items."""


def listed(names: Iterable[str], most: int = 20, n: int | None = None) -> str:
    """Return names for a message, in quotes, the first of many; ``n`` counts them if not all."""
    names = list(names)
    n = len(names) if n is None else n
    more = f" and {n - most} more" if n > most else ""
    return ", ".join(map(repr, names[:most])) + more


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that stand more than once, in the order of their first places."""
    return [name for name, n in Counter(names).items() if n > 1]
