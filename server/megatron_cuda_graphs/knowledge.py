"""Texts that ship with the package: the skill, the card, failure modes. Installed copy first, else the checkout's."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import EnvironmentLacks

__all__ = ["card_text", "failure_mode_page", "failure_modes", "find", "skill_files"]

HERE = Path(__file__).parent
INSTALLED, CHECKOUT = HERE / "skill", HERE.parents[1]


def find(name: str) -> Path:
    """A file of the skill (`SKILL.md`, `card.yaml`, `references/...`).

    Raises:
        EnvironmentLacks: the installation is not whole.
    """
    for base in (INSTALLED, CHECKOUT):
        if (base / "SKILL.md").is_file() and (base / name).is_file():
            return base / name
    raise EnvironmentLacks(f"{name} is missing from this installation.", hint="Install the package again.")


def skill_files() -> dict[str, Path]:
    """SKILL.md, card.yaml and what the skill refers to, by their path within the skill."""
    base = find("SKILL.md").parent
    names = [
        "SKILL.md",
        "card.yaml",
        *sorted(p.relative_to(base).as_posix() for p in (base / "references").glob("*.md")),
    ]
    return {name: base / name for name in names if (base / name).is_file()}


def card_text() -> str:
    """card.yaml."""
    return find("card.yaml").read_text("utf-8")


@lru_cache(maxsize=1)
def failure_modes() -> dict[str, dict[str, Any]]:
    """Every failure mode by name: symptom, cause, fix, and the rules that refuse it beforehand."""
    from .diagnose.build import declared
    from .rules import catalogue

    rules: dict[str, list[str]] = {}
    for rule in catalogue():
        if rule.failure_mode:
            rules.setdefault(rule.failure_mode, []).append(rule.id)
    keys = ("symptom", "cause", "fix", "family", "about", "texts", "looks_like")
    return {
        name: {**{k: mode[k] for k in keys if k in mode}, "rules": rules.get(name, [])}
        for name, mode in declared().items()
    }


def failure_mode_page(name: str) -> str:
    """A failure mode as a page in Markdown."""
    mode = failure_modes()[name]
    lines = [f"# {name}", "", f"What people see: {mode['symptom']}", "", f"Cause: {mode.get('cause', '')}".rstrip(), ""]
    if mode.get("looks_like"):
        lines += [f"It is no CUDA-graph failure; it looks like {mode['looks_like']}.", ""]
    if mode.get("fix"):
        lines += [f"Fix: {mode['fix']}", ""]
    if mode["rules"]:
        lines += [f"Refused beforehand by: {', '.join(mode['rules'])}", ""]
    said = [_line(t["in"], t.get("raises"), t["text"]) for t in mode.get("texts", ())]
    said += _rule_texts(mode["rules"])
    if said:
        lines += ["What upstream says:", "", *dict.fromkeys(said), ""]
    return "\n".join(lines)


def _line(where: str, exception: str | None, text: str) -> str:
    return f"- {where}: `{exception + ': ' if exception else ''}{text}`"


def _rule_texts(ids: list[str]) -> list[str]:
    """What upstream says in the checks that rules mirror."""
    from .render.rule import readable, releases
    from .rules import explain

    found = [rule for i in ids if (rule := explain(i)) is not None]
    return [
        _line(f"{r.package} {releases(t.releases, r.package)}", t.exception, readable(t.template))
        for r in found
        for t in r.texts
    ]
