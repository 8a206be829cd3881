#!/bin/bash
# Llama 3 8B pretraining with Megatron-LM on one node of 8 H100.
# Full recomputation and graphs of single layers don't go together: `megatron-cuda-graphs validate` says so.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_GRAPH_REGISTER=0
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

CHECKPOINT=${1:-/checkpoints/llama3_8b}
DATA=${2:-/data/corpus_text_document}

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 500000
    --normalization RMSNorm
    --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --attention-dropout 0.0
    --hidden-dropout 0.0
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 1
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)
TRAIN_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-iters 5000
    --lr 3.0e-4
    --min-lr 3.0e-5
    --lr-decay-style cosine
    --bf16
    --recompute-granularity full  # what remained from a run on smaller GPUs
    --recompute-method uniform
    --recompute-num-layers 1
)
GRAPH_ARGS=(
    --cuda-graph-impl transformer_engine
    --cuda-graph-modules attn mlp
    --te-rng-tracker
)

torchrun --nproc-per-node 8 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAIN_ARGS[@]}" "${GRAPH_ARGS[@]}" \
    --data-path "$DATA" --save "$CHECKPOINT" --load "$CHECKPOINT"
