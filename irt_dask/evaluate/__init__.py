"""How well calibrated items predict responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def evaluate(
    responses: Any,
    items: xr.Dataset,
    *,
    validation: Any = None,
    top: int | Sequence[int] = (),
    least: int = 11,
    protocol: str = "held-out",
    client: Any = None,
    progress: Any = None,
) -> xr.Dataset:
    """Measure how well items predict responses: log-likelihood, AUC, hardest items.

    For an honest figure pass responses of persons that were not used to fit the items, such as the
    second part of ``responses.split(0.8)``.  By default each response is predicted from the
    person's *other* responses, so that no answer helps to predict itself.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    validation : Responses or anything ``from_array`` takes, optional
        Persons from whom to choose the distribution of ability: the normal one of the highest
        marginal likelihood (EM, items held).  Default: N(0, 1), which suits fits that say so;
        Rasch fits, whose mean difficulty is 0, do not.
    top : whole number or several
        Sizes K of sets of the hardest items to compare with those of the lowest share of right
        answers in ``responses``.
    least : int
        Items with fewer responses are left out of these sets.
    protocol : {"held-out", "own", "items"}
        What AUC and log score know of the person when a response is predicted.  "held-out": the
        person's other responses, ability integrated over their posterior.  "own": an ability
        estimated (EAP) from all responses, the predicted one among them; flattering, most of all
        on short tests (LSAT: .81, held-out .72).  "items": nothing; every person is predicted by
        the item's share of right answers under the distribution of ability.  Nguyen and Zhang's
        Table 1 fits this, though their text does not say so (LSAT: .70, theirs .707).
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset of numbers
        ``log_likelihood`` (marginal, ability as attrs say), ``log_likelihood_per_response``,
        ``log_score`` (mean log probability of a response, predicted by the protocol), ``auc``
        (probability that a right response was given a higher prediction than a wrong one; NaN if
        all are right or all wrong), ``n_responses``; ``top_accuracy`` by ``top``, the share of the
        K hardest items that the sets have in common.  attrs: ``ability_mean``, ``ability_sd``,
        ``protocol``.

    Notes
    -----
    One pass over the data; driver memory 1 MB; a pass over the validation data for each EM step.
    The AUC sorts predictions into 65,536 classes of .0009 logits; ties within a class count one
    half, an error of half the share of pairs within one class at most ("items": exact).

    Examples
    --------
    >>> import irt_dask as irt
    >>> calibrate, test = irt.simulate(2500, 20, seed=1).split(0.8)
    >>> found = irt.evaluate(test, irt.fit_marginal(calibrate))
    >>> found["auc"].round(2).item()
    0.82
    >>> found["log_likelihood_per_response"].round(2).item()
    -0.54
    """
    from irt_dask.evaluate.prediction import run

    sizes = (top,) if isinstance(top, int) else tuple(top)
    return run(responses, items, validation, sizes, least, protocol, client, progress)
