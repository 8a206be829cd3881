"""What a failure's own text adds to its mode's words: where it was raised, and how much memory went where."""

from __future__ import annotations

import re
from typing import NamedTuple

from .match import Mode
from .parse import Event, Frame

__all__ = ["Memory", "calling_frame", "explain", "memory", "place"]

# Squashed, as wrapped logs break them anywhere. torch since 2.2 says "GPU 0 has a total capacity of ...", before it
# "(GPU 0; 39.59 GiB total capacity; ...)".
_AMOUNT = r"([\d.]+)(bytes|[KMGT]iB)"
_UNIT = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_FIGURES = {
    name: tuple(re.compile(text.replace("#", _AMOUNT)) for text in texts)
    for name, texts in {
        "asked": ("Triedtoallocate#",),
        "total": ("totalcapacity(?:of|is)#", "#totalcapacity"),
        "free": ("ofwhich#isfree", "#free;"),
        "allocated": ("#isallocatedbyPyTorch", "#alreadyallocated"),
        "pools": ("with#allocatedinprivatepools",),
        "idle": ("and#isreservedbyPyTorchbutunallocated",),
    }.items()
}
_SAFE = re.compile(r"[\w./<>+@~-]{1,300}")  # what of a traceback may stand in our own sentences


class Memory(NamedTuple):
    """The figures of torch's out-of-memory message in bytes; None where it does not say."""

    asked: float | None
    total: float | None
    free: float | None
    allocated: float | None
    pools: float | None
    idle: float | None

    @property
    def share(self) -> float | None:
        """The pools' share of what PyTorch has allocated."""
        return self.pools / self.allocated if self.pools is not None and self.allocated else None


def memory(message: str) -> Memory | None:
    """The figures of an out-of-memory message, None where it has none."""
    flat = "".join(message.split())
    found: dict[str, float | None] = {}
    for name, patterns in _FIGURES.items():
        match = next((m for m in (p.search(flat) for p in patterns) if m), None)
        found[name] = _bytes(match[1], match[2]) if match else None
    return Memory(**found) if any(value is not None for value in found.values()) else None


def _bytes(number: str, unit: str) -> float | None:
    try:
        return float(number) * _UNIT[unit]
    except ValueError:
        return None


def _size(amount: float) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount >= _UNIT[unit]:
            return f"{amount / _UNIT[unit]:.2f} {unit}"
    return f"{amount:.0f} bytes"


def calling_frame(event: Event) -> Frame | None:
    """The deepest frame outside torch: the code that asked for what failed."""
    own = [f for f in event.frames if not re.search(r"(?:^|/)torch/|^<", f.file)]
    frame = next(reversed(own or event.frames), None)
    return frame if frame is not None and _SAFE.fullmatch(frame.file) else None


def place(frame: Frame) -> str:
    """'transformer/mlp.py:210 (forward)', from the package on."""
    path = re.split(r"(?:site|dist)-packages/", frame.file)[-1]
    func = f" ({frame.func})" if _SAFE.fullmatch(frame.func) else ""
    return f"{path}:{frame.line}{func}" if frame.line else path + func


def explain(mode: Mode, event: Event | None) -> tuple[str, str, str | None]:
    """Cause, fix and note of a mode as this event shows it."""
    if event is None:
        return mode.cause, mode.fix, None
    frame = calling_frame(event)
    if "out of memory" in event.message.lower() and (figures := memory(event.message)) is not None:
        here, advice = _memory_words(figures, frame)
        return f"{mode.cause} {here}", f"{mode.fix} {advice}".strip(), None
    if frame is None or mode.family == "config_guard":
        return mode.cause, mode.fix, None
    return mode.cause, mode.fix, f"Raised from {place(frame)}."


def _memory_words(m: Memory, frame: Frame | None) -> tuple[str, str]:
    where = f" in {place(frame)}" if frame is not None else ""
    parts = [
        f"{_size(m.asked)} were asked for{where}" if m.asked is not None else f"It was raised{where}" * bool(where)
    ]
    if m.total is not None and m.free is not None:
        parts.append(f"{_size(m.free)} of the GPU's {_size(m.total)} were free")
    if m.allocated is not None:
        share = f", {_size(m.pools)} of it ({m.share:.0%}) in graph pools" if m.pools is not None and m.share else ""
        none = ", none of it in graph pools" if m.pools is None and m.idle is not None else ""
        parts.append(f"PyTorch had allocated {_size(m.allocated)}{share}{none}")
    if m.idle is not None:
        parts.append(f"{_size(m.idle)} were reserved but unallocated")
    return "Here " + "; ".join(parts) + ".", _memory_advice(m)


def _memory_advice(m: Memory) -> str:
    if m.asked is None:
        return ""
    if m.total is not None and m.asked > m.total:
        return f"No headroom helps: {_size(m.asked)} in one tensor is more than the GPU has; look at its shape."
    if m.total is not None and m.free is not None and m.allocated is not None:
        outside = m.total - m.free - m.allocated - (m.idle or 0.0)
        if outside > 0.15 * m.total:
            return (
                f"{_size(outside)} of the GPU are held outside PyTorch's allocator (another process, NCCL, the CUDA "
                "context): look there first."
            )
    if m.idle is not None and m.idle > m.asked and (m.share or 0.0) < 0.3:
        return (
            f"{_size(m.idle)} lie unused in blocks that do not fit {_size(m.asked)}: fragmentation, which "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lessens (with graphs also set NCCL_GRAPH_REGISTER=0)."
        )
    if m.free is not None and m.asked > m.free:
        return f"At least {_size(m.asked - m.free)} more must come free at this point."
    return ""
