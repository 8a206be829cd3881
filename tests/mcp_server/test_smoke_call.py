"""run_capture_smoke over the protocol, with a stand-in for the worker: progress grows, cancelling ends the worker."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

import megatron_cuda_graphs.smoke.run as smoke_run
from megatron_cuda_graphs.mcp_server import build

pytestmark = pytest.mark.anyio
STANDIN = [sys.executable, str(Path(__file__).parents[1] / "smoke/standin.py")]
SMI = "#!/bin/sh\ncase \"$1\" in --query-gpu*) echo '0, GPU-0, Fake H200, 143771, 140000, 580.1, 9.0' ;; esac\n"


@pytest.fixture
def injected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A made-up GPU, and the stand-in with what is injected into its request."""
    exe = tmp_path / "nvidia-smi"
    exe.write_text(SMI)
    exe.chmod(exe.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    more: dict[str, Any] = {"tier": "torch"}
    real = smoke_run.run_async

    async def standing_in(request: dict[str, Any], tell: Any) -> Any:
        where = {"records": tmp_path / "records", "queue_folder": tmp_path / "queue"}
        return await real({**request, **more}, tell, worker=STANDIN, **where)

    monkeypatch.setattr(smoke_run, "run_async", standing_in)
    return more


async def test_progress_grows_and_the_answer_has_the_figures(injected: dict[str, Any]) -> None:
    seen: list[float] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with Client(build()) as client:
        result = await client.call_tool("run_capture_smoke", {"preset": "tiny"}, progress_callback=tell)
    assert not result.is_error, result.content
    assert result.structured_content["status"] == "captured"
    assert "gain" in result.content[0].text
    assert len(seen) > 2
    assert seen == sorted(set(seen))


async def test_cancelling_the_call_leaves_no_worker(injected: dict[str, Any]) -> None:
    injected["inject"] = "hang"
    async with Client(build()) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "run_capture_smoke", {"preset": "tiny"})
        with anyio.fail_after(20):
            while not _workers():
                await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                while _workers():
                    await anyio.sleep(0.1)
    assert _workers() == []


def _workers() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"smoke/standin.py" in line and (entry / "status").read_text().split("PPid:\t")[1].split()[0] == str(
            os.getpid()
        ):
            found.append(entry.name)
    return found
