"""The stages of a run.  Each reads what earlier ones wrote and returns the files it wrote."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.banks.anchors import with_errors_of_anchors
from irt_dask.banks.item_tables import read_item_covariates, read_item_table
from irt_dask.banks.saved import of_responses, read_bank
from irt_dask.calibrate.bayes.fit import fit_bayes
from irt_dask.calibrate.joint.coreset_spec import Coreset
from irt_dask.calibrate.joint.fit import fit_joint
from irt_dask.calibrate.marginal.fit import fit_marginal
from irt_dask.calibrate.private.fit import fit_private_spectral
from irt_dask.calibrate.rasch.spectral import fit_spectral
from irt_dask.calibrate.shared.summary import summarise
from irt_dask.datasets import load_lsat
from irt_dask.engine.person_files import DONE
from irt_dask.errors import ChangedRunError, DataWarning, Notice
from irt_dask.evaluate.predictive_check import predictive_check
from irt_dask.ingest import ingest as ingest_responses
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.score import score as score_persons
from irt_dask.simulate import simulate
from irt_dask.store import Responses, StoreWriter, open_responses
from irt_dask.store.documents import by_item, to_csv
from irt_dask.store.writer import check_rows_per_block
from irt_dask.variables import DRAW
from irt_dask.workflow import publishing
from irt_dask.workflow.config import OF_A_SOURCE, RunConfig
from irt_dask.workflow.directory import SCORES, RunDirectory
from irt_dask.workflow.fit_tests import check_reference, run_tests, standardised, unpredictable
from irt_dask.workflow.inputs import (
    as_asked,
    bank_checksum,
    check_prior,
    looks,
    refuse_other_categories,
    refuse_unused_weights,
)
from irt_dask.workflow.reporting import MARGINAL, POSTERIOR, write_run_report
from irt_dask.workflow.sections import SHARED_CHAINS

POPULATION = "population.nc"
_PERSONS_PER_SHARD = 5000
_MAX_SHARDS = 16
#: A chain uses one core: several run where one shard has so many items.
_MANY_ITEMS = 256


@dataclass
class Context:
    """What the stages of one run share."""

    config: RunConfig
    directory: RunDirectory
    #: Client and progress, as all functions take them.
    common: dict[str, Any]
    #: What the input's files looked like before their checksum was taken.
    looked: tuple[tuple[int, int, int], ...] = ()
    _stored: Responses | None = None

    @property
    def responses(self) -> Responses:
        """The responses of :attr:`stored` as the stages take them: with weights or without."""
        return self.responses_as(self.config.data.omitted, self.config.data.not_reached)

    def responses_as(self, omitted: str | None, not_reached: str | None) -> Responses:
        """The responses where those that were omitted, or not reached, are what is said."""
        return as_asked(self.stored, self.config.data, omitted, not_reached)

    @property
    def stored(self) -> Responses:
        """The store that the run is about, for all stages that which it began with.

        Raises ChangedRunError if the store has changed since the run looked at it first.
        """
        if self._stored is None:
            given = self.config.data.store
            found = open_responses(self.directory.path / "responses" if given is None else given)
            if given is not None:
                self.directory.check_data(found.fingerprint)
            self._stored = found
        return self._stored


def ingest(c: Context) -> list[str]:
    """Bring the responses into a store in the run directory."""
    data = c.config.data
    if data.store is not None:
        return []
    target = c.directory.clear("responses")
    if data.source is not None:
        made = ingest_responses(
            data.source, target, **data.model_dump(include={*OF_A_SOURCE, "rows_per_block"}),
            **c.common,
        )  # fmt: skip
        refuse_other_categories(c.config, made)
        refuse_unused_weights(c.config, made)
        if made.n_quarantined:
            warnings.warn(
                f"{made.n_quarantined} row(s) of {Path(data.source).name} were put aside: "
                f"responses.quarantine.csv has them, with the reasons",
                Notice,
                stacklevel=2,
            )
        if looks(c.config) != c.looked:
            raise ChangedRunError(
                f"the files of {data.source} changed while they were read; start again when nobody "
                f"writes to them"
            )
    elif data.simulate is not None:
        made = simulate(
            data.simulate.persons, data.simulate.items, missing=data.simulate.missing,
            model=c.config.marginal.model, seed=c.config.seed, store=target,
            rows_per_block=data.rows_per_block, **c.common,
        )  # fmt: skip
        assert made.truth is not None
        keep = made.truth.drop_vars("person_ability", errors="ignore")
        return [c.directory.save("truth.nc", keep), "responses/manifest.json"]
    else:
        _write_lsat(target, data.rows_per_block)
    return ["responses/manifest.json"]


def _write_lsat(target: Path, rows_per_block: int | None) -> None:
    """Write the data that come with the package as a store."""
    lsat = load_lsat()
    values, ids = to_dense(lsat.read_block(0).data).values, lsat.person_ids(0)
    rows = check_rows_per_block(rows_per_block, *values.shape[::-1])
    with StoreWriter(
        target, item_id=lsat.item_id, n_persons=len(ids), rows_per_block=rows
    ) as writer:
        for s in range(0, len(ids), rows):
            writer.write(values[s : s + rows], person_id=ids[s : s + rows])
        writer.commit()


def summary(c: Context) -> list[str]:
    """Count responses by item; items nobody answered, or a prior of none, stop the run here."""
    check_prior(c.config, c.responses, c.common["client"])
    check_reference(c.config.tests, c.responses, c.common["client"])
    if c.config.data.weights == "ignore" and c.stored.max_weight is not None:
        warnings.warn(
            f"the persons' {c.stored.weight_kind} weights are ignored, as [data] weights asks for: "
            f"items and abilities are those of the persons in the sample, who count alike, not of "
            f"the population that they stand for",
            Notice,
            stacklevel=2,
        )
    return [c.directory.save("summary.nc", summarise(c.responses, client=c.common["client"]))]


def spectral(c: Context) -> list[str]:
    """Rasch difficulties as start values."""
    fit = fit_spectral(c.responses, regularization=c.config.spectral.regularization, **c.common)
    return [c.directory.save("spectral.nc", fit)]


def joint(c: Context) -> list[str]:
    """Joint maximum likelihood, by default on coresets."""
    options = c.config.joint
    r = c.responses
    if options.coreset and r.max_weight is not None:  # coresets know none, and this is a start
        r = r.select(weights="ignore")
    fit = fit_joint(
        r,
        coreset=Coreset(options.coreset, sampling="poisson")
        if 0 < options.coreset < r.n_persons
        else None,
        max_iterations=options.max_iterations,
        tolerance=options.tolerance,
        seed=c.config.seed,
        start=c.directory.find("spectral.nc"),
        **c.common,
        checkpoint=c.directory.checkpoint("joint"),
    )
    return [c.directory.save("joint.nc", fit)]


def bayes(c: Context) -> list[str]:
    """Posterior of the items by LS-WASP, and the item bank."""
    options = c.config.bayes
    r = c.responses
    shards = options.shards or shards_for(r.n_persons, r.n_items)
    chains = options.chains or chains_for(shards, r.n_items)
    table = _item_table(c)
    fit = fit_bayes(
        r,
        n_shards=shards,
        n_draws=options.draws_of(shards, chains, r.n_items),
        n_warmup=options.warmup,
        n_chains=chains,
        prior=options.item_prior(),
        seed=c.config.seed,
        start=c.directory.find("joint.nc") if options.starts_from_joint else None,
        **options.model_options(),
        **table,
        **c.common,
        checkpoint=c.directory.checkpoint("bayes"),
    )
    return [c.directory.save(POSTERIOR, fit), *c.directory.save_bank(fit)]


def _item_table(c: Context) -> dict[str, Any]:
    """What the pipeline says of items, as it was when the run began."""
    name = "marginal" if c.config.is_marginal else "bayes"
    path = getattr(c.config, name).item_table
    if path is None:
        return {}
    table = (read_item_covariates if c.config.is_marginal else read_item_table)(path)
    c.directory.check_config(c.config.digest(), f"{name}.item_table")
    return table


def marginal(c: Context) -> list[str]:
    """Items by marginal maximum likelihood, and the item bank."""
    options, bank = c.config.marginal, None
    if options.fixed_items is not None:
        bank = read_bank(options.fixed_items)
        c.directory.check_bank(bank_checksum(c.config))
    fit = fit_marginal(
        c.responses,
        fixed_items=bank,
        **options.options(),
        **_item_table(c),
        **c.common,
        checkpoint=c.directory.checkpoint("marginal"),
    )
    fit = of_responses(with_errors_of_anchors(fit, bank), c.stored, c.responses)
    return [c.directory.save(MARGINAL, fit), *c.directory.save_bank(fit)]


def shards_for(n_persons: int, n_items: int) -> int:
    """Number of shards: a rule of the data alone, so that it is the same on every cluster."""
    return max(1, min(_MAX_SHARDS, n_persons // max(_PERSONS_PER_SHARD, 10 * n_items)))


def chains_for(n_shards: int, n_items: int) -> int:
    """Number of chains of a shard, of the data alone too."""
    return SHARED_CHAINS if n_shards == 1 and n_items >= _MANY_ITEMS else 1


def check(c: Context) -> list[str]:
    """Compare scores and items with what the posterior, or the estimates, predict."""
    items, replicates = c.directory.load(fit_of(c.config)), c.config.check.replicates
    if reason := unpredictable(c.responses, items):
        warnings.warn(
            f"no predictive check was made: it draws persons without weights from one normal "
            f"distribution of ability, and {reason}",
            Notice,
            stacklevel=2,
        )
        return []
    if c.config.is_marginal:
        items = standardised(items)
    else:
        replicates = _of_draws(items, "check.replicates", replicates)
    result = predictive_check(
        c.responses,
        items,
        n_replicates=replicates,
        item_blocks=_item_table(c).get("item_blocks"),
        seed=c.config.seed,
        **c.common,
    )
    by_items = c.directory.write("check_items.csv", to_csv(by_item(result)).encode())
    return [c.directory.save("check.nc", result), by_items]


def fit_of(config: RunConfig) -> str:
    """File of the items that the stages after the calibration take."""
    return MARGINAL if config.is_marginal else POSTERIOR


def _of_draws(posterior: xr.Dataset, key: str, asked: int) -> int:
    """Draws to use of those there are: a posterior that does not fit the driver is thinned."""
    there = posterior.sizes[DRAW]
    if asked > there:
        warnings.warn(
            f"{key} = {asked}, but the posterior was thinned to {there} draws to fit the driver's "
            f"memory: these are used",
            DataWarning,
            stacklevel=2,
        )
    return min(asked, there)


def tests(c: Context) -> list[str]:
    """Test items and persons against the calibration."""
    fit = c.directory.load(fit_of(c.config))
    found = run_tests(c.responses, fit, c.config.tests, seed=c.config.seed, **c.common)
    for note in found.notes:
        warnings.warn(note, Notice, stacklevel=2)
    return [c.directory.write(name, data) for name, data in found.files().items()]


def private(c: Context) -> list[str]:
    """Rasch difficulties under differential privacy, written down before they are saved.

    A run that was stopped in between finds the recorded release.
    """
    options = c.config.private
    assert options is not None
    fit = fit_private_spectral(c.responses, **options.model_dump(), seed=c.config.seed, **c.common)
    return [c.directory.save("private.nc", fit)]


def population(c: Context) -> list[str]:
    """The distribution of abilities given covariates."""
    of, items = c.config.population, c.directory.load(fit_of(c.config))
    assert of is not None
    return [c.directory.save(POPULATION, publishing.fitted(of, c.responses, items, **c.common))]


def tables(c: Context) -> list[str]:
    """Tables of the scores, and a page of them."""
    return publishing.in_folder(c.directory, c.config.tables, c.config.title)


def score(c: Context) -> list[str]:
    """Abilities and plausible values of all persons, one Parquet file a block."""
    items, options = c.directory.load(fit_of(c.config)), c.config.score
    plausible, item_draws = options.plausible, options.item_draws
    if not c.config.is_marginal:
        plausible = _of_draws(items, "score.plausible", plausible)
        item_draws = _of_draws(items, "score.item_draws", item_draws)
    how: dict[str, Any] = {"prior": options.prior, "n_item_draws": item_draws}
    if (of := c.config.population) is not None:
        how = of.scored(c.directory.load(POPULATION), plausible, c.config.is_marginal)
    result = score_persons(
        c.responses_as(
            options.omitted or c.config.data.omitted,
            options.not_reached or c.config.data.not_reached,
        ),
        items,
        method=options.method,
        n_plausible=plausible,
        **how,
        seed=c.config.seed,
        store=c.directory.place(SCORES),
        **c.common,
    )
    for name in ("store", "n_blocks_scored", "n_blocks_kept"):
        del result.attrs[name]  # not of the values: where they lie, and what was there before
    return [c.directory.save("scores.nc", result), f"{SCORES}/{DONE}"]


def report(c: Context) -> list[str]:
    """One self-contained page."""
    return [write_run_report(c.directory).name]


Stage = Callable[[Context], list[str]]
STAGES: dict[str, Stage] = {
    "ingest": ingest,
    "summary": summary,
    "spectral": spectral,
    "joint": joint,
    "bayes": bayes,
    "marginal": marginal,
    "check": check,
    "tests": tests,
    "population": population,
    "score": score,
    "tables": tables,
    "report": report,
}


def stages_of(config: RunConfig) -> dict[str, Stage]:
    """Return the stages of a run in their order."""
    return stages_recorded(config.computed())


def stages_recorded(config: dict[str, Any]) -> dict[str, Stage]:
    """Return the stages of a run whose configuration is as ``run.json`` has it."""
    is_marginal = config.get("calibrate", {}).get("method") == "marginal"
    foreign = ("spectral", "joint", "bayes") if is_marginal else ("marginal",)
    if "joint" not in config:  # start values of the 2PL alone
        foreign = (*foreign, "spectral", "joint")
    stages = {name: stage for name, stage in STAGES.items() if name not in foreign}
    if not config.get("check", {}).get("replicates"):
        del stages["check"]
    for name in ("tests", "population", "tables"):
        if name not in config:
            del stages[name]
    if config.get("private") is not None:
        first = {name: stages.pop(name) for name in ("ingest", "summary")}
        stages = {**first, "private": private, **stages}  # mistakes show before the long ones
    return stages
