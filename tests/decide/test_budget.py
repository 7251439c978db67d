"""Budgets: limits are met, accounts close, and what was left out is worked out."""

from __future__ import annotations

from typing import Any

import pytest

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.batches import stages_of
from shardplan.decide.goodput import checkpoint_bytes

FEW: dict[str, Any] = {
    "sequence_length": 2048,
    "global_batch_size": 64,
    "limit": {"pp": [1], "cp": [1], "sharding": ["zero1"]},
    "tokens": 1e10,
}
"""A small run with a small space."""


def budget(**changes: Any) -> shardplan.BudgetAnswer:
    return shardplan.budget("llama-3.2-1b", "dgx-h100", **{**FEW, **changes})


def test_one_size_by_hand() -> None:
    """Steps x step time without failures; money and energy are prices and powers times hours."""
    never = {"failure_rate": 0, "start_up_time": 3600.0, "node_overhead": 1, "pue": 1, "carbon": 0.5}
    priced = shardplan.load_cluster("dgx-h100", price=2.0)
    option = shardplan.budget("llama-3.2-1b", priced, num_accelerators=8, operations=never, **FEW).options[0]
    steps = -(-1e10 // (2048 * 64))
    assert option.num_steps == steps
    assert option.wall_time == pytest.approx(steps * option.estimate.step_time + 3600, rel=1e-12)
    assert option.money == pytest.approx(2 * 8 * option.wall_time / 3600)
    assert option.energy is not None
    assert option.energy.total == pytest.approx(8 * 0.7 * option.wall_time / 3600)
    assert option.carbon == pytest.approx(option.energy.total * 0.0005)


def test_accounts_sum_to_the_days_and_bands_enclose_them() -> None:
    (option,) = budget(num_accelerators=16).to_dict()["options"]
    assert sum(option["accounts_s"].values()) == pytest.approx(option["days"] * 86400, rel=1e-12)
    assert option["days_p10"] < option["days"] < option["days_p90"]
    assert option["goodput"] == pytest.approx(option["accounts_s"]["productive"] / (option["days"] * 86400), rel=1e-12)
    assert any("Llama 3.1 405B" in each for each in option["assumptions"])


def test_the_fewest_accelerators_meet_the_days_and_half_of_them_do_not() -> None:
    days = budget(num_accelerators=16).options[0].days
    option = budget(days=days * (1 + 1e-9)).options[0]  # the days are summed in another order
    assert not option.shortfalls
    assert option.days <= days * (1 + 1e-9)
    assert option.num_accelerators <= 16
    assert budget(num_accelerators=8).options[0].days > days


def test_money_buys_the_soonest_run_it_can() -> None:
    money = budget(num_accelerators=16).options[0].money
    assert money is not None
    option = budget(money=money).options[0]
    assert option.money is not None
    assert option.money <= money
    assert option.num_accelerators >= 16


def test_a_deadline_that_nothing_meets_says_how_near_it_comes() -> None:
    option = budget(days=1e-4).options[0]
    assert "above the limit of 0.0001" in option.shortfalls[0]
    assert option.days < budget(num_accelerators=8).options[0].days


def test_spares_cost_money_and_no_time() -> None:
    without, with_spares = (budget(num_accelerators=16, operations={"spares": n}).options[0] for n in (0, 16))
    assert with_spares.wall_time == without.wall_time
    assert with_spares.money == pytest.approx(2 * (without.money or 0))


def test_clusters_side_by_side_keep_their_order() -> None:
    both = shardplan.budget("llama-3.2-1b", ["dgx-a100", "dgx-h100"], num_accelerators=8, **FEW)
    assert [each["cluster"] for each in both.to_rows()] == ["dgx-a100", "dgx-h100"]
    slow, fast = both.options
    assert slow.days > fast.days


def test_checkpoints_of_bloom_have_14_bytes_per_parameter() -> None:
    """2.3 TB for 176 B parameters (BigScience chronicles); GPT-3 is of that size."""
    asked = shardplan.question("gpt3-175b", "dgx-a100", 384, sequence_length=2048, global_batch_size=2048)
    assert checkpoint_bytes(asked) == pytest.approx(2.3e12, rel=0.08)


def test_a_ramp_adds_the_steps_of_its_stages() -> None:
    option = budget(num_accelerators=8, batch_ramp="16:1e9,32x1024:2e9").options[0]
    assert [stage.num_steps for stage in option.stages] == [30518, 30518, 61036]
    assert option.num_steps == 122072
    plain = budget(num_accelerators=8).options[0]
    assert option.wall_time > plain.wall_time


def test_a_ramp_that_is_longer_than_the_run_ends_with_it() -> None:
    assert [stage.tokens for stage in stages_of("16:1e9,32:5e9", 2e9)] == [1e9, 1e9]
    assert [stage.tokens for stage in stages_of(None, 2e9)] == [2e9]


@pytest.mark.parametrize("ramp", ["512", "512:", "x:1e9", "512:2e9,256:1e9", "0:1e9", "8x0:1e9", ",", ""])
def test_ramps_that_cannot_be_read(ramp: str) -> None:
    with pytest.raises(InputError):
        stages_of(ramp, 1e12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": None}, "no tokens"),
        ({"tokens": 1000}, "fewer than one step"),
        ({"days": -1}, "days is -1"),
        ({"money": float("nan")}, "money is nan"),
        ({"num_accelerators": 0}, "0"),
        ({"operations": {"prise": 2}}, "prise"),
        ({"operations": {"carbon": -2}}, "carbon is -2"),
        ({"operations": {"pue": 0.5}}, "pue is 0.5"),
        ({"operations": 3}, "operations"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        budget(**{"num_accelerators": 8, **changes})


def test_no_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="no cluster"):
        shardplan.budget("llama-3.2-1b", [], num_accelerators=8, **FEW)


def test_failures_that_leave_no_time_are_the_reason() -> None:
    (found,) = budget(num_accelerators=16, operations={"failure_rate": 1e6}).budgets
    assert found.option is None
    assert found.reason is not None
    assert "failures leave no time" in found.reason


def test_the_gpu_hours_of_llama_2_70b_are_within_a_third_of_its_card() -> None:
    """1,720,320 hours of A100 for 2 T tokens (model card): the best plan of today takes fewer."""
    found = shardplan.budget("llama-2-70b", "dgx-a100", num_accelerators=2048, tokens=2e12, sequence_length=4096)
    assert 0.67 < found.options[0].accelerator_hours / 1720320 < 1.1
