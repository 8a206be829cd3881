"""A rule as a page: the same text in docs/rules/, `explain` and the MCP resource."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..releases import BRIDGE, CORE, Range, parse
from . import text as render

if TYPE_CHECKING:
    from ..rules import Rule
    from ..validate import ValidationReport

__all__ = ["Example", "as_dict", "example", "examples", "judged", "page", "readable", "releases", "title", "written"]

EXAMPLES = Path(__file__).parents[1] / "data" / "rule_examples.json"
_EVIDENCE = {
    "executed": "recorded from the real classes of the released package",
    "source": "read from the released source; not executed",
    "observed": "seen in runs on GPUs",
}
Example = Mapping[str, Any]  # {"stack": {...}, "frontend": ..., "config": mapping or text, "env": {...} or null}


def releases(covered: Range, package: str = "megatron-core") -> str:
    """A range in words: `all covered releases`, `0.16 and newer`, `0.16 to 0.17`, `0.15`."""
    known = BRIDGE if package == "megatron-bridge" else CORE
    inside = [v for v in known if parse(v) in covered]
    if not inside:
        return "none of those covered"
    first, last = (".".join(map(str, part)) for part in covered)
    if len(inside) == len(known):
        return "all covered releases"
    if not covered.last or inside[-1] == known[-1]:
        return f"{first or inside[0]} and newer"
    if not covered.first or inside[0] == known[0]:
        return f"up to {last}"
    return first if first == last else f"{first} to {last}"


@lru_cache(maxsize=1)
def _examples() -> dict[str, list[Example]]:
    try:
        return dict(json.loads(EXAMPLES.read_text("utf-8")))
    except FileNotFoundError:
        return {}


def examples(rule_id: str) -> list[Example]:
    """Configurations that the rule speaks up about, with what each release says; also the rule's test cases."""
    return _examples().get(rule_id, [])


def example(rule_id: str) -> Example | None:
    """The example that the rule's page shows."""
    return next(iter(examples(rule_id)), None)


def written(config: Any, frontend: str) -> tuple[str, str]:
    """A configuration as people write it, and the name of the language."""
    if isinstance(config, str):
        return config.rstrip("\n"), "bash" if frontend == "megatron-lm" else "yaml"
    if frontend == "megatron-lm":
        return json.dumps(config), "json"
    import yaml

    return yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=100).rstrip("\n"), "yaml"


def judged(shown: Example) -> ValidationReport:
    """The report of an example."""
    from ..stack import Stack
    from ..validate import validate_config

    return validate_config(
        shown["config"], stack=Stack(**shown["stack"]), env=shown.get("env"), frontend=shown["frontend"]
    )


def readable(template: str) -> str:
    """A message with its values left out: `recompute_granularity=…` for `recompute_granularity={…!r}`."""
    from string import Formatter

    if "{" not in template and "}" not in template:
        return template
    parts = (text + ("…" if name is not None else "") for text, name, _, _ in Formatter().parse(template))
    return re.sub(r"…\.?$", "…", "".join(parts))


def title(rule: Rule) -> str:
    """The first sentence of what a rule says."""
    return re.split(r"(?<=[\w)'\]`])\. (?=[A-Z])|; |: ", readable(rule.says), maxsplit=1)[0].rstrip(".")


def as_dict(rule: Rule) -> dict[str, Any]:
    """A rule as data."""
    return {
        "id": rule.id,
        "name": rule.name,
        "severity": rule.severity,
        "phase": rule.phase,
        "frontends": sorted(rule.frontends - {"none"}),
        "package": rule.package,
        "releases": releases(rule.releases, rule.package),
        "fields": list(rule.fields),
        "message": readable(rule.says),
        "upstream": [
            {"releases": releases(t.releases, rule.package), "exception": t.exception, "message": readable(t.template)}
            for t in rule.texts
        ],
        "symbol": rule.symbol or None,
        "failure_mode": rule.failure_mode,
        "evidence": rule.evidence,
        "why": " ".join(rule.doc.split()),
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def page(rule: Rule) -> str:
    """The rule's page in Markdown."""
    facts = as_dict(rule)
    inputs = ", ".join(facts["frontends"]) or "found while reading the input or the stack"
    rows = [
        ("severity", f"{rule.severity}, in {rule.phase}"),
        ("front ends", inputs),
        ("releases", f"{rule.package}: {facts['releases']}" if facts["frontends"] else "any"),
        ("fields", ", ".join(f"`{f}`" for f in rule.fields) or "any"),
        ("decided by", f"`{rule.symbol}`" if rule.symbol else "this package"),
        ("evidence", _EVIDENCE[rule.evidence] if rule.symbol else "the release table"),
    ]
    if rule.failure_mode:
        rows.append(("failure mode", f"[{rule.failure_mode}](../failure-modes/{rule.failure_mode}.md)"))
    lines = [f"# {rule.id} {rule.name}", "", facts["message"], "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {_cell(text)} |" for name, text in rows]
    if facts["why"]:
        lines += ["", "## Why", "", facts["why"]]
    if rule.texts:
        lines += ["", "## What upstream says", "", "| release | exception | message |", "| --- | --- | --- |"]
        lines += [
            f"| {releases(t.releases, rule.package)} | {t.exception or 'log line'} | `{_cell(readable(t.template))}` |"
            for t in rule.texts
        ]
    elif rule.symbol:
        lines += ["", "Upstream says nothing about it."]
    shown = example(rule.id)
    if shown is not None and (told := _example(rule, shown)):
        lines += ["", "## Example", "", *told]
    return "\n".join(lines) + "\n"


def _example(rule: Rule, shown: Example) -> list[str]:
    report = judged(shown)
    found = next((f for f in report.findings if f.rule_id == rule.id), None)
    if found is None:  # the table is out of date, which the tests say
        return []
    bad, language = written(shown["config"], shown["frontend"])
    env = shown.get("env")
    with_env = f", with {' '.join(f'{k}={v}' for k, v in env.items())} in the job's environment" if env else ""
    lines = [
        f"For {render.stack_line(report.stack)}{with_env}:", "", f"```{language}", bad, "```", "",
        "```text", render.finding(found, result=report, own=True), "```",
    ]  # fmt: skip
    if found.severity == "error" and report.fixed is not None:
        good, _ = written(report.fixed, shown["frontend"])
        lines += ["", "Fixed:", "", f"```{language}", good, "```"]
        extra = {k: v for k, v in (report.fixed_env or {}).items() if (env or {}).get(k) != v}
        if extra:
            lines += ["", f"with {' '.join(f'`{k}={v}`' for k, v in extra.items())} in the job's environment."]
    return lines
