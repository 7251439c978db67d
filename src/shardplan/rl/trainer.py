r"""What the trainer's pool takes: forward passes for log-probabilities, and optimizer steps over packed answers.

Answers are packed into sequences of a fixed length; of n such sequences in an optimizer step every replica has
:math:`\lceil n / dp \rceil`. A pass without gradients is the forward part of the plan's own step: micro-batches go
through the stages one after the other, :math:`(m - 1) \max_i f_i + \sum_i f_i`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from shardplan.base.fields import dataclass, replace
from shardplan.estimation.estimate import Estimate, estimates_of, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.pricing import num_logits, num_trained_parameters
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.physics.costs.collectives import collective_time, sharding_groups
from shardplan.physics.costs.host import exposed
from shardplan.rl.engine import constant, num_tensors
from shardplan.rl.generation import Responses
from shardplan.rl.programs import Framework, ProgramFacts

MOST_PACKED: Final = 512
"""Answers of which the packing is worked out; of more it is much the same."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How the answers of an RL step become sequences of the trainer."""

    answers: Responses
    pack_tokens: int
    """Tokens of a packed sequence."""
    updates: int
    """Optimizer steps of an RL step."""
    pass_packs: float = 1.0
    """Packed sequences of a micro-batch in passes without gradients, for one in training."""
    shared_prompts: bool = False
    """Whether a prompt is trained once for all its answers (shared-prefix attention)."""
    padded: float = 0.0
    """Tokens to which every answer with its prompt is filled up; 0: none is. [tokens]"""
    whole: bool = False
    """Whether micro-batches hold a number of answers, so that the longest may have more tokens than ``pack_tokens``."""
    epochs: int = 1
    """Times that every answer is trained on."""
    framework: Framework = Framework()
    """What runs the trainer, and may do more than its kernels."""

    @property
    def tokens(self) -> float:
        """Tokens that an RL step trains on."""
        answers = self.answers
        if self.padded:
            return answers.num_answers * self.padded
        again = answers.prompt_tokens * (answers.num_answers - answers.prompts) if self.shared_prompts else 0.0
        return answers.tokens - again

    @property
    def packs(self) -> float:
        """Packed sequences of an optimizer step."""
        return max(self.tokens / self.updates / self.pack_tokens, 1e-9)

    @cached_property
    def filled(self) -> float:
        """Share of a packed sequence that answers fill, the longest first into the first that has room for them."""
        lengths, count = self.answers.lengths, min(math.ceil(self.answers.num_answers / self.updates), MOST_PACKED)
        ended = [1 - lengths.longer_than(tokens) for tokens in lengths.edges]
        found = np.interp((np.arange(count) + 0.5) / count, ended, lengths.edges) + self.answers.prompt_tokens
        left: list[float] = []
        for length in np.minimum(found, self.pack_tokens)[::-1]:
            place = next((at for at, room in enumerate(left) if room >= length), None)
            if place is None:
                left.append(self.pack_tokens - length)
            else:
                left[place] -= length
        return 1 - sum(left[:-1]) / self.pack_tokens / max(len(left) - 1, 1)

    @property
    def around(self) -> ProgramFacts:
        """What the program does around the trainer."""
        return self.framework.facts or ProgramFacts()

    def batch(self, dp: int, micro_batch_size: int = 1, group: int = 1, *, padded: bool = False) -> int:
        """Sequences of an optimizer step: as many on every replica, in whole groups of micro-batches.

        ``padded``: stages of a pipeline exchange tensors of one shape, so that what answers do not fill is computed.
        """
        packs = self.packs / self.filled if padded else self.packs
        each = math.ceil(packs / dp / micro_batch_size / group - 1e-9)
        return max(each, 1) * group * dp * micro_batch_size

    def batch_of(self, plan: Plan, num_accelerators: int) -> int:
        """Sequences of an optimizer step of a plan."""
        group = plan.microbatch_group_size or plan.pp if plan.vp > 1 else 1
        return self.batch(plan.dp(num_accelerators), plan.micro_batch_size, group, padded=plan.pp > 1)

    @property
    def documents(self) -> tuple[int, ...] | None:
        """Mean length of the answers with their prompts in a packed sequence; None where one fills it."""
        mean = round(self.padded or self.answers.prompt_tokens + self.answers.lengths.mean)
        return (max(mean, 1),) if mean < self.pack_tokens else None

    def asked(self, question: Question, batch: int) -> Question:
        """The question of an optimizer step of this many sequences.

        Log-probabilities need logits in fp32 and a softmax of several kernels, where a fused loss of training needs
        neither, but for programs that have a kernel of their own for them.
        """
        software = question.job.software
        if self.around.fused_loss:
            software = replace(software, loss_kernel="single")
        elif software.loss_kernel in ("single", "compiled"):
            software = replace(software, loss_kernel="in_place")
        job = replace(
            question.job,
            software=software,
            sequence_length=self.pack_tokens,
            global_batch_size=batch,
            documents=self.documents,
        )
        return replace(question, job=job)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A plan of the trainer, with what each of its parts takes in an RL step."""

    priced: PricedPlan
    packing: Packing

    @classmethod
    def of(cls, question: Question, plan: Plan, packing: Packing) -> Trained:
        """``plan`` with as many sequences as it needs for the answers. Raises ``PlanError`` where it is not valid."""
        return cls.of_all(question, [plan], packing)[0]

    @classmethod
    def of_all(cls, question: Question, plans: Sequence[Plan], packing: Packing) -> list[Trained]:
        """As ``of``, of several plans; those with as many sequences are priced together."""
        by_batch: dict[int, list[Plan]] = {}
        for plan in plans:
            by_batch.setdefault(packing.batch_of(plan, question.num_accelerators), []).append(plan)
        priced = (price_plans(packing.asked(question, batch), alike) for batch, alike in by_batch.items())
        return [cls(priced=each, packing=packing) for alike in priced for each in alike]

    @cached_property
    def estimate(self) -> Estimate:
        """The full answer for one optimizer step."""
        (found,) = estimates_of(self.priced.question, [self.priced])
        return found

    @property
    def update_time(self) -> float:
        """All optimizer steps of an RL step. [s]"""
        return self.packing.epochs * self.packing.updates * self.priced.step_time + self.around_update

    @property
    def around_update(self) -> float:
        """What the program adds to the kernels of all optimizer steps. [s]"""
        facts, packing = self.packing.around, self.packing
        each = self._loss_time + self.state_time
        return packing.epochs * packing.updates * each + self.sending_time(facts.sent_bytes + facts.sent_more)

    @property
    def around_pass(self) -> float:
        """What it adds to a pass without gradients. [s]"""
        moved = self.packing.updates * self._num_microbatches * self.packing.around.pass_bytes * self._logits
        return moved / self._memory_rate + self.sending_time(self.packing.around.sent_bytes)

    def sending_time(self, token_bytes: float) -> float:
        """Until the driver has sent all answers, each padded to the longest. [s]"""
        answers, priced = self.packing.answers, self.priced
        if not token_bytes:
            return 0.0
        tokens = answers.num_answers * (answers.prompt_tokens + answers.lengths.longest_of(answers.num_answers))
        ranks = 1 if self.packing.around.sent_once else priced.question.num_accelerators / float(priced.numbers.dp)
        packed = answers.num_answers * constant("packing_time")
        return packed + ranks * tokens * token_bytes / constant("pickle_rate")

    @property
    def state_time(self) -> float:
        """What no layer hides of the exchanges of FSDP2, and a loop over tensors, of an optimizer step. [s]"""
        question = self.priced.question
        shown = (1 - question.profile.hidden_slowdown) * sum(self._fsdp_times[1:]) * self._num_microbatches
        return float(shown) + self.packing.around.loops * num_tensors(question.model) * constant("tensor_time")

    @cached_property
    def _fsdp_times(self) -> list[float]:
        """With FSDP2, gathers of layers and of the tables around them, and the sum of the tables' gradients. [s]"""
        question, numbers = self.priced.question, self.priced.numbers
        if self.packing.framework.backend != "fsdp":
            return [0.0, 0.0, 0.0]
        model, weight = question.model, question.job.gathered_weight_bytes / float(numbers.tp)
        table = (1 if model.tie_word_embeddings else 2) * model.vocab_size * model.hidden_size
        group, reduced = sharding_groups(numbers, question.network)["shard"], question.job.reduced_gradient_bytes
        gathered = [(num_trained_parameters(question) - table) * weight, table * weight]
        times = [collective_time("all_gather", size, group, question.network) for size in gathered]
        times.append(collective_time("reduce_scatter", table * reduced / float(numbers.tp), group, question.network))
        return [float(time) for time in times]

    @property
    def _loss_time(self) -> float:
        """What the last stage takes longer for the losses of an optimizer step; all others wait for it. [s]"""
        facts, packing = self.packing.around, self.packing
        answers = packing.answers.num_answers / packing.updates / float(self.priced.numbers.dp)
        each = facts.answer_bytes * self._logits / self._memory_rate + facts.answer_time
        return answers * each + self._num_microbatches * facts.loss_bytes * self._logits / self._memory_rate

    @property
    def reference_time(self) -> float:
        """Weights of the reference in place of the policy's, and back. [s]"""
        memory = self.priced.memory_of(self.priced.fullest)
        return self.packing.around.swaps * float(memory.weights) / self.host_rate()

    def host_rate(self, share: str = "host_share") -> float:
        """Bytes a second that an accelerator moves to its host while all others of its node do."""
        link = self.priced.question.cluster.accelerator.host_link_bandwidth or constant("host_link")
        return constant(share) * link

    @property
    def fresh_bytes(self) -> float:
        """Optimizer states of an accelerator that go to newly allocated memory of its host at each move. [bytes]"""
        question = self.priced.question
        return self.packing.around.fresh_bytes * num_trained_parameters(question) / question.num_accelerators

    @property
    def _logits(self) -> float:
        """Of a micro-batch on an accelerator."""
        return float(num_logits(self.priced.question, self.priced.numbers))

    @property
    def _memory_rate(self) -> float:
        return float(self.priced.question.machine.memory_rate)

    @property
    def _num_microbatches(self) -> float:
        """Of an optimizer step, on a replica."""
        return float(self.priced.numbers.num_microbatches)

    @cached_property
    def forward_time(self) -> float:
        """One pass over all answers without gradients. [s]"""
        (times,) = self.priced.columns.step.work.times
        each = self.priced.columns.of_stages(times.forward + times.between / 2, self.priced.number)
        size = self.packing.pass_packs
        number = self.packing.updates * self._num_microbatches / size
        fixed = self.priced.once_a_step.fixed
        passed = size * float(max(number - 1, 0) * np.max(each) + np.sum(each)) + sum(fixed.values())
        question, (layers, table, _) = self.priced.question, self._fsdp_times
        weights = num_trained_parameters(question) / float(self.priced.numbers.tp) if table else 0.0
        gathered = float(exposed(layers, size * np.max(each), question.profile)) + table
        copied = 2 * weights * question.job.gathered_weight_bytes / self._memory_rate  # out of the buffer
        return passed + number * (gathered + copied) + self.around_pass

    @property
    def fits(self) -> bool:
        """Whether an optimizer step fits."""
        return self.priced.fits
