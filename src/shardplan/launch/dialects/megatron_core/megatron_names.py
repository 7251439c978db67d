"""Options of Megatron-LM and of the forks that keep its names.

Names, types and defaults as in ``megatron/training/arguments.py`` and
``megatron/core/transformer/transformer_config.py`` of 2026-08-22 (d98e8a64), then spellings of forks and of 2021.
The first name that is given counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardplan.launch.dialects.values import Convert, degree, optimizer, text, whole


def words_in(text: str) -> list[str]:
    """Words between blanks."""
    return text.split()


VERSION: Final = "main of 2026-08-22 (d98e8a64)"

VALUES: Final[Mapping[str, tuple[tuple[str, ...], Convert]]] = {
    "tp": (("tensor-model-parallel-size", "model-parallel-size"), degree),
    "pp": (("pipeline-model-parallel-size", "pipe-parallel-size"), degree),
    "cp": (("context-parallel-size", "ds-sequence-parallel-size"), degree),
    "ep": (("expert-model-parallel-size", "moe-expert-parallel-size"), degree),
    "etp": (("expert-tensor-parallel-size",), degree),
    "micro_batch_size": (("micro-batch-size", "batch-size"), degree),
    "global_batch_size": (("global-batch-size",), degree),
    "gradient_accumulation": (("gradient-accumulation-steps", "gas"), degree),
    "sequence_length": (("seq-length", "encoder-seq-length"), degree),
    "num_hidden_layers": (("num-layers", "encoder-num-layers"), degree),
    "hidden_size": (("hidden-size",), degree),
    "intermediate_size": (("ffn-hidden-size", "intermediate-size"), degree),
    "num_attention_heads": (("num-attention-heads",), degree),
    "head_dim": (("kv-channels",), degree),
    "max_position_embeddings": (("max-position-embeddings",), degree),
    "vocab_size": (("vocab-size", "padded-vocab-size", "pad-vocab-size-to"), degree),
    "num_experts": (("num-experts", "moe-num-experts"), degree),
    "num_experts_per_tok": (("moe-router-topk", "topk", "moe-top-k"), degree),
    "moe_intermediate_size": (("moe-ffn-hidden-size",), degree),
    "shared_expert_intermediate_size": (("moe-shared-expert-intermediate-size", "shared-moe-ffn-hidden-size"), whole),
    "num_mtp_layers": (("mtp-num-layers",), whole),
    "q_lora_rank": (("q-lora-rank",), degree),
    "kv_lora_rank": (("kv-lora-rank",), degree),
    "qk_nope_head_dim": (("qk-head-dim",), degree),
    "qk_rope_head_dim": (("qk-pos-emb-head-dim",), degree),
    "v_head_dim": (("v-head-dim",), degree),
    "n_group": (("moe-router-num-groups",), degree),
    "topk_group": (("moe-router-group-topk",), degree),
    "microbatch_group_size": (("microbatch-group-size-per-virtual-pipeline-stage",), degree),
    "offload_num_layers": (("cpu-offloading-num-layers",), whole),
    "optimizer": (("optimizer",), optimizer),
    "tokenizer": (("tokenizer-model", "tokenizer-name-or-path"), text),
    "tokenizer_type": (("tokenizer-type",), text),
    "position_embedding_type": (("position-embedding-type",), text),
    "normalization": (("normalization",), text),
}
"""Our key: names, the current one first, and how the text is read."""

BARE: Final = frozenset(
    words_in(
        """
        accumulate-allreduce-grads-in-fp32 add-qkv-bias apply-layernorm-1p apply-query-key-layer-scaling
        attention-softmax-in-fp32 bf16 checkpoint-activations checkpoint-in-cpu ds-sequence-parallel-fpdt
        ds-sequence-parallel-fpdt-offloading deepspeed deepspeed-activation-checkpointing
        disable-bias-linear dist-ckpt-strict enable-cuda-graph enable-expert-tensor-parallelism
        exit-on-missing-checkpoint external-cuda-graph fake-process-group
        fine-grained-activation-offloading finetune fp16 fp8-param-gather group-query-attention manual-gc
        masked-softmax-fusion moe-enable-deepep moe-grouped-gemm moe-permute-fusion moe-router-pre-softmax
        moe-shared-expert-overlap multi-latent-attention no-async-tensor-model-parallel-allreduce
        no-bias-gelu-fusion no-create-attention-mask-in-dataloader no-gradient-accumulation-fusion no-load-optim
        no-load-rng no-masked-softmax-fusion no-mmap-bin-files no-overlap-p2p-communication no-pipeline-parallel
        no-position-embedding no-save-optim no-save-rng optimizer-cpu-offload overlap-grad-reduce
        overlap-moe-expert-parallel-comm overlap-param-gather override-opt_param-scheduler qk-layernorm
        recompute-activations rotary-interleaved sequence-parallel swiglu tp-comm-overlap
        untie-embeddings-and-output-weights use-checkpoint-args use-checkpoint-opt_param-scheduler
        use-cpu-initialization use-distributed-optimizer use-flash-attn use-flash-attn-v2 use-legacy-models
        use-mcore-models use-megatron-fsdp use-custom-fsdp use-mp-args-from-checkpoint-args
        use-precision-aware-optimizer use-pytorch-profiler use-rotary-position-embeddings use-torch-fsdp2
        use-tp-pp-dp-mapping use-te
        cpu-offloading moe-expert-model-parallelism
        enable-dsa-indexer enable-mhc geglu kd kv-compress moe-allgather-overlap-comm
        moe-alltoall-overlap-comm moe-fb-overlap moe-layer-recompute moe-permutation-async-comm moe-tp-extend-ep
        perform-rl-step quick-geglu recompute-activation-function recompute-norm reuse-fp32-param squared-relu
        swap-attention swap-optimizer use-ascend-coc use-ascend-mc2 use-fused-rmsnorm use-fused-rotary-pos-emb
        use-fused-swiglu
        """
    )
)
"""Options without a value."""

SHARDINGS: Final[Mapping[str, str]] = {
    "no_shard": "ddp",
    "optim": "zero1",
    "optim_grads": "zero2",
    "optim_grads_params": "zero3",
}
"""``--data-parallel-sharding-strategy`` of Megatron-FSDP."""

TOKENIZERS: Final[Mapping[str, int]] = {
    "GPT2BPETokenizer": 50257,
    "BertWordPieceLowerCase": 30522,
    "Llama2Tokenizer": 32000,
}
"""Words of the vocabulary that a tokenizer's kind is used with: an assumption, which the answer states."""

OLD: Final = frozenset(
    words_in(
        """
        DDP-impl model-parallel-size batch-size checkpoint-activations activations-checkpoint-method warmup
        scaled-upper-triang-masked-softmax-fusion distributed-backend-nccl
        """
    )
)
"""Names that only versions of 2019 to 2022 have."""
