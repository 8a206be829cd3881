# ruff: noqa: E501  (log lines are as long as they are)
"""Ordinary failures are called what they look like, and too little is called unknown."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs import diagnose_error

HEAD = (
    'Traceback (most recent call last):\n  File "/opt/job/pretrain_gpt.py", line 72, in <module>\n    pretrain(args)\n'
)


def frame(file: str, func: str, code: str, error: str) -> str:
    return f'{HEAD}  File "{file}", line 100, in {func}\n    {code}\n{error}'


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB. Of the allocated memory 70.00 GiB is allocated by PyTorch{pools}, and 3.00 GiB is reserved by PyTorch but unallocated."
ORDINARY = {
    "eager out of memory": (
        frame("/opt/site/megatron/core/transformer/mlp.py", "forward", "y = self.linear(x)", OOM.format(pools="")),
        "not_cuda_graph_oom",
    ),
    "graphs hold next to nothing": (
        OOM.format(pools=", with 22.00 MiB allocated in private pools (e.g., CUDA Graphs)"),
        "not_cuda_graph_oom",
    ),
    "missing module": (HEAD + "ModuleNotFoundError: No module named 'apex'", "not_cuda_graph_config"),
    "matrix shapes": (
        frame(
            "/opt/job/layer.py",
            "forward",
            "return a @ b",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x1024 and 2048x512)",
        ),
        "not_cuda_graph_shape_mismatch",
    ),
    "missing data": (
        frame(
            "/opt/site/megatron/core/datasets/indexed_dataset.py",
            "__init__",
            "open(path)",
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'",
        ),
        "not_cuda_graph_data_error",
    ),
    "gated model": (
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it.",
        "not_cuda_graph_hf_auth",
    ),
    "unauthorised": (
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub/x",
        "not_cuda_graph_hf_auth",
    ),
    "fabric": (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1333, unhandled system error, NCCL version 2.18.6\nncclSystemError: System call failed.",
        "not_cuda_graph_nccl_network",
    ),
    "port in use": (
        "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "not_cuda_graph_nccl_network",
    ),
    "world size": ("AssertionError: world size (6) is not divisible by 4", "not_cuda_graph_config"),
    "tokenizer": (
        frame("/opt/job/tokenizer.py", "build", "assert path", "AssertionError: vocab file not set"),
        "not_cuda_graph_config",
    ),
    "NaN without graphs": (
        frame(
            "/opt/site/megatron/core/distributed/param_and_grad_buffer.py",
            "start_grad_sync",
            "check()",
            "AssertionError: found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective",
        ),
        "not_cuda_graph_nan",
    ),
    "device assert": ("RuntimeError: CUDA error: device-side assert triggered", "not_cuda_graph_device_assert"),
    "extension build": ("RuntimeError: Error building extension 'fused_kernels'", "not_cuda_graph_build_error"),
    "autograd graph": (
        HEAD
        + "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed).",
        "not_cuda_graph_autograd",
    ),
    "worker killed": (
        "RuntimeError: DataLoader worker (pid 9382) is killed by signal: Killed. ",
        "not_cuda_graph_host_oom",
    ),
    "node out of memory": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
        "not_cuda_graph_host_oom",
    ),
    "stray capture status": (
        'RuntimeError: false INTERNAL ASSERT FAILED at "x.h":73. Unknown CUDA graph CaptureStatus21852',
        "async_cuda_error_misattributed",
    ),
    "no attention backend": (
        "ValueError: No dot product attention backend is available for the provided inputs. Please run with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 to find out the reasons for disabling all backends.",
        "packed_sequence_attention_backend_missing",
    ),
    "plain bug": (
        frame("/opt/job/metrics.py", "log", "self.f.write(x)", "TypeError: write() argument must be str, not float"),
        "not_cuda_graph_other",
    ),
    "plain bug while graphs replay": (
        "INFO:megatron.core.full_cuda_graph:CUDA graph capture done for training!!!\n"
        + frame("/opt/job/metrics.py", "log", "self.f.write(x)", "TypeError: write() argument must be str, not float"),
        "not_cuda_graph_other",
    ),
    "captured output of a command": (
        frame(
            "/opt/job/util.py",
            "run",
            "subprocess.run(cmd, capture_output=True)",
            "subprocess.CalledProcessError: Command 'ls' returned non-zero exit status 2.",
        ),
        "not_cuda_graph_other",
    ),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_failure_is_not_a_graph_failure(name: str) -> None:
    text, mode = ORDINARY[name]
    diagnosis = diagnose_error(text)
    assert diagnosis.verdict == "not_cuda_graph"
    assert diagnosis.matches[0].failure_mode == mode
    assert diagnosis.matches[0].looks_like or mode == "packed_sequence_attention_backend_missing"


@pytest.mark.parametrize(
    "text",
    ["", "it crashed", "RuntimeError", "CUDA error", "my training is slow", "loss is NaN", "how do I enable cuda graphs?",
     "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2345 got signal: 15",
     "RuntimeError: CUDA error: an illegal memory access was encountered"],
)  # fmt: skip
def test_too_little_is_unknown_and_asks_for_more(text: str) -> None:
    diagnosis = diagnose_error(text)
    assert diagnosis.verdict == "unknown"
    assert diagnosis.collect


def test_a_remark_never_outweighs_the_exception_of_the_same_log() -> None:
    text = (
        "WARNING:megatron.core.full_cuda_graph:torch.autograd.graph.set_override_stale_capture_stream is not available in this "
        "PyTorch version; CUDA graph capture may fail if autograd nodes hold stale references to non-capturing streams. "
        "Upgrade to a PyTorch build that includes pytorch/pytorch#180090.\n"
        + frame("/opt/job/data.py", "__next__", "raise", "ValueError: sample 6 is short")
    )
    assert diagnose_error(text).matches[0].failure_mode == "not_cuda_graph_data_error"


def test_a_deprecation_warning_is_not_a_failure() -> None:
    diagnosis = diagnose_error("UserWarning: enable_cuda_graph is deprecated, use cuda_graph_impl=local instead.")
    assert (diagnosis.verdict, diagnosis.matches[0].failure_mode) == ("unknown", "deprecated_graph_option")
