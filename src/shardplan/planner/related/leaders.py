"""The fastest plan so far of every network and every class of memory, while plans are looked at piece by piece."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Place = tuple[int, int, int, int]
"""Family, point, sharding and slot of recomputation: of equally fast plans a search names the first in this order."""


class Leaders:
    """The fastest plan so far, by network and by the smallest capacity in which it fits."""

    def __init__(self, num_networks: int, num_capacities: int) -> None:
        self._shape = num_networks, num_capacities
        self._time = np.full(self._shape, np.inf)
        self._place: dict[tuple[int, int], Place] = {}
        self._limit = np.full((num_networks, num_capacities + 1), np.inf)
        self._limit[:, -1] = -np.inf

    def may_lead(self, bound: NDArray[np.float64], classes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Where plans that take ``bound`` at least could be the fastest of a network and a capacity.

        ``bound``: by network, slot and point; ``classes``: the smallest capacity in which each plan fits, by slot and
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
        """Plans of one kind of sharding: their times by network, slot and point, and their classes."""
        network, row, column = np.nonzero(self.may_lead(times, classes))
        time, group = times[network, row, column], network * self._shape[1] + classes[row, column]
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

    def best(self, network: int, capacity: int) -> Place | None:
        """The fastest plan of a network that fits in a capacity; None where none does."""
        found = [
            (self._time[network, each], self._place[network, each])
            for each in range(capacity + 1)
            if (network, each) in self._place
        ]
        return min(found)[1] if found else None
