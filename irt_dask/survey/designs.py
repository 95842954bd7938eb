"""The replicate weights that options of a command, or keys of a file, ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from irt_dask.errors import InputError
from irt_dask.survey.replicates import OF_ZONES, Replicates


@dataclass(frozen=True)
class Design:
    """What a table may say of its replicate weights: a preset, columns of them, or of units."""

    preset: str | None = None
    replicates: Sequence[str] = field(default_factory=list)
    method: str | None = None
    fay: float | None = None
    scale: float | Sequence[float] | None = None
    units: str | None = None
    strata: str | None = None
    zone: str | None = None
    unit: str | None = None

    def replicate_weights(self, name: Callable[[str], str]) -> Replicates | None:
        """The replicate weights, None where nothing is said; `name` is how one writes a field."""
        if self.strata and not self.units:
            raise InputError(f"{name('strata')} are those of {name('units')}, which there are none")
        if self.preset:
            self._alone(name, "preset", "says all of their design", "preset")
            return Replicates.preset(self.preset)
        made = "makes replicate weights"
        if self.units:
            self._alone(name, "units", made, "units", "strata", "method")
            own = "jk1" if self.strata is None else "jkn"
            if self.method not in (None, own):
                raise InputError(
                    f"{name('method')} {self.method}: of {name('units')} it is jk1, and with "
                    f"{name('strata')} jkn, as follows without {name('method')}"
                )
            return Replicates.from_units(self.units, self.strata)
        if self.zone or self.unit:
            self._alone(name, "zone", made, "zone", "unit", "method", "fay")
            if not (self.zone and self.unit and self.method):
                raise InputError(
                    f"{name('zone')}, {name('unit')} and {name('method')} ({', '.join(OF_ZONES)}) "
                    f"belong together"
                )
            return Replicates.from_zones(self.method, self.zone, self.unit, fay=self.fay)
        if bool(self.replicates) != bool(self.method):
            raise InputError(f"{name('replicates')} and {name('method')} belong together")
        if self.method:
            of = list(self.replicates)
            return Replicates(self.method, of, fay=self.fay, scale=self.scale)
        if self.fay is not None or self.scale is not None:
            raise InputError(
                f"{name('fay')} and {name('scale')} are of a {name('method')}, which is not given"
            )
        return None

    def _alone(self, name: Callable[[str], str], one: str, why: str, *allowed: str) -> None:
        """Refuse what is said beside one way to say it."""
        more = [name(k) for k, v in vars(self).items() if v not in (None, "", [], ()) and
                k not in allowed]  # fmt: skip
        if more:
            raise InputError(f"{name(one)} {why}: leave out {', '.join(more)}")
