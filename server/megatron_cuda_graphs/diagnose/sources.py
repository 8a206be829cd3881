"""Where text comes from: a string, files, directories, globs; plain, gzip or zstd; any encoding, any size.

Small inputs are read whole. Of large ones only lines near a trigger word are handed on, besides the head and the
tail: a few searches for fixed bytes over a reused buffer, so that time is a small multiple of reading and memory
does not grow with the input.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..errors import InputError

__all__ = ["TRIGGERS", "Block", "Source", "expand", "from_path", "from_text"]

# Every text that a failure mode knows is printed on a line with one of these, or next to one. Each is chosen to be
# rare in the log of a run that goes well; the value is how many lines after it belong to the same event.
TRIGGERS: dict[bytes, int] = {
    b"raceback": 100,
    b"rror": 12,
    b"xception": 8,
    b"raph": 3,
    b"aptur": 3,
    b"ignal": 1,
    b"ailed": 4,
    b"imeout": 24,
    b"aged stash": 1,
    b"ention backend": 1,
}
BEFORE = 2  # lines before a trigger, for messages wrapped over lines
SMALL = 1 << 20  # inputs up to this size are read whole
BUFFER = 1 << 20
EDGE = 1 << 17  # bytes of the head and of the tail that are always read
LINE_BYTES = 1 << 14
DENSE = 2_048  # hits of one trigger in one buffer
SAME = 256  # lines alike but for digits that are looked at in one file
EXPANSION = 100  # a compressed file is read up to this multiple of its size
FILES = 20_000

_SUFFIXES = {".log", ".txt", ".out", ".err", ".json", ".jsonl", ".gz", ".zst", ".stdout", ".stderr", ""}


class Block(NamedTuple):
    """Consecutive lines: (line number, text). `gap` is true where lines were left out before it."""

    lines: list[tuple[int, str]]
    gap: bool


class Source:
    """One input: its name, and its lines once."""

    def __init__(self, name: str | None, blocks: Callable[[Source], Iterator[Block]], size: int) -> None:
        self.name, self.size = name, size
        self._blocks = blocks
        self.lines = 0
        self.truncated: str | None = None
        self.done = 0

    def blocks(self) -> Iterator[Block]:
        return self._blocks(self)


def expand(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files named by paths, directories and globs, each once, in natural order within a directory.

    Raises:
        InputError: a path does not exist, or a pattern names nothing.
    """
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            for file in sorted(path.rglob("*"), key=_natural):
                if file.is_file() and (file.suffix in _SUFFIXES or file.suffix[1:].isdigit()):
                    found.setdefault(file)
                if len(found) >= FILES:
                    break
        elif path.exists():
            found.setdefault(path)
        elif matches := sorted(glob.iglob(os.fspath(given), recursive=True), key=lambda p: _natural(Path(p))):
            found.update(dict.fromkeys(Path(match) for match in matches if os.path.isfile(match)))
        else:
            raise InputError("No such file.", hint="Give a log file, a directory or a pattern.", path=str(given))
    return list(found)


def _natural(path: Path) -> list[tuple[int, int | str]]:
    return [(0, int(p)) if p.isdigit() else (1, p) for p in re.split(r"(\d+)", str(path)) if p]


def from_text(text: str) -> Source:
    """A string as a source."""
    if len(text) <= SMALL:
        return Source(None, lambda source: _whole(source, text), len(text))
    data = text.encode("utf-8", "surrogatepass")

    def blocks(source: Source) -> Iterator[Block]:
        import io

        yield from _large(source, io.BytesIO(data), lambda done: None)

    return Source(None, blocks, len(data))


def from_path(path: Path, on_read: Callable[[int], None] = lambda done: None) -> Source:
    """A file as a source; `on_read` is called with the number of bytes read since the last call.

    Raises:
        InputError: the file can't be opened, or is compressed with something that is not installed.
    """
    try:
        size = path.stat().st_size
    except OSError as exc:
        raise InputError(f"Can't read it: {exc.strerror}.", path=str(path)) from None

    def blocks(source: Source) -> Iterator[Block]:
        try:
            with path.open("rb", buffering=0) as raw:
                head = raw.read(4096)
                raw.seek(0)
                stream, limit = _decompress(path, raw, head, size)
                if limit is None and size <= SMALL and not _utf16(head):
                    data = raw.read(SMALL + 1)
                    on_read(len(data))
                    yield from _whole(source, data.decode("utf-8", "replace"))
                else:
                    if limit is not None:
                        stream = _Limited(stream, limit, source)
                        head = b""
                    if encoding := _utf16(head):
                        stream = _Recoded(stream, encoding)
                    yield from _large(source, stream, on_read)
        except InputError:
            raise
        except OSError as exc:
            source.truncated = f"reading stopped: {exc}"
        except Exception as exc:  # a damaged archive raises whatever its module likes
            source.truncated = f"reading stopped: {type(exc).__name__}"

    return Source(str(path), blocks, size)


def _utf16(head: bytes) -> str | None:
    """The encoding of text that is mostly ASCII in UTF-16, with or without a byte-order mark."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = max(len(head) // 2, 1)
    if max(even, odd) < 0.5 * half or min(even, odd) > 0.1 * half or len(head) < 8:
        return None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return "utf-16-le" if odd > even else "utf-16-be"


def _decompress(path: Path, raw: Any, head: bytes, size: int) -> tuple[Any, int | None]:
    limit = EXPANSION * size + (16 << 20)
    if head[:2] == b"\x1f\x8b":
        import gzip

        return gzip.GzipFile(fileobj=raw), limit
    if head[:4] == b"\x28\xb5\x2f\xfd":
        try:
            import zstandard
        except ImportError:
            raise InputError(
                "This file is zstd-compressed and no zstd module is installed.",
                hint="pip install 'megatron-cuda-graphs[zstd]' (the zstandard module), or decompress it first.",
                path=str(path),
            ) from None
        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True), limit
    if head[:3] == b"BZh":
        import bz2

        return bz2.BZ2File(raw), limit
    if head[:6] == b"\xfd7zXZ\x00":
        import lzma

        return lzma.LZMAFile(raw), limit
    return raw, None


class _Limited:
    """Ends a decompressed stream after `limit` bytes and says so."""

    def __init__(self, stream: IO[bytes], limit: int, source: Source) -> None:
        self.stream, self.left, self.source = stream, limit, source

    def readinto(self, buffer: memoryview) -> int:
        if self.left <= 0:
            self.source.truncated = f"expands to more than {EXPANSION} times its size; the rest was not read"
            return 0
        data = self.stream.read(min(len(buffer), self.left, 1 << 18))
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)


class _Recoded:
    """A UTF-16 stream as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        import codecs

        self.stream = stream
        self.decoder = codecs.getincrementaldecoder(encoding)("replace")
        self.rest = b""

    def readinto(self, buffer: memoryview) -> int:
        while not self.rest:
            data = self.stream.read(len(buffer) // 2)
            self.rest = self.decoder.decode(data, final=not data).encode("utf-8", "replace")
            if not data:
                break
        part, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _whole(source: Source, text: str) -> Iterator[Block]:
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    source.lines = len(lines)
    yield Block([(n, _short(line)) for n, line in enumerate(lines, 1)], False)


def _short(line: str) -> str:
    """A line of bounded length; of a longer one the parts around trigger words."""
    if len(line) <= LINE_BYTES:
        return line
    parts = [line[:1024]]
    spots = sorted({pos for word in TRIGGERS for pos in _occurrences(line, word.decode(), 4)})
    end = 1024
    for pos in spots[:24]:
        if pos >= end:
            parts.append(line[max(end, pos - 128) : pos + 512])
            end = pos + 512
    parts.append(line[max(end, len(line) - 1024) :])
    return " ".join(parts)


def _occurrences(text: str, word: str, limit: int) -> Iterator[int]:
    pos = text.find(word)
    while pos >= 0 and limit:
        yield pos
        limit -= 1
        pos = text.find(word, pos + 1024)


def _finder(buffer: bytearray) -> Callable[[bytes, int, int], int]:
    """find(word, start, end) over the buffer: the C library's memmem where there is one, else bytearray.find."""
    try:
        import ctypes

        memmem = ctypes.CDLL(None).memmem
        memmem.restype = ctypes.c_void_p
        memmem.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        base = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    except (ImportError, OSError, AttributeError, TypeError, ValueError):
        return lambda word, start, end: buffer.find(word, start, end)

    def find(word: bytes, start: int, end: int) -> int:
        found = memmem(base + start, end - start, word, len(word))
        return found - base if found else -1

    return find


def _large(source: Source, stream: Any, on_read: Callable[[int], None]) -> Iterator[Block]:
    """Lines near triggers of a stream of any length, in order, with the head and the tail."""
    buffer = bytearray(BUFFER + LINE_BYTES)
    view = memoryview(buffer)
    find = _finder(buffer)
    seen: dict[bytes, int] = {}
    filled = 0  # bytes of an incomplete line at the start of the buffer
    number = 0  # complete lines before the buffer
    position = 0  # bytes before the buffer
    reach = 0  # lines up to this number still belong to an earlier trigger
    last = 0  # the last line handed on
    tail: bytes = b""
    tail_line = 0
    while True:
        read = stream.readinto(view[filled:BUFFER])
        if read:
            on_read(read)
        end = filled + read
        if not read:
            if filled:
                buffer[end : end + 1] = b"\n"
                end += 1
            else:
                break
        cut = buffer.rfind(b"\n", 0, end) + 1
        if not cut:
            if end < BUFFER:
                filled = end
                continue
            # A line longer than the buffer: look at this part as if it were a line of its own.
            buffer[end - 1 : end] = b"\n"
            cut, number = end, number - 1
        hits: list[tuple[int, int]] = []
        for word, after in TRIGGERS.items():
            pos = find(word, 0, cut)
            count, same, before = 0, 0, b""
            while pos >= 0:
                count += 1
                if count > DENSE:  # a flood: look at a line only where it differs from the one before
                    around = bytes(buffer[max(pos - 24, 0) : pos + 40])
                    same = same + 1 if around == before else 0
                    if not same:
                        hits.append((pos, after))
                        before = around
                    elif same > 64:
                        pos = min(pos + 4_096, cut)
                else:
                    hits.append((pos, after))
                pos = buffer.find(b"\n", pos, cut)
                if pos < 0:
                    break
                pos = find(word, pos, cut)
        count = buffer.count(b"\n", 0, cut)
        if position < EDGE:
            hits.append((0, buffer.count(b"\n", 0, min(cut, EDGE - position))))
        if hits or reach > number:
            lines, reach = _pick(buffer, cut, number, hits, reach, seen)
            fresh = [item for item in lines if item[0] > last]
            if fresh:
                yield Block(fresh, fresh[0][0] > last + 1)
                last = fresh[-1][0]
        keep = max(0, cut - EDGE)
        tail = bytes(buffer[keep:cut]) if keep or not tail else (tail + bytes(buffer[:cut]))[-EDGE:]
        tail_line = number + count
        number += count
        position += cut
        buffer[: end - cut] = buffer[cut:end]
        filled = end - cut
        if not read:
            break
    source.lines = number
    rows = tail.decode("utf-8", "replace").split("\n")
    if rows and not rows[-1]:
        rows.pop()
    first = tail_line - len(rows) + 1
    ending = [(first + i, _short(row)) for i, row in enumerate(rows) if first + i > last]
    if ending:
        yield Block(ending, ending[0][0] > last + 1)


def _pick(
    buffer: bytearray,
    cut: int,
    number: int,
    hits: list[tuple[int, int]],
    reach: int,
    seen: dict[bytes, int],
) -> tuple[list[tuple[int, str]], int]:
    """The lines around the hits of one buffer, numbered, and the line up to which the last one reaches."""
    hits.sort()
    lines: list[tuple[int, str]] = []
    at, line_no = 0, number + 1  # the line that starts at `at`
    given = number  # the last line looked at
    starts: list[int] = []
    for pos, after in [(0, 0)] * (reach > number) + hits:
        start = buffer.rfind(b"\n", 0, pos) + 1
        if start > at:
            line_no += buffer.count(b"\n", at, start)
            at = start
        elif start < at:
            start = at
        if pos or after:
            stop = buffer.find(b"\n", start, cut)
            shape = bytes(buffer[start : min(stop, start + 200)]).translate(None, b"0123456789")
            times = seen.get(shape, 0)
            if times < SAME:
                if len(seen) < 65_536 or times:
                    seen[shape] = times + 1
                reach = max(reach, line_no + after)
                back = start
                for _ in range(BEFORE):
                    back = buffer.rfind(b"\n", 0, max(back - 1, 0)) + 1 if back else 0
                starts.append(back)
            elif reach < line_no:
                continue
        # Hand on from here (or a little before) to the line that the trigger reaches.
        begin = starts.pop() if starts else start
        begin_no = line_no - buffer.count(b"\n", begin, start)
        if begin_no <= given:
            skip = given + 1 - begin_no
            for _ in range(skip):
                begin = buffer.find(b"\n", begin, cut) + 1 or cut
            begin_no += skip
        while begin < cut and begin_no <= max(reach, line_no):
            stop = buffer.find(b"\n", begin, cut)
            stop = cut if stop < 0 else stop
            # A training step between the lines of an event says nothing of it.
            if begin_no == line_no or buffer.find(b"iteration  ", begin, min(stop, begin + 160)) < 0:
                lines.append(
                    (begin_no, _short(buffer[begin : min(stop, begin + (1 << 20))].decode("utf-8", "replace")))
                )
            given = begin_no
            begin, begin_no = stop + 1, begin_no + 1
    return lines, reach
