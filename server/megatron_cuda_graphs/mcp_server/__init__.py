"""The MCP server: wires tools, resources, prompts and the skill; knows no rule. Only this package imports mcp."""

from __future__ import annotations

from mcp.server import MCPServer

from .. import __version__
from . import resources, skills, tools
from .strict import StrictServer

__all__ = ["INSTRUCTIONS", "build", "serve"]

NAME = "megatron-cuda-graphs"
INSTRUCTIONS = """\
CUDA graphs in NVIDIA Megatron Core, Megatron Bridge and Transformer Engine, judged per release. Before a run: \
validate_config with the configuration as it is written and the stack (bridge=0.6.2,te=2.14.0); apply its fix. \
For what to capture: recommend_scope. After a failure: diagnose_error with the log. To prove it on this machine's \
GPU: run_capture_smoke. Say what is undecided; don't guess releases. Each rule and failure mode has a page: \
rule://MCG044, failure-mode://missing_te_rng_tracker. Skill: skill://megatron-cuda-graphs/SKILL.md."""


def build(allowed: tuple[str, ...] = ()) -> MCPServer[None]:
    """The server. `allowed` are folders whose files tools may read; without any, clients send text."""
    server = StrictServer(
        NAME,
        title="Megatron CUDA graphs",
        description="Check, choose, diagnose and prove CUDA graphs in Megatron.",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        tools=list(tools.tools(allowed)),
        extensions=[skills.Skills()],
    )
    resources.add(server)
    return server


def serve(allowed: tuple[str, ...] = (), port: int | None = None) -> None:
    """Serve on stdio, or with a port on the loopback interface over HTTP, until the client goes away."""
    server = build(allowed)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
