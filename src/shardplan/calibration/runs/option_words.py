"""Values of options with the names that frameworks give them; each option says in ``options`` what they set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from shardplan.calibration.runs.words import ATTENTION_GENERATIONS, words
from shardplan.inputs.cluster import LinkType
from shardplan.inputs.software import Kernels, LossKernel

SCHEDULES: Final[Mapping[str, str]] = words(
    {
        "1f1b": "1f1b pipedream-flush non-interleaved non-interleaved-1f1b 1f1b-non-interleaved",
        "interleaved": "interleaved interleaved-1f1b 1f1b-interleaved vpp interleaved-vpp",
        "gpipe": "gpipe",
        "breadth-first": "breadth-first looped-bfs",
        "zb-h1": "zb-h1 zb-1p",
        "zb-h2": "zb-h2 zb-2p",
        "zb-v": "zb-v zbv zbv-zero-bubble",
        "dualpipe": "dualpipe",
        "dualpipe-v": "dualpipe-v",
    }
)
"""ZB-1p and ZB-2p are what the authors' scheduler finds within the memory of ZB-H1 and ZB-H2 (arXiv 2401.10241,
section 3)."""
NOT_MODELLED: Final[Mapping[str, str]] = words(
    {
        "zb-h1": "zero-bubble zb",
        "zb-v": "v-half v-min",
        "interleaved": "interleaved-zero-bubble zb-interleaved",
    }
)
"""Schedules that shardplan does not model, and what they are priced as: that of zero-bubble schedules which holds the
activations of 1F1B; V-Half and V-Min (arXiv 2405.15362) keep less than ZB-V and wait longer; those of several chunks in
a loop share the bubble of the interleaved schedule."""

CP_COMMS: Final[Mapping[str, str]] = words(
    {
        "p2p": "p2p ring ring-attention a2a+p2p",
        "allgather": "allgather",
        "a2a": "a2a all-to-all ulysses deepspeed-ulysses",
    }
)
DISPATCHERS: Final[Mapping[str, str]] = words(
    {
        "alltoall": "alltoall a2a alltoallv alltoall-seq torch-a2a torch-all-to-all nccl nccl-a2a standard allgather",
        "deepep": "deepep flex",
        "hybridep": "hybridep",
    }
)
OPTIMIZERS: Final[Mapping[str, str]] = words(
    {
        "adam": "adam adamw fused-adam fused-adamw adam-fused adamw-fused adamw-torch adamw-torch-fused foreach-adamw "
        "torch.optim.adamw decoupled-adamw distributed distributed-adam distributed-adamw distributed-optimizer "
        "distributed-fused-adam mcore-distributed-optim cpu-adam deepspeed-cpu-adam",
        "sgd": "sgd sgd-momentum momentum nesterov",
        "muon": "muon dist-muon muonclip",
    }
)
TRAINED: Final[Mapping[str, str]] = words(
    {"full": "full all pretrain pretraining", "lora": "lora qlora peft adapter adapters"}
)
LORA_MATRICES: Final[Mapping[str, str]] = words(
    {
        "q": "q q-proj query wq linear-q",
        "k": "k k-proj key wk linear-k",
        "v": "v v-proj value wv linear-v",
        "qkv": "qkv linear-qkv qkv-proj query-key-value attention-qkv c-attn",
        "o": "o o-proj wo linear-proj proj attention-dense dense out-proj",
        "gate": "gate gate-proj w1",
        "up": "up up-proj w3",
        "gate_up": "gate-up gate-up-proj linear-fc1 fc1",
        "down": "down down-proj w2 linear-fc2 fc2",
        "all": "all all-linear",
    }
)
"""Matrices with adapters: names of PEFT, torchtune, LitGPT and NeMo."""
COMPILED: Final[Mapping[str, bool]] = words(
    {
        True: "yes true 1 on enabled inductor model model,loss loss,model block blocks per-block full "
        "reduce-overhead max-autotune max-autotune-no-cudagraphs torch.compile torchinductor",
        False: "no none false 0 off disabled eager",
    }
)
"""Whether a compiler fuses kernels: a switch, back ends, modes and torchtitan's ``compile.components``."""

RESHARDED: Final[Mapping[str, bool | None]] = words(
    {True: "yes true 1 on always enabled", False: "no false 0 off never disabled", None: "default"}
)
"""``default``, ``always`` and ``never`` are torchtitan's; the first leaves what the framework does."""

NETWORKS: Final[Mapping[str, str]] = words(
    {name: name for name in get_args(LinkType)}
    | {
        "infiniband": "infiniband ib ndr hdr edr infiniband-ndr infiniband-hdr ib-ndr ib-hdr",
        "roce": "roce rocev2 roce-v2",
        "tcp": "tcp tcp/ip",
        "omnipath": "omnipath omni-path opa",
    }
)
GRAPHS: Final[Mapping[str, str]] = words(
    {
        "partial": "yes true 1 on enabled partial transformer-engine te local",
        "full": "full full-iteration full-iter whole whole-iteration iteration",
        "none": "none no false 0 off disabled disable",
    }
)
"""Words of ``cuda_graph`` that stand alone; Megatron's implementations capture parts of a layer."""
GRAPH_MAKERS: Final = frozenset(words({"": "transformer_engine te local"}))
GRAPH_PARTS: Final = frozenset(words({"": "full_iteration attn mlp moe moe_router moe_preprocess mamba"}))
"""What Megatron captures (``--cuda-graph-scope``)."""

SOFTWARE_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "attention_generation": ATTENTION_GENERATIONS,
    "kernels": words({name: name for name in get_args(Kernels)} | {"fused": "fused compiled"}),
    "cuda_graphs": GRAPHS,
    "norm_kernel": words({"fused": "fused yes flash-attn apex triton te", "eager": "eager plain torch native no"}),
    "softmax_kernel": words({"fused": "fused yes megatron apex", "eager": "eager plain torch native no"}),
    "loss_kernel": words({name: name for name in get_args(LossKernel)}),
    "moe_dispatch_format": words({"activation": "activation bf16 fp16 bfloat16 16-bit", "fp8": "fp8 mxfp8 e4m3 8-bit"}),
}
"""Fields of ``Software`` that are words; the others are switches, but for the dispatcher."""

OVERLAPS: Final[Mapping[str, Mapping[str, bool]]] = {
    "dp_grad": {"overlap_dp": True},
    "dp_param": {"overlap_dp": True},
    "fsdp": {"overlap_dp": True},
    "fsdp_prefetch": {"overlap_dp": True},
    "tp": {"overlap_tp": True},
    "tp_comm": {"overlap_tp": True},
    "async_tp": {"overlap_tp": True},
    "no_tp": {"overlap_tp": False},
    "p2p": {"overlap_pp": True},
    "moe_a2a": {"overlap_ep": True},
    "moe_a2a_1f1b": {"overlap_ep": True},
    "none": {"overlap_dp": False, "overlap_tp": False, "overlap_pp": False, "overlap_ep": False},
}
"""Words of ``overlap`` and the fields that they set."""
