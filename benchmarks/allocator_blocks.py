"""What PyTorch's allocator reserves beyond the tensors that live, where logits are large: its blocks, one by one.

    python benchmarks/allocator_blocks.py    some seconds

The allocator without growing segments (``CUDACachingAllocator.cpp``): a request above 1 MiB takes the smallest free
block that is large enough and splits it, or a new segment of its size in whole 2 MiB; blocks that are given back join
their free neighbours, and segments stay. Four micro-batches of the last stage of Aleph Alpha Scaling run through it
(attention.py, rms_norm.py, lm_head.py, losses/cross_entropy.py of commit 737f855): its layers, the logits that
tensor-parallel ranks gather, the fp32 steps of the loss, and the buffers that keep 16-bit logits of two micro-batches.
What is reserved beyond the most that lives, in bytes per logit, is part of ``logits_bytes`` (medians: 4 for one
tensor-parallel rank, 6.5 for more). The last columns are those of unfused attention, whose scores take blocks that the
logits cannot use: they say why such runs ended out of memory whose tensors would have fitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from shardplan.base.fields import dataclass, replace

MIB: Final = 2**20
LEAST, SMALL_SEGMENT, STEP = MIB, 20 * MIB, 2 * MIB
NUM_MICROBATCHES = 4
FP32 = 4


class Block:
    """A part of a segment; neighbours on either side are of the same segment."""

    def __init__(self, size: int, place: tuple[int, int]) -> None:
        self.size, self.place = size, place
        self.before: Block | None = None
        self.behind: Block | None = None
        self.free = True


class Allocator:
    """Bytes that live and that are reserved, with the most of each."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.living = self.reserved = self.most_living = self.num_segments = 0

    def take(self, size: float) -> Block:
        """A block for a tensor of ``size`` bytes."""
        wanted = max(-(-int(size) // 512) * 512, LEAST + 512)
        fitting = [block for block in self.blocks if block.size >= wanted]
        block = min(fitting, key=lambda each: (each.size, each.place)) if fitting else self._segment(wanted)
        if fitting:
            self.blocks.remove(block)
        self._split(block, wanted)
        block.free = False
        self.living += block.size
        self.most_living = max(self.most_living, self.living)
        return block

    def give(self, *blocks: Block) -> None:
        """Blocks back, each joined to its free neighbours."""
        for block in blocks:
            self.living -= block.size
            block.free = True
            first = block
            if block.before is not None and block.before.free:
                self.blocks.remove(block.before)
                first = _joined(block.before, block)
            if first.behind is not None and first.behind.free:
                self.blocks.remove(first.behind)
                first = _joined(first, first.behind)
            self.blocks.append(first)

    def _segment(self, wanted: int) -> Block:
        size = SMALL_SEGMENT if wanted < SMALL_SEGMENT // 2 else -(-wanted // STEP) * STEP
        self.reserved += size
        self.num_segments += 1
        return Block(size, (self.num_segments, 0))

    def _split(self, block: Block, wanted: int) -> None:
        if block.size - wanted <= LEAST:
            return
        segment, offset = block.place
        rest = Block(block.size - wanted, (segment, offset + wanted))
        rest.before, rest.behind = block, block.behind
        if block.behind is not None:
            block.behind.before = rest
        block.behind, block.size = rest, wanted
        self.blocks.append(rest)


def _joined(first: Block, second: Block) -> Block:
    first.size, first.behind = first.size + second.size, second.behind
    if second.behind is not None:
        second.behind.before = first
    return first


@dataclass(frozen=True, kw_only=True)
class LastStage:
    """The last stage of a run: Llama 13B of the published layouts unless stated otherwise."""

    tp: int
    num_layers: int
    micro_batch_size: int
    recompute: bool
    is_unfused: bool = False
    """Attention with softmax in fp32, operation by operation."""
    sequence_length: int = 2048
    hidden_size: int = 5120
    intermediate_size: int = 13824
    num_heads: int = 40
    vocab_size: int = 128_000

    @property
    def logits(self) -> int:
        """Of a micro-batch."""
        return self.micro_batch_size * self.sequence_length * self.vocab_size

    def run(self) -> Allocator:
        """Four micro-batches."""
        memory, kept_logits = Allocator(), list[Block]()
        for _ in range(NUM_MICROBATCHES):
            inputs, saved = [memory.take(self._hidden)], list[list[Block]]()
            for _ in range(self.num_layers):
                tensors, output = self._forward(memory)
                if self.recompute:
                    memory.give(*tensors)
                saved.append([] if self.recompute else tensors)
                inputs.append(output)
            gradient = self._loss(memory, kept_logits)
            memory.give(inputs.pop())
            while inputs[1:] or saved:
                tensors = saved.pop()
                if self.recompute:
                    tensors, output = self._forward(memory)
                    memory.give(output)
                gradient = self._backward(memory, tensors, gradient)
                memory.give(inputs.pop())
            memory.give(gradient)
        return memory

    @property
    def _hidden(self) -> int:
        return self.micro_batch_size * self.sequence_length * self.hidden_size * 2

    @property
    def _inner(self) -> int:
        return self.micro_batch_size * self.sequence_length * self.intermediate_size // self.tp * 2

    @property
    def _scores(self) -> int:
        return self.micro_batch_size * self.sequence_length**2 * self.num_heads // self.tp * 2

    def _forward(self, memory: Allocator) -> tuple[list[Block], Block]:
        """A layer: what its backward pass reads, and its output."""
        part = self._hidden // self.tp
        tensors = [*self._norm(memory), memory.take(3 * part), memory.take(part), memory.take(part)]
        if self.is_unfused:
            tensors += self._unfused(memory)
        tensors.append(memory.take(part))
        middle, mask = self._residual(memory)
        tensors += [mask, middle, *self._norm(memory), *(memory.take(self._inner) for _ in range(4))]
        output, mask = self._residual(memory)
        return [*tensors, mask], output

    def _norm(self, memory: Allocator) -> list[Block]:
        """RMSNorm in fp32, operation by operation."""
        copy, square = memory.take(2 * self._hidden), memory.take(2 * self._hidden)
        memory.give(square)
        scaled = memory.take(2 * self._hidden)
        cast = memory.take(self._hidden)
        memory.give(scaled)
        return [copy, cast, memory.take(self._hidden)]

    def _unfused(self, memory: Allocator) -> list[Block]:
        scores = memory.take(self._scores)
        wide = memory.take(2 * self._scores)
        memory.give(scores)
        softmax = memory.take(2 * self._scores)
        memory.give(wide)
        return [softmax, *(memory.take(size) for size in (self._scores, self._scores, self._scores // 2))]

    def _residual(self, memory: Allocator) -> tuple[Block, Block]:
        """Projection, dropout with its mask, and addition."""
        output, dropped, mask = (memory.take(size) for size in (self._hidden, self._hidden, self._hidden // 2))
        memory.give(output)
        added = memory.take(self._hidden)
        memory.give(dropped)
        return added, mask

    def _backward(self, memory: Allocator, tensors: Sequence[Block], gradient: Block) -> Block:
        """A layer: gradients as large as what they are of, each gone with it."""
        passing = memory.take(self._hidden)
        for tensor in reversed(tensors):
            follows = memory.take(tensor.size)
            memory.give(tensor, passing)
            passing = follows
        result = memory.take(self._hidden)
        memory.give(passing, gradient)
        return result

    def _loss(self, memory: Allocator, kept: list[Block]) -> Block:
        """Logits, gathered, and cross entropy in fp32; the gradient of the last layer's output."""
        own = 2 * self.logits // self.tp
        logits = memory.take(own)
        if self.tp > 1:
            parts = [memory.take(own) for _ in range(self.tp)]
            whole = memory.take(2 * self.logits)
            memory.give(logits, *parts)
            logits = whole
        kept.append(logits)
        if len(kept) > 2:  # the buffers of two micro-batches
            memory.give(kept.pop(0))
        wide, softmax = (memory.take(FP32 * self.logits) for _ in range(2))
        memory.give(wide)
        of_loss, of_softmax = (memory.take(FP32 * self.logits) for _ in range(2))
        memory.give(softmax, of_loss)
        narrow = memory.take(2 * self.logits)
        memory.give(of_softmax)
        if self.tp > 1:
            share = memory.take(own)
            memory.give(narrow)
            narrow = share
        result = memory.take(self._hidden)
        memory.give(narrow)
        return result


def stages() -> Iterator[LastStage]:
    """Layouts of Llama 13B that ran, or that did not for want of memory."""
    for recompute, sizes in ((True, (2, 4, 8)), (False, (1, 2))):
        for size in sizes:
            for tp, pp in ((1, 1), (1, 2), (2, 1), (2, 2)):
                yield LastStage(tp=tp, num_layers=40 // pp, micro_batch_size=size, recompute=recompute)


def main() -> None:
    """Prints a line for each layout: the most that lives, and what is reserved beyond it, fused and unfused."""
    print("tp layers micro-batch recompute  living  beyond  a logit; unfused: living  beyond")
    for stage in stages():
        found = [each.run() for each in (stage, replace(stage, is_unfused=True))]
        (most, beyond), (unfused, more) = ((m.most_living / 1e9, (m.reserved - m.most_living) / 1e9) for m in found)
        a_logit = beyond * 1e9 / stage.logits
        print(
            f"{stage.tp:2} {stage.num_layers:6} {stage.micro_batch_size:11} {stage.recompute!s:9} {most:7.1f} "
            f"{beyond:7.1f} {a_logit:8.1f}           {unfused:7.1f} {more:7.1f}"
        )


if __name__ == "__main__":
    main()
