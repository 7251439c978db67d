#!/bin/bash
# Written by shardplan: deepseek-v3 on 2048 x h100-sxm-80gb (dgx-h100) with megatron-lm main-2026-08-22.
# Names of options as of main-2026-08-22, 2026-08-22 (github.com/NVIDIA/Megatron-LM, d98e8a64).
# Left to the framework's defaults:
#   - the vocabulary is padded to a multiple of 128 (--make-vocab-size-divisible-by 128)
#   - expert tensor parallelism is 1, the tensor-parallel degree, where it is not given
#   - nothing is recomputed
#   - --attention-backend auto: Transformer Engine chooses among fused kernels
#   - the router's balancing: set it as the model has it

#SBATCH --nodes=256
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
MEGATRON_LM=/path/to/Megatron-LM # checkout with pretrain_gpt.py
TOKENIZER=/path/to/tokenizer # folder or name of a Hugging Face tokenizer
DATA_PATH=/path/to/data # prefix of a preprocessed data set
CHECKPOINTS=/path/to/checkpoints # where checkpoints are written and read
TRAIN_STEPS=441075 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
MIN_LEARNING_RATE=3e-5 # yours to choose
WARMUP_STEPS=100 # yours to choose
# <<< All below follows from the plan.

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Model
    --num-layers 61
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
    --multi-latent-attention
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --qk-layernorm
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --mtp-num-layers 1
    --num-experts 256
    --moe-router-topk 8
    --moe-ffn-hidden-size 2048
    --moe-layer-freq '([0]*3+[1]*58)'
    --moe-shared-expert-intermediate-size 2048
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-router-score-function sigmoid
    --moe-router-topk-scaling-factor 2.5
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --normalization RMSNorm
    --position-embedding-type rope
    --rotary-base 10000
    --rope-type yarn
    --rotary-scaling-factor 40
    --mscale 1
    --mscale-all-dim 1
    --norm-epsilon 1e-06
    --max-position-embeddings 163840
    --vocab-size 129280
    # Plan
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 16
    --pipeline-model-parallel-layout 'Et*4|(t*4|)*14tmL'
    --expert-model-parallel-size 64
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --micro-batch-size 1
    --global-batch-size 8192
    --seq-length 4096
    --bf16
    --fp8-format hybrid
    # Precision, optimizer and kernels
    --fp8-param-gather
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
srun torchrun --nnodes 256 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    "$MEGATRON_LM/pretrain_gpt.py" "${OPTIONS[@]}"
