"""A plan as a launch script of Megatron-LM, and what it shares with Megatron-Bridge and NeMo: fields of Megatron Core.

Names are those of ``megatron/core/transformer/transformer_config.py`` at d98e8a64; Megatron-LM's options are the same
with dashes.

Names: ``megatron/training/arguments.py`` and ``megatron/training/config`` at d98e8a64, whose parser builds options from
the fields of ``TransformerConfig`` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention, LatentAttention, MixtureOfExperts
from shardplan.launch.export.decoder import Decoder
from shardplan.launch.export.details import (
    NORM_EPSILON,
    ROTARY_BASE,
    SILU,
    detail_placeholders,
    detail_word,
    number_text,
    scaling_of_megatron_lm,
    unknown_details,
    unlike_details,
)
from shardplan.launch.export.shell import Given, Word, blocking, exported
from shardplan.launch.export.written import Export, LaunchCase, Placeholder, flags, losses

FEATURES: Final = (
    "layer_norm", "learned_positions", "tied_embeddings", "mtp", "windows", "no_rotary", "latent_attention",
    "qk_norm_head", "qkv_bias", "sinks", "output_gate", "ungated", "experts", "some_dense", "shared_experts",
    "shared_gate", "latent_experts", "expert_groups",
)  # fmt: skip
"""Features of a model that these fields express."""
SAID: Final = (
    "attention", "dropout", "grad_dtype", "moment_dtype", "quantised_weights", "blocking_launches", "loss_kernel",
)  # fmt: skip
"""Fields of a job and of its software that they express."""


def features(decoder: Decoder) -> tuple[str, ...]:
    """Those that a model's fields express: biases are all on, or all off but those of queries, keys and values."""
    has_all = {"output_bias", "mlp_bias"} <= {*decoder.features}
    return (*FEATURES, "output_bias", "mlp_bias") if has_all else FEATURES


def model_fields(case: LaunchCase) -> dict[str, Any]:
    """Dimensions of the model. A bool is a switch, a tuple a number for every layer (or the two of a window)."""
    d, model = case.decoder, case.model
    dropout = dict.fromkeys(("attention_dropout", "hidden_dropout"), 0.1 if case.job.dropout else 0.0)
    return {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": d.ffn_size,
        **_attention(d),
        "add_bias_linear": {"output_bias", "mlp_bias"} <= {*d.features},
        "add_qkv_bias": "qkv_bias" in d.features,
        **_windows(d),
        **dropout,
        **({"mtp_num_layers": model.num_mtp_layers} if model.num_mtp_layers else {}),
        **({} if d.experts is None else _experts(d, d.experts)),
        **_details(case),
    }


def _details(case: LaunchCase) -> dict[str, Any]:
    """Known details of positions, initial weights and the router."""
    details, found = case.model.details, dict[str, Any]()
    if details.partial_rotary_factor not in (None, 1) and any(case.decoder.rotary):
        found["rotary_percent"] = number_text(details.partial_rotary_factor)
    if details.initializer_range is not None:
        found["init_method_std"] = number_text(details.initializer_range)
    if case.decoder.experts is not None and details.scoring_func in ("softmax", "sigmoid"):
        found["moe_router_score_function"] = details.scoring_func
    if case.decoder.experts is not None and details.scoring_func in (None, "softmax"):
        # A softmax behind the choice of experts scales their weights to one; Megatron asks for one in front for top-1.
        found["moe_router_pre_softmax"] = case.decoder.experts.top_k == 1 or details.norm_topk_prob is False
    if case.decoder.experts is not None and details.routed_scaling_factor not in (None, 1):
        found["moe_router_topk_scaling_factor"] = number_text(details.routed_scaling_factor)
    return found


def lost_details(case: LaunchCase, activation: str | None, *, states_scaling: bool) -> tuple[str, ...]:
    """Known details that the launch files of a framework on Megatron Core do not state."""
    scaling = ("rope_scaling",) if states_scaling else ()
    return unlike_details(case, (*details_said(case, activation), *scaling))


def details_said(case: LaunchCase, activation: str | None) -> tuple[str, ...]:
    """Details that its fields express; ``activation``: the function that the options stand for."""
    known = case.model.details.hidden_act
    acts = ("hidden_act",) if known == activation or (known in SILU and activation in SILU) else ()
    scoring = case.model.details.scoring_func
    scores = (
        ("router", "norm_topk_prob") if scoring in (None, "softmax") else ("router",) if scoring == "sigmoid" else ()
    )
    return ("partial_rotary_factor", "initializer_range", *acts, *scores)


def kernel_fields(case: LaunchCase) -> dict[str, Any]:
    """How the framework computes it: attention and loss; experts and graphs are options of its record."""
    software = case.job.software
    fields: dict[str, Any] = {"attention_backend": "unfused"} if case.job.attention == "unfused" else {}
    if software.loss_kernel == "single":
        fields |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}
    return fields


def _attention(d: Decoder) -> dict[str, Any]:
    a = d.attention
    if isinstance(a, LatentAttention):
        return {
            "num_attention_heads": a.num_heads,
            "multi_latent_attention": True,
            **({} if a.q_lora_rank is None else {"q_lora_rank": a.q_lora_rank}),
            "kv_lora_rank": a.kv_lora_rank,
            "qk_head_dim": a.qk_nope_head_dim,
            "qk_pos_emb_head_dim": a.qk_rope_head_dim,
            "v_head_dim": a.v_head_dim,
            "qk_layernorm": True,  # the norms behind the projections to low rank
        }
    return {
        "num_attention_heads": a.num_heads,
        "num_query_groups": a.num_kv_heads,
        "kv_channels": a.head_dim,
        "qk_layernorm": a.qk_norm == "head",
        **({"softmax_type": "learnable"} if a.sinks else {}),
        **({"attention_output_gate": True} if a.output_gate else {}),
    }


def _windows(d: Decoder) -> dict[str, Any]:
    """One window in some layers; a query counts among the keys it sees, and Megatron counts those before it."""
    found: dict[str, Any] = {}
    sizes = {each for each in d.windows if each is not None}
    if len(sizes) == 1:
        found["window_size"] = (max(sizes) - 1, 0)
        if None in d.windows:
            found["window_attn_skip_freq"] = tuple(int(each is not None) for each in d.windows)
    if not all(d.rotary) and any(d.rotary):
        found["no_rope_freq"] = tuple(int(not each) for each in d.rotary)
    return found


def _experts(d: Decoder, e: MixtureOfExperts) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "num_moe_experts": e.num_experts,
        "moe_router_topk": e.top_k,
        "moe_ffn_hidden_size": e.intermediate_size,
        "moe_layer_freq": 1 if all(d.has_experts) else tuple(map(int, d.has_experts)),
    }
    if e.shared_intermediate_size:
        fields["moe_shared_expert_intermediate_size"] = e.shared_intermediate_size
    if e.shared_gate:
        fields["moe_shared_expert_gate"] = True
    if e.latent_size is not None:
        fields["moe_latent_size"] = e.latent_size
    if e.n_group > 1:
        fields |= {"moe_router_num_groups": e.n_group, "moe_router_group_topk": e.topk_group}
    return fields


def pattern(values: Sequence[int]) -> str:
    """A list of zeros and ones as options of Megatron-LM have it.

    >>> pattern([0, 0, 0, 1, 1])
    '([0]*3+[1]*2)'
    """
    for period in range(1, len(values) // 2 + 1):
        if len(values) % period == 0 and list(values) == list(values[:period]) * (len(values) // period):
            return f"([{','.join(map(str, values[:period]))}]*{len(values) // period})"
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    return f"({'+'.join(f'[{value}]*{number}' for value, number in runs)})"


def positions(d: Decoder) -> str:
    """The kind of position embedding."""
    return "learned_absolute" if d.model.num_position_embeddings else "rope" if any(d.rotary) else "none"


def environment(case: LaunchCase) -> dict[str, str]:
    """Variables that Megatron checks or that decide its speed.

    ``megatron/training/arguments.py``: with tensor or context parallelism CUDA_DEVICE_MAX_CONNECTIONS is 1 before
    Blackwell; it is above 1 or unset with sharded weights, and 1 or 32 where expert exchange overlaps. Fine-grained
    offload needs NVTE_CPU_OFFLOAD_V1.
    """
    plan, found = case.plan, dict[str, str]()
    is_before_blackwell = case.cluster.accelerator.generation in ("volta", "turing", "ampere", "ada", "hopper")
    if is_before_blackwell and plan.sharding in ("ddp", "zero1") and (plan.tp > 1 or plan.cp > 1):
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if plan.overlap_ep and plan.ep > 1 else "1"
    if plan.offload == "activations" and not plan.offload_num_layers:
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found | blocking(case)


def is_gqa(d: Decoder) -> bool:
    """Whether key-value heads are fewer than query heads."""
    return isinstance(d.attention, Attention) and d.attention.num_kv_heads < d.attention.num_heads


_NAMES: Final = {"num_moe_experts": "num_experts"}
"""Options that go by another name than the field."""
_ADAM_16: Final = ("bf16", "fp16")


def export(case: LaunchCase) -> Export:
    """The launch script, and what Megatron-LM does not express."""
    lost = (
        *losses(case, said=said(case), features=features(case.decoder)),
        *lost_details(case, _activation(case), states_scaling=scaling_of_megatron_lm(case) is not None),
    )
    return exported(
        case,
        [Given("MEGATRON_LM", after="/pretrain_gpt.py")],
        lost=lost,
        relies_on=_relies_on(case),
        placeholders=core_placeholders(case, "MEGATRON_LM", "/path/to/Megatron-LM", "checkout with pretrain_gpt.py"),
        environment=environment(case),
        options={
            "Model": model_options(case),
            "Plan": flags(case.options.options),
            "Precision, optimizer and kernels": _numbers(case),
            "Training": _training(),
        },
    )


def options_of_fields(fields: Mapping[str, Any]) -> list[Sequence[Word]]:
    """Fields of Megatron Core as options; switches that are off are left out."""
    return [
        [f"--{_NAMES.get(name, name).replace('_', '-')}", *([] if value is True else [_text(name, value)])]
        for name, value in fields.items()
        if value is not False
    ]


def _text(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return str(value) if name == "window_size" else pattern(value)
    return str(value)


def model_options(case: LaunchCase) -> list[Sequence[Word]]:
    """Options of the model's dimensions."""
    d, fields = case.decoder, model_fields(case)
    rotary: list[Sequence[Word]] = [["--rotary-base", detail_word(case, ROTARY_BASE)]] if any(d.rotary) else []
    rotary += scaling_of_megatron_lm(case) or []
    has_bias = fields.pop("add_bias_linear")
    if not is_gqa(d):
        fields.pop("num_query_groups", None)
    switches = {
        "group-query-attention": is_gqa(d),
        "swiglu": d.gated,
        "squared-relu": _activation(case) == "relu2",
        "disable-bias-linear": not has_bias,
        "untie-embeddings-and-output-weights": not case.model.tie_word_embeddings,
    }
    return [
        *options_of_fields(fields),
        *([f"--{name}"] for name, is_on in switches.items() if is_on),
        ["--normalization", "LayerNorm" if case.model.norm_bias else "RMSNorm"],
        ["--position-embedding-type", positions(d)],
        *rotary,
        ["--norm-epsilon", detail_word(case, NORM_EPSILON)],
        ["--max-position-embeddings", str(max(case.model.max_position_embeddings, case.job.sequence_length))],
        ["--vocab-size", str(case.model.vocab_size)],
    ]


def said(case: LaunchCase) -> tuple[str, ...]:
    """Fields that options state; gradients have formats in bf16 and low precision alone, moments in Adam alone."""
    formats = {"fp32": ("fp32",), "fp16": ("fp16", "fp32")}.get(case.job.precision, ("bf16", "fp32"))
    moments = ("fp32", *_ADAM_16) if has_adam_16(case.job) else ("fp32",)
    is_said = {"grad_dtype": case.job.grad_dtype in formats, "moment_dtype": case.job.moment_dtype in moments}
    return tuple(name for name in SAID if is_said.get(name, True))


def has_adam_16(job: Job) -> bool:
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
    job, found = case.job, options_of_fields(kernel_fields(case))
    sixteen = job.precision != "fp32"
    if sixteen and job.precision != "fp16" and job.grad_dtype == "bf16":
        found.append(["--grad-reduce-in-bf16"])
    if job.precision == "fp16" and job.grad_dtype == "fp32":
        found.append(["--accumulate-allreduce-grads-in-fp32"])
    if has_adam_16(job) and job.moment_dtype in _ADAM_16:
        offloaded = case.plan.offload == "optimizer"  # whose options have it already
        found += [] if offloaded else [["--use-precision-aware-optimizer"]]
        found += [["--exp-avg-dtype", job.moment_dtype], ["--exp-avg-sq-dtype", job.moment_dtype]]
    if job.software.quantised_weights and job.precision in ("fp8", "mxfp8"):
        found.append(["--fp8-param-gather"])
        if case.plan.sharding == "ddp":  # of one replica: it has nothing to share, and fp8 weights want its optimizer
            found.append(["--use-distributed-optimizer"])
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


def core_placeholders(case: LaunchCase, *checkout: str) -> list[Placeholder]:
    """Those of a framework on Megatron Core; ``checkout``: name, value and meaning of the one for its folder."""
    return [
        Placeholder(*checkout),
        Placeholder("TOKENIZER", "/path/to/tokenizer", "folder or name of a Hugging Face tokenizer"),
        Placeholder("DATA_PATH", "/path/to/data", "prefix of a preprocessed data set"),
        Placeholder("CHECKPOINTS", "/path/to/checkpoints", "where checkpoints are written and read"),
        *detail_placeholders(case),
        *training_placeholders(case),
    ]


def training_placeholders(case: LaunchCase) -> list[Placeholder]:
    """Steps and learning rates, which a plan does not depend on."""
    steps = str(case.num_steps or 1000)
    return [
        Placeholder("TRAIN_STEPS", steps, "optimizer steps"),
        Placeholder("LEARNING_RATE", "3e-4", "yours to choose"),
        Placeholder("MIN_LEARNING_RATE", "3e-5", "yours to choose"),
        Placeholder("WARMUP_STEPS", "100", "yours to choose"),
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
