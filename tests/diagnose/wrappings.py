# ruff: noqa: E501  (log lines are as long as they are)
"""The shapes in which one failure reaches a paste or a log file, and values for the holes of a message."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

__all__ = ["WRAPPINGS", "fill", "record"]

_HOLE = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_VALUES: tuple[Callable[[random.Random], str], ...] = (
    lambda r: str(r.randrange(0, 100_000)),
    lambda r: f"torch.Size([{r.randrange(1, 9000)}, {r.randrange(1, 9)}, {r.randrange(64, 9000)}])",
    lambda r: r.choice(["'attention'", "'transformer_engine'", "local", "None", "True", "float32"]),
    lambda r: f"<class '{r.choice(['int', 'float', 'list', 'torch.Tensor', 'NoneType'])}'>",
    lambda r: str([r.choice(["attn", "mlp", "moe"]) for _ in range(r.randrange(0, 4))]),
    lambda r: f"{r.random() * 100:.4g}",
    lambda r: "/opt/" + "/".join("".join(r.choices("abcdefgh_", k=6)) for _ in range(3)) + ".py",
    lambda r: r.choice(["2.5.0", "0.19.2", "cuda:3", "x" * r.randrange(1, 60)]),
)


def fill(template: str, rng: random.Random) -> str:
    """The template with random values in its holes."""

    def value(hole: re.Match[str]) -> str:
        return hole[0][0] if hole[0] in ("{{", "}}") else rng.choice(_VALUES)(rng)

    return _HOLE.sub(value, template)


def record(message: str, raises: str | None, at: str, rng: random.Random) -> list[str]:
    """A traceback that ends in the message; a warning or log line where nothing is raised."""
    path, _, name = at.partition(" :: ")
    func = name.rpartition(".")[2] or "<module>"
    if raises is None or raises.endswith("Warning"):
        head = f"/opt/site/{path}:{rng.randrange(10, 3000)}: {raises}: " if raises else "WARNING:megatron.core:"
        return [head + message]
    file = f"/opt/site/{path}" if path.endswith(".py") else "/opt/job/pretrain_gpt.py"
    return [
        "Traceback (most recent call last):",
        '  File "/opt/job/pretrain_gpt.py", line 72, in <module>',
        "    main()",
        f'  File "{file}", line {rng.randrange(10, 3000)}, in {func if path.endswith(".py") else "main"}',
        "    outputs = func(*args, **kwargs)",
        *f"{raises}: {message}".split("\n"),
    ]


def _ansi(lines: list[str], rng: random.Random) -> list[str]:
    return [f"\x1b[{rng.choice(['31', '1;33', '0'])}m{line}\x1b[0m" if line else line for line in lines]


def _progress(lines: list[str], rng: random.Random) -> list[str]:
    bar = "".join(f"\r {n}%|{'#' * (n // 5):20}| {n}/100 [00:{n % 60:02d}<00:01]" for n in range(0, 100, 20))
    return [bar + "\r" + lines[0], *lines[1:]]


def _stamped(lines: list[str], rng: random.Random) -> list[str]:
    return [f"[2026-08-15 11:31:{n % 60:02d}.{rng.randrange(1000):03d}] {line}" for n, line in enumerate(lines)]


def _label(form: str) -> Callable[[list[str], random.Random], list[str]]:
    def wrap(lines: list[str], rng: random.Random) -> list[str]:
        rank = rng.randrange(0, 64)
        return [form.format(rank=rank, local=rank % 8) + line for line in lines]

    return wrap


def _kubernetes(lines: list[str], rng: random.Random) -> list[str]:
    return [
        f"train-worker-{rng.randrange(1)} pytorch 2026-07-22T03:10:00.{n:03d}Z {line}" for n, line in enumerate(lines)
    ]


def _cri(lines: list[str], rng: random.Random) -> list[str]:
    return [f"2026-07-22T03:10:00.{n:09d}Z stderr F {line}" for n, line in enumerate(lines)]


def _json(lines: list[str], rng: random.Random) -> list[str]:
    return [
        json.dumps({"time": f"2026-07-22T03:10:00.{n:03d}Z", "stream": "stderr", "log": line + "\n"})
        for n, line in enumerate(lines)
    ]


def _json_whole(lines: list[str], rng: random.Random) -> list[str]:
    return [
        json.dumps(
            {"ts": "2026-07-22T03:10:00Z", "rank": rng.randrange(8), "level": "ERROR", "message": "\n".join(lines)}
        )
    ]


def _wrapped(width: int, label: str = "") -> Callable[[list[str], random.Random], list[str]]:
    def wrap(lines: list[str], rng: random.Random) -> list[str]:
        out: list[str] = []
        for line in lines:
            pieces = [line[i : i + width] for i in range(0, len(line), width)] or [""]
            out += [label + pieces[0], *(label + piece for piece in pieces[1:])]
        return out

    return wrap


def _viewer(lines: list[str], rng: random.Random) -> list[str]:
    """Labelled by the launcher, then wrapped by a viewer that knows nothing of labels."""
    return _wrapped(90)(["[rank5]: " + line for line in lines], rng)


def _cut(lines: list[str], rng: random.Random) -> list[str]:
    last = lines[-1]
    return [*lines[:-1], last[: max(len(last) * 4 // 5, 45)]]


def _chained(lines: list[str], rng: random.Random) -> list[str]:
    return [
        *lines,
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/opt/site/torch/cuda/graphs.py", line 126, in capture_end',
        "    super().capture_end()",
        "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture",
        "Search for `cudaErrorStreamCaptureInvalidated' in https://docs.nvidia.com/cuda for more information.",
    ]


def _interleaved(lines: list[str], rng: random.Random) -> list[str]:
    ranks = rng.sample(range(64), 3)
    queues = {rank: list(lines) for rank in ranks}
    out: list[str] = []
    while queues:
        rank = rng.choice(list(queues))
        out.append(f"[rank{rank}]: {queues[rank].pop(0)}")
        if not queues[rank]:
            del queues[rank]
    return out


def _among_noise(lines: list[str], rng: random.Random) -> list[str]:
    noise = [
        f" [2026-11-29 17:36:{n:02d}] iteration {n:8d}/ 500 | consumed samples: {n:12d} | lm loss: 6.9E+00 | grad norm: 4.8 |"
        for n in range(1, 30)
    ]
    after = [
        "W1129 17:36:37.356000 1564 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 1817 closing signal SIGTERM",
        "E1129 17:36:38.129000 1564 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 1 (pid: 1818) of binary: /usr/bin/python",
    ]
    return noise + ["[rank3]: " + line for line in lines] + after


WRAPPINGS: dict[str, Callable[[list[str], random.Random], list[str]]] = {
    "plain": lambda lines, rng: lines,
    "message alone": lambda lines, rng: [lines[-1]] if len(lines) <= 6 else lines[5:],
    "ansi": _ansi,
    "progress bar": _progress,
    "timestamps": _stamped,
    "rank": _label("[rank{rank}]: "),
    "srun": _label("{rank:2d}: "),
    "srun and rank": _label("{rank}: [rank{rank}]: "),
    "tee": _label("[default{local}]:"),
    "tee and rank": _label("[default{local}]:[rank{rank}]: "),
    "mpirun": _label("[1,{rank}]<stderr>:"),
    "kubernetes": _kubernetes,
    "container runtime": _cri,
    "json lines": _json,
    "json record": _json_whole,
    "wrapped at 80": _wrapped(80),
    "wrapped at 41, labelled": _wrapped(41, "[rank2]: "),
    "wrapped by a viewer": _viewer,
    "cut": _cut,
    "chained": _chained,
    "interleaved": _interleaved,
    "in a log": _among_noise,
}
