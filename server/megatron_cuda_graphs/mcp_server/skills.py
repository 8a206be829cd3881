"""The skill over MCP (SEP-2640): `skills/list`, `skills/get`, and each file as a resource."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from mcp.server.extension import Extension, MethodBinding, ResourceBinding
from mcp.server.mcpserver.resources import FileResource
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, PaginatedRequestParams, RequestParams

from ..errors import EnvironmentLacks
from ..knowledge import skill_files

__all__ = ["Skills"]

ROOT = "skill://megatron-cuda-graphs/"
CACHED = {"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public"}


class _Get(RequestParams):
    uri: str


def _files() -> dict[str, Any]:
    try:
        return dict(skill_files())
    except EnvironmentLacks:  # an installation without the skill still serves its tools
        return {}


def _entry() -> dict[str, Any]:
    import yaml

    files = _files()
    head = files["SKILL.md"].read_text("utf-8").split("---\n", 2)[1]
    resources = []
    for name, path in files.items():
        content = path.read_bytes()
        resources.append({"uri": ROOT + name, "digest": f"sha256:{sha256(content).hexdigest()}", "size": len(content)})
    return {"uri": f"{ROOT}SKILL.md", "frontmatter": yaml.safe_load(head), "resources": resources}


class Skills(Extension):
    """Serves the one skill of this package."""

    identifier = "io.modelcontextprotocol/skills"

    def resources(self) -> Sequence[ResourceBinding]:
        """SKILL.md, its references and the card."""
        return [
            ResourceBinding(
                FileResource(
                    uri=ROOT + name, name="megatron-cuda-graphs" if name == "SKILL.md" else name, path=path.resolve(),
                    mime_type="text/markdown" if name.endswith(".md") else "application/yaml", encoding="utf-8",
                )
            )
            for name, path in _files().items()
        ]  # fmt: skip

    def methods(self) -> Sequence[MethodBinding]:
        """`skills/list` and `skills/get`."""

        async def listing(ctx: Any, params: PaginatedRequestParams) -> dict[str, Any]:
            return {"skills": [_entry()] if _files() else [], **CACHED}

        async def get(ctx: Any, params: _Get) -> dict[str, Any]:
            if params.uri != f"{ROOT}SKILL.md" or not _files():
                raise MCPError(code=INVALID_PARAMS, message=f"There is no skill {params.uri}; there is {ROOT}SKILL.md.")
            return {"skill": _entry(), **CACHED}

        return [MethodBinding("skills/list", PaginatedRequestParams, listing), MethodBinding("skills/get", _Get, get)]
