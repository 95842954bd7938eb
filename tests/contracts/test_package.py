"""The package as a whole: light to import, names that resolve, one vocabulary."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask import errors, variables

HEAVY = ["numba", "dask", "distributed", "numpy", "scipy", "xarray", "zarr", "pandas", "pyarrow",
         "matplotlib", "pydantic"]  # fmt: skip


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_import_is_light():
    seen = run(f"import sys, irt_dask; print([m for m in {HEAVY} if m in sys.modules])")
    assert seen.strip() == "[]"


def test_import_is_fast():
    code = "import time; t = time.perf_counter(); import irt_dask; print(time.perf_counter() - t)"
    assert min(float(run(code)) for _ in range(3)) < 0.3


#: The module first, in a process that has imported nothing but what is no part of the package.
MODULE_FIRST = """
import os, sys
import numba, pandas, scipy.optimize, xarray, zarr
for name, module in {modules}.items():
    if (child := os.fork()) == 0:
        __import__(module)
        import irt_dask
        os._exit(not callable(getattr(irt_dask, name)))
    assert os.waitpid(child, 0)[1] == 0, name
print("all")
"""


def test_importing_a_module_keeps_the_function_of_that_name():
    modules = {
        "score": "irt_dask.score.ability", "evaluate": "irt_dask.evaluate.prediction",
        "ingest": "irt_dask.ingest.text.lines", "simulate": "irt_dask.simulate.generate",
    }  # fmt: skip
    assert run(MODULE_FIRST.format(modules=modules)).strip() == "all"


@pytest.mark.parametrize("name", irt.__all__)
def test_every_public_name_resolves(name):
    assert getattr(irt, name) is not None
    assert name in dir(irt)


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse(Path(irt.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [name.asname for line in block.body for name in line.names]
    assert sorted(seen) == sorted(irt._HOME)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'fit_magic'"):
        irt.fit_magic  # noqa: B018


def test_errors_have_one_base():
    for name in ("InputError", "StoreError", "CheckpointError", "EstimationError"):
        assert issubclass(getattr(errors, name), irt.IrtDaskError)
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.ConvergenceWarning, UserWarning)


def test_vocabulary_refuses_unknown_names_dims_and_kinds():
    good = xr.Dataset({"item_difficulty": ("items", np.zeros(3))})
    assert variables.check(good)["item_difficulty"].attrs["units"] == "theta"
    with pytest.raises(KeyError, match="'item_hardness' is not in the vocabulary"):
        variables.check(xr.Dataset({"item_hardness": ("items", np.zeros(3))}))
    with pytest.raises(KeyError, match="item_difficulty_xx"):
        variables.check(xr.Dataset({"item_difficulty_xx": ("items", np.zeros(3))}))
    with pytest.raises(TypeError, match="dims"):
        variables.check(xr.Dataset({"item_difficulty": ("persons", np.zeros(3))}))
    with pytest.raises(TypeError, match="dtype int64"):
        variables.check(xr.Dataset({"item_difficulty": ("items", np.zeros(3, dtype=int))}))
    assert variables.describe("item_difficulty_se").doc == "standard error of item_difficulty"


def test_prior_is_validated_and_tempered():
    prior = irt.ItemPrior(discrimination=(1.0, 0.5), intercept=(0.2, 2.0))
    np.testing.assert_allclose(prior.tempered(0.25), [1.0, 0.25 / 0.25, 0.2, 0.25 / 4.0])
    # a normal density to a power is a normal of that multiple of the precision: by its logarithm
    x = np.linspace(-3, 3, 7)
    _, precision, mean, _ = prior.tempered(1.0)[[0, 1, 0, 0]]
    log = -0.5 * ((x - mean) / 0.5) ** 2
    np.testing.assert_allclose(-0.5 * precision * (x - mean) ** 2, log)
    for bad in ((1.0,), (1.0, 0.0), (np.nan, 1.0), (0.0, np.inf)):
        with pytest.raises(errors.InputError, match="ItemPrior intercept"):
            irt.ItemPrior(intercept=bad)
