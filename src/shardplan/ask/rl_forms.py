"""The fields of an RL step: what is generated, how the pools share accelerators, and what a step also computes."""

from __future__ import annotations

from typing import Any, Final

from shardplan.base.fields import InJson, asked, dataclass, switch
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS

MOST_PROMPTS: Final = 2**20
MOST_STALENESS: Final = 64
_COUNT: Final[dict[str, Any]] = {"least": 1, "most": MOST_PROMPTS, "metavar": "N"}


@dataclass(frozen=True, kw_only=True)
class RlForm:
    """An RL step, in addition to the question of its trainer."""

    PANEL = "RL step"

    prompts: int | None = asked("Prompts of a step.", in_json=InJson("Prompts of a step.", is_required=True), **_COUNT)
    samples: int | None = asked(
        "Answers to each prompt.", in_json=InJson("Answers to each prompt.", is_required=True), **_COUNT
    )
    prompt_tokens: int | None = asked(
        "Tokens of a prompt, on average: 128, 2k. Default: 256.", least=1, most=2**24, is_length=True, metavar="N"
    )
    response_tokens: str | None = asked(
        "Lengths of answers: mean=2k,max=4k, with spread=0.6,endless=0.01 (standard deviation over mean; share that "
        "only max ends); or file=lengths.txt, one length a line.",
        metavar="mean=N,max=N",
        in_json=InJson("Lengths of answers: mean=2k,max=4k.", is_required=True),
    )
    framework: str | None = asked(
        "What runs the step: nemo-rl, or nemo-rl:0.6 for a release; verl, slime and others. It decides which plans "
        "are searched, and what its program costs, counted for nemo-rl, and verl without its driver. Default: any.",
        metavar="NAME[:N]",
    )
    backend: str | None = asked(
        "Trainer of the framework: megatron, or fsdp for FSDP2 around modules of Hugging Face transformers. "
        "Default: megatron.",
        metavar="NAME",
    )
    algorithm: str | None = asked("grpo, dapo, reinforce++ or ppo. Default: grpo.", metavar="NAME")
    reference: str | None = asked(
        "Whether a reference model judges each answer: yes or no. Default: as the algorithm does.", metavar="yes|no",
        takes="yes or no",
    )  # fmt: skip
    old_pass: str | None = asked(
        "Whether the trainer computes the log-probabilities of the answers again before it trains: yes or no. "
        "Default: yes.",
        metavar="yes|no",
        takes="yes or no",
    )
    critic: str | None = asked("Value model of PPO. Default: the policy's.", metavar="MODEL", takes="name or content")
    reward_seconds: float | None = asked(
        "Seconds that rewards take after the last answer. Default: 0.",
        least=0, most=1e6, includes_least=True, metavar="SECONDS",
    )  # fmt: skip
    updates: int | None = asked("Optimizer steps of an RL step. Default: 1.", **_COUNT)
    pack_tokens: int | None = asked(
        "Tokens of a packed training sequence. Default: a prompt and its longest answer.",
        least=1, most=2**24, is_length=True, metavar="N",
    )  # fmt: skip
    placement: str | None = asked(
        "Placements to compare: colocated, partial, in-turns, one-step-off, async. Default: all.",
        metavar="NAMES",
    )
    staleness: int | None = asked(
        "Steps by which answers may be older than the weights that train on them, under async. Default: 1.",
        least=0, most=MOST_STALENESS, metavar="N",
    )  # fmt: skip
    rollout_cluster: str | None = asked(
        "Cluster that generates, if not the trainer's; --gpus is then trainer+generation: 64+128.",
        metavar="NAME|FILE",
        takes="name or content",
        in_json=InJson(
            "Cluster that generates, if not the trainer's; num_accelerators is then trainer+generation: 64+128."
        ),
    )
    engine: str | None = asked(
        "Inference engine: vllm or sglang. Default: vllm, or that of the framework.", metavar="NAME"
    )
    rollout_precision: str | None = asked("Format of the engine's weights: bf16, fp8. Default: bf16.", metavar="FORMAT")
    cache_precision: str | None = asked("Format of its cache: bf16, fp8. Default: bf16.", metavar="FORMAT")
    speculative: str | None = asked(
        "Speculative decoding: mtp with layers of the model, eagle with an extra draft layer; mtp:2 for two drafted "
        "tokens. Default: none.",
        metavar="mtp[:N]",
    )
    prefix_shared: bool = switch("Train each prompt once for all its answers (shared-prefix attention).")
    transfer: str | None = asked(
        "How weights reach the engines: ipc, sharded, broadcast, checkpoint or delta. Default: ipc on the same "
        "accelerators, else that of the framework, or sharded.",
        metavar="METHOD",
    )
    observed: list[str] | None = asked(
        'Measurement, to find the part that is off: "step 171s", "generation 95s". Can be repeated.',
        metavar="TEXT",
        takes="names",
        in_json=InJson("Measurement, to find the part that is off: step 171s.", default=[]),
    )


@dataclass(frozen=True, kw_only=True)
class RlRunForm:
    """A run of RL steps."""

    PANEL = "Budget: the others are worked out"

    steps: int | None = asked(
        "RL steps of the run, if MODEL is the answer of `shardplan rl`.",
        least=1,
        most=10**9,
        metavar="N",
        in_json=InJson("RL steps of the whole run, for days and money."),
    )


@dataclass(frozen=True, kw_only=True)
class RlDecisionForm(RlRunForm):
    """What a page or a request also asks about an RL step; commands ask it about the answer of ``shardplan rl``."""

    days: float | None = asked("The run is to be done in this many days.", least=0, most=1e6, metavar="DAYS")
    change: list[str] | None = asked(
        "Plan again after changes, one after the other: samples=16, response_tokens=mean=4k,max=8k, "
        "memory_bandwidth=4.8TB/s, gpus=64.",
        metavar="NAME=VALUE",
        takes="names",
        in_json=InJson("Changes, one after the other, after each of which the step is planned again.", default=[]),
    )
    sensitivity: bool = switch("Also say how the step follows the hardware and the answers.")


POOLS_HINT: Final = (
    f"write --gpus 512, or --gpus 64+128: trainer and generation, together at most {MAX_NUM_ACCELERATORS:,}"
)
