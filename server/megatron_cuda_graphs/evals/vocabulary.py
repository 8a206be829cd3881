"""The names an answer can use: fields of every covered release, module names, values, and what people call them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

__all__ = [
    "LISTS",
    "MODULES",
    "MODULE_FIELDS",
    "NOTHING",
    "coerce",
    "field_name",
    "is_environment",
    "known_fields",
    "leaf",
    "names_in",
]

MODULE_FIELDS = ("cuda_graph_modules", "cuda_graph_scope")
LISTS = (*MODULE_FIELDS, "recompute_modules", "offload_modules")
MODULES = frozenset({
    "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full", "full_iteration", "full_iteration_inference",
})  # fmt: skip
_PARTS = MODULES | {
    "core_attn", "layernorm", "mla_up_proj", "shared_experts", "moe_act", "attn_norm", "qkv_linear", "attn_proj",
    "mlp_norm", "expert_fc1", "fused_group_mlp", "shared_expert_fc1",
}  # fmt: skip
_IMPLS = {
    "none": "none", "off": "none", "null": "none", "disabled": "none", "false": "none", "local": "local",
    "te": "transformer_engine", "transformer_engine": "transformer_engine", "full_iteration": "full_iteration",
}  # fmt: skip
_WORDS = frozenset({
    "selective", "full", "uniform", "block", "layer", "none", "local", "alltoall", "flex", "allgather", "auto",
    "native", "te", "torch", "transformer_engine", "inference_optimized", "attn", "full_iteration", "hybridep",
    "deepep", "delayed", "mxfp8", "tensorwise", "blockwise", "fused", "flash", "unfused",
})  # fmt: skip
_TRUE, _FALSE = frozenset({"true", "on", "enabled", "yes"}), frozenset({"false", "off", "disabled", "no"})
_UNSET = frozenset({"null", "none", "unset", "nothing", "~"})
_PREFIX = re.compile(
    r"^(?:(?:cfg|config|conf|self|recipe|container|args|model_cfg|model_config|overrides?|provider|c)\.)+"
)
NOTHING = object()  # what a text that is no value is coerced to


@lru_cache(maxsize=1)
def known_fields() -> frozenset[str]:
    """Leaf names of every field and flag of every covered release."""
    from .. import arguments, fields
    from ..releases import BRIDGE, CORE

    names: set[str] = {"pad_cu_seqlens", "pad_to_max_length", "enable_cuda_graph", "external_cuda_graph"}
    for release in CORE:
        for cls in ("TransformerConfig", "MLATransformerConfig"):
            names |= set(fields.core_fields(release, cls))
        names |= {flag.lstrip("-").replace("-", "_") for flag in arguments.flags(release)}
    for release in BRIDGE:
        names |= set(fields.bridge_fields(release))
        for section in fields.sections(release):
            names |= {name.rpartition(".")[2] for name in fields.section_fields(release, section) or {}}
    return frozenset(n for n in names if "_" in n or n in ("fp8", "fp4", "bf16", "fp16"))


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    from .. import fields
    from ..releases import BRIDGE

    values: dict[str, Any] = {}
    for section in fields.sections(BRIDGE[-1]):
        for name, value in (fields.section_fields(BRIDGE[-1], section) or {}).items():
            values.setdefault(name.rpartition(".")[2], value)
    return {**values, **fields.bridge_fields(BRIDGE[-1])}


def is_environment(name: str) -> bool:
    """True for the name of an environment variable."""
    return bool(re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", name))


def field_name(raw: str) -> str | None:
    """`--cuda-graph-impl`, `cfg.model.cuda_graph_impl` -> the dotted name with underscores; None for no known field."""
    name = raw.strip("`'\"*")
    if name.startswith("--"):
        name = name[2:].replace("-", "_")
    name = _PREFIX.sub("", name).removeprefix("env_vars.").removeprefix("ENV_VARS.")
    if is_environment(name):
        return name
    last = leaf(name)
    if last in known_fields() or "cuda_graph" in last:
        return name
    return None


def leaf(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def names_in(text: str, vocabulary: frozenset[str] = _PARTS) -> list[str]:
    """The module names in a run of text, in order; enum members count by their name."""
    found = []
    for word in re.findall(r"[A-Za-z_][\w-]*", text):
        name = word.lower().replace("-", "_")
        name = (
            {"router": "moe_router", "preprocess": "moe_preprocess", "attention": "attn"}.get(name, name)
            if name in ("router", "preprocess", "attention")
            else name
        )
        if name in vocabulary:
            found.append(name)
    return list(dict.fromkeys(found))


def coerce(name: str, raw: str) -> Any:
    """The value that a text stands for as this field's, or NOTHING."""
    last, text = leaf(name), raw.strip().strip("`").strip().rstrip(",;")
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    word = text[1:-1] if quoted else text.rstrip(".")
    low = word.lower()
    if is_environment(last):
        return (
            word
            if re.fullmatch(r"[\w:.,=/-]*", word) and (quoted or re.search(r"\d|:|_", word) or low in _TRUE | _FALSE)
            else NOTHING
        )
    if last in LISTS:
        members = _list(text, low)
        bare = isinstance(members, list) and len(members) == 1 and text[:1] not in "[(" and last in MODULE_FIELDS
        return members[0] if bare else members  # before 0.16 a name and a list of it are different things
    if last == "cuda_graph_impl":
        known = _IMPLS.get(low.replace("-", "_").replace(" ", "_"))
        return known if known else word if quoted else NOTHING
    if last == "inference_cuda_graph_scope":
        member = low.rpartition(".")[2]
        return member if member in ("none", "layer", "block") else word if quoted else NOTHING
    if re.fullmatch(r"[-+]?\d+", word):
        default = _defaults().get(last)
        return bool(int(word)) if isinstance(default, bool) and word in "01" else int(word)
    if re.fullmatch(r"[-+]?(?:\d+\.\d*|\.\d+|\d+e[-+]?\d+)", low):
        return float(word)
    if text[:1] in "[(":
        try:
            import yaml

            return yaml.safe_load("[" + text.strip("[]()") + "]")
        except yaml.YAMLError:
            return NOTHING
    default = _defaults().get(last)
    if low in _UNSET and not isinstance(default, bool):
        return None
    if low in _TRUE and (isinstance(default, bool) or low in ("true", "false") or default is None):
        return True
    if low in _FALSE and (isinstance(default, bool) or low in ("true", "false") or default is None):
        return False
    if quoted or (low in _WORDS and not isinstance(default, (bool, int, float))):
        return word
    return NOTHING


def _list(text: str, low: str) -> Any:
    if re.fullmatch(r"(?:\[\s*\]|\(\s*\)|\"\"|''|empty|an empty list|none|null|unset|the empty list)", low):
        return [] if "[" in low or "empty" in low or "(" in low else None
    names = names_in(text)
    if names:
        return names
    inner = re.findall(r"[\w ]+", text.strip("[]()\"'"))
    return [i.strip() for i in inner if i.strip()] if text[:1] in "[(\"'" else NOTHING
