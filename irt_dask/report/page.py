"""The report page: one HTML file without scripts or anything to load from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report import figures, tables
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path


def write_report(
    path: str | Path,
    *,
    title: str,
    run: Sequence[tuple[str, object]],
    timings: Sequence[tuple[str, float]],
    posterior: xr.Dataset,
    joint: xr.Dataset | None = None,
    spectral: xr.Dataset | None = None,
    check: xr.Dataset | None = None,
    scores: xr.Dataset | None = None,
    truth: xr.Dataset | None = None,
    notes: Sequence[str] = (),
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
    posterior
        The posterior of the items; its order of items is that of the tables.
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
    """
    import jinja2

    path = local_path(path, "a report")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    fits = {"posterior": posterior, "joint ML": joint, "spectral": spectral}
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.from_string(template).render(
        title=title,
        run=[(label, tables.NOTHING if value is None else str(value)) for label, value in run],
        fits=tables.fits_table({**fits, "scores": scores, "truth": truth}),
        items=tables.item_table(posterior, joint, spectral, truth),
        flagged=tables.flags_table(fits),
        recovery=None if truth is None else tables.recovery_table(truth, list(fits.items())),
        forest=figures.forest_image(posterior),
        icc=figures.icc_image(posterior),
        wright=figures.wright_image(posterior, scores),
        compare=figures.compare_image(joint, posterior),
        convergence=figures.convergence_images(joint, posterior),
        shards=figures.shards_image(posterior),
        check=figures.check_image(check),
        check_words=figures.check_words(check),
        diagnostics=tables.diagnostics_table(posterior),
        timings=figures.timings_image(timings),
        notes=list(notes),
    )
    write_atomically(path, text.encode(errors="replace"))
    return path
