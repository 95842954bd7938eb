"""Plausible values that hold the error of a link: its constants are drawn, once for each value.

Items and abilities are on the scale of a link by A and B.  Value m of every person is moved to
where A_m and B_m would have put it, ``theta_m = (A_m / A) (theta - B) + B_m``.  Constants of M
values are (A, B) + L z_m, L L' their covariance V, with z_1, ..., z_M turned at random among all
whose mean is 0 and whose sample covariance is I / (1 + 1 / M).  So the mean over values of what is
linear in A and B is that by A and B themselves, and with gradient g by them Rubin's (1 + 1 / M) B
has g' V g of them: what V says, neither more nor less, whatever M is.  Draws that are independent
would have (1 + 1 / M) g' V g on average, with M - 1 degrees of freedom of chance.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.items.link_constants import LinkConstants, link_constants
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.kernels.base import keyed_random

#: Standard error of A, in parts of A, beyond which a normal distribution of it would reach 0.
_MOST = 0.2
#: Abilities at which curves are compared, and differences of their expected scores, in parts of the
#: highest score, that are rounding of files.
_NODES, _SAME = np.linspace(-5.0, 5.0, 41), 1e-6
#: Items that are so much nearer to those before the link are those.
_NEARER = 0.5


@dataclass(frozen=True)
class Linked:
    """Links of abilities, with drawn constants."""

    links: tuple[LinkConstants, ...]
    #: (plausible, links, 2)
    drawn: Floats
    #: The link of each ability; -1: none.
    of_ability: tuple[int, ...]

    def moved(self, values: Floats) -> Floats:
        """Values (persons, plausible, abilities) by the constants of each."""
        out = np.array(values)
        for d, k in enumerate(self.of_ability):
            if k >= 0:
                slope, shift = self.drawn[:, k, 0], self.drawn[:, k, 1]
                link = self.links[k]
                out[:, :, d] = slope / link.slope * (values[:, :, d] - link.shift) + shift
        return out

    def errors(self, ability: Floats, weights: Floats) -> Floats:
        """Standard errors (persons, sums) of weighted sums of abilities (persons, abilities).

        A sum moves by A of what abilities of the link give to it, and by B as they count.
        """
        out = np.zeros((len(ability), len(weights)))
        for k, link in enumerate(self.links):
            own = [d for d, of in enumerate(self.of_ability) if of == k]
            (var_a, both), (_, var_b) = link.covariance
            for s, of_sum in enumerate(weights):
                by_a = np.zeros(len(ability))
                for d in own:  # one by one: the same bits in any blocks
                    by_a += of_sum[d] * ((ability[:, d] - link.shift) / link.slope)
                by_b = float(of_sum[own].sum())
                square = by_a * by_a * var_a + 2.0 * by_b * by_a * both + by_b * by_b * var_b
                out[:, s] += np.maximum(square, 0.0)
        return np.sqrt(out)

    def constants(self) -> dict[str, Floats]:
        """The drawn constants of each ability, as results have them; NaN of one without a link."""
        at = np.array([k if k >= 0 else len(self.links) for k in self.of_ability])
        none = np.full((len(self.drawn), 1, 2), np.nan)
        of_each = np.concatenate([self.drawn, none], axis=1)[:, at]
        if len(self.of_ability) == 1:
            of_each = of_each[:, 0]
        return {"link_slope": of_each[..., 0], "link_shift": of_each[..., 1]}

    def attrs(self) -> dict[str, Any]:
        """What a result says of it."""
        return {
            "linking_error": "drawn into the plausible values",
            "linking_error_of": ",".join(dict.fromkeys(link.error for link in self.links)),
        }


def linked(
    given: Any, items: xr.Dataset, n_values: int, of_names: Mapping[str, Sequence[str]]
) -> Linked | None:
    """Links with drawn constants; None if none are ``given``.

    ``of_names`` are the items that are scored by the name of the ability they measure, which is ""
    where there is one ability without a name.

    Raises
    ------
    InputError
        It is no link, one without errors, or one of other items; too few values.
    """
    if given is None:
        return None
    links: list[LinkConstants] = []
    of_ability: list[int] = []
    by_name = _by_name(given, tuple(of_names))
    several = isinstance(given, Mapping) and not isinstance(given, xr.Dataset)
    for name, item_id in of_names.items():
        one = by_name.get(name)
        if one is None:
            of_ability.append(-1)
            continue
        said = f"linking= of {name!r}" if several and name else "linking="
        found = _checked(link_constants(one, said), said)
        _check_items(one, found, items, item_id, said)
        same = [k for k, link in enumerate(links) if _numbers(link) == _numbers(found)]
        of_ability.append(same[0] if same else len(links))
        links += [] if same else [found]
    least = 2 * len(links) + 1
    if n_values < least:
        raise InputError(
            f"linking= is drawn into plausible values, and n_plausible={n_values}: A and B of "
            f"{len(links)} link{'s' * (len(links) > 1)} need {least} values at least, to have "
            f"their covariance; take 10 or more"
        )
    _warn(links, n_values)
    return Linked(tuple(links), _drawn(links, n_values), tuple(of_ability))


def _by_name(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(given, xr.Dataset) or not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    strange = [name for name in given if name not in names]
    if strange or not given:
        there = f"are {listed(names)}" if any(names) else "is one ability: give one link"
        raise InputError(f"linking= names {listed(strange) or 'nothing'}, and there {there}")
    return dict(given)


def _checked(link: LinkConstants, said: str) -> LinkConstants:
    se = float(np.sqrt(link.covariance[0, 0]))
    if not link.covariance.any():
        raise InputError(f"{said} has errors of 0, and nothing is to be drawn: leave it out")
    if se > _MOST * link.slope:
        raise InputError(
            f"{said} has A = {link.slope:.3g} with a standard error of {se:.2g}: above {_MOST:g} A "
            f"a normal distribution of A reaches down to 0, and no value is on a scale; link by "
            f"more items"
        )
    return link


def _numbers(link: LinkConstants) -> tuple[str, ...]:
    return tuple(x.hex() for x in (link.slope, link.shift, *link.covariance.ravel().tolist()))


def _drawn(links: Sequence[LinkConstants], n: int) -> Floats:
    """Constants (values, links, 2) with the covariance of each link, uncorrelated between links.

    They are keyed by the links: whoever is scored by the same one, with as many values, has the
    same draws, with any seed.
    """
    normal = [
        keyed_random.generator(0, "link", *_numbers(link)).standard_normal((n, 2)) for link in links
    ]
    z = np.concatenate(normal, axis=1)
    z, triangle = np.linalg.qr(z - z.mean(axis=0))
    z *= np.sign(np.diag(triangle)) * np.sqrt((n - 1) / (1 + 1 / n))
    out = np.empty((n, len(links), 2))
    for k, link in enumerate(links):
        (var_a, both), (_, var_b) = link.covariance
        se = np.sqrt(var_a)
        by = both / se if se > 0.0 else 0.0
        own = z[:, 2 * k : 2 * k + 2]
        out[:, k, 0] = link.slope + se * own[:, 0]
        rest = np.sqrt(max(var_b - by * by, 0.0))
        out[:, k, 1] = link.shift + by * own[:, 0] + rest * own[:, 1]
        if out[:, k, 0].min() <= 0.0:
            raise InputError(
                f"linking= has A = {link.slope:.3g} with a standard error of {se:.2g}, and of {n} "
                f"draws the least is {out[:, k, 0].min():.2g}: draw fewer values"
            )
    return out


def _warn(links: Sequence[LinkConstants], n: int) -> None:
    """Say what intervals of tables do not know."""
    said = []
    if any(link.error == "delta" for link in links):
        said.append(
            "the link has error='delta', which holds the sample of persons of the calibrations: if "
            "these persons are scored, their sampling error counts twice in tables. "
            "error='jackknife' is that of items alone"
        )
    units = [link.n_units for link in links if link.n_units is not None and link.n_units < n]
    if units:
        said.append(
            f"the link's error is by {min(units)} units, {min(units) - 1} degrees of freedom, and "
            f"tables of {n} values take it as known by {n - 1}: where it is most of the error, "
            f"intervals are too narrow; with n_plausible={max(min(units), 3)} they are not"
        )
    if said:
        warnings.warn("; ".join(said), DataWarning, stacklevel=6)


def _check_items(
    link: xr.Dataset, found: LinkConstants, items: xr.Dataset, item_id: Sequence[str], said: str
) -> None:
    """Stop at items of another scale than the link's, and name those that it does not have."""
    there, known = set(bank_item_ids(link, said)), set(bank_item_ids(items))
    common = tuple(i for i in item_id if i in there and i in known)
    if not common:
        raise InputError(f"{said} has none of the items that are scored: it is of another test")
    given = item_set(items, common)
    on_a = item_set(link, common, what=said, checked=False)
    on_b = on_a.rescaled(found.shift, found.slope)  # back to the scale of bank_b
    most = given.n_categories - 1.0
    apart, from_own = (
        np.abs(given.expected(_NODES) - other.expected(_NODES)).max(axis=1) / most
        for other in (on_a, on_b)
    )
    other = [i for i, d in zip(common, apart, strict=True) if not d <= _SAME]
    if other and np.linalg.norm(from_own) < _NEARER * np.linalg.norm(apart):
        raise InputError(
            f"{said}: the items are on the scale of bank_b, before the link, where abilities are "
            f"not those that its constants move: score by the items of the link (the result of "
            f"irt.link, or the bank of it)"
        )
    notes = []
    if other:
        notes.append(
            f"{len(other)} of {len(item_id)} items have other parameters in the link, by up "
            f"to {apart.max():.2g} of the highest score ({listed(other, 10)}): its error is that "
            f"of their scale only if it is of a calibration of the same persons"
        )
    if lacking := [i for i in item_id if i not in there]:
        notes.append(
            f"{len(lacking)} of {len(item_id)} items are not in the link ({listed(lacking, 10)}): "
            f"abilities by them are moved all the same"
        )
    if notes:
        warnings.warn(f"{said}: {'; '.join(notes)}", DataWarning, stacklevel=6)
