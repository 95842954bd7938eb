"""Questions of blocks with abilities of their own, such as several benchmarks: a bifactor fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.items.bifactor import (
    BlockItems,
    Grids,
    block_items,
    further,
    grids_of,
    in_part,
    tables,
)
from irt_dask.items.draws import spaced, usual_draws
from irt_dask.items.parameters import bank_item_ids, refuse_other_categories
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.several import bifactor_totals as kernel
from irt_dask.kernels.several.bifactor_posterior import Planes
from irt_dask.selection.questions import Design, Questions, places
from irt_dask.store import Responses
from irt_dask.store.responses import sha256


@dataclass(frozen=True, eq=False)
class BlockQuestions(Questions):
    """Questions of a general ability and one of each block, all independent N(0, 1)."""

    bank: BlockItems
    own: BlockItems
    grids: Grids

    abilities = "a general ability and one of each block"
    population = "independent N(0, 1): general and of each block"

    @property
    def n_categories(self) -> Ints:
        """Of each question of the bank."""
        return self.bank.n_categories

    def look(self, engine: Engine) -> Bools:
        """Blocks that somebody answered in part."""
        return in_part(engine, self.own.of_item, self.own.n_blocks)

    def knowing(self, seen: Bools) -> BlockQuestions:
        """The same with what :meth:`look` found."""
        return replace(self, own=replace(self.own, in_part=seen))

    def asked(self, at: Ints) -> BlockQuestions:
        """The same for persons who answered these and no others of the bank."""
        return replace(self, own=_some(self.bank, at), at=at)

    def model_moments(self, data: Layout) -> Floats:
        """See :func:`irt_dask.kernels.several.bifactor_totals.model_moments`."""
        return kernel.model_moments(data, *self._tables())

    def design_moments(self, data: Layout, wanted: Ints) -> tuple[Floats, Ints]:
        """See :func:`irt_dask.kernels.several.bifactor_totals.design_moments`."""
        return kernel.design_moments(data, *self._tables(), wanted)

    def _tables(self) -> tuple[Planes, kernel.Points]:
        pairs = 8.0 * self.grids.nodes.size * self.grids.block_nodes.size
        planes, rows = self.bank.n_planes, int((self.own.row >= 0).sum())
        cells = np.unique(np.stack([self.design.stratum, self.bank.place]), axis=1).shape[1]
        refuse_beyond_memory(
            pairs * (4 * planes + 2 * cells + rows),
            f"tables of {planes} blocks and {rows} items at {self.grids.nodes.size} x "
            f"{self.grids.block_nodes.size} pairs of abilities",
        )
        g = tables(self.own, self.grids)
        key = (
            "bifactor points",
            sha256(
                self.bank.slopes, self.bank.of_item, self.at, self.weights, self.design.stratum,
                self.grids.nodes, self.grids.block_nodes,
            ),
        )  # fmt: skip
        return g, keep(key, lambda: self._points(g))

    def _points(self, g: Planes) -> kernel.Points:
        return kernel.points(
            g, (self.at, self.own.place), self.bank.slopes, self.weights, self.design.stratum,
            self.bank.place,
        )  # fmt: skip


def _some(bank: BlockItems, at: Ints) -> BlockItems:
    """Some items of a bank, of which everybody answered all."""
    return BlockItems(
        np.ascontiguousarray(bank.slopes[:, at]), bank.of_item[at], bank.n_blocks,
        np.zeros(bank.n_planes, dtype=bool),
    )  # fmt: skip


def of_blocks(
    items: xr.Dataset, responses: Responses, weights: Floats, design: Design
) -> tuple[BlockQuestions, tuple[BlockQuestions, ...]]:
    """Point estimates of a bifactor fit, and the draws over which totals are averaged."""
    item_id = bank_item_ids(items)
    block_items(items, responses.item_id)  # which says what the bank lacks
    at = places(item_id, responses.item_id)
    n = usual_draws(items)
    drawn = spaced(items, n, ("item_loading", "item_intercept"), "item draws", "items") if n else []
    slopes, of_item, names = block_items(items, item_id)
    known = _bank(slopes, of_item, len(names) - 1)
    averaged = [_bank(block_items(one, item_id)[0], of_item, known.n_blocks) for _, one in drawn]
    own = _some(known, at)
    refuse_other_categories(own, responses.n_categories, responses.item_id, "items")
    steep = float(np.abs(known.slopes[:2]).max())
    grids = grids_of(own, steepest=steep)
    if averaged:  # what draws say of abilities together hardly differs
        grids = grids_of(own, steepest=steep, bound=further(float(grids.nodes[-1]), 1.0))
    questions = BlockQuestions(at, weights, design, known, own, grids)
    of_draws = (replace(questions, bank=bank, own=_some(bank, at)) for bank in averaged)
    return questions, tuple(of_draws) or (questions,)


def _bank(slopes: Floats, of_item: Ints, n_blocks: int) -> BlockItems:
    """Items of blocks as the point estimates have them, in draws too."""
    slopes = np.stack([slopes[0], np.where(of_item < 0, 0.0, slopes[1]), slopes[2]])
    return BlockItems(slopes, of_item, n_blocks, np.zeros(n_blocks + 1, dtype=bool))
