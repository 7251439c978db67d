"""The fastest plan so far of every system and every class of memory, while plans are looked at piece by piece."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Place = tuple[int, int, int, int]
"""Family, point, sharding and slot of recomputation: of equally fast plans a search names the first in this order."""


class Leaders:
    """The fastest plan so far, by system and by the smallest capacity in which it fits."""

    def __init__(self, num_systems: int, num_capacities: int) -> None:
        self._shape = num_systems, num_capacities
        self._time = np.full(self._shape, np.inf)
        self._place: dict[tuple[int, int], Place] = {}
        self._limit = np.full((num_systems, num_capacities + 1), np.inf)
        self._limit[:, -1] = -np.inf

    def may_lead(self, bound: NDArray[np.float64], classes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Where plans that take ``bound`` at least could be the fastest of a system and a capacity.

        ``bound``: by system, slot and point; ``classes``: the smallest capacity in which each plan fits, by slot and
        point, and the number of capacities where it fits none. [s]
        """
        flags: NDArray[np.bool_] = bound <= self._limit[:, classes]
        return flags

    def look_at(
        self,
        times: NDArray[np.float64],
        classes: NDArray[np.intp],
        *,
        family: int,
        sharding: int,
        slots: NDArray[np.intp],
        points: NDArray[np.intp],
    ) -> None:
        """Plans of one kind of sharding: their times by system, slot and point, and their classes."""
        system, row, column = np.nonzero(self.may_lead(times, classes))
        time, group = times[system, row, column], system * self._shape[1] + classes[row, column]
        least = self._time.ravel().copy()
        np.minimum.at(least, group, time)
        best = np.flatnonzero(time == least[group])
        order = best[np.lexsort((slots[row[best]], points[column[best]], group[best]))]
        first = order[np.unique(group[order], return_index=True)[1]]
        for each in first.tolist():
            place = (family, int(points[column[each]]), sharding, int(slots[row[each]]))
            self._offer(divmod(int(group[each]), self._shape[1]), float(time[each]), place)
        self._limit[:, :-1] = np.minimum.accumulate(self._time, axis=1)

    def _offer(self, group: tuple[int, int], time: float, place: Place) -> None:
        if (time, place) < (float(self._time[group]), self._place.get(group, place)) or group not in self._place:
            self._time[group], self._place[group] = time, place

    def best(self, system: int, capacity: int) -> Place | None:
        """The fastest plan of a system that fits in a capacity; None where none does."""
        found = [
            (self._time[system, each], self._place[system, each])
            for each in range(capacity + 1)
            if (system, each) in self._place
        ]
        return min(found)[1] if found else None
