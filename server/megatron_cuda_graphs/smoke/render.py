"""A record as a picture and as a page. Standard library only: SVG for the page, PNG for agents."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from .model import Measures, SmokeReport

__all__ = ["Bar", "bars", "html", "png", "svg"]

EAGER, REPLAY, FLOOR, INK, GROUND, FAINT = "#7a8794", "#1f9d6b", "#d1495b", "#1d2530", "#ffffff", "#e3e7ec"


class Bar(NamedTuple):
    """One bar: its label, its length, the unit shown, its colour."""

    label: str
    value: float
    unit: str
    colour: str


def bars(m: Measures) -> list[tuple[str, list[Bar], float | None]]:
    """The picture's groups: title, bars, and the floor (GPU-busy time) where there is one."""
    step = [
        Bar("eager", m.eager.step.median_ms, "ms", EAGER),
        Bar("replay", m.replay.step.median_ms, "ms", REPLAY),
    ]
    groups: list[tuple[str, list[Bar], float | None]] = [("STEP TIME", step, m.replay.busy_ms)]
    peaks = [
        Bar(name, value, "GiB", colour)
        for name, value, colour in (
            ("eager", m.eager.reserved_peak_gib, EAGER),
            ("replay", m.replay.reserved_peak_gib, REPLAY),
            ("pools", m.memory.graph_pools_gib, REPLAY),
        )
        if value is not None
    ]
    if peaks:
        groups.append(("MEMORY RESERVED AT PEAK", peaks, None))
    launches = [
        Bar(name, value, "", colour)
        for name, value, colour in (("eager", m.eager.launches, EAGER), ("replay", m.replay.launches, REPLAY))
        if value is not None
    ]
    if launches:
        groups.append(("LAUNCHES FROM THE CPU PER STEP", launches, None))
    return groups


def _title(report: SmokeReport) -> str:
    work = report.workload.name if report.workload else ""
    modules = ", ".join(report.modules) or ("whole layer" if report.tier in ("megatron-te", "megatron-local") else "")
    return " / ".join(p for p in (work, report.tier or "", modules) if p)


def svg(report: SmokeReport) -> str:
    """Step-time bars with the busy-time floor, memory bars, launches; the verdict alone where nothing was measured."""
    parts, y = [], 54
    if report.measures is not None:
        for title, group, floor in bars(report.measures):
            parts.append(
                f'<text x="16" y="{y}" font-size="12" fill="{EAGER}" letter-spacing="1">{escape(title)}</text>'
            )
            y += 10
            longest = max([b.value for b in group] + [floor or 0.0]) or 1.0
            top = y
            for bar in group:
                width = max(1.0, 420 * bar.value / longest)
                parts.append(
                    f'<text x="86" y="{y + 15}" text-anchor="end">{escape(bar.label)}</text>'
                    f'<rect x="96" y="{y + 2}" width="{width:.1f}" height="18" rx="2" fill="{bar.colour}"/>'
                    f'<text x="{102 + width:.1f}" y="{y + 15}">{_number(bar.value)} {bar.unit}</text>'
                )
                y += 24
            if floor:
                x = 96 + 420 * floor / longest
                parts.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{y}" stroke="{FLOOR}" stroke-width="2" '
                    f'stroke-dasharray="4 3"/><text x="{x + 4:.1f}" y="{y + 12}" font-size="11" fill="{FLOOR}">'
                    f"GPU busy {_number(floor)} ms</text>"
                )
                y += 16
            y += 24
    else:
        parts.append(f'<text x="16" y="{y}">{escape(report.status)}: no figures</text>')
        y += 20
    head = f'<text x="16" y="26" font-size="15" font-weight="600">{escape(_title(report))}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {y}" width="640" height="{y}" role="img" '
        f'aria-label="{escape(report.verdict, quote=True)}" font-family="system-ui, sans-serif" font-size="13" '
        f'fill="{INK}"><rect width="640" height="{y}" fill="{GROUND}"/>{head}{"".join(parts)}</svg>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body{{font:15px/1.5 system-ui,sans-serif;color:#1d2530;max-width:46rem;margin:2rem auto;padding:0 1rem}}
h1{{font-size:1.3rem}}h2{{font-size:1rem;margin-top:1.6rem}}table{{border-collapse:collapse;width:100%}}
td,th{{border-bottom:1px solid #e3e7ec;padding:.25rem .6rem .25rem 0;text-align:left;vertical-align:top}}
pre{{background:#f5f7f9;padding:.8rem;overflow:auto;font-size:12px}}svg{{max-width:100%;height:auto}}
.s{{display:inline-block;padding:0 .5rem;border-radius:3px;background:#e3e7ec}}</style></head><body>
<h1>{title}</h1><p><span class="s">{status}</span> {verdict}</p>{body}</body></html>
"""


def html(report: SmokeReport) -> str:
    """The whole record on one page that loads nothing from elsewhere."""
    body = [svg(report)] if report.measures else []
    if report.measures:
        m = report.measures
        rows: list[tuple[str, ...]] = [("", "eager", "replay")]
        for label, name in (
            ("step, ms (median)", "step"), ("forward and backward, ms", "fwd_bwd"), ("GPU busy, ms", "busy_ms"),
            ("back to back, ms", "back_to_back_ms"), ("launches", "launches"), ("graph launches", "graph_launches"),
            ("allocated at peak, GiB", "allocated_peak_gib"), ("reserved at peak, GiB", "reserved_peak_gib"),
        ):  # fmt: skip
            cells = [getattr(side, name) for side in (m.eager, m.replay)]
            if any(c is not None for c in cells):
                rows.append((label, *(_cell(c) for c in cells)))
        body.append(_table(rows))
        facts = [
            ("gain", f"{m.gain.value:.2f} (95% {m.gain.low:.2f} to {m.gain.high:.2f})"
             + ("" if m.gain.resolved else ", not resolved")),
            ("bound on the gain", "unknown" if m.bound is None else f"{m.bound:.2f}"),
            ("capture", f"{m.capture_s:.2f} s, {m.graphs} graphs"),
            ("graph pools", f"{m.memory.graph_pools_gib:.2f} GiB"),
            ("parity", f"{m.parity.verdict} over {m.parity.steps} steps. {m.parity.reason}"),
        ]  # fmt: skip
        body.append(_table(facts))
    if report.failure:
        f = report.failure
        body.append(f"<h2>Failure in phase {escape(f.phase)}</h2>")
        names = ["shown as", *[""] * (len(f.chain) - 2), "root"] if len(f.chain) > 1 else ["raised"]
        body.append(_table((n, f"{e.type}: {e.message}") for n, e in zip(names, f.chain, strict=False)))
        for match in (f.diagnosis or {}).get("matches", [])[:3]:
            body.append(
                f"<p><b>{escape(str(match['failure_mode']))}</b> ({match['confidence']:.2f}): "
                f"{escape(str(match['cause']))} {escape(str(match['fix']))}</p>"
            )
        if f.log_tail:
            body.append(f"<pre>{escape(f.log_tail[-4000:])}</pre>")
    if report.sweep:
        lines: list[tuple[str, ...]] = [("modules", "eager ms", "replay ms", "gain", "parity")]
        lines += [
            (", ".join(r.modules) or "whole layer", _cell(r.eager_ms), _cell(r.replay_ms),
             _cell(r.gain.value if r.gain else None), r.parity or r.status)
            for r in report.sweep
        ]  # fmt: skip
        body.append("<h2>Sweep</h2>" + _table(lines))
    about = [("date", report.date), ("record", report.id)]
    if report.gpu:
        about.append(("GPU", f"{report.gpu.name}, driver {report.gpu.driver}"))
    about += [(k, v) for k, v in report.stack.items()]
    if report.workload:
        about += [("workload", f"{report.workload.name}: {report.workload.source}")]
        about += [("scaled", s) for s in report.workload.scaled]
    about += [("note", n) for n in report.notes] + [("lacks", entry) for entry in report.lacks]
    body.append("<h2>What ran</h2>" + _table(about))
    return _PAGE.format(
        title=escape(f"CUDA graph smoke: {_title(report)}"),
        status=escape(report.status),
        verdict=escape(report.verdict),
        body="".join(body),
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    middle = getattr(value, "median_ms", None)
    if middle is not None:
        return f"{middle:.3g} ({getattr(value, 'p10_ms'):.3g} to {getattr(value, 'p90_ms'):.3g})"  # noqa: B009
    return _number(value) if isinstance(value, (int, float)) else str(value)


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    lines = ("".join(f"<td>{escape(str(c))}</td>" for c in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


# A PNG without a drawing library: filled rectangles and a 3 by 5 pixel font, five rows of three bits a sign.
_FONT = {
    "A": "25755", "B": "65656", "C": "34443", "D": "65556", "E": "74647", "F": "74644", "G": "34553", "H": "55755",
    "I": "72227", "J": "11152", "K": "55655", "L": "44447", "M": "57755", "N": "65555", "O": "25552", "P": "65644",
    "Q": "25573", "R": "65655", "S": "34216", "T": "72222", "U": "55557", "V": "55552", "W": "55775", "X": "55255",
    "Y": "55222", "Z": "71247", "0": "75557", "1": "26227", "2": "61247", "3": "61216", "4": "55711", "5": "74616",
    "6": "34757", "7": "71222", "8": "75757", "9": "75716", ".": "00002", ",": "00024", "-": "00700", "/": "11244",
    "%": "51245", ":": "02020", "(": "24442", ")": "21112", "+": "02720", "=": "07070", "_": "00007", "'": "22000",
    "*": "05250", " ": "00000",
}  # fmt: skip


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [bytearray(_rgb(GROUND) * width) for _ in range(height)]

    def box(self, x: int, y: int, w: int, h: int, colour: str) -> None:
        x, w = max(0, x), min(w, self.width - max(0, x))
        for row in self.rows[max(0, y) : y + h]:
            row[3 * x : 3 * (x + w)] = _rgb(colour) * max(0, w)

    def text(self, x: int, y: int, said: str, colour: str = INK, scale: int = 3) -> None:
        for sign in said.upper():
            for dy, bits in enumerate(_FONT.get(sign, "75557")):
                for dx in range(3):
                    if int(bits) >> (2 - dx) & 1:
                        self.box(x + dx * scale, y + dy * scale, scale, scale, colour)
            x += 4 * scale
            if x > self.width:
                return

    def png(self) -> bytes:
        def chunk(kind: bytes, data: bytes) -> bytes:
            body = kind + data
            return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        raw = b"".join(b"\0" + bytes(row) for row in self.rows)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def _rgb(colour: str) -> bytes:
    return bytes.fromhex(colour[1:])


def png(report: SmokeReport) -> bytes:
    """The same picture as PNG bytes, 900 pixels wide: for an agent that sees images but no SVG."""
    groups = bars(report.measures) if report.measures else []
    height = 70 + sum(40 + 42 * len(g) + (30 if floor else 0) for _, g, floor in groups) + (40 if not groups else 0)
    canvas = _Canvas(900, height)
    canvas.text(20, 20, _title(report)[:70])
    y = 62
    if not groups:
        canvas.text(20, y, f"{report.status}: no figures", FLOOR)
    for title, group, floor in groups:
        canvas.text(20, y, title, EAGER, 2)
        y += 20
        longest = max([b.value for b in group] + [floor or 0.0]) or 1.0
        top = y
        for bar in group:
            width = max(2, round(520 * bar.value / longest))
            canvas.text(20, y + 10, bar.label)
            canvas.box(130, y + 4, width, 28, bar.colour)
            canvas.text(140 + width, y + 10, f"{_number(bar.value)} {bar.unit}")
            y += 42
        if floor:
            x = 130 + round(520 * floor / longest)
            for dash in range(top, y, 10):
                canvas.box(x, dash, 3, 6, FLOOR)
            canvas.text(min(x + 8, 560), y + 4, f"GPU busy {_number(floor)} ms", FLOOR, 2)
            y += 30
        y += 20
    return canvas.png()
