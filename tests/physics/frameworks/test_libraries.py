"""Libraries that choices need, and what they exclude where they are missing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from shardplan import load_cluster, load_model
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.libraries import (
    Without,
    known_libraries,
    libraries_of,
    needed_libraries,
    rules_without,
    runs_without,
)
from shardplan.physics.frameworks.stack import load_stack

MEGATRON = load_stack("megatron-lm")


def _setting(dispatcher: str, model: str = "qwen3-235b-a22b") -> Setting:
    software = replace(Software(), moe_dispatcher=dispatcher)  # type: ignore[arg-type]
    job = Job(sequence_length=4096, global_batch_size=512, software=software)
    return Setting.of(load_model(model), load_cluster("dgx-h100"), 64, job)


def test_a_dispatcher_needs_its_library_where_experts_are_shared() -> None:
    for dispatcher, ep in product(("alltoall", "deepep", "hybridep"), (1, 8)):
        expected = () if dispatcher == "alltoall" or ep == 1 else (dispatcher,)
        assert needed_libraries(MEGATRON, _setting(dispatcher), Degrees.of(Plan(ep=ep))) == expected
    assert needed_libraries(MEGATRON, _setting("deepep", "llama-3.1-8b"), Degrees.of(Plan())) == ()


def test_plans_that_run_without_a_library() -> None:
    plans = Degrees.of_all([Plan(ep=1), Plan(ep=8)])
    found = runs_without(MEGATRON, ("deepep",), _setting("deepep"), plans)
    assert np.broadcast_to(found, 2).tolist() == [True, False]
    assert np.all(runs_without(MEGATRON, ("hybridep",), _setting("deepep"), plans))
    assert np.all(runs_without(None, ("deepep",), _setting("deepep"), plans))
    (rule,) = rules_without(MEGATRON, ("deepep",))
    assert rule.flag == "--software moe_dispatcher"
    assert {"ep", "etp"} <= {*rule.reads}
    assert np.array_equal(np.broadcast_to(rule.holds(_setting("deepep"), plans), 2), np.broadcast_to(found, 2))
    assert "install deepep" in rule.hint(_setting("deepep"), Plan(ep=8))


def test_names_of_libraries() -> None:
    assert {"deepep", "hybridep"} <= {*known_libraries()}
    assert Without.of(" DeepEP,hybridep,deepep ", MEGATRON).names == ("deepep", "hybridep")
    assert {*libraries_of(MEGATRON)} == {"deepep", "hybridep"}
    assert libraries_of(None) == {}
    with pytest.raises(UnknownNameError, match="deepep, hybridep") as raised:
        Without.of("nvshmem", load_stack("maxtext"))
    assert "maxtext uses none of them" in (raised.value.hint or "")
    with pytest.raises(InputError):
        Without.of(" , ", None)
