"""The tiny preset's steps without the tool: what `smoke` is held against (python benchmarks/smoke_bare.py TIER).

The same packages imported, the same two models, the same number of steps of each kind, one capture; nothing
compared, nothing profiled, no parent process.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

start = time.perf_counter()
TIER = sys.argv[1] if len(sys.argv) > 1 else "torch"
import torch

if TIER != "torch":
    import megatron.core  # noqa: F401
    import transformer_engine.pytorch  # noqa: F401

    from megatron_cuda_graphs.smoke.worker import megatron_tier as tier
else:
    from megatron_cuda_graphs.smoke.worker import torch_tier as tier
from megatron_cuda_graphs.smoke import presets
from megatron_cuda_graphs.smoke.worker.faults import Fault
from megatron_cuda_graphs.smoke.worker.session import batches

fields = dict(presets.preset("tiny")["fields"])
ask = {"warmup_steps": 3, "parity_steps": 10, "steps": 30, "microbatches": 1, "seed": 1234, "tp": 1, "pp": 1, "ep": 1}
pair = tier.build({"tier": TIER, "modules": ["step"] if TIER == "torch" else [], "request": ask}, fields, Fault())
data = batches(fields, 1, 1234, 0)
for _ in range(4):
    pair.eager.gradients(data[0])
for i in range(13):
    pair.eager.run(data[i % 8], lambda: None)
    pair.before_step(i)
    pair.graph.run(data[i % 8], lambda: None)
times: dict[str, list[float]] = {}
for name, twin in (("eager", pair.eager), ("replay", pair.graph)):
    for i in range(47):  # timed, back to back, memory and profiled steps
        begin = time.perf_counter()
        twin.run(data[i % 8], lambda: None)
        torch.cuda.synchronize()
        times.setdefault(name, []).append(time.perf_counter() - begin)
middle = {n: round(1000 * sorted(t)[len(t) // 2], 3) for n, t in times.items()}
print(json.dumps({"tier": TIER, "seconds": round(time.perf_counter() - start, 3), "step_ms": middle}))
