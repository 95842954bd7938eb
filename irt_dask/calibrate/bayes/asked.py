"""What a Bayesian fit may be asked for, but for models and priors; every complaint is made here."""

from __future__ import annotations

from typing import Any

from irt_dask.arrays import Bools
from irt_dask.calibrate.bayes import barycenter, samplers
from irt_dask.calibrate.bayes import loadings as masks
from irt_dask.calibrate.bayes.samplers import Options
from irt_dask.engine.inputs import one_of, whole_number
from irt_dask.errors import InputError
from irt_dask.store import Responses


def check(
    n_dims: int, n_shards: int, n_draws: int, n_warmup: int, n_chains: int, powering: str,
    n_persons: int,
) -> None:  # fmt: skip
    """Stop at numbers that are none, or not of these persons."""
    whole_number("n_dims", n_dims, 1)
    whole_number("n_shards", n_shards, 1)
    whole_number("n_draws", n_draws, samplers.LEAST_DRAWS)
    whole_number("n_warmup", n_warmup, 50)
    whole_number("n_chains", n_chains, 1)
    one_of("powering", powering, tuple(barycenter.POWERINGS))
    if n_shards > n_persons:
        raise InputError(f"n_shards={n_shards} exceeds the {n_persons} persons; use fewer shards")


def signed(positive: str, n_dims: int, sampler: str | None) -> bool:
    """Whether slopes of one ability may be negative."""
    one_of("positive", positive, ("all", "none", "anchors"))
    if positive == "anchors" and n_dims == 1:
        raise InputError("positive='anchors' is for several abilities; n_dims is 1")
    if positive == "none" and n_dims > 1:
        raise InputError(f"positive='none' is for one ability, not n_dims={n_dims}; see 'anchors'")
    if positive == "none" and sampler not in (None, "grid"):
        raise InputError(f"positive='none' is for sampler='grid', not sampler={sampler!r}")
    return positive == "none"


def loading_masks(
    responses: Responses, n_dims: int, loadings: Any, positive: str, correlated: bool, start: Any
) -> tuple[Bools, Bools]:
    """Free loadings, and positive ones; refuses what one ability, or several, cannot use."""
    if start is not None and n_dims > 1:
        raise InputError(f"start= gives values of one ability; leave it out with n_dims={n_dims}")
    for name, said in {"loadings": loadings is not None, "correlated": bool(correlated)}.items():
        if said and n_dims == 1:
            raise InputError(f"{name}= is for several abilities; n_dims is 1")
    free = masks.free_loadings(
        responses.n_items, n_dims, loadings, responses.item_id, correlated=correlated
    )
    if positive == "none":
        return free, ~free
    return free, masks.positive_loadings(free, positive)


def identification(o: Options, *, scored: bool) -> str:
    """What fixes scale and place, in words; ``scored``: some items are nominal."""
    if scored:
        return "ability N(0, 1), turned to where its covariances with responses sum to more than 0"
    if o.n_dims == 1 and o.positive == "none":
        return "ability N(0, 1), turned to the first principal component of the responses"
    if o.n_dims == 1:
        return "ability N(0, 1); a > 0"
    which = "free loadings" if o.positive == "all" else "one loading of each ability"
    kind = "correlated, SD 1" if o.correlated else "independent N(0, 1)"
    return f"abilities {kind}; loadings fixed at 0; {which} positive"
