"""The methods paragraph of the report, to be pasted into a paper, and its references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

#: Models by name: words, and references.
_MODELS = {
    "1pl": ("one-parameter logistic model with a common slope", ("rasch",)),
    "2pl": ("two-parameter logistic model", ("birnbaum",)),
    "3pl": ("three-parameter logistic model", ("birnbaum",)),
    "4pl": ("four-parameter logistic model", ("barton",)),
    "graded": ("graded response model", ("samejima",)),
    "gpcm": ("generalized partial credit model", ("muraki",)),
    "pcm": ("partial credit model", ("masters",)),
    "m2pl": ("two-parameter logistic model of several abilities", ()),
    "rating": ("rating scale model", ("andrich",)),
    "nominal": ("nominal response model", ("bock72",)),
    "binomial": ("binomial trials model", ()),
    "bifactor": (
        "bifactor model of a general ability and one of each block of items",
        ("gibbons",),
    ),
    "testlet": ("testlet model of a general ability and one of each block of items", ("bradlow",)),
}
#: How abilities are estimated: words, and references.
_SCORES = {
    "eap": ("EAP estimates", ("bock82",)),
    "map": ("modes given the responses and the prior (MAP)", ()),
    "ml": ("maximum-likelihood estimates", ()),
    "wle": ("weighted likelihood estimates", ("warm",)),
}
#: What is not as LS-WASP was published: scales and locations of shards.
_POWERINGS = {
    "shrink": "no likelihood was powered, but deviations from each shard's mean were scaled by the "
    "root of its share of the persons",
    "replicate": "persons counted several times in each shard, with abilities drawn separately, in "
    "place of powers of the items' conditionals",
}
_LOCATIONS = {
    "refined": "the location was found by steps on the responses of all persons",
    "precision": "means of shards were weighted by their precisions",
}
_REFERENCES = {
    "andrich": ("Andrich, 1978", "Andrich, D. (1978). A rating formulation for ordered response "
                "categories. Psychometrika, 43(4), 561-573."),
    "barton": ("Barton & Lord, 1981", "Barton, M. A., & Lord, F. M. (1981). An upper asymptote for "
               "the three-parameter logistic item-response model (Research Report 81-20). "
               "Educational Testing Service."),
    "birnbaum": ("Birnbaum, 1968", "Birnbaum, A. (1968). Some latent trait models and their use in "
                 "inferring an examinee's ability. In F. M. Lord & M. R. Novick, Statistical "
                 "theories of mental test scores (pp. 397-479). Addison-Wesley."),
    "bock72": ("Bock, 1972", "Bock, R. D. (1972). Estimating item parameters and latent ability "
               "when responses are scored in two or more nominal categories. Psychometrika, 37(1), "
               "29-51."),
    "bock81": ("Bock & Aitkin, 1981", "Bock, R. D., & Aitkin, M. (1981). Marginal maximum "
               "likelihood estimation of item parameters: Application of an EM algorithm. "
               "Psychometrika, 46(4), 443-459."),
    "bock82": ("Bock & Mislevy, 1982", "Bock, R. D., & Mislevy, R. J. (1982). Adaptive EAP "
               "estimation of ability in a microcomputer environment. Applied Psychological "
               "Measurement, 6(4), 431-444."),
    "bradlow": ("Bradlow, Wainer, & Wang, 1999", "Bradlow, E. T., Wainer, H., & Wang, X. (1999). A "
                "Bayesian random effects model for testlets. Psychometrika, 64(2), 153-168."),
    "gibbons": ("Gibbons & Hedeker, 1992", "Gibbons, R. D., & Hedeker, D. R. (1992). "
                "Full-information item bi-factor analysis. Psychometrika, 57(3), 423-436."),
    "gelman": ("Gelman, Meng, & Stern, 1996", "Gelman, A., Meng, X.-L., & Stern, H. (1996). "
               "Posterior predictive assessment of model fitness via realized discrepancies. "
               "Statistica Sinica, 6(4), 733-760."),
    "green": ("Green et al., 1984", "Green, B. F., Bock, R. D., Humphreys, L. G., Linn, R. L., & "
              "Reckase, M. D. (1984). Technical guidelines for assessing computerized adaptive "
              "tests. Journal of Educational Measurement, 21(4), 347-360."),
    "masters": ("Masters, 1982", "Masters, G. N. (1982). A Rasch model for partial credit scoring. "
                "Psychometrika, 47(2), 149-174."),
    "muraki": ("Muraki, 1992", "Muraki, E. (1992). A generalized partial credit model: Application "
               "of an EM algorithm. Applied Psychological Measurement, 16(2), 159-176."),
    "polson": ("Polson, Scott, & Windle, 2013", "Polson, N. G., Scott, J. G., & Windle, J. (2013). "
               "Bayesian inference for logistic models using Pólya-Gamma latent variables. Journal "
               "of the American Statistical Association, 108(504), 1339-1349."),
    "rasch": ("Rasch, 1960", "Rasch, G. (1960). Probabilistic models for some intelligence and "
              "attainment tests. Danish Institute for Educational Research."),
    "samejima": ("Samejima, 1969", "Samejima, F. (1969). Estimation of latent ability using a "
                 "response pattern of graded scores (Psychometrika Monograph No. 17). Psychometric "
                 "Society."),
    "snijders": ("Snijders, 2001", "Snijders, T. A. B. (2001). Asymptotic null distribution of "
                 "person fit statistics with estimated person parameter. Psychometrika, 66(3), "
                 "331-342."),
    "srivastava": ("Srivastava, Li, & Dunson, 2018", "Srivastava, S., Li, C., & Dunson, D. B. "
                   "(2018). Scalable Bayes via barycenter in Wasserstein space. Journal of Machine "
                   "Learning Research, 19(8), 1-35."),
    "warm": ("Warm, 1989", "Warm, T. A. (1989). Weighted likelihood estimation of ability in item "
             "response theory. Psychometrika, 54(3), 427-450."),
    "xu": ("Xu, Lu, Zhang, Wang, & Xu, 2024", "Xu, S., Lu, J., Zhang, J., Wang, C., & Xu, G. "
           "(2024). Optimizing large-scale educational assessment with a \u201cdivide-and-conquer"
           "\u201d strategy: Fast and efficient distributed Bayesian inference in IRT models. "
           "Psychometrika, 89(4). https://doi.org/10.1007/s11336-024-09978-1"),
}  # fmt: skip


class _Text:
    """Sentences, and the references that they cite."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.cited: set[str] = set()

    def cite(self, *keys: str) -> str:
        """In brackets with a space before; nothing without keys."""
        self.cited |= set(keys)
        names = "; ".join(sorted(_REFERENCES[k][0] for k in keys))
        return f" ({names})" if names else ""

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def paragraph(
    fit: xr.Dataset,
    *,
    scores: xr.Dataset | None = None,
    check: xr.Dataset | None = None,
    persons: xr.Dataset | None = None,
    reliability: float | None = None,
) -> tuple[str, list[str]]:
    """Return what was done in the words of a methods section, and the references that it cites.

    Everything comes from what the results say of themselves: what they do not say is left out.
    """
    text, a = _Text(), fit.attrs
    _calibration(text, fit)
    if a.get("identification"):
        text.say(f"The scale was identified by: {a['identification']}.")
    _course(text, a)
    if scores is not None and (method := scores.attrs.get("method")) in _SCORES:
        words, keys = _SCORES[method]
        text.say(f"Abilities are {words}{text.cite(*keys)}.")
    if reliability is not None:
        text.say(f"Marginal reliability{text.cite('green')} was {reliability:.2f}.")
    if check is not None:
        text.say(
            f"Fit was examined by a predictive check{text.cite('gelman')} with "
            f"{int(check.attrs['n_replicates']):,} replicated data sets."
        )
    if persons is not None and "share_below_5" in persons.attrs:
        share = 100 * float(persons.attrs["share_below_5"])
        text.say(
            f"Person fit was examined by l_z*{text.cite('snijders')}; {share:.1f}% of the persons "
            f"lay below its 5% limit."
        )
    version = f" {a['version']}" if a.get("version") else ""
    seed = f" (seed {a['seed']})" if a.get("seed") is not None else ""
    text.say(f"Computations were made with irt_dask{version}{seed}.")
    references = sorted(_REFERENCES[k][1] for k in text.cited)
    return " ".join(text.sentences), references


def _calibration(text: _Text, fit: xr.Dataset) -> None:
    """Say who answered what, and how the items were calibrated."""
    a = fit.attrs
    n = f"{int(a['n_persons']):,} persons" if "n_persons" in a else "persons"
    who = f"The responses of {n} to {fit.sizes['items']:,} items"
    named = [name for name in str(a.get("model", "")).lower().split("+") if name]
    if "item_model" in fit and named not in ([name] for name in _MODELS):
        named = sorted({str(name) for name in fit["item_model"].values})
    words: list[str] = []
    keys: list[str] = []
    for name in named:
        known, cited = _MODELS.get(name, (f"model {name}", ()))
        words.append(known)
        keys += cited
    models = f" under the {' and the '.join(words)}{text.cite(*keys)}" if words else ""
    method = str(a.get("method", ""))
    if method.startswith(("marginal maximum", "concurrent calibration")):
        latent = "distributed as a histogram" if a.get("latent") == "histogram" else "normal"
        groups = f" in each of {fit.sizes['groups']:,} groups" if "group_mean" in fit else ""
        how = f"by marginal maximum likelihood{text.cite('bock81')}, with ability {latent}{groups}"
        if "origin_freed" in fit:
            where = "a set of groups" if "group_set" in fit else "a group"
            how += f"; items that worked otherwise in {where} were freed there "
            how += f"({int(a['n_freed']):,} times)"
    elif method.startswith("bifactor marginal"):
        how = (
            f"by marginal maximum likelihood, with integrals of two dimensions for each block"
            f"{text.cite('gibbons')}"
        )
    elif method in ("Gibbs", "LS-WASP"):
        how = "in a Bayesian way, by draws from the posterior distribution"
        if a.get("sampler") == "polya-gamma":
            how += f" by Pólya-Gamma augmentation{text.cite('polson')}"
        if method == "LS-WASP":
            how += _shards(text, a)
    else:
        how = f"by the method {method!r}" if method else ""
    text.say(f"{who} were calibrated{models}{' ' if how else ''}{how}.")


def _shards(text: _Text, a: Mapping[Any, Any]) -> str:
    """Say how posteriors of shards became one, and what is not as the method was published."""
    how = (
        f", made in {int(a['n_shards']):,} shards of the persons and combined as the location-"
        f"scatter Wasserstein barycenter{text.cite('xu')} of their posteriors, which goes back to "
        f"that of subset posteriors{text.cite('srivastava')}"
    )
    powering = _POWERINGS.get(str(a.get("powering")))
    location = _LOCATIONS.get(str(a.get("location")))
    own = [words for words in (powering, location) if words]
    return how + (f"; other than published, {' and '.join(own)}" if own else "")


def _course(text: _Text, a: Mapping[Any, Any]) -> None:
    """Say what else the fit tells: weights, priors, errors, convergence."""
    kind = a.get("weight_kind")
    if kind == "ignored":
        text.say("The persons' weights were not used.")
    elif kind in ("sampling", "frequency"):
        text.say(f"Persons counted by their {kind} weights.")
    priors = [f"{str(k).removesuffix('_prior')}: {v}" for k, v in a.items()
              if str(k).endswith("_prior") and isinstance(v, str) and v != "none"]  # fmt: skip
    if priors:
        text.say(f"Priors ({'; '.join(sorted(priors))}).")
    if a.get("standard_errors"):
        text.say(f"Standard errors: {a['standard_errors']}.")
    if "n_chains" in a and "n_iterations" in a:
        text.say(f"Chains: {int(a['n_chains'])}, of {int(a['n_iterations']):,} iterations.")
    elif "n_iterations" in a and "converged" in a:
        done = "converged" if a["converged"] else "did not converge"
        text.say(f"The iterations {done} ({int(a['n_iterations']):,}).")
