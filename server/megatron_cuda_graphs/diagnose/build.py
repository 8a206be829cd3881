"""Compiles the declared failure modes and the rule catalogue into the index that the diagnoser loads.

Declared once: a mode's words, run-time texts and signs in `data/failure_modes/<family>.yaml`; the texts of
configuration checks in `rules/`, each of which names its mode. `tools/make_failure_index.py` writes the result to
`data/failure_index.json`, so that a diagnosis imports neither.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .text import squash

__all__ = ["DECLARED", "compile_index", "declared", "duplicates", "fragments"]

DECLARED = Path(__file__).parents[1] / "data" / "failure_modes"
_HOLE = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_TEXT_KEYS = {"in", "at", "raises", "text", "echo", "confidence", "note"}
_WORDS = ("text", "any", "any2", "none")
_SIGNAL_KEYS = {*_WORDS, "all_of", "raises", "frames", "not_frames", "code", "context", "test", "echo", "confidence"}
_VARIANT_KEYS = {"when", "cause", "fix", "change"}
_MODE_KEYS = {
    "symptom", "cause", "fix", "change", "collect", "texts", "signals", "symptoms", "notes", "verdict", "looks_like",
    "note", "variants", "impl",
}  # fmt: skip


def declared() -> dict[str, dict[str, Any]]:
    """Every mode by name, as declared, with its `family` and the family's `about`.

    Raises:
        ValueError: a mode, text or signal has an unknown key, or a name stands twice.
    """
    import yaml

    modes: dict[str, dict[str, Any]] = {}
    for path in sorted(DECLARED.glob("*.yaml")):
        family = yaml.safe_load(path.read_text("utf-8"))
        for name, mode in family["modes"].items():
            where = f"{path.name}: {name}"
            if name in modes:
                raise ValueError(f"{where}: declared twice")
            _known(where, mode, _MODE_KEYS)
            for text in mode.get("texts", ()):
                _known(where, text, _TEXT_KEYS)
            for signal in mode.get("signals", ()):
                _known(where, signal, _SIGNAL_KEYS)
            for variant in mode.get("variants", ()):
                _known(where, variant, _VARIANT_KEYS)
                _known(where, variant["when"], _SIGNAL_KEYS - {"confidence", "echo"})
            modes[name] = {**mode, "family": path.stem, "about": family["about"]}
    return modes


def _known(where: str, mapping: dict[str, Any], keys: set[str]) -> None:
    if unknown := set(mapping) - keys:
        raise ValueError(f"{where}: unknown keys {sorted(unknown)}")


def fragments(template: str) -> list[str]:
    """The fixed parts of a format template, squashed; `{{` and `}}` are braces."""
    parts, start, fixed = [], 0, ""
    for hole in _HOLE.finditer(template):
        fixed += template[start : hole.start()]
        start = hole.end()
        if hole[0] in ("{{", "}}"):
            fixed += hole[0][0]
        else:
            parts.append(fixed)
            fixed = ""
    parts.append(fixed + template[start:])
    return [part for part in map(squash, parts) if part]


def _key(package: str, template: str) -> tuple[str, str]:
    return package, squash(_HOLE.sub("{}", template))


def duplicates(rules: list[Any]) -> list[tuple[str, str, str]]:
    """(mode, text, rule) for texts of modes that a rule declares as well; there should be none."""
    asserted = {_key(r.package, t.template): r.id for r in rules if r.failure_mode for t in r.texts if t.template}
    return [
        (name, text["text"], asserted[key])
        for name, mode in declared().items()
        for text in mode.get("texts", ())
        if (key := _key(text["in"].partition(" ")[0], text["text"])) in asserted
    ]


def _texts(modes: dict[str, dict[str, Any]], rules: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for rule in rules:
        if rule.failure_mode is None:
            continue
        if rule.failure_mode not in modes:
            raise ValueError(f"{rule.id} names the failure mode {rule.failure_mode!r}, which is not declared")
        rows += [
            {
                "mode": rule.failure_mode,
                "package": rule.package,
                "releases": str(text.releases),
                "at": rule.symbol,
                "raises": text.exception,
                "text": text.template,
                "rule": rule.id,
            }
            | ({"note": True} if rule.severity != "error" else {})
            for text in rule.texts
        ]
    asserted = {_key(row["package"], row["text"]) for row in rows}
    for name, mode in modes.items():
        for text in mode.get("texts", ()):
            package, _, releases = text["in"].partition(" ")
            if text["text"] and _key(package, text["text"]) in asserted:
                continue  # the rule's declaration holds; `duplicates` tells
            rows.append(
                {
                    "mode": name,
                    "package": package,
                    "releases": releases,
                    "at": text["at"],
                    "raises": text.get("raises"),
                    "text": text["text"],
                }
                | {key: text[key] for key in ("echo", "confidence", "note") if key in text}
            )
    for row in rows:
        row["parts"] = fragments(row["text"])
    return rows


def _signal(signal: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in _WORDS:
        if key in signal:
            out[key] = [squash(word) for word in signal[key]]
    if "all_of" in signal:
        out["all_of"] = [[squash(word) for word in group] for group in signal["all_of"]]
    if "raises" in signal:
        out["raises"] = signal["raises"] if isinstance(signal["raises"], list) else [signal["raises"]]
    if "code" in signal:
        out["code"] = [squash(word) for word in signal["code"]]
    plain = ("frames", "not_frames", "context", "test", "echo", "confidence")
    return out | {key: signal[key] for key in plain if key in signal}


def compile_index(rules: list[Any]) -> dict[str, Any]:
    """The index, JSON-ready: `modes`, `texts`, `signals`, `symptoms`, `notes`."""
    modes = declared()
    words = ("family", "symptom", "cause", "fix", "change", "collect", "verdict", "looks_like", "note", "impl")
    return {
        "modes": {
            name: {key: mode[key] for key in words if key in mode}
            | {"rules": sorted({r.id for r in rules if r.failure_mode == name})}
            | ({"variants": [v | {"when": _signal(v["when"])} for v in mode["variants"]]} if "variants" in mode else {})
            for name, mode in modes.items()
        },
        "texts": _texts(modes, rules),
        "signals": [{"mode": name} | _signal(s) for name, mode in modes.items() for s in mode.get("signals", ())],
        "symptoms": [
            [name, [[alternative.strip().lower() for alternative in str(group).split("|")] for group in groups]]
            for name, mode in modes.items()
            for groups in mode.get("symptoms", ())
        ],
        "notes": [[name, squash(note)] for name, mode in modes.items() for note in mode.get("notes", ())],
    }
