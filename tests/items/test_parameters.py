"""Items of a Dataset: what says of which model they are must agree."""

from __future__ import annotations

import numpy as np
import pytest
from items import intercept_bank

import irt_dask as irt
from irt_dask.arrays import Floats
from irt_dask.banks import mirt
from irt_dask.curves import MODELS, Parameter
from irt_dask.curves.item_set import Group
from irt_dask.curves.logistic import INTERCEPT, SLOPE, TwoParameters
from irt_dask.errors import InputError
from irt_dask.items import parameters

TAIL = Parameter("w", "item_tail", "tail", (0.0, 1.0), 0.1, neutral=0.0)


class Tailed(TwoParameters):
    """A model with a parameter that those of the package do not have, nor it theirs."""

    name, parameters, asymptotes = "tailed", (SLOPE, INTERCEPT, TAIL), None


@pytest.mark.parametrize("model", ["3pl", "4pl"])
def test_a_model_whose_parameter_is_not_there(model: str) -> None:
    bank = intercept_bank(np.ones(2), np.zeros(2)).assign(item_model=("items", ["2pl", model]))
    with pytest.raises(InputError, match=f"items of model {model}, and no item_guessing"):
        irt.information(bank)


def test_parameters_that_no_model_has_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "KINDS", [MODELS["2pl"], MODELS["3pl"], Tailed()])
    bank = intercept_bank(np.ones(2), np.zeros(2)).assign(item_tail=("items", [0.0, 0.3]))
    assert {g.model.name for g in parameters.item_set(bank, ("0", "1")).groups} == {"2pl", "tailed"}
    both = bank.assign(item_guessing=("items", [0.2, 0.2]))
    with pytest.raises(InputError, match=r"item 1 has .*item_guessing.* no model has all of these"):
        parameters.item_set(both, ("0", "1"))


def test_mirt_cannot_say_every_model() -> None:
    x = np.array([[1.0], [0.0], [0.3]])
    with pytest.raises(InputError, match="item q is of model tailed, which mirt's parameters"):
        mirt._written(Group(Tailed(), np.arange(1), x), 0, "q", {})


class Steep(TwoParameters):
    """A curve whose log P falls ten times as far as the logit of its slope and intercept."""

    name, log_odds = "steep", False

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        return 10.0 * super().log_p(x, nodes)


def test_items_whose_log_p_cannot_be_computed() -> None:
    model, x = Steep(), np.array([[1.0, 12.0], [0.0, 0.0]])
    parameters._refuse_bad(model, x[:, :1], ["0"], "bank")
    with pytest.raises(InputError, match=r"item b has .*reaches 840 for abilities up to 7"):
        parameters._refuse_bad(model, x, ["a", "b"], "bank")
