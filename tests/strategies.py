"""Random valid models, clusters, jobs and plans for property tests. Small, so that every example is quick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any, Final, TypeVar, get_args, get_type_hints

from hypothesis import strategies as st
from tests.examples import GB, accelerator, cluster, tier

from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import RECOMPUTE_MODULES, Offload, Plan, Sharding, chunk_layers
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.recurrent import (
    DeltaAttention,
    LightningAttention,
    LinearAttention,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)
from shardplan.inputs.sharding import SHARDINGS
from shardplan.inputs.software import Software
from shardplan.physics.validity import broken_rule

WORLD_SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 72, 96, 128)

T = TypeVar("T")
BOOLEANS: Final = st.booleans()
SWITCHES: Final = st.sampled_from((None, True, False))
RATES: Final = st.floats(1, 2000)
"""Bandwidths of links. [GB/s]"""
LATENCIES: Final = st.floats(0, 1e-4)


@cache
def whole(least: int, most: int) -> st.SearchStrategy[int]:
    """A whole number from ``least`` to ``most``, by a strategy that is made once."""
    return st.integers(least, most)


def among(*options: T) -> st.SearchStrategy[T]:
    """One of ``options``, by a strategy that is made once: to make and check one takes longer than to draw from it."""
    found: st.SearchStrategy[T] = _among(*options)
    return found


@lru_cache(maxsize=None, typed=True)  # a flag and a number that are equal are not the same
def _among(*options: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


@dataclass(frozen=True)
class Case:
    """A question and a plan that is valid for it."""

    question: Question
    plan: Plan


def divisors(n: int) -> list[int]:
    """All of them, in order."""
    return [d for d in range(1, n + 1) if n % d == 0]


@cache
@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Multi-head or grouped-query attention, full or in a window."""
    heads = draw(among(4, 8, 12, 16))
    return Attention(
        num_heads=heads,
        num_kv_heads=draw(among(*divisors(heads))),
        head_dim=draw(among(8, 16, 20, 64)),
        qkv_bias=draw(BOOLEANS),
        output_bias=draw(BOOLEANS),
        qk_norm=draw(among("none", "head")),
        window=draw(among(None, None, 64)),
        rotary=draw(BOOLEANS),
    )


@cache
@st.composite
def latent_attentions(draw: st.DrawFn) -> LatentAttention:
    """Latent attention with and without a query rank."""
    return LatentAttention(
        num_heads=draw(among(4, 8, 16)), q_lora_rank=draw(among(None, 48)), kv_lora_rank=32,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
    )  # fmt: skip


@cache
def state_spaces() -> st.SearchStrategy[StateSpace]:
    """Mamba-2 mixers."""
    return st.builds(
        StateSpace, num_heads=among(8, 16), head_dim=st.just(16), state_size=st.just(16),
        num_groups=among(4, 8), conv_kernel=st.just(4), chunk_size=st.just(64), conv_bias=BOOLEANS,
        proj_bias=BOOLEANS,
    )  # fmt: skip


@cache
def recurrent_mixers() -> st.SearchStrategy[Mixer]:
    """Mixers of every kind that carries a state along the sequence, and short convolutions."""
    return st.one_of(
        state_spaces(),
        st.builds(
            SelectiveScan, inner_size=among(96, 192), state_size=st.just(16), dt_rank=st.just(6),
            conv_kernel=st.just(4), conv_bias=BOOLEANS, proj_bias=BOOLEANS, inner_norms=BOOLEANS,
        ),
        st.builds(
            LinearAttention, num_key_heads=st.just(4), num_value_heads=st.just(8), key_head_dim=st.just(16),
            value_head_dim=st.just(16), conv_kernel=st.just(4),
        ),
        st.builds(DeltaAttention, num_heads=st.just(8), head_dim=st.just(16), conv_kernel=st.just(4)),
        st.builds(LightningAttention, num_heads=st.just(8), head_dim=st.just(16)),
        st.builds(
            ShortConvolution, num_channels=among(96, 192), conv_kernel=st.just(3), bias=BOOLEANS
        ),
    )  # fmt: skip


@cache
def mlps() -> st.SearchStrategy[MLP]:
    """Plain and gated MLPs."""
    return st.builds(MLP, intermediate_size=among(192, 256, 768), gated=BOOLEANS, bias=BOOLEANS)


@cache
@st.composite
def mixtures(draw: st.DrawFn) -> MixtureOfExperts:
    """Mixtures of experts with and without shared ones, with and without groups."""
    num_experts, top_k = draw(among(4, 8, 24)), draw(whole(1, 4))
    n_group = draw(among(1, 1, 2, 4))
    fewest = -(-top_k * n_group // num_experts)
    return MixtureOfExperts(
        num_experts=num_experts, top_k=top_k, intermediate_size=draw(among(64, 96)),
        gated=draw(BOOLEANS), bias=draw(BOOLEANS), shared_intermediate_size=draw(among(0, 96)),
        latent_size=draw(among(None, None, 32)), n_group=n_group,
        topk_group=draw(whole(fewest, n_group)),
    )  # fmt: skip


@cache
def softmax_mixers() -> st.SearchStrategy[Attention | LatentAttention]:
    """Attention of either kind."""
    return st.one_of(attentions(), latent_attentions())


@cache
def other_layers() -> tuple[st.SearchStrategy[Layer], ...]:
    """Layers of one part, and with two mixers side by side."""
    two_mixers = st.builds(
        Layer, mixer=recurrent_mixers(), parallel_mixer=attentions(), mlp=mlps(), num_norms=st.just(2),
        layer_scale=BOOLEANS,
    )  # fmt: skip
    return (
        st.builds(Layer, mixer=recurrent_mixers(), mlp=st.none(), num_norms=st.just(1)),
        two_mixers,
        st.builds(Layer, mixer=attentions(), mlp=st.none(), num_norms=st.just(1)),
    )


@cache
@st.composite
def models(draw: st.DrawFn, *, uniform: bool = False, moe: bool | None = None) -> ModelConfig:
    """Dense models, mixtures of experts, hybrids. ``uniform``: all layers alike; ``moe``: with experts or without."""
    mixer = draw(softmax_mixers())
    sparse = draw(BOOLEANS) if moe is None else moe
    mlp: MLP | MixtureOfExperts = draw(mixtures()) if sparse else draw(mlps())
    layer = Layer(mixer=mixer, mlp=mlp, num_norms=2)
    num_layers = draw(whole(1, 12))
    layers = [layer] * num_layers
    if not uniform and draw(BOOLEANS):
        other = draw(
            st.one_of(
                st.builds(Layer, mixer=st.just(mixer), mlp=mlps(), num_norms=st.just(2)),
                *other_layers(),
            )
        )
        if not sparse or num_layers > 1:
            for index in range(num_layers - 1):
                layers[index] = other if draw(BOOLEANS) else layer
    return ModelConfig(
        name="model", model_type="test", hidden_size=draw(among(96, 192, 512)), layers=tuple(layers),
        vocab_size=draw(among(96, 1000, 4096)), tie_word_embeddings=draw(BOOLEANS),
        norm_bias=draw(BOOLEANS), max_position_embeddings=4096,
        num_position_embeddings=draw(among(0, 0, 128)), num_mtp_layers=draw(among(0, 0, 1)),
    )  # fmt: skip


@cache
@st.composite
def accelerators(draw: st.DrawFn) -> Accelerator:
    """Slow and fast parts, small and large memories."""
    bf16 = draw(st.floats(1e12, 5e15))
    return accelerator(
        generation=draw(among("hopper", "ampere", "tpu", "other")),
        memory_bytes=draw(st.floats(3 * GB, 300 * GB)),
        memory_bandwidth=draw(st.floats(100 * GB, 10_000 * GB)),
        num_cores=draw(among(None, 4, 132)),
        host_link_bandwidth=draw(among(None, 16 * GB, 450 * GB)),
        peak_flops={"fp32": bf16 / 10, "bf16": bf16, "fp16": bf16, "fp8": 2 * bf16},
    )


@cache
@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to three tiers of any speed."""
    node = draw(among(2, 4, 8))
    tiers = [
        tier(
            "node", node, draw(RATES), latency=draw(LATENCIES),
            topology=draw(among("switch", "switch", "mesh")),
        ),
        tier("network", None, draw(RATES), latency=draw(LATENCIES)),
    ]  # fmt: skip
    if draw(BOOLEANS):
        times = draw(among(2, 4))
        tiers.insert(1, tier("rack", times * node, draw(RATES), latency=draw(LATENCIES)))
    return cluster(*tiers, part=draw(accelerators()))


@cache
def softwares() -> st.SearchStrategy[Software]:
    """What frameworks do, the usual behaviour as often as any other."""
    hints = get_type_hints(Software)
    others = {field.name: among(*get_args(hints[field.name]) or (False, True)) for field in fields(Software)}
    return st.one_of(st.just(Software()), st.builds(Software, **others))


@cache
@st.composite
def jobs(draw: st.DrawFn, global_batch_size: int) -> Job:
    """Jobs of that many sequences."""
    return Job(
        sequence_length=draw(among(1536, 3072)),
        global_batch_size=global_batch_size,
        precision=draw(among("bf16", "bf16", "fp16", "fp8", "fp32")),
        optimizer=draw(among("adam", "sgd", "muon")),
        attention=draw(among("flash", "unfused")),
        grad_dtype=draw(among("fp32", "bf16")),
        moment_dtype=draw(among("fp32", "fp32", "bf16")),
        dropout=draw(BOOLEANS),
        routing=draw(among("balanced", "learned", "1.3")),
        train=draw(among("full", "full", "full", "lora")),
        lora_rank=2,
        lora_targets=draw(among("all", "o", "all")),
        documents=draw(among(None, None, None, (400,), (512, 1024))),
        software=draw(softwares()),
    )


def tensor_degrees(model: ModelConfig, num_accelerators: int) -> list[int]:
    """Tensor-parallel degrees that the heads and widths of ``model`` allow."""
    job = Job(sequence_length=3072, global_batch_size=num_accelerators)
    setting = Setting.of(model, cluster(), num_accelerators, job)
    return [tp for tp in divisors(num_accelerators) if tp <= 16 and broken_rule(setting, Plan(tp=tp)) is None]


@st.composite
def degrees(draw: st.DrawFn, model: ModelConfig, num_accelerators: int) -> dict[str, Any]:
    """Degrees that divide the accelerators and the model."""
    tp = draw(among(*tensor_degrees(model, num_accelerators)))
    left = num_accelerators // tp
    cp = draw(among(*[d for d in divisors(left) if d in (1, 2, 4)]))
    layers = model.num_hidden_layers
    pp = draw(among(*[d for d in divisors(left // cp) if d <= layers]))
    vp = draw(among(*[v for v in (1, 1, 2, 3) if pp * v <= layers and (pp > 1 or v == 1)]))
    ep = etp = 1
    if model.is_moe:
        experts = [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]
        per_stage = num_accelerators // pp
        ep = draw(among(*[d for d in divisors(per_stage) if experts[0].num_experts % d == 0]))
        etp = draw(among(*[d for d in divisors(per_stage // ep) if experts[0].intermediate_size % d == 0]))
    return {"tp": tp, "cp": cp, "pp": pp, "vp": vp, "ep": ep, "etp": etp}


@cache
def presets_or(modules: tuple[str, ...]) -> st.SearchStrategy[str]:
    """A preset of recomputation, or up to three of ``modules``."""
    some = st.lists(among(*modules), min_size=1, max_size=3, unique=True).map(",".join)
    return st.one_of(among("none", "selective", "op_sac", "full"), some)


@st.composite
def recomputations(draw: st.DrawFn, model: ModelConfig) -> str:
    """A preset, or modules that the model has."""
    general = ["core_attn", "layernorm", "activation"]
    kinds = model.layer_kinds
    parts: Sequence[tuple[str, bool]] = (
        ("moe", model.is_moe),
        ("mlp", any(isinstance(kind.mlp, MLP) for kind in kinds)),
        ("mla_up_proj", any(isinstance(kind.mixer, LatentAttention) for kind in kinds)),
    )
    known = [*general, *(name for name, there in parts if there)]
    assert set(known) <= set(RECOMPUTE_MODULES)
    return draw(presets_or(tuple(known)))


@st.composite
def plans(draw: st.DrawFn, model: ModelConfig, num_accelerators: int) -> tuple[Plan, int]:
    """A valid plan and a global batch that suits it."""
    fields = draw(degrees(model, num_accelerators))
    replicas = num_accelerators // (fields["tp"] * fields["pp"])
    alone: tuple[Sharding, ...] = ("ddp", "zero1")
    sharding = draw(among(*get_args(Sharding) if replicas > 1 else alone))
    smaller = [d for d in divisors(replicas) if d < replicas]
    degree = draw(among(*smaller if SHARDINGS[sharding].in_groups else [None, None, *divisors(replicas)]))
    interleaved = fields["vp"] > 1
    schedules: tuple[str | None, ...] = (None, "interleaved") if interleaved else (None, "1f1b", "gpipe")
    schedule = draw(among(*schedules))
    offload: Offload = draw(among("none", "none", "none", "optimizer", "activations"))
    plan = Plan(
        **fields,
        micro_batch_size=draw(among(1, 2, 3)),
        sequence_parallel=draw(BOOLEANS) or model.is_moe,
        sharding=sharding,
        sharding_degree=degree,
        schedule=schedule,
        recompute=draw(recomputations(model)),
        recompute_num_layers=draw(among(None, None, None, 0, 1, 2)),
        offload=offload,
        offload_num_layers=draw(among(None, 0, 1, 3)) if offload == "activations" else None,
        cp_comm=draw(among("p2p", "allgather")),
        overlap_tp=draw(BOOLEANS),
        overlap_dp=draw(BOOLEANS),
        overlap_pp=draw(SWITCHES),
        overlap_ep=draw(BOOLEANS),
        placement=draw(among("tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp", "tp:2-dp:2-tp-cp-ep-dp-pp")),
    )
    per_replica = draw(whole(1, 6)) * (plan.pp if interleaved else 1)
    return plan, per_replica * plan.dp(num_accelerators) * plan.micro_batch_size


@st.composite
def rarities(draw: st.DrawFn, model: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
    """Changes of a plan that are valid for some models and jobs only."""
    chunks = list(chunk_layers(model.num_hidden_layers, plan.pp * plan.vp, model.num_mtp_layers))
    first, second = (draw(whole(0, len(chunks) - 1)) for _ in range(2))
    chunks[first], chunks[second] = chunks[first] - 1, chunks[second] + 1
    candidates: list[dict[str, Any]] = [
        {"cp_comm": "a2a"},
        {"tp_kind": "summa", "tp_rows": draw(among(*divisors(plan.tp)))},
        {"microbatch_group_size": draw(whole(plan.pp, 2 * plan.pp))},
        *([{"stage_layers": tuple(chunks)}] if min(chunks) >= 0 else []),
    ]
    return [changes for changes in candidates if draw(BOOLEANS)]


@cache
@st.composite
def cases(draw: st.DrawFn, *, uniform: bool = False, num_accelerators: int | None = None) -> Case:
    """A question and a plan that is valid for it."""
    model = draw(models(uniform=uniform))
    n = num_accelerators or draw(among(*WORLD_SIZES))
    plan, global_batch_size = draw(plans(model, n))
    job = draw(jobs(global_batch_size))
    question = Question(model=model, cluster=draw(clusters()), num_accelerators=n, job=job)
    setting = Setting.of(model, question.cluster, n, job)
    assert broken_rule(setting, plan) is None
    for changes in draw(rarities(model, plan)):
        rarer = replace(plan, **changes)
        plan = plan if broken_rule(setting, rarer) else rarer
    return Case(question, plan)


def without_losses(question: Question) -> Question:
    """The same where overlap costs nothing: neither panels of products, nor the host's work for two streams."""
    profile = question.profile
    alike = dict.fromkeys(profile.dispatcher_host_share, 1.0)
    return replace(question, given_profile=replace(profile, tp_panel_loss=0.0, dispatcher_host_share=alike))
