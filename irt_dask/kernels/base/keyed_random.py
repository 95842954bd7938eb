"""Randomness by key and counter: a draw belongs to a person or an item, not to a moment.

The generator is Philox4x64 (Salmon et al. 2011) as NumPy implements it.  A key is made from the
seed and the purpose (method, shard, step); the counter is the person's global row, or the item's
index, so that neither blocks nor workers nor the order of completion matter.
"""

from __future__ import annotations

import hashlib

import numpy as np

from irt_dask.arrays import Floats, Ints, Words

_WORDS_PER_COUNT = 4
#: No normal number is drawn further out: the quantile of the smallest uniform is 8.29.
FARTHEST_NORMAL = 8.3


def key(seed: int, *purpose: str | int) -> Words:
    """Return the 128-bit Philox key for a seed and a purpose."""
    text = "/".join(str(p) for p in (seed, *purpose)).encode()
    return np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype=np.uint64)


def words(k: Words, start: int, n: int, per_row: int = 1) -> Words:
    """Return random 64-bit words for rows ``start .. start + n``, shape (n, per_row)."""
    counts = -(-per_row // _WORDS_PER_COUNT)
    bits = np.random.Philox(key=k, counter=start * counts)
    raw = bits.random_raw(n * counts * _WORDS_PER_COUNT)
    return raw.reshape(n, counts * _WORDS_PER_COUNT)[:, :per_row]


def _unit(raw: Words) -> Floats:
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * np.float64(2.0**-52)


def stream(k: Words, n: int) -> Floats:
    """Return the first ``n`` uniforms of a key, one after the other, shape (n,)."""
    return _unit(np.random.Philox(key=k).random_raw(n))


def uniforms(k: Words, start: int, n: int, per_row: int = 1) -> Floats:
    """Return uniforms in (0, 1), never 0 or 1, shape (n, per_row)."""
    return _unit(words(k, start, n, per_row))


def shard_of(seed: int, start: int, n: int, n_shards: int) -> Ints:
    """Return the shard of each person ``start .. start + n``: a keyed hash of the global row."""
    u = words(key(seed, "shard"), start, n)[:, 0] >> np.uint64(32)
    return ((u * np.uint64(n_shards)) >> np.uint64(32)).astype(np.int64)


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a NumPy generator for draws that belong to the whole data set."""
    return np.random.Generator(np.random.Philox(key=key(seed, *purpose)))
