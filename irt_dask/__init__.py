"""irt_dask: item response theory at scale.

``import irt_dask as irt`` is light: a name loads what it needs when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# These functions are named like the module they live in.  Importing them here, once, keeps the name
# for the function: a later import of the module no longer touches it.  The modules are light.
from irt_dask._version import __version__ as __version__
from irt_dask.evaluate import evaluate as evaluate
from irt_dask.ingest import append as append
from irt_dask.ingest import ingest as ingest
from irt_dask.score import score as score
from irt_dask.simulate import simulate as simulate

if TYPE_CHECKING:  # what type checkers and editors see of the lazy names
    from irt_dask.banks import read_items as read_items
    from irt_dask.banks import write_items as write_items
    from irt_dask.banks.link import link as link
    from irt_dask.calibrate.bayes.fit import fit_bayes as fit_bayes
    from irt_dask.calibrate.bayes.prior_items import prior_items as prior_items
    from irt_dask.calibrate.bifactor.fit import fit_bifactor as fit_bifactor
    from irt_dask.calibrate.concurrent.fit import fit_concurrent as fit_concurrent
    from irt_dask.calibrate.concurrent.freed import with_freed_items as with_freed_items
    from irt_dask.calibrate.joint.coreset_data import draw_coreset as draw_coreset
    from irt_dask.calibrate.joint.coreset_spec import Coreset as Coreset
    from irt_dask.calibrate.joint.fit import fit_joint as fit_joint
    from irt_dask.calibrate.joint.item_complexity import coreset_complexity as coreset_complexity
    from irt_dask.calibrate.marginal.fit import fit_marginal as fit_marginal
    from irt_dask.calibrate.private.fit import fit_private_spectral as fit_private_spectral
    from irt_dask.calibrate.rasch.comparisons import compare_items as compare_items
    from irt_dask.calibrate.rasch.comparisons import top_items as top_items
    from irt_dask.calibrate.rasch.conditional import fit_conditional as fit_conditional
    from irt_dask.calibrate.rasch.pair_counts import pair_counts as pair_counts
    from irt_dask.calibrate.rasch.pairwise import fit_pairwise as fit_pairwise
    from irt_dask.calibrate.rasch.ratio_matrices import fit_choppin as fit_choppin
    from irt_dask.calibrate.rasch.ratio_matrices import fit_saaty as fit_saaty
    from irt_dask.calibrate.rasch.spectral import fit_spectral as fit_spectral
    from irt_dask.clusters import connect as connect
    from irt_dask.curves.priors import ItemPrior as ItemPrior
    from irt_dask.datasets import load_lsat as load_lsat
    from irt_dask.errors import ApproximationWarning as ApproximationWarning
    from irt_dask.errors import ConvergenceWarning as ConvergenceWarning
    from irt_dask.errors import DataWarning as DataWarning
    from irt_dask.errors import InputError as InputError
    from irt_dask.errors import IrtDaskDeprecationWarning as IrtDaskDeprecationWarning
    from irt_dask.errors import IrtDaskError as IrtDaskError
    from irt_dask.errors import IrtDaskWarning as IrtDaskWarning
    from irt_dask.errors import ItemWarning as ItemWarning
    from irt_dask.errors import StoreError as StoreError
    from irt_dask.evaluate.answer_similarity import answer_similarity as answer_similarity
    from irt_dask.evaluate.dif import dif as dif
    from irt_dask.evaluate.information import information as information
    from irt_dask.evaluate.item_curves import item_curves as item_curves
    from irt_dask.evaluate.item_fit import item_fit as item_fit
    from irt_dask.evaluate.loo import compare as compare
    from irt_dask.evaluate.loo import loo as loo
    from irt_dask.evaluate.lord import lord_dif as lord_dif
    from irt_dask.evaluate.option_analysis import option_analysis as option_analysis
    from irt_dask.evaluate.person_fit import person_fit as person_fit
    from irt_dask.evaluate.predictive_check import predictive_check as predictive_check
    from irt_dask.evaluate.replicate import replicate as replicate
    from irt_dask.evaluate.residual_correlations import (
        residual_correlations as residual_correlations,
    )
    from irt_dask.evaluate.suspect_items import suspect_items as suspect_items
    from irt_dask.population.fit import fit_population as fit_population
    from irt_dask.report import plots as plot  # noqa: F401
    from irt_dask.report.arviz_data import to_arviz as to_arviz
    from irt_dask.score.ranks import top_persons as top_persons
    from irt_dask.score.table import score_table as score_table
    from irt_dask.selection.adaptive import next_items as next_items
    from irt_dask.selection.choose import choose_items as choose_items
    from irt_dask.selection.predict import predict_total as predict_total
    from irt_dask.selection.session import Session as Session
    from irt_dask.store import Responses as Responses
    from irt_dask.store import from_array as from_array
    from irt_dask.store import open_responses as open_responses
    from irt_dask.survey.regress import regress as regress
    from irt_dask.survey.replicates import Replicates as Replicates
    from irt_dask.survey.tabulate import tabulate as tabulate
    from irt_dask.survey.trend import trend as trend
    from irt_dask.workflow.board_waves import board_responses as board_responses
    from irt_dask.workflow.growing import grow_bank as grow_bank

#: The public names by module.
_NAMES = {
    "errors": "ApproximationWarning ConvergenceWarning DataWarning InputError "
    "IrtDaskDeprecationWarning IrtDaskError IrtDaskWarning ItemWarning StoreError",
    "curves.priors": "ItemPrior",
    "store": "Responses from_array open_responses",
    "datasets": "load_lsat",
    "calibrate.bifactor.fit": "fit_bifactor",
    "calibrate.concurrent.fit": "fit_concurrent",
    "calibrate.concurrent.freed": "with_freed_items",
    "calibrate.joint.coreset_spec": "Coreset",
    "calibrate.joint.item_complexity": "coreset_complexity",
    "calibrate.joint.coreset_data": "draw_coreset",
    "calibrate.joint.fit": "fit_joint",
    "calibrate.marginal.fit": "fit_marginal",
    "calibrate.rasch.pair_counts": "pair_counts",
    "calibrate.rasch.spectral": "fit_spectral",
    "calibrate.private.fit": "fit_private_spectral",
    "calibrate.rasch.pairwise": "fit_pairwise",
    "calibrate.rasch.comparisons": "compare_items top_items",
    "calibrate.rasch.conditional": "fit_conditional",
    "calibrate.rasch.ratio_matrices": "fit_choppin fit_saaty",
    "calibrate.bayes.fit": "fit_bayes",
    "calibrate.bayes.prior_items": "prior_items",
    "evaluate.answer_similarity": "answer_similarity",
    "evaluate.predictive_check": "predictive_check",
    "evaluate.dif": "dif",
    "evaluate.information": "information",
    "evaluate.item_curves": "item_curves",
    "evaluate.item_fit": "item_fit",
    "evaluate.loo": "compare loo",
    "evaluate.lord": "lord_dif",
    "evaluate.person_fit": "person_fit",
    "evaluate.replicate": "replicate",
    "evaluate.residual_correlations": "residual_correlations",
    "evaluate.option_analysis": "option_analysis",
    "evaluate.suspect_items": "suspect_items",
    "banks.link": "link",
    "banks": "read_items write_items",
    "population.fit": "fit_population",
    "score.ranks": "top_persons",
    "score.table": "score_table",
    "selection.adaptive": "next_items",
    "selection.choose": "choose_items",
    "selection.predict": "predict_total",
    "selection.session": "Session",
    "survey.replicates": "Replicates",
    "survey.regress": "regress",
    "survey.tabulate": "tabulate",
    "survey.trend": "trend",
    "clusters": "connect",
    "workflow.board_waves": "board_responses",
    "workflow.growing": "grow_bank",
    "report.plots": "plot",
    "report.arviz_data": "to_arviz",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOME, "append", "evaluate", "ingest", "score", "simulate"])


if not TYPE_CHECKING:  # a type checker would take any name for known

    def __getattr__(name: str) -> Any:
        """Load a public name from its module (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module 'irt_dask' has no attribute {name!r}")
        module = importlib.import_module(f"irt_dask.{_HOME[name]}")
        value = module if name == "plot" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
