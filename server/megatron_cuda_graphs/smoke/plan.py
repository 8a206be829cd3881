"""What will be started: the tier, the command lines, the environment, the job file. Pure but for the job file."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .model import SmokeRequest, Tier, Workload

__all__ = ["Plan", "arguments", "environment", "launch_script", "prepare", "tier_of"]

# What a worker inherits. Everything else of the caller's environment stays with the caller.
_KEEP = (
    "HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV",
    "CONDA_PREFIX", "MAX_JOBS", "OMP_NUM_THREADS", "CC", "CXX",
)  # fmt: skip
_KEEP_PREFIXES = (
    "LC_", "XDG_CACHE", "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "NVTE_", "NVSHMEM_", "TORCH", "PYTORCH_", "TRITON_",
    "SLURM_", "MASTER_", "NVIDIA_",
)  # fmt: skip
WORKER = "megatron_cuda_graphs.smoke.worker"
CONFIG = "smoke-config.txt"  # in the folder the job was sent from
PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Plan:
    """`commands`: one a rank (each gets a pipe), or one launcher for all."""

    commands: list[list[str]]
    env: dict[str, str]
    ranks: int
    per_rank: dict[int, dict[str, str]] = field(default_factory=dict)


def tier_of(request: SmokeRequest, graphs: Mapping[str, Any], best: str) -> Tier:
    """The tier asked for, else the configuration's own implementation, else the best that is installed."""
    if request.tier != "auto":
        return request.tier
    impl, modules = graphs.get("impl"), graphs.get("modules") or []
    known: dict[str, Tier] = {
        "transformer_engine": "megatron-te",
        "local": "megatron-local",
        "full_iteration": "megatron-full-iteration",
    }
    if impl == "local" and "full_iteration" in modules:
        return "megatron-full-iteration"
    if isinstance(impl, str) and impl in known:
        return known[impl]
    return "torch" if best == "torch" else "megatron-te"


def environment(request: SmokeRequest, uuids: list[str], folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment: an allow-list of the caller's, the request's own, and ours."""
    env = {k: v for k, v in base.items() if k in _KEEP or k.startswith(_KEEP_PREFIXES)}
    env.update(request.env)
    if request.deterministic:
        env["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "0"
    # Only this package is put in the worker's way, whatever interpreter runs it.
    path = folder / "path"
    path.mkdir(exist_ok=True)
    link = path / PACKAGE.name
    if not link.exists():
        link.symlink_to(PACKAGE, target_is_directory=True)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(path), env.get("PYTHONPATH"))))
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    # A pool of compile processes would outlive nobody but costs seconds to start; the fusions here are few.
    env.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # Fixed cuBLAS workspaces: without them two streams of one process may sum in different orders.
    env.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    env.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    env.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if uuids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    return env


def prepare(
    request: SmokeRequest,
    tier: Tier,
    modules: tuple[str, ...],
    work: Workload,
    run_id: str,
    folder: Path,
    uuids: list[str],
    *,
    python: str | None = None,
    worker: list[str] | None = None,
    base_env: Mapping[str, str] | None = None,
) -> Plan:
    """Write the job file and make the command lines. `worker` replaces the worker's own command (tests)."""
    job = folder / "job.json"
    ask = request.model_dump(mode="json", exclude={"config", "env"})
    job.write_text(
        json.dumps(
            {
                "run": run_id,
                "tier": tier,
                "modules": list(modules),
                "fields": work.fields,
                "request": ask,
                "folder": str(folder),
            }
        )
    )
    exe = python or os.environ.get("MEGATRON_CUDA_GRAPHS_PYTHON") or sys.executable
    own = worker or [exe, "-m", WORKER]
    env = environment(request, uuids, folder, os.environ if base_env is None else base_env)
    local = [*own, "--job", str(job), "--parent", str(os.getpid())]
    if request.launcher == "local":
        per_rank = {}
        if request.world > 1:
            for rank in range(request.world):
                per_rank[rank] = {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(request.world),
                    "LOCAL_WORLD_SIZE": str(request.world),
                    "MCG_SMOKE_RENDEZVOUS": f"file://{folder}/rendezvous",
                }
        return Plan([local] * request.world, env, request.world, per_rank)
    guard = [exe, "-m", f"{WORKER}.guard", str(os.getpid())]
    ranked = [*own, "--job", str(job)]
    return Plan([[*guard, *_launcher(request, exe, ranked)]], env, request.world)


def _launcher(request: SmokeRequest, exe: str, ranked: list[str]) -> list[str]:
    if request.launcher == "torchrun":
        argv = ranked[1:] if ranked[0] == exe else ["--no-python", *ranked]
        # On one node the ranks meet on the loopback address: the host's own name may resolve to nothing.
        alone = ["--standalone", "--local-addr=127.0.0.1"]
        where = alone if request.nodes == 1 else [f"--nnodes={request.nodes}", "--rdzv-backend=c10d"]
        return [exe, "-m", "torch.distributed.run", *where, f"--nproc-per-node={request.nproc}", *argv]
    tasks = request.nodes * request.nproc
    return ["srun", f"--nodes={request.nodes}", f"--ntasks={tasks}", f"--ntasks-per-node={request.nproc}",
            "--kill-on-bad-exit=1", *ranked]  # fmt: skip


def arguments(request: SmokeRequest) -> list[str]:
    """The command line's options for a request; a configuration is the file that `launch_script` writes."""
    argv: list[str] = []
    for name, value in request.model_dump(mode="json", exclude_defaults=True).items():
        option = f"--{name.replace('_', '-')}"
        if name == "launcher":
            continue
        if name == "config":
            argv += [option, CONFIG]
        elif name == "modules":
            argv += [option, ",".join(value)]
        elif name in ("overrides", "env"):
            flag = "--set" if name == "overrides" else option
            for key, item in value.items():
                argv += [flag, f"{key}={item if name == 'env' else json.dumps(item)}"]
        else:
            argv += [option] if value is True else [option, str(value)]
    return argv


def _config_lines(request: SmokeRequest) -> list[str]:
    if request.config is None:
        return []
    text = request.config if isinstance(request.config, str) else json.dumps(request.config)
    return [f"printf %s {shlex.quote(text)} > {CONFIG}"]


def launch_script(request: SmokeRequest, *, job_name: str = "cuda-graph-smoke", python: str = "python3") -> str:
    """An sbatch script for the same smoke over `nodes` x `nproc` GPUs.

    Rank 0's node runs the command-line tool; it starts the ranks with srun in this allocation. The folder for
    records and runs must be one that all nodes see.
    """
    minutes = max(5, int((request.time_limit_s + request.queue_limit_s) / 60) + 5)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={shlex.quote(job_name)}",
        f"#SBATCH --nodes={request.nodes}",
        f"#SBATCH --ntasks-per-node={request.nproc}",
        f"#SBATCH --gpus-per-node={request.nproc}",
        f"#SBATCH --time={minutes}",
        "#SBATCH --exclusive",
        "set -euo pipefail",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
        'export TMPDIR="$SLURM_SUBMIT_DIR"  # shared by the nodes: the ranks read their job file there',
        *_config_lines(request),
        shlex.join([python, "-m", "megatron_cuda_graphs", "smoke", *arguments(request), "--launcher", "srun"]),
        "",
    ]
    return "\n".join(lines)
