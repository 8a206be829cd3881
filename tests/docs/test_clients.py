"""The snippets that people paste into their clients: in step with the package, and of the shape each client takes."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from megatron_cuda_graphs.cli import parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/clients.md").read_text("utf-8")
STRINGS = {"type": "array", "items": {"type": "string"}}
VARIABLES = {"type": "object", "additionalProperties": {"type": "string"}}


def of_servers(key: str, fields: dict[str, Any]) -> dict[str, Any]:
    server = {"type": "object", "properties": fields, "required": ["command"], "additionalProperties": False}
    return {
        "type": "object", "required": [key], "additionalProperties": False,
        "properties": {key: {"type": "object", "minProperties": 1, "additionalProperties": server}},
    }  # fmt: skip


# The fields of a local server that each client documents. What the clients' own schemas and types say is asked of them
# in .ci/clients/run.py (part `editors`), these fields among it.
SHAPES = {
    "vscode": of_servers("servers", {"type": {"const": "stdio"}, "command": {"type": "string"}, "args": STRINGS,
                                     "env": VARIABLES, "envFile": {"type": "string"}, "cwd": {"type": "string"}}),
    "cursor": of_servers("mcpServers", {"type": {"const": "stdio"}, "command": {"type": "string"}, "args": STRINGS,
                                        "env": VARIABLES, "cwd": {"type": "string"}}),
    "codex-toml": of_servers("mcp_servers", {"command": {"type": "string"}, "args": STRINGS, "env": VARIABLES,
                                             "startup_timeout_sec": {"type": "number", "exclusiveMinimum": 0},
                                             "tool_timeout_sec": {"type": "number", "exclusiveMinimum": 0}}),
}  # fmt: skip
READ = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def block(name: str) -> tuple[str, str]:
    """A made block of the page: language and text."""
    found = re.search(rf"<!-- made: {name} -->\n```([a-z]+)\n(.*?)\n```\n", PAGE, re.DOTALL)
    assert found, name
    return found[1], found[2]


@pytest.mark.parametrize("name", SHAPES)
def test_snippet_has_the_shape_its_client_takes_and_starts_the_server(name: str) -> None:
    language, text = block(name)
    value = READ[language](text)
    jsonschema.Draft202012Validator.check_schema(SHAPES[name])
    jsonschema.validate(value, SHAPES[name])
    ((server_name, server),) = next(iter(value.values())).items()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert server_name == pyproject["name"]
    assert server["command"] == "uvx"
    program, command, *rest = server["args"]
    assert program in pyproject["scripts"]  # what `uvx NAME` runs
    parser(command).parse_args(rest)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("wrong", ["comand", "arguments"])
def test_shape_refuses_a_misspelt_field(name: str, wrong: str) -> None:
    language, text = block(name)
    right = "command" if wrong == "comand" else "args"
    value = READ[language](re.sub(rf'(?m)^(\s*"?){right}\b', rf"\g<1>{wrong}", text))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SHAPES[name])


def test_one_declaration_makes_page_examples_and_commands() -> None:
    make = importlib.import_module("make_manifests")
    assert json.loads(block("cursor")[1]) == json.loads((ROOT / "examples/clients/mcp.json").read_text("utf-8"))
    assert json.loads(block("vscode")[1]) == json.loads((ROOT / "examples/clients/vscode.mcp.json").read_text("utf-8"))
    assert READ["toml"](block("codex-toml")[1]) == make.CODEX
    readme = (ROOT / "README.md").read_text("utf-8")
    for client in ("claude", "codex", "claude-clone", "codex-clone"):
        assert block(client)[1] in readme


def test_servers_from_a_clone_need_nothing_published() -> None:
    for client in ("claude-clone", "codex-clone"):
        assert block(client)[1].endswith(' -- "$PWD/.venv/bin/megatron-cuda-graphs" serve')
    (server,) = json.loads(block("clone")[1])["mcpServers"].values()
    assert server == {"command": "/path/to/clone/.venv/bin/megatron-cuda-graphs", "args": ["serve"]}
    (project,) = json.loads((ROOT / ".mcp.json").read_text("utf-8"))["mcpServers"].values()
    assert (ROOT / project["args"][0]).is_file()
    assert "$" not in json.dumps(project)  # a clone has no CLAUDE_PLUGIN_ROOT
    (plugin,) = json.loads((ROOT / ".claude-plugin/plugin.json").read_text("utf-8"))["mcpServers"].values()
    assert plugin["args"] == ["${CLAUDE_PLUGIN_ROOT}/scripts/mcg", "serve"]


def test_page_without_a_block_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make = importlib.import_module("make_manifests")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/clients.md").write_text(PAGE.replace("<!-- made: vscode -->", ""))
    monkeypatch.setattr(make, "ROOT", tmp_path)
    with pytest.raises(AssertionError, match="vscode"):
        make.clients()


def test_hook_and_action_of_the_page_are_those_of_the_repository() -> None:
    (repo,) = yaml.safe_load(block("pre-commit")[1])["repos"]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [h["id"] for h in repo["hooks"]] == [hook["id"]]
    (job,) = yaml.safe_load(block("action")[1])["jobs"].values()
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert set(job["steps"][-1]["with"]) <= set(action["inputs"])
    commands = [s["run"] for s in action["runs"]["steps"] if "validate" in s.get("run", "")]
    assert len(commands) == 2
    for run in commands:
        options = re.findall(r"(?<!\S)--[a-z-]+", run)
        known = {o for a in parser("validate")._actions for o in a.option_strings}
        assert options
        assert set(options) <= known
