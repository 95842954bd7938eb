"""The figures of the report page: plots turned into inline images with alternative texts."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import xarray as xr

from irt_dask.report import plots
from irt_dask.report.common import item_ids, legend, optional, seconds, several
from irt_dask.report.posterior_plots import MOST_COMPARED, height_of
from irt_dask.variables import SHARDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
#: More rows than this are no longer read one by one.
MOST_FOREST = 40
#: What shards have means of.
_PARAMETERS = ("discrimination", "intercept")
#: A predictive p-value up to this is called a misfit.
_SMALL_P = 0.05


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


def icc_image(items: xr.Dataset, at: str = "posterior means") -> Image | None:
    """Draw the characteristic curves; ``at`` says what the parameters are."""
    if not _has(items, "item_discrimination", "item_intercept"):
        return None
    n = len(item_ids(items))
    shown = "Probability of a right response"
    if several(items):
        shown = "Expected score as a share of the highest (of two categories: P(right))"
    caption = f"{shown} by ability, at the {at}."
    if n > plots.MOST_COLOURED:
        caption += " Coloured: the items most extreme in discrimination or difficulty."
    alt = f"Item characteristic curves of {n} items; the item table has their parameters."
    return inline(plots.icc(items), alt, caption)


def _side_by_side(height: float) -> list[Axes]:
    """Two axes of one figure as wide as the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, height), layout="constrained")
    return list(figure.subplots(1, 2))


def _one_legend(panels: Sequence[Axes]) -> None:
    """Keep the fullest of the panels' legends, beside the last panel."""
    boxes = [box for ax in panels if (box := ax.get_legend()) is not None]
    fullest = max(boxes, key=lambda box: len(box.get_texts()))
    handles, labels = fullest.legend_handles, [t.get_text() for t in fullest.get_texts()]
    for box in boxes:
        box.remove()
    legend(panels[-1], handles, labels)


def forest_image(posterior: xr.Dataset) -> Image | None:
    """Draw difficulties and discriminations with their intervals, if the items are few."""
    n = len(item_ids(posterior))
    if n > MOST_FOREST or not _has(posterior, *(f"item_{p}_draw" for p in _PARAMETERS)):
        return None
    panels = _side_by_side(height_of(n))
    for ax, name in zip(panels, ("item_difficulty", "item_discrimination"), strict=True):
        plots.forest(posterior, parameter=name, ax=ax)
    _one_legend(panels)
    caption = "Posterior medians with 50% and 95% intervals, the largest at the top."
    alt = f"Intervals of difficulty and discrimination of {n} items; the item table has the SDs."
    return inline(panels[0], alt, caption)


def shards_image(posterior: xr.Dataset) -> Image | None:
    """Draw the shards' means beside the combined posterior, where there are several shards."""
    needed = [f"{v}_{p}" for v in ("item", "shard_item") for p in _PARAMETERS]
    needed += [f"item_{p}_{v}" for v in ("sd", "draw") for p in _PARAMETERS]
    if not _has(posterior, "shard_n_persons", *needed) or posterior.sizes[SHARDS] < 2:
        return None
    n = len(item_ids(posterior))
    shown = min(n, MOST_COMPARED)
    panels = _side_by_side(1.3 * height_of(shown))
    for ax, parameter in zip(panels, _PARAMETERS, strict=True):
        plots.shards(posterior, parameter=f"item_{parameter}", ax=ax)
    _one_legend(panels)
    caption = (
        "Each shard's posterior means on the combined posterior"
        + (f", of the {shown} of {n:,} items on which shards differ most. " if shown < n else ". ")
        + "Shards drew their persons at random: a mean beyond chance points at a chain that has "
        "not converged, or at shards too small to be combined."
    )
    titles = "; ".join(f"{ax.get_xlabel()}: {ax.get_title()}" for ax in panels)
    return inline(panels[0], f"Means of the shards. {titles}.", caption)


def freed_image(items: xr.Dataset) -> Image | None:
    """Draw how far every item is from its common curve in every group, of many groups at once."""
    if not _has(items, "origin_md", "origin_freed"):
        return None
    from matplotlib.figure import Figure

    height = 1.5 + 0.2 * min(max(items.sizes["groups"], 6), 40)
    ax = Figure(figsize=(8.0, height), layout="constrained").subplots()
    plots.item_groups(items, ax=ax)
    caption = (
        "By how much items are easier (blue) or harder (red) in a group than their common curve "
        "says, in points of score; dots are items that have parameters of their own there."
    )
    if "group_set" in items:
        caption += " Groups between lines are of one set, which shares them."
    return inline(ax, f"Items in groups: {ax.get_title()}.", caption)


def check_image(check: xr.Dataset | None) -> Image | None:
    """Draw the scores and what the posterior predicts."""
    if check is None:
        return None
    ax = plots.predictive(check)
    level, n = float(check.attrs["level"]), int(check.attrs["n_replicates"])
    counted = "score" if several(check) else "number right"
    caption = (
        f"Persons by {counted}: observed, and expected under {_simulated_from(check)}. In the "
        f"band lie {100 * level:.0f}% of the counts of simulated data ({n} replicates), score by "
        f"score."
    )
    return inline(ax, f"Observed and predicted scores. {ax.get_title()}.", caption)


def check_items_image(check: xr.Dataset | None) -> Image | None:
    """Draw how items go together with the others, and what the posterior predicts."""
    if check is None or not _has(check, "item_rest_correlation"):
        return None
    ax = plots.predictive_items(check)
    level = float(check.attrs["level"])
    caption = (
        f"Correlation of each item with the sum of the others: observed, and where "
        f"{100 * level:.0f}% of simulated data have it. Of 100 items some "
        f"{100 * (1 - level):.0f} lie outside by chance. Far below (at the bottom): a wrong key, "
        f"guessing, an item about something else; far above: other items depend on it. "
        f"check_items.csv has the numbers of all items."
    )
    return inline(ax, f"Observed and predicted correlations of items. {ax.get_title()}.", caption)


def _simulated_from(check: xr.Dataset) -> str:
    return (
        "the posterior" if check.attrs.get("n_item_draws", 1) else "the estimates, taken as known"
    )


def check_words(check: xr.Dataset | None) -> list[str]:
    """Say what the predictive check found and how to read it, a paragraph each."""
    if check is None:
        return []
    p, n = float(check.attrs["p_value"]), int(check.attrs["n_replicates"])
    if math.isnan(p):
        return ["The persons have too few different scores for a p-value."]
    as_far = round(p * (n + 1)) - 1
    d, usual = (float(check.attrs[k]) for k in ("discrepancy", "discrepancy_expected"))
    verdict = (
        "The scores are not distributed as the model predicts"
        if p <= _SMALL_P
        else "The distribution of the scores gives no sign against the model"
    )
    return [
        f"{verdict}: p = {p:.3f}. {as_far or 'None'} of the {n} data sets that were simulated "
        f"from {_simulated_from(check)} came out at least as far from what is expected as the "
        f"observed one (which counts as one more in p). Its discrepancy is {d:,.1f}, that of a "
        f"simulated one {usual:,.1f} on average.",
        f"A small p (the smallest there can be is 1/{n + 1}) says that abilities are not normal, "
        "that curves have another form, or that responses depend on each other. With many persons "
        "it is small for a misfit of no consequence too: the figure shows how large it is. A p "
        "that is not small is weaker evidence than it looks, since the items were fitted to these "
        "same responses, and it is of the scores alone.",
    ]


def wright_image(posterior: xr.Dataset, scores: xr.Dataset | None) -> Image | None:
    """Draw the person-item map, without persons when there are no scores."""
    if not _has(posterior, "item_difficulty"):
        return None
    persons = scores if _has(scores, "ability_count", "ability") else None
    who, what = "Difficulties", "difficulties"
    if several(posterior):
        who, what = "Thresholds", "thresholds"
    if persons is not None:
        who = f"Estimated abilities of the persons (left) and {what}"
    caption = f"{who} of the items on one scale. Arrows: {what} beyond ±5."
    if several(posterior):
        caption += (
            " Item ≥ k: the ability at which category k or a higher one has probability one half; "
            "an item of two categories stands at its difficulty."
        )
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


def convergence_images(joint: xr.Dataset | None, items: xr.Dataset) -> list[Image]:
    """Draw the objectives of maximum likelihood and the trace of a posterior, those there are."""
    images = []
    for fit, name, of in (
        (joint, "Joint ML", "the log-likelihood"),
        (items, "Marginal ML", "what is maximised, the log-likelihood and any log prior,"),
    ):
        if fit is not None and _has(fit, "iteration_objective"):
            ax = plots.convergence(fit)
            caption = f"{name}: {of} after each iteration."
            images.append(inline(ax, f"Line plot. {ax.get_title()}.", caption))
    if "item_discrimination_draw" in items.variables:
        ax = plots.trace(items)
        n = items.sizes["draw"]
        caption = "Posterior: combined draws of the discriminations"
        ranked = "item_discrimination_rhat" in items.variables
        caption += " with the largest R-hat." if ranked else " of up to four items."
        images.append(inline(ax, f"Trace of {n} draws of up to four items.", caption))
    if (ranks := ranks_image(items)) is not None:
        images.append(ranks)
    return images


def ranks_image(items: xr.Dataset) -> Image | None:
    """Draw the ranks of each chain's draws, of the parameters that mixed worst."""
    if not _has(items, "ranked_draw_count"):
        return None
    panels = _side_by_side(3.0)
    for ax, which in zip(panels, range(min(2, items.sizes["ranked"])), strict=False):
        plots.ranks(items, which, ax=ax)
    if items.sizes["ranked"] == 1:
        panels[1].set_axis_off()
    _one_legend(panels)
    caption = (
        "Draws of each chain (of the two halves of the only one) by their rank among all draws of "
        "the parameter: level where chains have mixed, tilted where some are higher than others, "
        "high at both ends where one moves less than others."
    )
    titles = "; ".join(ax.get_title() for ax in panels if ax.get_title())
    return inline(panels[0], f"Ranks of draws. {titles}.", caption)


def timings_image(
    stages: Sequence[tuple[str, float]], posterior: xr.Dataset | None = None
) -> Image | None:
    """Draw the time by stage, and say how much of a posterior was drawn in that of its stage."""
    if not stages:
        return None
    caption, took = "Wall-clock time.", dict(stages).get("bayes", 0.0)
    if posterior is not None and _has(posterior, "shard_min_ess") and took > 0.0:
        least = float(posterior["shard_min_ess"].min())
        caption += (
            f" The smallest effective sample size of a shard, {least:,.0f}, took the stage bayes, "
            f"{seconds(took)} (less where it was resumed): {least / took:.3g} effective draws a "
            f"second."
        )
    listed = "; ".join(f"{name}: {seconds(float(value))}" for name, value in stages)
    return inline(plots.timings(stages), f"Time by stage. {listed}.", caption)
