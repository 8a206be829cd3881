"""Makes verdicts anew: random configurations, put to the real classes of the released packages, on a CPU.

    python tests/upstream/record.py venv DIR            a virtual environment that the packages import in (5 GB)
    python tests/upstream/record.py record [...]        write recorded/<package>-<release>.jsonl.gz
    python tests/upstream/record.py fixes [...]         put validate_config's fixes to the real classes
    python tests/upstream/record.py time [--core R]     importing megatron-core and constructing one configuration

The environment needs Python 3.12 and the packages of REQUIREMENTS. Unpacked wheels of the releases stand in a
folder with mcore/<version>/ and bridge/<version>/, as `tools/make_fields.py DIR --download` makes it. Name the two
with --venv and --packages, or in MEGATRON_RECORD_VENV and MEGATRON_PACKAGES.

A recording's first line says how it was made; each other line is a case and what the package said of it: `stack`,
`config`, `env`, `ok`, `stage`, `exception`, `message`, `warnings` (those about graphs), `normalized` (the graph
settings that the real object ended up with), and `graph_rule`: null when accepted, else whether the rule that
refused it is about graphs (see `sites`). A string such as `CudaGraphScope.attn` or `torch.bfloat16` stands for
that object.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "server")]

import cases  # noqa: E402
import sites  # noqa: E402

from megatron_cuda_graphs import releases  # noqa: E402

REQUIREMENTS = (
    "torch==2.13.0", "numpy", "packaging", "einops", "pyyaml", "omegaconf", "transformers==5.12.1", "peft",
    "hydra-core", "datasets", "accelerate", "tqdm", "regex", "sentencepiece", "tiktoken", "wandb", "tensorboard",
    "rich", "six", "pydantic", "filelock",
)  # fmt: skip
PACKAGES_REPORTED = ("torch", "numpy", "transformers", "omegaconf")
PROGRAM = ("python", "pretrain_gpt.py")
SEED = 20261107
RECORDED = HERE / "recorded"
# One release of each line.
RELEASES = {
    "core": ("0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2"),
    "bridge": ("0.3.1", "0.4.2", "0.5.1", "0.6.2"),
    "megatron-lm": ("0.17.1", "0.18.2", "0.19.2"),
}
# Bridge on a newer megatron-core than it was released with, which its wheel lets in (record with --core).
APART = (("0.4.2", "0.18.2"), ("0.4.2", "0.19.2"), ("0.5.1", "0.19.2"))
COUNTS = {"core": 2400, "bridge": 2200, "megatron-lm": 2200}
ORACLES = {"core": "core.py", "bridge": "bridge.py", "megatron-lm": "megatron_lm.py"}
NAMES = {"core": "megatron-core", "bridge": "megatron-bridge", "megatron-lm": "megatron-lm"}
SITES = {"core": sites.CORE, "bridge": sites.CORE | sites.BRIDGE, "megatron-lm": sites.CORE | sites.MEGATRON_LM}


class Target(NamedTuple):
    """The release that cases are put to."""

    frontend: str
    release: str
    below: str | None = None  # the megatron-core under a Bridge release, where it is not its pair

    @property
    def core(self) -> str:
        return self.below or (releases.PAIRS[self.release] if self.frontend == "bridge" else self.release)

    @property
    def bridge(self) -> str | None:
        return self.release if self.frontend == "bridge" else None

    def stack(self, te: str | None) -> dict[str, str]:
        stack = {"megatron_bridge": self.release} if self.bridge else {"megatron_core": self.release}
        if self.below:
            stack["megatron_core"] = self.below
        return stack | {"transformer_engine": te or "absent"}


class Place(NamedTuple):
    """Where the real packages are."""

    python: Path
    packages: Path

    def put(self, target: Target, asked: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """What the real package says of each case."""
        command = [str(self.python), str(HERE / "oracles" / ORACLES[target.frontend])]
        command += [f"--packages={self.packages}", f"--core={target.core}"]
        if target.bridge:
            command.append(f"--bridge={target.bridge}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NVTE_", "NCCL_", "PYTORCH_"))}
        environment["PYTHONHASHSEED"] = "0"  # messages print sets
        text = "".join(json.dumps(case) + "\n" for case in asked)
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)}\n{done.stderr[-3000:]}")
        yield from map(json.loads, done.stdout.splitlines())


def command_line(args: list[str]) -> str:
    """Tokens as someone would write them."""
    return shlex.join([*PROGRAM, *args])


def draw_cases(target: Target, seed: int, count: int) -> list[dict[str, Any]]:
    """The cases of a seed; the same for the same seed, target and generator."""
    draw = cases.Draw(f"{seed} {target.frontend} {target.release} {target.below}")
    if target.frontend == "core":
        return [cases.core_case(draw, target.release) for _ in range(count)]
    if target.frontend == "bridge":
        return [cases.bridge_case(draw, target.release, target.below) for _ in range(count)]
    return [cases.command_case(draw, target.release) for _ in range(count)]


def rows_of(place: Place, target: Target, asked: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Recorded rows, each with the statement that refused it (or None)."""
    for case, verdict in zip(asked, place.put(target, asked), strict=True):
        stack = target.stack(case.get("te")) | {k: v for k, v in case.items() if k == "gpu_arch"}
        row = {"stack": stack, **{k: v for k, v in case.items() if k not in ("te", "gpu_arch")}}
        frames = verdict.pop("where", [])
        site, about = None, None
        if not verdict["ok"]:
            about = sites.about_graphs({**verdict, "where": frames}, place.packages, target.core, target.bridge)
            site = sites.site_of(frames, place.packages, target.core, target.bridge)
        yield {**row, **verdict, "graph_rule": about}, site


def coverage(place: Place, target: Target, found: list[tuple[dict[str, Any], Any]]) -> tuple[int, list[str]]:
    """How many places about graphs the configuration code has, and those that no case reached."""
    every = list(sites.graph_sites(place.packages, SITES[target.frontend], target.core, target.bridge))
    reached = {site for _, site in found}
    warned = {message for row, _ in found for message in row["warnings"]}
    missing = [site for site in every if not (any(map(site.message.search, warned)) if site.warns else site in reached)]
    return len(every), [str(site) for site in missing]


def record(place: Place, target: Target, seed: int, count: int, output: Path, command: str) -> None:
    """Write one recording and say what it holds."""
    found = list(rows_of(place, target, draw_cases(target, seed, count)))
    total, missing = coverage(place, target, found)
    kinds = Counter("valid" if row["ok"] else "graph rule" if row["graph_rule"] else "other rule" for row, _ in found)
    header = {
        "made_by": command,
        "seed": seed,
        "date": datetime.date.today().isoformat(),
        "python": _run(place.python, "import platform; print(platform.python_version())"),
        "packages": json.loads(
            _run(
                place.python,
                "import json, importlib.metadata as m; "
                f"print(json.dumps({{n: m.version(n) for n in {PACKAGES_REPORTED!r}}}))",
            )
        )
        | {NAMES[target.frontend]: target.release, "megatron-core": target.core},
        "rows": dict(sorted(kinds.items())),
        "graph_sites": {"all": total, "not_reached": missing},
    }
    output.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"recorded": header}), *(json.dumps(row) for row, _ in found)]
    # mtime=0: the same rows give the same file.
    output.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode(), 9, mtime=0))
    print(f"{output.name}: {dict(sorted(kinds.items()))}, {total - len(missing)}/{total} graph sites, "
          f"{output.stat().st_size:,} bytes")  # fmt: skip
    for site in missing:
        print(f"  not reached: {site}")


def _run(python: Path, program: str) -> str:
    return subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A recording's header ({} where it has none) and rows."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return (rows[0]["recorded"], rows[1:]) if "recorded" in rows[0] else ({}, rows)


def without_graphs(case: dict[str, Any], stack: dict[str, str]) -> dict[str, Any]:
    """The case with everything about graphs, and every misspelt name, left out."""
    te = stack["transformer_engine"]
    bare = {**case, "te": None if te == "absent" else te, "gpu_arch": stack.get("gpu_arch", "sm_90"), "world_size": 8}

    def left_out(name: str) -> bool:
        return bool(sites.GRAPH.search(name) or sites.FOR_GRAPHS.search(name)) or name in (
            *cases.MISSPELT,
            *cases.LM_MISSPELT,
        )

    def kept(settings: dict[str, Any]) -> dict[str, Any]:
        return {
            name: kept(value) if isinstance(value, dict) else value
            for name, value in settings.items()
            if not left_out(name)
        }

    if "args" in case:
        bare["args"], keep = [], True
        for token in case["args"]:
            if token.startswith("--"):
                keep = not left_out(token.partition("=")[0])
            if keep:
                bare["args"].append(token)
    else:
        bare["config"] = kept(case["config"])
    return bare


def fixes(place: Place, target: Target, seed: int, count: int) -> tuple[int, int, list[dict[str, Any]]]:
    """Put what validate_config offers as fixed for rejected cases to the real class.

    Returns how many rejections by graph rules there were, for how many a fix was offered, and the offered ones
    that the real class refuses. Of these, `hidden` are no fault of the fix: the case is refused in the same words
    when its graph settings are taken out, only a graph rule stood before that one.
    """
    from megatron_cuda_graphs import Stack, validate_config

    rejected = offered = 0
    again, first = [], []
    for case, (row, _) in zip(asked := draw_cases(target, seed, count), rows_of(place, target, asked), strict=True):
        if row["ok"] or not row["graph_rule"]:
            continue
        rejected += 1
        body = command_line(case["args"]) if "args" in case else case["config"]
        report = validate_config(body, stack=Stack(**row["stack"]), env=case.get("env") or {}, frontend=target.frontend)
        if report.fixed is None:
            continue
        offered += 1
        env = {**(case.get("env") or {}), **(report.fixed_env or {})}
        fixed = {"config": report.fixed} if "config" in case else {"args": shlex.split(report.fixed)[len(PROGRAM) :]}
        again.append({**case, **fixed, "env": env})
        first.append(row)
    refused = []
    for was, case, (now, _) in zip(first, again, rows_of(place, target, again), strict=True):
        if not now["ok"]:
            given = {key: was[key] for key in ("stack", "config", "args", "env") if key in was}
            fixed = {key: case[key] for key in ("config", "args", "env") if key in case}
            refused.append({"said": was["message"], "says_now": now["message"], "given": given, "fixed": fixed})
    bare = [without_graphs({**miss["given"], "env": miss["fixed"]["env"]}, miss["given"]["stack"]) for miss in refused]
    for miss, verdict in zip(refused, place.put(target, bare) if bare else (), strict=True):
        miss["hidden"] = verdict["message"] == miss["says_now"]
    return rejected, offered, refused


TIMED = """
import sys, time, warnings
sys.path[:0] = [{oracles!r}, {core!r}]
warnings.simplefilter("ignore")
def clocks():
    return time.perf_counter(), time.process_time()
def since(before):
    return "{{:.2f}} s ({{:.2f}} s of CPU)".format(*(now - then for now, then in zip(clocks(), before)))
start = clocks()
import torch
torch_took, start = since(start), clocks()
import stubs
with stubs.no_extension_builds():
    from megatron.core.transformer.transformer_config import TransformerConfig
core_took = since(start)
config = dict(num_layers=2, hidden_size=64, num_attention_heads=4, cuda_graph_impl="local")
times = []
for _ in range(200):
    begin = time.perf_counter()
    TransformerConfig(**config)
    times.append(time.perf_counter() - begin)
print(f"import torch {{torch_took}}, then megatron-core {{core_took}}; "
      f"construct {{sorted(times)[100] * 1e3:.3f}} ms (median of 200)")
"""


def timed(place: Place, core: str) -> str:
    """Time of importing megatron-core in a fresh process, and of constructing its TransformerConfig."""
    program = TIMED.format(oracles=str(HERE / "oracles"), core=str(place.packages / "mcore" / core))
    return _run(place.python, program)


def make_venv(folder: Path) -> None:
    """An environment in which the packages import. Takes a few minutes and 5 GB."""
    python = sys.executable if sys.version_info[:2] == (3, 12) else shutil.which("python3.12")
    if python is None:
        raise SystemExit("Python 3.12 is needed: run this with it, or put python3.12 on PATH")
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin/pip"), "install", *REQUIREMENTS], check=True)


def place_of(venv: str | None, packages: str | None) -> Place | None:
    """The place that arguments or the environment name; None when one of the two is missing."""
    venv = venv or os.environ.get("MEGATRON_RECORD_VENV")
    packages = packages or os.environ.get("MEGATRON_PACKAGES")
    if not venv or not packages:
        return None
    return Place(Path(venv) / "bin/python", Path(packages))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("venv").add_argument("folder", type=Path)
    for name in ("record", "fixes", "time"):
        command = commands.add_parser(name)
        command.add_argument("--venv", help="the environment that `record.py venv` made")
        command.add_argument("--packages", help="folder of unpacked wheels")
        command.add_argument("--frontend", choices=list(RELEASES), action="append")
        command.add_argument("--release", action="append", help="default: one of each line")
        command.add_argument("--core", help="megatron-core below a Bridge release, instead of its pair")
        command.add_argument("--count", type=int)
        command.add_argument("--seed", type=int, default=SEED)
        command.add_argument("--output", type=Path, default=RECORDED)
    options = parser.parse_args(arguments)
    if options.command == "venv":
        make_venv(options.folder)
        return 0
    place = place_of(options.venv, options.packages)
    if place is None:
        parser.error("name the environment with --venv and the wheels with --packages")
    if options.command == "time":
        for release in [options.core] if options.core else RELEASES["core"][-1:]:
            print(f"megatron-core {release}: {timed(place, release)}")
        return 0
    refused_any = False
    for frontend in options.frontend or RELEASES:
        for release in options.release or RELEASES[frontend]:
            target = Target(frontend, release, options.core)
            count = options.count or COUNTS[frontend]
            if options.command == "record":
                said = (
                    f"record.py record --frontend {frontend} --release {release} --count {count} --seed {options.seed}"
                )
                said += f" --core {options.core}" if options.core else ""
                suffix = f"-on-core-{options.core}" if options.core else ""
                output = options.output / f"{NAMES[frontend]}-{release}{suffix}.jsonl.gz"
                record(place, target, options.seed, count, output, said)
            else:
                rejected, offered, refused = fixes(place, target, options.seed, count)
                missed = [miss for miss in refused if not miss["hidden"]]
                print(f"{NAMES[frontend]} {release}: {rejected} rejected by graph rules, {offered} fixes offered; "
                      f"{offered - len(refused)} accepted, {len(refused) - len(missed)} refused with or without "
                      f"graphs, {len(missed)} refused for the fix")  # fmt: skip
                for miss in missed:
                    print("  " + json.dumps(miss))
                refused_any |= bool(missed)
    return int(refused_any)


if __name__ == "__main__":
    sys.exit(main())
