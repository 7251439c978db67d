#!/bin/bash
# Written by shardplan: llama-3.1-70b on 512 x h100-sxm-80gb (dgx-h100) with megatron-bridge 0.7.0.
# Names of options as of 0.7.0, 2026-08-22 (github.com/NVIDIA-NeMo/Megatron-Bridge, 067f987d).
# Left to the framework's defaults:
#   - the rest is that of the recipe vanilla_gpt_pretrain_1gpu_h100_bf16_config

#SBATCH --nodes=64
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
MEGATRON_BRIDGE=/path/to/Megatron-Bridge # checkout of Megatron-Bridge
TOKENIZER=/path/to/tokenizer # folder or name of a Hugging Face tokenizer
DATA_PATH=/path/to/data # prefix of a preprocessed data set
CHECKPOINTS=/path/to/checkpoints # where checkpoints are written and read
TRAIN_STEPS=1000 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
MIN_LEARNING_RATE=3e-5 # yours to choose
WARMUP_STEPS=100 # yours to choose
# <<< All below follows from the plan.

export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export CUDA_DEVICE_MAX_CONNECTIONS=1

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Recipe
    --recipe vanilla_gpt_pretrain_1gpu_h100_bf16_config
    --mode pretrain
    # Model
    model.num_layers=80
    model.hidden_size=8192
    model.ffn_hidden_size=28672
    model.num_attention_heads=64
    model.num_query_groups=8
    model.kv_channels=128
    model.qk_layernorm=false
    model.add_bias_linear=false
    model.add_qkv_bias=false
    model.attention_dropout=0.0
    model.hidden_dropout=0.0
    model.gated_linear_unit=true
    model.normalization=RMSNorm
    model.position_embedding_type=rope
    model.share_embeddings_and_output_weights=false
    model.vocab_size=128256
    model.cross_entropy_loss_fusion=true
    model.cross_entropy_fusion_impl=te
    model.rope_scaling=true
    model.rope_scaling_factor=8
    model.bias_dropout_fusion=true
    model.bias_activation_fusion=true
    model.apply_rope_fusion=true
    model.activation_func=silu
    model.rotary_base=500000
    model.layernorm_epsilon=1e-05
    # Plan
    model.tensor_model_parallel_size=4
    model.sequence_parallel=true
    model.tp_comm_overlap=true
    model.context_parallel_size=1
    model.pipeline_model_parallel_size=4
    model.virtual_pipeline_model_parallel_size=5
    model.microbatch_group_size_per_vp_stage=4
    model.overlap_p2p_comm=true
    model.batch_p2p_comm=false
    ddp.use_distributed_optimizer=true
    optimizer.use_distributed_optimizer=true
    ddp.overlap_grad_reduce=true
    ddp.overlap_param_gather=true
    train.micro_batch_size=1
    train.global_batch_size=512
    model.seq_length=4096
    dataset.seq_length=4096
    'mixed_precision={_target_:megatron.bridge.training.mixed_precision.MixedPrecisionConfig,bf16:true,params_dtype:{_target_:torch.bfloat16,_call_:false},pipeline_dtype:{_target_:torch.bfloat16,_call_:false},grad_reduce_in_fp32:false}'
    optimizer.optimizer=adam
    model.recompute_granularity=null
    # Training
    "train.train_iters=$TRAIN_STEPS"
    "optimizer.lr=$LEARNING_RATE"
    "optimizer.min_lr=$MIN_LEARNING_RATE"
    "scheduler.lr_warmup_iters=$WARMUP_STEPS"
    tokenizer.tokenizer_type=HuggingFaceTokenizer
    "tokenizer.tokenizer_model=$TOKENIZER"
    "dataset.blend=[[$DATA_PATH],null]"
    "checkpoint.save=$CHECKPOINTS"
    "checkpoint.load=$CHECKPOINTS"
)

# Without Slurm: set HEAD_NODE to the name of the first node and run what follows srun on every node.
srun torchrun --nnodes 64 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    "$MEGATRON_BRIDGE/scripts/training/run_recipe.py" "${OPTIONS[@]}"
