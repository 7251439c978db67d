#!/bin/bash
# Written by shardplan: deepseek-v2 on 512 x h100-sxm-80gb (dgx-h100) with torchtitan 0.3.0.
# Names of options as of 0.3.0, 2026-08 (torchtitan 0.3.0 on the Python package index).
# Not expressed here:
#   - the model: torchtitan has no layers like those of deepseek-v2 in bf16 (60 layers of hidden size 5120, 12288 wide); CONFIG must name yours
#   - precision bf16: that of your configuration
#   - optimizer adam: that of your configuration
#   - stage layers 3,3,3,4,4,4,4,4,4,4,4,4,4,4,4,3: module_fqns_per_model_part in the configuration
# Left to the framework's defaults:
#   - data set, learning rate, validation and checkpoints are those of your configuration: change it in Python
#   - gradients are reduced in fp32 (training.mixed_precision_reduce has no other value)

#SBATCH --nodes=64
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
TOKENIZER=/path/to/hf/assets # folder with the model's tokenizer files
TRAIN_STEPS=1000 # optimizer steps
MODULE=your_package # module with your configuration
CONFIG=your_configuration # function in its config_registry
# <<< All below follows from the plan.

export PYTORCH_ALLOC_CONF=expandable_segments:True

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Model
    --module "$MODULE"
    --config "$CONFIG"
    # Training
    --hf_assets_path "$TOKENIZER"
    --training.steps "$TRAIN_STEPS"
    # Precision and kernels
    --training.dtype float32
    --compile.enable
    --compile.no_enable_async_tensor_parallel
    --training.no_enable_cpu_offload
    # Plan
    --parallelism.tensor_parallel_degree 1
    --parallelism.context_parallel_degree 1
    --parallelism.pipeline_parallel_degree 8
    --parallelism.pipeline_parallel_schedule Interleaved1F1B
    --parallelism.pipeline_parallel_layers_per_stage 4
    --parallelism.expert_parallel_degree 16
    --parallelism.data_parallel_replicate_degree 1
    --parallelism.data_parallel_shard_degree 64
    --parallelism.fsdp_reshard_after_forward default
    --training.local_batch_size 8
    --parallelism.pipeline_parallel_microbatch_size 1
    --training.global_batch_size 512
    --training.seq_len 4096
    --training.mixed_precision_param bfloat16
    --training.disable_cuda_graphs
    activation-checkpoint:full
)

# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.
srun torchrun --nnodes 64 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    -m torchtitan.train "${OPTIONS[@]}"
