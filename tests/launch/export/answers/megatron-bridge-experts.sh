#!/bin/bash
# Written by shardplan: deepseek-v3 on 1024 x h100-sxm-80gb (dgx-h100) with megatron-bridge 0.7.0.
# Names of options as of 0.7.0, 2026-08-22 (github.com/NVIDIA-NeMo/Megatron-Bridge, 067f987d).
# Left to the framework's defaults:
#   - the rest is that of the recipe vanilla_gpt_pretrain_1gpu_h100_bf16_config
#   - the router's balancing: set it as the model has it

#SBATCH --nodes=128
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

HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}

OPTIONS=(
    # Recipe
    --recipe vanilla_gpt_pretrain_1gpu_h100_bf16_config
    --mode pretrain
    # Model
    ++model._target_=megatron.bridge.models.mla_provider.MLAModelProvider
    model.num_layers=61
    model.hidden_size=7168
    model.ffn_hidden_size=18432
    model.num_attention_heads=128
    model.multi_latent_attention=true
    ++model.q_lora_rank=1536
    ++model.kv_lora_rank=512
    ++model.qk_head_dim=128
    ++model.qk_pos_emb_head_dim=64
    ++model.v_head_dim=128
    model.qk_layernorm=true
    model.add_bias_linear=false
    model.add_qkv_bias=false
    model.attention_dropout=0.0
    model.hidden_dropout=0.0
    model.mtp_num_layers=1
    model.num_moe_experts=256
    model.moe_router_topk=8
    model.moe_ffn_hidden_size=2048
    'model.moe_layer_freq=[0,0,0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]'
    model.moe_shared_expert_intermediate_size=2048
    model.moe_router_num_groups=8
    model.moe_router_group_topk=4
    model.moe_router_score_function=sigmoid
    model.moe_router_topk_scaling_factor=2.5
    model.gated_linear_unit=true
    model.normalization=RMSNorm
    model.position_embedding_type=rope
    model.share_embeddings_and_output_weights=false
    model.vocab_size=129280
    model.cross_entropy_loss_fusion=true
    model.cross_entropy_fusion_impl=te
    ++model.rope_type=yarn
    model.rotary_scaling_factor=40
    ++model.original_max_position_embeddings=4096
    ++model.beta_fast=32
    ++model.beta_slow=1
    ++model.mscale=1
    ++model.mscale_all_dim=1
    model.bias_dropout_fusion=true
    model.bias_activation_fusion=true
    model.activation_func=silu
    model.rotary_base=10000
    model.layernorm_epsilon=1e-06
    # Plan
    model.tensor_model_parallel_size=1
    model.context_parallel_size=1
    model.pipeline_model_parallel_size=8
    'model.pipeline_model_parallel_layout='"'"'Et*8|(t*8|)*6t*5mL'"'"''
    model.overlap_p2p_comm=false
    model.batch_p2p_comm=true
    model.expert_model_parallel_size=64
    model.expert_tensor_parallel_size=1
    model.moe_grouped_gemm=true
    model.moe_token_dispatcher_type=alltoall
    model.overlap_moe_expert_parallel_comm=false
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
srun torchrun --nnodes 128 --nproc-per-node 8 --rdzv-backend c10d \
    --rdzv-endpoint "$HEAD_NODE:29500" --rdzv-id "${SLURM_JOB_ID:-1}" \
    "$MEGATRON_BRIDGE/scripts/training/run_recipe.py" "${OPTIONS[@]}"
