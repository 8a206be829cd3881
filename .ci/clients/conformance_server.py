"""The server with the fixtures that the conformance suite asks for, over HTTP. For tests only.

python conformance_server.py PORT
"""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Resolve
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.resolve import Sample
from mcp.server.mcpserver.tools import Tool
from mcp.types import (
    AudioContent,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

from megatron_cuda_graphs.mcp_server import build

PNG = base64.b64encode(bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)).decode()  # fmt: skip
WAV = base64.b64encode(b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00").decode()  # fmt: skip  # noqa: E501
SCHEMA_TOOL = Tool.from_function(lambda: "", name="json_schema_2020_12_tool", description="A fixture.").model_copy(
    update={"parameters": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"city": {"type": "string"}}}},
        "properties": {"kind": {"enum": ["phone", "email"]}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"kind": {"const": "phone"}}},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }}
)  # fmt: skip
IMAGE = ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, text: str) -> EmbeddedResource:
    """A resource inside a message."""
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type="text/plain", text=text))


def fixtures(server: Any) -> None:
    """What the suite calls by name."""

    @server.tool(description="A fixture.")
    def test_simple_text() -> str:
        return "This is a simple text response for testing."

    @server.tool(description="A fixture.")
    def test_image_content() -> ImageContent:
        return IMAGE

    @server.tool(description="A fixture.")
    def test_audio_content() -> AudioContent:
        return AudioContent(type="audio", data=WAV, mime_type="audio/wav")

    @server.tool(description="A fixture.")
    def test_embedded_resource() -> EmbeddedResource:
        return embedded("test://embedded-resource", "This is an embedded resource content.")

    @server.tool(description="A fixture.")
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        text = TextContent(type="text", text="Multiple content types test:")
        return [text, IMAGE, embedded("test://mixed-content-resource", '{"test":"data","value":123}')]

    @server.tool(description="A fixture.")
    def test_error_handling() -> str:
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError("This tool intentionally returns an error for testing")

    @server.tool(description="A fixture.")
    def test_custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "") -> str:
        return f"region {region}"

    server._tool_manager._tools[SCHEMA_TOOL.name] = SCHEMA_TOOL

    @server.tool(description="A fixture.")
    async def test_tool_with_progress(ctx: Context) -> str:
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100, f"Completed step {done} of 100")
        return "done"

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'

    @server.prompt(description="A fixture.")
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description="A fixture.")
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description="A fixture.")
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
        return [
            UserMessage(content=embedded(resourceUri, "Embedded resource content for testing.")),
            UserMessage("Please process the embedded resource above."),
        ]

    @server.prompt(description="A fixture.")
    def test_prompt_with_image() -> list[UserMessage]:
        return [UserMessage(content=IMAGE), UserMessage("Please analyze the image above.")]


def form(message: str, name: str, kind: str = "string") -> ElicitRequest:
    """A question to the user, with one field."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def words(text: str) -> list[SamplingMessage]:
    """A question to the client's model."""
    return [SamplingMessage(role="user", content=TextContent(type="text", text=text))]


def sample(text: str) -> CreateMessageRequest:
    """The request that asks it."""
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=words(text), max_tokens=100))


NAME, GREETING, ROOTS = form("What is your name?", "name"), sample("Generate a greeting"), ListRootsRequest()
OK = form("Please confirm", "ok", "boolean")


def ask(ctx: Context, requests: dict[str, Any], state: str | None = None) -> InputRequiredResult | None:
    """What a request needs from the client before it can be answered; None once that has come."""
    if set(requests) <= set(ctx.input_responses or ()) and (state is None or ctx.request_state == state):
        return None
    return InputRequiredResult(input_requests=requests, request_state=state)


def asking(requests: dict[str, Any], state: str | None) -> Any:
    """A tool that asks once and tells what came."""

    def tool(ctx: Context) -> str | InputRequiredResult:
        answers = {k: v.model_dump(mode="json") for k, v in (ctx.input_responses or {}).items()}
        return ask(ctx, requests, state) or f"state-ok: {answers}"

    return tool


def questions(server: Any) -> None:
    """Fixtures of 2026-07-28: answers that need input from the client first."""
    rounds: dict[str, tuple[dict[str, Any], str | None]] = {
        "elicitation": ({"user_name": NAME}, None),
        "sampling": ({"capital_question": sample("What is the capital of France?")}, None),
        "list_roots": ({"client_roots": ROOTS}, None),
        "request_state": ({"confirm": OK}, "asked"),
        "multiple_inputs": ({"user_name": NAME, "greeting": GREETING, "client_roots": ROOTS}, "asked"),
        "tampered_state": ({"confirm": OK}, "asked"),
    }
    for name, (requests, state) in rounds.items():
        server.tool(name=f"test_input_required_result_{name}", description="A fixture.")(asking(requests, state))

    @server.tool(description="A fixture.")
    def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
        first = {"step1": form("Step 1: What is your name?", "name")}
        second = {"step2": form("Step 2: What is your favorite color?", "color")}
        if ctx.request_state != "2":
            return ask(ctx, first, "1") or InputRequiredResult(input_requests=second, request_state="2")
        return ask(ctx, second, "2") or "done"

    @server.tool(description="A fixture.")
    def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
        able = ctx.client_capabilities
        requests: dict[str, Any] = {}
        if able and able.elicitation is not None:
            requests["user_name"] = NAME
        if able and able.sampling is not None:
            requests["greeting"] = GREETING
        return (requests and ask(ctx, requests)) or "nothing to ask, or answered"

    @server.tool(description="A fixture.")
    def test_missing_capability(
        said: Annotated[CreateMessageResult, Resolve(lambda: Sample(words("Say something"), max_tokens=10))],
    ) -> str:
        return str(said.content)

    @server.tool(description="A fixture.")
    async def test_trigger_tool_change(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "said so"

    @server.tool(description="A fixture.")
    async def test_trigger_prompt_change(ctx: Context) -> str:
        await ctx.notify_prompts_changed()
        return "said so"

    @server.prompt(description="A fixture.")
    def test_input_required_result_prompt(ctx: Context) -> Any:
        asked = ask(ctx, {"user_context": form("What context should the prompt use?", "context")})
        return asked or "Use this context."


if __name__ == "__main__":
    test_build = build()
    fixtures(test_build)
    questions(test_build)
    test_build.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
