"""The server with the fixtures that the conformance suite asks for, over HTTP. For tests only.

python conformance_server.py PORT
"""

from __future__ import annotations

import base64
import sys
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import AudioContent, EmbeddedResource, ImageContent, TextContent, TextResourceContents

from megatron_cuda_graphs.mcp_server import build

PNG = base64.b64encode(bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)).decode()  # fmt: skip
WAV = base64.b64encode(b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00").decode()  # fmt: skip  # noqa: E501
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


if __name__ == "__main__":
    test_build = build()
    fixtures(test_build)
    test_build.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
