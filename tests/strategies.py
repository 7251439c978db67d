"""Random valid models, clusters, jobs and plans for property tests. Small, so that every example is quick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st
from tests.examples import GB, accelerator, cluster, tier

from shardplan.estimation.question import Question
from shardplan.inputs.chunks import chunk_layers
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.degrees import Setting
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import RECOMPUTE_MODULES, Offload, Plan, Sharding
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
from shardplan.validity.rules import broken_rule

WORLD_SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 72, 96, 128)


@dataclass(frozen=True)
class Case:
    """A question and a plan that is valid for it."""

    question: Question
    plan: Plan


def divisors(n: int) -> list[int]:
    """All of them, in order."""
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Multi-head or grouped-query attention, full or in a window."""
    heads = draw(st.sampled_from((4, 8, 12, 16)))
    return Attention(
        num_heads=heads,
        num_kv_heads=draw(st.sampled_from(divisors(heads))),
        head_dim=draw(st.sampled_from((8, 16, 20, 64))),
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(("none", "head"))),
        window=draw(st.sampled_from((None, None, 64))),
        rotary=draw(st.booleans()),
    )


@st.composite
def latent_attentions(draw: st.DrawFn) -> LatentAttention:
    """Latent attention with and without a query rank."""
    return LatentAttention(
        num_heads=draw(st.sampled_from((4, 8, 16))), q_lora_rank=draw(st.sampled_from((None, 48))), kv_lora_rank=32,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
    )  # fmt: skip


def state_spaces() -> st.SearchStrategy[StateSpace]:
    """Mamba-2 mixers."""
    return st.builds(
        StateSpace, num_heads=st.sampled_from((8, 16)), head_dim=st.just(16), state_size=st.just(16),
        num_groups=st.sampled_from((4, 8)), conv_kernel=st.just(4), chunk_size=st.just(64), conv_bias=st.booleans(),
        proj_bias=st.booleans(),
    )  # fmt: skip


def recurrent_mixers() -> st.SearchStrategy[Mixer]:
    """Mixers of every kind that carries a state along the sequence, and short convolutions."""
    return st.one_of(
        state_spaces(),
        st.builds(
            SelectiveScan, inner_size=st.sampled_from((96, 192)), state_size=st.just(16), dt_rank=st.just(6),
            conv_kernel=st.just(4), conv_bias=st.booleans(), proj_bias=st.booleans(), inner_norms=st.booleans(),
        ),
        st.builds(
            LinearAttention, num_key_heads=st.just(4), num_value_heads=st.just(8), key_head_dim=st.just(16),
            value_head_dim=st.just(16), conv_kernel=st.just(4),
        ),
        st.builds(DeltaAttention, num_heads=st.just(8), head_dim=st.just(16), conv_kernel=st.just(4)),
        st.builds(LightningAttention, num_heads=st.just(8), head_dim=st.just(16)),
        st.builds(
            ShortConvolution, num_channels=st.sampled_from((96, 192)), conv_kernel=st.just(3), bias=st.booleans()
        ),
    )  # fmt: skip


def mlps() -> st.SearchStrategy[MLP]:
    """Plain and gated MLPs."""
    return st.builds(MLP, intermediate_size=st.sampled_from((192, 256, 768)), gated=st.booleans(), bias=st.booleans())


@st.composite
def mixtures(draw: st.DrawFn) -> MixtureOfExperts:
    """Mixtures of experts with and without shared ones, with and without groups."""
    num_experts, top_k = draw(st.sampled_from((4, 8, 24))), draw(st.integers(1, 4))
    n_group = draw(st.sampled_from((1, 1, 2, 4)))
    fewest = -(-top_k * n_group // num_experts)
    return MixtureOfExperts(
        num_experts=num_experts, top_k=top_k, intermediate_size=draw(st.sampled_from((64, 96))),
        gated=draw(st.booleans()), bias=draw(st.booleans()), shared_intermediate_size=draw(st.sampled_from((0, 96))),
        latent_size=draw(st.sampled_from((None, None, 32))), n_group=n_group,
        topk_group=draw(st.integers(fewest, n_group)),
    )  # fmt: skip


@st.composite
def models(draw: st.DrawFn, *, uniform: bool = False, moe: bool | None = None) -> ModelConfig:
    """Dense models, mixtures of experts, hybrids. ``uniform``: all layers alike; ``moe``: with experts or without."""
    mixer = draw(st.one_of(attentions(), latent_attentions()))
    sparse = draw(st.booleans()) if moe is None else moe
    mlp: MLP | MixtureOfExperts = draw(mixtures()) if sparse else draw(mlps())
    layer = Layer(mixer=mixer, mlp=mlp, num_norms=2)
    num_layers = draw(st.integers(1, 12))
    layers = [layer] * num_layers
    if not uniform and draw(st.booleans()):
        other = draw(
            st.one_of(
                st.builds(Layer, mixer=st.just(mixer), mlp=mlps(), num_norms=st.just(2)),
                st.builds(Layer, mixer=recurrent_mixers(), mlp=st.none(), num_norms=st.just(1)),
                st.builds(
                    Layer,
                    mixer=recurrent_mixers(),
                    parallel_mixer=attentions(),
                    mlp=mlps(),
                    num_norms=st.just(2),
                    layer_scale=st.booleans(),
                ),
                st.builds(Layer, mixer=attentions(), mlp=st.none(), num_norms=st.just(1)),
            )
        )
        if not sparse or num_layers > 1:
            for index in range(num_layers - 1):
                layers[index] = other if draw(st.booleans()) else layer
    return ModelConfig(
        name="model", model_type="test", hidden_size=draw(st.sampled_from((96, 192, 512))), layers=tuple(layers),
        vocab_size=draw(st.sampled_from((96, 1000, 4096))), tie_word_embeddings=draw(st.booleans()),
        norm_bias=draw(st.booleans()), max_position_embeddings=4096,
        num_position_embeddings=draw(st.sampled_from((0, 0, 128))), num_mtp_layers=draw(st.sampled_from((0, 0, 1))),
    )  # fmt: skip


@st.composite
def accelerators(draw: st.DrawFn) -> Accelerator:
    """Slow and fast parts, small and large memories."""
    bf16 = draw(st.floats(1e12, 5e15))
    return accelerator(
        generation=draw(st.sampled_from(("hopper", "ampere", "tpu", "other"))),
        memory_bytes=draw(st.floats(3 * GB, 300 * GB)),
        memory_bandwidth=draw(st.floats(100 * GB, 10_000 * GB)),
        num_cores=draw(st.sampled_from((None, 4, 132))),
        host_link_bandwidth=draw(st.sampled_from((None, 16 * GB, 450 * GB))),
        peak_flops={"fp32": bf16 / 10, "bf16": bf16, "fp16": bf16, "fp8": 2 * bf16},
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to three tiers of any speed."""
    node = draw(st.sampled_from((2, 4, 8)))
    rates = st.floats(1, 2000)
    latencies = st.floats(0, 1e-4)
    tiers = [
        tier(
            "node", node, draw(rates), latency=draw(latencies),
            topology=draw(st.sampled_from(("switch", "switch", "mesh"))),
        ),
        tier("network", None, draw(rates), latency=draw(latencies)),
    ]  # fmt: skip
    if draw(st.booleans()):
        times = draw(st.sampled_from((2, 4)))
        tiers.insert(1, tier("rack", times * node, draw(rates), latency=draw(latencies)))
    return cluster(*tiers, part=draw(accelerators()))


def softwares() -> st.SearchStrategy[Software]:
    """What frameworks do, the usual behaviour as often as any other."""
    hints = get_type_hints(Software)
    others = {field.name: st.sampled_from(get_args(hints[field.name]) or (False, True)) for field in fields(Software)}
    return st.one_of(st.just(Software()), st.builds(Software, **others))


@st.composite
def jobs(draw: st.DrawFn, global_batch_size: int) -> Job:
    """Jobs of that many sequences."""
    return Job(
        sequence_length=draw(st.sampled_from((1536, 3072))),
        global_batch_size=global_batch_size,
        precision=draw(st.sampled_from(("bf16", "bf16", "fp16", "fp8", "fp32"))),
        optimizer=draw(st.sampled_from(("adam", "sgd", "muon"))),
        attention=draw(st.sampled_from(("flash", "unfused"))),
        grad_dtype=draw(st.sampled_from(("fp32", "bf16"))),
        moment_dtype=draw(st.sampled_from(("fp32", "fp32", "bf16"))),
        dropout=draw(st.booleans()),
        moe_imbalance=draw(st.sampled_from((1.0, 1.0, 1.3))),
        train=draw(st.sampled_from(("full", "full", "full", "lora"))),
        lora_rank=2,
        lora_targets=draw(st.sampled_from(("all", "o", "all"))),
        documents=draw(st.sampled_from((None, None, None, (400,), (512, 1024)))),
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
    tp = draw(st.sampled_from(tensor_degrees(model, num_accelerators)))
    left = num_accelerators // tp
    cp = draw(st.sampled_from([d for d in divisors(left) if d in (1, 2, 4)]))
    layers = model.num_hidden_layers
    pp = draw(st.sampled_from([d for d in divisors(left // cp) if d <= layers]))
    vp = draw(st.sampled_from([v for v in (1, 1, 2, 3) if pp * v <= layers and (pp > 1 or v == 1)]))
    ep = etp = 1
    if model.is_moe:
        experts = [kind.mlp for kind in model.layer_kinds if isinstance(kind.mlp, MixtureOfExperts)]
        per_stage = num_accelerators // pp
        ep = draw(st.sampled_from([d for d in divisors(per_stage) if experts[0].num_experts % d == 0]))
        etp = draw(st.sampled_from([d for d in divisors(per_stage // ep) if experts[0].intermediate_size % d == 0]))
    return {"tp": tp, "cp": cp, "pp": pp, "vp": vp, "ep": ep, "etp": etp}


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
    modules = st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True).map(",".join)
    return draw(st.one_of(st.sampled_from(("none", "selective", "op_sac", "full")), modules))


@st.composite
def plans(draw: st.DrawFn, model: ModelConfig, num_accelerators: int) -> tuple[Plan, int]:
    """A valid plan and a global batch that suits it."""
    fields = draw(degrees(model, num_accelerators))
    replicas = num_accelerators // (fields["tp"] * fields["pp"])
    alone: tuple[Sharding, ...] = ("ddp", "zero1")
    sharding = draw(st.sampled_from(get_args(Sharding) if replicas > 1 else alone))
    smaller = [d for d in divisors(replicas) if d < replicas]
    degree = draw(st.sampled_from(smaller if SHARDINGS[sharding].in_groups else [None, None, *divisors(replicas)]))
    interleaved = fields["vp"] > 1
    schedules: tuple[str | None, ...] = (None, "interleaved") if interleaved else (None, "1f1b", "gpipe")
    schedule = draw(st.sampled_from(schedules))
    offload: Offload = draw(st.sampled_from(("none", "none", "none", "optimizer", "activations")))
    plan = Plan(
        **fields,
        micro_batch_size=draw(st.sampled_from((1, 2, 3))),
        sequence_parallel=draw(st.booleans()) or model.is_moe,
        sharding=sharding,
        sharding_degree=degree,
        schedule=schedule,
        recompute=draw(recomputations(model)),
        recompute_num_layers=draw(st.sampled_from((None, None, None, 0, 1, 2))),
        offload=offload,
        offload_num_layers=draw(st.sampled_from((None, 0, 1, 3))) if offload == "activations" else None,
        cp_comm=draw(st.sampled_from(("p2p", "allgather"))),
        overlap_tp=draw(st.booleans()),
        overlap_dp=draw(st.booleans()),
        overlap_pp=draw(st.sampled_from((None, True, False))),
        overlap_ep=draw(st.booleans()),
        placement=draw(
            st.sampled_from(("tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp", "tp:2-dp:2-tp-cp-ep-dp-pp"))
        ),
    )
    per_replica = draw(st.integers(1, 6)) * (plan.pp if interleaved else 1)
    return plan, per_replica * plan.dp(num_accelerators) * plan.micro_batch_size


@st.composite
def rarities(draw: st.DrawFn, model: ModelConfig, plan: Plan) -> list[dict[str, Any]]:
    """Changes of a plan that are valid for some models and jobs only."""
    chunks = list(chunk_layers(model.num_hidden_layers, plan.pp * plan.vp, model.num_mtp_layers))
    first, second = (draw(st.integers(0, len(chunks) - 1)) for _ in range(2))
    chunks[first], chunks[second] = chunks[first] - 1, chunks[second] + 1
    candidates: list[dict[str, Any]] = [
        {"cp_comm": "a2a"},
        {"tp_kind": "summa", "tp_rows": draw(st.sampled_from(divisors(plan.tp)))},
        {"microbatch_group_size": draw(st.integers(plan.pp, 2 * plan.pp))},
        *([{"stage_layers": tuple(chunks)}] if min(chunks) >= 0 else []),
    ]
    return [changes for changes in candidates if draw(st.booleans())]


@st.composite
def cases(draw: st.DrawFn, *, uniform: bool = False, num_accelerators: int | None = None) -> Case:
    """A question and a plan that is valid for it."""
    model = draw(models(uniform=uniform))
    n = num_accelerators or draw(st.sampled_from(WORLD_SIZES))
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
