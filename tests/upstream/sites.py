"""Where upstream's configuration code raises or warns, and which of those places are about CUDA graphs.

A recorded rejection counts as one of a graph rule when the statement that raised, or a condition around it, reads
something about graphs; the packages' own sources decide that, read with `ast`. `coverage` compares what a
recording reached with every such statement.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Site", "about_graphs", "graph_sites", "site_of"]

# Configuration code, and the functions of it that a configuration goes through; None is all of them.
CORE = {
    "core/model_parallel_config.py": ("__post_init__",),
    "core/transformer/transformer_config.py": ("__post_init__",),
    "core/transformer/cuda_graph_config.py": None,
}
BRIDGE = {
    "bridge/training/comm_overlap.py": ("_get_model_comm_overlap_cfgs",),
    "bridge/training/config.py": ("validate", "_validate_fine_grained_activation_offloading"),
    "bridge/utils/cuda_graph.py": None,
    "bridge/models/gpt_provider.py": ("provide",),
}
MEGATRON_LM = {
    "training/arguments.py": (
        "validate_args", "core_transformer_config_from_args", "_normalize_cuda_graph_modules_args",
        "_normalize_inference_cuda_graph_scope_arg", "_parse_cuda_graph_modules_arg",
    ),
    "training/argument_utils.py": ("core_transformer_config_from_args",),
}  # fmt: skip

GRAPH = re.compile(r"graph", re.IGNORECASE)
# A statement that exists for graphs without naming them: pad_cu_seqlens makes packed lengths static for capture.
FOR_GRAPHS = re.compile(r"pad_cu_seqlens")
# Decided by whether some package is installed, which a configuration does not tell.
MISSING_PACKAGE = re.compile(r"except (ImportError|ModuleNotFoundError)")


class Site(NamedTuple):
    """A raise, assert or warning in upstream's configuration code."""

    path: str  # below megatron/
    function: str
    line: int
    last_line: int
    warns: bool
    graph: bool
    text: str
    message: re.Pattern[str]  # what its literal parts promise of the message

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {' '.join(self.text.split())[:150]}"


def _root(packages: Path, path: str, core: str, bridge: str | None) -> Path:
    folder = packages / "bridge" / str(bridge) if path.startswith("bridge/") else packages / "mcore" / core
    return folder / "megatron" / path


def _message(statement: ast.stmt) -> re.Pattern[str]:
    """The longest string in a statement as a pattern, with anything for what is put into it."""
    patterns = [""]
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            patterns.append(re.escape(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = (re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in node.values)
            patterns.append("".join(parts))
    return re.compile(max(patterns, key=len), re.DOTALL)


@lru_cache(maxsize=64)
def _sites_in(file: Path, path: str) -> tuple[Site, ...]:
    if not file.is_file():
        return ()
    found: list[Site] = []

    def walk(node: ast.AST, function: str, around: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                walk(child, child.name, (child.name,))
                continue
            inside = around
            if isinstance(child, (ast.If, ast.For)):
                inside = (*around, ast.unparse(child.test if isinstance(child, ast.If) else child.iter))
            elif isinstance(child, ast.ExceptHandler) and child.type:
                inside = (*around, f"except {ast.unparse(child.type)}")
            warns = isinstance(child, ast.Expr) and "warn" in ast.unparse(child.value).partition("(")[0].lower()
            if isinstance(child, (ast.Raise, ast.Assert)) or warns:
                text = ast.unparse(child)
                about = " ".join((*around, text))
                graph = not MISSING_PACKAGE.search(about) and bool(GRAPH.search(about) or FOR_GRAPHS.search(about))
                last = child.end_lineno or child.lineno
                found.append(Site(path, function, child.lineno, last, warns, graph, text, _message(child)))
            walk(child, function, inside)

    walk(ast.parse(file.read_text(encoding="utf-8")), "", ())
    return tuple(found)


def site_of(frames: list[list[Any]], packages: Path, core: str, bridge: str | None = None) -> Site | None:
    """The inmost known statement that a traceback (as `oracles.common.raised` gives it) went through."""
    files = {**CORE, **BRIDGE, **MEGATRON_LM}
    for path, _function, line in reversed(frames):
        if path in files:
            for site in _sites_in(_root(packages, path, core, bridge), path):
                if site.line <= line <= site.last_line:
                    return site
    return None


@lru_cache(maxsize=64)
def _conditions_at(file: Path, line: int) -> str:
    """Source of the statement at a line with the conditions around it: for an exception that no `raise` names."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            compound = isinstance(node, (ast.If, ast.For, ast.FunctionDef, ast.ClassDef))
            texts.append(
                getattr(node, "name", "") or ast.unparse(getattr(node, "test", node)) if compound else ast.unparse(node)
            )
    return " ".join(texts)


def about_graphs(verdict: dict[str, Any], packages: Path, core: str, bridge: str | None = None) -> bool:
    """Whether a rejection came from a graph rule.

    An unknown keyword of a core configuration, or an unknown flag, always counts (the release refuses the name),
    one of a Bridge section when the name is about graphs.
    """
    if unknown := re.search(r"unexpected keyword argument '(\w+)'", verdict["message"]):
        return bridge is None or bool(GRAPH.search(unknown[1]))
    if verdict["exception"] == "SystemExit":  # argparse: flags that it does not know, values that it does not take
        return "unrecognized arguments" in verdict["message"] or bool(GRAPH.search(verdict["message"]))
    if site := site_of(verdict["where"], packages, core, bridge):
        return site.graph
    files = {**CORE, **BRIDGE, **MEGATRON_LM}
    for path, _function, line in reversed(verdict["where"]):
        if path in files:
            return bool(GRAPH.search(_conditions_at(_root(packages, path, core, bridge), line)))
    return bool(GRAPH.search(verdict["message"]))


def graph_sites(packages: Path, files: dict[str, Any], core: str, bridge: str | None = None) -> Iterator[Site]:
    """Every place about graphs in these files' configuration functions."""
    for path, functions in files.items():
        for site in _sites_in(_root(packages, path, core, bridge), path):
            if site.graph and (functions is None or site.function in functions):
                yield site
