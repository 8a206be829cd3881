"""GPUs as the recommender needs them: memory, NVLink domain, generation, and how fast they compute."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

__all__ = ["GPUS", "Generation", "Gpu", "gpu"]

Generation = Literal["ampere", "ada", "hopper", "blackwell", "rubin"]


class Gpu(NamedTuple):
    """One kind of GPU.

    Attributes:
        name: as people write it, in capitals.
        generation: its architecture's name.
        memory_gb: memory in GB that a job can use, as public recipes and data sheets give it.
        nvlink_domain: how many GPUs reach each other over NVLink in the usual machine.
        sm: compute capability times ten.
        tflops: dense peak by precision, from the vendor's data sheets; None where none is public enough to use.
    """

    name: str
    generation: Generation
    memory_gb: int
    nvlink_domain: int
    sm: int
    tflops: dict[str, float] | None = None

    @property
    def newer_than_hopper(self) -> bool:
        """Blackwell and after: the GPU outran the host that feeds it."""
        return self.sm >= 100

    def peak(self, precision: str) -> float | None:
        """Dense TFLOP/s for a precision family (bf16, fp8, fp4), falling back on the next wider one it has."""
        if self.tflops is None:
            return None
        for name in {"fp4": ("fp4", "fp8", "bf16"), "fp8": ("fp8", "bf16")}.get(precision, ("bf16",)):
            if name in self.tflops:
                return self.tflops[name]
        return None


_HOPPER = {"bf16": 989.0, "fp8": 1979.0}
_B200 = {"bf16": 2250.0, "fp8": 4500.0, "fp4": 9000.0}
_GB200 = {"bf16": 2500.0, "fp8": 5000.0, "fp4": 10000.0}
_B300 = {"bf16": 2250.0, "fp8": 4500.0, "fp4": 13500.0}
_GB300 = {"bf16": 2500.0, "fp8": 5000.0, "fp4": 15000.0}

GPUS: dict[str, Gpu] = {
    g.name.lower(): g
    for g in (
        Gpu("A100", "ampere", 80, 8, 80, {"bf16": 312.0}),
        Gpu("L40S", "ada", 48, 1, 89, {"bf16": 362.0, "fp8": 733.0}),
        Gpu("H20", "hopper", 96, 8, 90, {"bf16": 148.0, "fp8": 296.0}),
        Gpu("H100", "hopper", 80, 8, 90, _HOPPER),
        Gpu("H800", "hopper", 80, 8, 90, _HOPPER),
        Gpu("H200", "hopper", 141, 8, 90, _HOPPER),
        Gpu("GH200", "hopper", 96, 1, 90, _HOPPER),
        Gpu("B100", "blackwell", 180, 8, 100, {"bf16": 1750.0, "fp8": 3500.0, "fp4": 7000.0}),
        Gpu("B200", "blackwell", 180, 8, 100, _B200),
        Gpu("GB200", "blackwell", 186, 72, 100, _GB200),
        Gpu("B300", "blackwell", 279, 8, 103, _B300),
        Gpu("GB300", "blackwell", 279, 72, 103, _GB300),
        Gpu("R100", "rubin", 288, 8, 107),
        Gpu("VR200", "rubin", 288, 72, 107),
    )
}
_FAMILY = {"ampere": "a100", "hopper": "h100", "blackwell": "b200", "rubin": "vr200", "ada": "l40s"}
_BY_SM = {80: "a100", 89: "l40s", 90: "h100", 100: "b200", 103: "b300", 107: "vr200"}


@lru_cache(maxsize=256)
def gpu(text: str) -> Gpu | None:
    """The GPU that a text names ('NVIDIA H100 80GB HBM3', 'gb200', 'blackwell', 'sm_90'); None when none is known."""
    low = text.lower()
    if match := re.search(r"(?:sm|compute)[_ ]?(\d{2,3})", low):
        name = _BY_SM.get(int(match[1]))
        return GPUS[name] if name else None
    words = re.findall(r"[a-z]+\d+[a-z]?|[a-z]+", re.sub(r"[-_/]", " ", low))
    for word in words:
        if word in GPUS:
            return GPUS[word]
        if word in _FAMILY:
            return GPUS[_FAMILY[word]]
    return None
