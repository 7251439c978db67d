"""A plan as a launch script of Megatron-LM: ``pretrain_gpt.py`` with all its options.

Names: ``megatron/training/arguments.py`` and ``megatron/training/config`` at d98e8a64, whose parser builds options from
the fields of ``TransformerConfig`` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.inputs.job import Job
from shardplan.launch.export import megatron_core as core
from shardplan.launch.export.details import (
    NORM_EPSILON,
    ROTARY_BASE,
    detail_placeholders,
    detail_word,
    scaling_of_megatron_lm,
    unknown_details,
)
from shardplan.launch.export.shell import Given, LaunchText, Word, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, flags, losses

_NAMES: Final = {"num_moe_experts": "num_experts"}
"""Options that go by another name than the field."""
_ADAM_16: Final = ("bf16", "fp16")


def export(case: LaunchCase) -> Export:
    """The launch script, and what Megatron-LM does not express."""
    lost = (
        *losses(case, said=_said(case), features=core.features(case.decoder)),
        *core.lost_details(case, _activation(case), states_scaling=scaling_of_megatron_lm(case) is not None),
    )
    relied = _relies_on(case)
    script = LaunchText(
        lost=lost,
        relies_on=relied,
        placeholders=_placeholders(case),
        environment=core.environment(case),
        options={
            "Model": _model(case),
            "Plan": flags(case.options.options),
            "Precision, optimizer and kernels": _numbers(case),
            "Training": _training(),
        },
        program=[Given("MEGATRON_LM", after="/pretrain_gpt.py")],
    )
    return exported(case, script)


def options_of_fields(fields: Mapping[str, Any]) -> list[Sequence[Word]]:
    """Fields of Megatron Core as options; switches that are off are left out."""
    return [
        [f"--{_NAMES.get(name, name).replace('_', '-')}", *([] if value is True else [_text(name, value)])]
        for name, value in fields.items()
        if value is not False
    ]


def _text(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return str(value) if name == "window_size" else core.pattern(value)
    return str(value)


def _model(case: LaunchCase) -> list[Sequence[Word]]:
    d, fields = case.decoder, core.model_fields(case)
    rotary: list[Sequence[Word]] = [["--rotary-base", detail_word(case, ROTARY_BASE)]] if any(d.rotary) else []
    rotary += scaling_of_megatron_lm(case) or []
    has_bias = fields.pop("add_bias_linear")
    if not core.is_gqa(d):
        fields.pop("num_query_groups", None)
    switches = {
        "group-query-attention": core.is_gqa(d),
        "swiglu": d.gated,
        "squared-relu": _activation(case) == "relu2",
        "disable-bias-linear": not has_bias,
        "untie-embeddings-and-output-weights": not case.model.tie_word_embeddings,
    }
    return [
        *options_of_fields(fields),
        *([f"--{name}"] for name, is_on in switches.items() if is_on),
        ["--normalization", "LayerNorm" if case.model.norm_bias else "RMSNorm"],
        ["--position-embedding-type", core.positions(d)],
        *rotary,
        ["--norm-epsilon", detail_word(case, NORM_EPSILON)],
        ["--max-position-embeddings", str(max(case.model.max_position_embeddings, case.job.sequence_length))],
        ["--vocab-size", str(case.model.vocab_size)],
    ]


def _said(case: LaunchCase) -> tuple[str, ...]:
    """Fields that options state; gradients have formats in bf16 and low precision alone, moments in Adam alone."""
    formats = {"fp32": ("fp32",), "fp16": ("fp16", "fp32")}.get(case.job.precision, ("bf16", "fp32"))
    moments = ("fp32", *_ADAM_16) if _has_adam_16(case.job) else ("fp32",)
    is_said = {"grad_dtype": case.job.grad_dtype in formats, "moment_dtype": case.job.moment_dtype in moments}
    return tuple(name for name in core.SAID if is_said.get(name, True))


def _has_adam_16(job: Job) -> bool:
    """Whether moments may have 16 bits: Adam's, next to weights in 16 bits (``--use-precision-aware-optimizer``)."""
    return job.optimizer == "adam" and job.precision != "fp32"


def _activation(case: LaunchCase) -> str:
    """The function that the options stand for: of the gate, or of plain MLPs, which have GELU without an option."""
    known = case.model.details.hidden_act
    if case.decoder.gated:
        return "silu"
    return known if known in ("relu2", "gelu_new", "gelu_pytorch_tanh") else "gelu"


def _numbers(case: LaunchCase) -> list[Sequence[Word]]:
    """Formats of gradients and moments, and kernels."""
    job, found = case.job, options_of_fields(core.kernel_fields(case))
    sixteen = job.precision != "fp32"
    if sixteen and job.precision != "fp16" and job.grad_dtype == "bf16":
        found.append(["--grad-reduce-in-bf16"])
    if job.precision == "fp16" and job.grad_dtype == "fp32":
        found.append(["--accumulate-allreduce-grads-in-fp32"])
    if _has_adam_16(job) and job.moment_dtype in _ADAM_16:
        offloaded = case.plan.offload == "optimizer"  # whose options have it already
        found += [] if offloaded else [["--use-precision-aware-optimizer"]]
        found += [["--exp-avg-dtype", job.moment_dtype], ["--exp-avg-sq-dtype", job.moment_dtype]]
    if job.software.quantised_weights and job.precision in ("fp8", "mxfp8"):
        found.append(["--fp8-param-gather"])
        if job.precision == "mxfp8" and case.plan.sharding == "zero1" and case.plan.overlap_dp:
            found.append(["--reuse-grad-buf-for-mxfp8-param-ag"])
    if case.plan.sharding in ("zero2", "zero3", "hsdp"):
        found.append(["--ckpt-format", "fsdp_dtensor"])
    return found


def _training() -> list[Sequence[Word]]:
    return [
        ["--train-iters", Given("TRAIN_STEPS")],
        ["--lr", Given("LEARNING_RATE")],
        ["--min-lr", Given("MIN_LEARNING_RATE")],
        ["--lr-warmup-iters", Given("WARMUP_STEPS")],
        ["--lr-decay-style", "cosine"],
        ["--tokenizer-type", "HuggingFaceTokenizer"],
        ["--tokenizer-model", Given("TOKENIZER")],
        ["--data-path", Given("DATA_PATH")],
        ["--save", Given("CHECKPOINTS")],
        ["--load", Given("CHECKPOINTS")],
        ["--save-interval", "1000"],
        ["--eval-interval", "1000"],
        ["--eval-iters", "10"],
        ["--log-interval", "1"],
        ["--log-throughput"],
    ]


def _placeholders(case: LaunchCase) -> list[Placeholder]:
    return [
        Placeholder(name="MEGATRON_LM", value="/path/to/Megatron-LM", about="checkout with pretrain_gpt.py"),
        Placeholder(name="TOKENIZER", value="/path/to/tokenizer", about="folder or name of a Hugging Face tokenizer"),
        Placeholder(name="DATA_PATH", value="/path/to/data", about="prefix of a preprocessed data set"),
        Placeholder(name="CHECKPOINTS", value="/path/to/checkpoints", about="where checkpoints are written and read"),
        *detail_placeholders(case),
        *training_placeholders(case),
    ]


def training_placeholders(case: LaunchCase) -> list[Placeholder]:
    """Steps and learning rates, which a plan does not depend on."""
    steps = str(case.num_steps or 1000)
    return [
        Placeholder(name="TRAIN_STEPS", value=steps, about="optimizer steps"),
        Placeholder(name="LEARNING_RATE", value="3e-4", about="yours to choose"),
        Placeholder(name="MIN_LEARNING_RATE", value="3e-5", about="yours to choose"),
        Placeholder(name="WARMUP_STEPS", value="100", about="yours to choose"),
    ]


def _relies_on(case: LaunchCase) -> tuple[str, ...]:
    found = [f"the vocabulary is padded to a multiple of {128 * case.plan.tp} (--make-vocab-size-divisible-by 128)"]
    if case.decoder.experts is not None and case.plan.etp == case.plan.tp:
        found.append(f"expert tensor parallelism is {case.plan.tp}, the tensor-parallel degree, where it is not given")
    if case.plan.recompute == "none":
        found.append("nothing is recomputed")
    if case.job.attention != "unfused":
        found.append("--attention-backend auto: Transformer Engine chooses among fused kernels")
    if case.job.precision == "fp32":
        found.append("numbers are fp32 where no precision is given")
    return (*found, *unknown_details(case, "SiLU (--swiglu)" if case.decoder.gated else "GELU"))
