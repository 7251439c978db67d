#!/bin/bash
# Written by shardplan: llama-3.1-8b on 512 x tpu-v5e (tpu-v5e-pod) with maxtext 0.2.4.
# Names of options as of 0.2.4, 2026-08-22 (github.com/AI-Hypercomputer/maxtext, e591f30c).

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

OPTIONS=(
    # Model
    decoder_block=llama2
    base_emb_dim=4096
    base_mlp_dim=14336
    base_num_decoder_layers=32
    vocab_size=128256
    logits_via_embedding=false
    enable_dropout=false
    attention=flash
    base_num_query_heads=32
    base_num_kv_heads=8
    head_dim=128
    use_qk_norm=false
    attention_bias=false
    rope_type=llama3.1
    rope_use_scale=true
    # Plan
    ici_fsdp_parallelism=256
    dcn_fsdp_parallelism=1
    dcn_data_parallelism=2
    per_device_batch_size=1
    gradient_accumulation_steps=1
    max_target_length=4096
    remat_policy=full
    # Training
    hardware=tpu
    rope_max_timescale=500000
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

python3 -m maxtext.trainers.pre_train.train "$MAXTEXT/configs/base.yml" "${OPTIONS[@]}"
