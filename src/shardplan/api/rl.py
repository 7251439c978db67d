"""``shardplan.rl``: a step of reinforcement learning, trainer and generation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from shardplan.answers.document import AnswerDocument
from shardplan.answers.rl import rl_document
from shardplan.answers.rl_decisions import rl_decision_document, shown_decision
from shardplan.api.questions import SearchFields
from shardplan.api.saving import AsDocument
from shardplan.ask.names import ClusterLike, ModelLike
from shardplan.ask.rl_forms import RlForm
from shardplan.base.fields import dataclass, described
from shardplan.base.records import field_values
from shardplan.decide.scale import LEAST_GAIN
from shardplan.decide.searching import Progress
from shardplan.inputs.readers.typed import pairs_of
from shardplan.planner import stopping
from shardplan.rl.asked import AskedRl
from shardplan.rl.decisions import (
    FACTOR,
    RlDecision,
    RlLimits,
    after_changes,
    at_sizes,
    elasticities,
    run_within,
)
from shardplan.rl.lengths import Lengths
from shardplan.rl.observed import MeasuredPart, differences
from shardplan.rl.question import RlQuestion, checked_step, read_rl_question
from shardplan.rl.search import RlResult, search_rl


class RlFields(SearchFields, total=False):
    """Further arguments of :func:`rl`: fields of an RL step, and arguments of every function that searches."""

    prompt_tokens: int | str
    framework: str
    backend: str
    algorithm: str
    reference: bool | str
    old_pass: bool | str
    critic: ModelLike
    reward_seconds: float
    updates: int
    pack_tokens: int | str
    placement: str
    staleness: int
    rollout_cluster: ClusterLike
    engine: str
    rollout_precision: str
    cache_precision: str
    speculative: str
    prefix_shared: bool
    transfer: str
    observed: str | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RlDecisionAnswer(AsDocument):
    """The answer to a decision about an RL step. Rows: sizes, changes, parameters or runs."""

    asked: AskedRl
    """The step in question."""
    decision: RlDecision
    given: tuple[str, ...] = ()

    def document(self) -> AnswerDocument:
        """What the command of that name prints."""
        return rl_decision_document(self.asked, self.decision, (*self.given, *self.asked.warnings))


@dataclass(frozen=True, kw_only=True)
class AskedAgain:
    """The question of an RL step, which can be asked again: for other sizes, after changes, and for a whole run."""

    question: RlQuestion
    """The original question."""

    def scale(
        self, sizes: Sequence[int], *, least_gain: float = LEAST_GAIN, progress: Progress | None = None
    ) -> RlDecisionAnswer:
        """The step on several numbers of accelerators, and from where more do not pay. Raises ``InputError``."""
        return self._decision_answer(at_sizes(self.question, sizes, least_gain=least_gain, progress=progress))

    def whatif(
        self, changes: Mapping[str, Any] | Sequence[tuple[str, Any]], *, progress: Progress | None = None
    ) -> RlDecisionAnswer:
        """The step after each change, one after the other: ``whatif({"samples": 16, "memory_bandwidth": "4.8TB/s"})``.

        Names are those of :func:`rl` and of values of the cluster. Raises ``InputError``.
        """
        pairs = [*changes.items()] if isinstance(changes, Mapping) else [*changes]
        return self._decision_answer(after_changes(self.question, pairs, progress=progress))

    def sensitivity(self, *, factor: float = FACTOR, progress: Progress | None = None) -> RlDecisionAnswer:
        """How the step depends on hardware and answers, each divided and multiplied by ``factor``."""
        return self._decision_answer(elasticities(self.question, factor=factor, progress=progress))

    def budget(
        self,
        steps: int | None = None,
        *,
        days: float | None = None,
        num_accelerators: int | None = None,
        money: float | None = None,
        progress: Progress | None = None,
    ) -> RlDecisionAnswer:
        """The fewest accelerators that finish ``steps`` within ``days``, or the fastest run for ``money``.

        Raises ``InputError``.
        """
        limits = RlLimits(steps=steps, days=days, money=money)
        sizes = () if num_accelerators is None else (num_accelerators,)
        return self._decision_answer(run_within(self.question, limits, sizes, progress=progress))

    def _decision_answer(self, decision: RlDecision) -> RlDecisionAnswer:
        return RlDecisionAnswer(asked=self.question.posed(), decision=decision)


def load_rl(path: str | os.PathLike[str]) -> AskedAgain:
    """The question in a file that :func:`rl` or ``shardplan rl ... --json`` wrote. Raises ``InputError``."""
    return AskedAgain(question=read_rl_question(os.fspath(path)))


@dataclass(frozen=True, kw_only=True)
class RlAnswer(RlResult, AskedAgain, AsDocument):
    """The best plan of every placement: :class:`shardplan.rl.search.RlResult`. Rows: the placements."""

    given: tuple[str, ...] = ()
    """Values that replace usual ones, and notes on them."""
    assumptions: tuple[str, ...] = ()
    observed: tuple[MeasuredPart, ...] = ()
    """Measurements."""
    decisions: tuple[RlDecision, ...] = ()
    """The answers to the other questions."""

    def document(self) -> AnswerDocument:
        """What ``shardplan rl`` prints."""
        return rl_document(
            self,
            self.given,
            self.assumptions,
            asked=self.question,
            observed=self.observed,
            decisions=[shown_decision(each) for each in self.decisions],
        )


def rl(
    model: ModelLike,
    cluster: ClusterLike,
    num_accelerators: int | str,
    *,
    prompts: int,
    samples: int,
    response_tokens: str | Lengths,
    progress: Progress | None = None,
    **asked: Unpack[RlFields],
) -> RlAnswer:
    """Plans a step of reinforcement learning: which accelerators train, which generate, and which wait.

    ``rl("qwen3-30b-a3b", "dgx-h100", 32, prompts=64, samples=32, response_tokens="mean=2k,max=4k")``. The trainer's
    plans, the layouts of the engine, the split of the accelerators and their placement are searched.
    ``num_accelerators`` may be ``"64+128"``, trainer and generation. Fields are fixed by pool:
    ``fix={"train.pp": 16, "rollout.tp": 32}``. Fields of the step have the names of the flags of ``shardplan rl``;
    other arguments are those of :func:`search`, without batch and sequence length, which follow from the answers. The
    answer can be asked again: ``answer.scale([16, 32])``, ``answer.budget(1000, days=2)``,
    ``answer.whatif({"samples": 16})``, ``answer.sensitivity()``.

    Raises ``InputError`` for unknown or malformed arguments, and if no placement can run.
    """
    known: dict[str, Any] = {**asked}
    step = {name: known.pop(name) for name in described(RlForm) if name in known}
    step |= {"prompts": prompts, "samples": samples, "response_tokens": response_tokens}
    stop = known.pop("stop", None)
    record = {"model": model, "cluster": cluster, "num_accelerators": num_accelerators, **known}
    return planned(RlQuestion(record=record, step=checked_step(step), stop=stop), progress=progress)


def planned(
    question: RlQuestion,
    given: Sequence[str] = (),
    *,
    besides: Mapping[str, Any] | None = None,
    sizes: Sequence[int] = (),
    progress: Progress | None = None,
) -> RlAnswer:
    """The answer to a question, for every caller. Raises InputError.

    ``besides``: fields of ``RlDecisionForm``, which are decided too, on ``sizes`` if these are given; the plan is
    then that of the largest.
    """

    def between(done: int, of: int) -> None:
        stopping.check(question.stop)
        if progress is not None:
            progress(done, of)

    question = question.on(max(sizes)) if sizes else question
    more = {name: value for name, value in (besides or {}).items() if value}
    changes = pairs_of("--change", more.get("change") or ())
    wants_run = any(more.get(name) is not None for name in ("steps", "days"))
    limits = RlLimits(steps=more.get("steps"), days=more.get("days")) if wants_run else None
    asked, after = question.posed(), question
    for change in changes:
        after = after.changed(*change)
        after.posed()  # refuses wrong fields before the search
    found = search_rl(asked.task, asked.searches, between)
    decisions: list[RlDecision] = []
    known = {asked.task.question.num_accelerators: found}
    if sizes:
        scaled = at_sizes(question, sizes, known=known, progress=between)
        decisions.append(scaled)
        known |= {size: each.result for size, each in zip(sorted(set(sizes)), scaled.variants, strict=True)}
    if changes:
        decisions.append(after_changes(question, changes, known=found, progress=between))
    if more.get("sensitivity"):
        decisions.append(elasticities(question, asked, progress=between))
    if limits is not None:
        here = sizes or (asked.task.question.num_accelerators,)
        decisions.append(run_within(question, limits, here, known=known, progress=between))
    texts, best = question.step.get("observed"), found.best
    return RlAnswer(
        **field_values(RlResult, found),
        question=question,
        given=(*given, *asked.warnings),
        assumptions=asked.assumptions,
        observed=tuple(differences(texts, best)) if texts and best else (),
        decisions=tuple(decisions),
    )
