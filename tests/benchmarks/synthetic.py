"""The synthetic data of Frick et al., section 4, written to a store."""

import numpy as np

from irt_dask.store import StoreWriter, default_rows_per_block


def parameters(n_items, model, seed):
    """Slopes N(2.75, 0.3) above 0, intercepts -N(0, 1), for the 3PL c N(0.1, 0.1) in [0, 0.5)."""
    rng = np.random.default_rng([seed, 0])
    a = np.abs(rng.normal(2.75, 0.3, n_items))
    d = -rng.normal(size=n_items)
    c = rng.normal(0.1, 0.1, 20 * n_items)
    c = c[(c >= 0) & (c < 0.5)][:n_items] if model == "3pl" else np.zeros(n_items)
    return a, d, c


def write(path, n_persons, n_items, model="2pl", missing=0.0, seed=0, rows_per_block=None):
    """Simulate complete (or randomly missing) responses of persons N(0, 1); return the handle."""
    a, d, c = (x.astype(np.float32) for x in parameters(n_items, model, seed))
    names = tuple(f"item{j}" for j in range(n_items))
    rows = rows_per_block or default_rows_per_block(n_items, n_persons)
    with StoreWriter(path, item_id=names, n_persons=n_persons, rows_per_block=rows) as writer:
        for start in range(0, n_persons, rows):
            n = min(rows, n_persons - start)
            rng = np.random.default_rng([seed, 1, start])
            theta = rng.standard_normal((n, 1), dtype=np.float32)
            p = c + (1 - c) / (1 + np.exp(-(theta * a + d)))
            values = (rng.random((n, n_items), dtype=np.float32) < p).astype(np.int8)
            if missing:
                values[rng.random((n, n_items), dtype=np.float32) < missing] = -1
            writer.write(values, person_id=[str(i) for i in range(start, start + n)])
        return writer.commit()
