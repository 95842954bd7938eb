"""The design of a latent regression: covariates of the persons of a block as terms on [-1, 1].

Numbers that are not known are filled with the middle of the range of those that are, and a term of
its own says for whom; of categories (``C(name)``) "not known" is a level.  Levels and ranges are
those of all persons, found in two passes over the covariates.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.errors import InputError, listed
from irt_dask.kernels.base import design_products
from irt_dask.population.formula import INTERCEPT, Formula, Terms
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import WrappedRef
from irt_dask.store.labels import by_number, numbers
from irt_dask.store.responses import sha256

#: Levels of a category, at most.
MOST_LEVELS = 1000
#: Terms, at most: products of design and coefficients stay exact.
MOST_TERMS = 4096
#: The level, and the end of the name of a term, of what is not known.
MISSING = "missing"


@dataclass(frozen=True)
class Column:
    """A covariate of the formula: a number, or a category with these levels."""

    name: str
    place: int  # among the covariates of the responses
    levels: tuple[float, ...] | None
    fill: float
    lacking: bool  # whether some persons have no value
    #: Labels of the levels, in their order, where they are numbers of labels.
    labels: tuple[str, ...] | None = None
    #: Labels that the persons have, by their numbers: for messages.
    known: dict[float, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def of(self, values: Floats) -> Any:
        """The column of a formula's table."""
        unknown = np.isnan(values)
        if unknown.any() and not self.lacking:
            raise InputError(
                f"covariate {self.name!r}: {unknown.sum()} person(s) have no value, and everybody "
                f"had one whom the model was fitted to: it does not say what that means"
            )
        if self.levels is None:
            return np.where(unknown, self.fill, values)
        names = self.labels or [_label(x) for x in self.levels]
        labels = [*names, *([MISSING] if self.lacking else [])]
        filled = np.where(unknown, self.levels[0], values)
        order = np.argsort(self.levels)
        place = np.searchsorted(self.levels, filled, sorter=order)
        known = order[np.minimum(place, len(self.levels) - 1)]
        other = np.take(self.levels, known) != filled
        if other.any():
            first = filled[other][0]
            level = f"label {self.known.get(first)!r}" if self.labels else f"level {_label(first)}"
            raise InputError(
                f"covariate {self.name!r}: {level} is none of those that the model was fitted "
                f"to: {', '.join(map(str, labels[:20]))}"
            )
        return pd.Categorical.from_codes(np.where(unknown, len(self.levels), known), labels)


def _label(level: float) -> Any:
    """A level as it is written: 1 for 1.0."""
    return int(level) if float(level).is_integer() else float(level)


@dataclass(frozen=True)
class Design:
    """Terms of a formula over covariates, brought to [-1, 1]; the intercept alone without one."""

    formula: str | None
    columns: tuple[Column, ...]
    terms: tuple[str, ...]  # the intercept first
    middle: Floats
    half: Floats

    @property
    def n_terms(self) -> int:
        """Number of terms, the intercept included."""
        return len(self.terms)

    def bound(self) -> Terms | None:
        """The formula's terms, from a table with every level."""
        if self.formula is None:
            return None
        formula = Formula(self.formula, [c.name for c in self.columns])
        return formula.bound(_examples(self.columns))

    def raw(self, covariates: Floats | None, n: int, terms: Terms | None) -> Floats:
        """(persons, terms) as they are."""
        if terms is None:
            return np.ones((n, 1))
        assert covariates is not None
        values = [covariates[:, c.place] for c in self.columns]
        frame = pd.DataFrame({c.name: c.of(x) for c, x in zip(self.columns, values, strict=True)})
        told = [np.isnan(x) for c, x in zip(self.columns, values, strict=True) if _told(c)]
        return np.column_stack([terms.matrix(frame)[:, _order(terms)], *told])

    def of(self, ref: Any, n: int, terms: Terms | None) -> Any:
        """Terms of a block's persons on [-1, 1], single precision."""
        x = (self.raw(ref.covariates(), n, terms) - self.middle) / self.half
        far = np.abs(x).max(axis=0, initial=0.0) > design_products.FURTHEST
        if not np.isfinite(x).all() or far.any():
            name = self.terms[int(np.argmax(far | ~np.isfinite(x).all(axis=0)))]
            raise InputError(
                f"term {name!r}: a person's value is not a finite number, or more than "
                f"{design_products.FURTHEST:.0f} times as far out as those the model was fitted to"
            )
        return design_products.rounded(x)

    def together(self) -> Ints:
        """A number for each term, the same for columns of one term of the formula."""
        terms = self.bound()
        if terms is None:
            return np.zeros(1, dtype=np.int64)
        of = np.empty(len(terms.names), dtype=np.int64)
        for k, columns in enumerate(terms.columns):
            of[columns] = k
        alone = len(terms.columns) + np.arange(self.n_terms - of.size)  # of what is not known
        return np.concatenate([of[_order(terms)], alone])

    def original(self) -> Floats:
        """Matrix from coefficients of the design to those of the terms as they are."""
        to = np.diag(1.0 / self.half)
        to[0, 1:] = -self.middle[1:] / self.half[1:]
        return to

    def digest(self) -> str:
        """Checksum."""
        said = repr((self.formula, self.columns, self.terms)).encode()
        return sha256(np.frombuffer(said, dtype=np.uint8), self.middle, self.half)


def _told(column: Column) -> bool:
    """Whether a term says for whom a number is filled."""
    return column.levels is None and column.lacking


def _order(terms: Terms) -> list[int]:
    """The intercept first; terms of what is not known follow the formula's."""
    at = terms.names.index(INTERCEPT)
    rest = [k for k in range(len(terms.names)) if k != at]
    return [at, *rest]


def _examples(columns: Sequence[Column]) -> pd.DataFrame:
    """A table in which every level of every column occurs."""
    n = max((len(c.levels or ()) + 1 for c in columns), default=1)
    made = {}
    for c in columns:
        values = np.resize(np.array([c.fill] if c.levels is None else c.levels), n)
        if c.levels is not None and c.lacking:
            values = np.resize(np.append(c.levels, np.nan), n)
        made[c.name] = c.of(values)
    return pd.DataFrame(made)


# --- found in the data ----------------------------------------------------------------------------


def formula_of(covariates: Any, known: Sequence[str]) -> str | None:
    """The formula that is asked for: None without covariates."""
    if covariates is None:
        return None
    if isinstance(covariates, str):
        return covariates.removeprefix("~").strip()
    names = [str(c) for c in covariates]
    missing = [c for c in names if c not in known]
    if missing or not names or len(set(names)) < len(names):
        raise InputError(
            f"covariates={names!r}: name each covariate once, among those that the responses "
            f"have: {', '.join(known) or 'none'}; or give a formula, such as 'C(grade) + escs'"
        )
    return " + ".join(f"`{c}`" for c in names)


def found(engine: Engine, covariates: Any) -> Design:
    """The design that is asked for, on these persons: two passes over the covariates."""
    r = engine.responses
    text = formula_of(covariates, r.covariate_names)
    if text is None:
        return Design(None, (), (INTERCEPT,), np.zeros(1), np.ones(1))
    formula = Formula(text, r.covariate_names)
    columns = _columns(engine, formula)
    one = np.zeros(1)
    draft = Design(text, columns, (), one, one)
    terms = draft.bound()
    assert terms is not None
    if INTERCEPT not in terms.names:
        raise InputError(f"formula {text!r}: the regression has an intercept; leave out '0 +'")
    names = [terms.names[k] for k in _order(terms)]
    names += [f"{c.name}[{MISSING}]" for c in columns if _told(c)]
    if len(names) > MOST_TERMS:
        raise InputError(f"formula {text!r}: {len(names):,} terms, at most {MOST_TERMS:,}")
    draft = dataclasses.replace(draft, terms=tuple(names))
    low, high = (np.array(x) for x in zip(*engine.map_refs(_range, draft), strict=True))
    least, most = low.min(axis=0), high.max(axis=0)
    bad = [n for n, a, b in zip(names, least, most, strict=True) if not np.isfinite([a, b]).all()]
    if bad:
        raise InputError(f"formula {text!r}: {listed(bad)} is not a finite number for somebody")
    same = [n for n, a, b in zip(names[1:], least[1:], most[1:], strict=True) if a == b]
    if same:
        raise InputError(
            f"formula {text!r}: {listed(same)}: the same for all persons; leave it out"
        )
    middle, half = 0.5 * (least + most), 0.5 * (most - least)
    middle[0], half[0] = 0.0, 1.0
    return dataclasses.replace(draft, middle=middle, half=half)


def _levels(ref: Any, columns: list[tuple[int, bool]]) -> list[Any]:
    """Of each column: levels, or least and largest; and how many lack it."""
    x, out = ref.covariates(), []
    for place, category in columns:
        values = x[:, place]
        known = values[~np.isnan(values)]
        some = np.unique(known)
        if not category and some.size:
            some = some[[0, -1]]
        out.append((some[: MOST_LEVELS + 1], values.size - known.size))
    return out


def _columns(engine: Engine, formula: Formula) -> tuple[Column, ...]:
    """Levels or ranges, and what is lacking."""
    known = engine.responses.covariate_names
    names = [c for c in known if c in {*formula.columns, *formula.named}]
    of_labels = engine.responses.covariate_labels
    kinds = [(known.index(c), c in formula.categories or c in of_labels) for c in names]
    parts = engine.map_refs(_levels, kinds)
    levels = [np.unique(np.concatenate([p[k][0] for p in parts])) for k in range(len(names))]
    lacking = [sum(p[k][1] for p in parts) > 0 for k in range(len(names))]
    for name, of, (_, category) in zip(names, levels, kinds, strict=True):
        if not of.size:
            raise InputError(f"formula {formula.text!r}: nobody has a value of {name!r}")
        if category and of.size > MOST_LEVELS:
            raise InputError(
                f"formula {formula.text!r}: {name!r} has more than {MOST_LEVELS:,} levels"
            )
    out = []
    for name, (place, category), of, without in zip(names, kinds, levels, lacking, strict=True):
        found, labels = tuple(of.tolist()) if category else None, None
        if name in of_labels:
            if without and MISSING in of_labels[name]:
                raise InputError(
                    f"covariate {name!r} has the label {MISSING!r}, which is what those are called "
                    f"of whom nothing is known; call it otherwise"
                )
            text = by_number(of_labels[name])
            labels = tuple(sorted(text[x] for x in of.tolist()))
            found = tuple(numbers(labels).tolist())
        fill = float(0.5 * (of[0] + of[-1]))
        out.append(Column(name, place, found, fill, without, labels))
    return tuple(out)


def _range(ref: Any, draft: Design) -> tuple[Floats, Floats]:
    x = draft.raw(ref.covariates(), len(ref.covariates()), draft.bound())
    return x.min(axis=0), x.max(axis=0)


# --- blocks that know their design ----------------------------------------------------------------


@dataclass(frozen=True)
class DesignedRef(WrappedRef):
    """A block's reference whose block has the design and the groups of its persons."""

    adds_only: ClassVar[bool] = True
    ref: Any
    design: Design
    labels: tuple[str, ...]
    digest: str
    #: Identity of the design of a block that has none, being in memory already.
    token: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block with its design."""
        key = self.ref.cache_key
        return None if key is None else (key, "designed", self.digest, self.labels)

    def read(self) -> Block:
        """Return the block, design and groups included."""
        block = self.ref.read()
        n = block.n_persons

        def made() -> _Persons:
            return _Persons(self.design.of(self.ref, n, self.design.bound()), self._groups())

        # whoever reads a block of a store keeps all of it
        of = keep(None if self.cache_key is not None else (self.token, "design"), made)
        more = {} if of.group is None else {"group": of.group}
        return dataclasses.replace(block, design=of.design, **more)

    def _groups(self) -> Ints | None:
        if not self.labels:
            return None
        given = np.asarray(self.ref.groups()).astype(str)
        group = pd.Index(self.labels).get_indexer(pd.Index(given)).astype(np.int64)
        if (group < 0).any():
            raise InputError(
                f"group {str(given[group < 0][0])!r}: the model was fitted to persons of "
                f"{listed(self.labels)}"
            )
        return group


@dataclass(frozen=True)
class _Persons:
    """What a block's persons are, of a block in memory kept between passes."""

    design: Any
    group: Ints | None

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return int(self.design.nbytes) + (0 if self.group is None else self.group.nbytes)


def designed(responses: Responses, design: Design, labels: tuple[str, ...]) -> Responses:
    """Responses whose blocks have their design; without ``labels`` all persons are of one group."""
    digest = design.digest()
    refs = [DesignedRef(ref, design, labels, digest) for ref in responses.refs]
    return dataclasses.replace(responses, refs=refs)
