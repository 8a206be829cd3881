"""Command lines: which of a text's commands starts Megatron, and what its arguments say.

Wrappers (torchrun, srun, docker, `bash -c "..."`, ssh, sbatch --wrap) are looked through; the program's own arguments
are Megatron-LM flags, Hydra overrides, the flags of Bridge's performance scripts, or those of ms-swift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import InputError
from . import hydra, perf_harness
from .command_reading import Parsed, Source, reading_of, sort_out
from .limits import MAX_SCRIPT, Refused
from .reading import Reading
from .shell import Hole, Pieces, Text, Token, run_script

__all__ = [
    "Arguments",
    "Given",
    "Invocation",
    "arguments",
    "choose",
    "invocations_of",
    "parse_invocations",
    "read_command",
    "unwrapped",
]

_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_SHELL_COMMAND = re.compile(r"-[a-z]*c\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.DOTALL)
_LAUNCH_MODULES = ("torch.distributed", "accelerate", "deepspeed")
_LAUNCHERS = frozenset({"torchrun", "ft_launcher", "accelerate", "deepspeed"})
_LAUNCHER_SWITCHES = frozenset(
    {"--standalone", "--no-python", "--no_python", "-m", "--module", "--use-env", "--use_env", "--run-path"}
)
_TELLING = re.compile(
    r"--(?:[\w-]*cuda[-_]graph[\w-]*|num[-_]layers|hidden[-_]size|num[-_]attention[-_]heads|micro[-_]batch[-_]size"
    r"|tensor[-_]model[-_]parallel[-_]size|transformer[-_]impl|use[-_]mcore[-_]models|model_recipe_name"
    r"|te[-_]rng[-_]tracker|num[-_]experts|megatron_extra_kwargs|bf16|fp8[-_]format|recompute[-_][\w-]+)\Z"
)
_MANY = re.compile(r"args|opts|options?\b|options?_|params|flags|extra|overrides|@|\*", re.IGNORECASE)
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")
_FLAG = re.compile(r"--[A-Za-z][\w.-]*")
_OVERRIDE = re.compile(r"(?:\+\+|[+~])?[A-Za-z_][\w-]*(?:[./@][\w-]+)+(?:=|\Z)|(?:\+\+|\+)[A-Za-z_][\w-]*=")
_PLAIN_OVERRIDE = re.compile(r"(?:\+\+|[+~])?[A-Za-z_][\w-]*(?:\.[\w-]+)*=")
MAX_DEPTH = 6


@dataclass(slots=True)
class Invocation:
    """A program and its arguments, with the environment that the text gives it."""

    program: str
    args: list[Token]
    env: dict[str, Pieces]
    start: int
    conditional: bool = False

    def score(self) -> int:
        """How surely this starts Megatron."""
        if self.program in {"swift", "rlhf.py", "infer.py"}:  # ms-swift without Megatron
            return 0
        texts = [token.text or token.head.rstrip("=") for token in self.args]
        telling = sum(bool(_TELLING.match(text.partition("=")[0])) for text in texts)
        overrides = sum(bool(_OVERRIDE.match(text)) and not text.startswith("-") for text in texts)
        known = self.program.startswith(("pretrain_", "megatron ", "train_", "finetune_", "verl."))
        known = known or self.program in perf_harness.PROGRAMS
        return 10 * telling + 5 * overrides + (3 if known else 0) + min(4, sum(t.startswith("--") for t in texts))


class Given(NamedTuple):
    """One place where a flag stands: its token, the words behind it, and their tokens."""

    flag: str
    at: Token
    words: list[Any]
    words_at: list[Token]


@dataclass
class Arguments:
    """Arguments by kind: flag -> tokens where it stands last, overrides in order, what may be hidden.

    given: every place of every flag, in order.
    """

    given: list[Given] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    flag_at: dict[str, Token] = field(default_factory=dict)
    value_at: dict[str, list[Token]] = field(default_factory=dict)
    overrides: list[tuple[hydra.Override, Token]] = field(default_factory=list)
    hidden: list[tuple[str, Token]] = field(default_factory=list)
    maybe: list[tuple[str, Token, str]] = field(default_factory=list)
    loose: list[Token] = field(default_factory=list)

    def begin(self, flag: str, token: Token, words: list[Any]) -> None:
        """A flag, with the words that its own token holds."""
        given = Given(flag, token, words, [])
        self.given.append(given)
        self.flags[flag], self.flag_at[flag], self.value_at[flag] = given.words, given.at, given.words_at

    def repeated(self) -> list[Given]:
        """The places of flags that stand once more further on."""
        return [given for given in self.given if self.flag_at[given.flag] is not given.at]


# Finding the command


def invocations_of(text: Text, env: Mapping[str, Pieces] | None = None, depth: int = 0) -> tuple[list[Invocation], Any]:
    """Every program that a script starts, and what the script exports or could not read."""
    script = run_script(text, env)
    found: list[Invocation] = []
    for command in script.commands:
        for invocation in unwrapped(command.tokens, command.env, command.start, depth):
            invocation.conditional = command.conditional
            found.append(invocation)
    return found, script


def unwrapped(tokens: list[Token], env: dict[str, Pieces], start: int, depth: int) -> Iterator[Invocation]:
    """The programs that a command starts, past the wrappers around them."""
    while tokens and tokens[0].text in {"$", "exec", "nohup", "time", "command", "sudo", "then", "do"}:
        tokens = tokens[1:]
    if not tokens:
        return
    if given := _given_env(tokens):
        env = {**env, **given}
    if depth < MAX_DEPTH and (nested := _nested(tokens)) is not None:
        try:
            inner, _ = invocations_of(nested, env, depth + 1)
        except InputError:
            inner = []
        if inner:
            yield from inner
            return
    program, args = _program(tokens)
    yield Invocation(program, args, env, start)


def _given_env(tokens: Sequence[Token]) -> dict[str, Pieces]:
    """Variables that a wrapper sets for what it starts: `env A=1`, `docker run -e A=1`, `srun --export=ALL,A=1`."""
    found: dict[str, Pieces] = {}
    heads = {_base(token.text) for token in tokens[:40] if token.text}
    containers = heads & {"docker", "podman", "nerdctl", "singularity", "apptainer", "enroot", "kubectl"}
    after_env = False
    for index, token in enumerate(tokens):
        text = token.text if token.text is not None else token.head
        if text.endswith(".py") and not containers and "mpirun" not in heads:
            break
        if _base(text) == "env":
            after_env = True
            continue
        if after_env:
            if match := _ASSIGNMENT.match(text):
                found[match[1]] = _rest(token, match.end())
                continue
            after_env = text.startswith("-")
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if containers and text in {"-e", "--env"} and following is not None:
            value = following.text if following.text is not None else following.head
            if match := _ASSIGNMENT.match(value):
                found[match[1]] = _rest(following, match.end())
        elif containers and (match := re.match(r"(?:--env=|-e)([A-Za-z_]\w*)=", text)):
            found[match[1]] = _rest(token, match.end())
        elif text == "-x" and following is not None and heads & {"mpirun", "mpiexec", "orterun"}:
            if match := _ASSIGNMENT.match(following.text or following.head):
                found[match[1]] = _rest(following, match.end())
        elif text.startswith("--export=") and heads & {"srun", "sbatch"}:
            for match in re.finditer(r"(?:=|,)([A-Za-z_]\w*)=([^,]*)", text):
                found[match[1]] = _slice(token, match.start(2), match.end(2))
    return found


def _rest(token: Token, start: int) -> Pieces:
    """The pieces of a token from `start` on, counted in its known head."""
    out: list[Text | Hole] = []
    for piece in token.pieces:
        if isinstance(piece, Hole):
            out.append(piece)
            start = 0
        elif start >= len(piece):
            start -= len(piece)
        else:
            out.append(piece.cut(start, len(piece)))
            start = 0
    return tuple(out)


def _slice(token: Token, start: int, end: int) -> Pieces:
    text = Text("")
    for piece in token.pieces:
        if isinstance(piece, Hole):
            return (piece,)
        text = text + piece
    return (text.cut(start, end),)


def _nested(tokens: Sequence[Token]) -> Text | None:
    """The script that a wrapper is given as one word, with unknown parts as variables of their own name."""
    for index, token in enumerate(tokens):
        text = token.text
        if text is None:
            continue
        if index and _SHELL_COMMAND.match(text) and index + 1 < len(tokens):
            before = [t.text or "" for t in tokens[max(0, index - 4) : index]]
            if any(_base(word) in _SHELLS or _base(word) in {"su", "setsid"} for word in before):
                return _joined(tokens[index + 1].pieces)
        if text == "--wrap" and index + 1 < len(tokens):
            return _joined(tokens[index + 1].pieces)
        if text.startswith("--wrap=") and _base(tokens[0].text) == "sbatch":
            return _joined(_rest(token, len("--wrap=")))
    if _base(tokens[0].text) in {"ssh", "pdsh"} and tokens[-1].text and " " in tokens[-1].text:
        return _joined(tokens[-1].pieces)
    return None


def _joined(pieces: Pieces) -> Text:
    text = Text("")
    for piece in pieces:
        text = text + (piece if isinstance(piece, Text) else Text(f"${{{re.sub(r'[^A-Za-z0-9_]', '_', piece.name)}}}"))
    return text


def _base(text: str | None) -> str:
    return (text or "").rpartition("/")[2]


def _program(tokens: list[Token]) -> tuple[str, list[Token]]:
    """The program that does the work, past its launchers, and its own arguments."""
    first = tokens[0].text if tokens[0].text is not None else tokens[0].head
    if first.startswith(("-", "~")) or _PLAIN_OVERRIDE.match(first):
        return "", tokens
    index, limit = 0, len(tokens)
    launcher = False
    while index < limit:
        token = tokens[index]
        text = token.text
        base = _base(text)
        if base in _LAUNCHERS:
            launcher = True
        if base == "megatron" and index + 1 < limit and not launcher:
            return f"{base} {tokens[index + 1].text}", tokens[index + 2 :]
        if text in {"-m", "--module"} and index + 1 < limit and index:
            module = tokens[index + 1].text or ""
            if module.startswith(_LAUNCH_MODULES):
                launcher = True
                index += 2
                continue
            if "." in module or not launcher:
                return module, tokens[index + 2 :]
        if text is not None and base.endswith((".py", ".pyc")) and not text.startswith("-"):
            return base, tokens[index + 1 :]
        index += 1
    if launcher and (at := _after_launcher(tokens)) is not None:
        return _base(tokens[at].text) or "a script", tokens[at + 1 :]
    return _base(tokens[0].text), tokens[1:]


def _after_launcher(tokens: list[Token]) -> int | None:
    """Where the launched program stands when its name does not give it away: the first word that is no option."""

    def launches(token: Token) -> bool:
        return _base(token.text) in _LAUNCHERS or (token.text or "").startswith(_LAUNCH_MODULES)

    index = next((i for i, token in enumerate(tokens) if launches(token)), 0) + 1
    while index < len(tokens):
        token = tokens[index]
        if token.text is not None and token.text.startswith("-"):
            index += 1 if "=" in token.text or token.text in _LAUNCHER_SWITCHES else 2
        elif token.splat and token.hole is not None and (token.hole.many or _MANY.search(token.hole.name)):
            index += 1
        else:
            return index
    return None


def choose(found: Sequence[Invocation]) -> Invocation | None:
    """The invocation that starts Megatron: the one with most of its flags, the first of equals."""
    best = max(found, key=lambda item: item.score(), default=None)
    return best if best is not None and best.score() >= 5 else None


# Reading its arguments


def arguments(tokens: Sequence[Token]) -> Arguments:
    """Sort a program's arguments."""
    args = Arguments()
    current: str | None = None
    for token in tokens:
        text = token.text
        if text is None:
            current = _unknown_token(args, token, current)
            continue
        if text == "--":
            current = None
            continue
        if _FLAG.match(text):
            flag, eq, value = text.partition("=")
            args.begin(flag, token, [value] if eq else [])
            current = None if eq else flag
            continue
        if text.startswith("-") and len(text) > 1 and not _NUMBER.match(text) and text[1:2].isalpha():
            flag = perf_harness.LONG.get(text, text)
            args.begin(flag, token, [])
            current = flag
            continue
        if _OVERRIDE.match(text) and (override := hydra.parse_override(text)) is not None:
            args.overrides.append((override, token))
            current = None
            continue
        if current is None:
            args.loose.append(token)
        else:
            args.flags[current].append(text)
            args.value_at[current].append(token)
    return args


def _unknown_token(args: Arguments, token: Token, current: str | None) -> str | None:
    assert token.hole is not None
    head, hole = token.head, token.hole
    if _FLAG.match(head) and "=" in head:
        flag = head.partition("=")[0]
        args.begin(flag, token, [token.value])
        return None
    if _OVERRIDE.match(head) and "=" in head:
        key = head.partition("=")[0]
        op = re.match(r"\+\+|[+~]|", key)
        assert op is not None
        args.overrides.append((hydra.Override(op[0], key[op.end() :], token.value, ""), token))
        return None
    if token.splat:
        if hole.flags:
            for flag in sorted(hole.flags):
                args.maybe.append((flag, token, hole.name))
            return current
        takes_value = current is not None and not args.flags[current]
        if hole.flags is None and (not takes_value or hole.many or _MANY.search(hole.name)):
            args.hidden.append((hole.name, token))
            return current
        if not takes_value:
            return current
    if current is not None:
        args.flags[current].append(token.value)
        args.value_at[current].append(token)
    else:
        args.loose.append(token)
    return current


def read_command(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    """The reading of a command line, or of a script that holds one.

    Raises:
        InputError: it does not parse as shell, is too long, or no command in it has Megatron's flags.
    """

    def parse(text: str) -> Parsed:
        return _parse(text, frontend, path)

    return reading_of(Source(text, path, _format(text)), parse(text), parse)


def _format(text: str) -> str:
    lines = text.strip().replace("\\\n", "").replace("\\\r\n", "")
    return "script" if "\n" in lines else "command-line"


def _parse(text: str, frontend: str, path: str | None) -> Parsed:
    if len(text) > MAX_SCRIPT:
        raise Refused(f"The script is longer than {MAX_SCRIPT // 2**20} MiB.", path=path)
    try:
        found, script = invocations_of(Text.source(text))
    except InputError as exc:
        raise InputError(exc.message, hint=exc.hint, path=path, line=exc.line) from None
    return parse_invocations(found, script.notes, script.env, Source(text, path, _format(text)), frontend)


def parse_invocations(
    found: Sequence[Invocation],
    notes: Sequence[tuple[str, int]],
    exported: Mapping[str, Pieces],
    source: Source,
    frontend: str,
) -> Parsed:
    """Sort out the one of the invocations that starts Megatron.

    Raises:
        InputError: none of them does.
    """
    found = _as_overrides(found)
    chosen = choose(found)
    if chosen is None:
        raise InputError(
            "No command with Megatron's flags was found.",
            hint="Expected flags such as --cuda-graph-impl, or overrides such as model.cuda_graph_impl=local.",
            path=source.path,
        )
    others = [item for item in found if item is not chosen and item.score() >= 15]
    more = [(f"Another command ({item.program or 'without a program'}) was not read", item.start) for item in others]
    return sort_out(source, chosen, arguments(chosen.args), [*notes, *more], exported, frontend)


def _as_overrides(found: Sequence[Invocation]) -> list[Invocation]:
    """Overrides given one a line parse as one command each: put them together."""
    bare = [item for item in found if not item.program]
    if len(bare) < 2 or len(bare) < len(found):
        return list(found)
    return [Invocation("", [token for item in bare for token in item.args], bare[-1].env, bare[0].start)]
