#!/bin/bash
# Llama-3.1-70B with Megatron-LM: a launch script as people write them, for `shardplan audit`.
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1

NODES=${NODES:-8}
TP=${TP:-8}
PP=4

MODEL=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 131072
    --swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope
    --untie-embeddings-and-output-weights --vocab-size 128256 --tokenizer-type NullTokenizer
    --hidden-dropout 0 --attention-dropout 0
)
PLAN="--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel --use-distributed-optimizer"
BATCH="--micro-batch-size 1 --global-batch-size $((NODES * 16))"

srun torchrun --nnodes "$NODES" --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}" $PLAN $BATCH --bf16 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
