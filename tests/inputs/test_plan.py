from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError
from shardplan.inputs.plan import (
    DEFAULT_PLACEMENT,
    OP_SAC,
    RECOMPUTE_MODULES,
    Plan,
    placement_tokens,
    recompute_modules,
)

DEGREES = ("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "tp_rows")
OPTIONAL = ("sharding_degree", "microbatch_group_size")
CHOICES = ("sharding", "cp_comm", "tp_kind", "offload", "recompute", "placement")
FLAGS = ("sequence_parallel", "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep")

WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(FLAGS, ("yes", "true", 0, 1, 1.0, math.nan, [], "False")),
    **dict.fromkeys(("recompute_num_layers", "offload_num_layers"), (-1, 1.5, True, "2", math.nan, 10**7)),
    "stage_layers": ((1.5, 2), (-1, 3), (True, 1), ("4", "4"), (math.nan,), (10**9,), "44"),
}

not_a_degree = st.one_of(
    st.integers(max_value=0), st.integers(min_value=1_000_001), st.floats(), st.booleans(), st.text(max_size=4),
    st.lists(st.integers(), max_size=2), st.just(10**400),
)  # fmt: skip


@given(st.sampled_from((*DEGREES, *OPTIONAL)), st.one_of(not_a_degree, st.none()))
def test_refuses_what_is_no_degree(field: str, value: object) -> None:
    if value is None and field in OPTIONAL:
        return
    with pytest.raises(InputError) as refusal:
        Plan(**{field: value})  # type: ignore[arg-type]  # wrong on purpose
    assert field in refusal.value.message
    assert f"--{field.replace('_', '-')}" in refusal.value.hint


@pytest.mark.parametrize("field", CHOICES)
@pytest.mark.parametrize(
    "value", ["", "-", "nonsense", 0, 1, 2.5, math.nan, True, ["none"], {"none"}, b"none", "zero 4"]
)
def test_refuses_unknown_choices(field: str, value: object) -> None:
    with pytest.raises(InputError) as refusal:
        Plan(**{field: value})  # type: ignore[arg-type]  # wrong on purpose
    assert refusal.value.hint


@pytest.mark.parametrize("value", ["", "-", "zb h4", "zb--h4", 0, 1, 2.5, math.nan, True, ["1f1b"], b"1f1b", "é"])
def test_refuses_what_is_no_name_of_a_schedule(value: Any) -> None:
    """Whether a schedule of that name is known is a rule of validity."""
    with pytest.raises(InputError, match="schedule is") as refusal:
        Plan(schedule=value)
    assert refusal.value.hint
    assert Plan(schedule="zb-h17").effective_schedule == "zb-h17"


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_refuses_switches_and_counts_that_are_none(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Plan(**{field: value})  # type: ignore[arg-type]  # wrong on purpose


def test_recomputing_no_layer_is_a_plan() -> None:
    assert Plan(recompute_num_layers=0).recompute_num_layers == 0


def test_misspelt_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean zero3"):
        Plan(sharding="zero33")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UnknownNameError, match="did you mean core_attn"):
        Plan(recompute="core_atn")


def test_recompute_presets() -> None:
    assert recompute_modules("none") == ()
    assert recompute_modules("selective") == ("core_attn",)  # arXiv 2205.05198, section 5
    assert recompute_modules("full") == RECOMPUTE_MODULES
    assert recompute_modules("layernorm, activation") == ("layernorm", "activation")


@given(st.text(max_size=30))
def test_any_text_is_a_policy_or_an_input_error(text: str) -> None:
    try:
        modules = recompute_modules(text)
    except InputError:
        return
    assert set(modules) <= {*RECOMPUTE_MODULES, OP_SAC}


def test_placement_is_read_from_the_inside_out() -> None:
    assert placement_tokens(DEFAULT_PLACEMENT) == (("tp", None), ("cp", None), ("ep", None), ("dp", None), ("pp", None))
    assert placement_tokens("tp:4-dp:2-tp-cp-ep-dp-pp")[:3] == (("tp", 4), ("dp", 2), ("tp", None))


@pytest.mark.parametrize(
    "placement",
    [
        "tp-cp-ep-dp", "tp-cp-ep-dp-pp-tp", "tp-cp-ep-dp-pp-", "tp cp ep dp pp", "tp:0-tp-cp-ep-dp-pp",
        "tp:-2-tp-cp-ep-dp-pp", "tp:2.5-tp-cp-ep-dp-pp", "tp:-tp-cp-ep-dp-pp", "ep:2-tp-cp-ep-dp-pp",
        "tp-tp:2-cp-ep-dp-pp", "tp:10000000-tp-cp-ep-dp-pp", "TP-CP-EP-DP", "tp-cp-ep-dp-qq", "²-tp-cp-ep-dp-pp",
    ],
)  # fmt: skip
def test_refuses_placements_that_are_no_order(placement: str) -> None:
    with pytest.raises(InputError, match="placement"):
        Plan(placement=placement)


tokens = st.sampled_from(("tp", "cp", "ep", "dp", "pp", "tp:2", "dp:4", "pp:2", "ep:2", "tp:", ":2", "x"))


@given(st.lists(tokens, max_size=9).map("-".join))
def test_any_placement_is_an_order_or_an_input_error(placement: str) -> None:
    try:
        read = placement_tokens(placement)
    except ShardplanError:
        return
    assert sorted(name for name, number in read if number is None) == ["cp", "dp", "ep", "pp", "tp"]


def test_schedule_follows_from_virtual_stages() -> None:
    assert Plan(pp=4).effective_schedule == "1f1b"
    assert Plan(pp=4, vp=2).effective_schedule == "interleaved"
    assert Plan(pp=4, schedule="gpipe").effective_schedule == "gpipe"


def test_data_parallelism_is_what_is_left() -> None:
    plan = Plan(tp=8, cp=2, pp=16, ep=8)
    assert plan.model_parallel_degree == 256
    assert plan.dp(16384) == 64
    assert plan.dp(128) == 0
