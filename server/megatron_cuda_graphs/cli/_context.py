"""Options that say for which releases, and in which environment, a configuration is judged."""

from __future__ import annotations

import argparse
import os
import re

from ..errors import InputError
from ..files import read_file
from ..stack import Stack
from . import _project

__all__ = ["add_env", "add_format", "add_frontend", "add_stack", "environment", "read_stack", "stacks"]

STACK_HELP = (
    "releases, such as bridge=0.6.2,te=2.14.0 or core=0.19.2,gpu=h100; @FILE reads requirements, a lock file, "
    "pip freeze or a job log. Default: [tool.megatron-cuda-graphs] in pyproject.toml, else what is installed, "
    "else the newest covered."
)


def add_stack(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """`--stack`."""
    several_help = " Give it several times to compare releases." if several else ""
    parser.add_argument("--stack", action="append", default=[], metavar="STACK", help=STACK_HELP + several_help)


def add_env(parser: argparse.ArgumentParser) -> None:
    """`--env`, `--env-file`, `--env-from-job`."""
    group = parser.add_argument_group("the job's environment (unknown unless given; then, what is not named is unset)")
    group.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the job")
    group.add_argument("--env-file", action="append", default=[], metavar="FILE", help="NAME=VALUE lines; `env` output")
    group.add_argument("--env-from-job", action="store_true", help="this process's own environment: for use in a job")


def add_frontend(parser: argparse.ArgumentParser) -> None:
    """`--frontend`."""
    parser.add_argument(
        "--frontend", choices=("auto", "core", "bridge", "megatron-lm"), default="auto",
        help="whose configuration it is: TransformerConfig fields, a Bridge ConfigContainer, Megatron-LM flags",
    )  # fmt: skip


def add_format(parser: argparse.ArgumentParser, *more: str) -> None:
    """`--format`."""
    parser.add_argument("--format", choices=("text", "json", *more), default="text", help="default: text")


def read_stack(text: str) -> Stack:
    """A stack as given to `--stack`.

    Raises:
        InputError: it names no known package, or the file names no release.
    """
    if not text.startswith("@"):
        return Stack.parse(text)
    stack = Stack.read(read_file(text[1:]).decode("utf-8", "replace"))
    if all(getattr(stack, name) is None for name in Stack.packages):
        raise InputError(
            "names no release of megatron-core, megatron-bridge, transformer-engine or torch.", path=text[1:]
        )
    return stack


def stacks(args: argparse.Namespace) -> list[Stack]:
    """The stacks asked for, at least one.

    Raises:
        InputError: see `read_stack`.
    """
    given = args.stack or ([s] if (s := _project.setting("stack", str)) else [])
    if not given:
        return [Stack.detect()]
    if len(given) > 1 and all(len(re.split(r"[,;\s]", g.strip())) == 1 and "=" in g for g in given):
        names = [g.partition("=")[0].strip() for g in given]
        if len(set(names)) == len(names):  # --stack bridge=0.6.2 --stack te=2.14.0 is one stack in two pieces
            return [read_stack(",".join(given))]
    return [read_stack(text) for text in given]


def environment(args: argparse.Namespace) -> dict[str, str] | None:
    """The job's environment as far as given; None when nothing is.

    Raises:
        InputError: something that is not NAME=VALUE.
    """
    if not (args.env or args.env_file or args.env_from_job):
        return None
    env = dict(os.environ) if args.env_from_job else {}
    for file in args.env_file:
        lines = read_file(file).decode("utf-8", "replace").splitlines()
        for number, line in enumerate(lines, 1):
            text = line.strip().removeprefix("export ").strip()
            if not text or text.startswith("#"):
                continue
            if not re.match(r"[A-Za-z_]\w*=", text):
                raise InputError("not a NAME=VALUE line.", path=file, line=number)
            name, _, value = text.partition("=")
            env[name] = value.strip().strip("\"'")
    for item in args.env:
        name, equals, value = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise InputError(f"--env {item!r} is not NAME=VALUE.")
        env[name] = value
    return env
