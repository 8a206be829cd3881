#!/bin/bash
# Megatron-LM core_v0.17.1
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512,expandable_segments:True
export NCCL_GRAPH_REGISTER=0
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
  --seq-length 4096 --max-position-embeddings 4096 \
  --micro-batch-size 1 --global-batch-size 64 --train-iters 500 --lr 1e-4 \
  --tokenizer-type NullTokenizer --vocab-size 128256 --mock-data \
  --attention-dropout 0.0 --hidden-dropout 0.0 --bf16 --disable-bias-linear \
  --te-rng-tracker \
  --cuda-graph-impl transformer_engine --cuda-graph-scope attn
