"""Marginal maximum likelihood with facets: what raters, positions and modes add to difficulty."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal import null_categories as nulls
from irt_dask.calibrate.marginal import sampling
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.facets import comparable, errors, shrinking
from irt_dask.calibrate.marginal.facets.described import Found, described
from irt_dask.calibrate.marginal.facets.design import Design, categories, designed
from irt_dask.calibrate.marginal.facets.errors import Covariance, SingularError
from irt_dask.calibrate.marginal.facets.model import FacetModel, located
from irt_dask.calibrate.marginal.facets.rounds import FacetRounds
from irt_dask.calibrate.marginal.facets.shrinking import Estimates
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.specification import in_groups, specified
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import ResponseCounts, response_counts, start_values
from irt_dask.engine import Checkpoint, Engine, ProgressOption, as_responses
from irt_dask.engine.identity import checkpoint_of
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ConvergenceWarning, DataWarning, InputError
from irt_dask.items.mixture import Mixture, mixture_named
from irt_dask.store.responses import sha256

#: Parameters up to which standard errors are found unless told otherwise.
_BY_DEFAULT = 20_000
#: Newton steps at the end, at most, and the step after which none is needed.
_POLISHING, _SMALL = 4, 1e-7
#: How far they may lead before errors are found again: standard errors change by that share.
_FAR = 1e-3


@dataclass(frozen=True)
class Asked:
    """Options of a fit."""

    model: str | Mapping[str, str]
    max_iterations: int
    tolerance: float
    standard_errors: bool | str | None
    null_categories: str


def fit_facets(
    responses: Any, facets: Any, item_covariates: Any, *, model: str | Mapping[str, str],
    max_iterations: int,
    tolerance: float, groups: bool | None, reference_group: str | None,
    guessing_prior: tuple[float, float] | None, standard_errors: bool | str | None,
    null_categories: str, client: Any, progress: ProgressOption, checkpoint: str | Path | None,
) -> xr.Dataset:  # fmt: skip
    """:func:`irt_dask.fit_marginal` with facets; what it was asked for is checked."""
    whole_number("max_iterations", max_iterations, 1)
    nulls.check(null_categories)
    given = as_responses(responses, "fit_marginal", graded=True)
    design = designed(facets, given.item_id, item_covariates)
    k = categories(design, given.item_id, given.n_categories)
    models = mixture_named(model, design.parent_id, k)
    given, labels = in_groups(given, groups, client)
    parent = specified(
        given, models, labels, reference_group, "normal", None, guessing_prior, "all", None
    )
    asked = Asked(model, max_iterations, tolerance, standard_errors, null_categories)
    with Engine(
        given, client=client, progress=progress, stage="marginal ML", graded=True
    ) as engine:
        robust = _robust(engine, standard_errors, design.n_effects + parent.n_parameters)
        counts = response_counts(engine)
        parent = _with_categories(parent, design, counts, null_categories)
        parent = located(parent) if design.linear else parent
        met = comparable.met(engine, design, parent.n_groups)
        comparable.check(met, design, labels, parent.reference)
        n, one_sided = _answers(parent.items, design, counts)
        found = _Fit(engine, parent, design, met.most, asked, robust).run(
            n, one_sided, counts, checkpoint, labels
        )
        found = found._replace(n=n, sets=met.label)
    _say(found, parent, asked)
    return described(found, counts, engine, labels, model)


#: What options are that facets go together with.
_ALONE = {
    "latent": "normal", "fixed_items": None, "prior": None, "positive": "all", "start": None,
    "sampling_unit": None,
}  # fmt: skip


def with_facets(
    *, responses: Any, facets: Any, item_covariates: Any, standard_errors: Any,
    sampling_unit: Any, latent: Any, fixed_items: Any, prior: Any, positive: Any, start: Any,
    **options: Any,
) -> xr.Dataset:  # fmt: skip
    """:func:`irt_dask.fit_marginal` with facets, by all its arguments."""
    sampling.check(standard_errors, sampling_unit)
    _refuse_beside(
        latent=latent, fixed_items=fixed_items, prior=prior, positive=positive, start=start,
        sampling_unit=sampling_unit,
    )  # fmt: skip
    return fit_facets(
        responses, facets, item_covariates, standard_errors=standard_errors, **options
    )


def _refuse_beside(**given: Any) -> None:
    """Stop at options of a marginal fit that there are not with facets."""
    for name, value in given.items():
        usual = _ALONE[name]
        if value is None if usual is None else isinstance(value, str) and value == usual:
            continue
        shown = f"={value!r}" if isinstance(value, str) else ""
        raise InputError(
            f"{name}{shown} does not go together with facets, which there are with "
            f"{'none of it' if usual is None else f'{name}={usual!r} alone'}: leave one of them out"
        )


def _robust(engine: Engine, standard_errors: bool | str | None, size: int) -> bool:
    """Whether standard errors of so many parameters are a sandwich.

    With sampling weights, or if asked for.
    """
    sums = engine.weight_sums
    unequal = engine.sampled and sums is not None and sums.largest > sums.smallest
    if standard_errors == "information" and unequal:
        raise InputError(
            "standard_errors='information' takes persons to count alike, and these have sampling "
            "weights; use standard_errors='sandwich', or count every person once: select the "
            "responses with weights='ignore'"
        )
    if standard_errors is not None and not standard_errors:
        return False
    robust = standard_errors == "sandwich" or (engine.sampled and standard_errors != "information")
    if robust and size > errors.SANDWICH:
        remedy = "standard_errors='information'" if not engine.sampled else "standard_errors=False"
        raise InputError(
            f"a sandwich (sampling weights, or standard_errors='sandwich') is there up to "
            f"{errors.SANDWICH} parameters, and these are {size}; use {remedy}"
        )
    return robust


def _with_categories(parent: Model, design: Design, counts: ResponseCounts, how: str) -> Model:
    """The model without the categories that nobody has, whatever the level."""
    pooled = _pooled(design, counts)
    estimated = np.ones(len(design.parent_id), dtype=bool)
    settled = nulls.settled(parent.items, design.parent_id, pooled, estimated, how)
    return parent if settled is parent.items else parent.of_models(settled)


def _pooled(design: Design, counts: ResponseCounts) -> Ints:
    """Persons by item and category, all levels together."""
    of_each = counts.of_each
    out = np.zeros((len(design.parent_id), of_each.shape[1]), dtype=np.int64)
    np.add.at(out, design.parent, of_each)
    return out


def _answers(models: Mixture, design: Design, counts: ResponseCounts) -> tuple[Ints, Ints]:
    """Answers under each effect, and levels all of whose answers are of one end of the codes.

    Codes of nominal items have no ends.
    """
    lowest, highest = models.item_set(models.table(lambda p: p.usual)).ends
    of_each, at = counts.of_each, np.arange(design.parent.size)
    low = of_each[at, lowest[design.parent]]
    high = of_each[at, highest[design.parent]]
    nominal = (models.names == "nominal")[design.parent]
    return comparable.answers(
        design, counts.seen, np.where(nominal, 0, low), np.where(nominal, 0, high)
    )


# --- the fits -------------------------------------------------------------------------------------


@dataclass
class _State:
    """Where a fit stands."""

    fit: FacetRounds
    x: Floats
    value: float
    expected: Expected
    end: climb.Fitted
    covariance: Covariance | None


class _Fit:
    """Fits of one design: without densities of effects, then with them."""

    def __init__(
        self, engine: Engine, parent: Model, design: Design, most: Ints, asked: Asked, robust: bool
    ) -> None:
        self.engine, self.design, self.most = engine, design, most
        self.asked, self.robust = asked, robust
        self.model = FacetModel(parent, design, np.zeros(design.n_effects))

    def run(
        self, n: Ints, one_sided: Ints, counts: ResponseCounts, checkpoint: str | Path | None,
        labels: tuple[str, ...],
    ) -> Found:  # fmt: skip
        """The maximum, its errors, and of levels with few answers both kinds of effects."""
        design, parent = self.design, self.model.parent
        x = parent.start(
            start_values(design.parent_id, parent.items, _pooled(design, counts), None,
                         prior=parent.prior.betas)
        )  # fmt: skip
        x = np.append(x[:, 0], np.zeros(design.n_effects))[:, None]
        saved = checkpoint_of(self.engine, checkpoint, self._identity(labels, x))
        which = shrinking.shrunk(design, n, one_sided)
        wanted = bool(self.asked.standard_errors)
        if self.asked.standard_errors is None:
            wanted = design.n_effects + parent.n_parameters <= _BY_DEFAULT
        # One-sided levels have no finite effect: theirs is held near 0 until s2 is known.
        first = self.model.with_precision((one_sided != 0).astype(float))
        state = self._climbed(first, x, saved, "facets", wanted or bool(which.any()))
        known = self._effects(state, one_sided)
        alone = errors.as_given(design, known.value, state.covariance, np.isnan(known.variance))
        s, last, n_fits = np.full(len(design.facets), np.nan), state, 0
        if which.any() and state.covariance is not None:
            states = [state]

            def again(precision: Floats) -> Estimates:
                model = self.model.with_precision(precision)
                name = f"facets {len(states)}"
                states.append(self._climbed(model, states[-1].x, saved, name, True))
                c = states[-1].covariance
                effects = model.unpack(states[-1].x)[2]
                variance = np.full(effects.size, np.nan) if c is None else c.effects
                return Estimates(effects, variance)

            s, n_fits = shrinking.learn(design, which, known, again)
            last = states[-1]
        if not wanted:
            last.covariance = None
        return Found(
            last.fit, last.x, last.value, last.expected, last.end, last.covariance, which, s,
            n_fits, alone.value, np.sqrt(alone.variance) if wanted else np.full(which.size, np.nan),
            one_sided, self.robust,
        )  # fmt: skip

    def _identity(self, labels: tuple[str, ...], x: Floats) -> dict[str, Any]:
        """What a checkpoint rests on, but for data."""
        parent = self.model.parent
        return {
            "method": "marginal facets", "tolerance": self.asked.tolerance,
            "model": parent.items.names.tolist(), "map": parent.items.category_map,
            "groups": labels, "reference": parent.reference, "design": self.design.identity,
            "prior": (parent.prior.betas.alpha, parent.prior.betas.beta), "start": x,
            "errors": repr(self.asked.standard_errors),
        }  # fmt: skip

    def _climbed(
        self, model: FacetModel, x: Floats, saved: Checkpoint, name: str, with_errors: bool
    ) -> _State:
        """The maximum from x, by EM and Newton steps."""
        fit = FacetRounds(self.engine, model, self.most)
        asked = self.asked
        name += f" {sha256(model.precision, x)[:16]}"  # of where it begins
        end = climb.full(fit, x, asked.max_iterations, asked.tolerance, saved, name)
        value, seen = fit.expect(end.x)
        state = _State(fit, end.x, value, seen, end, None)
        if not with_errors:
            return state
        for _ in range(_POLISHING):
            try:
                of = errors.numbers(model, state.x)
                i = errors.information(fit, state.x, state.expected, of, squares=self.robust)
                state.covariance = errors.covariance(i, self.design.together)
            except SingularError:
                _warn_singular()
                return state
            if self._polished(state, of):
                return state
        return state

    def _polished(self, state: _State, of: errors.Numbers) -> bool:
        """Go on by Newton steps; whether the covariance is that of where they end."""
        fit, c = state.fit, state.covariance
        assert c is not None
        far = 0.0
        for _ in range(_POLISHING):
            moved = errors.moved(fit, state.x, state.expected, of, c)
            new, seen = fit.expect(moved)
            best = state.value + fit.log_prior(state.x)
            if not new + fit.log_prior(moved) >= best - 1e-12 * abs(best):
                break
            size = float(np.abs(moved - state.x).max())
            far = max(far, size)
            state.x, state.value, state.expected = moved, new, seen
            if size < _SMALL:
                break
        same = np.array_equal(errors.numbers(fit.model, state.x).items, of.items)
        return far < _FAR and same

    def _effects(self, state: _State, one_sided: Ints) -> Estimates:
        """Effects without densities, and variances; infinite where answers are one-sided."""
        effects = state.fit.model.unpack(state.x)[2].copy()
        variance = np.full(effects.size, np.nan)
        if state.covariance is not None:
            variance = np.maximum(state.covariance.effects, 0.0)
        variance[errors.held(state.fit.model, effects) | (one_sided != 0)] = np.nan
        ends = -np.inf * np.where(one_sided == 0, 1, one_sided)
        return Estimates(np.where(one_sided != 0, ends, effects), variance)


def _warn_singular() -> None:
    warnings.warn(
        "the observed information is singular: the data do not determine all parameters, and none "
        "has a standard error; give more answers by level and item, or leave a facet out",
        DataWarning,
        stacklevel=6,
    )


def _say(found: Found, parent: Model, asked: Asked) -> None:
    """Warn of what is not to be relied on."""
    if not found.end.converged:
        warnings.warn(
            f"marginal maximum likelihood did not converge in {asked.max_iterations} iterations; "
            f"raise max_iterations",
            ConvergenceWarning,
            stacklevel=4,
        )
    design = found.fit.model.design
    nulls.warn(parent.items, design.parent_id, parent.estimated, asked.null_categories)
    shrinking.warn(design, found.shrunk, found.one_sided, found.s)
    bad = found.at_bound
    if bad.any():
        names = [design.names[e] for e in np.flatnonzero(bad)]
        warnings.warn(
            f"{len(names)} effect(s) ended at a bound, which is no estimate (facet_at_bound): "
            f"{', '.join(names[:10])}",
            DataWarning,
            stacklevel=4,
        )
