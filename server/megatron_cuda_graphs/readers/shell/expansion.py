"""What a word comes to, given the variables: `$NAME`, `${NAME:-word}`, `${NAME%pattern}`, `$((1 + 2))`, arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from ...errors import InputError
from ..literal import NotLiteral, fold
from .nodes import Part, Word
from .splitting import Line
from .text import Text
from .values import Hole, Item, Piece, Pieces, Token, Value, emptiness, flags_in, known_text
from .variables import Variables
from .words import operand

__all__ = ["MAX_TOKENS", "Expansion"]

MAX_TOKENS = 20_000  # of one command
MAX_TRIMMED = 4096  # characters, since every cut is tried

_PARAMETER = re.compile(
    r"(?P<indirect>!)?(?P<length>#)?(?P<name>[A-Za-z_]\w*|[0-9]+|[@*?$!#-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)\Z",
    re.DOTALL,
)


class Expansion:
    """Expands the words of one text after another; `text` is the one that is read now."""

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self.text = Text("")

    def pieces(self, word: Word) -> Pieces:
        """A word without splitting, as in an assignment."""
        out: list[Piece] = []
        for part in word.parts:
            if part.kind == "text":
                out.append(part.text)
                continue
            value = self.expand(part)
            if isinstance(value, list):
                for number, item in enumerate(value):
                    out += [Text(" "), *item] if number else item
            else:
                out += value
        return tuple(out)

    def fields(self, words: Iterable[Word]) -> list[Token]:
        """Words after expansion and splitting."""
        line = Line()
        for word in words:
            line.use = self.span(word)
            for part in word.parts:
                if part.kind == "text":
                    line.add((part.text,), part.quoted)
                    continue
                value = self.expand(part)
                for number, item in enumerate(value if isinstance(value, list) else [value]):
                    if number:
                        line.flush()
                    if isinstance(item, Item) and line.current is None:
                        line.use = item.use or line.use
                    if part.quoted:
                        line.add(item, True)
                    else:
                        line.split(item)
            line.flush()
            if len(line.tokens) > MAX_TOKENS:
                raise InputError(f"A command has more than {MAX_TOKENS} words.")
        return line.tokens

    def expand(self, part: Part) -> Value:
        """What one expansion comes to."""
        if part.kind == "command":
            return (Hole(f"$({part.text.s.strip()[:40]})", "it is the output of a command"),)
        if part.kind == "arith":
            return self.arithmetic(part.text.s)
        return self.parameter(part.text, part.quoted)

    def arithmetic(self, text: str) -> Pieces:
        """The inside of `$(( ))`, where every known variable is a whole number."""
        names: list[str] = []

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            value = self.variables.values.get(name)
            known = known_text(value) if not isinstance(value, list) else None
            if known is None or not known.strip().lstrip("-").isdigit():
                names.append(name)
                return "0"
            return f"({known.strip()})"

        expression = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?|\$(\d+)", replace, text)
        if not names:
            try:
                result = fold(re.sub(r"(?<!/)/(?!/)", "//", expression))
            except NotLiteral:
                result = None
            if isinstance(result, int):
                return (Text(str(int(result))),)
        what = ", ".join(names) or text.strip()[:40]
        return (Hole(what, "it is computed from a value that is not known"),)

    def parameter(self, text: Text, quoted: bool) -> Value:
        """The inside of `${ }`."""
        match = _PARAMETER.match(text.s)
        if match is None or match["indirect"]:
            return (Hole(text.s[:40], "this expansion is not followed"),)
        name, rest, index = match["name"], match["rest"], match["index"]
        value = self.variables.lookup(name, index)
        if match["length"]:
            if isinstance(value, list):
                return (Text(str(len(value))),)
            known = known_text(value)
            return (Text(str(len(known))),) if known is not None else (Hole(name, "its length is not known"),)
        if not rest:
            if value is not None:
                return value
            many = name == "@" or index == "@"
            return (Hole(name, f"${name} is not set in the text", None, many),)
        op = re.match(r":?[-=+?]", rest)
        if op is None:
            return _trimmed(name, value, rest)
        alternative = text.cut(match.start("rest") + op.end(), len(text))
        colon, kind = rest.startswith(":"), op[0][-1]
        state = emptiness(value) if colon else (value is not None if name not in "@*" else None)
        if kind == "?":
            return value if value is not None else (Hole(name, f"${name} is not set in the text"),)
        if kind == "+":
            if value is None:
                return (Hole(name, f"${name} is not set in the text", _flags_of(alternative.s)),)
            return self.pieces(operand(alternative, quoted)) if state else ()
        if value is None or state is False:
            chosen = self.pieces(operand(alternative, quoted))
            if kind == "=":
                self.variables.values[name] = chosen
            return chosen
        return value

    def offset(self, local: int) -> int:
        """An offset of the text as one in the input; -1 when it stands nowhere in it."""
        return self.text.at[local] if 0 <= local < len(self.text) else -1

    def span(self, word: Word) -> tuple[int, int] | None:
        """Where a word stands in the input, when it stands there as written."""
        if word.end <= word.start or word.end > len(self.text):
            return None
        start, end = self.text.at[word.start], self.text.at[word.end - 1] + 1
        return (start, end) if start >= 0 and end - start == word.end - word.start else None


def _trimmed(name: str, value: Value | None, rest: str) -> Pieces:
    """`${NAME#pattern}` and the like, over known text."""
    known = known_text(value) if not isinstance(value, list) else None
    if known is None:
        reason = f"${name} is not set in the text" if value is None else "this expansion is not followed"
        return (Hole(name, reason),)
    if rest == ",,":
        return (Text(known.lower()),)
    if rest == "^^":
        return (Text(known.upper()),)
    match = re.fullmatch(r"(##?|%%?)([\w.*/-]+)", rest)
    if match is None or len(known) > MAX_TRIMMED:
        return (Hole(name, "this expansion is not followed"),)
    op, pattern = match[1], match[2]
    sizes = range(len(known) + 1)
    if op[0] == "#":
        ends = [n for n in sizes if fnmatchcase(known[:n], pattern)]
        cut = (max(ends) if len(op) == 2 else min(ends)) if ends else 0
        return (Text(known[cut:]),)
    ends = [n for n in sizes if fnmatchcase(known[n:], pattern)]
    cut = (min(ends) if len(op) == 2 else max(ends)) if ends else len(known)
    return (Text(known[:cut]),)


def _flags_of(text: str) -> frozenset[str] | None:
    """The flags of an alternative that may or may not be taken."""
    return flags_in((Text(text),)) if "$" not in text else None
