"""What is asked of a smoke run and what it answers. Frozen pydantic; the JSON is the record, the CLI and MCP result."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = [
    "EXIT_CODES",
    "TIERS",
    "Exception_",
    "Failure",
    "Gpu",
    "Measures",
    "Memory",
    "Parity",
    "Progress",
    "RankResult",
    "SmokeReport",
    "SmokeRequest",
    "Status",
    "SweepRow",
    "Tier",
    "Timing",
    "Workload",
]

Tier = Literal["torch", "megatron-local", "megatron-te", "megatron-full-iteration"]
TIERS: tuple[Tier, ...] = ("torch", "megatron-local", "megatron-te", "megatron-full-iteration")
Status = Literal["captured", "failed", "timeout", "no_gpu", "missing_dependency", "cancelled", "refused"]
# 0 captured, worth it or not; 1 a run that failed; 3 the environment lacks what was asked for.
EXIT_CODES: dict[str, int] = {
    "captured": 0,
    "failed": 1,
    "timeout": 1,
    "cancelled": 1,
    "refused": 3,
    "no_gpu": 3,
    "missing_dependency": 3,
}
Scalar = bool | int | float | str | None
ENV_PREFIXES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUBLAS_",
    "CUDNN_",
    "NCCL_",
    "NVTE_",
    "PYTORCH_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
    "TRITON_",
    "NVSHMEM_",
)
# The file a library would write or load: not for a request to choose.
ENV_REFUSED = ("_FILE", "_PATH", "_DIR", "_PLUGIN", "_CMD", "_CACHE")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SmokeRequest(_Frozen):
    """What to run. Everything has a default: an empty request runs the tiny preset on what is installed."""

    tier: Tier | Literal["auto"] = Field(
        default="auto", description="How to capture; auto takes the configuration's own, else what is installed."
    )
    preset: str | None = Field(default=None, description="A workload by name; see `smoke --list`.")
    config: str | dict[str, Any] | None = Field(
        default=None,
        description="Your configuration, in any format validate_config reads; scaled down to one GPU.",
    )
    modules: tuple[str, ...] | None = Field(
        default=None,
        description="What to capture: attn, mlp, moe, moe_router, moe_preprocess, mamba; empty is the whole layer. "
        "torch tier: step, fwd_bwd or layers. Null takes the workload's first sensible set.",
    )
    overrides: dict[str, Scalar | list[Scalar]] = Field(
        default_factory=dict, description="Workload fields to change (Megatron names): seq_length, num_layers, ..."
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Variables of the job: NCCL_*, NVTE_*, PYTORCH_*, TORCH_*, CUBLAS_*, ..."
    )
    gpu: int | None = Field(default=None, ge=0, description="nvidia-smi index; null takes the emptiest.")
    microbatches: Annotated[int, Field(ge=1, le=64)] = 1
    warmup_steps: Annotated[int, Field(ge=1, le=50, description="Eager steps before capture.")] = 3
    parity_steps: Annotated[int, Field(ge=1, le=200, description="Steps after capture held against eager.")] = 10
    steps: Annotated[int, Field(ge=2, le=2000, description="Timed steps of each kind.")] = 30
    processes: Annotated[int, Field(ge=1, le=10, description="Repeat in this many processes.")] = 1
    sweep: bool = Field(default=False, description="Try every sensible module set of the workload.")
    seed: int = 1234
    deterministic: bool = Field(
        default=False, description="Ask the packages for algorithms that repeat bit for bit; slower, parity strict."
    )
    inject: str | None = Field(default=None, description="A fault to provoke on purpose, by name.")
    time_limit_s: Annotated[float, Field(gt=0, le=7200, description="Limit for one worker, queue excluded.")] = 600.0
    queue_limit_s: Annotated[float, Field(ge=0, le=7200)] = 1800.0
    gpu_memory_limit_gib: float | None = Field(default=None, gt=0, description="Null: what is free.")
    host_memory_limit_gib: float = Field(default=64.0, gt=0)
    launcher: Literal["local", "torchrun", "srun"] = Field(
        default="local", description="How the ranks start. srun runs inside an allocation."
    )
    nproc: Annotated[int, Field(ge=1, le=64, description="Ranks on a node.")] = 1
    nodes: Annotated[int, Field(ge=1, le=4096)] = 1
    tp: Annotated[int, Field(ge=1)] = 1
    pp: Annotated[int, Field(ge=1)] = 1
    ep: Annotated[int, Field(ge=1)] = 1
    vp: int | None = Field(default=None, ge=2, description="Model chunks a pipeline stage (interleaving).")

    @field_validator("env")
    @classmethod
    def _allowed(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name.startswith(ENV_PREFIXES) or name.endswith(ENV_REFUSED):
                raise ValueError(f"{name} is not a variable that a smoke request may set")
            if "\0" in value or len(value) > 4096:
                raise ValueError(f"{name} has no usable value")
        return env

    @model_validator(mode="after")
    def _one_workload(self) -> SmokeRequest:
        if self.preset is not None and self.config is not None:
            raise ValueError("preset and config exclude each other")
        world, model_parallel = self.nproc * self.nodes, self.tp * self.pp
        if world % model_parallel or world // self.pp % self.ep:
            raise ValueError(f"{world} ranks can't be divided into tp={self.tp}, pp={self.pp}, ep={self.ep}")
        if self.vp is not None and self.pp < 2:
            raise ValueError("vp needs pp of at least 2")
        return self

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.nproc * self.nodes


class Progress(_Frozen):
    """Where a run stands."""

    phase: str
    fraction: float = Field(ge=0, le=1)
    message: str = ""


class Timing(_Frozen):
    """Times of like steps: median, the middle 80 percent, and how many. Milliseconds."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int


class Ratio(_Frozen):
    """Eager over replay, with a 95 percent interval (bootstrap over the alternating blocks or the processes)."""

    value: float
    low: float
    high: float
    resolved: bool = Field(description="The interval excludes 1.")


class Side(_Frozen):
    """One of the two, eager or replay."""

    step: Timing = Field(description="Whole training step by CUDA events.")
    fwd_bwd: Timing | None = Field(default=None, description="Forward and backward of it.")
    issued_ms: float | None = Field(default=None, description="CPU time to issue forward and backward, median.")
    back_to_back_ms: float | None = Field(default=None, description="A step when steps follow without waiting, mean.")
    busy_ms: float | None = Field(default=None, description="Time a kernel or copy ran, per step (profiler).")
    fwd_bwd_busy_ms: float | None = None
    launches: float | None = Field(
        default=None, description="Kernels, copies and fills launched from the CPU per step."
    )
    fwd_bwd_launches: float | None = None
    graph_launches: float | None = Field(default=None, description="cudaGraphLaunch calls per step (profiler).")
    kernels: float | None = Field(default=None, description="Kernels that ran per step.")
    graph_launch_us: float | None = Field(default=None, description="CPU time of one cudaGraphLaunch, mean.")
    allocated_peak_gib: float | None = None
    reserved_peak_gib: float | None = None


class Memory(_Frozen):
    """GPU memory, GiB. A side's peak: its resting state plus what its step added; the other twin's share is out."""

    resting_gib: float = Field(description="Weights, gradients and optimizer state of one model.")
    graph_pools_gib: float = Field(description="Reserved by private pools of graphs after replay.")
    reserved_growth_gib: float = Field(description="Reserved after replay minus before capture.")
    device_used_gib: float | None = Field(default=None, description="In use on the device at the end, both twins.")


class Parity(_Frozen):
    """Replay against eager: same seed, same data, step by step from the first step on."""

    verdict: Literal["bit_equal", "within_noise", "rounding", "wrong", "not_checked"]
    steps: int = Field(description="Steps compared after capture.")
    loss_max_difference: float | None = None
    grad_norm_max_difference: float | None = Field(default=None, description="Relative.")
    gradient_difference: float | None = Field(default=None, description="Largest relative L2 distance over steps.")
    update_difference: float | None = Field(
        default=None, description="Relative L2 distance of the first replayed step's weight update."
    )
    eager_noise: float = Field(default=0.0, description="The same distance between two eager passes on one batch.")
    first_wrong_step: int | None = Field(default=None, description="Counted from capture, 1-based.")
    reason: str = ""
    losses_eager: tuple[float, ...] = ()
    losses_replay: tuple[float, ...] = ()


class Measures(_Frozen):
    """The figures of a captured run."""

    eager: Side
    replay: Side
    gain: Ratio = Field(description="Step time, eager over replay.")
    fwd_bwd_gain: Ratio | None = None
    bound: float | None = Field(default=None, description="Eager step over GPU-busy time: the most a gain could be.")
    launch_bound_share: float | None = Field(default=None, description="Part of the eager step the GPU idles.")
    launch_cost_us: float | None = Field(
        default=None, description="CPU time of eager forward and backward over their launches: Python and all."
    )
    gap_explained: float | None = Field(
        default=None, description="Launches left times their cost, over replay step minus busy time; at most 1."
    )
    capture_s: float
    graphs: int = Field(description="Captures finished (a forward and a backward each for per-layer graphs).")
    memory: Memory
    parity: Parity
    replayed: bool = Field(description="The profiler saw graph launches in the replayed steps and none in eager ones.")


class Exception_(_Frozen):
    """One exception of a chain."""

    type: str
    message: str
    where: str = ""


class Failure(_Frozen):
    """What went wrong, structured."""

    phase: str
    kind: Literal["exception", "signal", "timeout", "memory_limit", "wrong_result", "exit", "protocol"]
    rank: int | None = None
    chain: tuple[Exception_, ...] = Field(default=(), description="Outermost first; the last is the root.")
    root: Exception_ | None = None
    exit_status: int | None = None
    signal: str | None = None
    log_tail: str = ""
    ranks_silent: tuple[int, ...] = Field(default=(), description="Ranks that were waiting or stopped by others.")
    diagnosis: dict[str, Any] | None = Field(default=None, description="diagnose_error's answer.")


class Workload(_Frozen):
    """What was run."""

    name: str
    system: str = ""
    source: str = ""
    fields: dict[str, Any] = Field(default_factory=dict)
    scaled: tuple[str, ...] = Field(default=(), description="What was changed to fit, and from what.")


class Gpu(_Frozen):
    """A GPU as nvidia-smi tells it. Memory in MiB."""

    index: int
    uuid: str
    name: str
    memory_total: int
    memory_free: int
    driver: str = ""
    compute_capability: str = ""


class RankResult(_Frozen):
    """One rank of a distributed run."""

    rank: int
    host: str = ""
    status: str
    step_eager_ms: float | None = None
    step_replay_ms: float | None = None
    capture_s: float | None = None
    graphs: int | None = None
    eager_reserved_peak_gib: float | None = None
    reserved_peak_gib: float | None = Field(default=None, description="Of the replayed step.")
    pools_gib: float | None = None
    parity: str | None = None


class SweepRow(_Frozen):
    """One module set of a sweep."""

    tier: Tier
    modules: tuple[str, ...]
    status: Status
    eager_ms: float | None = None
    replay_ms: float | None = None
    gain: Ratio | None = None
    capture_s: float | None = None
    pools_gib: float | None = None
    parity: str | None = None
    why: str = ""


class Durations(_Frozen):
    """Where the time went, seconds."""

    queued_s: float = 0.0
    import_s: float | None = None
    build_s: float | None = None
    worker_s: float | None = None
    phases_s: dict[str, float] = Field(default_factory=dict, description="The worker's phases.")
    total_s: float = 0.0


class SmokeReport(_Frozen):
    """The answer. `verdict` says it in a sentence; the rest is what it rests on."""

    schema_version: Literal[1] = 1
    id: str
    date: str = Field(description="UTC, ISO 8601.")
    status: Status
    verdict: str
    tier: Tier | None = None
    modules: tuple[str, ...] = ()
    request: SmokeRequest
    workload: Workload | None = None
    stack: dict[str, str] = Field(default_factory=dict, description="Versions the worker found.")
    gpu: Gpu | None = None
    measures: Measures | None = None
    parity: Parity | None = Field(default=None, description="As in measures; also where the run failed afterwards.")
    processes: tuple[Measures, ...] = Field(default=(), description="Each process's figures, when repeated.")
    failure: Failure | None = None
    lacks: tuple[str, ...] = Field(default=(), description="What to install or free.")
    notes: tuple[str, ...] = ()
    ranks: tuple[RankResult, ...] = ()
    sweep: tuple[SweepRow, ...] = Field(default=(), description="Best first.")
    durations: Durations = Durations()
    left_behind: tuple[int, ...] = Field(default=(), description="Processes still alive after the run; empty is right.")
    record: str | None = Field(default=None, description="File this record was written to.")

    @property
    def exit_code(self) -> int:
        """The CLI's exit code for this status."""
        return EXIT_CODES[self.status]
