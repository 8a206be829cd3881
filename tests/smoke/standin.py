"""A stand-in for the worker: speaks its protocol with the real channel and guard, touches no GPU.

It is never a capture: `run_async(worker=...)` writes no record for it. `inject` says how it shall behave.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from megatron_cuda_graphs.smoke.worker.channel import Channel, rank_of, world_of
from megatron_cuda_graphs.smoke.worker.guard import die_with_parent


def result(eager: float = 10.0, replay: float = 2.5, wrong: bool = False) -> dict:
    n = 30
    same = {
        "losses_eager": [7.0] * 10,
        "losses_replay": [7.0] * 3 + [7.5] * 7 if wrong else [7.0] * 10,
        "counts_eager": [1] * 10,
        "counts_replay": [1] * 10,
        "norms_eager": [1.0] * 10,
        "norms_replay": [1.0] * 10,
        "updates_eager": [0.1] * 10,
        "updates_replay": [0.1] * 10,
        "gradient_distance": [0.0] * 10,
        "weights_equal": [not wrong] * 10,
        "noise": 0.0,
        "equal_at_capture": True,
    }
    side = {"busy_ms": 2.4, "fwd_bwd_busy_ms": 2.0, "kernels": 300}
    return {
        "samples": {
            "eager": {
                "step": [eager + 0.01 * i for i in range(n)],
                "fwd_bwd": [eager - 1] * n,
                "issued": [eager - 1] * n,
            },
            "replay": {"step": [replay + 0.001 * i for i in range(n)], "fwd_bwd": [replay - 0.4] * n},
        },
        "block": 5,
        "profile": {
            "eager": {**side, "launches": 400, "graph_launches": 0, "graph_launch_us": 0},
            "replay": {**side, "launches": 4, "graph_launches": 1, "graph_launch_us": 20},
        },
        "memory": {
            "resting_gib": 1.0,
            "graph_pools_gib": 0.1,
            "reserved_growth_gib": 0.12,
            "eager": {"allocated_peak_gib": 1.5, "reserved_peak_gib": 1.6},
            "replay": {"allocated_peak_gib": 1.4, "reserved_peak_gib": 1.7},
        },
        "capture_s": 0.2,
        "graphs": 1,
        "parity": same,
        "build_s": 0.1,
        "notes": ["stand-in"],
    }


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--job")
    args.add_argument("--parent", type=int)
    given = args.parse_args()
    die_with_parent(given.parent)
    job = json.loads(Path(given.job).read_text())
    rank, world = rank_of(), world_of()
    channel = Channel(os.environ.get("MCG_SMOKE_CHANNEL") or f"dir:{job['folder']}", rank, beat_s=0.2)
    channel.send("hello", versions={"torch": "stand-in"}, pid=os.getpid(), world=world, host="here")
    how = job["request"]["inject"] or "ok"
    if how == "lacking":
        channel.send("missing", packages=["transformer_engine"])
        return
    if how == "dies_at_once":
        os._exit(9)
    if how == "grandchild":
        # In a session of its own, as a launcher would start it.
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path(os.environ["STANDIN_NOTES"] if "STANDIN_NOTES" in os.environ else given.job + ".child").write_text(
            str(child.pid)
        )
    channel.send("ready", import_s=0.01)
    while not (Path(job["folder"]) / "go").exists():
        time.sleep(0.01)
    last = rank == world - 1
    channel.progress("capture", 0.4, "capturing")
    print(f"rank {rank}: a line of output", flush=True)
    if how == "garbage":
        os.write(channel._fd, b'not json\n[1,2]\n{"type": 7}\n\xff\xfe\n' + b"[" * 5000 + b"\n")
    if how == "segv" and last:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(0)
    if how == "exit" and last:
        os._exit(7)
    if how == "raises" and last:
        chain = [
            {"type": "torch.AcceleratorError", "message": "CUDA error: operation failed due to a previous error "
             "during capture\nSearch for `cudaErrorStreamCaptureInvalidated'", "where": "graphs.py:126 in capture_end"},
            {"type": "torch.AcceleratorError", "message": "CUDA error: operation not permitted when stream is "
             "capturing\nSearch for `cudaErrorStreamCaptureUnsupported'", "where": "model.py:7 in forward: x.item()"},
        ]  # fmt: skip
        channel.send("failure", phase="capture", chain=chain, traceback="")
        os._exit(1)
    if how in ("hang", "grandchild") or (how in ("raises", "segv", "exit") and world > 1):
        time.sleep(600)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "memory":
        hog = bytearray(os.urandom(1 << 20) * 400)
        time.sleep(600)
        del hog
    if how == "slow":
        time.sleep(0.4)
    if how in ("wrong_then_crash", "last_rank_wrong"):
        wrong = how == "wrong_then_crash" or last
        channel.send("parity", **result(wrong=wrong)["parity"])
    if how == "wrong_then_crash":
        os.kill(os.getpid(), signal.SIGKILL)
    done = result(wrong=how == "wrong", replay=9.9 if how == "no_gain" else 2.5)
    if how == "broken_result":
        del done["samples"]["eager"]
    if world > 1:
        done["ranks"] = [{"rank": r, "host": "here", "status": "captured", "graphs": 1} for r in range(world)]
    channel.send("result", **done)
    os._exit(0)


if __name__ == "__main__":
    main()
