"""From a chosen command to its reading."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from ..report import Fix, Location
from ..unknown import Unknown
from . import perf_harness
from .lazy import Locations
from .literal import NotLiteral, fold
from .reading import Frontend, Note, Reading
from .shapes import View, keep_model_fields, look, put
from .shell import Hole, Pieces, Token, text_or_unknown

if TYPE_CHECKING:
    from .command import Arguments, Invocation

__all__ = ["Parsed", "Source", "json_mapping", "reading_of", "sort_out", "start_of"]

Kind = Literal["flags", "overrides", "perf-harness", "ms-swift"]


@dataclass
class Source:
    """The text that a command stands in, and the format's name for it."""

    text: str
    path: str | None
    format: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, from 0."""
        line = bisect_right(self._starts, offset) - 1
        return line, offset - self._starts[line]

    def location(self, offset: int) -> Location | None:
        if not 0 <= offset <= len(self.text):
            return None
        line, column = self.place(offset)
        return Location(path=self.path, line=line + 1, column=column + 1)


@dataclass
class Parsed:
    """A command sorted out: what its reading says, and where each part of it stands.

    at: field or flag -> the token that gives it; view: for overrides, where a field stands among them.
    """

    kind: Kind
    args: Arguments
    env: dict[str, Any] | None
    env_at: dict[str, Pieces]
    format: str
    frontend: Frontend = "megatron-lm"
    base: Literal["defaults", "unknown"] = "unknown"
    values: dict[str, Any] = field(default_factory=dict)
    at: dict[str, Token] = field(default_factory=dict)
    view: View | None = None
    repeated: tuple[tuple[str, Any], ...] = ()
    notes: list[Note] = field(default_factory=list)


def sort_out(
    source: Source,
    chosen: Invocation,
    args: Arguments,
    notes: Sequence[tuple[str, int]],
    exported: Mapping[str, Pieces],
    frontend: str,
) -> Parsed:
    """What the chosen command says.

    Raises:
        InputError: the command holds no configuration of the front end that was asked for.
    """
    env_at = {**exported, **chosen.env}
    env = {name: text_or_unknown(name, pieces) for name, pieces in env_at.items()} or None
    parsed = Parsed(_kind(chosen, args), args, env, env_at, source.format)
    parsed.notes += [Note(f"{message}.", source.location(offset)) for message, offset in notes]
    for name, token in args.hidden:
        message = f"`{name}` is not known here; it may hold more arguments, which were not judged."
        parsed.notes.append(Note(message, _token_location(source, token), (name,)))
    {"flags": _flags, "overrides": _overrides, "perf-harness": _perf, "ms-swift": _swift}[parsed.kind](
        source, parsed, frontend
    )
    if frontend not in {"auto", parsed.frontend}:
        raise InputError(
            f"The command line holds a configuration of front end {parsed.frontend}, not {frontend}.",
            path=source.path,
        )
    return parsed


def reading_of(source: Source, parsed: Parsed, again: Callable[[str], Parsed]) -> Reading:
    """The reading; `again` parses an edited text the same way."""

    def edit(fixes: Sequence[Fix]) -> str | None:
        from .edit_command import edit_command

        return edit_command(source.text, fixes, again)

    return Reading(
        frontend=parsed.frontend,
        format=parsed.format,
        values=parsed.values,
        base=parsed.base,
        locations=Locations(lambda: _places(source, parsed), source.path),
        env=parsed.env,
        notes=tuple(parsed.notes),
        repeated=parsed.repeated,
        edit=edit,
    )


def _kind(chosen: Invocation, args: Arguments) -> Kind:
    program = chosen.program
    if program.startswith(("megatron ", "swift.cli._megatron")) or "--megatron_extra_kwargs" in args.flags:
        return "ms-swift"
    hyphens = sum("-" in flag[2:] for flag in args.flags)
    telling = args.flags.keys() & perf_harness.TELLING
    # One such name among Megatron-LM's flags is a flag of Megatron-LM, misspelt.
    if program in perf_harness.PROGRAMS or len(telling) > hyphens / 3:
        return "perf-harness"
    return "overrides" if args.overrides and len(args.overrides) >= hyphens else "flags"


def _flags(source: Source, parsed: Parsed, frontend: str) -> None:
    args = parsed.args
    parsed.frontend, parsed.base = "megatron-lm", "defaults"
    parsed.values = dict(args.flags)
    parsed.at = dict(args.flag_at)
    if args.repeated():
        unsure = {flag for flag, _, _ in args.maybe}
        parsed.repeated = tuple((given.flag, given.words) for given in args.given if given.flag not in unsure)
    for flag, token, name in args.maybe:
        parsed.values[flag] = Unknown(flag, reason=f"${name} may or may not hold it")
        parsed.at[flag] = token
    for name in dict.fromkeys(name for _, _, name in args.maybe):
        flags = tuple(dict.fromkeys(flag for flag, _, of in args.maybe if of == name))
        token = next(token for _, token, of in args.maybe if of == name)
        message = f"Whether {', '.join(flags)} is given hangs on `{name}`, which is set in a branch."
        parsed.notes.append(Note(message, _token_location(source, token), flags))
    if args.overrides:
        keys = ", ".join(override.key for override, _ in args.overrides[:5])
        where = _token_location(source, args.overrides[0][1])
        parsed.notes.append(Note(f"The overrides {keys} were not read.", where))


def _overrides(source: Source, parsed: Parsed, frontend: str) -> None:
    tree: dict[str, Any] = {}
    notes = parsed.notes
    at: dict[str, Token] = {}
    for flag, token in parsed.args.flag_at.items():
        tokens = parsed.args.flags[flag]
        fields = perf_harness.fields_of({flag: tokens}) if isinstance(tokens, list) else {}
        for name, value in fields.items():
            put(tree, name.split("."), value)
            at[name] = token
        if not fields:
            notes.append(Note(f"`{flag}` was not read.", _token_location(source, token), (flag,)))
    for override, token in parsed.args.overrides:
        where = _token_location(source, token)
        if override.note:
            notes.append(Note(f"`{token.text}` {override.note}.", where, (override.key,)))
        if override.op == "~":
            notes.append(Note(f"`~{override.key}` takes the field out; its value was not judged.", where))
            continue
        put(tree, override.key.split("."), override.value)
        at[override.key] = token
    view = look(tree, frontend, source.path)
    parsed.frontend, parsed.format = view.frontend, "hydra"
    parsed.values, parsed.view = view.values, view
    for name, path in view.names():
        if (given := at.get(".".join(path))) is not None:
            parsed.at[name] = given
    notes += [Note(f"{message}.") for message, _ in view.notes]


def _perf(source: Source, parsed: Parsed, frontend: str) -> None:
    flags = _lists(parsed.args.flags)
    tree: dict[str, Any] = {}
    for override, token in parsed.args.overrides:
        if override.op != "~":
            put(tree, override.key.split("."), override.value)
            parsed.at[override.key] = token
    for name, value in perf_harness.fields_of(flags).items():  # the scripts apply flags over overrides
        put(tree, name.split("."), value)
    for flag, token in parsed.args.flag_at.items():
        for name in perf_harness.fields_of({flag: flags[flag]}) if flag in flags else ():
            parsed.at[name] = token
        parsed.at[f"perf_harness.{flag}"] = token
    for given in (flags.get("--custom_env_vars") or [])[-1:]:
        if isinstance(given, Unknown):
            parsed.notes.append(Note("--custom_env_vars is not known here.", None, ("--custom_env_vars",)))
        else:
            pairs = (pair.partition("=") for pair in given.split(","))
            parsed.env = {**(parsed.env or {}), **{name: value for name, eq, value in pairs if eq}}
    tree["perf_harness"] = flags
    recipe = " ".join(str(t) for t in flags.get("--model_recipe_name", ()))
    what = f"The recipe {recipe} that these flags change" if recipe else "The recipe that these flags change"
    parsed.notes.append(Note(f"{what} was not read; fields that they do not set are unknown."))
    parsed.frontend, parsed.format, parsed.values = "bridge", "perf-harness", tree


def _swift(source: Source, parsed: Parsed, frontend: str) -> None:
    flags = _lists(parsed.args.flags)
    found = {flag[2:]: _literal(tokens) for flag, tokens in flags.items() if flag.startswith("--")}
    parsed.at = {flag[2:]: token for flag, token in parsed.args.flag_at.items()}
    extra = found.pop("megatron_extra_kwargs", None)
    values, own = keep_model_fields(found)
    if isinstance(extra, str):
        more = json_mapping(extra)
        if more is None:
            parsed.notes.append(Note("--megatron_extra_kwargs is no JSON mapping and was not read."))
        else:
            values |= look(more, "core").values
            parsed.at |= dict.fromkeys(more, parsed.args.flag_at["--megatron_extra_kwargs"])
    elif extra is not None:
        parsed.notes.append(Note("--megatron_extra_kwargs is not known here.", None, ("megatron_extra_kwargs",)))
    if own:
        parsed.notes.append(Note(f"ms-swift's own arguments were not judged: {', '.join(sorted(own)[:12])}."))
    parsed.frontend, parsed.format, parsed.values = "core", "ms-swift", values


def json_mapping(text: str) -> dict[str, Any] | None:
    """A JSON mapping, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _lists(flags: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {flag: tokens for flag, tokens in flags.items() if isinstance(tokens, list)}


def _literal(tokens: list[Any]) -> Any:
    """An ms-swift value: a boolean, number or text; several tokens are a list."""
    if not tokens:
        return True
    values = [token if isinstance(token, Unknown) else _scalar(token) for token in tokens]
    return values[0] if len(values) == 1 else values


def _scalar(text: str) -> Any:
    low = text.lower()
    if low in {"true", "false"}:
        return low == "true"
    if low in {"none", "null"}:
        return None
    try:
        value = fold(text)
    except NotLiteral:
        return text
    return value if isinstance(value, (int, float)) else text


def _places(source: Source, parsed: Parsed) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name, token in parsed.at.items():
        offset = start_of(token)
        if 0 <= offset <= len(source.text):
            found[name] = source.place(offset)
    return found


def start_of(token: Token) -> int:
    """Offset of a token in the input: where its text stands, else where it is used, else -1."""
    for piece in token.pieces:
        if not isinstance(piece, Hole) and len(piece) and piece.at[0] >= 0:
            return piece.at[0]
    return token.use[0] if token.use else -1


def _token_location(source: Source, token: Token) -> Location | None:
    return source.location(start_of(token))
