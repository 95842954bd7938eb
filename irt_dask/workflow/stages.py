"""The stages of a run.  Each reads what earlier ones wrote and returns the files it wrote."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.banks.files import items_text
from irt_dask.calibrate.bayes.fit import fit_bayes
from irt_dask.calibrate.joint.coreset_spec import Coreset
from irt_dask.calibrate.joint.fit import fit_joint
from irt_dask.calibrate.private.fit import fit_private_spectral
from irt_dask.calibrate.rasch.spectral import fit_spectral
from irt_dask.calibrate.shared.summary import summarise
from irt_dask.datasets import load_lsat
from irt_dask.engine.person_files import DONE
from irt_dask.errors import ChangedRunError, DataWarning
from irt_dask.evaluate.predictive_check import predictive_check
from irt_dask.ingest import ingest as ingest_responses
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.report.page import write_report
from irt_dask.score import score as score_persons
from irt_dask.simulate import simulate
from irt_dask.store import Responses, StoreWriter, open_responses
from irt_dask.store.writer import check_rows_per_block
from irt_dask.variables import DRAW
from irt_dask.workflow.config import OF_A_SOURCE, SHARED_CHAINS, RunConfig
from irt_dask.workflow.directory import SCORES, RunDirectory
from irt_dask.workflow.inputs import looks, refuse_stored_weights

#: Results that a report shows if the run has them.
_OPTIONAL = ("joint", "spectral", "check", "scores", "truth")
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
        """The responses that the run is about, for all stages those that it began with.

        Raises ChangedRunError if the store has changed since the run looked at it first.
        """
        if self.config.data.store is None:
            return open_responses(self.directory.path / "responses")
        if self._stored is None:
            found = open_responses(self.config.data.store)
            self.directory.check_data(found.fingerprint)
            self._stored = found
        return self._stored

    def checkpoint(self, stage: str) -> Path:
        """Folder for the checkpoints of a stage."""
        return self.directory.path / "checkpoints" / stage

    def forget(self, stage: str) -> None:
        """Remove the checkpoints of a finished stage, which nobody reads again."""
        shutil.rmtree(self.checkpoint(stage), ignore_errors=True)
        with suppress(OSError):  # others are there, or none ever were
            self.checkpoint(stage).parent.rmdir()


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
        refuse_stored_weights(made)
        if looks(c.config) != c.looked:
            raise ChangedRunError(
                f"the files of {data.source} changed while they were read; start again when nobody "
                f"writes to them"
            )
    elif data.simulate is not None:
        made = simulate(
            data.simulate.persons, data.simulate.items, missing=data.simulate.missing,
            seed=c.config.seed, store=target, rows_per_block=data.rows_per_block,
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
    """Count responses by item; items nobody answered stop the run here."""
    return [c.directory.save("summary.nc", summarise(c.responses, client=c.common["client"]))]


def spectral(c: Context) -> list[str]:
    """Rasch difficulties as start values."""
    fit = fit_spectral(c.responses, regularization=c.config.spectral.regularization, **c.common)
    return [c.directory.save("spectral.nc", fit)]


def joint(c: Context) -> list[str]:
    """Joint maximum likelihood, by default on coresets."""
    options = c.config.joint
    r = c.responses
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
        checkpoint=c.checkpoint("joint"),
    )
    return [c.directory.save("joint.nc", fit)]


def bayes(c: Context) -> list[str]:
    """Posterior of the items by LS-WASP, and the item bank."""
    options = c.config.bayes
    r = c.responses
    shards = options.shards or shards_for(r.n_persons, r.n_items)
    chains = options.chains or chains_for(shards, r.n_items)
    fit = fit_bayes(
        r,
        n_shards=shards,
        n_draws=options.draws_of(chains),
        n_warmup=options.warmup,
        n_chains=chains,
        prior=options.item_prior(),
        seed=c.config.seed,
        start=c.directory.find("joint.nc"),
        **c.common,
        checkpoint=c.checkpoint("bayes"),
    )
    items = c.directory.write("items.csv", items_text(fit, ".csv").encode())
    return [c.directory.save("posterior.nc", fit), items]


def shards_for(n_persons: int, n_items: int) -> int:
    """Number of shards: a rule of the data alone, so that it is the same on every cluster."""
    return max(1, min(_MAX_SHARDS, n_persons // max(_PERSONS_PER_SHARD, 10 * n_items)))


def chains_for(n_shards: int, n_items: int) -> int:
    """Number of chains of a shard, of the data alone too."""
    return SHARED_CHAINS if n_shards == 1 and n_items >= _MANY_ITEMS else 1


def check(c: Context) -> list[str]:
    """Compare the scores with what the posterior predicts."""
    posterior = c.directory.load("posterior.nc")
    result = predictive_check(
        c.responses,
        posterior,
        n_replicates=_of_draws(posterior, "check.replicates", c.config.check.replicates),
        seed=c.config.seed,
        **c.common,
    )
    return [c.directory.save("check.nc", result)]


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


def private(c: Context) -> list[str]:
    """Rasch difficulties under differential privacy, written down before they are saved.

    A run that was stopped in between finds the recorded release.
    """
    options = c.config.private
    assert options is not None
    fit = fit_private_spectral(c.responses, **options.model_dump(), seed=c.config.seed, **c.common)
    return [c.directory.save("private.nc", fit)]


def score(c: Context) -> list[str]:
    """Abilities and plausible values of all persons, one Parquet file a block."""
    posterior, options = c.directory.load("posterior.nc"), c.config.score
    result = score_persons(
        c.responses,
        posterior,
        method=options.method,
        prior=options.prior,
        n_plausible=_of_draws(posterior, "score.plausible", options.plausible),
        n_item_draws=_of_draws(posterior, "score.item_draws", options.item_draws),
        seed=c.config.seed,
        store=c.directory.path / SCORES,
        **c.common,
    )
    for name in ("store", "n_blocks_scored", "n_blocks_kept"):
        del result.attrs[name]  # not of the values: where they lie, and what was there before
    return [c.directory.save("scores.nc", result), f"{SCORES}/{DONE}"]


def report(c: Context) -> list[str]:
    """One self-contained page."""
    return [write_run_report(c.directory).name]


def write_run_report(directory: RunDirectory) -> Path:
    """Write ``report.html`` from what the stages of a run left."""
    content = directory.content
    counts = directory.load("summary.nc")
    data = content["config"]["data"]
    put_aside = []
    if data.get("on_error") == "quarantine":
        aside = open_responses(directory.path / "responses").n_quarantined
        put_aside = [("Rows put aside", f"{aside:,}, in responses.quarantine.csv")]
    run = [
        ("Title", content["title"]),
        ("Data", content["data"]),
        ("Persons", f"{int(counts.attrs['n_persons']):,}"),
        ("Items", f"{counts.sizes['items']:,}"),
        (
            "Responses",
            f"{int(counts.attrs['n_responses']):,} ({counts.attrs['observed']:.1%} of cells)",
        ),
        *put_aside,
        ("Seed", str(content["config"]["seed"])),
        ("Data checksum", content["data_checksum"][:16]),
        ("Versions", ", ".join(f"{k} {v}" for k, v in content["versions"].items())),
        ("Machine", content["machine"]["cpu"]),
    ]
    done = {name: s for name, s in directory.stages.items() if name != "report"}
    return write_report(
        directory.path / "report.html",
        title=content["title"],
        run=run,
        timings=[(name, s["seconds"]) for name, s in done.items()],
        posterior=directory.load("posterior.nc"),
        notes=[f"{name}: {note}" for name, s in done.items() for note in s["notes"]],
        **{n: directory.find(f"{n}.nc") for n in _OPTIONAL},
    )


Stage = Callable[[Context], list[str]]
STAGES: dict[str, Stage] = {
    "ingest": ingest,
    "summary": summary,
    "spectral": spectral,
    "joint": joint,
    "bayes": bayes,
    "check": check,
    "score": score,
    "report": report,
}


def stages_of(config: RunConfig) -> dict[str, Stage]:
    """Return the stages of a run in their order."""
    stages = dict(STAGES)
    if config.check.replicates == 0:
        del stages["check"]
    if config.private is not None:
        first = {name: stages.pop(name) for name in ("ingest", "summary")}
        stages = {**first, "private": private, **stages}  # mistakes show before the long ones
    return stages
