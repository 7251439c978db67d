"""What every stage of a pipeline holds, part by part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LLAMA_405B, SMALL, deepseek_v3, gpt, llama
from tests.strategies import models

from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import chunk_layers
from shardplan.physics.frameworks.stage_layers import layers_by_cost
from shardplan.physics.workload.stage import Parts, Stage, kinds_of_stage, largest, stacked, stages

counts = st.integers(1, 200)


def test_llama_405b_has_one_layer_less_on_the_first_and_the_last_stage() -> None:
    """arXiv 2407.21783, section 3.3.2: 126 layers on 16 stages."""
    assert chunk_layers(126, 16) == (7, *[8] * 14, 7)


def test_61_layers_on_8_stages() -> None:
    assert chunk_layers(61, 8) == (7, 7, 8, 8, 8, 8, 8, 7)


def test_layers_that_divide_are_even() -> None:
    assert chunk_layers(80, 16) == (5,) * 16
    assert chunk_layers(61, 1) == (61,)


def test_stages_closed_by_cost_take_the_layer_that_exceeds_their_share() -> None:
    """28 layers of 113.2 M matrix elements and a head of 402.7 M: half of the sum is reached in the 16th layer."""
    model = llama(3072, 28, 24, 8, 8192, vocab_size=131_072)
    assert layers_by_cost(model, 2) == (16, 12)
    assert layers_by_cost(model, 1) == (28,)


def test_stages_closed_by_cost_hold_every_layer_once_or_none_at_all() -> None:
    model = llama(3072, 28, 24, 8, 8192, vocab_size=131_072)
    for pp in range(1, 29):
        layers = layers_by_cost(model, pp)
        assert layers is None or (sum(layers) == 28 and min(layers) > 0 and len(layers) == pp)


@given(counts, counts)
def test_layers_are_shared_as_evenly_as_can_be(num_layers: int, num_chunks: int) -> None:
    num_chunks = min(num_layers, num_chunks)
    sizes = chunk_layers(num_layers, num_chunks)
    assert len(sizes) == num_chunks
    assert sum(sizes) == num_layers
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@given(counts, st.integers(2, 200))
def test_ends_are_the_last_to_be_longer(num_layers: int, num_chunks: int) -> None:
    num_chunks = min(num_layers, num_chunks)
    sizes = chunk_layers(num_layers, num_chunks)
    if num_chunks > 2 and len(set(sizes)) == 2:
        assert sizes[-1] == min(sizes)
        assert sizes[0] == min(sizes) or min(sizes[1:-1]) == max(sizes)


@given(models(), st.integers(1, 12), st.integers(1, 3))
def test_stages_hold_every_layer_once(model: ModelConfig, pp: int, vp: int) -> None:
    pp = min(pp, model.num_hidden_layers)
    vp = vp if pp * vp <= model.num_hidden_layers else 1
    pipeline = stages(model, pp, vp)
    totals = [sum(counts) for counts in zip(*(stage.counts for stage in pipeline), strict=True)]
    assert totals == [model.layer_pattern.count(kind) for kind in range(len(model.layer_kinds))]
    assert [stage.rank for stage in pipeline] == list(range(pp))
    assert [stage.has_embedding for stage in pipeline] == [1] + [0] * (pp - 1)
    assert [stage.has_head for stage in pipeline] == [0] * (pp - 1) + [1]
    assert [stage.num_mtp_layers for stage in pipeline] == [0] * (pp - 1) + [model.num_mtp_layers]


def test_dense_layers_come_first() -> None:
    """DeepSeek-V3: three dense layers, then 58 with experts."""
    first, *others = stages(deepseek_v3(), 8, 1)
    assert first.counts == (3, 4)
    assert [stage.counts for stage in others] == [(0, 7), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 7)]


def test_interleaved_ranks_hold_chunks_that_are_far_apart() -> None:
    """Rank r holds the chunks r, r + p, ... (arXiv 2104.04473, figure 4): the dense layers fall on two ranks."""
    pipeline = stages(deepseek_v3(num_layers=8), 2, 2)
    assert [stage.counts for stage in pipeline] == [(2, 2), (1, 3)]


def test_given_layers_are_taken_as_they_are() -> None:
    pipeline = stages(gpt(64, 8, 4), 2, 2, (1, 2, 3, 2))
    assert [stage.num_layers for stage in pipeline] == [4, 4]
    assert [stage.num_layers for stage in stages(gpt(64, 8, 4), 2, 2, (0, 4, 4, 0))] == [4, 4]


def test_few_kinds_of_stage_stand_for_a_long_pipeline() -> None:
    kinds = kinds_of_stage(stages(LLAMA_405B, 16, 1))
    assert [stage.rank for stage in kinds] == [0, 1, 15]


@given(models(), st.integers(1, 12))
def test_what_a_kind_leaves_out_an_earlier_stage_exceeds(model: ModelConfig, pp: int) -> None:
    pipeline = stages(model, min(pp, model.num_hidden_layers), 1)
    kinds = kinds_of_stage(pipeline)
    assert kinds[0] == pipeline[0]
    for stage in pipeline:
        assert any(
            kind.rank <= stage.rank
            and all(a >= b for a, b in zip(kind.counts, stage.counts, strict=True))
            and kind.has_embedding >= stage.has_embedding
            and kind.has_head >= stage.has_head
            for kind in kinds
        )


@pytest.mark.parametrize("pp", [1, 2, 8])
def test_equal_stages_are_at_most_three_kinds(pp: int) -> None:
    assert len(kinds_of_stage(stages(gpt(64, 8, 4), pp, 1))) == min(pp, 2)


@pytest.mark.parametrize(
    ("num_layers", "num_chunks", "blocks", "last"), [(61, 16, 1, 1), (62, 16, 1, 2), (61, 16, 2, 0), (61, 8, 1, 5)]
)
def test_a_prediction_block_weighs_two_layers(num_layers: int, num_chunks: int, blocks: int, last: int) -> None:
    """The last chunk has the mean of layers and weights, less what its blocks weigh: (61 + 2) // 16 - 2 = 1."""
    sizes = chunk_layers(num_layers, num_chunks, blocks)
    assert sizes[-1] == last
    assert sum(sizes) == num_layers
    assert max(sizes[:-1]) - min(sizes[:-1]) <= 1


def test_without_a_pipeline_prediction_blocks_take_no_layer_away() -> None:
    assert chunk_layers(61, 1, 1) == (61,)


def test_a_stage_holds_what_it_counts() -> None:
    """The first has the embedding, the last the head and the prediction blocks; what is not there is left out."""
    first, *_, last = stages(deepseek_v3(num_mtp_layers=2), 8, 1)
    parts = (("dense", "experts"), "embedding", "head", "block")
    assert first.holds(*parts) == [(3, "dense"), (first.counts[1], "experts"), (1, "embedding")]
    assert last.holds(*parts) == [(last.counts[1], "experts"), (1, "head"), (2, "block")]


@given(st.integers(2, 200), st.integers(2, 32))
def test_before_a_prediction_block_later_chunks_are_filled_first(num_layers: int, num_chunks: int) -> None:
    """Earlier stages keep more micro-batches in memory, so none of them holds more layers than a later one."""
    sizes = chunk_layers(num_layers, min(num_layers, num_chunks), 1)[:-1]
    assert list(sizes) == sorted(sizes)


def test_stages_side_by_side_know_what_is_behind_each() -> None:
    """The last stage has nothing behind it: no layers in the array of what follows."""
    pipeline = stages(LLAMA_405B, 4, 1)
    together = stacked(pipeline)
    assert np.asarray(together.num_behind).tolist() == [3, 1, 1, 0]  # the two in the middle hold the same
    assert together.behind is not None
    assert np.asarray(together.behind.num_layers).tolist() == [95, 31, 31, 0]
    assert stacked(pipeline[-1:]).behind is None


def test_stages_by_hand() -> None:
    """Three dense layers and five with experts: 3, 2, 2 and 1 to a stage. The two in the middle are alike."""
    model = deepseek_v3(num_layers=8, num_mtp_layers=1)

    def stage(rank: int, counts: tuple[int, int], num_behind: int, behind: tuple[int, int] | None) -> Stage:
        end = Stage(
            rank=1, num_layers=sum(behind or ()), counts=behind or (), has_embedding=0, has_head=1, num_mtp_layers=1
        )
        return Stage(
            rank=rank, num_layers=sum(counts), counts=counts, has_embedding=int(rank == 0), has_head=int(rank == 3),
            num_mtp_layers=int(rank == 3), num_behind=num_behind, behind=end if behind else None,
        )  # fmt: skip

    pipeline = stages(model, 4, 1, (3, 2, 2, 1))
    assert pipeline == (
        stage(0, (3, 0), 3, (0, 5)), stage(1, (0, 2), 1, (0, 1)), stage(2, (0, 2), 1, (0, 1)),
        stage(3, (0, 1), 0, None),
    )  # fmt: skip
    together = stacked(pipeline)
    assert [np.asarray(each).tolist() for each in together.counts] == [[3, 0, 0, 0], [0, 2, 2, 1]]
    assert together.behind is not None
    assert [np.asarray(each).tolist() for each in together.behind.counts] == [0, [5, 1, 1, 0]]
    assert np.asarray(together.behind.has_head).tolist() == [1, 1, 1, 0]
    assert np.asarray(together.behind.num_mtp_layers).tolist() == [1, 1, 1, 0]
    assert together.behind.has_embedding == 0
    for name, values in (
        ("rank", [0, 1, 2, 3]), ("num_layers", [3, 2, 2, 1]), ("has_embedding", [1, 0, 0, 0]),
        ("has_head", [0, 0, 0, 1]), ("num_mtp_layers", [0, 0, 0, 1]), ("num_behind", [3, 1, 1, 0]),
    ):  # fmt: skip
        assert np.asarray(getattr(together, name)).tolist() == values, name
    behind = together.behind
    assert behind is not None
    assert [np.broadcast_to(each, 4).tolist() for each in behind.counts] == [[0] * 4, [5, 1, 1, 0]]
    for name, values in (
        ("rank", [1, 1, 1, 0]), ("num_layers", [5, 1, 1, 0]), ("has_embedding", [0] * 4), ("has_head", [1, 1, 1, 0]),
        ("num_mtp_layers", [1, 1, 1, 0]), ("num_behind", [0] * 4),
    ):  # fmt: skip
        assert np.broadcast_to(getattr(behind, name), 4).tolist() == values, name


def test_ranks_of_several_chunks_have_no_stages_behind_them() -> None:
    """Six chunks of 2, 1, 1, 2, 1 and 1 layers on three ranks: the dense ones are the first three."""
    pipeline = stages(deepseek_v3(num_layers=8), 3, 2, (2, 1, 1, 2, 1, 1))
    assert [stage.counts for stage in pipeline] == [(2, 2), (1, 1), (0, 2)]
    assert [(stage.num_behind, stage.behind) for stage in pipeline] == [(0, None)] * 3


@pytest.mark.parametrize(
    ("vp", "layers", "kinds"),
    [
        (1, (2, 3, 1, 3, 3), [0, 1, 4]),  # the third: an earlier one and a later one exceed it
        (1, (4, 1, 3, 3, 1), [0, 2, 4]),  # no later one exceeds the third and the fourth, which are alike
        (1, (4, 3, 1, 3, 1), [0, 1, 4]),
        (1, (1, 2, 3, 4, 2), [0, 1, 2, 3, 4]),  # no earlier one exceeds any
        (2, (2, 1, 1, 1, 1, 2, 0, 2, 2, 0), [0, 4]),  # of several chunks: 4, 1, 3, 3 and 1
    ],
)
def test_stages_that_others_exceed_are_left_out(vp: int, layers: tuple[int, ...], kinds: list[int]) -> None:
    found = kinds_of_stage(stages(gpt(64, 12, 4), 5, vp, layers))
    assert [stage.rank for stage in found] == kinds


class Held:
    """A part that weighs so much."""

    def __init__(self, weight: float) -> None:
        self.weight = weight


DEEPSEEK = Parts(layers=(Held(10), Held(30)), embedding=Held(7), head=Held(100), mtp=Held(50))
"""Dense layers, layers with experts, the ends and the prediction block."""


def total(stage: Stage) -> float:
    return float(DEEPSEEK.total(stage, lambda part: part.weight))


def test_a_stage_weighs_what_it_holds() -> None:
    """DeepSeek-V3 on 8 stages: 3 dense layers and 4 with experts first, 7 with experts, head and prediction last."""
    first, second, *_, last = stages(deepseek_v3(), 8, 1)
    assert total(first) == 3 * 10 + 4 * 30 + 7
    assert total(second) == 7 * 30
    assert total(last) == 7 * 30 + 100 + 50 * last.num_mtp_layers


def test_parts_that_a_stage_does_not_hold_are_left_out() -> None:
    first, second, *_ = stages(deepseek_v3(), 8, 1)
    assert [(count, part.weight) for count, part in DEEPSEEK.held(first)] == [(3, 10), (4, 30), (1, 7)]
    assert [(count, part.weight) for count, part in DEEPSEEK.held(second)] == [(7, 30)]
    assert [part.weight for _, part in DEEPSEEK.held_layers(first)] == [10, 30]


def test_the_largest_part_may_be_an_end() -> None:
    first, second, *_, last = stages(deepseek_v3(), 8, 1)
    assert largest(DEEPSEEK.held(first), "weight") == 30
    assert largest(DEEPSEEK.held(last), "weight") == 100
    assert largest([*DEEPSEEK.held_layers(last)], "weight") == 30
    assert largest(DEEPSEEK.held(stacked([first, second, last])), "weight").tolist() == [30, 30, 100]  # type: ignore[union-attr]


def test_a_part_that_no_stage_holds_counts_nowhere() -> None:
    """A head of any size does not weigh on a stage without it, also where another stage of the array has it."""
    pipeline = stages(SMALL, 4, 1)
    parts = Parts(layers=(Held(1),), embedding=Held(2), head=Held(1000), mtp=Held(5000))
    most = np.asarray(largest(parts.held(stacked(pipeline)), "weight"))
    assert most.tolist() == [2, 1, 1, 1000]
    assert float(largest([], "weight")) == 0


def test_mapping_keeps_every_part_in_its_place() -> None:
    names = Parts(layers=("a", "b"), embedding="c", head="d", mtp="e").map(str.upper)
    assert names == Parts(layers=("A", "B"), embedding="C", head="D", mtp="E")


@given(models(), st.integers(1, 12), st.data())
def test_a_pipeline_weighs_as_much_as_its_model(model: ModelConfig, pp: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 99), min_size=5, max_size=5))
    kinds = tuple(Held(weight) for weight in (*weights[3:], *weights[3:])[: len(model.layer_kinds)])
    parts = Parts(layers=kinds, embedding=Held(weights[0]), head=Held(weights[1]), mtp=Held(weights[2]))
    pipeline = stages(model, min(pp, model.num_hidden_layers), 1)
    (whole,) = stages(model, 1, 1)
    singly = [float(parts.total(stage, lambda part: part.weight)) for stage in pipeline]
    together = parts.total(stacked(pipeline), lambda part: part.weight)
    assert sum(singly) == float(parts.total(whole, lambda part: part.weight))
    assert np.broadcast_to(np.asarray(together), (len(pipeline),)).tolist() == singly
    most = [float(largest(parts.held(stage), "weight")) for stage in pipeline]
    among = largest(parts.held(stacked(pipeline)), "weight")
    assert np.broadcast_to(np.asarray(among), (len(pipeline),)).tolist() == most


def test_stages_that_are_alike_stay_numbers() -> None:
    middle = stages(SMALL, 4, 1)[1:3]
    alike = stacked(middle)
    assert np.asarray(alike.rank).tolist() == [1, 2]
    assert alike.num_layers == middle[0].num_layers
    assert isinstance(alike.num_layers, float)
    assert alike.counts == pytest.approx(middle[0].counts)
