#!/bin/bash
# Written by shardplan: gpt-oss-20b on 64 x h100-sxm-80gb (dgx-h100) with megatron-lm main-2026-08-22.
# Names of options as of main-2026-08-22, 2026-08-22 (github.com/NVIDIA/Megatron-LM, d98e8a64).
# Not expressed here:
#   - a bias of the router
#   - scaling of rotary positions: yarn (beta_fast 32, beta_slow 1, factor 32, original_max_position_embeddings 4096, truncate 0)
# Left to the framework's defaults:
#   - the vocabulary is padded to a multiple of 128 (--make-vocab-size-divisible-by 128)
#   - expert tensor parallelism is 1, the tensor-parallel degree, where it is not given
#   - nothing is recomputed
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

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Model
    --num-layers 24
    --hidden-size 2880
    --ffn-hidden-size 2880
    --num-attention-heads 64
    --num-query-groups 8
    --kv-channels 64
    --softmax-type learnable
    --add-qkv-bias
    --window-size '(127, 0)'
    --window-attn-skip-freq '([1,0]*12)'
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --num-experts 32
    --moe-router-topk 4
    --moe-ffn-hidden-size 2880
    --moe-layer-freq 1
    --group-query-attention
    --swiglu
    --untie-embeddings-and-output-weights
    --normalization RMSNorm
    --position-embedding-type rope
    --rotary-base 150000
    --norm-epsilon 1e-05
    --max-position-embeddings 131072
    --vocab-size 201088
    # Plan
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 1
    --expert-model-parallel-size 8
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --micro-batch-size 1
    --global-batch-size 512
    --seq-length 4096
    --bf16
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
