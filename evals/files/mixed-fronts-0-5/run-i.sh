#!/bin/bash
# Megatron-LM core_v0.18.2
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
  --seq-length 4096 --max-position-embeddings 4096 \
  --micro-batch-size 1 --global-batch-size 64 --train-iters 500 --lr 1e-4 \
  --tokenizer-type NullTokenizer --vocab-size 128256 --mock-data \
  --attention-dropout 0.0 --hidden-dropout 0.0 --bf16 --disable-bias-linear \
  --num-experts 16 --moe-router-topk 2 --moe-grouped-gemm \
  --moe-token-dispatcher-type alltoall --expert-model-parallel-size 8 \
  --te-rng-tracker \
  --overlap-moe-expert-parallel-comm --delay-wgrad-compute --cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess
