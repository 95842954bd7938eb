"""Concurrent calibration: one scale for many groups, items common unless freed in a group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.concurrent import links, rounds
from irt_dask.calibrate.concurrent.described import Record, described
from irt_dask.calibrate.concurrent.pair_tests import Pairs
from irt_dask.calibrate.concurrent.sets import Sets
from irt_dask.calibrate.marginal import course, sampling
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal import null_categories as nulls
from irt_dask.calibrate.marginal.described import Found, of_items
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.marginal.specification import specified
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.groups import grouped
from irt_dask.calibrate.shared.start_values import ResponseCounts, response_counts
from irt_dask.curves.guessing import GUESSING
from irt_dask.engine import Engine, ProgressOption, as_responses
from irt_dask.engine.identity import checkpoint_of
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.items import checks
from irt_dask.items.mixture import mixture_named
from irt_dask.population.units import in_units
from irt_dask.store import Responses
from irt_dask.store.freed_items import Naming, view

#: What ``free`` says for the test.
_TEST = "test"
#: Defaults of what belongs to it.
_RATE, _LEAST = 0.05, 0.0


def fit_concurrent(
    responses: Any,
    *,
    model: str | Mapping[str, str] = "2pl",
    free: str | float | None = _TEST,
    rate: float = _RATE,
    least: float = _LEAST,
    sets: Mapping[str, str] | None = None,
    max_rounds: int = 10,
    reference_group: str | None = None,
    max_iterations: int = 500,
    tolerance: float = 1e-9,
    guessing_prior: tuple[float, float] | None = GUESSING.prior,
    standard_errors: bool | str | None = None,
    sampling_unit: Any = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Calibrate many groups on one scale: items common to all, freed in groups where they differ.

    Marginal maximum likelihood in which every group (a country, a cycle, a language) has a mean and
    an SD of ability of its own and all groups have the same items.  Then every item is compared in
    every group with the common curve; items that work otherwise in a group get parameters of their
    own there, and all is fitted again, until nothing changes.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes, with groups of persons (at most 1,000).
        Of several cycles give a label for each group and cycle.  Groups need not have all items,
        but items in common.  Weights are used as in :func:`fit_marginal`; p-values are then of the
        population that is sampled.
    model : str, or mapping of item to str
        As of :func:`fit_marginal`; a freed item has the model of the item that it was.
    free : "test", a number or None
        "test": free where the item's parameters in the group differ from the common ones by a test
        (below), at a ``rate`` of false ones among all that are freed.  A number is a cut-off of the
        RMSD, as a share of the highest score, such as .12: chance counts too then, and in small
        groups alone exceeds it.  None frees nothing, and says what it found.
    rate : float
        Level of Benjamini and Hochberg's procedure over all items in all groups.
    least : float
        Share of the highest score that the RMSD, less what chance makes of it, has to reach as
        well: with very many persons every difference is significant.
    sets : mapping of group to set, optional
        Groups that are looked at together, such as a country over cycles, or a language in many
        countries: an item that works otherwise in a set gets one curve for all its groups,
        "item@set".  What is freed, and the tests and RMSDs by which it is, are then of sets.
        Groups that are not named stand alone; a set's label may be that of a group in it alone.
    max_rounds : int
        Times that items are freed and all is fitted again, at most.
    reference_group : str, optional
        The group with mean 0 and SD 1; default: the first in alphabetical order.
    max_iterations, tolerance, guessing_prior, standard_errors, sampling_unit
        As of :func:`fit_marginal`, of each round; standard errors are found once, of the last, and
        take what was freed as known.  With a ``sampling_unit`` they are those of a sample of units,
        but tests of items in groups take persons as independent even so, which a warning says.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints,
        one of each round.

    Returns
    -------
    Dataset over items
        All that :func:`fit_marginal` returns, an item that is freed in a group being an item
        "item@group" of its own beside the common one, which some groups always keep:
        ``item_origin`` is the item as it was given, ``item_freed_group`` the group, or nothing.
        :func:`with_freed_items` gives the responses these names.  With ``sets`` this is the label
        of the set, ``item_set_groups`` its groups as a JSON list, and ``group_set`` the set of
        each group.
        Over groups and ``origins`` (the items as they were given, ``origin_id``), of the last
        round: ``origin_rmsd`` and ``origin_md``, root mean square and mean of the observed less the
        common expected score, over the group's distribution of ability, in points of score, freed
        or not (positive: easier in the group); ``origin_rmsd_expected``, the root of the mean
        square that chance alone makes, and ``origin_rmsd_corrected``, the root of what is left of
        the square (or 0); ``origin_chi2`` (``origin_df``), ``origin_p_value``, ``origin_q_value``
        (adjusted for all); ``origin_n_responses``; ``origin_freed``.  NaN where a group did not
        answer and, of tests, where no other group has the item in common, fewer than 30 persons
        answered, or fewer than 5 are in the lowest or the highest category and fewer than 10 are
        expected there.  With ``sets`` tests are of the group's set, and ``origin_set_rmsd``,
        ``origin_set_rmsd_expected``, ``origin_set_rmsd_corrected``, ``origin_set_md`` are those of
        the curve that all its groups show together, over the mixture of their abilities: those of
        the group tell where it differs from its set.  All its groups have what is freed in it.
        Over groups ``group_n_common``, the items that tie the group to others, and
        ``group_mean_all_common`` and ``group_sd_all_common``, before anything was freed.
        Over ``changes``, what was freed or taken back (``change_freed``) before which round, of
        which item and group, or set, and what the round before had found of it:
        ``change_rmsd``, ``_md``, ``_p_value`` and so on.  Over ``rounds``
        ``round_log_likelihood``, ``round_n_iterations``.  attrs: ``n_freed`` (in groups, or in
        sets), ``n_rounds``, ``stable``: whether the last round changed nothing.

    Raises
    ------
    InputError
        Without groups, if "item@group" is the name of another item, or if ``sets`` name groups that
        are not there, or have the label of a group that is not in them, or are one.
    EstimationError
        If some groups have no items in common with the others, at the start or by what is freed;
        else as :func:`fit_marginal`.
    TooLargeError

    Warns
    -----
    DataWarning, ItemWarning
        Names groups that are tied to the others by fewer than 3 items or a third of theirs, and
        items that are freed in more than half of their groups; tests that know nothing of a
        ``sampling_unit``; else as :func:`fit_marginal`.
    ConvergenceWarning
        If ``max_rounds`` rounds do not end it, or the iterations of the last do not converge.

    Notes
    -----
    The test is that of the item's slope and intercept (steps, with more categories; asymptotes are
    not tested), by the scores of the group's persons, with what the group's mean and SD explain of
    them taken out, and the errors of the common parameters counted.  Of a pair that is freed the
    difference of its parameters is tested, and it is taken back if it is no longer significant
    (until the third round; not with a guessing parameter).  Without DIF 4.4% to 5.9% of the
    p-values were below .05, of 2 to 24 groups of 300 to 2,000 persons and 10 to 30 items of six
    kinds; in groups of 100 also 5.9%, but .5% below .001, so that there more than ``rate`` is
    false.  The mean square of the RMSD was .98 to 1.06 times the expected one.  Persons are taken
    as independent: in a sample of clusters, where an item depends on the cluster, too much is
    freed.  No statistic can tell which of two halves of the items is the one that differs: what is
    common is what most groups agree on.

    240 groups of 2,500 persons, 150 items of which each person had 50, a tenth of all pairs shifted
    by .5 up or down: 96% of these were freed and .6% of the others, 5% of all that was freed, in 5
    rounds (153 s of processor time, 2.4 GB).

    Of sets without DIF 4.8% to 5.7% of the p-values were below .05 (five kinds of data, 1,500 to
    4,800 tests each).  24 groups of 200 persons in 8 sets of 3, 20 items, a tenth of (item, set)
    shifted by .5, four times: by sets 84% of these were freed and .5% of the others; by groups 28%
    and .1%.  What differs inside a set is not found: look with ``sets=None`` too.

    Passes over the data: in each round those of :func:`fit_marginal` (from the last round's
    parameters: some 6), and one, of about ten products of (persons x items) and (items x nodes),
    for the comparisons.  Memory: groups x items x nodes x 8 bytes times the parameters of an item
    and the categories twice each and four, once and for each thread as much of it as it has met
    groups (240 groups, 150 items, 2 threads: 1.0 GiB where persons lie in order of groups, 2.2 GiB
    where every block has persons of all).
    Sources: von Davier, Yamamoto, Shin et al. (2019); OECD (2017), PISA 2015 Technical Report,
    chapter 9; Glas (1998); Benjamini and Hochberg (1995).

    Examples
    --------
    >>> import numpy as np
    >>> import irt_dask as irt
    >>> answers = irt.simulate(3000, 10, seed=5).to_xarray()["response"].values
    >>> answers[2000::2, 0] = 0  # makes the first item harder for group c
    >>> responses = irt.from_array(answers, persons={"group": np.repeat(["a", "b", "c"], 1000)})
    >>> fit = irt.fit_concurrent(responses)
    >>> fit["item_id"].values[fit["item_freed_group"].values == "c"].tolist()
    ['0@c']
    >>> fit["origin_md"].values[2, 0].round(1).item()
    -0.1
    """
    given = as_responses(responses, "fit_concurrent", graded=True)
    rule = _rule(free, rate, least)
    sampling.check(standard_errors, sampling_unit)
    whole_number("max_iterations", max_iterations, 1)
    whole_number("max_rounds", max_rounds, 1)
    if not given.has_groups:
        raise InputError(
            "fit_concurrent needs groups of persons: give persons= with a column group to "
            "from_array or ingest (of several cycles: a label for each group and cycle)"
        )
    by_group, labels = grouped(given, client)
    if len(labels) < 2:
        raise InputError(f"everybody belongs to group {labels[0]!r}: use fit_marginal")
    asked = rounds.Asked(
        model, reference_group, guessing_prior, max_iterations, tolerance, standard_errors,
        sampling_unit, client, progress, checkpoint,
    )  # fmt: skip
    whole = _Whole(given, by_group, labels, Sets.of(labels, sets))
    record = Record(labels, given.item_id, rule, whole.sets)
    last, pairs, freed, stable = _repeated(whole, record, free is not None, max_rounds, asked)
    found, items, last = _finished(last, asked)
    _warn_of_no_end(last.end.converged, max_iterations, stable, max_rounds)
    estimated = np.asarray(last.fit.model.free.any(axis=0))
    nulls.warn(last.fit.model.items, last.naming.item_id, estimated, "raise")
    checks.warn(items["item_flag"], last.naming.item_id)
    links.warn_of_weak(labels, given.item_id, pairs.of_groups.n > 0, freed[whole.sets.number])
    links.warn_of_units(sampling_unit is not None and free == _TEST)
    name = model if isinstance(model, str) else "by item"
    return described(last.fit, found, last.end, items, last.naming, pairs, record, name, stable)


class _Whole(NamedTuple):
    """Responses as they were given; with groups; the groups' labels, and their sets."""

    given: Responses
    by_group: Responses
    labels: tuple[str, ...]
    sets: Sets

    @property
    def highest(self) -> Floats:
        """Highest score of each item."""
        return np.array(self.given.n_categories, dtype=float) - 1.0


class _Fitted(NamedTuple):
    """A fit of the items of a naming."""

    naming: Naming
    responses: Responses
    fit: Rounds
    end: climb.Fitted
    counts: ResponseCounts


def _repeated(
    whole: _Whole, record: Record, freeing: bool, max_rounds: int, asked: rounds.Asked
) -> tuple[_Fitted, Pairs, Bools, bool]:
    """Fit, compare and free (sets, items) until nothing changes; whether that came to an end."""
    sets = whole.sets
    freed: Bools = np.zeros((len(sets.labels), whole.given.n_items), dtype=bool)
    last = _fitted(whole, freed, None, 0, asked)
    for number in range(max_rounds + 1):
        if number:
            last = _fitted(whole, freed, last, number, asked)
        pairs = _compared(whole, last, freed, record.rule, asked)
        record.add(last.fit.model, last.end)
        there = pairs.of_groups.n > 0
        if not number:
            links.refuse_apart(whole.labels, there, freed, sets, "before anything is freed,")
        stay = rounds.stays(number, last.fit.model.items, last.naming, sets)
        wanted = record.rule.chosen(pairs, whole.highest, freed, stay) if freeing else freed
        when = f"by what round {number + 1} would free,"
        links.refuse_apart(whole.labels, there, wanted, sets, when)
        if stable := bool(np.all(wanted == freed)):
            break
        if number < max_rounds:
            record.changes += rounds.changes(number + 1, freed, wanted, pairs)
            freed = wanted
    return last, pairs, freed, stable


def _compared(
    whole: _Whole, last: _Fitted, freed: Bools, rule: rounds.Rule, asked: rounds.Asked
) -> Pairs:
    """Distances and tests of all pairs."""
    with Engine(
        whole.by_group, client=asked.client, progress=asked.progress, graded=True,
        stage="curves by group",
    ) as engine:  # fmt: skip
        return rounds.looked_at(
            engine, last.fit, last.end.x, last.naming, freed, rule.at, whole.sets
        )


def _warn_of_no_end(converged: bool, max_iterations: int, stable: bool, max_rounds: int) -> None:
    """Say that the last round, or the rounds, did not come to an end."""
    if not converged:
        warnings.warn(
            f"concurrent calibration did not converge in {max_iterations} iterations of its last "
            f"round; raise max_iterations",
            ConvergenceWarning,
            stacklevel=3,
        )
    if not stable:
        warnings.warn(
            f"after max_rounds={max_rounds} rounds items in groups would still be freed or taken "
            f"back; raise max_rounds, or free fewer",
            ConvergenceWarning,
            stacklevel=3,
        )


def _rule(free: str | float | None, rate: float, least: float) -> rounds.Rule:
    """When a pair is freed; complaints about it."""
    if not 0.0 < rate < 1.0:
        raise InputError(f"rate={rate!r} is the share of false ones among what is freed: 0 to 1")
    if not 0.0 <= least < 1.0:
        raise InputError(f"least={least!r} is an RMSD as a share of the highest score: 0 to 1")
    if free == _TEST:
        return rounds.Rule(rate, least, None)
    if (rate, least) != (_RATE, _LEAST):
        raise InputError(f"rate and least belong to free='test', and free is {free!r}")
    if free is None:
        return rounds.Rule(rate, least, None, "none")
    if isinstance(free, bool) or not isinstance(free, (int, float, np.number)):
        raise InputError(f"free={free!r} is not available; give 'test', a cut-off of RMSD or None")
    if not 0.0 < free < 1.0:
        raise InputError(f"free={free!r}: a cut-off of RMSD lies between 0 and 1, such as .12")
    return rounds.Rule(rate, least, float(free), float(free))


def _fitted(
    whole: _Whole, freed: Bools, last: _Fitted | None, number: int, asked: rounds.Asked
) -> _Fitted:
    """Fit with these pairs freed, from where the last round ended."""
    sets = whole.sets
    naming = Naming.of(
        whole.given.item_id, whole.labels, freed[sets.number], sets.of_groups[:, None]
    )
    given = view(whole.given, naming) if freed.any() else whole.given
    responses, _ = grouped(given, asked.client)
    models = mixture_named(
        naming.of_model(asked.model, whole.given.item_id), naming.item_id, responses.n_categories
    )
    what = specified(
        responses, models, whole.labels, asked.reference, "normal", None, asked.guessing_prior,
        "all", None,
    )  # fmt: skip
    what = replace(what, together=naming.together)
    with Engine(
        responses, client=asked.client, progress=asked.progress, graded=True,
        stage=f"concurrent calibration, round {number + 1}",
    ) as engine:  # fmt: skip
        counts = response_counts(engine)
        what = course.with_categories(what, naming.item_id, counts, "raise", None)
        fit = Rounds(engine, what)
        x = course.begun(fit, counts, None) if last is None else _from(last, fit, naming)
        saved = _checkpoint(engine, fit, asked, number, x)
        end = climb.full(fit, x, asked.max_iterations, asked.tolerance, saved, "marginal")
    return _Fitted(naming, responses, fit, end, counts)


def _from(last: _Fitted, fit: Rounds, naming: Naming) -> Floats:
    """Column of the last round for the items of this one."""
    items, ability = last.fit.model.unpack(last.end.x)
    group = np.where(naming.group >= 0, naming.group, 0)
    of_last = last.naming.columns[group, naming.origin]
    # What is common again, or still, starts from what stood for the common curve.
    common = rounds.common_of(last.naming)[naming.origin]
    at = np.where(naming.group >= 0, of_last, common)
    return fit.model.pack(items[:, at], ability)


def _checkpoint(engine: Engine, fit: Rounds, asked: rounds.Asked, number: int, x: Floats) -> Any:
    """Checkpoints of a round, in a folder of its own."""
    folder = None if asked.checkpoint is None else Path(asked.checkpoint) / f"round_{number + 1}"
    identity = course.identity(fit.model, "normal", asked.tolerance, (), x)
    return checkpoint_of(engine, folder, identity | {"method": "concurrent"})


def _finished(last: _Fitted, asked: rounds.Asked) -> tuple[Found, dict[str, Any], _Fitted]:
    """The last fit brought to the maximum, with its errors, and what is said of its items."""
    responses, units = in_units(last.responses, asked.sampling_unit, asked.client)
    with Engine(
        responses, client=asked.client, progress=asked.progress, graded=True,
        stage="standard errors",
    ) as engine:  # fmt: skip
        fit = Rounds(engine, last.fit.model)
        size = marginal_errors.columns(fit.model, last.end.x)[2]
        n = last.counts.n_persons
        wanted = sampling.asked(engine, fit.model, size, asked.standard_errors, units, n)
        found = course.found(fit, last.end.x, wanted, None)
        sampling.warn(wanted)
        return found, of_items(fit, found, last.counts), last._replace(fit=fit)
