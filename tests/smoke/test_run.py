"""The parent side, for real, against a worker process that speaks the protocol and is no capture."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from megatron_cuda_graphs.errors import EnvironmentLacks, InputError
from megatron_cuda_graphs.smoke import process
from megatron_cuda_graphs.smoke.run import parse, run_async, run_capture_smoke

from .conftest import STANDIN


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def carrying(mark: str) -> list[int]:
    """Live processes with `mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes() and alive(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_captured_run_reports_its_figures(fake_gpus, smoke):
    seen = []
    report = smoke(seen.append)
    assert report.status == "captured"
    assert report.exit_code == 0
    assert report.measures.gain.resolved
    assert report.measures.gain.value == pytest.approx(4.03, abs=0.1)
    assert report.measures.parity.verdict == "bit_equal"
    assert report.measures.bound == pytest.approx(10.145 / 2.4, rel=1e-3)
    assert report.gpu.uuid == "GPU-00000000"
    assert "4.0" in report.verdict
    assert "bit-equal" in report.verdict
    assert {p.phase for p in seen} >= {"plan", "capture", "report"}
    assert report.left_behind == ()


def test_a_stand_in_is_never_recorded(fake_gpus, smoke, tmp_path):
    assert smoke().record is None
    assert not (tmp_path / "records").exists()


def test_captured_but_not_worth_it_is_said(fake_gpus, smoke):
    report = smoke(inject="no_gain")
    assert report.status == "captured"
    assert report.exit_code == 0
    assert report.verdict.startswith("Captured, but not worth it")


def test_a_wrong_result_is_a_failure(fake_gpus, smoke):
    report = smoke(inject="wrong")
    assert (report.status, report.failure.kind, report.exit_code) == ("failed", "wrong_result", 1)
    assert report.measures.parity.first_wrong_step == 4
    assert "wrong from step 4" in report.verdict


def test_a_wrong_result_is_named_even_when_it_ends_in_a_crash(fake_gpus, smoke):
    report = smoke(inject="wrong_then_crash")
    assert (report.status, report.failure.kind, report.failure.phase) == ("failed", "wrong_result", "parity")
    assert report.failure.signal == "SIGKILL"
    assert report.parity.first_wrong_step == 4
    assert report.measures is None


def test_an_exception_comes_back_with_its_root_unmasked(fake_gpus, smoke):
    report = smoke(inject="raises")
    assert report.status == "failed"
    assert "cudaErrorStreamCaptureUnsupported" in report.failure.root.message
    assert "x.item()" in report.failure.root.where
    assert report.failure.phase == "capture"
    assert "not permitted when stream is capturing" in report.verdict


@pytest.mark.parametrize(("how", "kind", "name"), [("segv", "signal", "SIGSEGV"), ("exit", "exit", None)])
def test_a_worker_that_dies_is_a_structured_failure(fake_gpus, smoke, how, kind, name):
    report = smoke(inject=how)
    assert (report.status, report.failure.kind, report.failure.signal) == ("failed", kind, name)
    assert "a line of output" in report.failure.log_tail
    assert report.failure.phase == "capture"


def test_a_worker_that_dies_at_once_is_reported(fake_gpus, smoke):
    report = smoke(inject="dies_at_once")
    assert (report.status, report.failure.exit_status) == ("failed", 9)


def test_a_hang_ends_at_the_time_limit(fake_gpus, smoke):
    start = time.monotonic()
    report = smoke(inject="hang", time_limit_s=1.0)
    assert report.status == "timeout"
    assert time.monotonic() - start < 8
    assert "phase capture" in report.verdict


def test_a_stopped_worker_ends_too(fake_gpus, smoke):
    report = smoke(inject="stopped", time_limit_s=1.0)
    assert report.status == "timeout"
    assert report.left_behind == ()


def test_too_much_host_memory_ends_the_worker(fake_gpus, smoke):
    report = smoke(inject="memory", host_memory_limit_gib=0.2, time_limit_s=30)
    assert (report.status, report.failure.kind) == ("failed", "memory_limit")
    assert "0.2 allowed" in report.failure.log_tail


def test_grandchildren_in_their_own_session_go_too(fake_gpus, smoke, tmp_path, monkeypatch):
    report = smoke(inject="grandchild", time_limit_s=1.5)
    assert report.status == "timeout"
    assert report.left_behind == ()
    assert carrying(f"{process.RUN_VARIABLE}={report.id}") == []


def test_garbage_on_the_pipe_is_skipped(fake_gpus, smoke):
    assert smoke(inject="garbage").status == "captured"


def test_figures_that_make_no_sense_are_a_failure(fake_gpus, smoke):
    report = smoke(inject="broken_result")
    assert (report.status, report.failure.kind) == ("failed", "protocol")


def test_a_package_the_worker_lacks_says_what_to_install(fake_gpus, smoke):
    report = smoke(inject="lacking")
    assert (report.status, report.exit_code) == ("missing_dependency", 3)
    assert "pip install" in report.lacks[0]


def test_no_gpu_is_said_at_once(no_gpu):
    start = time.monotonic()
    report = run_capture_smoke({}, records=no_gpu)
    assert (report.status, report.exit_code) == ("no_gpu", 3)
    assert "NVIDIA GPU" in report.lacks[0]
    assert time.monotonic() - start < 2
    assert Path(report.record).is_file()


def test_missing_packages_are_said_before_anything_starts(fake_gpus, tmp_path, monkeypatch):
    monkeypatch.setattr("megatron_cuda_graphs.smoke.packages._there", lambda name: False)
    report = run_capture_smoke({"tier": "megatron-te"}, records=tmp_path)
    assert (report.status, report.exit_code) == ("missing_dependency", 3)
    assert len(report.lacks) == 3


def test_too_little_free_memory_is_refused_politely(fake_gpus, smoke):
    fake_gpus((0, 500))
    report = smoke()
    assert (report.status, report.exit_code) == ("refused", 3)
    assert "0.5 GiB free" in report.verdict


def test_the_emptiest_gpu_is_taken_else_the_one_asked_for(fake_gpus, smoke):
    fake_gpus((0, 9000), (1, 100000), (2, 50000))
    assert smoke().gpu.index == 1
    assert smoke(gpu=2).gpu.index == 2
    report = smoke(gpu=7)
    assert (report.status, report.exit_code) == ("no_gpu", 3)


def test_cuda_visible_devices_is_respected(fake_gpus, smoke, monkeypatch):
    fake_gpus((0, 9000), (1, 100000), (2, 50000))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert smoke().gpu.index == 2


def test_twenty_requests_queue_and_all_answer(fake_gpus, tmp_path):
    async def main():
        return await asyncio.gather(
            *(
                run_async({"tier": "torch", "inject": "slow"}, worker=STANDIN, queue_folder=tmp_path / "q")
                for _ in range(20)
            )
        )

    reports = asyncio.run(main())
    assert [r.status for r in reports] == ["captured"] * 20
    assert max(r.durations.queued_s for r in reports) > 4 * 0.4  # one after the other


def test_a_long_queue_is_refused_at_its_limit(fake_gpus, tmp_path):
    async def main():
        first = asyncio.ensure_future(
            run_async({"tier": "torch", "inject": "hang", "time_limit_s": 3}, worker=STANDIN, queue_folder=tmp_path)
        )
        await asyncio.sleep(1.0)
        second = await run_async({"tier": "torch", "queue_limit_s": 0.3}, worker=STANDIN, queue_folder=tmp_path)
        await first
        return second

    report = asyncio.run(main())
    assert report.status == "refused"
    assert "others were before" in report.verdict


def test_cancelling_ends_the_worker(fake_gpus, tmp_path):
    async def main():
        cancel, started = asyncio.Event(), asyncio.Event()

        def progress(p):
            if p.phase == "capture":
                started.set()

        task = asyncio.ensure_future(
            run_async(
                {"tier": "torch", "inject": "hang"}, progress, cancel=cancel, worker=STANDIN, queue_folder=tmp_path
            )
        )
        await asyncio.wait_for(started.wait(), 20)
        cancel.set()
        return await task

    report = asyncio.run(main())
    assert (report.status, report.exit_code) == ("cancelled", 1)
    assert carrying(f"{process.RUN_VARIABLE}={report.id}") == []


def test_cancelling_the_task_ends_the_worker(fake_gpus, tmp_path):
    async def main():
        started = asyncio.Event()

        async def progress(p):
            if p.phase == "capture":
                started.set()

        task = asyncio.ensure_future(
            run_async({"tier": "torch", "inject": "hang"}, progress, worker=STANDIN, queue_folder=tmp_path)
        )
        await asyncio.wait_for(started.wait(), 20)
        mine = carrying(process.RUN_VARIABLE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return mine

    assert not [p for p in asyncio.run(main()) if alive(p) and b"standin" in Path(f"/proc/{p}/cmdline").read_bytes()]


CLIENT = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
import asyncio
from megatron_cuda_graphs.smoke.run import run_async
def tell(p):
    print(p.phase, flush=True)
asyncio.run(run_async({"tier": "torch", "inject": sys.argv[3]}, tell, worker=[sys.executable, sys.argv[1]],
                      queue_folder=Path(sys.argv[2])))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("phase", ["queue", "capture"])
def test_killing_the_parent_leaves_nothing(fake_gpus, tmp_path, number, phase):
    mark = f"SLURM_MARK={tmp_path}"  # passes the allow-list, so the worker carries it
    env = {**os.environ, "SLURM_MARK": str(tmp_path)}
    argv = [sys.executable, "-c", CLIENT, STANDIN[1], str(tmp_path), "hang", *sys.path]
    # A job that a shell started in the background ignores Ctrl-C, and so would everything that it starts.
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    parent = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=heeded)
    try:
        for line in parent.stdout:
            if line.strip() == "capture" or phase == "queue":
                break
        if phase == "queue":
            time.sleep(0.15)  # somewhere between start and hello
        parent.send_signal(number)
        parent.wait(30)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    deadline = time.monotonic() + 10
    while (left := carrying(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_killing_the_worker_is_reported(fake_gpus, tmp_path):
    async def main():
        def progress(p):
            if p.phase == "capture":
                for pid in carrying(process.RUN_VARIABLE):
                    if (
                        b"standin" in Path(f"/proc/{pid}/cmdline").read_bytes()
                        and str(tmp_path).encode() in Path(f"/proc/{pid}/environ").read_bytes()
                    ):
                        os.kill(pid, signal.SIGKILL)

        os.environ["SLURM_MARK"] = str(tmp_path)
        try:
            return await run_async({"tier": "torch", "inject": "hang"}, progress, worker=STANDIN, queue_folder=tmp_path)
        finally:
            del os.environ["SLURM_MARK"]

    report = asyncio.run(main())
    assert (report.status, report.failure.signal) == ("failed", "SIGKILL")


def test_it_can_be_called_inside_a_running_loop(no_gpu):
    async def main():
        return run_capture_smoke({}, records=no_gpu)

    assert asyncio.run(main()).status == "no_gpu"


@pytest.mark.parametrize(
    "request_",
    [
        {"nonsense": 1},
        {"preset": "no-such"},
        {"preset": "tiny", "config": "x: 1"},
        {"env": {"LD_PRELOAD": "x"}},
        {"env": {"TORCH_LIBRARY_PATH": "x"}},
        {"env": {"NCCL_DEBUG_FILE": "x"}},
        {"steps": 0},
        {"steps": "many"},
        {"overrides": {"hidden_size": "big"}},
        {"overrides": {"hidden_size": -1}},
        {"overrides": {"hidden_size": 10**9}},
        {"overrides": {"nope": 1}},
        {"nproc": 3, "tp": 2},
        {"vp": 2},
        [1, 2],
        "tiny",
    ],
)
def test_a_bad_request_is_an_input_error(fake_gpus, request_, tmp_path):
    with pytest.raises(InputError):
        run_capture_smoke(request_, records=tmp_path)


def test_an_interpreter_that_is_not_there_is_said(fake_gpus, tmp_path):
    with pytest.raises(EnvironmentLacks, match="no-such-python can't be started"):
        run_capture_smoke({"tier": "torch"}, python=str(tmp_path / "no-such-python"), records=tmp_path)


def test_srun_outside_slurm_is_said(fake_gpus, smoke):
    report = smoke(launcher="srun")
    assert (report.status, report.exit_code) == ("missing_dependency", 3)
    assert "Slurm" in report.lacks[0]


def test_a_full_disk_is_said(fake_gpus, smoke, monkeypatch):
    def full(prefix):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("megatron_cuda_graphs.smoke.run.tempfile.mkdtemp", full)
    with pytest.raises(EnvironmentLacks, match="No space left"):
        smoke()


def test_lock_files_never_go_to_somebody_elses_folder(tmp_path, monkeypatch):
    from megatron_cuda_graphs.smoke import gpu

    taken = tmp_path / "shared" / f"megatron-cuda-graphs-{os.getuid()}"
    taken.parent.mkdir()
    taken.symlink_to(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(taken.parent))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(taken.parent))
    assert gpu._own_folder() == tmp_path / "home/.cache" / taken.name


def test_the_request_reads_back_as_itself():
    asked = parse({"tier": "torch", "modules": ["step"], "overrides": {"num_layers": 2}})
    assert parse(asked.model_dump(mode="json")) == asked


def test_a_sweep_ranks_what_it_tried(fake_gpus, smoke):
    report = smoke(sweep=True)
    assert [set(r.modules) for r in report.sweep] == [{"step"}, {"fwd_bwd"}, {"layers"}]
    assert report.verdict.startswith("3 of 3 module sets captured")


def test_several_processes_give_the_gains_range(fake_gpus, smoke):
    report = smoke(processes=3)
    assert len(report.processes) == 3
    assert "over 3 processes" in report.notes[-1]


def test_the_server_side_imports_no_torch():
    code = (
        "import sys, megatron_cuda_graphs.smoke.run, megatron_cuda_graphs.smoke.assess\n"
        "assert not {'torch', 'megatron', 'transformer_engine', 'mcp'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
