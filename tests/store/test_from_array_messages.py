"""What arrays of codes, and lists of models, are told that a mirt user tries first."""

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import InputError

CODES = np.array([[0, 1, 3], [1, 0, 2], [1, 1, 0]])


@pytest.mark.parametrize("array, value", [(CODES, "3"), (CODES.astype(float), "3.0")])
def test_codes_above_one(array, value):
    with pytest.raises(InputError) as caught:
        irt.fit_marginal(array)
    assert str(caught.value) == (
        f"response {value} of person 0, item 2 (counted from 0): responses are 1 (right) and 0 "
        f"(wrong), or -1, NaN or a mask where missing; if it has more, say categories=K, or a K "
        f"for each item, in from_array"
    )


def test_categories_of_the_data():
    with pytest.raises(InputError, match=r"np.nanmax\(array, axis=0\).astype\(int\) \+ 1"):
        irt.from_array(CODES, categories="data")
    r = irt.from_array(CODES, categories=np.nanmax(CODES, axis=0).astype(int) + 1)
    assert r.n_categories == (2, 2, 4)


def test_a_list_of_models():
    r = irt.from_array(CODES, categories=[2, 2, 4])
    with pytest.raises(InputError, match=r"model= is a list; .*zip\(responses.item_id, names"):
        irt.fit_marginal(r, model=["2pl", "2pl", "graded"])
