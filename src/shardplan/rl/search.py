"""The best of every placement: how the accelerators are split, how each pool is laid out, and which pool waits.

Every placement of one pool has one split, all accelerators for both. Of two pools all splits in whole nodes are
compared: the trainer gets faster with more of them and generation slower, so that the best split is where the two meet,
and only splits around it need a search of the trainer's plans. Layouts of generation are tried one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass, replace
from shardplan.base.units import format_bytes
from shardplan.decide.searching import Searches
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.plan_numbers import Setting
from shardplan.rl.engine import Engine, Replica
from shardplan.rl.generation import Generated, Pool
from shardplan.rl.steps import Cycle, PhaseTimes, cycle_of
from shardplan.rl.task import PLACEMENTS, RlTask
from shardplan.rl.trainer import Trained
from shardplan.rl.transfer import HOST_RATE, EngineFacts, engine_facts, transfer_time

TENSOR_DEGREES: Final = (1, 2, 4, 8, 16, 32, 64)
PIPELINE_DEGREES: Final = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class RlPlan:
    """Both pools of an RL step under a placement."""

    placement: str
    num_train: int
    num_rollout: int
    trained: Trained
    """The trainer's plan and what it takes."""
    pool: Pool
    """The replicas that generate."""
    generated: Generated
    cycle: Cycle
    """The step in phases."""
    trainer_memory: float
    """Of the fullest accelerator while training, with what a sleeping engine holds. [bytes]"""
    usable_memory: float
    """What trainer and sleeping engine may fill. [bytes]"""

    @property
    def num_accelerators(self) -> int:
        """Accelerators of both pools."""
        return self.num_train if self.cycle.shares_pool else self.num_train + self.num_rollout

    @property
    def step_time(self) -> float:
        """One RL step. [s]"""
        return self.cycle.step_time

    @property
    def tokens_per_second(self) -> float:
        """Tokens that are trained on in a second, prompts included."""
        return self.pool.answers.tokens / self.step_time


@dataclass(frozen=True, kw_only=True)
class RlResult:
    """The best plan of every placement, the fastest first."""

    task: RlTask
    plans: tuple[RlPlan, ...]
    refused: dict[str, str]
    """Placements without a plan, with the reason."""
    neighbours: tuple[RlPlan, ...] = ()
    """The best plan with one node moved to the other pool, either way."""
    num_searches: int = 0
    """Numbers of accelerators for which the trainer was searched."""

    @property
    def best(self) -> RlPlan | None:
        """The fastest plan; None where nothing fits."""
        return self.plans[0] if self.plans else None


def search_rl(task: RlTask, searches: Searches, progress: Callable[[int, int], None] | None = None) -> RlResult:
    """The best plan of every placement of the task. Raises ``InputError`` for what no placement can run."""
    found = PlacementSearch(task, searches)
    plans: list[RlPlan] = []
    refused: dict[str, str] = {}
    for number, placement in enumerate(task.placements):
        if progress is not None:
            progress(number, len(task.placements))
        best, reason = found.best(placement)
        if best is None:
            refused[placement] = reason
        else:
            plans.append(best)
    plans.sort(key=lambda plan: plan.step_time)
    neighbours = found.neighbours(plans[0]) if plans else ()
    return RlResult(
        task=task, plans=tuple(plans), refused=refused, neighbours=neighbours, num_searches=len(found.known_trainers)
    )


class PlacementSearch:
    """What searches of several placements have in common."""

    def __init__(self, task: RlTask, searches: Searches) -> None:
        self.task, self.searches = task, searches
        self.facts: EngineFacts = engine_facts(task.engine)
        self.known_trainers: dict[int, Trained | str] = {}
        self.known_pools: dict[tuple[int, bool], list[tuple[Pool, Generated]]] = {}

    def best(self, placement: str) -> tuple[RlPlan | None, str]:
        """The fastest plan of a placement, or why there is none."""
        if not PLACEMENTS[placement].two_pools:
            if self._are_apart:
                return None, "the pools are on accelerators of their own"
            total = self.task.question.num_accelerators
            return self._fastest(placement, total, total)
        splits = list(self._splits())
        if not splits:
            return (
                None,
                f"{self.task.question.num_accelerators} accelerators are one node, which two pools cannot share",
            )
        return self._best_split(placement, splits)

    def neighbours(self, plan: RlPlan) -> tuple[RlPlan, ...]:
        """The best plan with one node less and one more for the trainer."""
        if plan.cycle.shares_pool or self._are_apart:
            return ()
        splits = list(self._splits())
        place = splits.index((plan.num_train, plan.num_rollout))
        near = [splits[at] for at in (place - 1, place + 1) if 0 <= at < len(splits)]
        return tuple(each for each in (self._fastest(plan.placement, *split)[0] for split in near) if each)

    @property
    def _are_apart(self) -> bool:
        return self.task.rollout_cluster is not None or self.task.num_rollout is not None

    def _splits(self) -> Iterator[tuple[int, int]]:
        """Accelerators of trainer and generation, in whole nodes; halves of one node where there is just one."""
        task, total = self.task, self.task.question.num_accelerators
        if task.num_train is not None and task.num_rollout is not None:
            yield task.num_train, task.num_rollout
            return
        node = min(task.question.cluster.accelerators_per_node, max(total // 2, 1))
        for train in range(node, total, node):
            yield train, total - train

    def _best_split(self, placement: str, splits: list[tuple[int, int]]) -> tuple[RlPlan | None, str]:
        """Around the split where the two pools meet; in turns, around the least sum."""
        tried: dict[int, RlPlan | None] = {}
        reason = ""

        def plan(place: int) -> RlPlan | None:
            nonlocal reason
            if place not in tried:
                tried[place], why = self._fastest(placement, *splits[place])
                reason = reason or why
            return tried[place]

        def too_small(place: int) -> bool:
            """Whether the trainer should get more: it is the slower pool, or does not fit."""
            found = plan(place)
            return found is None or found.cycle.busy("trainer") > found.cycle.busy("rollout")

        low, high = 0, len(splits) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if too_small(middle) else (low, middle)
        around = [place for place in range(low - 1, high + 2) if 0 <= place < len(splits)]
        found = [each for each in map(plan, around) if each is not None]
        found += [each for each in tried.values() if each is not None]
        return min(found, key=lambda each: each.step_time, default=None), reason

    def _fastest(self, placement: str, num_train: int, num_rollout: int) -> tuple[RlPlan | None, str]:
        """The fastest layout of generation beside the trainer's plan."""
        trained = self._trained(num_train)
        if isinstance(trained, str):
            return None, f"trainer on {num_train:,}: {trained}"
        shares = not PLACEMENTS[placement].two_pools
        pools = self._pools(num_rollout, shares=shares)
        if not pools:
            return None, f"no layout of generation fits on {num_rollout:,} accelerators"
        plans = [self.plan(placement, (num_train, num_rollout), trained, each) for each in pools]
        best = min(plans, key=lambda each: each.step_time)
        if best.trainer_memory > best.usable_memory:
            over = format_bytes(best.trainer_memory - best.usable_memory)
            return None, f"trainer and sleeping engine need {over} more than an accelerator has"
        return best, ""

    def plan(
        self, placement: str, split: tuple[int, int], trained: Trained, laid_out: tuple[Pool, Generated]
    ) -> RlPlan:
        """A trainer's plan and a layout of generation under a placement."""
        pool, generated = laid_out
        task, shares = self.task, not PLACEMENTS[placement].two_pools
        method = task.transfer or ("ipc" if shares else "sharded")
        usable = float(trained.priced.question.usable_memory)
        moved = _moved_away(trained) if shares else 0.0
        times = PhaseTimes(
            generation=generated.total,
            steady=generated.prompts + generated.steady,
            reward=task.reward_time,
            log_probs=task.passes * trained.forward_time,
            critic=0.0 if task.critic is None else task.critic_share * (trained.update_time + trained.forward_time),
            update=trained.update_time,
            transfer=transfer_time(method, pool.engine),
            switch=self.facts.wake_time + 2 * moved / HOST_RATE if shares else 0.0,
        )
        return RlPlan(
            placement=placement,
            num_train=split[0],
            num_rollout=split[1],
            trained=trained,
            pool=pool,
            generated=generated,
            cycle=cycle_of(placement, times, staleness=task.staleness, in_flight=task.in_flight),
            trainer_memory=trained.priced.peak_memory_bytes + (self.facts.asleep if shares else 0.0),
            usable_memory=usable,
        )

    def _trained(self, num_accelerators: int) -> Trained | str:
        """The trainer's plan on this many accelerators, or why there is none."""
        if num_accelerators not in self.known_trainers:
            self.known_trainers[num_accelerators] = self._search_trainer(num_accelerators)
        return self.known_trainers[num_accelerators]

    def _search_trainer(self, num_accelerators: int) -> Trained | str:
        packing = self.task.packing
        question = replace(self.task.question, num_accelerators=num_accelerators, num_idle=0)
        near = 2 ** math.floor(math.log2(max(packing.packs / 8, 1.0)))
        asked = packing.asked(question, dp=near)
        answered = self.searches.answer(asked)
        taken: Estimate | None = answered.estimate
        if taken is None:
            return answered.reason or "no plan fits"
        try:
            return Trained.of(question, taken.plan, packing)
        except ShardplanError as error:
            return error.message

    def _pools(self, num_rollout: int, *, shares: bool) -> list[tuple[Pool, Generated]]:
        """Layouts of generation on this many accelerators that fit, with what they take."""
        if (num_rollout, shares) not in self.known_pools:
            self.known_pools[num_rollout, shares] = list(self._layouts(num_rollout, shares=shares))
        return self.known_pools[num_rollout, shares]

    def _layouts(self, num_rollout: int, *, shares: bool) -> Iterator[tuple[Pool, Generated]]:
        task = self.task
        memory = task.generating.accelerator.memory_bytes
        share = self.facts.colocated_share if shares else self.facts.awake_share
        for replica in replicas_of(task, num_rollout):
            engine = Engine(
                model=task.question.model,
                cluster=task.generating,
                replica=replica,
                precision=task.rollout_precision,
                cache_precision=task.cache_precision,
                drafts=task.drafts,
            )
            pool = Pool(
                engine=engine,
                num_replicas=num_rollout // replica.num_accelerators,
                answers=task.answers,
                memory=share * memory - self.facts.reserved,
                batches=1 + task.staleness,
            )
            if pool.room >= 1:
                yield pool, pool.generated


def replicas_of(task: RlTask, num_rollout: int) -> Iterator[Replica]:
    """Layouts that share heads, widths and experts evenly, and fill the accelerators."""
    model, fixed = task.question.model, task.fixed_rollout
    setting = Setting.of(model, task.generating, num_rollout, task.question.job)
    for pp in (fixed["pp"],) if "pp" in fixed else PIPELINE_DEGREES:
        for tp in (fixed["tp"],) if "tp" in fixed else TENSOR_DEGREES:
            if num_rollout % (tp * pp) or num_rollout // (tp * pp) > task.answers.num_answers:
                continue
            if not _shares_evenly(setting, tp):
                continue
            whole = [1] if tp == 1 or not model.is_moe else [1, tp]
            for ep in (fixed["ep"],) if "ep" in fixed else whole:
                if all(number % ep == 0 for number in setting.num_experts):
                    yield Replica(tp=tp, pp=pp, ep=ep)


def _shares_evenly(setting: Setting, tp: int) -> bool:
    """Whether engines run this degree: heads and widths divide, and key-value heads divide or are repeated."""
    whole = all(number % tp == 0 for number in (*setting.heads, *setting.widths))
    return whole and all(number % tp == 0 or tp % number == 0 for number in setting.kv_heads)


def _moved_away(trained: Trained) -> float:
    """States of the trainer that leave an accelerator while it generates. [bytes]"""
    memory = trained.priced.memory_of(trained.priced.fullest)
    return float(memory.weights + memory.optimizer)
