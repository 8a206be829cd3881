"""run_capture_smoke: plan, wait for the GPU, watch the worker, report. Never imports torch."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import EnvironmentLacks, InputError
from . import assess, gpu, packages, plan, presets, process, record, workload
from .model import Durations, Gpu, Progress, SmokeReport, SmokeRequest, SweepRow, Tier, Workload

__all__ = ["parse", "run_async", "run_capture_smoke"]

SEATS = 8  # workers that import or wait at once, for one GPU
OnProgress = Callable[[Progress], Any]


class _Refused(Exception):
    """The GPU can't be had: too little memory free, or the queue too long."""


def parse(request: SmokeRequest | Mapping[str, Any] | None) -> SmokeRequest:
    """A request from a mapping. Raises InputError that names the field and what is wrong with it."""
    from pydantic import ValidationError

    if isinstance(request, SmokeRequest):
        return request
    try:
        return SmokeRequest.model_validate(dict(request or {}))
    except (ValidationError, TypeError, ValueError) as exc:
        if not isinstance(exc, ValidationError):
            raise InputError(f"The request is no mapping: {exc}.") from None
        first = exc.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(p) for p in first["loc"])
        raise InputError(
            f"The request's {where or 'fields'}: {first['msg']}.",
            hint=f"Fields: {', '.join(SmokeRequest.model_fields)}." if first["type"] == "extra_forbidden" else "",
        ) from None


def run_capture_smoke(
    request: SmokeRequest | Mapping[str, Any] | None = None,
    *,
    on_progress: OnProgress | None = None,
    python: str | None = None,
    records: Path | None = None,
) -> SmokeReport:
    """Capture and replay a real CUDA graph on this machine's GPU and report what happened.

    Args:
        request: what to run (see SmokeRequest); None is the tiny preset on what is installed.
        on_progress: called with a Progress now and then.
        python: the interpreter that has torch; default $MEGATRON_CUDA_GRAPHS_PYTHON, else this one.
        records: folder for the record; default `record.folder()`.

    Returns the report, whatever happened on the GPU; a missing GPU or package is its `status`. Raises InputError
    for a request that can't be understood. Blocks; KeyboardInterrupt ends the worker and passes through.
    """
    asked = parse(request)

    def main() -> SmokeReport:
        return asyncio.run(run_async(asked, on_progress, python=python, records=records))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return main()
    # Called from within an event loop: one of its own, in a thread that lives as long as the run.
    box: list[Any] = []

    def work() -> None:
        try:
            box.append(main())
        except BaseException as exc:
            box.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]  # type: ignore[no-any-return]


async def run_async(
    request: SmokeRequest | Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    *,
    cancel: asyncio.Event | None = None,
    python: str | None = None,
    records: Path | None = None,
    worker: list[str] | None = None,
    queue_folder: Path | None = None,
) -> SmokeReport:
    """The same for an event loop. `cancel` ends the run with status `cancelled`; cancelling the task ends it too.

    `worker` replaces the worker's command line (the tests' stand-in); such a run is no capture and is not recorded.
    """
    asked = parse(request)
    job = _Job(asked, on_progress, python, records, worker, queue_folder)
    if cancel is None:
        return await job.run()
    task, stop = asyncio.ensure_future(job.run()), asyncio.ensure_future(cancel.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return job.keep(job.report("cancelled", "Cancelled; the worker was ended."))
    finally:
        stop.cancel()
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class _Job:
    """One call: its request and what is known so far."""

    def __init__(
        self,
        request: SmokeRequest,
        on_progress: OnProgress | None,
        python: str | None,
        records: Path | None,
        worker: list[str] | None,
        queue_folder: Path | None,
    ) -> None:
        self.request, self.on_progress, self.python = request, on_progress, python
        self.records, self.worker, self.queue_folder = records, worker, queue_folder
        self.start = time.monotonic()
        now = datetime.now(timezone.utc)
        self.date = now.isoformat(timespec="seconds")
        self.id = f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}"
        self.tier: Tier | None = None
        self.modules: tuple[str, ...] = ()
        self.work: Workload | None = None
        self.gpus: list[Gpu] = []
        self.pending: set[asyncio.Task[Any]] = set()

    def report(self, status: Any, verdict: str, **more: Any) -> SmokeReport:
        """A report of this job as far as it got."""
        spent = more.pop("durations", Durations())
        return SmokeReport(
            id=self.id,
            date=self.date,
            status=status,
            verdict=verdict,
            request=self.request,
            tier=self.tier,
            modules=self.modules,
            workload=self.work,
            gpu=self.gpus[0] if self.gpus else None,
            durations=spent.model_copy(update={"total_s": round(time.monotonic() - self.start, 3)}),
            **more,
        )

    def keep(self, report: SmokeReport) -> SmokeReport:
        """Write the record, unless a stand-in made it."""
        return report if self.worker else record.save(report, self.records)

    def tell(self, phase: str, fraction: float, message: str = "") -> None:
        if self.on_progress is None:
            return
        answer = self.on_progress(Progress(phase=phase, fraction=min(max(fraction, 0.0), 1.0), message=message))
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(answer)
            self.pending.add(task)
            task.add_done_callback(self.pending.discard)

    async def run(self) -> SmokeReport:
        asked = self.request
        self.tell("plan", 0.0)
        seen = gpu.visible(await asyncio.to_thread(gpu.gpus))
        wanted = asked.nproc if asked.launcher != "srun" else min(asked.nproc, max(len(seen), 1))
        self.gpus = gpu.choose(seen, asked.gpu, wanted)
        budget = None
        if self.gpus and asked.gpu_memory_limit_gib is None:
            budget = max(g.memory_total for g in self.gpus) / 1024
        elif asked.gpu_memory_limit_gib is not None:
            budget = asked.gpu_memory_limit_gib
        self.work, graphs = workload.resolve(asked, budget)
        best = packages.best_tier() if self.worker is None else "megatron-te"
        self.tier = plan.tier_of(asked, graphs, best)
        sets = presets.sensible_modules(self.work.fields, self.tier, self.work.name)
        own = graphs.get("modules") if self.tier != "torch" else None
        own = None if own is not None and "full_iteration" in own else own
        self.modules = asked.modules if asked.modules is not None else tuple(own) if own is not None else sets[0]
        lacks = [] if self.worker or self._foreign() else list(packages.missing(self.tier))
        if asked.launcher == "srun" and shutil.which("srun") is None:
            lacks.append("srun is not on PATH: run this inside a Slurm allocation")
        if not self.gpus:
            why = f"There is no GPU {asked.gpu} here" if asked.gpu is not None and seen else "No NVIDIA GPU was found"
            need = "an NVIDIA GPU with its driver (nvidia-smi must answer)"
            return self.keep(self.report("no_gpu", f"{why}: nothing was run.", lacks=(need, *lacks)))
        if len(self.gpus) < wanted:
            need = f"{wanted} GPUs on this machine; {len(self.gpus)} are there"
            return self.keep(self.report("no_gpu", "Too few GPUs: nothing was run.", lacks=(need, *lacks)))
        if lacks:
            names = ", ".join(entry.partition(" ")[0] for entry in lacks)
            return self.keep(
                self.report("missing_dependency", f"Not installed: {names}. Nothing was run.", lacks=tuple(lacks))
            )
        if asked.sweep:
            return self.keep(await self._sweep(sets))
        done = [await self._once(i) for i in range(asked.processes)]
        return self.keep(assess.combine(done))

    def _foreign(self) -> bool:
        import os
        import sys

        exe = self.python or os.environ.get("MEGATRON_CUDA_GRAPHS_PYTHON")
        return exe is not None and exe != sys.executable

    async def _sweep(self, sets: list[tuple[str, ...]]) -> SmokeReport:
        rows: list[SweepRow] = []
        done: list[SmokeReport] = []
        for i, modules in enumerate(sets):
            self.modules = modules
            self.tell("sweep", i / len(sets), f"{self.tier}: {', '.join(modules) or 'whole layer'}")
            report = await self._once(0)
            done.append(report)
            rows.append(assess.row(report))
        return assess.swept(done, rows)

    async def _once(self, index: int) -> SmokeReport:
        """One worker, from its start to its end."""
        assert self.tier is not None
        assert self.work is not None
        asked, run_id = self.request, f"{self.id}-{uuid.uuid4().hex[:8]}"
        uuids = [g.uuid for g in self.gpus]
        queue = gpu.Queue(uuids, self.queue_folder)
        try:
            folder = Path(tempfile.mkdtemp(prefix="mcg-smoke-"))
        except OSError as exc:
            raise EnvironmentLacks(f"There is no room for a run's files: {exc.strerror}.", hint="Set TMPDIR.") from None
        queued = {"start": 0.0, "gpu": 0.0}
        outcome: process.Outcome | None = None
        status_of: dict[str, Any] = {}
        try:
            async with contextlib.AsyncExitStack() as stack:
                left = asked.queue_limit_s
                queued["start"] = await stack.enter_async_context(queue.seat(SEATS, left, self._waiting))
                launch = plan.prepare(
                    asked, self.tier, self.modules, self.work, run_id, folder, uuids,
                    python=self.python, worker=self.worker,
                )  # fmt: skip

                mine = await stack.enter_async_context(contextlib.AsyncExitStack())

                async def turn() -> float:
                    waited = await mine.enter_async_context(queue.turn(max(0.0, left - queued["start"]), self._waiting))
                    queued["gpu"] = waited
                    await self._enough()
                    return waited

                async def released() -> None:
                    await mine.aclose()

                outcome = await process.follow(
                    launch.commands,
                    launch.env,
                    run_id,
                    folder,
                    process.Limits(asked.time_limit_s, asked.host_memory_limit_gib),
                    turn,
                    self._event,
                    ranks=launch.ranks,
                    ranked_env=lambda rank: launch.per_rank.get(rank, {}),
                    released=released,
                )
        except TimeoutError as exc:
            status_of = {"status": "refused", "verdict": f"Refused: {exc}; others were before.",
                         "lacks": ("a GPU that comes free within queue_limit_s",)}  # fmt: skip
        except (FileNotFoundError, PermissionError) as exc:
            raise EnvironmentLacks(f"{exc.filename} can't be started: {exc.strerror}.") from None
        except _Refused as exc:
            status_of = {"status": "refused", "verdict": f"Refused: {exc}", "lacks": (str(exc),)}
        finally:
            process.sweep(run_id)
            shutil.rmtree(folder, ignore_errors=True)
        if outcome is None:
            return self.report(**status_of, durations=Durations(queued_s=sum(queued.values())))
        self.tell("report", 1.0)
        return assess.report(self, outcome, sum(queued.values()))

    async def _enough(self) -> None:
        """Refuse when the GPU holds too little free memory for this workload, now that it is our turn."""
        assert self.work is not None
        now = {g.uuid: g for g in await asyncio.to_thread(gpu.gpus)}
        self.gpus = [now.get(g.uuid, g) for g in self.gpus]
        need = 1.0 + workload.gib_needed(self.work.fields, workload.split(self.request))
        need = min(need, self.request.gpu_memory_limit_gib or need)
        for g in self.gpus:
            if g.memory_free / 1024 < need:
                raise _Refused(f"GPU {g.index} has {g.memory_free / 1024:.1f} GiB free; this needs about {need:.1f}.")

    def _waiting(self, seconds: float) -> None:
        if int(seconds * 10) % 20 == 0:
            self.tell("queue", 0.02, f"waiting for the GPU, {seconds:.0f} s")

    def _event(self, message: dict[str, Any]) -> None:
        if message["type"] == "progress" and message.get("rank", 0) == 0:
            with contextlib.suppress(TypeError, ValueError):
                self.tell(
                    str(message.get("phase", "")), float(message.get("fraction", 0)), str(message.get("message", ""))
                )
