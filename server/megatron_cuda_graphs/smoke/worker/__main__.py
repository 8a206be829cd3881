"""`python -m megatron_cuda_graphs.smoke.worker --job FILE`: one rank of a smoke run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from .channel import Channel, rank_of, world_of
from .guard import die_with_parent

VERSIONS = (
    "torch", "transformer-engine", "transformer_engine_torch", "megatron-core", "megatron-bridge", "triton",
    "mamba-ssm",
)  # fmt: skip
IMPORTS = {"torch": ("torch",), "megatron": ("torch", "transformer_engine.pytorch", "megatron.core")}
NAMES = {"transformer_engine.pytorch": "transformer_engine"}


def versions() -> dict[str, str]:
    """Installed versions from package metadata, and Python's own."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name.replace("_", "-")] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def chain_of(exc: BaseException) -> list[dict[str, str]]:
    """The exception and what it hides, outermost first; the last is the root.

    `torch.cuda.graph` ends a failed capture by raising another error from its exit, and some code raises
    `from None`: the context is followed either way.
    """
    chain: list[dict[str, str]] = []
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen and len(chain) < 20:
        seen.add(id(link))
        frames = traceback.extract_tb(link.__traceback__)
        last = frames[-1] if frames else None
        where = f"{last.filename}:{last.lineno} in {last.name}: {last.line}" if last else ""
        kind = type(link)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        chain.append({"type": name, "message": str(link)[:4000], "where": where})
        link = link.__cause__ or link.__context__
    return chain


def main(argv: list[str] | None = None) -> int:
    """Say hello, import, wait for the turn, run, tell the result. Exit status 0, or 1 after a failure was told."""
    args = argparse.ArgumentParser()
    args.add_argument("--job", required=True)
    args.add_argument("--parent", type=int, default=None)
    given = args.parse_args(argv)
    die_with_parent(given.parent)
    job = json.loads(Path(given.job).read_text("utf-8"))
    rank = rank_of()
    channel = Channel(os.environ.get("MCG_SMOKE_CHANNEL") or f"dir:{job['folder']}", rank)
    channel.send("hello", versions=versions(), pid=os.getpid(), world=world_of(), host=platform.node())
    try:
        return work(job, channel)
    except BaseException as exc:
        text = "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))
        # As PyTorch marks the tracebacks of distributed programs, so that a shared log tells whose it is.
        mark = f"[rank{rank}]: " if world_of() > 1 else ""
        sys.stderr.write("".join(f"{mark}{line}" for line in text.splitlines(keepends=True)))
        sys.stderr.flush()
        channel.send("failure", phase=channel.phase, chain=chain_of(exc), traceback=text[-20000:])
        # Destructors may wait for a GPU that won't answer, and process groups for live graphs: not run.
        os._exit(1)


def work(job: dict[str, Any], channel: Channel) -> int:
    """Everything after hello."""
    start = time.monotonic()
    channel.progress("import", 0.05)
    kind = "torch" if job["tier"] == "torch" else "megatron"
    lacking = []
    for name in IMPORTS[kind]:
        try:
            import_module(name)
        except ModuleNotFoundError as exc:
            # A package that is there but lacks one of its own needs is a failure to show, not a missing package.
            if exc.name is None or not name.startswith(exc.name):
                raise
            lacking.append(NAMES.get(name, name))
    if lacking:
        channel.send("missing", packages=lacking)
        return 0
    session = import_module(".session", __package__)
    session.prepare(job)
    channel.send("ready", import_s=round(time.monotonic() - start, 3))
    channel.phase = "queue"
    go = Path(job["folder"]) / "go"
    while not go.exists():
        time.sleep(0.02)
    result = session.run(job, channel)
    channel.progress("done", 1.0)
    channel.send("result", **result)
    sys.stdout.flush()
    # Graphs and groups were taken down in order by the session; the interpreter's own order is not needed.
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
