"""A session of fastmcp's client with the server: python fastmcp_session.py COMMAND ARG..."""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

CALLS = {
    "validate_config": {"config": "cuda_graph_impl: te", "stack": "core=0.19.2"},
    "recommend_scope": {"workload": {"num_layers": 32, "hidden_size": 4096, "gpu": "h100"}},
    "diagnose_error": {"text": "AssertionError: RNG tracker does not support cudagraphs!"},
    "run_capture_smoke": {"preset": "tiny"},
}


async def main() -> None:
    """List and call every tool."""
    async with Client(StdioTransport(command=sys.argv[1], args=sys.argv[2:])) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == list(CALLS), names
        for name in names:
            result = await client.call_tool(name, CALLS[name])
            assert result.structured_content, name
            print(f"{name}: {result.content[0].text.splitlines()[0]}")


asyncio.run(main())
