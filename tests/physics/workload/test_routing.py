"""Loads of expert-parallel ranks against published counts of tokens per expert, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from shardplan import estimate
from shardplan.base.errors import InputError
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MixtureOfExperts
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.routing import routing_of
from shardplan.inputs.software import Software
from shardplan.physics.workload.routing import _expected, most_loaded, most_loaded_of

OLMOE = MixtureOfExperts(num_experts=64, top_k=8, intermediate_size=1024, gated=True)
MIXTRAL = MixtureOfExperts(num_experts=8, top_k=2, intermediate_size=14336, gated=True)


class Counts(NamedTuple):
    """Copies of tokens that each expert of a layer got (allenai/OLMoE 357454f4, scripts/routing_output)."""

    model: str
    domain: str
    layer: str
    loads: NDArray[np.float64]

    @property
    def moe(self) -> MixtureOfExperts:
        return OLMOE if len(self.loads) == 64 else MIXTRAL


def counts() -> list[Counts]:
    with (Path(__file__).parent / "expert_counts.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    found = []
    for model, domain, layer, numbers in rows:
        counted = np.array(numbers.split(), dtype=np.float64)
        found.append(Counts(model, domain, layer, counted / counted.mean()))
    return found


def job(routing: str, **software: Any) -> Job:
    return Job(sequence_length=4096, global_batch_size=64, routing=routing, software=Software(**software))


def at_random(loads: NDArray[np.float64], ep: int) -> float:
    """Mean over placements of the experts of the load of the most loaded rank."""
    source = np.random.default_rng(0)
    return float(np.mean([source.permutation(loads).reshape(ep, -1).mean(axis=1).max() for _ in range(500)]))


@pytest.mark.parametrize("each", counts(), ids=lambda each: "-".join(each[:3]))
def test_loads_of_ranks_follow_from_the_spread_of_their_experts(each: Counts) -> None:
    """Two experts a rank and more: within 25 % of random placements in every layer, 12 % in the mean."""
    errors = []
    for ep in (2, 4, 8, 16, 32):
        if ep <= each.moe.num_experts // 2:
            expected = float(_expected(each.moe, float(each.loads.std()), ep))
            errors.append(expected / at_random(each.loads, ep) - 1)
    assert max(map(abs, errors)) < 0.25
    assert abs(np.mean(errors)) < 0.12


def test_the_spreads_are_those_of_the_counts() -> None:
    """On C4, root mean square over layers; Mixtral's in proportion to the root of the number of experts."""
    found = {
        model: np.sqrt(
            np.mean([each.loads.std() ** 2 for each in counts() if (each.model, each.domain) == (model, "c4")])
        )
        for model in ("olmoe-1b-7b", "mixtral-8x7b")
    }
    assert found["olmoe-1b-7b"] == pytest.approx(0.42, abs=0.005)
    assert found["mixtral-8x7b"] == pytest.approx(0.11, abs=0.005)
    both = np.sqrt((found["olmoe-1b-7b"] ** 2 + found["mixtral-8x7b"] ** 2 * 8) / 2)
    assert routing_of("learned").spread(OLMOE) == pytest.approx(both, abs=0.01)
    assert routing_of("early").spread(
        MixtureOfExperts(num_experts=128, top_k=8, intermediate_size=768, gated=True)
    ) == (pytest.approx(np.sqrt(1.3295 - 1), abs=0.01))


def test_shares_of_experts_are_added_up_in_their_order() -> None:
    """The counts themselves: the largest sum of contiguous experts, on average over layers."""
    layers = [each.loads / 64 for each in counts() if (each.model, each.domain) == ("olmoe-1b-7b", "github")]
    text = ";".join(",".join(f"{share:.9f}" for share in layer) for layer in layers)
    for ep in (1, 8, 64):
        by_hand = np.mean([min(layer.reshape(ep, -1).sum(axis=1).max() * ep, ep, 8) for layer in layers])
        assert float(most_loaded(OLMOE, job(text), ep)) == pytest.approx(by_hand, rel=1e-6)


def test_more_ranks_are_worse_and_arrays_are_their_elements() -> None:
    ranks = np.array([[1, 2, 4], [8, 16, 64]])
    for text in ("early", "learned", "1.4", "0:0.1,1:0.1,2:0.1,7:0.1,40:0.1,41:0.1,42:0.1,50:0.1,60:0.1,63:0.1"):
        loads = most_loaded(OLMOE, job(text), ranks)
        assert np.all(np.diff(np.ravel(loads)) >= 0), text
        each = [float(most_loaded(OLMOE, job(text), int(ep))) for ep in ranks.ravel()]
        assert each == pytest.approx(list(np.ravel(loads)))
        assert each[0] == 1


def test_balanced_routing_and_fixed_capacity_have_no_load() -> None:
    assert most_loaded(OLMOE, job("balanced"), 64) == most_loaded(OLMOE, job("1"), 64) == 1
    assert most_loaded(OLMOE, job("learned", moe_capacity=True), 64) == 1
    assert most_loaded_of(load_model("llama-3.1-8b"), job("learned"), 1) == 1


def test_no_rank_gets_more_than_its_experts_can_take() -> None:
    assert float(most_loaded(OLMOE, job("100"), 64)) == 8
    assert float(most_loaded(MIXTRAL, job("100"), 8)) == 4
    assert float(most_loaded(MIXTRAL, job("100"), 2)) == 2


def test_biases_balance_better_than_a_loss() -> None:
    """Loss-free balancing, arXiv 2408.15664, table 2: MaxVio 0.04 of 64 experts."""
    biased = MixtureOfExperts(num_experts=64, top_k=6, intermediate_size=1408, gated=True, balanced_by_bias=True)
    assert float(most_loaded(biased, job("learned"), 64)) == pytest.approx(1.04, abs=0.005)
    assert float(most_loaded(OLMOE, job("learned"), 64)) > 2
    assert most_loaded(biased, job("early"), 64) == most_loaded(OLMOE, job("early"), 64)
    named = {
        name: load_model(name).layers[-1].mlp for name in ("deepseek-v3", "glm-5", "mixtral-8x7b", "qwen3-30b-a3b")
    }
    by_bias = {name: isinstance(mlp, MixtureOfExperts) and mlp.balanced_by_bias for name, mlp in named.items()}
    assert by_bias == {"deepseek-v3": True, "glm-5": True, "mixtral-8x7b": False, "qwen3-30b-a3b": False}


def test_early_steps_of_a_run_are_as_much_slower() -> None:
    """Megatron-LM d98e8a64, deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release on H100: 12.85 s a step at steps 100 to
    300, 12.03 s later: biases are learned by then."""
    plan = {"pp": 4, "ep": 32, "sharding": "zero1", "micro_batch_size": 1}
    base = Job(sequence_length=4096, global_batch_size=1024)
    early, late = (
        estimate("deepseek-v3", "dgx-h100", 1024, plan, job=Job(**{**vars(base), "routing": routing}))
        for routing in ("early", "learned")
    )
    assert early.step_time > 1.02 * late.step_time


@pytest.mark.parametrize(
    ("text", "rule", "hint"),
    [
        ("0.5,0.6", "add up to one", "the nearest is 1: divide each by 1.1"),
        ("0:0.5,8:0.5", "experts of the model", "the nearest is 7"),
        ("0:0.9,1:0.1", "one of a token's 2 copies", "the nearest share is 0.5"),
        ("0.5,-0.5,1", "from 0 to 1", "the nearest is 0"),
        ("0:0.5,0:0.5", "add up to one", "give each expert one share"),
        ("a:0.5,1:0.5", "named by number", "write 0:0.6"),
        ("0.2", "from 1 to 1,000", "the nearest is 1"),
        ("2000", "from 1 to 1,000", "the nearest is 1000"),
        ("lerned", "routing is known", "did you mean learned"),
        ("", "routing is known", "balanced, early, learned"),
    ],
)
def test_wrong_distributions_are_refused_with_the_nearest(text: str, rule: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        estimate("mixtral-8x7b", "dgx-h100", 8, {"ep": 8}, job={"sequence_length": 4096, "routing": text})
    assert rule in refused.value.rule
    assert hint in refused.value.hint
