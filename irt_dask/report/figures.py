"""The figures of the report page: plots turned into inline images with alternative texts."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from irt_dask.report import plots
from irt_dask.report.common import item_ids, optional, seconds

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150


@dataclass(frozen=True)
class Image:
    """A picture inside the page: its data URI, alternative text, caption and width in pixels."""

    source: str
    alt: str
    caption: str
    width: int


def inline(ax: Axes, alt: str, caption: str) -> Image:
    """Render the whole figure of the axes as a PNG inside a data URI."""
    figure = cast("Figure", ax.figure)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # identifiers may be written in scripts that the font of the figures lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    width = round(figure.get_size_inches()[0] * 96)
    return Image(f"data:image/png;base64,{data}", alt, caption, width)


def _has(dataset: xr.Dataset | None, *names: str) -> bool:
    return dataset is not None and all(optional(dataset, name) is not None for name in names)


def icc_image(posterior: xr.Dataset) -> Image | None:
    """Draw the characteristic curves of the posterior means."""
    if not _has(posterior, "item_discrimination", "item_intercept"):
        return None
    n = len(item_ids(posterior))
    caption = "Probability of a right response by ability, at the posterior means."
    if n > plots.MOST_COLOURED:
        caption += " Coloured: the items most extreme in discrimination or difficulty."
    alt = f"Item characteristic curves of {n} items; the item table has their parameters."
    return inline(plots.icc(posterior), alt, caption)


def wright_image(posterior: xr.Dataset, scores: xr.Dataset | None) -> Image | None:
    """Draw the person-item map, without persons when there are no scores."""
    if not _has(posterior, "item_difficulty"):
        return None
    persons = scores if _has(scores, "ability_count", "ability") else None
    who = "Difficulties"
    if persons is not None:
        who = "Estimated abilities of the persons (left) and difficulties"
    caption = f"{who} of the items on one scale. Arrows: difficulties beyond ±5."
    alt = "Person-item map; the item table has the difficulties."
    return inline(plots.wright_map(posterior, persons), alt, caption)


def compare_image(joint: xr.Dataset | None, posterior: xr.Dataset) -> Image | None:
    """Draw discriminations and difficulties of two fits against each other, side by side."""
    from matplotlib.figure import Figure

    names = [
        name
        for name in ("item_discrimination", "item_difficulty")
        if _has(joint, name) and _has(posterior, name)
    ]
    if joint is None or not names:
        return None
    figure = Figure(figsize=(4.5 * len(names), 4.4), layout="constrained")
    for k, name in enumerate(names):
        plots.compare(joint, posterior, name, ax=figure.add_subplot(1, len(names), k + 1))
    titles = " and ".join(ax.get_title() for ax in figure.axes)
    caption = (
        "Each point is an item; bars are a standard error (joint ML) and a posterior standard "
        "deviation to each side; the dashed line is equality."
    )
    return inline(
        figure.axes[0], f"Scatter plots of posterior against joint ML: {titles}.", caption
    )


def convergence_images(joint: xr.Dataset | None, posterior: xr.Dataset) -> list[Image]:
    """Draw the objective of joint ML and the trace of the posterior, those there are."""
    images = []
    if joint is not None and _has(joint, "iteration_objective"):
        ax = plots.convergence(joint)
        caption = "Joint ML: the log-likelihood after each iteration."
        images.append(inline(ax, f"Line plot. {ax.get_title()}.", caption))
    if "item_discrimination_draw" in posterior.variables:
        ax = plots.trace(posterior)
        n = posterior.sizes["draw"]
        caption = "Posterior: combined draws of the discriminations"
        ranked = "item_discrimination_rhat" in posterior.variables
        caption += " with the largest R-hat." if ranked else " of up to four items."
        images.append(inline(ax, f"Trace of {n} draws of up to four items.", caption))
    return images


def timings_image(stages: Sequence[tuple[str, float]]) -> Image | None:
    """Draw the time by stage."""
    if not stages:
        return None
    listed = "; ".join(f"{name}: {seconds(float(value))}" for name, value in stages)
    return inline(plots.timings(stages), f"Time by stage. {listed}.", "Wall-clock time.")
