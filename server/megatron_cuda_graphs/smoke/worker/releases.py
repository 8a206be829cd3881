"""How each megatron-core release spells its CUDA graph settings. Decided from the release's own fields, not numbers.

0.15: `cuda_graph_scope` is one word (full, attn, full_iteration). 0.16 and 0.17: a list of CudaGraphScope, the full
iteration among them with impl local. From 0.18: `cuda_graph_modules`, and full_iteration is an impl.
"""

from __future__ import annotations

from typing import Any

__all__ = ["graph_fields"]

IMPLS = {"megatron-local": "local", "megatron-te": "transformer_engine", "megatron-full-iteration": "full_iteration"}


def graph_fields(known: dict[str, Any], tier: str, modules: list[str], warmup: int) -> dict[str, Any]:
    """TransformerConfig's graph settings for a tier. `known`: field name -> its type as annotated (a string).

    Raises ValueError for module sets that the release has no word for.
    """
    impl = IMPLS[tier]
    fields: dict[str, Any] = {"cuda_graph_warmup_steps": warmup}
    if "cuda_graph_modules" in known:
        return {**fields, "cuda_graph_impl": impl, "cuda_graph_modules": list(modules)}
    if impl == "full_iteration":
        impl, modules = "local", ["full_iteration"]
    if "List" in str(known.get("cuda_graph_scope", "")):
        return {**fields, "cuda_graph_impl": impl, "cuda_graph_scope": list(modules) or "full"}
    if len(modules) > 1:
        raise ValueError(f"this release captures one of full, attn or full_iteration, not {', '.join(modules)}")
    return {**fields, "cuda_graph_impl": impl, "cuda_graph_scope": modules[0] if modules else "full"}
