#!/bin/bash
# Written by shardplan: llama-3.1-8b on 64 x h100-sxm-80gb (dgx-h100) with nanotron 0.4.
# Names of options as of 0.4, 2026-04-07 (github.com/huggingface/nanotron, 2411b022).
# Not expressed here:
#   - scaling of rotary positions: llama3 (factor 8, low_freq_factor 1, high_freq_factor 4, original_max_position_embeddings 8192)

#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
NANOTRON=/path/to/nanotron # checkout with run_train.py
# <<< All below follows from the plan.

export CUDA_DEVICE_MAX_CONNECTIONS=1

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Configuration
    --config-file launch.yaml
)

# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.
srun torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    "$NANOTRON/run_train.py" "${OPTIONS[@]}"
