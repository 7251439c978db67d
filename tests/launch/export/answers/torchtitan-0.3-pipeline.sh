#!/bin/bash
# Written by shardplan: llama-3.1-70b on 512 x h100-sxm-80gb (dgx-h100) with torchtitan 0.3.0.
# Names of options as of 0.3.0, 2026-08 (torchtitan 0.3.0 on the Python package index).
# Left to the framework's defaults:
#   - data set, learning rate, validation and checkpoints are those of the configuration training: change it in Python
#   - gradients are reduced in fp32 (training.mixed_precision_reduce has no other value)

#SBATCH --nodes=64
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
TOKENIZER=/path/to/hf/assets # folder with the model's tokenizer files
TRAIN_STEPS=1000 # optimizer steps
# <<< All below follows from the plan.

export PYTORCH_ALLOC_CONF=expandable_segments:True

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Model
    --module configuration_launch
    --config training
    # Training
    --hf_assets_path "$TOKENIZER"
    --training.steps "$TRAIN_STEPS"
    # Precision and kernels
    --training.dtype float32
    --compile.enable
    # Plan
    --parallelism.tensor_parallel_degree 8
    --parallelism.context_parallel_degree 1
    --parallelism.pipeline_parallel_degree 4
    --parallelism.pipeline_parallel_schedule Interleaved1F1B
    --parallelism.pipeline_parallel_first_stage_less_layers 0
    --parallelism.pipeline_parallel_last_stage_less_layers 0
    --parallelism.pipeline_parallel_layers_per_stage 10
    --parallelism.data_parallel_replicate_degree 1
    --parallelism.data_parallel_shard_degree 16
    --parallelism.fsdp_reshard_after_forward default
    --training.local_batch_size 32
    --parallelism.pipeline_parallel_microbatch_size 1
    --training.global_batch_size 512
    --training.seq_len 4096
    --training.mixed_precision_param bfloat16
    --training.disable_cuda_graphs
    activation-checkpoint:selective
)

# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.
srun torchrun --nnodes 64 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    -m torchtitan.train "${OPTIONS[@]}"
