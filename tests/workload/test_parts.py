"""Values of the parts of a model, summed and compared over stages: by hand, and for arrays of stages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import SMALL, deepseek_v3
from tests.strategies import models

from shardplan.inputs.model import ModelConfig
from shardplan.workload.stage import Parts, Stage, largest, stacked, stages


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
