#!/bin/bash
# Written by shardplan: llama-3.1-8b on 64 x h100-sxm-80gb (dgx-h100) with deepspeed 0.19.6.
# Names of options as of 0.19.6, 2026-08-22 (github.com/deepspeedai/DeepSpeed, edaa7221).
# Left to the framework's defaults:
#   - the model is the one that MODEL names (32 layers, hidden size 4096, vocabulary 128256)
#   - attention runs as transformers chooses it (scaled_dot_product_attention of PyTorch)

#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
TRANSFORMERS=/path/to/transformers # checkout with examples/pytorch
MODEL=/path/to/model # Hugging Face configuration with 32 layers of hidden size 4096
TOKENIZER=/path/to/tokenizer # folder or name of a Hugging Face tokenizer
DATASET=/path/to/dataset # name of a data set on the hub, or a folder
CHECKPOINTS=/path/to/checkpoints # where checkpoints are written
TRAIN_STEPS=1000 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
WARMUP_STEPS=100 # yours to choose
# <<< All below follows from the plan.

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # DeepSpeed
    --deepspeed launch.json
    # Plan
    --block_size 4096
    --per_device_train_batch_size 1
    --gradient_accumulation_steps 32
    --bf16
    # Training
    --do_train
    --config_name "$MODEL"
    --tokenizer_name "$TOKENIZER"
    --dataset_name "$DATASET"
    --max_steps "$TRAIN_STEPS"
    --learning_rate "$LEARNING_RATE"
    --warmup_steps "$WARMUP_STEPS"
    --lr_scheduler_type cosine
    --output_dir "$CHECKPOINTS"
)

# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.
srun torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    "$TRANSFORMERS/examples/pytorch/language-modeling/run_clm.py" "${OPTIONS[@]}"
