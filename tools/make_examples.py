#!/usr/bin/env python3
"""Find, for each rule, a small configuration that fires it, and record what each release says to it.

    python tools/make_examples.py              keep the examples that still fire, find the missing ones, renew verdicts
    python tools/make_examples.py --check      fail when something would change
    python tools/make_examples.py MCG044 ...   search anew for these rules

The table, `data/rule_examples.json`, is shown on the rules' pages and is the rules' test data. An example can be
written there by hand; the verdicts are always made here. `runs` lists over all covered releases of the rule's package
[first, last, upstream's message or true], leaving out those where the rule is silent.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs import arguments, releases
from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.rules import Rule, catalogue
from megatron_cuda_graphs.settings import Settings
from megatron_cuda_graphs.stack import Stack
from megatron_cuda_graphs.validate import validate_config

TABLE = ROOT / "server/megatron_cuda_graphs/data/rule_examples.json"
BASE = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 8}
TRIES = 3000
# Values worth trying; a field that is not here gets values of its default's kind.
VALUES: dict[str, list[Any]] = {
    "cuda_graph_impl": ["local", "transformer_engine", "full_iteration", "none", "te"],
    "cuda_graph_scope": [
        ["attn"], ["moe"], ["moe_router"], ["moe_preprocess"], ["attn", "moe_router", "moe_preprocess"], ["mlp"],
        ["full_iteration"], ["full_iteration_inference"], "full", "attn", "full_iteration", ["atn"], ["attn", "mlp"],
        ["full", "attn"], ["moe", "moe_router"], [], 3, ["attn", 3], ["full_iteration", "full_iteration_inference"],
    ],
    "inference_cuda_graph_scope": ["none", "layer", "block", "blok", 3],
    "num_moe_experts": [8, None], "moe_layer_freq": [1, 2, [1, 1, 1, 1], [0, 1, 1, 1]],
    "moe_expert_capacity_factor": [1.0], "moe_pad_expert_input_to_capacity": [True],
    "moe_token_dispatcher_type": ["alltoall", "allgather", "flex"], "moe_input_jitter_eps": [0.01],
    "moe_shared_expert_intermediate_size": [64], "moe_flex_dispatcher_backend": ["deepep", "hybridep"],
    "recompute_granularity": ["selective", "full"], "recompute_method": ["uniform", "block"],
    "recompute_modules": [
        ["core_attn"], ["mlp"], ["moe"], ["moe_act"], ["layernorm"], ["shared_experts"], ["mla_up_proj"],
    ],
    "recompute_num_layers": [1], "attention_dropout": [0.0, 0.1], "hidden_dropout": [0.0, 0.1],
    "tensor_model_parallel_size": [2, 1], "pipeline_model_parallel_size": [2, 1], "context_parallel_size": [2],
    "expert_model_parallel_size": [2, 1], "virtual_pipeline_model_parallel_size": [2], "mtp_num_layers": [1, 2],
    "sequence_parallel": [True], "pipeline_dtype": ["torch.bfloat16"], "bf16": [True], "fp16": [True],
    "fp8": ["hybrid", "e4m3"], "fp8_recipe": ["delayed", "tensorwise", "mxfp8", "blockwise"],
    "cpu_offloading": [True], "cpu_offloading_num_layers": [0, 2, 4],
    "offload_modules": [["core_attn"], ["moe_act"], ["expert_fc1"], ["attn_norm"]],
    "transformer_impl": ["transformer_engine", "local", "inference_optimized"], "cuda_graph_warmup_steps": [0, 3],
    "inference_grouped_gemm_backend": ["auto", "torch", "te"], "gtp_weight_remat_size": [2], "moe_router_topk": [2],
    "fine_grained_offloading_max_inflight_offloads": [0, 1, 2], "cross_entropy_fusion_impl": ["te", "native"],
    "cross_entropy_loss_fusion": [True], "hybrid_context_parallel": [True], "normalization": ["RMSNorm"],
    "optimizer.optimizer_cuda_graph": [True], "dataset.pad_to_max_length": [True, False],
    "dataset.offline_packing_specs.pad_cu_seqlens": [True, False], "dataset.seq_length": [4096],
    "ddp.nccl_ub": [True], "ddp.use_megatron_fsdp": [True],
    "ddp.data_parallel_sharding_strategy": ["optim_grads_params"], "dataset.enable_in_batch_packing": [True],
    "_target_": ["GPTModelProvider", "MambaModelProvider", "Qwen3VLMoEModelProvider", "Qwen3VLModelProvider"],
    "moe_router_padding_for_fp8": [True], "add_bias_linear": [True, False], "moe_latent_size": [64],
    "rl_kv_cache_management_mode": ["persist", "offload", "recompute"], "hybrid_layer_pattern": ["M*-M"],
    "inference_dynamic_batching_num_cuda_graphs": [0, 1, 4], "inference_batch_times_seqlen_threshold": [100],
    "tensor_parallel_num_weight_shards": [2], "expert_tensor_parallel_num_weight_shards": [2],
    "hybrid_override_pattern": ["M*-M"], "enable_cuda_graph": [True], "external_cuda_graph": [True],
}  # fmt: skip
VALUES["cuda_graph_modules"] = VALUES["cuda_graph_scope"]
ENV = {
    "PYTORCH_CUDA_ALLOC_CONF": ["expandable_segments:True"], "PYTORCH_ALLOC_CONF": ["expandable_segments:True"],
    "NCCL_GRAPH_REGISTER": ["1", "0"], "NVTE_CPU_OFFLOAD_V1": ["0", "1"], "CUDA_GRAPHS_USE_NODE_PRIORITY": ["1"],
}  # fmt: skip
# Releases in which a rule holds, but that no configuration is known to reach it in, and why.
UNREACHED = {
    "MCG308": "whether torch_memory_saver is installed is never known, so it stays undecided",
    "MCG402": "Bridge 0.6 refuses local graphs first, Megatron-LM turns the tracker on itself, 0.14 has no Bridge",
}
ALWAYS = (
    "cuda_graph_impl",
    "cuda_graph_modules",
    "cuda_graph_scope",
    "num_moe_experts",
    "enable_cuda_graph",
    "external_cuda_graph",
    "recompute_granularity",
    "pipeline_model_parallel_size",
    "expert_model_parallel_size",
)
STACKS = (
    {"transformer_engine": "2.14.0"},
    {"transformer_engine": "2.9.0"},
    {"transformer_engine": "1.12.0"},
    {"transformer_engine": "absent"},
    {"transformer_engine": "2.14.0", "torch": "2.11.0", "gpu_arch": "b200"},
)

Case = dict[str, Any]


class Asked:
    """The settings and variables that rules asked for, while it is in force."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.env: dict[str, None] = {}

    def __enter__(self) -> Asked:
        self.old = Settings.__getitem__, Settings.env
        own = frozenset(vars(Settings))

        def attribute(s: Settings, name: str) -> Any:
            if name not in own:
                self.names[name] = None
            return object.__getattribute__(s, name)

        def item(s: Settings, name: str) -> Any:
            self.names[name] = None
            return self.old[0](s, name)

        def variable(s: Settings, name: str, default: str = "") -> Any:
            self.env[name] = None
            return self.old[1](s, name, default)

        Settings.__getattribute__, Settings.__getitem__, Settings.env = attribute, item, variable  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *exc: object) -> None:
        del Settings.__getattribute__
        Settings.__getitem__, Settings.env = self.old  # type: ignore[method-assign]


def covered(rule: Rule) -> tuple[str, ...]:
    """The covered releases of the rule's package."""
    return releases.BRIDGE if rule.package == "megatron-bridge" else releases.CORE


def stack(rule: Rule, case: Case, version: str) -> Stack:
    """The case's stack with this release of the rule's package."""
    key, other = ("megatron_core", "megatron_bridge")[:: -1 if rule.package == "megatron-bridge" else 1]
    given = dict(case["stack"])
    if key not in given:  # the example names the other package; its pair is the one that varies
        given.pop(other, None)
    return Stack(**{**given, key: version})


def build(frontend: str, flat: Mapping[str, Any], core: str) -> Any:
    """A configuration in the front end's shape from flat names."""
    if frontend == "core":
        return {**BASE, **flat}
    if frontend == "bridge":
        config: dict[str, Any] = {"model": dict(BASE)}
        for name, value in flat.items():
            *sections, last = name.split(".")
            target = config
            for section in sections or ["model"]:
                target = target.setdefault(section, {})
            target[last] = value if name != "_target_" else f"megatron.bridge.models.{value}"
        return config
    words = ["torchrun pretrain_gpt.py --num-layers 4 --hidden-size 128 --num-attention-heads 8"]
    by_dest = arguments.flags_of(core)
    for name, value in flat.items():
        flags = by_dest.get(name, ())
        if isinstance(value, bool):
            flag = next((f for f in flags if f.kind == str(value).lower()), None)
            words += [flag.name] if flag else []
        elif (flag := next((f for f in flags if f.kind == "store"), None)) is not None:
            items = value if isinstance(value, list) else [value]
            words.append(" ".join([flag.name, *map(str, items)]))
    return " ".join(words)


def says(rule: Rule, case: Case, on: Stack | None = None) -> Any:
    """What the rule says to a case: upstream's message, True where upstream is silent, None where it does not fire."""
    try:
        report = validate_config(
            case["config"], stack=on or Stack(**case["stack"]), env=case["env"], frontend=case["frontend"]
        )
    except InputError:
        return None
    found = [f for f in report.findings if f.rule_id == rule.id and not f.needs]
    if not found:
        return None
    return (found[0].upstream.message if found[0].upstream else None) or True


def first(rule: Rule, case: Case) -> bool:
    """Whether the rule is what a user would see: the first error, or a finding of a configuration without errors."""
    report = validate_config(case["config"], stack=Stack(**case["stack"]), env=case["env"], frontend=case["frontend"])
    errors = [f for f in report.findings if f.severity == "error"]
    if rule.severity == "error":
        return bool(errors) and errors[0].rule_id == rule.id
    return not errors


def search(rule: Rule, version: str) -> Case | None:
    """A small case that fires the rule in a release; by random changes of what its check asks for."""
    key = "megatron_bridge" if rule.package == "megatron-bridge" else "megatron_core"
    core = releases.PAIRS[version] if key == "megatron_bridge" else version
    second: tuple[Case, dict[str, Any]] | None = None
    for frontend in (f for f in ("core", "bridge", "megatron-lm") if f in rule.frontends):
        if frontend == "bridge" and key == "megatron_core" and not releases.bridges_of(releases.parse(core)):
            continue
        rng, asked = random.Random(f"{rule.id} {version}"), Asked()
        other = _other_spelling(rule, core)
        with asked:
            for attempt in range(TRIES):
                if attempt == TRIES // 3:
                    other = set()
                names = [n for n in dict.fromkeys([*rule.fields, *asked.names, *ALWAYS]) if _settable(n, frontend)]
                names = [n for n in names if n not in other]
                flat = {n: _value(n, rng) for n in rng.sample(names, min(len(names), rng.randint(1, 6)))}
                if rng.random() < 0.9 and "cuda_graph_impl" in names:
                    flat.setdefault("cuda_graph_impl", _value("cuda_graph_impl", rng))
                for field in rule.fields[:3]:
                    if rng.random() < 0.6 and field in names:
                        flat[field] = _value(field, rng)
                env = {n: rng.choice(ENV[n]) for n in asked.env if n in ENV and rng.random() < 0.5}
                given = STACKS[0] if rng.random() < 0.6 else rng.choice(STACKS)
                case = {"stack": {key: version, **given}, "frontend": frontend, "env": env,
                        "config": build(frontend, flat, core)}  # fmt: skip
                if says(rule, case) is not None:
                    if first(rule, case):
                        return smaller(rule, case, flat, core)
                    second = second or (case, flat)
        if second is not None:
            return smaller(rule, second[0], second[1], core)
    return None


def _other_spelling(rule: Rule, core: str) -> set[str]:
    """Names of other releases' spelling, where the rule is not about them."""
    new = releases.parse(core) >= (0, 18)
    names = {"cuda_graph_scope" if new else "cuda_graph_modules"}
    if not new:
        names.add("inference_cuda_graph_scope")
    if releases.parse(core) >= (0, 15):
        names |= {"enable_cuda_graph", "external_cuda_graph"} - set(rule.fields)
    else:
        names.add("cuda_graph_impl")
    both = {"cuda_graph_scope", "cuda_graph_modules"} <= set(rule.fields)
    return names if both or not names & set(rule.fields) else names - set(rule.fields)


def _settable(name: str, frontend: str) -> bool:
    if name.endswith(".present") or name.startswith(("args.", "provider.", "__")):
        return False
    return frontend == "bridge" or "." not in name


def _value(name: str, rng: random.Random) -> Any:
    return rng.choice(VALUES.get(name, [True, True, False, 1, 2]))


def smaller(rule: Rule, case: Case, flat: dict[str, Any], core: str) -> Case:
    """The case without what it fires without."""
    was_first = first(rule, case)

    def holds(candidate: Case) -> bool:
        return says(rule, candidate) is not None and first(rule, candidate) == was_first

    for name in list(flat):
        less = {k: v for k, v in flat.items() if k != name}
        candidate = {**case, "config": build(case["frontend"], less, core)}
        if holds(candidate):
            flat, case = less, candidate
    for name, value in flat.items():
        if name not in VALUES and value is not True:
            candidate = {**case, "config": build(case["frontend"], {**flat, name: True}, core)}
            if holds(candidate):
                flat, case = {**flat, name: True}, candidate
    for name in list(case["env"]):
        candidate = {**case, "env": {k: v for k, v in case["env"].items() if k != name}}
        case = candidate if holds(candidate) else case
    key = next(k for k in case["stack"] if k.startswith("megatron_"))
    plain = {**case, "stack": {key: case["stack"][key], **STACKS[0]}}
    return plain if holds(plain) else case


def runs(rule: Rule, case: Case) -> list[list[Any]]:
    """What the rule says to the case in each covered release, as runs of releases."""
    found: list[list[Any]] = []
    before = None
    for version in covered(rule):
        said = says(rule, case, stack(rule, case, version))
        if said is not None and said == before:
            found[-1][1] = version
        elif said is not None:
            found.append([version, version, said])
        before = said
    return found


def unreached(rule: Rule, cases: list[Case]) -> list[str]:
    """Covered releases in which the rule holds and no case fires it, newest first."""
    known = covered(rule)
    reached = {
        v for case in cases for run in case["runs"] for v in known[known.index(run[0]) : known.index(run[1]) + 1]
    }
    return [v for v in reversed(known) if releases.parse(v) in rule.releases and v not in reached]


def main(argv: list[str]) -> int:
    """Write or check."""
    check = "--check" in argv
    anew = {a for a in argv if a.startswith("MCG")}
    old: dict[str, list[Case]] = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    new: dict[str, list[Case]] = {}
    for rule in catalogue():
        if rule.frontends == {"none"}:  # found while reading; no condition that an example could fire
            continue
        kept = [c for c in old.get(rule.id, []) if rule.id not in anew]
        cases = [{**c, "runs": runs(rule, c)} for c in kept if says(rule, c) is not None]
        if len(cases) < len(kept):
            print(f"{rule.id} {rule.name}: an example no longer fires it", file=sys.stderr)
        tried: set[str] = set()
        while (
            not check and rule.id not in UNREACHED and (left := [v for v in unreached(rule, cases) if v not in tried])
        ):
            tried |= {left[0]}
            try:
                case = search(rule, left[0])
            except Exception as exc:  # a crash of the validator is news, but no reason to find no other example
                print(f"{rule.id} {left[0]}: {type(exc).__name__}: {exc}", file=sys.stderr)
                case = None
            print(f"{rule.id} {left[0]}: {json.dumps(case)}", flush=True)
            if case is None:
                tried |= {v for v in left if releases.line(releases.parse(v)) == releases.line(releases.parse(left[0]))}
                continue
            cases.append({**case, "runs": runs(rule, case)})
        if rule.id not in UNREACHED and (missing := unreached(rule, cases)):
            print(f"{rule.id} {rule.name}: no example for {', '.join(missing)}", file=sys.stderr)
        if cases:
            new[rule.id] = cases
    text = "{\n" + ",\n".join(
        f' "{k}": [\n' + ",\n".join(f"  {json.dumps(c)}" for c in v) + "\n ]" for k, v in new.items()
    )
    text += "\n}\n"
    if check:
        if stale := not TABLE.exists() or TABLE.read_text("utf-8") != text:
            print("rule_examples.json is out of date: run python tools/make_examples.py", file=sys.stderr)
        return int(stale)
    TABLE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
