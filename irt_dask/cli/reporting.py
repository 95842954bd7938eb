"""The command report: the page of a run, or of a fit that was kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import xarray as xr

from irt_dask.cli.common import counted, json_option, show, warned
from irt_dask.errors import InputError, listed
from irt_dask.store import open_responses

if TYPE_CHECKING:
    from irt_dask.workflow.fit_tests import FitTests


@click.command()
@click.argument("source", type=click.Path(), metavar="RUN|FIT.nc")
@click.option("--out", type=click.Path(), metavar="PAGE.html",
              help="File to write, for a fit; the page of a run lies in its folder.")  # fmt: skip
@click.option("--store", type=click.Path(), help="The responses that were fitted: the page says "
              "what they are. Others are refused.")  # fmt: skip
@click.option("--scores", type=click.Path(), metavar="FOLDER", help="Scores of these persons "
              "(irt-dask score --out): the person-item map shows their distribution.")  # fmt: skip
@click.option("--tests", is_flag=True, help="Test items and persons against the responses of "
              "--store, in some passes: the page of each item has its statistics and its observed "
              "curve, and the page tells of persons who do not fit.")  # fmt: skip
@click.option("--groups/--no-groups", default=None,
              help="With --tests: whether items are tested, and their curves drawn, with a "
              "distribution of ability for each group of persons (default: if the store has "
              "groups).")  # fmt: skip
@click.option("--results", multiple=True, type=click.Path(), metavar="X.nc",
              help="A result over the items to show too, written by 'irt-dask dif', 'fit' or "
              "'options' with --out X.nc. Repeat as needed.")  # fmt: skip
@click.option("--title", help="Heading of the page (default: the name of the fit).")
@json_option
def report(
    source: str, out: str | None, store: str | None, scores: str | None, tests: bool,
    groups: bool | None, results: tuple[str, ...], title: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a report as one HTML page, and print its path.

    RUN is the folder of a finished run, whose page is written again. FIT.nc is a fit that
    'irt-dask calibrate --fit FIT.nc' kept, by marginal ML or with a posterior, or one of 'irt-dask
    bifactor': the page has its items, groups, blocks, anchors, flags, curves and convergence. Items
    that a test speaks against are flagged, and the page of each item has the statistics.
    """
    from irt_dask.banks.saved import read_bank

    if Path(source).is_dir() or not source.endswith(".nc"):
        given = {"--out": out, "--store": store, "--scores": scores, "--title": title,
                 "--tests": tests or None, "--groups": groups}  # fmt: skip
        if of_fits := [name for name, value in given.items() if value is not None]:
            raise InputError(
                f"{', '.join(of_fits)}: {source} is no fit (FIT.nc, see irt-dask calibrate --fit), "
                f"and the page of a run takes what the run left"
            )
        _tell(_of_run(source, results), as_json)
        return
    if out is None:
        raise InputError(f"--out PAGE.html is missing: where to write the page of {source}")
    if not out.endswith((".html", ".htm")):
        raise InputError(f"--out {out}: the file name must end in .html")
    if groups is not None and not tests:
        raise InputError("--groups or --no-groups: it is of --tests, which is not there")
    if tests and store is None:
        raise InputError("--tests needs --store STORE: the responses to compare with the fit")
    from irt_dask.items.bifactor import is_bifactor
    from irt_dask.report.abilities import count_abilities, description
    from irt_dask.report.page import write_report
    from irt_dask.workflow.reporting import shown

    fit = read_bank(source)
    fits: dict[str, Any] = {_kind(source, fit): fit}
    facts = _facts(source, fit, store)
    if scores is not None:
        said = description(scores)
        persons = said.get("data", ""), said.get("n_persons", 0), said.get("item_id", [])
        _check_data(f"--scores {scores}", source, fit, *persons)
    if tests and is_bifactor(fit):
        raise InputError(
            f"--tests: they are of items of one ability, and {source} is a bifactor fit; leave "
            f"them out"
        )
    further = _read_results(results, source, fit)
    of_tests = _tested(store, fit, groups) if tests and store is not None else None
    page = write_report(
        out,
        title=title or Path(source).stem,
        run=facts,
        timings=(),
        scores=None if scores is None else count_abilities(scores),
        notes=() if of_tests is None else of_tests.notes,
        **shown({} if of_tests is None else of_tests.results, further),
        **fits,
    )
    _tell(page, as_json)


def _tell(page: Path, as_json: bool) -> None:
    """Print where a page is."""
    if as_json:
        show({"report": str(page)}, True)
    else:
        click.echo(page)


def _of_run(folder: str, results: Sequence[str]) -> Path:
    """Write the page of a run again."""
    from irt_dask.banks.saved import read_bank
    from irt_dask.workflow.running import report_again

    bank = Path(folder) / "items.csv"
    if not results:
        return report_again(folder)
    if not bank.exists():
        raise InputError(
            f"--results: {folder} has no items.csv; is it the folder of a finished run?"
        )
    return report_again(folder, _read_results(results, folder, read_bank(bank)))


def _tested(store: str, fit: xr.Dataset, groups: bool | None) -> FitTests:
    """Tests of items and persons, with the persons counted as they were when the fit was made."""
    from irt_dask.workflow.fit_tests import run_tests
    from irt_dask.workflow.sections import FitTestsConfig

    ignored = fit.attrs.get("weight_kind") == "ignored"
    r = counted(open_responses(store), "ignore" if ignored else "use", True)
    if r.max_weight is not None:
        raise InputError(
            f"--tests: the persons of {store} have {r.weight_kind} weights, which the tests do not "
            f"take; leave --tests out, or calibrate with --weights ignore"
        )
    with warned():
        asked = FitTestsConfig(item_fit=True, person_fit=True, groups=groups)
        return run_tests(r, fit, asked, seed=0, progress=False)


def _read_results(paths: Sequence[str], source: str, items: xr.Dataset) -> dict[str, xr.Dataset]:
    """Results over items that commands kept, by the name that the page shows."""
    from irt_dask.banks.saved import read_bank

    found: dict[str, xr.Dataset] = {}
    ids = set(items["item_id"].values.astype(str))
    for path in paths:
        if not path.endswith(".nc"):
            raise InputError(
                f"--results {path}: give what 'irt-dask dif', 'fit' or 'options' wrote with --out "
                f"X.nc"
            )
        result = read_bank(path)
        if not ids & set(result["item_id"].values.astype(str)):
            raise InputError(f"--results {path}: it has none of the items of {source}")
        name = _named(result, path)
        found[name if name not in found else f"{name} ({Path(path).stem})"] = result
    return found


def _named(result: xr.Dataset, path: str) -> str:
    """What the page calls a result over items."""
    for variable, name in (("item_option_share", "Options"), ("item_infit", "Item fit")):
        if variable in result:
            return name
    if "item_dif_class" in result:
        return f"DIF against {result.attrs['reference']}"
    return Path(path).stem


def _kind(source: str, fit: xr.Dataset) -> str:
    """What the page calls the fit."""
    if "item_discrimination_draw" in fit:
        return "posterior"
    known = ("marginal maximum", "concurrent calibration", "bifactor marginal")
    if str(fit.attrs.get("method")).startswith(known):
        return "marginal"
    raise InputError(
        f"{source} is of the method {fit.attrs.get('method', 'unknown')!r}; a page is made of fits "
        f"by --method marginal, concurrent or bayes, or by irt-dask bifactor"
    )


def _facts(source: str, fit: xr.Dataset, store: str | None) -> list[tuple[str, object]]:
    """What was fitted: labels and values."""
    facts: list[tuple[str, object]] = [("Fit", source)]
    if "n_persons" in fit.attrs:
        facts.append(("Persons", f"{int(fit.attrs['n_persons']):,}"))
    facts.append(("Items", f"{fit.sizes['items']:,}"))
    if "item_n_responses" in fit:
        facts.append(("Responses", f"{int(fit['item_n_responses'].values.sum()):,}"))
    if store is not None:
        r = open_responses(store)
        if list(r.item_id) != [str(i) for i in fit["item_id"].values]:
            raise InputError(f"--store {store} has other items than {source}: it was not fitted")
        _check_data(f"--store {store}", source, fit, r.fingerprint, r.n_persons)
        groups = "known" if r.has_groups else "none"
        kind = "none" if r.max_weight is None else fit.attrs.get("weight_kind", "ignored")
        facts += [("Store", store), ("Persons of the store", f"{r.n_persons:,}"),
                  ("Groups", groups), ("Weights", kind),
                  ("Data checksum", r.fingerprint[:16])]  # fmt: skip
    return [*facts, ("Version of irt_dask", fit.attrs.get("version"))]


def _check_data(
    option: str, source: str, fit: xr.Dataset, checksum: str, n_persons: int,
    item_id: Sequence[str] = (),
) -> None:  # fmt: skip
    """Stop at responses that were not fitted, or scores of others.

    A fit that was saved elsewhere does not say which it is of: then persons are counted, but where
    weights count them.
    """
    from irt_dask.banks.saved import is_of

    same, n = is_of(fit, checksum), fit.attrs.get("n_persons")
    if same is None and n is not None and fit.attrs.get("weight_kind") != "frequency":
        same = bool(n_persons == n)
    unknown = [i for i in item_id if i not in set(fit["item_id"].values.astype(str))]
    if unknown:
        raise InputError(
            f"{option}: these are scores by items that {source} does not have: "
            f"{listed(unknown, 10)}"
        )
    if same is False:
        raise InputError(
            f"{option}: {n_persons:,} persons and their responses, which are not those that "
            f"{source} was fitted to" + ("" if n is None else f" ({n:,} persons)")
        )
