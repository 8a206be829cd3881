"""What is known about graphs paying off: measured results, tuned recipes, upstream statements, each with its source.

The recommender cites these by id, and the card is made from them. `whose` says who measured: "ours" is this project
(docs/measurements.md says how), "theirs" is published by NVIDIA in the Megatron Bridge repository.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Literal

__all__ = ["MEASURED", "STATED", "Measured", "Practice", "Stated", "entries", "practice"]

_BRIDGE = "https://github.com/NVIDIA-NeMo/Megatron-Bridge"
_THEIRS = f"{_BRIDGE}, skills/nemo-mbridge-perf-cuda-graphs/card.yaml, validated on 2026-05-18"
_OURS = ("NVIDIA H200, driver 580.159, PyTorch 2.11.0+cu130, transformer-engine 2.20.2, megatron-core 0.19.2, "
         "2026-11-29")  # fmt: skip
Whose = Literal["ours", "theirs"]


@dataclass(frozen=True)
class Measured:
    """One measured result.

    Attributes:
        id: stable id.
        whose: ours or theirs.
        what: model and task.
        on: GPUs and parallelism.
        plan: what was captured, as a plan's name ("attn+router"); "" for a property of the eager run.
        baseline, graphs: the two figures; unit beside them. None where the run did not finish.
        unit: of both figures.
        status: gain, none (no faster), blocked (did not run), loss.
        note: what to know to read the figures.
        source: where they come from.
        traits: what a workload needs to have for this to be worth citing: kind words, and facts.
    """

    id: str
    whose: Whose
    what: str
    on: str
    plan: str
    baseline: str | None
    graphs: str | None
    unit: str
    status: Literal["gain", "none", "blocked", "loss"]
    note: str
    source: str
    traits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stated:
    """Something that upstream's own documentation or history says, which no code checks."""

    id: str
    says: str
    source: str


@dataclass(frozen=True)
class Practice:
    """What tuned recipes chose for one kind of workload.

    Attributes:
        id: stable id.
        recipes: names of the recipe functions.
        family: the model family, for cross-validation and for people; no decision reads it.
        traits: the workload's causal features.
        impl, modules: what they chose.
    """

    id: str
    recipes: tuple[str, ...]
    family: str
    traits: Mapping[str, Any]
    impl: str
    modules: tuple[str, ...]

    @property
    def choice(self) -> tuple[str, tuple[str, ...]]:
        return self.impl, self.modules


MEASURED: tuple[Measured, ...] = (
    Measured(
        "theirs-qwen3-30b", "theirs", "Qwen3-30B-A3B pretrain, bf16", "16 H100 80GB, TP2 PP2 EP4", "attn+router",
        "623", "484", "ms a step", "gain", "22% less time a step, 214 to 274 TFLOP/s a GPU; losses within 0.001; 24 "
                                           "layers a "
        "stage captured in 5.6 s", _THEIRS, {"kind": "moe", "packed": False},
    ),
    Measured(
        "theirs-qwen3-30b-alltoall", "theirs", "Qwen3-30B-A3B pretrain, bf16, all-to-all dispatcher", "H100 80GB",
        "attn+router", "41.36", "42.00", "s a step", "none", "captured 48 layers, and replay was slightly slower "
                                                             "than eager",
        _THEIRS, {"kind": "moe", "packed": False},
    ),
    Measured(
        "theirs-gpt-oss-20b", "theirs", "GPT-OSS-20B pretrain, bf16", "16 H100 80GB, TP2 PP4 EP4", "attn+router",
        "467-520", "391-399", "ms a step", "gain", "16 to 24% less time a step; the loss comparison was "
                                                   "inconclusive; 6 layers "
        "a stage captured in 0.95 s", _THEIRS, {"kind": "moe", "packed": False},
    ),
    Measured(
        "theirs-gpt-oss-120b", "theirs", "GPT-OSS-120B pretrain, bf16", "32 H100 80GB, TP2 PP4 EP8", "attn+router",
        None, None, "", "blocked", "out of memory in iteration 2, with 69 to 70 of 79 GB allocated after the first",
        _THEIRS, {"kind": "moe", "packed": False, "memory_gb": 80},
    ),
    Measured(
        "theirs-qwen3-30b-packed", "theirs", "Qwen3-30B-A3B SFT, packed sequences", "16 H100 80GB, TP2 PP2 EP4",
        "attn+router", "880", None, "ms a step", "blocked", "packed_seq_params is no tensor: the graph's first call "
                                                            "asserts",
        _THEIRS, {"kind": "moe", "packed": True},
    ),
    Measured(
        "theirs-gpt-oss-20b-packed", "theirs", "GPT-OSS-20B SFT and LoRA, packed "
                                               "sequences", "8 H100 80GB", "attn+router",
        None, None, "", "blocked", "no attention backend for packed sequences in that container: failed with and "
                                   "without "
        "graphs", _THEIRS, {"packed": True},
    ),
    Measured(
        "ours-dense-full-iteration", "ours", "dense GPT, 8 layers, hidden 512, 512 tokens, "
                                             "bf16", "1 H200", "full_iteration",
        "43.7 (33.0-57.8, n=10)", "3.1 (3.1-3.4, n=5)", "ms a step", "gain", "13.9 times faster: bound by the host "
                                                                             "when "
        "eager; bit for bit the eager result", _OURS, {"kind": "dense", "launch_bound": True, "packed": False},
    ),
    Measured(
        "ours-dense-medium", "ours", "dense GPT, 12 layers, hidden 2048, 4096 tokens, bf16", "1 H200", "full_iteration",
        "64.8 (60.2-69.5, n=2)", "50.0", "ms a step", "gain", "1.3 times faster; attn alone 1.1, attn with mlp 1.3 "
                                                              "times; one "
        "process each, so differences below about 1.5 times are not "
        "resolved", _OURS, {"kind": "dense", "packed": False},
    ),
    Measured(
        "ours-dense-attn-mlp", "ours", "dense GPT, 8 layers, hidden 512, 512 tokens, bf16", "1 H200", "attn+mlp",
        "43.7 (33.0-57.8, n=10)", "8.0", "ms a step", "gain", "5.4 times faster; attn alone 1.8 times", _OURS,
        {"kind": "dense", "launch_bound": True, "packed": False},
    ),
    Measured(
        "ours-dense-tp2", "ours", "dense GPT, 8 layers, hidden 512, 512 tokens, bf16", "2 H200, TP2", "attn+mlp",
        "75.3-77.1", "29.1", "ms a step", "gain", "2.6 times faster (2.9 times on another host); full iteration 17.9 "
                                                  "times",
        _OURS, {"kind": "dense", "launch_bound": True, "packed": False},
    ),
    Measured(
        "ours-dense-pp2", "ours", "dense GPT, 8 layers, hidden 512, 512 tokens, 4 micro-batches, bf16", "2 H200, PP2",
        "full_iteration", "149.2-178.5", "7.5", "ms a step", "gain", "22 times faster with batch_p2p_sync=False; "
                                                                     "with the "
        "default the capture fails", _OURS, {"kind": "dense", "launch_bound": True, "packed": False, "pipelined": True},
    ),
    Measured(
        "ours-dropless-moe", "ours", "dropless MoE, 8 layers, hidden 1024, 8 experts, 1024 tokens, bf16", "1 H200",
        "attn+router", "102.8 (88.0-117.6, n=2)", "87.6 (81.9-93.4, n=2)", "ms a step", "gain", "1.2 times faster, "
                                                                                                "at or near "
        "the noise: experts and dispatch stay eager", _OURS, {"kind": "moe", "launch_bound": True, "packed": False},
    ),
    Measured(
        "ours-dropless-moe-ep2", "ours", "dropless MoE, 8 layers, hidden 1024, 8 experts, 1024 tokens, "
                                         "bf16", "2 H200, EP2",
        "attn+router", "201.2-209.8", "155.8", "ms a step", "gain", "1.3 times faster; bit for bit the eager "
                                                                    "result", _OURS,
        {"kind": "moe", "launch_bound": True, "packed": False},
    ),
    Measured(
        "ours-drop-and-pad", "ours", "drop-and-pad MoE, 8 layers, hidden 1024, 8 experts, 1024 tokens, bf16", "1 H200",
        "full_iteration", "100.4", "14.3 (14.2-14.3, n=2)", "ms a step", "gain", "7.0 times faster; attn with moe "
                                                                                 "3.9 times",
        _OURS, {"kind": "moe", "launch_bound": True, "packed": False, "drop_and_pad": True},
    ),
    Measured(
        "ours-hybrid-moe", "ours", "HybridModel of attention and dropless MoE layers, hidden 1024, 8 experts, 1024 "
                                   "tokens, "
        "bf16", "1 H200", "attn+router", "146.7", "93.0", "ms a step", "gain", "1.6 times faster; no Mamba layers "
                                                                               "were in it",
        _OURS, {"kind": "hybrid", "launch_bound": True, "packed": False},
    ),
    Measured(
        "ours-torch-medium", "ours", "12-layer GPT in plain PyTorch, hidden 2048, 4 x 2048 tokens", "1 H200",
        "full_iteration", "75.66 (75.36-75.99, n=3)", "74.52 (74.16-74.88, n=2)", "ms a step", "none", "bound by the "
                                                                                                       "GPU: no "
        "faster, while the CPU's time to issue a step fell from 29 to 1.7 "
        "ms", _OURS, {"kind": "dense", "packed": False},
    ),
    Measured(
        "h200-host-per-layer", "ours", "dense GPT and dropless MoE, 8 layers each, eager and with parts captured",
        "1 H200", "", "42.4 ms (dense), 83.9 ms (MoE)", "dense 24.4 with attn, 6.1 with attn and mlp; MoE 73.0 with "
        "attn+router", "a forward and backward pass", "gain", "5.3 ms a dense layer and 10.5 ms a MoE layer to issue; "
        "what goes with each captured part is that part's share. Another host was up to 2 times faster", _OURS,
        {"kind": "cited by id only"},
    ),
    Measured(
        "h200-kernels-per-layer", "ours", "GPT on Transformer Engine layers, 8 to 24 layers, hidden 1024 to 4096",
        "1 H200", "", "85 to 100 (dense), 327 to 375 (MoE with 16 experts, GEMMs not grouped)", None,
        "kernels a layer, forward and backward", "none", "counted by torch.profiler over one pass, embedding and loss "
        "included", _OURS + " (evidence/recommend_gpu.jsonl)", {"kind": "cited by id only"},
    ),
)  # fmt: skip

STATED: tuple[Stated, ...] = (
    Stated("upstream-static-shapes", "Graphs need static tensor shapes; fixed-size packed sequences qualify, varying "
           "lengths do not.", f"{_BRIDGE}/blob/v0.6.0/docs/performance-guide.md"),
    Stated("upstream-memory", "Static buffers typically add a few GB, and more than 10 GB with pipeline parallelism.",
           f"{_BRIDGE}/blob/v0.6.0/docs/performance-guide.md"),
    Stated("upstream-gdn-scope", "Gated delta-net layers live under self_attention, so attn captures them; mamba "
                                 "does not.",
           f"{_BRIDGE}/blob/main/docs/training/cuda-graphs.md"),
    Stated("upstream-paged-stash", "Paged stash with a rank capacity factor and hybridep makes dispatch shapes static, "
           "which allows full iteration on MoE.",
           "https://github.com/NVIDIA/Megatron-LM/blob/core_v0.19.0/docs/user-guide/features/cuda_graph.md"),
    Stated("upstream-vlm-variable-length", "Qwen3.5-VL's performance recipes keep graphs off because VLM inputs vary "
                                           "in "
           "length.", f"{_BRIDGE}/commit/27e5c5948"),
    Stated("upstream-b200-full-iteration-oom", "Full iteration with paged stash on a 30B MoE model ran out of memory "
                                               "on "
           "B200 (180 GB) at every workable batch, and fits GB200 (186 GB) and B300 (279 GB).",
           f"{_BRIDGE}/commit/0d1e12ca4"),
    Stated("upstream-shared-expert-overlap", "With router graphs and moe_shared_expert_overlap on, replay crashed; "
                                             "off, it "
           "ran.", f"{_BRIDGE}/commit/60a3947dc"),
    Stated("observed-replay-shape", "Another length or micro-batch at replay raises: RuntimeError on the copy into "
                                    "the static "
           "input (Transformer Engine, full iteration), AssertionError (local).", _OURS),
    Stated("observed-packed-assertion", "packed_seq_params given to a Transformer Engine attention graph asserts at "
                                        "replay.",
           _OURS),
)  # fmt: skip


@lru_cache(maxsize=1)
def practice() -> tuple[Practice, ...]:
    """What tuned recipes of Megatron Bridge 0.6.0 chose (made by tools/make_practice.py)."""
    import json

    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "recommend_practice.json")
    with open(path, "rb") as file:
        rows = json.loads(file.read())["entries"]
    return tuple(
        Practice(r["id"], tuple(r["recipes"]), r["family"], r["traits"], r["impl"], tuple(r["modules"])) for r in rows
    )


def entries() -> Iterator[dict[str, Any]]:
    """Every entry as plain data, for the card and the docs."""
    for measured in MEASURED:
        yield {"type": "measured", **asdict(measured)}
    for stated in STATED:
        yield {"type": "stated", **asdict(stated)}
    for p in practice():
        yield {"type": "practice", **asdict(p)}
