"""Do the anchors fit?  Score tests of the parameters that items keep in marginal fits.

At the maximum with all anchors fixed, the derivatives of the log-likelihood by an anchor's slope
and intercepts, less what those of the free parameters explain of them, have
mean 0 if the bank is right (Rao 1948; Silvey 1959).  Their covariance is the efficient information
I; errors of the bank with covariance S add I S I.

Free parameters follow the anchors, dx / d anchor = -H^-1 C with H their information and C that
between them and the anchors: errors of the bank add H^-1 C S C' H^-1 to their covariance.  S has
asymptotes too, which are not tested, where the bank has their covariance.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal import sampling
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds, moves
from irt_dask.calibrate.marginal.sampling import Sampling
from irt_dask.calibrate.shared.start_values import name_some
from irt_dask.curves import Parameter
from irt_dask.errors import DataWarning
from irt_dask.items.covariance import uncertain
from irt_dask.items.mixture import Mixture

#: Smallest eigenvalue of a covariance of scores, in units of the information of known abilities.
_LEAST = 1e-6
#: Smallest unit of a score: the root of its information if abilities were known.
_LEAST_UNIT = 1e-6
#: Share of the expected covariance of scores below which a sandwich's is not relied on, from so
#: many degrees of freedom a direction on: its least is (1 - sqrt(1 / 6))^2 = .35 of it by chance.
_SCORED_ALIKE, _UNITS = 0.1, 6
#: A warning needs a p-value below this, times the number of anchors, and this change of P: data of
#: many persons contradict any bank significantly.
_LEVEL, _CHANGE = 0.01, 0.05


@dataclass(frozen=True)
class Known:
    """What the bank says of anchors and of what different ones have in common.

    ``matrix`` is the covariance of their parameters that have errors or are tested, ``cross`` that
    of the free parameters with these; ``place`` says where each is, (parameters, items), -1 of
    others.
    """

    matrix: Floats
    cross: Floats
    place: Ints

    def joined(self, covariance: marginal_errors.Covariance) -> marginal_errors.Covariance:
        """The covariance of the free parameters and these together."""
        assert covariance.matrix is not None
        n, column = len(covariance.matrix), covariance.item_column
        column = np.where(self.place >= 0, self.place + n, column)
        whole = np.block([[covariance.matrix, self.cross], [self.cross.T, self.matrix]])
        return replace(covariance, matrix=whole, item_column=column)


@dataclass(frozen=True)
class Test:
    """Chi-squares of the anchors, and of all of them together.

    ``carried`` is the covariance of the free parameters that errors of the bank make.
    """

    chi2: Floats
    p_value: Floats
    rmsd: Floats
    together: float
    df: int
    carried: Floats
    degrees: int | None = None  # of freedom, of the covariance of sampling units
    known: Known | None = None

    def variables(self) -> dict[str, Any]:
        """Arrays by name, NaN for items that are no anchors or have no test."""
        return {
            "item_anchor_chi2": self.chi2,
            "item_anchor_p_value": self.p_value,
            "item_anchor_rmsd": self.rmsd,
        }

    def of_items(self, covariance: marginal_errors.Covariance) -> marginal_errors.Covariance:
        """The covariance of all items, where the bank tells that of its own; else as it is."""
        if self.known is None or covariance.matrix is None:
            return covariance
        return self.known.joined(covariance)

    @property
    def attrs(self) -> dict[str, Any]:
        """Test of all anchors."""
        p = float("nan")
        if self.df:
            p = float(sampling.p_value(self.together, self.df, self.degrees))
        return {"anchor_chi2": self.together, "anchor_df": self.df, "anchor_p_value": p}

    @property
    def carries(self) -> bool:
        """Whether the bank has errors, which the covariance of the free parameters has then."""
        return bool(self.carried.any())

    def warn(self, item_id: tuple[str, ...], *, stacklevel: int = 2) -> None:
        """Name the anchors that the data contradict, the worst first; and tests there are not."""
        if self.degrees is not None and self.df > self.degrees:
            warnings.warn(
                f"there is no test of all anchors together (anchor_p_value): it has {self.df} "
                f"degrees of freedom, and {self.degrees + 1} sampling units allow "
                f"{self.degrees} at most; take the tests of each anchor",
                DataWarning,
                stacklevel=stacklevel + 1,
            )
        limit = _LEVEL / max(1, int(np.isfinite(self.chi2).sum()))
        bad = np.flatnonzero((self.p_value < limit) & (self.rmsd > _CHANGE))
        if bad.size:
            worst = bad[np.argsort(-self.chi2[bad], kind="stable")]
            j = worst[0]
            warnings.warn(
                f"the data contradict {bad.size} of {int(np.isfinite(self.chi2).sum())} anchors "
                f"(fixed_items), the worst first: {name_some([item_id[k] for k in worst])}. For "
                f"{item_id[j]} chi-square is {self.chi2[j]:.1f} (p = {self.p_value[j]:.2g}), and "
                f"its curve would move by {self.rmsd[j]:.2f}. One wrong anchor makes others look "
                f"wrong: leave the worst out of fixed_items and fit again",
                DataWarning,
                stacklevel=stacklevel + 1,
            )


def _is_tested(p: Parameter) -> bool:
    """Slopes and intercepts: asymptotes stay as given."""
    return p.neutral is None


def bank_errors(bank: xr.Dataset, item_id: tuple[str, ...], models: Mixture) -> Floats:
    """Covariances of the errors of slopes and intercepts, (items, parameters, parameters).

    0 for what the bank does not tell.  That of a and d follows from the error of b = -d / a, where
    all three are known; errors of steps are taken as independent.
    """
    place = {str(i): k for k, i in enumerate(bank["item_id"].values)}
    known = np.array([j for j, i in enumerate(item_id) if i in place], dtype=np.int64)
    at = np.array([place[item_id[j]] for j in known], dtype=np.int64)
    out = np.zeros((len(item_id), models.size, models.size))
    for part in models.parts:
        mine = np.isin(known, part.at)
        of_part = bank.isel(items=at[mine])
        if {"item_discrimination", "item_intercept"} <= {p.variable for p in part.model.parameters}:
            out[known[mine], :2, :2] = _of_two(of_part)
            continue
        for k, p in enumerate(part.model.parameters):
            variance = _variance(of_part, p.variable.removeprefix("item_"))
            if variance is not None and variance.ndim == 2:  # scores begin with category 0
                variance = variance[:, p.step - (p.variable != "item_category_score")]
            out[known[mine], k, k] = 0.0 if variance is None else variance
    return out


def _variance(bank: xr.Dataset, name: str) -> Floats | None:
    """Squares of the errors of a variable; None where there are none."""
    for suffix in ("se", "sd"):
        if f"item_{name}_{suffix}" in bank:
            return np.asarray(np.square(np.nan_to_num(bank[f"item_{name}_{suffix}"].values)))
    return None


def _of_two(bank: xr.Dataset) -> Floats:
    """Covariances of the errors of (a, d), (items, 2, 2)."""
    m = bank.sizes["items"]
    of_a, of_b, of_d = (_variance(bank, n) for n in ("discrimination", "difficulty", "intercept"))
    if "item_discrimination" in bank:
        a = bank["item_discrimination"].values.astype(float)
    else:
        a = np.ones(m)
    if "item_difficulty" in bank:
        b = bank["item_difficulty"].values.astype(float)
    else:
        b = -bank["item_intercept"].values / a
    of_a = np.zeros(m) if of_a is None else of_a
    if of_d is None:
        if of_b is None:
            return np.zeros((m, 2, 2))
        of_d, between = a**2 * of_b + b**2 * of_a, -b * of_a  # a and b taken as independent
    elif of_b is None:
        between = np.zeros(m)
    else:  # var b = (b^2 var a + var d + 2 b cov) / a^2
        safe = np.where(np.abs(b) > 1e-3, b, np.inf)
        between = (a**2 * of_b - b**2 * of_a - of_d) / (2.0 * safe)
    largest = 0.99 * np.sqrt(of_a * of_d)
    between = np.clip(between, -largest, largest)
    return np.moveaxis(np.array([[of_a, between], [between, of_d]]), -1, 0)


def _together(
    fit: Rounds, bank: xr.Dataset, anchors: Ints, x: Floats
) -> tuple[Floats, Bools | None]:
    """Covariance of the errors of all anchors, items slowest, (items x parameters, same).

    And of which parameters, (parameters, items), the bank tells what their errors have in common:
    the sample of persons that set its scale.  None where it does not; such items are independent.
    """
    item_id, model = fit.engine.responses.item_id, fit.model
    alone = bank_errors(bank, item_id, model.items)[anchors]
    ids, items = [item_id[j] for j in anchors], model.item_set(x).take(anchors)
    known = uncertain(bank, ids, items, "fixed_items", errors=False)
    if known is None or not known.matrix.size:
        return np.asarray(scipy.linalg.block_diag(*alone)), None
    known = known.finite()
    column = np.full(alone.shape[:2], -1)
    column[:, : len(known.column)] = known.column.T
    alone[(column >= 0).any(axis=1)] = 0.0
    out = scipy.linalg.block_diag(*alone)
    there = np.flatnonzero(column >= 0)
    at = column.ravel()[there]
    out[np.ix_(there, there)] = known.matrix[np.ix_(at, at)]
    told = np.zeros(model.fixed.shape, dtype=bool)
    told[:, anchors] = (column >= 0).T
    return np.asarray(out), told


def warn_untested(size: int) -> None:
    """Say what there is not where a matrix of all parameters would be too large."""
    warnings.warn(
        f"fixed_items are taken as known: with {size} parameters they have no tests "
        f"(item_anchor_chi2), and errors that their bank tells are not in the standard errors",
        DataWarning,
        stacklevel=4,
    )


def test(
    fit: Rounds, x: Floats, expected: Expected, bank: xr.Dataset, asked: Sampling
) -> Test | None:
    """Test the anchors of the model at its maximum x: one pass, with sampling units two.

    ``bank`` is where they come from; ``asked`` says how persons were sampled.  None
    where it cannot be done: a histogram of ability is not a few parameters, and singular
    information has no inverse.
    """
    model = fit.model
    anchors = np.flatnonzero(np.isfinite(model.fixed).all(axis=0))
    if model.histogram or not anchors.size:
        return None
    of_bank, told = _together(fit, bank, anchors, x)
    wide, tested = _freed(model, anchors, told)
    at = marginal_errors.columns(wide, x)
    information, squares, size = marginal_errors.observed(
        fit, wide, x, expected, True, coarse=not asked.robust
    )
    assert squares is not None
    # Units of anchors that nobody near can tell anything of would make numbers without bounds.
    raised = np.maximum(size, _LEAST_UNIT)
    information, size = information * np.outer(size / raised, size / raised), raised
    score = marginal_errors.scores(wide, x, expected, at) / size
    squares = squares / np.outer(size, size)
    columns = at[0][:, anchors].T  # (anchors, parameters), -1 of those that are neither
    used = columns[columns >= 0]
    others = np.setdiff1d(np.arange(at[2]), used)
    try:
        factor = scipy.linalg.cho_factor(information[np.ix_(others, others)])
    except scipy.linalg.LinAlgError:
        return None
    explained = scipy.linalg.cho_solve(factor, information[np.ix_(others, used)]).T
    whole = np.zeros((used.size, at[2]))  # from scores of all to efficient ones of the anchors
    whole[np.arange(used.size), used] = 1.0
    whole[:, others] = -explained
    left = whole @ information[:, used]
    left = 0.5 * (left + left.T)
    products = whole @ squares @ whole.T
    # Errors of the bank, in the order of the anchors' parameters and in their units.
    of_bank = of_bank[np.ix_(*2 * [np.flatnonzero(columns >= 0)])]
    own = of_bank * np.outer(size[used], size[used])
    along = -explained.T @ own / np.outer(size[others], size[used])
    carried = explained.T @ own @ explained / np.outer(size[others], size[others])
    place = np.full(columns.shape, -1)
    place[columns >= 0] = np.arange(used.size)
    # Weighted persons count by their squares in products, as free parameters show.
    free = np.ix_(others, others)
    ratio = float(np.trace(squares[free]) / np.trace(information[free])) if asked.robust else 1.0
    spread = products if asked.robust else None
    if asked.units is not None:
        by_unit = sampling.squares(fit, wide, x, at, asked, None, centred=True)
        spread = whole @ (by_unit / np.outer(size, size)) @ whole.T
    parts = _Parts(
        whole @ score, left, products, own, size[used], np.where(tested[:, anchors].T, place, -1),
        spread, ratio, asked.degrees,
    )  # fmt: skip
    out = _tests(model, x, expected, anchors, parts, carried)
    if told is None:
        return out
    where = np.full(at[0].shape, -1)
    where[:, anchors] = place.T
    return replace(out, known=Known(of_bank, along, where))


def _freed(model: Model, anchors: Ints, told: Bools | None) -> tuple[Model, Bools]:
    """The model in which what anchors keep is free, and which of their parameters are tested."""
    own = model.items.has & (model.items.of_all < 0)  # a shared one would join that of the others
    tested = own & model.items.table(_is_tested, False)
    used = tested if told is None else tested | (own & told)
    freed = model.fixed.copy()
    freed[:, anchors] = np.where(used, np.nan, freed)[:, anchors]
    falls = bool((model.fixed[0, anchors] < 0.0).any())  # bounds of slopes must not cut these off
    return replace(model, fixed=freed, signed=model.signed or falls), tested


@dataclass(frozen=True)
class _Parts:
    """Efficient scores of the anchors' parameters, what their covariance is made of, and places.

    ``place`` is that of the tested ones, (anchors, parameters), -1 of others.
    ``products`` are sums of the persons' squares; ``spread`` is the covariance of a sandwich, with
    so many ``degrees`` of freedom where it is of sampling units.
    """

    score: Floats
    information: Floats
    products: Floats
    bank: Floats
    unit: Floats
    place: Ints
    spread: Floats | None
    ratio: float
    degrees: int | None

    def on(self, basis: Floats) -> tuple[float, Floats]:
        """Chi-square of the scores along ``basis`` (parameters, k), and the step they ask for.

        The variance is the information, of a sandwich the sum of squares of scores.  So it is
        where the information is less than half of that in some direction: the two agree near the
        maximum, and far from it, where the data contradict the anchors, the information need not
        even be positive.
        """
        u, whole = basis.T @ self.score, self.information
        products = basis.T @ self.products @ basis
        spread = None if self.spread is None else basis.T @ self.spread @ basis
        least = min(np.linalg.eigvalsh(v)[0] for v in (products, spread) if v is not None)
        if not least > _LEAST or (self.degrees is not None and u.size > self.degrees):
            return float("nan"), np.full(u.size, np.nan)
        information = basis.T @ whole @ basis
        if not scipy.linalg.eigh(information, products, eigvals_only=True)[0] > 0.5 * self.ratio:
            information, whole = products / self.ratio, self.products / self.ratio
        variance = information if spread is None else self._spread(spread, information)
        total = variance + basis.T @ whole @ self.bank @ whole @ basis
        step = np.asarray(np.linalg.solve(information, u), dtype=np.float64)
        return float(u @ np.linalg.solve(total, u)), step

    def _spread(self, spread: Floats, information: Floats) -> Floats:
        """Covariance of a sandwich, or what the model expects of it where all persons score alike.

        Nobody may be wrong on an easy anchor: squares of scores are next to nothing then, and a
        chi-square from them is the number of persons.  Few units say too little of many directions.
        """
        expected = self.ratio * information
        if self.degrees is not None and self.degrees < _UNITS * len(spread):
            return spread
        least = scipy.linalg.eigh(spread, expected, eigvals_only=True)[0]
        return spread if least > _SCORED_ALIKE else expected


def _tests(
    model: Model, x: Floats, e: Expected, anchors: Any, parts: _Parts, carried: Floats
) -> Test:
    """Tests of each anchor and of all, and how far P would move."""
    each, p_value, rmsd = np.full((3, model.n_items), np.nan)
    items, _ = model.unpack(x)
    persons = e.persons.sum(axis=0)
    every = np.eye(parts.unit.size)
    for j, pair in zip(anchors, parts.place, strict=True):
        k = pair[pair >= 0]
        if not k.size:
            continue
        each[j], scaled = parts.on(every[:, k])
        p_value[j] = sampling.p_value(each[j], k.size, parts.degrees)
        both = items[:, [j, j]]
        both[pair >= 0, 1] += scaled / parts.unit[k]
        of_item = next(p.model for p in model.items.parts if j in p.at)
        chance = np.exp(of_item.log_p(both[: len(of_item.parameters)], e.nodes))
        change = 0.5 * ((chance[1] - chance[0]) ** 2).sum(axis=0)  # of P, with two categories
        rmsd[j] = np.sqrt(persons @ change / persons.sum())
    # A common move of place or scale is no contradiction: it goes along with abilities.
    along = np.zeros((parts.unit.size, 2))
    known = parts.place.T >= 0
    at = parts.place.T[known]
    for k, move in enumerate(moves(model, items)):
        along[at, k] = move[:, anchors][known] * parts.unit[at]
    mine = np.sort(at)
    basis = every[:, mine] @ scipy.linalg.null_space(along[mine].T)
    together = parts.on(basis)[0] if basis.shape[1] else float("nan")
    return Test(each, p_value, rmsd, together, basis.shape[1], carried, parts.degrees)
