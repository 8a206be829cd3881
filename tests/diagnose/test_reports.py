# ruff: noqa: E501  (log lines are as long as they are)
"""Failures in the forms in which they really come out: masked roots, surroundings, words without a message."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs import diagnose_error

MASK = """

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/site/torch/cuda/graphs.py", line 126, in capture_end
    super().capture_end()
torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture
Search for `cudaErrorStreamCaptureInvalidated' in https://docs.nvidia.com/cuda for more information.
"""
CAPTURING = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"


def raised(file: str, func: str, code: str, error: str) -> str:
    return f'Traceback (most recent call last):\n  File "{file}", line 9, in {func}\n    {code}\n{error}'


MASKED = {
    "item": (raised("/opt/job/stats.py", "record", "x.max().item()", CAPTURING), "sync_in_capture"),
    "mask index": (raised("/opt/job/loss.py", "loss", "x[x > 0].sum()", CAPTURING), "sync_in_capture"),
    "event": (raised("/opt/site/torch/cuda/streams.py", "synchronize", "super().synchronize()", "torch.AcceleratorError: CUDA error: operation not permitted on an event last recorded in a capturing stream"), "sync_in_capture"),
    "dispatcher": (raised("/opt/site/megatron/core/transformer/moe/token_dispatcher.py", "dispatch", "counts.cpu()", CAPTURING), "moe_dynamic_shape"),
    "NaN check": (raised("/opt/site/megatron/core/rerun_state_machine.py", "validate_result", "if result_rejected:", CAPTURING), "nan_check_incompatible"),
    "cuBLAS": (raised("/opt/job/model.py", "forward", "x @ w", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), "library_handle_init_in_capture"),
    "Triton": (raised("/opt/site/triton/runtime/jit.py", "run", "kernel.run()", "RuntimeError: Triton Error [CUDA]: operation not permitted when stream is capturing"), "lazy_module_load_in_capture"),
    "legacy stream": (raised("/opt/site/torch/autograd/graph.py", "_engine_run_backward", "run_backward()", "torch.AcceleratorError: CUDA error: operation would make the legacy stream depend on a capturing blocking stream"), "legacy_stream_dependency"),
    "isolation": (raised("/opt/site/torch/cuda/streams.py", "wait_stream", "super().wait(stream)", "torch.AcceleratorError: CUDA error: dependency created on uncaptured work in another stream"), "capture_isolation"),
    "new group": (raised("/opt/site/torch/distributed/distributed_c10d.py", "all_reduce", "work = group.allreduce([tensor], opts)", "torch.distributed.DistBackendError: NCCL error in: x.cpp:93, unhandled cuda error, NCCL version 2.28.9\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'operation not permitted when stream is capturing'"), "nccl_comm_init_in_capture"),
    "memory": (raised("/opt/job/model.py", "forward", "x = torch.cat(parts)", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 GiB. GPU 0 has a total capacity of 139.80 GiB."), "oom_during_capture"),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKED)
def test_the_root_of_the_chain_decides_not_what_capture_end_says(name: str) -> None:
    text, mode = MASKED[name]
    diagnosis = diagnose_error(text + MASK)
    top = diagnosis.matches[0]
    assert (diagnosis.verdict, top.failure_mode) == ("cuda_graph_failure", mode)
    assert "previous error" not in top.evidence[0].text


def test_an_echo_alone_asks_for_the_first_exception() -> None:
    diagnosis = diagnose_error("RuntimeError: CUDA error: operation failed due to a previous error during capture")
    assert diagnosis.verdict == "cuda_graph_failure"
    assert diagnosis.matches[0].confidence < 0.5
    assert any("first exception" in item for item in diagnosis.collect)


FRAMED = {
    "TE without the tracker": (raised("/opt/site/transformer_engine/pytorch/graph.py", "make_graphed_callables", "[state.get_state() for state in generators]", "AttributeError: 'Tensor' object has no attribute 'get_state'"), "missing_te_rng_tracker"),
    "full iteration without the tracker": (raised("/opt/site/megatron/core/full_cuda_graph.py", "__call__", "register_generator_state(state)", "TypeError: expected a Generator, but got Tensor"), "missing_te_rng_tracker"),
    "shorter sequence": (raised("/opt/site/megatron/core/full_cuda_graph.py", "clone_tensors_in_struct", "tgt.copy_(src, non_blocking=True)", "RuntimeError: The size of tensor a (256) must match the size of tensor b (128) at non-singleton dimension 1"), "replay_args_mismatch"),
    "other micro-batch": (raised("/opt/site/transformer_engine/pytorch/graph.py", "forward", "static_input_surface[i].copy_(inputs[i])", "RuntimeError: output with shape [256, 1, 256] doesn't match the broadcast shape [256, 2, 256]"), "replay_args_mismatch"),
    "checkpoint": (raised("/opt/site/torch/utils/checkpoint.py", "checkpoint", "fork_rng()", "RuntimeError: Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture. If you need this call to be captured, please file an issue. Current cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"), "recompute_rng_in_capture"),
    "freed input": (raised("/opt/site/torch/cuda/graphs.py", "replay", "super().replay()", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"), "illegal_memory_access_after_replay"),
    "pools hold it": ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. Of the allocated memory 47.00 GiB is allocated by PyTorch, with 46.22 GiB allocated in private pools (e.g., CUDA Graphs), and 149.10 MiB is reserved by PyTorch but unallocated.", "memory_overhead_oom"),
    "pin memory": ("RuntimeError: Caught RuntimeError in pin memory thread for device 0.\nRuntimeError: CUDA error: operation not permitted when stream is capturing", "other_thread_cuda_call"),
    "watchdog": ("[rank0]:[E ProcessGroupNCCL.cpp:1182] [Rank 0] NCCL watchdog thread terminated with exception: CUDA error: operation not permitted when stream is capturing", "nccl_watchdog_event_query"),
    "destructor": ("Exception ignored in: <function Module.__del__ at 0x7f>\nRuntimeError: CUDA error: operation not permitted when stream is capturing", "gc_during_capture"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMED)
def test_frames_and_surroundings_tell_what_the_message_does_not(name: str) -> None:
    text, mode = FRAMED[name]
    diagnosis = diagnose_error(text)
    assert (diagnosis.verdict, diagnosis.matches[0].failure_mode) == ("cuda_graph_failure", mode)


SYMPTOMS = {
    "loss differs from eager after enabling CUDA graphs, no error": "silent_wrong_results",
    "gradients are doubled when I use make_graphed_callables": "silent_wrong_results",
    "the learning rate is frozen: it never changes once full_iteration graphs replay": "silent_wrong_results",
    "dropout uses the same mask every step after graph capture": "silent_wrong_results",
    "changing the number of microbatches after the capture is silently ignored": "silent_wrong_results",
    "loss becomes NaN after resuming from a checkpoint with cuda graphs on": "silent_corruption_nan",
    "the job hangs at exit and does not exit when CUDA graphs are on": "graph_lifecycle",
    "training hangs in an all-reduce with CUDA graphs, without graphs it runs": "nccl_graph_hang",
    "out of memory only after enabling CUDA graphs": "memory_overhead_oom",
    "TE layer called twice before its backward overwrites its first output in the graph": "pp_vpp_graph_order",
    "graphs are on but the run is no faster and nothing was captured": "graph_not_applied",
    "FP8 autocast turned off at replay has no effect on the graphed layer": "fp8_graph_state",
}


@pytest.mark.parametrize("words", SYMPTOMS)
def test_a_silent_failure_is_found_by_its_symptom(words: str) -> None:
    diagnosis = diagnose_error(words)
    assert (diagnosis.verdict, diagnosis.matches[0].failure_mode) == ("cuda_graph_failure", SYMPTOMS[words])
    assert diagnosis.matches[0].confidence <= 0.8


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("loss differs from eager", "silent_wrong_results"),
        ("gradients doubled", "silent_wrong_results"),
        ("NaN after resume", "silent_corruption_nan"),
        ("learning rate is frozen", "silent_wrong_results"),
        ("job does not exit", "graph_lifecycle"),
    ],
)
def test_a_symptom_that_says_nothing_of_graphs_is_listed_but_not_decided(words: str, mode: str) -> None:
    diagnosis = diagnose_error(words)
    assert (diagnosis.verdict, diagnosis.matches[0].failure_mode) == ("unknown", mode)


def test_the_fix_is_the_change_that_validation_accepts() -> None:
    from megatron_cuda_graphs import Stack, validate_config

    config = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "cuda_graph_impl": "transformer_engine"}
    config |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    stack = Stack(megatron_core="0.19.2")
    text = "AssertionError: full recompute is only supported with full iteration CUDA graph."
    top = diagnose_error(text, config=config, stack=stack, env={}).matches[0]
    assert top.failure_mode == "full_recompute_with_te_scoped"
    changed = dict(config)
    for fix in top.config_fix:
        assert fix.op != "setenv"
        if fix.op == "set":
            changed[fix.field] = fix.value
        else:
            changed.pop(fix.field, None)
    assert not validate_config(config, stack=stack, env={}).ok
    assert validate_config(changed, stack=stack, env={}).ok


def test_a_configuration_that_rules_a_mode_out_lowers_it_and_says_why() -> None:
    from megatron_cuda_graphs import Stack

    text = "AssertionError: full recompute is only supported with full iteration CUDA graph."
    config = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "cuda_graph_impl": "transformer_engine"}
    alone = diagnose_error(text).matches[0]
    weighed = diagnose_error(text, config=config, stack=Stack(megatron_core="0.19.2"), env={}).matches[0]
    assert weighed.failure_mode == alone.failure_mode
    assert weighed.confidence < alone.confidence
    assert weighed.note
