"""Draws of items of any model: coordinates in which shards are combined, and what results say.

Shards are combined in the coordinates of the models, but for asymptotes: these enter by their
normal scores before the data (:mod:`irt_dask.calibrate.bayes.normal_scores`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes import normal_scores
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.curves.base import Parameter
from irt_dask.items.mixture import Mixture

#: A step changes no coordinate by more than this.
_LARGEST_STEP = 1.0
#: Of categories, where steps have one less.
SCORES = "item_category_score"
#: Rows of coordinates that items of all models have.
_COMMON = ("item_discrimination", "item_intercept")
_FIRST_SHAPE = len(_COMMON)


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelSpace(Space):
    """Coordinates of the items' models, asymptotes by normal scores: steps and location too."""

    shapes: Shapes

    def mask(self, n_rows: int, n_items: int) -> Bools:
        """See :class:`Space`."""
        return self.shapes.free

    @property
    def of_one_model(self) -> bool:
        """See :class:`Space`."""
        return False

    @property
    def any_sign(self) -> bool:
        """See :class:`Space`."""
        return self.shapes.signed

    @property
    def reported(self) -> Shapes:
        """Shapes whose parameters are those that results have, at the same coordinates."""
        return self.shapes

    def labels(self, item_id: tuple[str, ...]) -> tuple[str, ...]:
        """What columns are called."""
        return item_id

    def _asymptotes(self) -> Iterator[tuple[int, Ints, Floats, Floats]]:
        """Rows of asymptotes, their items, and the Beta densities of these."""
        for part in self.shapes.models.parts:
            if part.model.asymptotes:
                betas = self.shapes.betas.take(part.at)
                for k in range(_FIRST_SHAPE, len(part.model.parameters)):
                    yield k, part.at, betas.alpha[k], betas.beta[k]

    def of_draws(self, draws: Floats) -> Floats:
        """See :class:`Space`."""
        x = draws.copy()
        for k, at, *beta in self._asymptotes():
            x[..., k, at] = normal_scores.of_logits(draws[..., k, at], *beta)
        return x

    def parameters(self, x: Floats) -> Floats:
        """The coordinates of the models, which the log posterior is a function of."""
        y = self.items(x).copy()
        for k, at, *beta in self._asymptotes():
            y[..., k, at] = normal_scores.logits(y[..., k, at], *beta)
        return y

    def slope(self, x: Floats) -> Floats:
        """See :class:`Space`."""
        out, y = np.ones_like(x), self.parameters(x)
        for k, at, *beta in self._asymptotes():
            out[k, at] = np.exp(normal_scores.log_slope(x[k, at], y[k, at], *beta))
        return out

    def volume(self, x: Floats) -> tuple[float, Floats]:
        """See :class:`Space`."""
        value, gradient, y = 0.0, np.zeros_like(x), self.parameters(x)
        for k, at, *beta in self._asymptotes():
            own = x[k, at], y[k, at]
            value += float(normal_scores.log_slope(*own, *beta).sum())
            gradient[k, at] = normal_scores.slope_of_log(*own, *beta)
        return value, gradient

    def within(self, x: Floats, step: Floats) -> Floats:
        """See :class:`Space`."""
        return np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)

    def named(self, x: Floats) -> dict[str, Floats]:
        """See :class:`Space`."""
        return named(self.reported, x)

    def mean(self, data: dict[str, Any]) -> Floats:
        """Coordinates (P, items) of the posterior means among the result's arrays."""
        return self.shapes.of(parameters_named(self.shapes.models, data))


def column(p: Parameter) -> int:
    """Where a parameter of a step is in its variable: scores are of all categories."""
    return p.step if p.variable == SCORES else p.step - 1


def parameters_named(models: Mixture, data: dict[str, Any], suffix: str = "") -> Floats:
    """Parameters (..., P, items) among the result's arrays, with this at the end of their names."""
    some = data[f"item_discrimination{suffix}"]
    x = np.zeros((*some.shape[:-1], *models.has.shape))
    for part in models.parts:
        for k, p in enumerate(part.model.parameters):
            of_all = data[f"{p.variable}{suffix}"]
            of_all = of_all[..., column(p)] if p.step else of_all
            x[..., k, part.at] = of_all[..., part.at]
    return x


def named(shapes: Shapes, y: Floats) -> dict[str, Floats]:
    """Variables of items, (draw, items) or (draw, items, steps), at coordinates (draw, P, items).

    Steps only where some item has more than two categories, or nominal ones, and scores of these;
    NaN beyond an item's, and difficulties of steps of nominal items, which need not be anywhere.
    """
    models, n = shapes.models, len(y)
    x, m = shapes.parameters(y), models.n_items
    more = {p.variable: p.neutral for p in models.parameters if p.neutral is not None}
    out = {name: np.empty((n, m)) for name in (*_COMMON, "item_difficulty")}
    out |= {name: np.full((n, m), neutral) for name, neutral in more.items()}
    n_steps = int(models.n_categories.max()) - 1
    stepwise = n_steps > 1 or shapes.scored
    if stepwise:
        for name in ("item_step_intercept", "item_step_difficulty"):
            out[name] = np.full((n, m, n_steps), np.nan)
    if shapes.scored:
        out[SCORES] = np.full((n, m, n_steps + 1), np.nan)
    for part in models.parts:
        model, at = part.model, part.at
        own = x[:, : len(model.parameters), at].transpose(1, 0, 2).reshape(-1, n * at.size)
        found = {
            "item_discrimination": model.slope(own)[0],
            "item_difficulty": model.difficulty(own)[0],
            "item_intercept": model.intercept(own)[0],
        }
        found |= {p.variable: own[k] for k, p in enumerate(model.parameters)
                  if p.neutral is not None}  # fmt: skip
        for name, values in found.items():
            out[name][:, at] = values.reshape(n, at.size)
        if not stepwise:
            continue
        by_step = {"item_step_intercept": model.step_intercepts(own)[0]}
        if model.name == "nominal":
            by_step[SCORES] = model.category_scores(own)[0]
        else:
            by_step["item_step_difficulty"] = model.step_difficulties(own)[0]
        for name, steps in by_step.items():
            by_draw = steps.reshape(-1, n, at.size).transpose(1, 2, 0)
            out[name][:, at, : len(steps)] = by_draw
    return out


def diagnostics(shapes: Shapes, of_coordinates: Floats, of_parameters: Floats) -> dict[str, Floats]:
    """A diagnostic by variable, from those of coordinates and of parameters, (P, items)."""
    models = shapes.models
    out = {name: of_coordinates[k] for k, name in enumerate(_COMMON)}
    n_steps = int(models.n_categories.max()) - 1
    for part in models.parts:
        for k, p in enumerate(part.model.parameters):
            if p.variable in _COMMON:
                continue
            size = n_steps + (p.variable == SCORES)
            shape = (models.n_items, size) if p.step else (models.n_items,)
            to = out.setdefault(p.variable, np.full(shape, np.nan))
            to[(part.at, column(p)) if p.step else part.at] = of_parameters[k, part.at]
    return out
