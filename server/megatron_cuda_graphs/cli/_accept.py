"""Findings that someone has looked at and accepts: `--ignore`, comments in the input, a baseline file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..files import read_file

if TYPE_CHECKING:
    from ..report import Finding

__all__ = ["Baseline", "Comments", "rule_ids"]

_COMMENT = re.compile(r"#\s*mcg:\s*ignore\[([^\]]*)\]")


def rule_ids(text: Iterable[str]) -> frozenset[str]:
    """Ids from ids or names, comma separated.

    Raises:
        InputError: there is no such rule.
    """
    from ..rules import explain

    ids = set()
    for name in (part.strip() for item in text for part in item.split(",")):
        if not name:
            continue
        rule = explain(name)
        if rule is None:
            raise InputError(f"there is no rule {name!r}.", hint="`megatron-cuda-graphs explain` lists them.")
        ids.add(rule.id)
    return frozenset(ids)


@dataclass
class Comments:
    """`# mcg: ignore[MCG044] reason` in a text.

    It covers findings on its own line, on the next line when it stands alone, and, before the first line that is
    not a comment, the whole text.
    """

    lines: dict[int, frozenset[str]] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    used: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def of(cls, text: str) -> Comments:
        """The comments of a text."""
        found = cls()
        if "mcg:" not in text:
            return found
        head = True
        for number, line in enumerate(text.splitlines(), 1):
            alone = line.lstrip().startswith("#")
            if (match := _COMMENT.search(line)) is not None:
                ids = frozenset(part.strip() for part in match[1].split(",") if part.strip())
                if head and alone:
                    found.whole |= dict.fromkeys(ids, number)
                found.lines[number] = ids
            head = head and (alone or not line.strip())
        return found

    def covers(self, finding: Finding) -> bool:
        """Whether a comment accepts this finding; remembers that the comment was of use."""
        names = {finding.rule_id, finding.name}
        line = finding.location.line if finding.location else None
        for at in (line, line - 1) if line else ():
            for name in names & self.lines.get(at, frozenset()):
                self.used.add((at, name))
                return True
        for name in names & self.whole.keys():
            self.used.add((self.whole[name], name))
            return True
        return False

    @property
    def unused(self) -> list[tuple[int, str]]:
        """Line and id of what accepts nothing."""
        return sorted((n, i) for n, ids in self.lines.items() for i in ids if (n, i) not in self.used)


class Baseline:
    """Findings that were there when the baseline was written."""

    def __init__(self, path: str | None) -> None:
        self.left: Counter[tuple[str, str, str]] = Counter()
        if path is None:
            return
        try:
            data = json.loads(read_file(path))
            rows = [(row["path"], row["rule"], row["fields"]) for row in data["findings"]]
        except (ValueError, KeyError, TypeError):
            raise InputError("not a baseline written by --write-baseline.", path=path) from None
        self.left.update(rows)

    @staticmethod
    def key(path: str, finding: Finding) -> tuple[str, str, str]:
        return Path(path).as_posix(), finding.rule_id, ",".join(finding.fields)

    def covers(self, path: str, finding: Finding) -> bool:
        """Whether the baseline holds this finding; each of its entries counts once."""
        key = self.key(path, finding)
        if self.left[key] <= 0:
            return False
        self.left[key] -= 1
        return True

    @classmethod
    def text(cls, findings: Sequence[tuple[str, Finding]]) -> str:
        """The baseline file that accepts these findings."""
        rows = sorted(cls.key(path, f) for path, f in findings if f.severity != "info")
        return (
            json.dumps({"findings": [dict(zip(("path", "rule", "fields"), r, strict=True)) for r in rows]}, indent=1)
            + "\n"
        )
