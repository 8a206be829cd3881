#!/usr/bin/env python3
"""Make the pages that follow from declarations: docs/rules/, docs/stack.md, references/releases.md, docs/tools.md.

python tools/make_docs.py            write them
python tools/make_docs.py --check    fail when one is out of date
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs import fields, releases
from megatron_cuda_graphs.render import rule as render
from megatron_cuda_graphs.rules import catalogue

MADE = "<!-- Made by tools/make_docs.py. Don't edit. -->\n"
GRAPH_FIELDS = (
    "enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules",
    "inference_cuda_graph_scope", "cuda_graph_warmup_steps", "cuda_graph_use_single_mempool",
    "cuda_graph_retain_backward_graph", "use_te_rng_tracker", "inference_rng_tracker",
    "moe_pad_experts_for_cuda_graph_inference", "delay_offload_until_cuda_graph",
)  # fmt: skip


def table(head: tuple[str, ...], rows: Any) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return (
        "\n".join([*lines, *("| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows)]) + "\n"
    )


def rule_pages() -> Iterator[tuple[str, str]]:
    """A page a rule, and the index."""
    rules = catalogue()
    for rule in rules:
        yield f"docs/rules/{rule.id}.md", MADE + render.page(rule)
    rows = [
        (f"[{r.id}]({r.id}.md)", r.name, r.severity, r.phase, render.releases(r.releases, r.package)
         if r.frontends != {"none"} else "any") for r in rules
    ]  # fmt: skip
    yield (
        "docs/rules/index.md",
        (
            MADE
            + "# Rules\n\n`error`: this release raises, in that phase. `warning`: accepted, but not what was asked "
            "for. `info`: not decided.\n`megatron-cuda-graphs explain ID` shows the same pages.\n\n"
            + table(("id", "name", "severity", "phase", "releases"), rows)
        ),
    )


def _runs(values: list[tuple[str, Any]]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    for version, value in values:
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], version, value)
        else:
            found.append((version, version, value))
    return found


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def releases_reference() -> str:
    """references/releases.md."""
    rows = []
    for name in GRAPH_FIELDS:
        known = [(v, fields.core_fields(v).get(name, "-")) for v in releases.CORE]
        runs = [(a, b, d) for a, b, d in _runs(known) if d != "-"]
        rows.append((f"`{name}`", "; ".join(f"{_range(a, b)}: `{json.dumps(d)}`" for a, b, d in runs)))
    members = []
    for enum in ("CudaGraphScope", "CudaGraphModule", "InferenceCudaGraphScope"):
        known = [(v, ", ".join(fields.enum_members(enum, v))) for v in releases.CORE]
        members += [(f"`{enum}`", _range(a, b), names) for a, b, names in _runs(known) if names]
    return (
        MADE
        + "# Graph settings by release\n\nRead this when a configuration, recipe or advice comes from another release."
        " `megatron-cuda-graphs validate FILE --stack OLD --to NEW --diff` rewrites it.\n\n"
        "## Which megatron-core belongs to which Bridge\n\n"
        + table(("megatron-bridge", "megatron-core"), releases.PAIRS.items())
        + "\n## Fields of TransformerConfig, with defaults\n\n"
        + table(("field", "megatron-core: default"), rows)
        + "\n## Names of modules\n\n"
        + table(("enum", "megatron-core", "members"), members)
        + "\n## How one intent is spelt\n\n"
        + table(("intent", "0.14", "0.15", "0.16", "0.17", "0.18, 0.19"), _spellings())
        + "\nMegatron Bridge takes the same names under `model.`; Megatron-LM as flags with dashes.\n"
    )


def _spellings() -> Iterator[tuple[str, ...]]:
    from megatron_cuda_graphs.migrate import Meaning, spelling

    intents = {
        "whole layers, Transformer Engine": Meaning("transformer_engine"),
        "attention, Transformer Engine": Meaning("transformer_engine", ("attn",)),
        "dropless MoE, Transformer Engine": Meaning("transformer_engine", ("attn", "moe_router", "moe_preprocess")),
        "whole layers, local": Meaning("local"),
        "full iteration": Meaning("full_iteration"),
        "inference over a block": Meaning("local", (), "block"),
    }
    for name, meaning in intents.items():
        row = [name]
        for core in ((0, 14, 0), (0, 15, 0), (0, 16, 0), (0, 17, 0), (0, 19, 0)):
            said, lost = spelling(meaning, core)
            row.append("not possible" if lost else "<br>".join(f"`{k}={json.dumps(v)}`" for k, v in said.items()))
        yield tuple(row)


STACKS = """\
# Stacks

A stack is the releases that a configuration is judged for: `bridge=0.6.2,te=2.14.0` on the command line,
`Stack(megatron_bridge="0.6.2")` in Python, text or an object over MCP. Each version was `given`, `installed` (read from
package metadata, nothing is imported), `paired` (Bridge's own megatron-core) or `default` (nothing known: the newest
covered).

`megatron-cuda-graphs stack` shows it, `stack --read FILE` reads requirements, a lock file, `pip freeze` output or the
version lines of a job log. `absent` means known not to be installed.

## Releases covered

megatron-core: {core}.

{table}
A release that is not covered is judged as the nearest older one that is, with a finding (MCG901). A pair that does not
import together is an error (MCG902); one that does, but was not released together, is a warning (MCG907). An unknown
transformer-engine, torch or GPU leaves the rules that need it undecided; it never passes or fails them.
"""


def stack_page() -> str:
    """docs/stack.md."""

    def lines(bridge: str) -> str:
        found = releases.BRIDGE_NEEDS_CORE[releases.line(releases.parse(bridge))]
        return ", ".join(f"{major}.{minor}" for major, minor in sorted(found))

    head = ("megatron-bridge", "released with megatron-core", "imports with")
    pairs = table(head, ((b, c, lines(b)) for b, c in releases.PAIRS.items()))
    return MADE + STACKS.replace("{core}", ", ".join(releases.CORE)).replace("{table}", pairs)


CALLS: dict[str, dict[str, Any]] = {
    "validate_config": {"stack": "bridge=0.6.2,te=2.14.0"},
    "recommend_scope": {"workload": {"num_moe_experts": 128, "hidden_size": 2048, "num_layers": 48, "gpu": "h100"}},
    "diagnose_error": {"text": "[rank3]: AssertionError: RNG tracker does not support cudagraphs!"},
}
SERVER = """\
# The MCP server

`megatron-cuda-graphs serve` speaks MCP over stdio; `--http` over HTTP on the loopback interface. Every answer has a
short text and the whole result as structured content. Errors that the caller can mend come back as readable tool
errors. Files are read only under folders given with `--allow-path`; text is always fine.
"""


async def _ask() -> tuple[list[Any], list[Any], list[Any], list[Any], dict[str, str]]:
    """What a client sees, and the texts of typical answers."""
    from mcp import Client

    from megatron_cuda_graphs.mcp_server import build

    calls = {name: dict(arguments) for name, arguments in CALLS.items()}
    calls["validate_config"]["config"] = (ROOT / "examples/qwen3_30b_a3b_pretrain.yaml").read_text("utf-8")
    async with Client(build()) as client:
        answers = {name: (await client.call_tool(name, a)).content[0].text for name, a in calls.items()}
        return (
            (await client.list_tools()).tools,
            (await client.list_resources()).resources,
            (await client.list_resource_templates()).resource_templates,
            (await client.list_prompts()).prompts,
            answers,
        )


def _tokens(tools: list[Any], answers: dict[str, str]) -> str:
    """What the tool list and typical answers cost a model's context."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai

    encoding = bpe_openai.get_encoding("o200k_base")
    listed = [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in tools]

    def count(value: Any) -> int:
        return len(encoding.encode(value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))))

    rows = [("the whole tool list", count({"tools": listed}), "")]
    rows += [(f"`{t['name']}`", count(t), count(answers[t["name"]]) if t["name"] in answers else "") for t in listed]
    shown = table(("", "definition", "answer"), rows)
    return (
        "## Tokens\n\nCounted with the o200k_base vocabulary; other models' differ a little. Answers are the texts to "
        f"the calls in tools/make_docs.py; the structured content comes on top.\n\n{shown}"
    )


def tools_page() -> str:
    """docs/tools.md: the MCP tools as a client sees them."""
    tools, resources, templates, prompts, answers = asyncio.run(_ask())
    parts = [MADE + SERVER]
    for tool in tools:
        rows = [
            (f"`{name}`", "yes" if name in tool.input_schema.get("required", ()) else "", p.get("description", ""))
            for name, p in tool.input_schema["properties"].items()
        ]
        kind = "reads only" if tool.annotations.read_only_hint else "runs a process on the GPU"
        listed = table(("argument", "required", ""), rows)
        parts.append(f"## {tool.name}\n\n{tool.description}\n\n({kind})\n\n{listed}")
    served = [
        *((f"`{r.uri}`", r.description or r.name) for r in resources if not str(r.uri).startswith("skill:")),
        *((f"`{t.uri_template}`", t.description) for t in templates),
        ("`skill://megatron-cuda-graphs/SKILL.md`", "The skill, with `skills/list` and `skills/get` (SEP-2640)."),
    ]
    parts.append(f"## Resources\n\n{table(('uri', ''), served)}")
    parts.append(f"## Prompts\n\n{table(('name', ''), ((f'`{p.name}`', p.description) for p in prompts))}")
    parts.append(_tokens(tools, answers))
    return "\n".join(parts)


def pages() -> Iterator[tuple[str, str]]:
    """Every made page: path and text."""
    yield from rule_pages()
    yield "references/releases.md", releases_reference()
    yield "docs/stack.md", stack_page()
    yield "docs/tools.md", tools_page()


def main() -> int:
    """Write or check."""
    made = dict(pages())
    stale = [p for p, text in made.items() if not (ROOT / p).exists() or (ROOT / p).read_text("utf-8") != text]
    left = [p for p in (ROOT / "docs/rules").glob("*.md") if p.relative_to(ROOT).as_posix() not in made]
    if "--check" in sys.argv:
        for path in [*stale, *left]:
            print(f"{path} is out of date: run python tools/make_docs.py", file=sys.stderr)
        return int(bool(stale or left))
    for path in left:
        path.unlink()
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(made[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
