"""Data that come with the package."""

from __future__ import annotations

import numpy as np

from irt_dask.store import Responses, from_array

#: Persons with each of the 32 response patterns 00000, 00001, ..., 11111 of the five items of LSAT
#: section 6 (Bock and Lieberman 1970, Psychometrika 35).
_LSAT = (
    3, 6, 2, 11, 1, 1, 3, 4, 1, 8, 0, 16, 0, 3, 2, 15,
    10, 29, 14, 81, 3, 28, 15, 80, 16, 56, 21, 173, 11, 61, 28, 298,
)  # fmt: skip


def load_lsat() -> Responses:
    """Return the Law School Admission Test, section 6: 1,000 persons x 5 items.

    Bock and Lieberman (1970), the smallest data set on which every program is compared.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> responses
    <Responses: 1000 persons x 5 items, 1 dense blocks>
    >>> responses.item_id
    ('LSAT1', 'LSAT2', 'LSAT3', 'LSAT4', 'LSAT5')
    """
    patterns = (np.arange(32)[:, None] >> np.arange(4, -1, -1)) & 1
    return from_array(np.repeat(patterns, _LSAT, axis=0), item_id=[f"LSAT{j}" for j in range(1, 6)])
