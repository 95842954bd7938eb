"""A board that grows: new persons and new questions on the scale of those that are known."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks.anchors import with_errors_of_anchors
from irt_dask.calibrate.marginal.anchors import bank_errors
from irt_dask.calibrate.marginal.fit import fit_marginal
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import check_level, one_of, whole_number
from irt_dask.errors import DataWarning, InputError, ItemWarning, listed
from irt_dask.evaluate import anchor_drift
from irt_dask.items import checks
from irt_dask.workflow import board_waves
from irt_dask.workflow.board_prior import bank_prior
from irt_dask.workflow.board_state import COUNTS, Board, check_counts, known_models

#: Models of new items, by name.
_MODELS = ("2pl", "3pl", "4pl")


def grow_bank(
    responses: Any,
    bank: xr.Dataset,
    *,
    known: int | None = None,
    model: str = "2pl",
    prior: str | ItemPrior | None = "bank",
    positive: str = "all",
    on_drift: str = "free",
    drift_since: str = "bank",
    fdr: float = 0.05,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Calibrate the new questions of a board that has grown, on the scale that it has.

    Questions of the bank keep their parameters, so that abilities of earlier persons stay as they
    were published.  Those who joined since say whether these questions still are what they were
    (a question that leaked is easier for newer models of the same ability); the new questions are
    calibrated beside those that are.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        The whole board: persons of earlier waves first, at the places that they had, then those who
        joined, as a store has them that was appended to.  Items of two categories, or counts k of n
        attempts, which the bank then has as "binomial"; no weights.
    bank : Dataset
        Result of this function for the wave before; for the first a fit of the items by
        ``fit_marginal``, or a bank.
    known : int, optional
        How many of the first persons the bank was calibrated with; of a bank from a file alone,
        since others say it.
    model : {"2pl", "3pl", "4pl"}
        Of new items of one attempt; those of several are "binomial".
    prior : "bank", "empirical", ItemPrior or None
        Of slopes and intercepts of the items that are calibrated.  "bank": normal, as known items
        are spread (their errors taken out), intercepts twice as widely, since new questions may be
        harder; slopes of any sign have it about 0.  "empirical": learned from the new items
        themselves, as :func:`fit_marginal` does; for some twenty and more.  None: maximum
        likelihood, for many persons.
    positive : {"all", "none"}
        Whether slopes of new items are positive, or may have any sign.
    on_drift : {"free", "flag"}
        What becomes of a question that drifted.  "free": for those who joined since it is another
        question, "q@3" from the third wave on, with parameters of its own, and for all others what
        it was; :func:`board_responses` gives responses these names.  "flag": it is named, and stays
        as it is, in abilities too.
    drift_since : {"bank", "calibration"}
        Who tests a known question: those who joined since the bank was made, or all who joined
        after the wave in which the question was calibrated.  Waves of a dozen persons find a
        drift only together.
    fdr : float
        Expected share of false ones among the questions that are said to have drifted.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items : a bank that :func:`score`, ``predict_total`` and ``choose_items`` take
        All that :func:`fit_marginal` says of items, of the known ones what their bank said (slopes
        and intercepts to the last bit, standard errors, flags), and ``item_wave``, the wave in
        which it was calibrated (1: the first bank); ``item_origin``, the question as it was given;
        ``item_drifted``, whether it was found to have drifted, in this wave or before.  Tests in
        this wave of items that were known: ``item_drift``, by how much logits of the predicted
        answers of those who joined would have to move (positive: easier), with ``_se``,
        ``item_drift_p_value`` and ``item_drift_q_value`` (Benjamini and Hochberg); NaN of others.
        Over ``waves`` ``wave_n_persons``, ``wave_last_person``, and over ``groups`` the mean and
        the SD of ability of waves, ``group_label`` says of which (small ones are joined).
        attrs: ``wave``, ``n_new``, ``n_drifted``, ``n_tested``; ``anchor_errors``, whether standard
        errors of new items have those of known ones; ``attempts_correlation``, where items have
        several attempts: how alike those of a person are beyond ability.

    Raises
    ------
    InputError
        If the responses do not begin with the persons that the bank knows, lack an item of the
        bank, or have nothing new; for options out of their range.
    EstimationError
        If persons who answered new items answered no known one: nothing says how hard these are.

    Warns
    -----
    ItemWarning, DataWarning
        Names questions that drifted; says where a test or a prior is not what it should be: few who
        joined, few known items a person, a bank without standard errors.

    Notes
    -----
    *Scale.* Each wave has a normal distribution of ability of its own (waves of fewer than 20
    persons are joined), else abler newcomers would make new questions look easier.

    *Errors.* Standard errors of new items have those of the known items in them, as far as the bank
    tells these (errors of different items taken as independent).  What they do not have is what the
    choice of the first wave does: all is on the scale of the first bank, whose errors of slopes
    stretch abilities far from those who calibrated it.  Each wave adds a little, as the items of
    the last stand on those before.

    *Drift.* Given a person's other answers, an answer is right with a probability that is known, so
    that how many of those who joined have it right is tested exactly, however few they are, the
    error of the item averaged over; by the leave-one-out posterior under the normal distribution of
    ability of these persons.  Attempts of a person at an item are alike beyond ability as far as
    those who joined show (one number for all items): else what some know of a question would be
    taken for drift.  Items that drifted have no say in abilities when the others are tested, in
    rounds.  It is a test of the intercept: a question whose slope alone changes is not found.  And
    if most of the questions leaked, they say that newcomers are able, and the sound ones seem to
    have become harder: no statistic can tell.

    Passes over the data: those of :func:`fit_marginal`, one over all persons, and of persons who
    joined some ten for each round of tests.  Driver memory: known items x 512 x 8 bytes, four
    times that where items have several attempts.
    Source: fixed-parameter calibration, Kim (2006), Keller and Keller (2011).

    Examples
    --------
    >>> import irt_dask as irt
    >>> board = irt.simulate(300, 40, seed=1)
    >>> first = board.select(items=board.item_id[:30], persons=slice(0, 200))
    >>> grown = irt.grow_bank(board, irt.fit_marginal(first))
    >>> grown["item_wave"].values[[0, 29, 30, 39]].tolist()
    [1, 1, 2, 2]
    >>> grown.attrs["n_new"], grown.attrs["n_drifted"]
    (10, 0)
    """
    check_level(fdr, "fdr")
    one_of("model", model, _MODELS)
    one_of("positive", positive, ("all", "none"))
    one_of("on_drift", on_drift, ("free", "flag"))
    one_of("drift_since", drift_since, ("bank", "calibration"))
    if known is not None:
        whole_number("known", known, 1)
    given = as_responses(responses, "grow_bank", graded=True)
    refuse_weights(given, "grow_bank")
    options = {"client": client, "progress": progress}
    board = Board.of(given, bank, known)
    board.check_categories(bank)
    if not board.new and board.n_joined == 0:
        raise InputError("the responses have no person and no item that the bank does not know")
    check_counts(board, bank, options)
    drift = _drift(board, bank, drift_since == "bank", fdr, options)
    board = board.freed(drift.drifted) if on_drift == "free" and drift.drifted else board
    fit = _calibrated(board, bank, model, prior, positive, options)
    return _described(board, bank, fit, drift, on_drift)


# --- drift ----------------------------------------------------------------------------------------


class _Tested(NamedTuple):
    """Tests by known item, None where nobody could be tested, and the items that drifted."""

    found: anchor_drift.Drift | None
    ids: tuple[str, ...]
    drifted: tuple[str, ...]


def _drift(
    board: Board, bank: xr.Dataset, newest: bool, fdr: float, options: dict[str, Any]
) -> _Tested:
    """Test the items of the bank by the newest persons, or by all after each item's wave."""
    nothing, history = _Tested(None, (), ()), board.history
    if not board.n_joined:
        return nothing
    begin = history.n_known if newest else int(history.ends[0])
    n_testing = board.given.n_persons - begin
    if n_testing < anchor_drift.FEW:
        warnings.warn(
            f"{n_testing} person(s) joined: too few to test whether known items drifted; let "
            f"waves grow to {anchor_drift.FEW} and more before the bank grows",
            DataWarning,
            stacklevel=3,
        )
        return nothing
    now = {history.name_of(b, board.wave - 2) for b in history.origin}
    sound = [not f for f in checks.unsound(bank, board.bank_ids)]
    own = [j for j, i in enumerate(board.bank_ids) if i in now and sound[j]]
    if len(own) < anchor_drift.LEAST_ITEMS:
        warnings.warn(
            f"{len(own)} sound items of the bank are too few to test any for drift", DataWarning,
            stacklevel=3,
        )  # fmt: skip
        return nothing
    ids = tuple(board.bank_ids[j] for j in own)
    since = np.zeros(len(own), dtype=np.int64)
    if not newest:
        since = history.ends[history.item_wave[own] - 1] - begin
    joined = board.view.select(items=ids, persons=slice(begin, None))
    models, _ = known_models(bank, ids)
    errors = bank_errors(bank, ids, models)[:, :2, :2]
    if not errors.any():
        warnings.warn(
            "the bank has no standard errors: drift is tested as if its items were known exactly, "
            "and more of them will seem to have drifted than should; calibrate with "
            "standard_errors=True",
            DataWarning,
            stacklevel=3,
        )
    found = anchor_drift.drifts(joined, bank, errors, since, fdr, **options)
    drifted = tuple(i for i, d in zip(ids, found.drifted, strict=True) if d)
    if drifted:
        order = np.argsort(found.p_value[found.drifted], kind="stable")
        easier = int((found.shift[found.drifted] > 0.0).sum())
        warnings.warn(
            f"{len(drifted)} of {len(ids)} known items drifted, {easier} of them easier for those "
            f"who joined than for others as able: {listed([drifted[k] for k in order], 10)}"
            + ("" if found.stable else ". Rounds of tests did not settle: many may have drifted"),
            ItemWarning,
            stacklevel=3,
        )
    return _Tested(found, ids, drifted)


# --- calibration ----------------------------------------------------------------------------------


def _calibrated(
    board: Board, bank: xr.Dataset, model: str, prior: Any, positive: str, options: dict[str, Any]
) -> xr.Dataset:
    """The new items beside the known ones."""
    models, _ = known_models(bank, board.bank_ids)
    known = dict(zip(board.bank_ids, models.names.tolist(), strict=True))
    each = zip(board.view.item_id, board.view.n_categories, strict=True)
    names = {i: known.get(i, COUNTS if k > 2 else model) for i, k in each}
    one = set(names.values())
    of_new = prior
    if prior == "bank" and board.new:
        of_new = bank_prior(bank, board.history, signed=positive == "none")
    if not board.new:
        of_new = None
    return fit_marginal(
        board.view, model=one.pop() if len(one) == 1 else names, groups=True, fixed_items=bank,
        prior=of_new, positive=positive, standard_errors=True, **options,
    )  # fmt: skip


# --- the bank -------------------------------------------------------------------------------------

#: What fits say of fixed items, which tests of drift say better, and of how they went.
_LEFT_OUT = ("item_anchor_", "iteration_")


def _described(
    board: Board, bank: xr.Dataset, fit: xr.Dataset, drift: _Tested, on_drift: str
) -> xr.Dataset:
    """The bank of this wave."""
    ids = tuple(fit["item_id"].values.astype(str).tolist())
    fit = with_errors_of_anchors(fit, bank)
    history, wave = board.history, board.wave
    place = {i: j for j, i in enumerate(board.bank_ids)}
    old = np.array([place.get(i, -1) for i in ids])
    was_drifted = np.where(old >= 0, history.drifted[old], False)
    of_version = dict(zip(board.bank_ids, history.origin, strict=True))
    of_version |= {name: of_version[i] for name, i in board.versions.items()}
    data: dict[str, Any] = {
        str(n): fit[n].values for n in fit.data_vars if not str(n).startswith(_LEFT_OUT)
    }
    data |= _of_tests(ids, drift)
    n_new = len(board.new) - len(board.versions)
    attrs = {k: v for k, v in fit.attrs.items() if not k.startswith("anchor_")
             and k not in ("n_persons", "version")}  # fmt: skip
    return dataset(
        data | {
            "item_wave": np.where(old >= 0, history.item_wave[old], wave),
            "item_origin": np.array([of_version.get(i, i) for i in ids]),
            "item_drifted": was_drifted | np.isin(ids, drift.drifted),
            "wave_has_prior": np.append(history.has_prior, "prior" in fit.attrs),
            "wave_n_persons": np.diff(board.ends, prepend=0),
            "wave_last_person": np.array(board_waves.ids_at(board.given, board.ends - 1)),
        },
        item_id=ids,
        attrs=attrs | {
            "method": "growing board", "anchor_errors": fit.attrs["anchor_errors"],
            "n_persons": board.given.n_persons, "wave": wave, "n_new": n_new,
            "n_drifted": len(drift.drifted), "n_tested": len(drift.ids), "on_drift": on_drift,
            **_of_rounds(drift),
        },
    )  # fmt: skip


def _of_rounds(drift: _Tested) -> dict[str, Any]:
    """What is said of the tests together."""
    if drift.found is None:
        return {}
    alike = {} if np.isnan(drift.found.alike) else {"attempts_correlation": drift.found.alike}
    return alike | {
        "drift_stable": drift.found.stable, "n_drift_rounds": drift.found.n_rounds,
        "ability_mean_joined": drift.found.mean, "ability_sd_joined": drift.found.sd,
    }  # fmt: skip


def _of_tests(ids: tuple[str, ...], drift: _Tested) -> dict[str, Floats]:
    """Tests of drift by item; NaN where there are none."""
    place = {i: j for j, i in enumerate(ids)}
    found = drift.found
    columns = {
        "item_drift": None if found is None else found.shift,
        "item_drift_se": None if found is None else found.se,
        "item_drift_p_value": None if found is None else found.p_value,
        "item_drift_q_value": None if found is None else found.q_value,
    }
    out = {}
    for name, x in columns.items():
        values = np.full(len(ids), np.nan)
        if x is not None:
            values[[place[i] for i in drift.ids]] = x
        out[name] = values
    return out
