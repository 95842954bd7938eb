"""The report page: one HTML file without scripts or anything to load from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report import category_figures, chains, figures, fitted, tables
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path


def write_report(
    path: str | Path,
    *,
    title: str,
    run: Sequence[tuple[str, object]],
    timings: Sequence[tuple[str, float]],
    posterior: xr.Dataset | None = None,
    marginal: xr.Dataset | None = None,
    joint: xr.Dataset | None = None,
    spectral: xr.Dataset | None = None,
    check: xr.Dataset | None = None,
    scores: xr.Dataset | None = None,
    truth: xr.Dataset | None = None,
    notes: Sequence[str] = (),
    machines: Sequence[tuple[str, Sequence[str]]] = (),
) -> Path:
    """Write the report of a calibration as one self-contained HTML file, and return its path.

    Parameters
    ----------
    path
        The file to write, in a folder that exists; an older one is replaced as a whole.
    title
        Heading of the page.
    run
        Pairs (label, value) that tell what was run: data, persons, items, seed, versions.
    timings
        Pairs (stage, seconds).
    posterior, marginal
        The items, by ``fit_bayes`` or by ``fit_marginal``: one of them.  Its order of items is that
        of the tables.
    joint, spectral
        Other fits of the same items, matched by ``item_id``.
    check
        Result of ``predictive_check``.
    scores
        Distribution of the estimated abilities, ``ability_count`` on ``ability``.
    truth
        The parameters that the data were simulated from, when they are known.
    notes
        Sentences to show at the end, such as warnings.
    machines
        Pairs (stage, types of processor) that tell where that stage and the next were computed.
        These and ``timings`` are all that differs between the pages of two runs of the same.
    """
    path = local_path(path, "a report")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    if (posterior is None) == (marginal is None):
        raise InputError("a report is of a posterior or of a marginal fit: give one of them")
    items = marginal if posterior is None else posterior
    assert items is not None
    name = "marginal ML" if posterior is None else "posterior"
    fits = {name: items, "joint ML": joint, "spectral": spectral}
    text = template("page.html").render(
        title=title,
        run=[(label, tables.NOTHING if value is None else str(value)) for label, value in run],
        fits=tables.fits_table({**fits, "scores": scores, "truth": truth}),
        is_posterior=posterior is not None,
        items=tables.item_table(items, joint, spectral, truth, name=name),
        groups=fitted.groups_table(items),
        anchors=fitted.anchors_table(items),
        flagged=tables.flags_table(fits),
        recovery=None if truth is None else tables.recovery_table(truth, list(fits.items())),
        forest=figures.forest_image(items),
        several=figures.several(items),
        categories=category_figures.categories_image(items),
        icc=figures.icc_image(items, "posterior means" if posterior is not None else "estimates"),
        wright=figures.wright_image(items, scores),
        compare=None if posterior is None else figures.compare_image(joint, posterior),
        convergence=figures.convergence_images(joint, items),
        shards=figures.shards_image(items),
        check=figures.check_image(check),
        check_items=figures.check_items_image(check),
        check_words=figures.check_words(check),
        diagnostics=chains.diagnostics_table(items),
        worst=chains.worst_table(items),
        timings=figures.timings_image(timings, posterior),
        notes=list(notes),
        machines=[(stage, " and ".join(types)) for stage, types in machines],
        mixed=len({t for _, types in machines for t in types}) > 1,
    )
    write_atomically(path, text.encode(errors="replace"))
    return path


def template(name: str) -> Any:
    """One of the pages of this folder, to be filled in."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    ).get_template(name)  # fmt: skip
