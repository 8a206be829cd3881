"""A server in memory, spoken to in both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mcp import Client

from megatron_cuda_graphs.mcp_server import build


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["2026-07-28", "2025-11-25"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A connected client; the newer era is stateless, the older one starts with a handshake."""
    mode = "auto" if request.param == "2026-07-28" else "legacy"
    async with Client(build(), mode=mode, raise_exceptions=True) as connected:
        yield connected
