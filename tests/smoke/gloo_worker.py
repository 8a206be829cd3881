"""An ordinary distributed program on the CPU: the real channel and guard, gloo, and one rank that may fail.

No capture: what is tested is that ranks meet, are gathered on rank 0, and that one rank's failure ends them all.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

from standin import result  # beside this file

from megatron_cuda_graphs.smoke.worker.__main__ import chain_of
from megatron_cuda_graphs.smoke.worker.channel import Channel, rank_of, world_of
from megatron_cuda_graphs.smoke.worker.guard import die_with_parent


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--job")
    args.add_argument("--parent", type=int)
    given = args.parse_args()
    die_with_parent(given.parent)
    job = json.loads(Path(given.job).read_text())
    rank, world = rank_of(), world_of()
    channel = Channel(os.environ.get("MCG_SMOKE_CHANNEL") or f"dir:{job['folder']}", rank)
    channel.send("hello", versions={"torch": "cpu"}, pid=os.getpid(), world=world, host="here")
    import torch.distributed as dist

    channel.send("ready", import_s=0.0)
    while not (Path(job["folder"]) / "go").exists():
        time.sleep(0.01)
    meet = os.environ.get("MCG_SMOKE_RENDEZVOUS")
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
    channel.progress("capture", 0.5)
    try:
        if job["request"]["inject"] == "rank_fails" and rank == world - 1:
            raise RuntimeError("this rank was told to fail before capture")
        if job["request"]["inject"] == "rank_killed" and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = [None] * world
        dist.all_gather_object(rows, {"rank": rank, "status": "captured", "graphs": 1, "host": "here"})
    except BaseException as exc:
        channel.send("failure", phase="capture", chain=chain_of(exc), traceback="")
        os._exit(1)
    channel.send("result", **{**result(), "ranks": rows})
    os._exit(0)


if __name__ == "__main__":
    main()
