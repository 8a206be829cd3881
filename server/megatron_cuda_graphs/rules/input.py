"""MCG900-MCG919: the input itself: fields and releases that are not there, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from .. import fields
from ..settings import Settings
from . import _state as state
from ._rule import Change, rule, to, unset

# Found by the reader or the stack, so they have no condition of their own here.


def _outside(id: str, name: str, severity: Any, says: str, doc: str) -> Any:
    def check(s: Settings) -> Any:
        return False

    check.__doc__ = doc
    return rule(
        id,
        name,
        at=("construct", 0),
        severity=severity,
        phase="parse",
        says=says,
        fields=(),
        symbol="",
        exception=None,
        frontends=frozenset({"none"}),
        evidence="source",
    )(check)


NOT_READ = _outside(
    "MCG900", "not-read", "info", "Part of the input could not be read, and so was not judged.",
    "A value that is only known at run time, a part in another format, or text with no meaning for a configuration.",
)  # fmt: skip
STACK = {
    "release-not-covered": _outside(
        "MCG901", "release-not-covered", "warning", "The release is not one of those covered.",
        "The nearest older covered release stands in; what changed since is not seen.",
    ),
    "pair-does-not-import": _outside(
        "MCG902", "pair-does-not-import", "error", "These releases do not import together.",
        "Bridge releases import names from megatron-core that only some of its releases have.",
    ),
    "no-bridge-for-core": _outside(
        "MCG903", "no-bridge-for-core", "warning", "No covered Bridge release belongs to this megatron-core.",
        "A Bridge configuration can only be judged with a Bridge release.",
    ),
    "pair-not-released-together": _outside(
        "MCG907", "pair-not-released-together", "warning", "This Bridge release was made for another megatron-core.",
        "Wheels of Bridge from 0.4 on do not pin megatron-core, so a newer one can come to stand below. Configurations "
        "are judged as the two judge them together; what the training loop then does was made for the other release. "
        "Bridge 0.4 on megatron-core 0.18 or newer refuses local graphs (MCG224) and leaves full iteration eager "
        "(MCG512).",
    ),
}  # fmt: skip

# Where a field went in releases that do not have it (older spelling for newer name).
_OLD_SWITCH = {"local": "enable_cuda_graph", "transformer_engine": "external_cuda_graph"}


def _rename(s: Settings, name: str, value: Any) -> Iterator[list[Change]]:
    """Ways to write a field that this release does not have."""
    known = s.defaults
    if name == "cuda_graph_modules" and "cuda_graph_scope" in known and "cuda_graph_scope" not in s.written:
        names = [m for m in state.as_list(value) if m != "full"]
        if s.core >= (0, 16):
            yield [unset(name), to("cuda_graph_scope", names)]
        else:
            yield [unset(name), to("cuda_graph_scope", names[0] if names == ["attn"] else "full")]
    elif name == "cuda_graph_impl" and "enable_cuda_graph" in known:
        flag = _OLD_SWITCH.get(value) if isinstance(value, str) else None
        yield [unset(name), *([to(flag, True)] if flag and flag not in s.written else [])]
    else:
        guesses = fields.did_you_mean(name, (n for n in known if n not in s.written and "." not in n), limit=1)
        if guesses:
            yield [unset(name), to(guesses[0], value)]
    yield [unset(name)]


def _rename_in(s: Settings, section: str, field: str, value: Any) -> Iterator[list[Change]]:
    known = [n.removeprefix(f"{section}.") for n in s.defaults if n.rpartition(".")[0] == section]
    for guess in fields.did_you_mean(field, known, limit=1):
        if f"{section}.{guess}" not in s.written:
            yield [unset(f"{section}.{field}"), to(f"{section}.{guess}", value)]
    yield [unset(f"{section}.{field}")]


def _in_sections(s: Settings) -> list[dict[str, Any]]:
    """Names about graphs in a section of a ConfigContainer whose class does not have them."""
    found = []
    defaults = s.defaults
    for name in [n for n in s.written if n not in defaults and "." in n]:
        section, _, field = name.rpartition(".")
        if not _about_graphs(field):
            continue
        value = s.written[name]
        target = s.written.get(f"{section}._target_")
        classes = fields.section_classes(s.judged.bridge_version or "", section)
        cls = target.rpartition(".")[2] if isinstance(target, str) else classes[0] if classes else None
        if cls is None:
            continue
        why = f" It is a field of model, not of {section}." if field in s.defaults else ""
        found.append({
            "field": field, "why": why, "_fields": (name,), "_fixes": list(_rename_in(s, section, field, value)),
            "cls": cls,
        })  # fmt: skip
    return found


def _unknown(s: Settings, graphs_only: bool | None) -> list[dict[str, Any]]:
    """Unknown names of the model, in the order written: those about graphs, the others, or (None) all."""
    found = []
    defaults = s.defaults
    for name in [n for n in s.written if n not in defaults and "." not in n and n[:1] != "_"]:
        if graphs_only is not None and graphs_only != _about_graphs(name):
            continue
        first = fields.first_release(name)
        guesses = fields.did_you_mean(name, s.defaults, limit=1)
        if first is not None:
            last = fields.last_release(name)
            why = f" It exists from {first} to {last}."
        else:
            why = f" Did you mean {guesses[0]}?" if guesses else ""
        found.append({
            "field": name, "why": why, "_fields": (name,), "_fixes": list(_rename(s, name, s.written[name])),
            "cls": s.provider or ("TransformerConfig" if s.defaults is not None else ""),
        })  # fmt: skip
    return found


@lru_cache(maxsize=1024)
def _about_graphs(name: str) -> bool:
    return "cuda_graph" in name or bool(fields.did_you_mean(name, _GRAPH_FIELDS, limit=1))


_GRAPH_FIELDS = (
    "cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules", "inference_cuda_graph_scope", "enable_cuda_graph",
    "external_cuda_graph", "cuda_graph_warmup_steps", "use_te_rng_tracker",
)  # fmt: skip


@rule(
    "MCG904",
    "unknown-keyword",
    at=("construct", 100),
    frontends=frozenset({"core"}),
    exception="TypeError",
    symbol="megatron/core/transformer/transformer_config.py :: TransformerConfig.__init__",
    text="TransformerConfig.__init__() got an unexpected keyword argument '{field}'",
    fields=(),
    says="This release's TransformerConfig has no field {field}.{why}",
    failure_mode="not_cuda_graph_config",
)
def unknown_keyword(s: Settings) -> Any:
    """A keyword that the dataclass does not have is a TypeError, whatever it is about."""
    return _unknown(s, None)  # Python names the first one written


@rule(
    "MCG905",
    "unknown-graph-field",
    at=("construct", 110),
    frontends=frozenset({"bridge"}),
    package="megatron-bridge",
    exception="TypeError",
    symbol="megatron/bridge/models/gpt_provider.py :: GPTModelProvider.__init__",
    text="{cls}.__init__() got an unexpected keyword argument '{field}'",
    fields=(),
    says="This release's {cls} has no field {field}.{why}",
    failure_mode="not_cuda_graph_config",
)
def unknown_graph_field(s: Settings) -> Any:
    """The model's class, and that of each section, is built with what the configuration gives it."""
    return [*_unknown(s, True), *_in_sections(s)]


@rule(
    "MCG906",
    "unknown-field",
    at=("construct", 120),
    frontends=frozenset({"bridge"}),
    package="megatron-bridge",
    severity="info",
    exception=None,
    symbol="megatron/bridge/models/gpt_provider.py :: GPTModelProvider.__init__",
    fields=(),
    says="{field} is not a field of this release's {cls}, as far as is known.{why}",
)
def unknown_field(s: Settings) -> Any:
    """Models bring fields of their own, so a field that has nothing to do with graphs is only pointed out."""
    if fields.model_class(s.judged.bridge_version or "", s.provider or "") is None:
        return False
    return _unknown(s, False)
