r"""The trainer's plans on any number of accelerators, and what they take at least before they are searched.

All accelerators are searched first, whatever software is declared; on fewer of them plans run the software of the best
plans there. With many more sequences than a step has, bubbles and what is exchanged once a step count for nothing: by
accelerator and sequence no plan takes less than the best plan of such a batch on all accelerators, c seconds. So k
sequences take on n accelerators

.. math:: T(n) \ge k\,c / n
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final, NamedTuple

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import replace
from shardplan.decide.searching import Searches
from shardplan.estimation.estimate import price_plans
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.plan import Plan
from shardplan.planner.priced_plans import roomy_memory
from shardplan.planner.ranking import DIFFERENCES, different_cells
from shardplan.planner.related.counts import can_fit
from shardplan.planner.space import INNER
from shardplan.planner.stopping import SearchStopped
from shardplan.planner.survey import Listing
from shardplan.rl.task import RlTask
from shardplan.rl.trainer import Trained

NEAR: Final = 6
"""Plans of the trainer that are compared with as many sequences as each needs; parts run software of half of them."""
NEAR_ON_PART: Final = 4
"""The same on a part of the accelerators."""
MORE: Final = 4
"""Times as many are found first."""
MANY_SEQUENCES: Final = 32
"""Factor by which a batch is larger whose plans bound those of a step."""


class Efficiency(NamedTuple):
    """What plans take at least. [accelerator-seconds of a sequence]"""

    step: float
    """An optimizer step."""
    forward: float
    """A pass without gradients."""


class Trainers:
    """The trainer's plans by number of accelerators, each searched when it is asked for."""

    def __init__(self, task: RlTask, searches: Searches, asleep: float, *, have_room: bool = False) -> None:
        """``asleep``: what a sleeping engine holds of an accelerator that it shares. [bytes]

        ``have_room``: plans fit at the upper end of the band of their memory too.
        """
        self._task, self._searches, self._asleep, self._have_room = task, searches, asleep, have_room
        self.known: dict[int, Trained | str] = {}

    @property
    def num_searches(self) -> int:
        """Numbers of accelerators for which all plans were searched."""
        return len(self.known) + ("_first" in self.__dict__)

    def time(self, trained: Trained) -> float:
        """What the trainer takes for a step. [s]"""
        swapped = self._task.reference * trained.reference_time
        return self._total(trained.update_time, trained.forward_time) + swapped

    def _total(self, update: float, forward: float) -> float:
        """Optimizer steps, passes without gradients, and both of a critic. [s]"""
        task = self._task
        return task.passes * forward + update + task.critic_share * (update + forward)

    def least(self, num_accelerators: int, factor: float = 1.0) -> float:
        """What a step takes at least on this many accelerators, times a factor; exact where it was searched. [s]"""
        if num_accelerators in self.known:
            known = self.known[num_accelerators]
            return math.inf if isinstance(known, str) else self.time(known)
        bound, packing = self._efficiency, self._task.packing
        each = packing.updates * packing.packs / num_accelerators
        return factor * self._total(packing.epochs * each * bound.step, each * bound.forward)

    @property
    def shared(self) -> Trained | str:
        """The best plan on all accelerators, with a sleeping engine on each, or why there is none."""
        return self._best(self._everywhere, self._first)

    def on(self, num_accelerators: int, *, alone: bool = False) -> Trained | str:
        """The best plan on this number, or why there is none. ``alone``: whether no other number will be asked for."""
        if num_accelerators not in self.known:
            question = replace(self._task.question, num_accelerators=num_accelerators, num_idle=0)
            searches = self._searches if alone else self._of_software
            self.known[num_accelerators] = self._best(question, self._plans(searches, question, NEAR_ON_PART))
        return self.known[num_accelerators]

    def _best(self, question: Question, plans: list[Plan] | str) -> Trained | str:
        """The fastest of some plans, each with the sequences that it needs."""
        if isinstance(plans, str):
            return plans
        found = [each for each in Trained.of_all(question, plans, self._task.packing) if each.fits]
        return min(found, key=self.time, default="no plan fits")

    def asked(self, question: Question) -> Question:
        """An optimizer step with a sequence more for each replica than a plan may need."""
        packing, number = self._task.packing, question.num_accelerators
        return packing.asked(question, math.ceil(packing.packs / number - 1e-9) * number)

    @staticmethod
    def _fastest(searches: Searches, asked: Question, most: int) -> tuple[list[Plan], list[float]] | str:
        """The fastest plans that differ in degrees or micro-batch, with their steps, or why there is none."""
        try:
            if not can_fit(asked, searches):
                return f"the states of {asked.model.name} alone need more memory"
            survey = searches.survey(asked, Listing(most))
        except SearchStopped:
            raise
        except ShardplanError as error:
            return error.message
        cells = different_cells(survey.tables, MORE * most, DIFFERENCES[1:2])
        if not cells:
            return f"none of {survey.num_evaluated + survey.num_pruned:,} valid plans fits in memory"
        return survey.plans(cells), [cell.value for cell in cells]

    def _plans(self, searches: Searches, question: Question, most: int) -> list[Plan] | str:
        """The fastest plans, each with as many sequences as it needs, or why there is none."""
        asked, batch = self.asked(self._with_room(question)), self._task.packing.batch_of
        found = self._fastest(searches, asked, most)
        if isinstance(found, str):
            return found
        plans, steps = found
        times = [step * batch(plan, asked.num_accelerators) for plan, step in zip(plans, steps, strict=True)]
        return [plans[number] for number in sorted(range(len(plans)), key=times.__getitem__)[:most]]

    def _with_room(self, question: Question) -> Question:
        """The question that a trainer's plan has to fit."""
        if not self._have_room:
            return question
        taken = float(question.usable_memory) - roomy_memory(question)
        return replace(question, cluster=_with_less_memory(question.cluster, taken))

    @property
    def _everywhere(self) -> Question:
        """All accelerators, with a sleeping engine on each where a placement shares them."""
        question, shares = self._task.question, self._task.may_share
        cluster = _with_less_memory(question.cluster, self._asleep) if shares else question.cluster
        return replace(question, num_idle=0, cluster=cluster)

    @cached_property
    def _first(self) -> list[Plan] | str:
        return self._plans(self._searches, self._everywhere, NEAR)

    @cached_property
    def _of_software(self) -> Searches:
        """Searches of the software alone that the best plans on all accelerators run."""
        if isinstance(self._first, str):
            return self._searches
        fields = (name for name in self._searches.space(self.asked(self._everywhere)).axes if name not in INNER)
        given = {name: [*{getattr(plan, name): None for plan in self._first[: NEAR // 2]}] for name in fields}
        fixed = self._searches.fix
        return self._searches.limiting(**{name: values for name, values in given.items() if name not in fixed})

    @cached_property
    def _efficiency(self) -> Efficiency:
        """What no plan of a part of the accelerators takes less than; nothing where no plan is found."""
        question, packing = self._with_room(replace(self._task.question, num_idle=0)), self._task.packing
        number = question.num_accelerators
        batch = number * 2 ** math.ceil(math.log2(max(packing.packs / number, 1.0))) * MANY_SEQUENCES
        asked = packing.asked(question, batch)
        found = self._fastest(self._of_software, asked, 1)
        if isinstance(found, str):
            return Efficiency(0.0, 0.0)
        best, each = Trained(priced=price_plans(asked, found[0][:1])[0], packing=packing), number / batch
        return Efficiency(best.priced.step_time * each, best.forward_time * each / packing.updates)


def _with_less_memory(cluster: Cluster, taken: float) -> Cluster:
    """The cluster with accelerators of which another program holds some memory. [bytes]"""
    part = cluster.accelerator
    return replace(cluster, accelerator=replace(part, memory_bytes=max(part.memory_bytes - taken, 1.0)))
