"""New responses of persons like those there are, under a model: what chance alone would show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from irt_dask.arrays import Floats, Words
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, refuse_weights
from irt_dask.engine.cache import keep, read_block
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.evaluate.abilities import checked
from irt_dask.evaluate.groups import labels_of, of_groups
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.misfit import replicated_responses
from irt_dask.kernels.posterior import at_ability
from irt_dask.population import em
from irt_dask.population.population import Population
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import BlockRef, Refs, WrappedRef
from irt_dask.store.responses import sha256

#: Group of everybody, where persons are not told apart.
EVERYBODY = ""

#: Mean and SD of ability by label of group, or of EVERYBODY.
Abilities = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class _Model:
    """Who is simulated: items, abilities by group, and the key of random numbers."""

    items: ItemSet
    abilities: Abilities
    key: Words
    name: str  # of all that, and of whose responses they replace

    def of(self, ref: BlockRef, block: Block) -> tuple[Floats, Words]:
        """Ability and random word of each person of a block."""
        start, n = block.start, block.n_persons
        word = keyed_random.words(self.key, start, n, 2)[:, 1]
        z = ndtri(keyed_random.uniforms(self.key, start, n)[:, 0])  # of the first word
        if set(self.abilities) == {EVERYBODY}:
            mean, sd = self.abilities[EVERYBODY]
            return mean + sd * z, word
        labels = ref.groups()
        assert labels is not None
        own = np.array([self.abilities[str(label)] for label in labels])
        return own[:, 0] + own[:, 1] * z, word

    @property
    def curves(self) -> at_ability.Between:
        """The items at all abilities that are drawn."""
        mean, sd = np.array(list(self.abilities.values())).T
        reach = keyed_random.FARTHEST_NORMAL * sd
        ends = float((mean - reach).min()), float((mean + reach).max())
        key = ("replicate", self.items.digest, *ends)
        return keep(key, lambda: at_ability.between(self.items, *ends))


@dataclass(frozen=True, eq=False)
class ReplicatedRef(WrappedRef):
    """A block's reference whose block has other responses, where the block has some."""

    model: _Model

    @property
    def cache_key(self) -> tuple[Any, ...]:
        """Identity of the block in this replicate."""
        return "replicate", self.model.name, self.index

    def read(self) -> Block:
        """Return the block, responses drawn."""
        block = read_block(self.ref)
        theta, word = self.model.of(self.ref, block)
        data = replicated_responses.responses(block.data, theta, self.model.curves, word)
        return replace(block, data=data)


class _ReplicatedRefs(Refs):
    """References made when asked for."""

    def __init__(self, refs: Sequence[BlockRef], model: _Model) -> None:
        self.refs, self.model = refs, model

    def __len__(self) -> int:
        return len(self.refs)

    def at(self, k: int) -> ReplicatedRef:
        """Return the reference of block ``k``."""
        return ReplicatedRef(self.refs[k], self.model)


def replicated(
    responses: Responses, items: ItemSet, abilities: Abilities, seed: int, number: int = 0,
    of: str = "",
) -> Responses:  # fmt: skip
    """A replicate of responses; ``of`` is their fingerprint, if it is known."""
    named = sorted((label, *map(float, two)) for label, two in abilities.items())
    about = repr((items.digest, named, seed, number, of or responses.fingerprint))
    model = _Model(
        items, abilities, keyed_random.key(seed, "replicate", number), sha256(about.encode())
    )
    return replace(
        responses,
        refs=_ReplicatedRefs(responses.refs, model),
        checksum=sha256(b"replicate", model.name.encode()),
        truth=None,  # of other responses
    )


def replicate(
    responses: Any,
    items: xr.Dataset,
    *,
    ability: Any = None,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> Responses:
    """Draw responses of other persons who face the items that these persons faced.

    What a statistic is by chance alone, if the model holds: compute it of some hundred replicates
    (a parametric bootstrap).  If the items were fitted to the same responses, fit them to each
    replicate too, in the same way: they follow their data.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, of any model, matched by identifier.
    ability : (mean, sd), or mapping of group to (mean, sd), optional
        Of the normal distribution from which abilities are drawn.  Default: that of each
        ``person_group``, or of all persons if there are none, estimated with the items held.
    seed : int
        The same seed gives the same responses, in any blocks and on any number of workers.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Responses
        Persons, groups, covariates and what is not observed are those of ``responses``; each
        response that is observed is drawn anew, when a block is read (10 ns each).

    Raises
    ------
    InputError
        For persons with weights, and for groups whose ability is not given.

    Notes
    -----
    One pass for each EM step (some ten) where abilities are estimated, else one over the labels of
    groups.  Nothing is stored.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(2000, 5, seed=1)
    >>> again = irt.replicate(responses, irt.fit_marginal(responses), seed=1)
    >>> again
    <Responses: 2000 persons x 5 items, 1 dense blocks>
    >>> [float(r.to_xarray()["response"].mean().round(2)) for r in (responses, again)]
    [0.52, 0.52]
    """
    responses = as_responses(responses, "replicate", graded=True, items=items)
    refuse_weights(responses, "replicate")
    whole_number("seed", seed, 0)
    own = item_set(items, responses.item_id)
    refuse_other_categories(own, responses.n_categories, responses.item_id, "items")
    return replicated(responses, own, _abilities(responses, own, ability, client, progress), seed)


def _abilities(
    responses: Responses, items: ItemSet, ability: Any, client: Any, progress: ProgressOption
) -> Abilities:
    """Mean and SD by group: what is given, or estimated."""
    labels: tuple[str, ...] = (EVERYBODY,)
    if responses.has_groups and (ability is None or isinstance(ability, Mapping)):
        labels = labels_of(responses, client)
    if ability is None:
        parts = [responses]
        if responses.has_groups:
            parts = of_groups(responses, labels, client, progress)
        found = []
        for part in parts:
            with Engine(
                part, client=client, progress=progress, graded=True, stage="abilities"
            ) as engine:
                found.append(em.one_normal(engine, items).population)
    elif isinstance(ability, Mapping):
        given = {str(label): two for label, two in ability.items()}
        if not responses.has_groups or set(given) != set(labels):
            there = ", ".join(labels) if responses.has_groups else "none"
            raise InputError(
                f"ability= gives the groups {', '.join(sorted(given))}; the responses' groups "
                f"are: {there}"
            )
        found = [_given(given[label]) for label in labels]
    else:
        found = [_given(ability)]
    return {
        label: (float(p.coefficients[0, 0]), float(p.sd[0]))
        for label, p in zip(labels, found, strict=True)
    }


def _given(ability: Any) -> Population:
    population = checked(ability)
    if population is None:
        raise InputError("ability= gives a group None; give its mean and SD")
    return population
