#!/bin/bash
# Written by shardplan: mixtral-8x7b on 64 x h100-sxm-80gb (dgx-h100) with megatron-lm main-2026-08-22.
# Names of options as of main-2026-08-22, 2026-08-22 (github.com/NVIDIA/Megatron-LM, d98e8a64).
# Left to the framework's defaults:
#   - the vocabulary is padded to a multiple of 256 (--make-vocab-size-divisible-by 128)
#   - --attention-backend auto: Transformer Engine chooses among fused kernels
#   - the router's score function, scaling and balancing: set it as the model has it

#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
MEGATRON_LM=/path/to/Megatron-LM # checkout with pretrain_gpt.py
TOKENIZER=/path/to/tokenizer # folder or name of a Hugging Face tokenizer
DATA_PATH=/path/to/data # prefix of a preprocessed data set
CHECKPOINTS=/path/to/checkpoints # where checkpoints are written and read
TRAIN_STEPS=1000 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
MIN_LEARNING_RATE=3e-5 # yours to choose
WARMUP_STEPS=100 # yours to choose
# <<< All below follows from the plan.

export CUDA_DEVICE_MAX_CONNECTIONS=1

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Model
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --num-query-groups 8
    --kv-channels 128
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --num-experts 8
    --moe-router-topk 2
    --moe-ffn-hidden-size 14336
    --moe-layer-freq 1
    --group-query-attention
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --normalization RMSNorm
    --position-embedding-type rope
    --rotary-base 1000000
    --norm-epsilon 1e-05
    --max-position-embeddings 32768
    --vocab-size 32000
    # Plan
    --tensor-model-parallel-size 2
    --sequence-parallel
    --context-parallel-size 2
    --pipeline-model-parallel-size 1
    --expert-model-parallel-size 4
    --expert-tensor-parallel-size 1
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --micro-batch-size 1
    --global-batch-size 512
    --seq-length 4096
    --bf16
    --recompute-granularity selective
    --recompute-modules layernorm moe_act
    # Training
    --train-iters "$TRAIN_STEPS"
    --lr "$LEARNING_RATE"
    --min-lr "$MIN_LEARNING_RATE"
    --lr-warmup-iters "$WARMUP_STEPS"
    --lr-decay-style cosine
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model "$TOKENIZER"
    --data-path "$DATA_PATH"
    --save "$CHECKPOINTS"
    --load "$CHECKPOINTS"
    --save-interval 1000
    --eval-interval 1000
    --eval-iters 10
    --log-interval 1
    --log-throughput
)

# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.
srun torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    "$MEGATRON_LM/pretrain_gpt.py" "${OPTIONS[@]}"
