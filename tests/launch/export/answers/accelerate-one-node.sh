#!/bin/bash
# Written by shardplan: llama-3.2-1b on 8 x h100-sxm-80gb (dgx-h100) with accelerate 1.15.0.
# Names of options as of 1.15.0, 2026-07-24 (github.com/huggingface/accelerate, 16cb6eb8).
# Left to the framework's defaults:
#   - the model is the one that MODEL names (16 layers, hidden size 2048, vocabulary 128256)
#   - attention runs as transformers chooses it (scaled_dot_product_attention of PyTorch)

#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
TRANSFORMERS=/path/to/transformers # checkout with examples/pytorch
MODEL=/path/to/model # Hugging Face configuration with 16 layers of hidden size 2048
TOKENIZER=/path/to/tokenizer # folder or name of a Hugging Face tokenizer
DATASET=/path/to/dataset # name of a data set on the hub, or a folder
CHECKPOINTS=/path/to/checkpoints # where checkpoints are written
TRAIN_STEPS=1000 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
WARMUP_STEPS=100 # yours to choose
# <<< All below follows from the plan.

OPTIONS=(
    # Plan
    --per_device_train_batch_size 1
    --gradient_accumulation_steps 64
    --block_size 4096
    --optim adamw_torch
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

accelerate launch --config_file launch.yaml "$TRANSFORMERS/examples/pytorch/language-modeling/run_clm.py" "${OPTIONS[@]}"
