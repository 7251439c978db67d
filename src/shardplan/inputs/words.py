"""The vocabulary: names that frameworks and people use for the fields of a job and a plan, and for their values.

The command line, measured runs, Python and plan files all read these tables. Only names with exactly one meaning are in
them; ``docs/inputs/words.md`` shows all of them.
"""

from __future__ import annotations

from typing import Final

from shardplan.base.words import folded, words
from shardplan.inputs.schedule_names import BUILT_IN

DTYPES: Final = words(
    {
        "bf16": "bf16 bfloat16 bfloat torch.bfloat16",
        "fp16": "fp16 float16 half torch.float16",
        "fp32": "fp32 float32 float torch.float32",
    }
)
"""Number formats of gradients and optimizer moments."""

PRECISIONS: Final = words(
    {
        "bf16": "bf16 bfloat16 bfloat torch.bfloat16 bf16-mixed mixed-bf16 amp-bf16",
        "fp16": "fp16 float16 half torch.float16 fp16-mixed mixed-fp16 amp-fp16",
        "fp8": "fp8 float8 fp8-hybrid hybrid-fp8 fp8-cs fp8-ds fp8-sc fp8-mixed amp-fp8 fp8-e4m3",
        "mxfp8": "mxfp8 fp8-mx mx-fp8",
        "nvfp4": "nvfp4 nv-fp4 fp4-nv",
        "fp32": "fp32 float32 torch.float32 fp32-true",
    }
)
"""NeMo's recipes write ``fp8_cs``, ``fp8_ds`` and ``fp8_sc`` for scalings of fp8, and ``fp8_mx`` for mxfp8."""

OPTIMIZERS: Final = words(
    {
        "adam": "adam adamw fused-adam fused-adamw adam-fused adamw-fused adamw-torch adamw-torch-fused foreach-adamw "
        "torch.optim.adamw decoupled-adamw distributed distributed-adam distributed-adamw distributed-optimizer "
        "distributed-fused-adam mcore-distributed-optim cpu-adam deepspeed-cpu-adam",
        "sgd": "sgd sgd-momentum momentum nesterov",
        "muon": "muon dist-muon muonclip",
    }
)

ATTENTIONS: Final = words(
    {
        "flash": "flash flash-attn flash-attention fused sdpa flex flex-attention cudnn cudnn-attention splash "
        "fa1 fa2 fa3 fa4 flash1 flash2 flash3 flash4 flash-attn-1 flash-attn-2 flash-attn-3 flash-attn-4 "
        "flash-attention-1 flash-attention-2 flash-attention-3 flash-attention-4 flash-sdpa",
        "unfused": "unfused eager math naive",
    }
)
ATTENTION_GENERATIONS: Final = words(
    {
        "current": "current fa3 fa4 flash3 flash4 flash-attn-3 flash-attn-4 flash-attention-3 flash-attention-4 "
        "cudnn cudnn-attention",
        "flash2": "flash2 fa2 flash-attn-2 flash-attention-2",
        "flash1": "flash1 fa1 flash-attn-1 flash-attention-1",
    }
)
"""Kernels whose name tells their generation; that of ``sdpa`` and ``flex`` is the stack's."""
ATTENTION_KERNELS: Final = words(
    {
        value: " ".join(name for name in listed.split() if folded(name) not in ATTENTION_GENERATIONS)
        for value, listed in ATTENTIONS.names.items()
    }
)
"""Names without a generation, which has its own field."""

TRAINED: Final = words(
    {"full": "full all pretrain pretraining", "lora": "lora peft adapter adapters", "qlora": "qlora"}
)
BASE_WEIGHTS: Final = words(
    {
        "same": "same unquantised unquantized none",
        "nf4": "nf4 bnb-nf4 bnb.nf4 4bit 4-bit",
        "nf4-dq": "nf4-dq bnb-nf4-dq bnb.nf4-dq nf4-double-quant",
    }
)
"""Formats of weights under adapters; LitGPT writes ``bnb.nf4``."""
LORA_MATRICES: Final = words(
    {
        "q": "q q-proj query wq linear-q",
        "k": "k k-proj key wk linear-k",
        "v": "v v-proj value wv linear-v",
        "qkv": "qkv linear-qkv qkv-proj query-key-value attention-qkv c-attn",
        "o": "o o-proj wo linear-proj proj attention-dense dense out-proj output-proj",
        "gate": "gate gate-proj w1",
        "up": "up up-proj w3",
        "gate_up": "gate-up gate-up-proj linear-fc1 fc1",
        "down": "down down-proj w2 linear-fc2 fc2",
        "all": "all all-linear",
    }
)
"""Matrices with adapters: names of PEFT, torchtune, LitGPT and NeMo."""

SHARDINGS: Final = words(
    {
        "ddp": "ddp 0 none no replicate replicated no-shard zero-0 zero-stage-0",
        "zero1": "1 zero-1 zero-stage-1 stage-1 distributed-optimizer",
        "zero2": "2 zero-2 zero-stage-2 stage-2 shard-grad-op",
        "zero3": "3 zero-3 zero-stage-3 stage-3 fsdp fsdp1 fsdp2 full-shard fully-shard",
        "hsdp": "hsdp hybrid-shard fsdp-hybrid mics",
        "hpz": "hpz zero++ zeropp",
    }
)
RECOMPUTE_WORDS: Final = words(
    {
        "none": "none no off false 0 disabled",
        "selective": "selective",
        "full": "full block uniform all full-block",
        "op_sac": "op-sac op sac selective-op selective:op selective/op",
        "minimal": "minimal",
        "core_attn": "core-attn core-attention attn attention",
        "layernorm": "layernorm norm norms rmsnorm",
        "activation": "activation activation-func act moe-act",
        "mla_up_proj": "mla-up-proj",
        "mlp": "mlp ffn",
        "moe": "moe",
        "shared_experts": "shared-experts shared-expert",
        "mhc": "mhc hyper-connections",
    }
)
"""Policies, then modules. ``block`` and ``uniform`` are methods of Megatron's full recomputation, and elsewhere
a block is a whole layer too; ``op`` is torchtitan's ``selective_ac_option``."""

OFFLOADS: Final = words(
    {
        "none": "none no off false 0 disabled",
        "optimizer": "optimizer optimizer-states optim cpu-adam",
        "activations": "activations activation act",
    }
)
SCHEDULES: Final = words({name: schedule.words for name, schedule in BUILT_IN.items()})
CP_COMMS: Final = words(
    {
        "p2p": "p2p ring ring-attention a2a+p2p",
        "allgather": "allgather",
        "a2a": "a2a all-to-all ulysses deepspeed-ulysses",
    }
)
TP_KINDS: Final = words({"1d": "1d megatron row-column", "summa": "summa 2d"})
DISPATCHERS: Final = words(
    {
        "alltoall": "alltoall a2a alltoallv alltoall-seq torch-a2a torch-all-to-all nccl nccl-a2a standard allgather",
        "deepep": "deepep flex",
        "hybridep": "hybridep",
    }
)
GRAPHS: Final = words(
    {
        "partial": "yes true 1 on enabled partial transformer-engine te local",
        "full": "full full-iteration full-iter whole whole-iteration iteration",
        "router": "router moe-router",
        "none": "none no false 0 off disabled disable",
    }
)
"""CUDA graphs; Megatron's implementations capture parts of a layer."""
KERNELS: Final = words({"fused": "fused compiled", "eager": "eager"})
NORM_KERNELS: Final = words({"fused": "fused yes flash-attn apex triton te", "eager": "eager plain torch native no"})
SOFTMAX_KERNELS: Final = words({"fused": "fused yes megatron apex", "eager": "eager plain torch native no"})
EXPERT_SCORES: Final = words({"fused": "fused yes compiled", "eager": "eager plain torch native no"})
FP8_SCALINGS: Final = words(
    {
        "tensor": "tensor tensorwise tensor-wise per-tensor current delayed",
        "row": "row rowwise row-wise per-row axiswise",
    }
)
SHARDED_ACCUMULATIONS: Final = words(
    {"none": "none no off false 0", "flat": "flat fsdp1 fsdp", "parameters": "parameters fsdp2 yes on true 1"}
)
TP_OVERLAPS: Final = words({"all": "all user-buffers", "one_product": "one-product micro-pipeline async-tp"})
DISPATCH_FORMATS: Final = words({"activation": "activation bf16 fp16 bfloat16 16-bit", "fp8": "fp8 mxfp8 e4m3 8-bit"})

FIELD_NAMES: Final = words(
    {
        "model": "model model-name model-id hf-model architecture",
        "accelerator": "accelerator gpu gpu-type gpu-name gpu-model device device-name hardware",
        "num_accelerators": "num-accelerators accelerators gpus #gpus n-gpus ngpus num-gpus gpu-count world-size "
        "num-devices n-devices devices num-chips chips",
        "sequence_length": "sequence-length seq seq-len seqlen seq-length sequence-len max-seq-len max-seq-length "
        "max-sequence-length context-length context-len context ctx-len block-size sl",
        "global_batch_size": "global-batch-size gbs global-batch global-bs train-batch-size",
        "micro_batch_size": "micro-batch-size mbs micro-bs micro-batch microbatch-size per-device-train-batch-size "
        "train-micro-batch-size-per-gpu per-gpu-batch-size per-device-batch-size local-batch-size",
        "tp": "tp tp-size tp-degree tensor-parallel tensor-parallelism tensor-parallel-size tensor-parallel-degree "
        "tensor-model-parallel tensor-model-parallel-size tp-world-size",
        "pp": "pp pp-size pp-degree pipeline-parallel pipeline-parallelism pipeline-parallel-size "
        "pipeline-parallel-degree pipeline-model-parallel pipeline-model-parallel-size pipeline-stages num-stages",
        "cp": "cp cp-size cp-degree context-parallel context-parallelism context-parallel-size context-parallel-degree",
        "ep": "ep ep-size ep-degree expert-parallel expert-parallelism expert-parallel-size expert-parallel-degree "
        "expert-model-parallel expert-model-parallel-size",
        "etp": "etp expert-tensor-parallel expert-tensor-parallel-size expert-tensor-parallel-degree",
        "dp": "dp dp-size dp-degree data-parallel data-parallelism data-parallel-size data-parallel-degree",
        "vp": "vp vpp vp-size virtual-pipeline virtual-pipeline-parallel virtual-stages num-model-chunks "
        "virtual-pipeline-model-parallel-size num-chunks",
        "sharding": "sharding zero zero-stage sharding-strategy fsdp-sharding-strategy zero-optimization-stage",
        "sharding_degree": "sharding-degree dp-shard data-parallel-shard-degree fsdp-size",
        "sequence_parallel": "sequence-parallel sp sequence-parallelism",
        "schedule": "schedule pipeline-schedule pp-schedule pipeline-parallel-schedule",
        "recompute": "recompute recomputation activation-checkpointing activation-recompute gradient-checkpointing "
        "checkpointing recompute-granularity remat activation-checkpoint selective-ac ac-mode act-ckpt activation-ckpt",
        "recompute_num_layers": "recompute-num-layers recompute-layers",
        "offload": "offload cpu-offload offloading",
        "precision": "precision dtype mixed-precision compute-dtype training-dtype param-dtype",
        "grad_dtype": "grad-dtype gradient-dtype reduce-dtype grad-reduce-dtype",
        "attention": "attention attention-kernel attn attn-implementation attention-backend attention-implementation",
        "optimizer": "optimizer optim optimizer-name",
        "framework": "framework stack trainer library codebase",
        "tokens": "tokens num-tokens train-tokens training-tokens total-tokens",
    }
)
"""Names of fields in columns of measured runs, flags and keys of ``--fix``."""


def field_meant(name: str) -> str | None:
    """The field with the name ``name``; None if there is none.

    >>> field_meant("Tensor_Model_Parallel_Size")
    'tp'
    """
    return FIELD_NAMES.get(folded(name))
