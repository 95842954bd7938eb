"""The report page: one HTML file with nothing to load from elsewhere.

Sections answer questions.  The item table is of plain HTML; ``page.js``, which stands in the page,
makes it sortable and searchable and opens a page of each item, from JSON that is in the page once.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report import (
    blocks,
    category_figures,
    chains,
    common,
    figures,
    fitted,
    flags,
    glance,
    item_columns,
    item_data,
    methods,
    person_tests,
    precision,
    tables,
    tested,
)  # fmt: skip
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
    curves: xr.Dataset | None = None,
    persons: xr.Dataset | None = None,
    results: Mapping[str, xr.Dataset] | None = None,
    notes: Sequence[str] = (),
    machines: Sequence[tuple[str, Sequence[str]]] = (),
    configuration: Mapping[str, Any] | None = None,
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
        The items, by ``fit_bayes`` or by ``fit_marginal`` (or ``fit_bifactor``): one of them.  Its
        order of items is that of the tables.
    joint, spectral
        Other fits of the same items, matched by ``item_id``.
    check
        Result of ``predictive_check``.
    scores
        Distribution of the estimated abilities, ``ability_count`` on ``ability``.
    truth
        The parameters that the data were simulated from, when they are known.
    curves
        Result of ``item_curves``: observed curves, shown in the page of each item.
    persons
        Result of ``person_fit``, of which the page shows shares of persons.
    results
        Further results over items by the name to show, matched by ``item_id``, such as those of
        ``item_fit`` and ``dif``: the page of an item has its statistics.
    notes
        Sentences to show at the end, such as warnings.
    machines
        Pairs (stage, types of processor) that tell where that stage and the next were computed.
        These and ``timings`` are all that differs between the pages of two runs of the same.
    configuration
        What was asked of the run, as JSON has it.

    Notes
    -----
    The page holds the first 5,000 items.  Its own script needs no network, and a policy in its head
    forbids any; without scripts the first 500 items are a plain table.
    """
    path = local_path(path, "a report")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    if (posterior is None) == (marginal is None):
        raise InputError("a report is of a posterior or of a marginal fit: give one of them")
    items = posterior if marginal is None else marginal
    assert items is not None
    items = items.assign_coords(item_id=("items", common.item_ids(items)))
    name = "marginal ML" if posterior is None else "posterior"
    fits = {name: items, "joint ML": joint, "spectral": spectral}
    columns = item_columns.columns_of(items, joint, spectral, truth, name=name)
    columns += blocks.columns(items)
    measures = _measures(items, scores, persons, check)
    text = template("page.html").render(
        title=title,
        fits=tables.fits_table({**fits, "scores": scores, "truth": truth}),
        is_posterior=posterior is not None,
        items=item_columns.item_table(columns),
        n_items=len(columns[0].words or ()),
        most=item_data.MOST,
        tested=tested.tested(results),
        recovery=None if truth is None else tables.recovery_table(truth, list(fits.items())),
        wright=figures.wright_image(items, scores),
        compare=None if posterior is None else figures.compare_image(joint, posterior),
        convergence=figures.convergence_images(joint, items),
        course=tables.course_table({"joint ML": joint, name: items}),
        timings=figures.timings_image(timings, posterior),
        notes=list(notes),
        **_flagged(items, fits, columns, curves, results, check, notes, measures["reliabilities"]),
        **_of_the_run(run, machines, configuration),
        **measures,
        **_of_items(items, "posterior means" if posterior is not None else "estimates"),
        **_checked(check),
        **person_tests.tested(persons),
        **_script(),
    )  # fmt: skip
    write_atomically(path, text.encode(errors="replace"))
    return path


def _flagged(
    items: xr.Dataset, fits: Mapping[str, xr.Dataset | None],
    columns: Sequence[item_columns.Column], curves: xr.Dataset | None,
    results: Mapping[str, xr.Dataset] | None, check: xr.Dataset | None, notes: Sequence[str],
    reliabilities: tuple[str, Sequence[float]],
) -> dict[str, Any]:  # fmt: skip
    """The items' flags, of each and what is told of all at once, and the facts that count them."""
    found = flags.flags_of(fits, results)
    each, few, words = flags.told_once(found, items)
    once = (flags.FEW,) if few else ()
    return {
        "facts": glance.facts(items, fits, len(each), reliabilities, check, notes, few=few),
        "data": item_data.item_data(items, columns, found, curves, results, once=once),
        "flagged": flags.flags_table(each),
        "few": words,
    }


def _of_the_run(
    run: Sequence[tuple[str, object]], machines: Sequence[tuple[str, Sequence[str]]],
    configuration: Mapping[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """What was run, how it was asked for, and where."""
    asked = None if configuration is None else json.dumps(configuration, indent=2, sort_keys=True)
    rows = [[label, tables.NOTHING if value is None else str(value)] for label, value in run]
    return {
        "run": rows,
        "configuration": asked,
        "run_table": tables.Table(("what", "value"), rows),
        "machines": [(stage, " and ".join(types)) for stage, types in machines],
        "mixed": len({t for _, types in machines for t in types}) > 1,
    }


def _of_items(items: xr.Dataset, at: str) -> dict[str, Any]:
    """Pictures and tables that need the items alone; ``at`` says what their parameters are."""
    return {
        "several": figures.several(items),
        "icc": figures.icc_image(items, at),
        "categories": category_figures.categories_image(items),
        "forest": figures.forest_image(items),
        "shards": figures.shards_image(items),
        "diagnostics": chains.diagnostics_table(items),
        "worst": chains.worst_table(items),
        "anchors": fitted.anchors_table(items),
        "freed_image": figures.freed_image(items),
        "freed": fitted.freed_table(items),
        "blocks": blocks.table(items),
    }


def _measures(
    items: xr.Dataset, scores: xr.Dataset | None, persons: xr.Dataset | None,
    check: xr.Dataset | None,
) -> dict[str, Any]:  # fmt: skip
    """What is said of precision, and the words for a methods section."""
    known = precision.measured(items)
    reliability = precision.reliability(items, known)
    of_groups = precision.of_groups(items, known)
    each = of_groups if reliability is None else [reliability]
    of_scores = precision.of_scores(scores)
    if of_scores is not None:  # of persons who may have answered a part of the items
        reliabilities = "Reliability of the scores", [of_scores]
    else:
        reliabilities = "Reliability, all items answered", [] if each is None else list(each)
    method, references = methods.paragraph(
        items, scores=scores, check=check, persons=persons, reliability=reliability
    )
    return {
        "reliabilities": reliabilities,
        "groups": fitted.groups_table(items, of_groups),
        "method": method,
        "references": references,
        "information": precision.information_image(known),
        "information_table": precision.information_table(known),
        "scores_table": precision.scores_table(scores),
        "precision_words": precision.words(items, known, reliability, scores),
    }


def _checked(check: xr.Dataset | None) -> dict[str, Any]:
    """What is said of the predictive check."""
    return {
        "check": figures.check_image(check),
        "check_items": figures.check_items_image(check),
        "check_words": figures.check_words(check),
        "check_table": tables.check_table(check),
    }


def _script() -> dict[str, str]:
    """The page's script, and its digest, by which the page's policy knows it."""
    script = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    return {"script": script, "script_digest": base64.b64encode(digest).decode("ascii")}


def template(name: str) -> Any:
    """One of the pages of this folder, to be filled in."""
    import jinja2
    from markupsafe import Markup

    from irt_dask.report import downloads

    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    pages.filters["csv"] = downloads.csv_uri
    pages.filters["in_script"] = lambda value: Markup(downloads.in_script(value))
    pages.filters["as_it_is"] = lambda text: Markup(text)
    return pages.get_template(name)
