"""What the recommender's estimates rest on, measured: memory that graphs hold, and kernels per layer.

    python benchmarks/recommend_gpu.py OUT.jsonl [--jobs 8] [--only SUBSTRING]

Needs one NVIDIA GPU with torch, transformer-engine and megatron-core. Each shape and mode runs in a process of its own,
so that allocators do not see each other; several run at once, since memory is read per process (times are not taken).
The model, optimizer and step are those of Megatron's training loop: GPTModel on Transformer Engine layers,
Float16Module, DDP, Adam, clip 1.0; 10 steps, capture after 3.

`reserved_gb` is the peak over the whole run: it holds what the allocator keeps from the eager warm-up, which it would
give back before running out. `steady_gb` is the peak of the last steps after that cache was emptied: what a run needs
once its graphs exist. Graphs' private pools are never given back, so both hold them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

# name: layers, hidden, sequence, micro-batch, experts (0 is dense), micro-batches a step
SHAPES = {
    "dense-16x1024-t4096": (16, 1024, 2048, 2, 0, 1),
    "dense-8x4096-t4096": (8, 4096, 4096, 1, 0, 1),
    "dense-24x2048-t2048": (24, 2048, 2048, 1, 0, 1),
    "dense-12x2048-t8192": (12, 2048, 2048, 4, 0, 1),
    "dense-12x2048-t2048-m4": (12, 2048, 2048, 1, 0, 4),
    "moe-12x2048-t4096": (12, 2048, 2048, 2, 16, 1),
    "moe-8x2048-t8192": (8, 2048, 4096, 2, 16, 1),
    "moe-16x1024-t2048": (16, 1024, 2048, 1, 16, 1),
    "moe-12x2048-t4096-grouped": (12, 2048, 2048, 2, 16, 1),
}
MODES = {
    "dense": ("eager", "attn", "attn+mlp", "full_iteration"),
    "moe": ("eager", "attn", "router", "attn+router"),
}
MODULES = {"attn": ["attn"], "attn+mlp": ["attn", "mlp"], "router": ["moe_router", "moe_preprocess"],
           "attn+router": ["attn", "moe_router", "moe_preprocess"]}  # fmt: skip
STEPS, WARMUP, VOCAB = 10, 3, 32000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    todo = [(s, m) for s in SHAPES for m in MODES[s.partition("-")[0]] if args.only in f"{s}:{m}"]
    running: list[tuple[str, str, subprocess.Popen]] = []
    with open(args.out, "w") as out:
        while todo or running:
            while todo and len(running) < args.jobs:
                shape, mode = todo.pop(0)
                command = [sys.executable, __file__, "--worker", shape, mode]
                running.append(
                    (shape, mode, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
                )
            shape, mode, process = running.pop(0)
            text = process.communicate()[0].decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
            row = json.loads(lines[-1][7:]) if lines else {"error": text[-1500:]}
            out.write(json.dumps({"shape": shape, "mode": mode, **row}) + "\n")
            out.flush()
            print(shape, mode, {k: v for k, v in row.items() if k != "error"} or row["error"][-300:], flush=True)


def worker(shape: str, mode: str) -> None:
    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.full_cuda_graph import FullCudaGraphWrapper
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.transformer.cuda_graphs import TECudaGraphHelper
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.transformer_config import TransformerConfig

    layers, hidden, seq, size, experts, micro = SHAPES[shape]
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1, te_rng_tracker=True)
    init_num_microbatches_calculator(0, None, size * micro, size, 1)
    graphs = {}
    if mode == "full_iteration":
        graphs = {"cuda_graph_impl": "full_iteration", "cuda_graph_modules": []}
    elif mode != "eager":
        graphs = {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": MODULES[mode]}
    moe = {"num_moe_experts": experts, "moe_router_topk": 4, "moe_ffn_hidden_size": hidden // 2,
           "moe_grouped_gemm": shape.endswith("grouped"),
           "moe_token_dispatcher_type": "alltoall", "moe_aux_loss_coeff": 0.0} if experts else {}  # fmt: skip
    config = TransformerConfig(
        num_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 128, ffn_hidden_size=4 * hidden,
        attention_dropout=0.0, hidden_dropout=0.0, add_bias_linear=False, normalization="RMSNorm", bf16=True,
        params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, gradient_accumulation_fusion=False,
        use_te_rng_tracker=True, **moe, **graphs,
    )  # fmt: skip
    model = GPTModel(
        config,
        get_gpt_decoder_block_spec(config, use_transformer_engine=True),
        VOCAB,
        seq,
        position_embedding_type="rope",
    )
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ddp = DistributedDataParallel(
            config,
            DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=False),
            Float16Module(config, model.cuda()),
        )
    torch.cuda.current_stream().wait_stream(stream)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16, clip_grad=1.0), [ddp]
    )
    config.finalize_model_grads_func, config.grad_scale_func = finalize_model_grads, optimizer.scale_loss
    schedule = schedules.get_forward_backward_func()
    if mode == "full_iteration":
        schedule = FullCudaGraphWrapper(schedule, cuda_graph_warmup_steps=WARMUP)
    helper = None
    if graphs and mode != "full_iteration":
        helper = TECudaGraphHelper(
            model=[ddp], config=config, seq_length=seq, micro_batch_size=size, optimizers=[optimizer]
        )
    tokens = torch.randint(0, VOCAB, (size, seq), device="cuda")
    batch = {"tokens": tokens, "labels": tokens.clone(),
             "position_ids": torch.arange(seq, device="cuda").expand(size, seq).contiguous()}  # fmt: skip

    def forward(iterator: object, net: object) -> object:
        b = next(iterator)  # type: ignore[call-overload]
        out = net(b["tokens"], b["position_ids"], None, labels=b["labels"])  # type: ignore[operator]

        def loss(value: torch.Tensor) -> object:
            mean = value.float().mean()
            return mean, {"loss": mean.detach()}

        return out, loss

    def passes() -> None:
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=forward, data_iterator=iter([dict(batch) for _ in range(micro)]), model=[ddp],
            num_microbatches=micro, seq_length=seq, micro_batch_size=size, forward_only=False,
        )  # fmt: skip

    row: dict[str, object] = {}
    for step in range(STEPS):
        if helper is not None and step == WARMUP:
            helper.create_cudagraphs()
        if step == STEPS - 3:
            torch.cuda.synchronize()
            row["reserved_gb"] = round(torch.cuda.max_memory_reserved() / 1e9, 4)
            torch.cuda.empty_cache()
            row["kept_gb"] = round(torch.cuda.memory_reserved() / 1e9, 4)
            torch.cuda.reset_peak_memory_stats()
        if step == STEPS - 1:
            torch.cuda.synchronize()
            row["steady_gb"] = round(torch.cuda.max_memory_reserved() / 1e9, 4)
        if mode == "eager" and step == STEPS - 1:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                passes()
                torch.cuda.synchronize()
            kernels = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            row["kernels"] = len(kernels)
            row["busy_ms"] = round(sum(e.device_time_total for e in kernels) / 1e3, 3)
        else:
            passes()
        optimizer.step()
    torch.cuda.synchronize()
    print("RESULT " + json.dumps(row), flush=True)
    os._exit(0)  # graphs hold collectives: the ordinary teardown can hang


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--worker":
        worker(sys.argv[2], sys.argv[3])
    else:
        main()
