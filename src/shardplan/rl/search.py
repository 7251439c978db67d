"""The best of every placement: how the accelerators are split, how each pool is laid out, and which pool waits.

Every placement of one pool has one split, all accelerators for both. Of two pools all splits in whole nodes are
compared: generation is priced for each, and the trainer's plans are searched where the least that they can take leaves
open that the split is the best (:mod:`shardplan.rl.sizes`). Layouts of generation are tried one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, PlanError
from shardplan.base.fields import dataclass, replace
from shardplan.decide.searching import Searches
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.frameworks.defaults import plan_in_stack
from shardplan.rl.engine import Engine, Replica
from shardplan.rl.generation import Generated, RolloutPool
from shardplan.rl.memory import phase_memory
from shardplan.rl.sizes import Trainers
from shardplan.rl.steps import Cycle, PhaseTimes, cycle_of
from shardplan.rl.task import PLACEMENTS, RlTask
from shardplan.rl.trainer import Trained
from shardplan.rl.transfer import EngineFacts, engine_facts, sent_adapters, transfer_time

TENSOR_DEGREES: Final = (1, 2, 4, 8, 16, 32)
PIPELINE_DEGREES: Final = (2, 4)
"""Degrees of a replica that are tried, pipelines where nothing fits without; others can be fixed."""
LEAST_GAIN: Final = 0.01
"""Share of a step by which a split is faster at least that is looked for: less is far below the error of a step."""
PROMISE: Final = 1.07
"""Factor between what a trainer takes at least and what it takes where its number suits model and batch."""
IDLE: Final[Mapping[str, str]] = {"sequence_parallel": "tp", "cp_comm": "cp", "etp": "ep"}
"""Fields of a plan that say nothing where a degree is 1."""
Split = tuple[int, int]
"""Accelerators of the trainer and of generation."""


class NoEngineError(InputError):
    """No engine of the layout that is written fits."""


@dataclass(frozen=True, kw_only=True)
class RlPlan:
    """Both pools of an RL step under a placement."""

    placement: str
    num_train: int
    num_rollout: int
    trained: Trained
    """The trainer's plan and what it takes."""
    pool: RolloutPool
    """The replicas that generate."""
    generated: Generated
    cycle: Cycle
    """The step in phases."""
    trainer_memory: float
    """Of the fullest accelerator while training or while weights are sent, with what the engine holds. [bytes]"""
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


class Move(NamedTuple):
    """A split next to that of a plan."""

    num_train: int
    num_rollout: int
    step_time: float
    """About, by what is known of the trainer there. [s]"""


@dataclass(frozen=True, kw_only=True)
class RlResult:
    """The best plan of every placement, the fastest first."""

    task: RlTask
    plans: tuple[RlPlan, ...]
    refused: dict[str, str]
    """Placements without a plan, with the reason."""
    moves: tuple[Move, ...] = ()
    """One node of the best plan moved to the other pool, either way."""
    num_searches: int = 0
    """Numbers of accelerators for which the trainer was searched."""

    @property
    def best(self) -> RlPlan | None:
        """The fastest plan; None where nothing fits."""
        return self.plans[0] if self.plans else None


def search_rl(task: RlTask, searches: Searches, progress: Callable[[int, int], None] | None = None) -> RlResult:
    """The best plan of every placement of the task. Raises ``InputError`` for what no placement can run.

    The trainer's plans fit at the upper end of their memory band; where none of a placement does, they may not fit.
    """
    kinds = [PlacementSearch(task, searches, have_room=have_room) for have_room in (True, False)]
    found: list[tuple[RlPlan, PlacementSearch]] = []
    refused: dict[str, str] = {}
    for number, placement in enumerate(task.placements):
        if progress is not None:
            progress(number, len(task.placements))
        for kind in kinds:
            best, reason = kind.best(placement)
            if best is not None:
                found.append((best, kind))
                break
        else:
            refused[placement] = reason
    found.sort(key=lambda each: each[0].step_time)
    moves = found[0][1].moves(found[0][0]) if found else ()
    plans, number = tuple(plan for plan, _ in found), sum(kind.trainers.num_searches for kind in kinds)
    return RlResult(task=task, plans=plans, refused=refused, moves=moves, num_searches=number)


class PlacementSearch:
    """What searches of several placements have in common."""

    def __init__(self, task: RlTask, searches: Searches, *, have_room: bool = False) -> None:
        """``have_room``: the trainer's plans fit at the upper end of their memory band too."""
        self.task, self.searches = task, searches
        self.facts: EngineFacts = engine_facts(task.engine)
        self.trainers = Trainers(task, searches, self.facts.asleep, have_room=have_room)
        self.known_pools: dict[tuple[int, bool], list[tuple[RolloutPool, Generated]]] = {}
        self.known_engines: dict[Replica, Engine] = {}

    def best(self, placement: str) -> tuple[RlPlan | None, str]:
        """The fastest plan of a placement, or why there is none."""
        if not PLACEMENTS[placement].two_pools:
            if self.task.are_apart:
                return None, "the pools are on accelerators of their own"
            total = self.task.question.num_accelerators
            return self.at(placement, (total, total))
        splits = list(self._splits())
        if not splits:
            return (
                None,
                f"{self.task.question.num_accelerators} accelerators are one node, which two pools cannot share",
            )
        return self._best_split(placement, splits)

    def moves(self, plan: RlPlan) -> tuple[Move, ...]:
        """One node less and one more for the trainer, as far as searched trainers tell; none where nothing fits."""
        if plan.cycle.shares_pool or self.task.are_apart:
            return ()
        splits = list(self._splits())
        place = splits.index((plan.num_train, plan.num_rollout))
        near = [splits[at] for at in (place - 1, place + 1) if 0 <= at < len(splits)]
        expected = [Move(*split, max(self._least(plan.placement, split, PROMISE), plan.step_time)) for split in near]
        return tuple(each for each in expected if math.isfinite(each.step_time))

    def _splits(self) -> Iterator[Split]:
        """Accelerators of trainer and generation, in whole nodes; halves of one node where there is just one."""
        task, total = self.task, self.task.question.num_accelerators
        if task.num_train is not None and task.num_rollout is not None:
            yield task.num_train, task.num_rollout
            return
        node = min(task.question.cluster.accelerators_per_node, max(total // 2, 1))
        for train in range(node, total, node):
            yield train, total - train

    def written(self, placement: str, split: Split, fields: Mapping[str, Any]) -> RlPlan:
        """Both pools as they are laid out: ``fields`` of the trainer's plan, others as its framework has them.

        Raises ``PlanError`` where the trainer's plan is not valid, ``NoEngineError`` where no engine fits.
        """
        question = replace(self.task.question, num_accelerators=split[0], num_idle=0)
        usual = {name: values[0] for name, values in self.task.packing.framework.plan.items()}
        given = {name: value for name, value in fields.items() if fields.get(IDLE.get(name, ""), 2) != 1}
        if given.get("etp") is None and given.get("ep", 1) != 1:
            given["etp"] = given.get("tp", 1)
        known = {**usual, **given}
        how: Any = {"model": question.model, "job": question.job, "num_accelerators": split[0]}
        plan, _ = plan_in_stack(Plan(**known), self.searches.stack, given={*known, "vp"}, **how)
        if (ranks := plan.tp * plan.cp * plan.pp) > split[0]:
            raise PlanError(
                f"tp {plan.tp} x cp {plan.cp} x pp {plan.pp} = {ranks:,} for {split[0]:,} accelerators",
                rule="tp x cp x pp divides the accelerators",
                hint="lower a degree, or give --gpus N",
            )
        trained = Trained.of(question, plan, self.task.packing)
        pools = self.pools(split[1], shares=not PLACEMENTS[placement].two_pools)
        if not pools:
            raise NoEngineError(
                f"no engine fits on {split[1]:,} accelerators",
                rule="engines share heads evenly, hold the weights and have room for an answer",
                hint="set another rollout tp, or give the engine more memory",
            )
        return self.plan(placement, split, trained, pools[0])

    def _best_split(self, placement: str, splits: list[Split]) -> tuple[RlPlan | None, str]:
        """The best of all splits: trainers of those are searched that may be faster than the best, and by enough.

        What a trainer promises, which is more than the least, decides which is searched next.
        """
        if len(splits) == 1:
            return self.at(placement, splits[0])
        best, reason = None, "no layout of generation fits"
        least = {split: self._least(placement, split) for split in splits}
        promised = {split: self._least(placement, split, PROMISE) for split in splits}
        for split in sorted(splits, key=promised.__getitem__):
            if math.isinf(least[split]) or (best and least[split] >= best.step_time * (1 - LEAST_GAIN)):
                continue
            found, reason = self._beside(placement, split, self.trainers.on(split[0]))
            if found is not None and (best is None or found.step_time < best.step_time):
                best = found
        return best, reason

    def _least(self, placement: str, split: Split, factor: float = 1.0) -> float:
        """What a step of a split takes at least, with what is known of the trainer; infinite where none fits. [s]

        ``factor``: on what a trainer takes at least that was not searched.
        """
        num_train, num_rollout = split
        pools = self.pools(num_rollout, shares=False)
        trains = self.trainers.least(num_train, factor) if pools else math.inf
        if math.isinf(trains):
            return math.inf
        times = [self._times(trains, *each) for each in pools]
        return min(
            cycle_of(placement, each, staleness=self.task.staleness, in_flight=self.task.in_flight).step_time
            for each in times
        )

    def _times(self, trains: float, pool: RolloutPool, generated: Generated) -> PhaseTimes:
        """Phases of a step with two pools, all of the trainer's in one."""
        method = self.task.transfer or self.task.packing.framework.transfer
        return PhaseTimes(
            generation=generated.total,
            steady=generated.prompts + generated.steady,
            reward=self.task.reward_time,
            log_probs=0.0,
            critic=0.0,
            update=trains,
            transfer=transfer_time(method, pool.engine),
        )

    def at(self, placement: str, split: Split) -> tuple[RlPlan | None, str]:
        """The fastest layouts of a split that is the only one, or why there is none."""
        two_pools = PLACEMENTS[placement].two_pools
        return self._beside(
            placement, split, self.trainers.on(split[0], alone=True) if two_pools else self.trainers.shared
        )

    def _beside(self, placement: str, split: Split, trained: Trained | str) -> tuple[RlPlan | None, str]:
        """The fastest layout of generation beside a trainer's plan."""
        num_train, num_rollout = split
        if isinstance(trained, str):
            return None, f"trainer on {num_train:,}: {trained}"
        pools = self.pools(num_rollout, shares=not PLACEMENTS[placement].two_pools)
        if not pools:
            return None, f"no layout of generation fits on {num_rollout:,} accelerators"
        plans = [self.plan(placement, split, trained, each) for each in pools]
        return min(plans, key=lambda each: each.step_time), ""

    def plan(self, placement: str, split: Split, trained: Trained, laid_out: tuple[RolloutPool, Generated]) -> RlPlan:
        """A trainer's plan and a layout of generation under a placement."""
        pool, generated = laid_out
        task, shares = self.task, not PLACEMENTS[placement].two_pools
        method = task.transfer or ("ipc" if shares else task.packing.framework.transfer)
        usable = float(task.question.usable_memory)
        states = _states(trained) if shares else 0.0
        moved = 0.0 if task.states_stay else states
        fresh = min(trained.fresh_bytes, moved)
        left = moved - fresh + (not task.engine_stays) * pool.engine.weights
        switch = self.facts.wake_time / 2 + left / trained.host_rate() if shares else 0.0
        times = replace(
            self._times(trained.update_time, pool, generated),
            log_probs=task.passes * trained.forward_time + task.reference * trained.reference_time,
            critic=task.critic_share * (trained.update_time + trained.forward_time),
            transfer=transfer_time(method, pool.engine, trained),
            sleep=switch,
            wake=switch + fresh / trained.host_rate("fresh_share"),
        )
        return RlPlan(
            placement=placement,
            num_train=split[0],
            num_rollout=split[1],
            trained=trained,
            pool=pool,
            generated=generated,
            cycle=cycle_of(placement, times, staleness=task.staleness, in_flight=task.in_flight),
            trainer_memory=self._memory(trained, pool) if shares else float(trained.priced.peak_memory_bytes),
            usable_memory=usable,
        )

    def _memory(self, trained: Trained, pool: RolloutPool) -> float:
        """What trainer and engine hold of a shared accelerator in the fullest of their phases. [bytes]

        Generation counts where states of the trainer stay beside it: else its share of the memory is what was chosen.
        """
        task = self.task
        stay = {"states_stay": task.states_stay, "engine_stays": task.engine_stays}
        phases = phase_memory(trained.priced, pool.engine, pool.memory, self.facts, **stay)
        return phases.fullest if task.states_stay else max(phases.training, phases.transfer)

    def pools(self, num_rollout: int, *, shares: bool) -> list[tuple[RolloutPool, Generated]]:
        """Layouts of generation on this many accelerators that fit, with what they take."""
        if (num_rollout, shares) not in self.known_pools:
            found: list[tuple[RolloutPool, Generated]] = []
            for pp, most in self._kinds_of_layout():
                found = found or list(self._layouts(num_rollout, pp, most, shares=shares))
            self.known_pools[num_rollout, shares] = found
        return self.known_pools[num_rollout, shares]

    def _engine(self, replica: Replica) -> Engine:
        """The engine of a replica, whose iterations are priced once."""
        task = self.task
        if replica not in self.known_engines:
            self.known_engines[replica] = Engine(
                model=task.question.model,
                cluster=task.generating,
                replica=replica,
                precision=task.rollout_precision,
                cache_precision=task.cache_precision,
                drafts=task.drafts,
                adapters=sent_adapters(task.question, self.facts),
            )
        return self.known_engines[replica]

    def _kinds_of_layout(self) -> Iterator[tuple[int, int]]:
        """Pipeline degrees with the largest tensor degree, each tried where nothing fits under those before it.

        Replicas inside a node come first, those over several nodes after them, pipelines last.
        """
        fixed, domain = self.task.fixed_rollout, self.task.generating.tiers[0].size or 1
        if fixed:
            yield fixed.get("pp", 1), max(TENSOR_DEGREES)
            return
        yield 1, domain
        yield 1, max(TENSOR_DEGREES)
        runs = self.task.packing.framework.runs.get("rollout.pp", ())
        yield from ((pp, domain) for pp in PIPELINE_DEGREES if not runs or str(pp) in runs)

    def _layouts(
        self, num_rollout: int, pp: int, most: int, *, shares: bool
    ) -> Iterator[tuple[RolloutPool, Generated]]:
        task = self.task
        memory = task.generating.accelerator.memory_bytes
        share = task.memory_share or (self.facts.colocated_share if shares else self.facts.awake_share)
        for replica in replicas_of(task, num_rollout, pp, most):
            engine = self._engine(replica)
            pool = RolloutPool(
                engine=engine,
                num_replicas=num_rollout // replica.num_accelerators,
                answers=task.answers,
                memory=share * memory - self.facts.reserved,
                batches=1 + (1 if shares else task.staleness),
            )
            if pool.room >= 1:
                yield pool, pool.generated


def replicas_of(task: RlTask, num_rollout: int, pp: int, most: int) -> Iterator[Replica]:
    """Layouts that share heads, widths and experts evenly, and fill the accelerators."""
    model, fixed = task.question.model, task.fixed_rollout
    setting = Setting.of(model, task.generating, num_rollout, task.question.job)
    for tp in (fixed["tp"],) if "tp" in fixed else [each for each in TENSOR_DEGREES if each <= most]:
        if num_rollout % (tp * pp) or num_rollout // (tp * pp) > task.answers.num_answers:
            continue
        if not shares_evenly(setting, tp):
            continue
        whole = [1] if tp == 1 or not model.is_moe else [1, tp]
        for ep in (fixed["ep"],) if "ep" in fixed else whole:
            if all(number % ep == 0 for number in setting.num_experts):
                yield Replica(tp=tp, pp=pp, ep=ep)


def shares_evenly(setting: Setting, tp: int) -> bool:
    """Whether engines run this degree: heads and widths divide, and key-value heads divide or are repeated."""
    whole = all(number % tp == 0 for number in (*setting.heads, *setting.widths))
    return whole and all(number % tp == 0 or tp % number == 0 for number in setting.kv_heads)


def _states(trained: Trained) -> float:
    """States of the trainer that may leave an accelerator while it generates. [bytes]"""
    memory = trained.priced.memory_of(trained.priced.fullest)
    return float(memory.weights + memory.optimizer)
