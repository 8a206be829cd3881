"""Public shapes of well-known models, for people who name the model instead of its fields.

A look-up, never a decision: what is found here becomes facts like any others and is listed under the assumptions.
Source: each model's public Hugging Face `config.json`.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["SHAPES", "shape_of", "words_of"]


def _dense(layers: int, hidden: int, ffn: int, heads: int, groups: int, vocab: int) -> dict[str, Any]:
    return {"num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": ffn, "num_attention_heads": heads,
            "num_query_groups": groups, "vocab_size": vocab}  # fmt: skip


def _moe(
    layers: int, hidden: int, experts: int, topk: int, expert_ffn: int, heads: int, groups: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {"num_layers": layers, "hidden_size": hidden, "num_moe_experts": experts, "moe_router_topk": topk,
            "moe_ffn_hidden_size": expert_ffn, "num_attention_heads": heads, "num_query_groups": groups,
            "vocab_size": vocab, **more}  # fmt: skip


SHAPES: dict[str, dict[str, Any]] = {
    "llama3 8b": _dense(32, 4096, 14336, 32, 8, 128256),
    "llama3 70b": _dense(80, 8192, 28672, 64, 8, 128256),
    "llama3 405b": _dense(126, 16384, 53248, 128, 8, 128256),
    "qwen3 30b a3b": _moe(48, 2048, 128, 8, 768, 32, 4, 151936),
    "qwen3 235b a22b": _moe(94, 4096, 128, 8, 1536, 64, 4, 151936),
    "qwen3 next 80b a3b": _moe(48, 2048, 512, 10, 512, 16, 2, 151936, moe_shared_expert_intermediate_size=512,
                               experimental_attention_variant="gated_delta_net"),
    "gpt oss 20b": _moe(24, 2880, 32, 4, 2880, 64, 8, 201088),
    "gpt oss 120b": _moe(36, 2880, 128, 4, 2880, 64, 8, 201088),
    "deepseek v3": _moe(61, 7168, 256, 8, 2048, 128, 128, 129280, moe_shared_expert_intermediate_size=2048,
                        multi_latent_attention=True, moe_layer_freq=[0] * 3 + [1] * 58),
    "mixtral 8x7b": _moe(32, 4096, 8, 2, 14336, 32, 8, 32000),
}  # fmt: skip


def words_of(name: str) -> str:
    """'meta-llama/Llama-3.1-8B-Instruct' -> 'llama3 8b instruct': lower case, parts apart, minor versions dropped."""
    low = name.rpartition("/")[2].lower()
    low = re.sub(r"[-_.]+", " ", low)
    low = re.sub(r"\bllama ?3( \d)?(?= |$)", "llama3", low)
    return re.sub(r"\b(qwen|deepseek)(\d)", r"\1\2", low).strip()


def shape_of(name: str) -> tuple[str, dict[str, Any]] | None:
    """The known model that a name means, and its shape."""
    words = f" {words_of(name)} "
    for known, shape in SHAPES.items():
        if f" {known} " in words.replace(" vl ", " vl-"):
            return known, shape
    return None
