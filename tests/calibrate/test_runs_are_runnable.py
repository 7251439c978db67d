"""Plans that were measured must be plans that their framework's record can run."""

from __future__ import annotations

from shardplan.calibrate.predict import ask_all
from shardplan.calibrate.runs.drafts import stack_of
from shardplan.calibrate.runs.questions import AskedRun
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.frameworks.runnable import refusals

OTHER_SOFTWARE = {
    "sc21-tab2-zero-3",  # DeepSpeed as a baseline in a paper about Megatron-LM
    "llama3-405b",  # Meta's own trainer, taken as torchtitan
    "titan-h100-llama-3.1-8b-l8-s4096-b2-2-eager",  # every second layer: torchtitan 0.2.2, not main
    "mlm-dsv3-gb200-",  # DeepEP over racks of 72 in 2025; main of 2026 says that HybridEP alone supports them
    "prime-rl-",  # a trainer of its own, taken as torchtitan: it keeps activations in host memory
    "tpu-v5p-llama4-maverick",  # recipe of 2025; the record is of MaxText in 2026
    "mlm-zoo-235b-gb200-mxfp8",  # a branch of its authors: graphs next to fine-grained offload
}
STATED_IDLE = {
    "mlperf-v6.0-",  # recipes for several sizes: a dispatcher where there is one rank of experts, two overlaps
    "mlm-ci-moe-",  # "no overlap" is said of gradients; the transfers of stages are not named
    "tpu7x-19-",  # no micro-batch is stated
}
"""Options that a recipe names and that have nothing to do, or that are read as more than they say."""
ASSUMED_CHUNKS = {"sc21-tab1-39.1b", "mlm-jan2021-39.1b"}
"""Two stages, which Megatron-LM did not interleave: the row is silent, and the usual size of a chunk is assumed."""


def test_the_plans_of_measured_runs_run_on_their_frameworks() -> None:
    asked, _skipped = ask_all(shipped_runs())
    refused = {each.run.id: found for each in asked if (found := _refusals(each))}
    others = {run for run in refused if any(run.startswith(name) for name in OTHER_SOFTWARE | STATED_IDLE)}
    assert {run: refused[run] for run in {*refused} - others - ASSUMED_CHUNKS} == {}


def _refusals(asked: AskedRun) -> list[tuple[str, str]]:
    stack, question = stack_of(asked.run), asked.question
    if stack is None:
        return []
    setting = Setting.of(question.model, question.cluster, question.num_accelerators, question.job)
    return [(each.rule, each.message) for each in refusals(stack, asked.plan, setting)]
