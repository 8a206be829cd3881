"""One raw log line in, what was said, by which rank and when, out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["LINE_LIMIT", "Line", "clean", "peel", "squash"]

LINE_LIMIT = 8_192  # characters of one line that are looked at

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127, 65279))
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_ISO = rf"\d{{4}}[-/]\d\d[-/]\d\d[T _]{_TIME}"
_LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"

# Everything that log collectors, launchers and loggers put in front of what a process said.
_PREFIX = re.compile(
    rf"""\s*(?:
      \[rank(?P<rank>\d{{1,7}})\]:?\s?
    | \[default(?P<local>\d{{1,7}})\]:?
    | \[\d+,(?P<mpi>\d+)\]<std(?:out|err)>:
    | \((?P<actor>[\w.]+)[ ,]+(?:rank=\d+,\s*)?pid=\d+(?:,[^)]*)?\)\s?
    | \[pod/(?P<pod>[^\]\s]+)\]\s?
    | (?P<k8s>[a-z0-9][a-z0-9.-]*-\d+)\s+[a-z0-9][a-z0-9.-]*\s+(?=\d{{4}}-\d\d-\d\dT)
    | (?P<compose>[\w.-]*\d)\s*\|\s
    | \[?(?P<iso>{_ISO})(?:Z|[+-]\d\d:?\d\d)?(?:\ [A-Z]{{2}}\d+)*\]?:?\s?(?:std(?:out|err)\ [FP]\s)?(?:[|,-]\s+)?
    | [IWEF](?P<glog>\d{{3,4}}\s{_TIME})(?:\s+\d+)?\s[\w./-]+:\d+\]\s?
    | \[(?P<cpp>[IWEF])(?P<cpptime>\d{{3,4}}\s{_TIME})\s(?P<source>[\w./-]+):\d+\]\s?
    | {_LEVEL}\s\d\d-\d\d\s{_TIME}\s(?:\[?[\w./-]+:\d+\]\s?)?
    | \[NeMo\s[A-Z]\s(?P<nemo>{_ISO})[^\]]*\]\s?
    | (?:-\s)?[\w.-]+\s-\s{_LEVEL}\s-\s
    | {_LEVEL}:[\w.-]+:\s?
    | [A-Z][a-z]{{2}}\s+\d+\s{_TIME}\s\S+\s\S+\[\d+\]:\s
    | \[?{_TIME}\]?(?:\[\d+\])?\s(?:[|-]\s)?
    | \[(?:{_LEVEL})\]\s?
    )""",
    re.VERBOSE,
)
# Only at the very start of a line: srun --label, a host name, a bare rank.
_FIRST = re.compile(
    r"\s{0,6}(?:(?P<srun>\d{1,7}):(?:\s|$)|(?P<host>(?=[\w.-]*\d)(?=[a-z])[\w.-]+):\s"
    r"|\[?[Rr](?:ank|ANK)[ _=:]?(?P<weak>\d{1,7})\]?\s*[:|]\s?)"
)
_MESSAGE_KEYS = ("log", "message", "msg", "text", "line", "body", "textPayload", "@message", "event")
_RANK_KEYS = ("rank", "global_rank", "RANK", "rank_id")
_TIME_KEYS = ("time", "timestamp", "ts", "@timestamp", "asctime", "receiveTimestamp")
_START = frozenset("[({ 0123456789\t")


class Line(NamedTuple):
    """What one log line says.

    `no` counts raw lines from 1; `rank` is a global rank, `local` torchrun's local one; `label` names the stream
    where there is no rank (a pod, host or actor); `when` is seconds within a year, or None; `source` the C++ file
    that logged it.
    """

    no: int
    text: str
    rank: int | None = None
    local: int | None = None
    label: str | None = None
    when: float | None = None
    source: str | None = None
    weak: bool = False


def squash(text: str) -> str:
    """Lower case without any white space, so that wrapping and indentation make no difference."""
    return "".join(text.split()).lower()


def clean(raw: str) -> str:
    """The line without colours and control characters, cut to LINE_LIMIT."""
    if "\x1b" in raw:
        raw = _ANSI.sub("", raw)
    if not raw.isprintable():
        raw = raw.translate(_CONTROL)
    return raw[:LINE_LIMIT]


def _seconds(stamp: str) -> float | None:
    """Seconds within a year of '2026-11-29 17:36:30,123', '1129 17:36:37.356' or '815 11:42:07'."""
    digits = re.findall(r"\d+", stamp)
    try:
        if len(digits) >= 6:
            month, day, clock = int(digits[1]), int(digits[2]), digits[3:]
        else:
            day_of_month, clock = divmod(int(digits[0]), 100), digits[1:]
            month, day = day_of_month
        fraction = float(f"0.{clock[3]}") if len(clock) > 3 else 0.0
        return ((month * 31 + day) * 24 + int(clock[0])) * 3600 + int(clock[1]) * 60 + int(clock[2]) + fraction
    except (IndexError, ValueError):
        return None


def peel(no: int, raw: str, depth: int = 0) -> Iterator[Line]:
    """The lines that one raw line holds: progress bars rewritten by carriage returns, JSON records and several
    ranks written into one line give more than one."""
    text = clean(raw)
    if "\r" in text:
        parts = [part for part in text.split("\r") if part.strip()]
        for part in parts[-32:]:
            yield from _peel_one(no, part, depth)
        return
    yield from _peel_one(no, text, depth)


def _peel_one(no: int, text: str, depth: int) -> Iterator[Line]:
    stripped = text.strip()
    if depth < 2 and stripped[:1] == "{" and stripped[-1:] == "}":
        record = _json(stripped)
        if record is not None:
            yield from _from_json(no, record, depth)
            return
    if text.count("[rank") > 1 and not text.startswith("[rank", text.rfind("[rank")):
        parts = re.split(r"(?<=\S)(?=\[rank\d{1,7}\]:)", text)
        if len(parts) > 1 and not all(re.fullmatch(r"\s*\[\w+\]:?\s*", p) for p in parts[:-1]):
            for part in parts[:64]:
                yield _strip(no, part)
            return
    yield _strip(no, text)


def _strip(no: int, text: str) -> Line:
    rank = local = when = source = None
    label: str | None = None
    weak = False
    end = 0
    if text and (text[0] in _START or text[0].isalpha()):
        first = _FIRST.match(text)
        if first:
            if first["srun"] is not None:
                label, end = first["srun"], first.end()
                rank, weak = int(first["srun"]), True
            elif first["weak"] is not None:
                rank, weak, end = int(first["weak"]), True, first.end()
            elif not text.startswith(("torch", "cuda", "http")):
                label, end = first["host"], first.end()
        for _ in range(6):
            match = _PREFIX.match(text, end)
            if match is None or match.end() == end:
                break
            end = match.end()
            kind = match.lastgroup
            if kind is None:
                continue
            value = match[kind]
            if kind == "rank" or kind == "mpi":
                rank, weak = int(value), False
            elif kind == "local":
                local = int(value)
            elif kind in ("iso", "glog", "nemo"):
                when = _seconds(value) if when is None or kind != "iso" else when
            elif kind == "source":
                source, when = value, _seconds(match["cpptime"])
            else:
                label = value
    return Line(no, text[end:] if end else text, rank, local, label, when, source, weak)


def _json(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _from_json(no: int, record: dict[str, Any], depth: int) -> Iterator[Line]:
    message = next((record[k] for k in _MESSAGE_KEYS if isinstance(record.get(k), str)), None)
    if message is None:
        message = " ".join(str(v) for v in record.values() if isinstance(v, str))
    extra = [record[k] for k in ("exc_info", "exception", "stack_trace", "traceback") if isinstance(record.get(k), str)]
    rank = next((record[k] for k in _RANK_KEYS if str(record.get(k, "")).isdigit()), None)
    stamp = next((str(record[k]) for k in _TIME_KEYS if k in record), "")
    pod = record.get("kubernetes", {}).get("pod_name") if isinstance(record.get("kubernetes"), dict) else None
    label = next((str(v) for v in (pod, record.get("pod"), record.get("host"), record.get("hostname")) if v), None)
    for part in [p for text in (message, *extra) for p in text.split("\n")][:256]:
        for line in peel(no, part, depth + 1):
            yield line._replace(
                rank=line.rank if rank is None or (line.rank is not None and not line.weak) else int(rank),
                label=line.label or label,
                when=line.when if line.when is not None else _seconds(stamp),
            )
