"""Tools and prompts that refuse what they do not know, answer errors in plain words and describe themselves briefly."""

from __future__ import annotations

from typing import Any, cast

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import INVALID_PARAMS, CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import UserError

__all__ = ["Arguments", "StrictServer", "StrictTool", "answer", "brief"]


class Arguments(ArgModelBase):
    """Base of a tool's arguments: no other names are taken."""

    model_config = ConfigDict(extra="forbid")


class _Metadata(FuncMetadata):
    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Objects sent as JSON text are parsed, but a configuration's text stays one: its lines are locations."""
        kept: dict[str, Any] = {k: data[k] for k in ("config", "workload", "text") if k in data}
        return {**super().pre_parse_json(data), **kept}


def _unknown(what: str, name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"unknown {what} {name!r}; " + (f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}")


def _explained(error: ValidationError, names: list[str]) -> str:
    lines: dict[str, None] = {}
    for item in error.errors(include_url=False, include_context=False):
        where = ".".join(str(p) for p in item["loc"] if not str(p).startswith(("dict[", "function-")))
        if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
            lines[_unknown("argument", where, names)] = None
        else:
            lines[f"{where}: {item['msg'].removeprefix('Value error, ')}"] = None
    return "; ".join(lines)


class StrictTool(Tool):
    """A tool whose every expected failure is a ToolError with the reason."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Run it; see the base class."""
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as exc:
            raise ToolError(f"{self.name}: {_explained(exc, list(self.parameters['properties']))}") from None
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as exc:
            if isinstance(exc.__cause__, UserError):
                raise ToolError(f"{self.name}: {exc.__cause__}") from None
            raise

    @classmethod
    def of(
        cls, fn: Any, arguments: type[Arguments], result: type[BaseModel], *, depth: int, **details: Any
    ) -> StrictTool:
        """A tool from a function, the model of its arguments and the model of its result, described to `depth`."""
        made = cast("StrictTool", cls.from_function(fn, structured_output=False, **details))
        parameters = brief(arguments.model_json_schema(), descriptions=True, depth=3)
        return made.model_copy(
            update={
                "parameters": {**parameters, "additionalProperties": False},
                "fn_metadata": _Metadata(arg_model=arguments, output_schema=outline(result, depth)),
            }
        )


class StrictServer(MCPServer[None]):
    """A server that says of a prompt what is wrong with the request; the base class calls it an internal error."""

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Get a prompt; see the base class.

        Raises:
            MCPError: invalid params: no such prompt, an argument that it does not take, or one that it needs.
        """
        prompts = {p.name: p for p in await self.list_prompts()}
        if name not in prompts:
            raise MCPError(INVALID_PARAMS, _unknown("prompt", name, list(prompts)))
        given, taken = arguments or {}, {a.name: a for a in prompts[name].arguments or ()}
        wrong = [_unknown("argument", n, list(taken)) for n in given if n not in taken]
        wrong += [f"argument {n!r} is needed" for n, a in taken.items() if a.required and n not in given]
        if wrong:
            raise MCPError(INVALID_PARAMS, f"{name}: {'; '.join(wrong)}")
        return await super().get_prompt(name, arguments, context)


def answer(text: str, result: BaseModel) -> CallToolResult:
    """A short text for the model, the whole result as structured content."""
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=result.model_dump(mode="json")
    )


def outline(result: type[BaseModel], depth: int) -> dict[str, Any]:
    """A result's schema for clients: what lies deeper than `depth` is only typed."""
    schema = result.model_json_schema(mode="serialization")
    schema.get("$defs", {})["Stack"] = {"type": "object"}
    return brief(schema, descriptions=False, depth=depth)


def brief(schema: dict[str, Any], *, descriptions: bool, depth: int) -> dict[str, Any]:
    """A JSON schema in the portable subset: no references, one type a node, nothing deeper than `depth`.

    Of an argument that may be null, null goes: leave it out instead. Of a result, what may be null is told at the
    top only.
    """
    definitions = schema.get("$defs", {})

    def nullable(node: dict[str, Any]) -> bool:
        return {"type": "null"} in node.get("anyOf", ())

    def walk(node: dict[str, Any], left: int) -> dict[str, Any]:
        while "$ref" in node:
            node = {**definitions[node["$ref"].rpartition("/")[2]], **{k: v for k, v in node.items() if k != "$ref"}}
        made: dict[str, Any] = {}
        if options := node.get("anyOf") or node.get("oneOf"):
            rest = [walk(o, left) for o in options if o != {"type": "null"} or not descriptions]
            made = rest[0] if len(rest) == 1 else {"anyOf": rest}
        else:
            made |= {
                k: node[k] for k in ("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum") if k in node
            }
            if "properties" in node and left > 0:
                inner = {
                    k: v for k, v in node["properties"].items() if descriptions or left == depth or not nullable(v)
                }
                if inner:
                    made["properties"] = {k: walk(v, left - 1) for k, v in inner.items()}
                if (required := node.get("required")) and (descriptions or left == depth):
                    made["required"] = required
            elif isinstance(extra := node.get("additionalProperties"), dict) and left > 0:
                made["additionalProperties"] = walk(extra, left - 1)
            if "items" in node and left > 0:
                made["items"] = walk(node["items"], left - 1)
        if not made:
            made = {"anyOf": [{"type": t} for t in ("object", "string", "null")]}  # `fixed`: the input's own shape
        if descriptions:
            made |= {k: node[k] for k in ("description", "default") if node.get(k) not in (None, {}, [], "")}
        return made

    return walk({k: v for k, v in schema.items() if k not in ("$defs", "description")}, depth)
