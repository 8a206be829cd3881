from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

STANDIN = [sys.executable, str(Path(__file__).with_name("standin.py"))]


@pytest.fixture
def fake_gpus(tmp_path, monkeypatch):
    """An nvidia-smi that tells of made-up GPUs; call it with (index, free MiB) pairs."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(*gpus: tuple[int, int]) -> None:
        rows = "\n".join(f"{i}, GPU-{i:08d}, Fake H200, 143771, {free}, 580.1, 9.0" for i, free in gpus)
        exe = folder / "nvidia-smi"
        exe.write_text(f"#!/bin/sh\ncase \"$1\" in --query-gpu*) cat <<'E'\n{rows}\nE\n;; esac\n")
        exe.chmod(exe.stat().st_mode | stat.S_IXUSR)

    make((0, 140000))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make


@pytest.fixture
def no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def smoke(tmp_path):
    """Run a request against the stand-in, to the end."""
    import asyncio

    from megatron_cuda_graphs.smoke.run import run_async

    def run(on_progress=None, **request):
        return asyncio.run(
            run_async(
                {"tier": "torch", **request},
                on_progress,
                worker=STANDIN,
                records=tmp_path / "records",
                queue_folder=tmp_path / "queue",
            )
        )

    return run
