#!/bin/bash
# Written by shardplan: llama-3.1-70b on 64 x h100-sxm-80gb (dgx-h100) with nemo 2.6.0.
# Names of options as of 2.6.0, 2025-09-20 (github.com/NVIDIA/NeMo, 8cfedd72).
# Not expressed here:
#   - the vocabulary of 128256 tokens: the tokenizer of the recipe's data decides it
# Left to the framework's defaults:
#   - data and tokenizer are those of the recipe llama31_70b, which trains on mock data: name your data module

#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8

set -euo pipefail

# >>> Fill in
CHECKPOINTS=/path/to/checkpoints # where logs and checkpoints are written
TRAIN_STEPS=1000 # optimizer steps
LEARNING_RATE=3e-4 # yours to choose
MIN_LEARNING_RATE=3e-5 # yours to choose
WARMUP_STEPS=100 # yours to choose
# <<< All below follows from the plan.

export CUDA_DEVICE_MAX_CONNECTIONS=1

OPTIONS=(
    # Model
    model.config.num_layers=80
    model.config.hidden_size=8192
    model.config.ffn_hidden_size=28672
    model.config.num_attention_heads=64
    model.config.num_query_groups=8
    model.config.kv_channels=128
    model.config.qk_layernorm=false
    model.config.add_bias_linear=false
    model.config.add_qkv_bias=false
    model.config.attention_dropout=0.0
    model.config.hidden_dropout=0.0
    model.config.gated_linear_unit=true
    model.config.normalization=RMSNorm
    model.config.position_embedding_type=rope
    model.config.share_embeddings_and_output_weights=false
    model.config.rotary_base=500000
    model.config.layernorm_epsilon=1e-05
    # Plan
    'trainer.callbacks=[]'
    trainer.strategy.tensor_model_parallel_size=8
    trainer.strategy.sequence_parallel=true
    model.config.tp_comm_overlap=false
    trainer.strategy.context_parallel_size=1
    trainer.strategy.pipeline_model_parallel_size=4
    trainer.strategy.virtual_pipeline_model_parallel_size=5
    trainer.strategy.microbatch_group_size_per_vp_stage=4
    model.config.overlap_p2p_comm=true
    model.config.batch_p2p_comm=false
    optim.config.use_distributed_optimizer=true
    trainer.strategy.ddp.overlap_grad_reduce=true
    trainer.strategy.ddp.overlap_param_gather=true
    data.micro_batch_size=1
    data.global_batch_size=512
    data.seq_length=4096
    model.config.seq_length=4096
    trainer.plugins=nemo.collections.llm.recipes.precision.mixed_precision.bf16_mixed
    optim.config.optimizer=adam
    model.config.recompute_granularity=None
    trainer.plugins.grad_reduce_in_fp32=false
    # Training
    "trainer.max_steps=$TRAIN_STEPS"
    "optim.config.lr=$LEARNING_RATE"
    "optim.lr_scheduler.min_lr=$MIN_LEARNING_RATE"
    "optim.lr_scheduler.warmup_steps=$WARMUP_STEPS"
    "log.log_dir=$CHECKPOINTS"
)

srun nemo llm pretrain --yes --factory 'llama31_70b(num_nodes=8, num_gpus_per_node=8)' "${OPTIONS[@]}"
