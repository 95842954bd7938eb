"""The right-hand side of a regression, as text, and its matrix for any rows of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

import formulaic
import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, listed

#: What formulas may call besides the operators and codings of formulaic.
_CONTEXT = {"np": np}
INTERCEPT = "Intercept"


class Formula:
    """A formula over the columns of a table: which it needs, and which are categories in it."""

    def __init__(self, text: str, known: Sequence[str]) -> None:
        self.text = text
        try:
            parsed = formulaic.Formula(text)
            self.columns = sorted(map(str, parsed.required_variables))
        except (formulaic.errors.FormulaicError, SyntaxError) as error:
            raise InputError(f"formula {text!r}: {error}") from error
        for name in self.columns:
            if name not in known:
                raise InputError(
                    f"formula {text!r}: no column is {name!r}; there are {listed(known)}"
                )
        # what rests on all persons keeps its columns to itself: by name, only to refuse it
        self.named = [c for c in known if re.search(rf"(?<!\w){re.escape(c)}(?!\w)", text)]
        self.categories = {
            c for c in self.named if re.search(rf"\bC\(\s*`?{re.escape(c)}`?\s*[,)]", text)
        }

    def bound(self, examples: pd.DataFrame) -> Terms:
        """The terms, from a table in which every level of every column occurs."""
        try:
            matrix = formulaic.model_matrix(self.text, examples, context=_CONTEXT)
        except (formulaic.errors.FormulaicError, SyntaxError) as error:
            raise InputError(f"formula {self.text!r}: {error}") from error
        if matrix.model_spec.transform_state:
            raise InputError(
                f"formula {self.text!r}: {listed(matrix.model_spec.transform_state)} depends on "
                "all persons at once; make a column of it first"
            )
        return Terms(matrix.model_spec)


class Terms:
    """The columns of a formula's matrix, the same for any rows."""

    def __init__(self, spec: formulaic.ModelSpec) -> None:
        self._spec = spec
        self.names = [str(c) for c in spec.column_names]

    @property
    def columns(self) -> list[list[int]]:
        """Columns of each term of the formula, such as those of a category's levels."""
        return [list(k) for k in self._spec.term_indices.values()]

    def matrix(self, rows: pd.DataFrame) -> Floats:
        """(rows, terms) of rows that lack nothing."""
        return np.asarray(self._spec.get_model_matrix(rows, context=_CONTEXT), dtype=np.float64)
