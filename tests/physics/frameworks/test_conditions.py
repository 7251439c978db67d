"""Conditions of capability records: what they say of one plan and of many, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shardplan import load_cluster, load_model
from shardplan.base.errors import InputError
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.physics.frameworks.conditions import FACTS, MOST_CHARACTERS, parse_condition, plan_fields

SETTING = Setting.of(
    load_model("llama-3.1-8b"), load_cluster("dgx-h100"), 64, Job(sequence_length=8192, global_batch_size=128)
)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("pp > 1 and vp == 1", {"pp": 4}, True),
        ("pp > 1 and vp == 1", {"pp": 4, "vp": 2}, False),
        ("pp > 1 or tp > 1", {"tp": 2}, True),
        ("not sequence_parallel", {"sequence_parallel": False}, True),
        ('"moe" in recompute', {"recompute": "layernorm,moe"}, True),
        ('"full" in recompute', {"recompute": "full"}, True),
        ('"core_attn" in recompute', {"recompute": "selective"}, True),
        ('"op_sac" in recompute', {"recompute": "op_sac"}, True),
        ("recompute != ()", {}, False),
        ('sharding in ["zero2", "zero3"]', {"sharding": "zero3"}, True),
        ('sharding not in ["zero2", "zero3"]', {"sharding": "zero3"}, False),
        ("microbatches < 2 * pp - 1", {"pp": 64}, False),  # 128 micro-batches of one replica
        ("microbatches % pp != 0", {"pp": 4, "micro_batch_size": 8}, True),  # one micro-batch
        ("kv_heads % tp != 0", {"tp": 16}, True),
        ("schedule == 'interleaved'", {"pp": 4, "vp": 2}, True),
        ("schedule == '1f1b'", {"pp": 4}, True),
        ("overlap_pp", {"pp": 4, "vp": 2}, True),
        ("overlap_pp", {"pp": 4, "vp": 2, "overlap_pp": False}, False),
        ("experts or tied", {}, False),
        ("recompute_num_layers == 0 and offload_num_layers == 0", {}, True),
        ("layers // (pp * vp) == 2 and layers / pp == 8", {"pp": 4, "vp": 4}, True),
        ("uneven", {"pp": 4}, False),  # 32 layers
        ("uneven", {"pp": 3}, True),
        ("uneven", {"pp": 2, "stage_layers": (15, 17)}, True),
        ("sharding_degree == replicas and replicas == 16", {"tp": 4}, True),
        ("sharding_degree < replicas", {"sharding": "hsdp", "sharding_degree": 8}, True),
        ("microbatch_group_size == pp", {"pp": 4, "vp": 2}, True),
        ("scale_up == 8 and accelerators == 64", {}, True),
        ("global_batch_size * 8 == 1024 and sequence_length == 8192", {}, True),
    ],
)
def test_what_conditions_say(text: str, fields: dict[str, object], *, expected: bool) -> None:
    condition = parse_condition(text, "when")
    assert bool(condition.holds(SETTING, Degrees.of(Plan(**fields)))) is expected  # type: ignore[arg-type]


def test_conditions_are_asked_of_arrays() -> None:
    condition = parse_condition("(pp > 1 and vp == 1) or microbatches % pp != 0 or schedule == 'interleaved'", "when")
    pp, vp, size = np.ix_([1, 2, 3, 4], [1, 2], [1, 2, 4])
    degrees = replace(Degrees.of(Plan()), pp=pp, vp=vp, micro_batch_size=size, interleaved=vp > 1)
    found = np.broadcast_to(condition.holds(SETTING, degrees), (4, 2, 3))
    for place in np.ndindex(4, 2, 3):
        plan = Plan(
            pp=int(pp.ravel()[place[0]]), vp=int(vp.ravel()[place[1]]), micro_batch_size=int(size.ravel()[place[2]])
        )
        assert bool(found[place]) is bool(condition.holds(SETTING, Degrees.of(plan)))


def test_names_with_several_values_in_arrays() -> None:
    condition = parse_condition("schedule in ['interleaved', 'zb-v']", "when")
    degrees = replace(Degrees.of(Plan()), vp=np.asarray([1, 2]), interleaved=np.asarray([False, True]))
    assert np.asarray(condition.holds(SETTING, degrees)).tolist() == [False, True]


def test_which_fields_decide_a_condition() -> None:
    condition = parse_condition("microbatches < pp and experts and overlap_ep", "when")
    assert set(plan_fields(condition.names)) == {"tp", "cp", "pp", "micro_batch_size", "overlap_ep"}


def test_every_fact_can_be_asked() -> None:
    for fact in FACTS:
        FACTS[fact](SETTING, Degrees.of(Plan()))


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", None, 7, ["pp"], "pp >", "pp > 1 > 0", "pp ** 9", "pp @ 2", "__import__('os')", "pp.real",
        "pp[0]", "lambda: 1", "colour == 1", "pp > 99999999999999999999", "1.5 < pp", "pp < 'a'", "-pp < 1",
        "None == pp",        "(" * 150 + "pp" + ")" * 150, "pp > 1 or " * 60 + "tp", "x" * (MOST_CHARACTERS + 1),
        "pp\0", "pp := 1", "[pp for pp in recompute]", "f'{pp}'", "b'a' == 1", "1 if pp else 2", "recompute + 1 > 2",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text: object) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition(text, "when of refuses[0]")
    assert caught.value.rule
    assert caught.value.hint
    assert len(str(caught.value)) < 1000


def test_a_long_condition_that_is_sound() -> None:
    condition = parse_condition("not " * 70 + "overlap_ep", "when")
    assert not condition.holds(SETTING, Degrees.of(Plan()))
