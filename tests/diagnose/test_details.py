# ruff: noqa: E501  (log lines are as long as they are)
"""What the text adds to a mode's words: figures, the calling frame, the variant, and what a log without an error shows."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs import diagnose_error

CAPTURING = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
EVENT = "torch.AcceleratorError: CUDA error: operation not permitted on an event last recorded in a capturing stream"


def trace(*frames: tuple[str, int, str, str], error: str) -> str:
    shown = "".join(
        f'  File "/v/site-packages/{file}", line {line}, in {func}\n    {code}\n' for file, line, func, code in frames
    )
    return f"Traceback (most recent call last):\n{shown}{error}"


FULL = (
    "megatron/core/full_cuda_graph.py",
    232,
    "__call__",
    "FullCudaGraphWrapper.result[training_str] = self.forward_backward_func(",
)


def out_of_memory(allocated: str, pools: str = "", asked: str = "448.00 MiB", idle: str = "64.00 MiB") -> str:
    held = f", with {pools} allocated in private pools (e.g., CUDA Graphs)" if pools else ""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 3 has a total capacity of 79.10 GiB of "
        f"which 310.00 MiB is free. Of the allocated memory {allocated} is allocated by PyTorch{held}, and {idle} is reserved "
        "by PyTorch but unallocated."
    )


def memory_error(**figures: str) -> str:
    return trace(
        ("megatron/core/transformer/mlp.py", 210, "forward", "y = self.act(x)"),
        ("torch/nn/functional.py", 1700, "silu", "return torch._C._nn.silu(input)"),
        error=out_of_memory(**figures),
    )


def test_an_out_of_memory_error_names_the_calling_frame_and_its_figures() -> None:
    top = diagnose_error(memory_error(allocated="77.50 GiB", pools="22.00 MiB")).matches[0]
    assert top.failure_mode == "not_cuda_graph_oom"
    for part in ("448.00 MiB", "megatron/core/transformer/mlp.py:210 (forward)", "77.50 GiB", "22.00 MiB", "79.10 GiB"):
        assert part in top.cause
    assert "138.00 MiB more" in top.fix
    assert "without graphs" not in (top.looks_like or "")


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"allocated": "70.00 MiB", "asked": "300.00 GiB"}, "more than the GPU has"),
        ({"allocated": "74.00 GiB", "idle": "3.00 GiB"}, "fragmentation"),
        ({"allocated": "40.00 GiB", "idle": "3.00 GiB"}, "held outside PyTorch"),
        ({"allocated": "78.00 GiB", "pools": "60.00 GiB"}, "more must come free"),
    ],
)
def test_the_fix_of_an_out_of_memory_error_follows_its_figures(figures: dict[str, str], words: str) -> None:
    assert words in diagnose_error(memory_error(**figures)).matches[0].fix


def test_an_out_of_memory_message_alone_leaves_open_where_it_was_raised() -> None:
    diagnosis = diagnose_error(out_of_memory("70.00 GiB"))
    assert diagnosis.verdict == "unknown"
    assert {"not_cuda_graph_oom", "oom_during_capture"} <= {m.failure_mode for m in diagnosis.matches}
    assert any("traceback" in item.lower() for item in diagnosis.collect)


NAN = {
    "gradients": (
        trace(FULL, ("megatron/core/distributed/param_and_grad_buffer.py", 349, "check_grads", "rerun_state_machine.validate_result("), ("megatron/core/rerun_state_machine.py", 500, "validate_result", "if rejection_func(result):"), error=CAPTURING),
        {"check_for_nan_in_grad"},
    ),
    "loss": (
        trace(FULL, ("megatron/bridge/training/losses.py", 90, "masked_next_token_loss", "rerun_state_machine.validate_result("), ("megatron/core/rerun_state_machine.py", 500, "validate_result", "if rejection_func(result):"), error=CAPTURING),
        {"check_for_nan_in_loss"},
    ),
    "own assertion": (trace(FULL, ("job/loss.py", 34, "loss", "assert not torch.isnan(loss).any()"), error=CAPTURING), set()),
    "Megatron-LM": ("AssertionError: --no-check-for-nan-in-loss-and-grad should be set with --cuda-graph-impl=full_iteration for training.", {"check_for_nan_in_loss_and_grad"}),
}  # fmt: skip


@pytest.mark.parametrize("name", NAN)
def test_the_nan_check_that_raised_is_the_one_to_turn_off(name: str) -> None:
    text, fields = NAN[name]
    top = diagnose_error(text).matches[0]
    assert top.failure_mode == "nan_check_incompatible"
    assert {fix.field for fix in top.config_fix if fix.op != "setenv"} == fields


@pytest.mark.parametrize("file", ["token_dispatcher.py", "moe_layer.py", "experts.py"])
def test_a_wait_in_the_dispatch_of_experts_is_the_moes_dynamic_shape(file: str) -> None:
    text = trace(
        FULL,
        (f"megatron/core/transformer/moe/{file}", 950, "wait", "self.d2h_event.synchronize()"),
        ("torch/cuda/streams.py", 254, "synchronize", "super().synchronize()"),
        error=EVENT,
    )
    matches = diagnose_error(text).matches
    assert [m.failure_mode for m in matches[:2]] == ["moe_dynamic_shape", "sync_in_capture"]
    assert f"{file}:950" in (matches[0].note or "")


def test_a_kernel_first_launched_by_an_expert_is_no_dynamic_shape() -> None:
    text = trace(
        FULL,
        ("megatron/core/transformer/moe/experts.py", 90, "forward", "fused(x)"),
        ("triton/runtime/jit.py", 700, "run", "kernel.run(x)"),
        error="RuntimeError: Triton Error [CUDA]: operation not permitted when stream is capturing",
    )
    assert diagnose_error(text).matches[0].failure_mode == "lazy_module_load_in_capture"


def test_pipeline_communication_in_the_capture_has_its_switch() -> None:
    text = trace(
        FULL,
        ("megatron/core/pipeline_parallel/p2p_communication.py", 380, "_communicate", "torch.cuda.synchronize()"),
        error=CAPTURING,
    )
    top = diagnose_error(text).matches[0]
    assert [(f.op, getattr(f, "field", None), getattr(f, "value", None)) for f in top.config_fix] == [
        ("set", "batch_p2p_sync", False)
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("AssertionError: No CUDA Graphs were created to delete.", ("TECudaGraphHelper", "graphs_created()", "0.16")),
        (trace(FULL, error="AssertionError"), ("FullCudaGraphWrapper", "reset_cuda_graph()", "0.18")),
        ("the job hangs at exit in destroy_process_group when CUDA graphs are on", ("FullCudaGraphWrapper", "TECudaGraphHelper", "transformer.cuda_graphs.delete_cuda_graphs()")),
    ],
)  # fmt: skip
def test_a_fix_that_names_a_function_names_its_owner_and_release(text: str, names: tuple[str, ...]) -> None:
    top = diagnose_error(text).matches[0]
    assert top.failure_mode == "graph_lifecycle"
    assert [name for name in names if name not in top.fix] == []


@pytest.mark.parametrize(
    "words",
    [
        "batch size ramp-up under full iteration CUDA graphs gives bad loss",
        "rampup_batch_size with full_iteration graphs: consumed samples wrong",
        "the global batch grows but the full_iteration graph still runs the old number of micro-batches",
        "num_microbatches changes during training with full iteration graphs, no error but loss is worse",
    ],
)
def test_a_ramp_up_under_full_iteration_is_a_silent_failure(words: str) -> None:
    top = diagnose_error(words).matches[0]
    assert top.failure_mode == "silent_wrong_results"
    assert "reset_cuda_graph()" in top.fix or "number of micro" in top.fix


def test_what_torch_appends_to_every_cuda_error_describes_nothing() -> None:
    text = (
        "CUDA error: operation failed due to a previous error during capture\n"
        "Search for `cudaErrorStreamCaptureInvalidated' in https://docs.nvidia.com/cuda/x.html for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )
    diagnosis = diagnose_error(text)
    assert [m.failure_mode for m in diagnosis.matches] == ["sync_in_capture"]
    assert diagnosis.matches[0].confidence < 0.5


def step(number: int, ms: float) -> str:
    return f" [2026-11-29 17:00:{number:02d}] iteration {number:8d}/      20 | consumed samples: {number * 8:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.0E-04 | lm loss: {7 - number / 10:.6E} | grad norm: 1.2 |"


CAPTURES = {
    "full_iteration": ["INFO:megatron.core.full_cuda_graph:Capture CUDA graph for training!!!", "INFO:megatron.core.full_cuda_graph:CUDA graph capture done for training!!!"],
    "transformer_engine": ["[rank0]: INFO:megatron.core.transformer.cuda_graphs:Start CUDA Graphs capture...", "INFO:megatron.core.transformer.cuda_graphs:Time spent in CUDA Graphs capture on rank 0: 1.3s"],
    "local": ["INFO:megatron.core.transformer.cuda_graphs:Creating 16 CUDA graphs", "INFO:megatron.core.transformer.cuda_graphs:> built 16 cuda graph(s) in 0.25 sec, with total memory usage: allocated 3.1 mb, reserved 12.0 mb."],
}  # fmt: skip


@pytest.mark.parametrize("implementation", CAPTURES)
def test_a_log_without_an_error_tells_warm_up_capture_and_replay(implementation: str) -> None:
    lines = [step(1, 9000), step(2, 431), step(3, 429), *CAPTURES[implementation], step(4, 900)]
    lines += [step(n, 100) for n in range(5, 12)]
    diagnosis = diagnose_error("\n".join(lines))
    assert (diagnosis.verdict, diagnosis.matches) == ("unknown", ())
    assert [(p.phase, p.first_iteration, p.last_iteration, p.median_ms) for p in diagnosis.phases] == [
        ("warm-up", 1, 3, 430.0), ("capture", 4, 4, 900.0), ("replay", 5, 11, 100.0)
    ]  # fmt: skip
    assert "0.23 times" in (diagnosis.summary or "")
    assert not any("traceback" in item.lower() for item in diagnosis.collect)


def test_a_log_without_an_error_or_a_capture_says_so() -> None:
    steps = [step(n, 100) for n in range(1, 9)]
    assert "nothing in it shows CUDA graphs" in (diagnose_error("\n".join(steps)).summary or "").replace(
        "Nothing", "nothing"
    )
    configured = diagnose_error("\n".join(["cuda_graph_impl ................ local", *steps]))
    assert "no capture is logged" in (configured.summary or "")
    assert configured.phases == ()


def test_a_log_that_ends_in_an_error_has_no_phases() -> None:
    lines = [*(step(n, 100) for n in range(1, 5)), trace(("job/x.py", 3, "f", "g()"), error="ValueError: no")]
    diagnosis = diagnose_error("\n".join(lines))
    assert diagnosis.phases == ()
    assert diagnosis.summary is None
