#!/usr/bin/env python3
"""Make the manifests that other programs read, and the snippets of docs/clients.md, from the package's own name,
version and description.

python tools/make_manifests.py            write them
python tools/make_manifests.py --check    fail when one is out of date
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs import __version__, fields, releases

NAME = "megatron-cuda-graphs"
OWNER = "seed-e79440d5"
AUTHOR = "megatron-cuda-graphs maintainers"
SHORT = "Check, choose, diagnose and prove CUDA graphs in Megatron, for the exact releases in use."  # at most 100
SCHEMAS = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def description() -> str:
    """The project's description."""
    found = re.search(r'^description = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert found
    return found[1]


def skill() -> str:
    """SKILL.md with the version in step."""
    text = (ROOT / "SKILL.md").read_text("utf-8")
    return re.sub(r'^(  version: )"[^"]*"$', rf'\1"{__version__}"', text, count=1, flags=re.MULTILINE)


def graph_settings() -> dict[str, Any]:
    """A JSON Schema of the graph settings, for editors: every spelling of every covered release."""
    newest = releases.CORE[-1]
    scope = sorted({m for v in releases.CORE for m in fields.enum_members("CudaGraphScope", v)} | {"full"})
    modules = sorted(fields.enum_members("CudaGraphModule", newest))
    inference = list(fields.enum_members("InferenceCudaGraphScope", newest))

    def names(values: list[str]) -> dict[str, Any]:
        item = {"enum": values}
        return {"anyOf": [{"type": "array", "items": item}, {"type": "string"}, {"type": "null"}]}

    def since(name: str) -> str:
        return f"megatron-core {fields.first_release(name)} to {fields.last_release(name)}."

    graph = {
        "cuda_graph_impl": {"enum": ["none", "local", "transformer_engine", "full_iteration"],
                            "description": f"{since('cuda_graph_impl')} full_iteration from 0.18.0 on."},
        "cuda_graph_modules": {**names([*modules, "full", "full_iteration", "full_iteration_inference"]),
                               "description": f"{since('cuda_graph_modules')} Empty is the whole layer."},
        "cuda_graph_scope": {**names(scope), "description": f"{since('cuda_graph_scope')} Deprecated from 0.18.0 on."},
        "inference_cuda_graph_scope": {"enum": [*inference, None], "description": since("inference_cuda_graph_scope")},
        "cuda_graph_warmup_steps": {"type": "integer", "minimum": 0, "description": since("cuda_graph_warmup_steps")},
        "use_te_rng_tracker": {"type": "boolean", "description": since("use_te_rng_tracker")},
        "enable_cuda_graph": {"type": "boolean", "deprecated": True, "description": since("enable_cuda_graph")},
        "external_cuda_graph": {"type": "boolean", "deprecated": True, "description": since("external_cuda_graph")},
    }  # fmt: skip
    return {
        **SCHEMAS,
        "title": "CUDA-graph settings of a Megatron configuration",
        "description": "TransformerConfig fields, flat or under model of a Bridge ConfigContainer. For completion and "
        "typing mistakes; what goes together is judged by megatron-cuda-graphs validate.",
        "type": "object",
        "properties": {
            **graph,
            "model": {"type": "object", "properties": graph},
            "rng": {"type": "object", "properties": {"te_rng_tracker": {"type": "boolean"}}},
        },
    }


SERVER = {"command": "uvx", "args": [NAME, "serve"]}
CURSOR = {"mcpServers": {NAME: SERVER}}
VSCODE = {"servers": {NAME: {"type": "stdio", **SERVER}}}
CODEX = {"mcp_servers": {NAME: {**SERVER, "startup_timeout_sec": 60, "tool_timeout_sec": 300}}}
# From a clone in whose folder the README's first command was run: nothing has to be published for it.
CLONE = {"command": f"/path/to/clone/.venv/bin/{NAME}", "args": ["serve"]}
STACK = "bridge=0.6.2,te=2.14.0"


def snippets() -> dict[str, tuple[str, str]]:
    """Language and text of each block that docs/clients.md holds between its prose, by the name it goes by there."""
    rows = CODEX["mcp_servers"][NAME].items()
    add = f"{NAME} -- {SERVER['command']} {' '.join(SERVER['args'])}"
    here = f'{NAME} -- "$PWD/.venv/bin/{NAME}" serve'
    return {
        "claude-clone": ("bash", f"claude mcp add -s user {here}"),
        "codex-clone": ("bash", f"codex mcp add {here}"),
        "clone": ("json", json.dumps({"mcpServers": {NAME: CLONE}}, indent=2)),
        "claude": ("bash", f"claude mcp add {add}"),
        "codex": ("bash", f"codex mcp add {add}"),
        "codex-toml": ("toml", "\n".join((f"[mcp_servers.{NAME}]", *(f"{k} = {json.dumps(v)}" for k, v in rows)))),
        "cursor": ("json", json.dumps(CURSOR, indent=2)),
        "vscode": ("json", json.dumps(VSCODE, indent=2)),
        "plugin": ("bash", f"claude plugin marketplace add /path/to/clone\nclaude plugin install {NAME}@{NAME}"),
        "pre-commit": ("yaml", f"""\
repos:
  - repo: https://github.com/<owner>/{NAME}
    rev: v{__version__}
    hooks:
      - id: {NAME}
        args: [--stack, "{STACK}"]"""),
        "action": ("yaml", f"""\
on: [push, pull_request]
permissions:
  contents: read
  security-events: write # for sarif
jobs:
  cuda-graphs:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: <owner>/{NAME}@v{__version__}
        with:
          files: configs/
          stack: {STACK}
          sarif: true"""),
    }  # fmt: skip


def clients() -> str:
    """docs/clients.md with its blocks filled in.

    Raises:
        AssertionError: the page lacks a block, or names one that is not made.
    """
    text, made = (ROOT / "docs/clients.md").read_text("utf-8"), snippets()
    mark = re.compile(r"<!-- made: ([a-z-]+) -->\n```.*?\n```\n", re.DOTALL)
    assert sorted(mark.findall(text)) == sorted(made), set(mark.findall(text)) ^ set(made)

    def block(found: re.Match[str]) -> str:
        language, body = made[found[1]]
        return f"<!-- made: {found[1]} -->\n```{language}\n{body}\n```\n"

    return mark.sub(block, text)


def manifests() -> dict[str, str]:
    """Path and text of each."""
    common = {"name": NAME, "version": __version__, "description": description()}
    # The plugin's own entry stands in plugin.json, which goes before .mcp.json: that is read in a clone too, where the
    # variable is not set.
    places = ("${CLAUDE_PLUGIN_ROOT}/", "")
    plugin, project = ({"command": "sh", "args": [f"{at}scripts/mcg", "serve"]} for at in places)
    found: dict[str, Any] = {
        ".claude-plugin/plugin.json": {
            **common, "author": {"name": AUTHOR}, "license": "Apache-2.0",
            "keywords": ["cuda-graphs", "megatron", "transformer-engine"], "mcpServers": {NAME: plugin},
        },
        ".mcp.json": {"mcpServers": {NAME: project}},
        ".claude-plugin/marketplace.json": {
            "name": NAME, "description": description(), "owner": {"name": AUTHOR},
            "plugins": [{"name": NAME, "source": "./", "description": description()}],
        },
        "server.json": {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": f"io.github.{OWNER}/{NAME}", "title": "Megatron CUDA graphs", "description": SHORT,
            "version": __version__,
            "packages": [{"registryType": "pypi", "identifier": NAME, "version": __version__,
                          "transport": {"type": "stdio"}, "runtimeHint": "uvx",
                          "packageArguments": [{"type": "positional", "value": "serve"}]}],
        },
        "examples/clients/mcp.json": CURSOR,
        "examples/clients/vscode.mcp.json": VSCODE,
        "server/megatron_cuda_graphs/data/graph-settings.schema.json": graph_settings(),
    }  # fmt: skip
    texts = {path: json.dumps(value, indent=2) + "\n" for path, value in found.items()}
    return {**texts, "SKILL.md": skill(), "docs/clients.md": clients()}


def main() -> int:
    """Write or check."""
    assert len(SHORT) <= 100
    stale = []
    for path, text in manifests().items():
        file = ROOT / path
        if not file.exists() or file.read_text("utf-8") != text:
            stale.append(path)
            if "--check" not in sys.argv:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path} is out of date: run python tools/make_manifests.py", file=sys.stderr)
        return int(bool(stale))
    return 0


if __name__ == "__main__":
    sys.exit(main())
