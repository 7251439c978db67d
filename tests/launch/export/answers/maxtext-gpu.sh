#!/bin/bash
# Written by shardplan: mixtral-8x7b on 64 x h100-sxm-80gb (dgx-h100) with maxtext 0.2.4.
# Names of options as of 0.2.4, 2026-08-22 (github.com/AI-Hypercomputer/maxtext, e591f30c).
# Left to the framework's defaults:
#   - the router's score function, scaling and balancing: set it as the model has it

#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
MAXTEXT=/path/to/maxtext/src/maxtext # folder of the package maxtext
TOKENIZER=/path/to/tokenizer # folder or name of a Hugging Face tokenizer
DATASET=/path/to/dataset # name of a data set on the Hugging Face hub
OUTPUT=/path/to/output # folder or bucket of checkpoints and logs
RUN_NAME=run # name of the run
TRAIN_STEPS=1000 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
# <<< All below follows from the plan.

export JAX_COORDINATOR_PORT=29500
export NNODES=8

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export JAX_COORDINATOR_IP="$HEAD_NODE"

OPTIONS=(
    # Model
    decoder_block=mixtral
    base_emb_dim=4096
    base_mlp_dim=14336
    base_num_decoder_layers=32
    vocab_size=32000
    logits_via_embedding=false
    enable_dropout=false
    attention=cudnn_flash_te
    max_segments_per_seq=32
    base_num_query_heads=32
    base_num_kv_heads=8
    head_dim=128
    use_qk_norm=false
    attention_bias=false
    num_experts=8
    num_experts_per_tok=2
    base_moe_mlp_dim=14336
    # Plan
    ici_fsdp_parallelism=8
    dcn_fsdp_parallelism=8
    dcn_data_parallelism=1
    per_device_batch_size=1
    gradient_accumulation_steps=8
    max_target_length=4096
    remat_policy=full
    # Training
    hardware=gpu
    rope_max_timescale=1000000
    normalization_layer_epsilon=1e-05
    "run_name=$RUN_NAME"
    "base_output_directory=$OUTPUT"
    dataset_type=hf
    "hf_path=$DATASET"
    tokenizer_type=huggingface
    "tokenizer_path=$TOKENIZER"
    "steps=$TRAIN_STEPS"
    "learning_rate=$LEARNING_RATE"
)

srun bash -c 'NODE_RANK=$SLURM_PROCID exec "$@"' launch python3 -m maxtext.trainers.pre_train.train "$MAXTEXT/configs/base.yml" "${OPTIONS[@]}"
