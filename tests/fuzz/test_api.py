"""Arguments of the wrong kind in Python: an error that names the parameter, of the family that users catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardplan
from shardplan import Job, Plan, ShardplanError, load_cluster, load_model

WRONG: tuple[Any, ...] = (
    None,
    7,
    -1,
    0.5,
    float("nan"),
    "",
    "text",
    "\ud800",
    "x" * 9999,
    10**5000,
    b"text",
    [],
    {},
    (1, 2),
    True,
    object(),
    Job,
)
MODEL, CLUSTER = load_model("llama-3.2-1b"), load_cluster("dgx-h100")
LOAD_CLUSTER: Callable[..., Any] = load_cluster
JOB = Job(sequence_length=2048, global_batch_size=16)


def _all_of_many(**given: Any) -> list[Any]:
    return list(shardplan.search_many(**given))


RIGHT: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "estimate": (
        shardplan.estimate,
        {
            "model": MODEL,
            "cluster": CLUSTER,
            "job": JOB,
            "plan": Plan(),
            "num_accelerators": 8,
            "profile": None,
            "stack": None,
        },
    ),
    "search": (
        shardplan.search,
        {
            "model": MODEL,
            "cluster": CLUSTER,
            "job": JOB,
            "num_accelerators": 8,
            "top": 1,
            "fix": {"pp": 1, "cp": 1},
            "limit": None,
            "exclude": None,
            "profile": None,
            "stack": None,
        },
    ),
    "search_frameworks": (
        shardplan.search_frameworks,
        {
            "model": MODEL,
            "cluster": CLUSTER,
            "job": JOB,
            "num_accelerators": 8,
            "fix": {"pp": 1},
            "stacks": (),
            "profile": None,
        },
    ),
    "budget": (
        shardplan.budget,
        {
            "model": MODEL,
            "cluster": CLUSTER,
            "num_accelerators": 8,
            "days": 1000.0,
            "money": 1e9,
            "energy": 1e9,
            "operations": {"pue": 1.2},
            "batch_ramp": "16:1e9",
            "batch_limits": "16..32",
            "fix": {"tp": 1, "pp": 1, "cp": 1},
            "tokens": 1e10,
            "global_batch_size": 16,
            "sequence_length": 512,
        },
    ),
    "search_many": (_all_of_many, {"questions": (), "top": 1, "stack": None}),
    "default_job": (shardplan.default_job, {"model": MODEL, "cluster": CLUSTER, "num_accelerators": 8}),
    "load_model": (shardplan.load_model, {"name_or_path": "llama-3.2-1b"}),
    "load_cluster": (
        LOAD_CLUSTER,
        {"name_or_path": "dgx-h100", "accelerator": None, "memory": "80 GB", "node_size": 8},
    ),
    "load_accelerator": (shardplan.load_accelerator, {"name_or_path": "h100-sxm-80gb"}),
    "cluster_of_accelerator": (shardplan.cluster_of_accelerator, {"name_or_path": "h100-sxm-80gb", "memory": "80 GB"}),
    "load_profile": (shardplan.load_profile, {"generation_or_path": "hopper"}),
    "Job": (Job, {"sequence_length": 2048, "global_batch_size": 16, "precision": "bf16", "tokens": 1e9}),
    "Plan": (
        Plan,
        {"tp": 2, "recompute": "none", "sharding": "zero1", "stage_layers": None, "placement": "tp-cp-ep-dp-pp"},
    ),
}
CASES = [(name, parameter) for name, (_, right) in RIGHT.items() for parameter in right]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_taken(name: str) -> None:
    function, right = RIGHT[name]
    function(**right)


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_what_is_wrong_is_refused_by_name(name: str, parameter: str) -> None:
    function, right = RIGHT[name]
    for value in WRONG:
        fault = _fault(function, {**right, parameter: value}, parameter)
        assert fault is None, (value, fault)


def _fault(function: Callable[..., Any], given: dict[str, Any], parameter: str) -> BaseException | None:
    """What a call raises that says nothing to a user."""
    try:
        function(**given)
    except ShardplanError:
        return None
    except TypeError as error:
        return None if parameter in str(error) else error
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a fault
        return error
    return None
