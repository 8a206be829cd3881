"""Completion scripts for shells, made from the commands' own parsers."""

from __future__ import annotations

import argparse

from . import COMMANDS, PROG, parser

__all__ = ["script"]


def _options(command: str) -> dict[str, str]:
    """Long options of a command with their help."""
    return {
        option: (action.help or "").split(". ")[0].replace("'", "")
        for action in parser(command)._actions
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
        if option.startswith("--")
    }


def script(shell: str) -> str:
    """The completion script of bash, zsh or fish."""
    function = "_" + PROG.replace("-", "_")
    names = " ".join(COMMANDS)
    if shell == "fish":
        lines = [f"complete -c {PROG} -n __fish_use_subcommand -f -a {n} -d '{w}'" for n, w in COMMANDS.items()]
        for command in COMMANDS:
            lines += [
                f"complete -c {PROG} -n '__fish_seen_subcommand_from {command}' -l {option[2:]} -d '{what}'"
                for option, what in _options(command).items()
            ]
        return "\n".join(line.replace("CUDA-graph's", "CUDA-graph") for line in lines) + "\n"
    cases = "\n".join(f"    {c}) words='{' '.join(_options(c))}' ;;" for c in COMMANDS)
    if shell == "zsh":
        return f"""#compdef {PROG}
{function}() {{
  if (( CURRENT == 2 )); then compadd -- {names}; return; fi
  local words_for
  case $words[2] in
{cases.replace("words=", "words_for=")}
  esac
  if [[ $PREFIX == -* ]]; then compadd -- ${{=words_for}}; else _files; fi
}}
compdef {function} {PROG}
"""
    return f"""{function}() {{
  local words current="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W '{names}' -- "$current")); return; fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}}
complete -o filenames -F {function} {PROG}
"""
