"""`serve`: the MCP server."""

from __future__ import annotations

import argparse

from ..errors import EnvironmentLacks, InputError

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs serve
  megatron-cuda-graphs serve --allow-path /jobs/logs
  megatron-cuda-graphs serve --http --port 8931

"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "--allow-path", action="append", default=[], metavar="DIR",
        help="let tools read files under this folder; repeatable. Without it, none: clients send text.",
    )  # fmt: skip
    parser.add_argument("--http", action="store_true", help="streamable HTTP on the loopback interface, not stdio")
    parser.add_argument("--port", type=int, default=8931, help="for --http; default: 8931")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    import os

    folders = []
    for folder in args.allow_path:
        if not os.path.isdir(folder):
            raise InputError(f"--allow-path {folder}: no such folder.")
        folders.append(os.path.realpath(folder))
    try:
        from ..mcp_server import serve
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise EnvironmentLacks("the mcp package is not installed.", hint="pip install 'mcp>=2.3,<3'") from None
    serve(tuple(folders), port=args.port if args.http else None)
    return 0
