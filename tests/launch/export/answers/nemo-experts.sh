#!/bin/bash
# Written by shardplan: mixtral-8x7b on 64 x h100-sxm-80gb (dgx-h100) with nemo 2.6.0.
# Names of options as of 2.6.0, 2025-09-20 (github.com/NVIDIA/NeMo, 8cfedd72).
# Not expressed here:
#   - the vocabulary of 32000 tokens: the tokenizer of the recipe's data decides it
# Left to the framework's defaults:
#   - data and tokenizer are those of the recipe mixtral_8x7b, which trains on mock data: name your data module
#   - the router's score function, scaling and balancing: set it as the model has it

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
    model.config.num_layers=32
    model.config.hidden_size=4096
    model.config.ffn_hidden_size=14336
    model.config.num_attention_heads=32
    model.config.num_query_groups=8
    model.config.kv_channels=128
    model.config.qk_layernorm=false
    model.config.add_bias_linear=false
    model.config.add_qkv_bias=false
    model.config.attention_dropout=0.0
    model.config.hidden_dropout=0.0
    model.config.num_moe_experts=8
    model.config.moe_router_topk=2
    model.config.moe_ffn_hidden_size=14336
    model.config.moe_layer_freq=1
    model.config.moe_router_pre_softmax=false
    model.config.gated_linear_unit=true
    model.config.normalization=RMSNorm
    model.config.position_embedding_type=rope
    model.config.share_embeddings_and_output_weights=false
    model.config.rotary_base=1000000
    model.config.layernorm_epsilon=1e-05
    # Plan
    'trainer.callbacks=[]'
    trainer.strategy.tensor_model_parallel_size=2
    trainer.strategy.sequence_parallel=true
    model.config.tp_comm_overlap=false
    trainer.strategy.context_parallel_size=1
    trainer.strategy.pipeline_model_parallel_size=1
    trainer.strategy.virtual_pipeline_model_parallel_size=None
    trainer.strategy.expert_model_parallel_size=4
    model.config.moe_grouped_gemm=true
    model.config.moe_token_dispatcher_type=alltoall
    trainer.strategy.expert_tensor_parallel_size=2
    optim.config.use_distributed_optimizer=true
    trainer.strategy.ddp.overlap_grad_reduce=true
    trainer.strategy.ddp.overlap_param_gather=true
    data.micro_batch_size=1
    data.global_batch_size=512
    data.seq_length=4096
    model.config.seq_length=4096
    trainer.plugins=nemo.collections.llm.recipes.precision.mixed_precision.bf16_mixed
    optim.config.optimizer=adam
    model.config.recompute_granularity=full
    model.config.recompute_method=uniform
    model.config.recompute_num_layers=1
    trainer.plugins.grad_reduce_in_fp32=false
    # Training
    "trainer.max_steps=$TRAIN_STEPS"
    "optim.config.lr=$LEARNING_RATE"
    "optim.lr_scheduler.min_lr=$MIN_LEARNING_RATE"
    "optim.lr_scheduler.warmup_steps=$WARMUP_STEPS"
    "log.log_dir=$CHECKPOINTS"
)

srun nemo llm pretrain --yes --factory 'mixtral_8x7b(num_nodes=8, num_gpus_per_node=8)' "${OPTIONS[@]}"
