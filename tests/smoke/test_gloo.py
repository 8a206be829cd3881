"""Eight real processes over gloo: what of the distributed run needs no GPU. Skipped where torch is not installed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

from megatron_cuda_graphs.smoke import process
from megatron_cuda_graphs.smoke.run import run_async

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
WORKER = [sys.executable, str(Path(__file__).with_name("gloo_worker.py"))]


@pytest.fixture
def run(fake_gpus, tmp_path, monkeypatch):
    fake_gpus(*((i, 140000) for i in range(8)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def go(**request):
        asked = {"tier": "torch", "time_limit_s": 120, **request}
        return asyncio.run(run_async(asked, worker=WORKER, queue_folder=tmp_path / "q"))

    return go


@pytest.mark.parametrize("launcher", ["local", "torchrun"])
def test_eight_ranks_meet_and_are_gathered_on_rank_0(run, launcher):
    report = run(nproc=8, launcher=launcher)
    assert report.status == "captured", report.verdict
    assert [r.rank for r in report.ranks] == list(range(8))
    assert report.left_behind == ()


@pytest.mark.parametrize("launcher", ["local", "torchrun"])
def test_a_rank_that_fails_is_named_and_the_waiting_ones_end(run, launcher):
    start = time.monotonic()
    report = run(nproc=8, launcher=launcher, inject="rank_fails")
    assert report.status == "failed"
    assert report.failure.rank == 7
    assert report.failure.root.message == "this rank was told to fail before capture"
    assert report.failure.kind == "exception"
    assert report.left_behind == ()
    assert process.survivors(report.id) == ()
    assert time.monotonic() - start < 90


@pytest.mark.parametrize("launcher", ["local", "torchrun"])
def test_a_rank_that_is_killed_is_named_though_it_said_nothing(run, launcher):
    report = run(nproc=4, launcher=launcher, inject="rank_killed")
    assert (report.status, report.failure.kind) == ("failed", "signal")
    assert (report.failure.rank, report.failure.signal) == (3, "SIGKILL")
    assert report.left_behind == ()


def test_torchruns_ranks_die_with_a_killed_parent(fake_gpus, tmp_path):
    """The launcher starts its ranks in sessions of their own; the guard reaches them all the same."""
    import signal
    import subprocess

    from .test_run import carrying

    fake_gpus(*((i, 140000) for i in range(4)))
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nsys.path[:0] = sys.argv[3:]\n"
        "from megatron_cuda_graphs.smoke.run import run_async\n"
        "def tell(p): print(p.phase, flush=True)\n"
        "asyncio.run(run_async({'tier': 'torch', 'nproc': 4, 'launcher': 'torchrun', 'inject': 'hang'}, tell,\n"
        "                      worker=[sys.executable, sys.argv[1]], queue_folder=Path(sys.argv[2])))\n"
    )
    mark = f"SLURM_MARK={tmp_path}"
    argv = [sys.executable, "-c", code, str(Path(__file__).with_name("standin.py")), str(tmp_path), *sys.path]
    parent = subprocess.Popen(argv, env={**os.environ, "SLURM_MARK": str(tmp_path)}, stdout=subprocess.PIPE, text=True)
    try:
        for line in parent.stdout:
            if line.strip() == "capture":
                break
        assert len(carrying(mark)) >= 5
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    deadline = time.monotonic() + 10
    while (left := carrying(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
