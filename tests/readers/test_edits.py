"""Fixes applied in the input's own shape: only what must change does, and the result reads as intended."""

import copy
import difflib
import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_cuda_graphs.readers import Member, read
from megatron_cuda_graphs.report import EnvFix, FieldFix


def put(field, value):
    return FieldFix(op="set", field=field, value=value)


def drop(field):
    return FieldFix(op="unset", field=field)


def env(name, value):
    return EnvFix(name=name, value=value)


def changed(text, *fixes):
    """Removed and added lines, without their signs' context."""
    edited = read(text).edit(fixes)
    assert edited is not None
    lines = difflib.unified_diff(text.splitlines(), edited.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


YAML = """\
# a comment
model:
  num_layers: 2   # layers
  cuda_graph_impl: transformer_engine  # scoped
  cuda_graph_scope:
  - attn
  # about the router
  - moe_router

  attention_backend: "flash"
# next
rng:
  te_rng_tracker: false
comm_overlap: null
train: {train_iters: 10, eval_iters: 2}
env_vars:
  NCCL_GRAPH_REGISTER: 1
"""


@pytest.mark.parametrize(
    ("fix", "lines"),
    [
        (
            put("model.cuda_graph_impl", "none"),
            ["-  cuda_graph_impl: transformer_engine  # scoped", "+  cuda_graph_impl: none  # scoped"],
        ),
        (put("model.attention_backend", "fused"), ['-  attention_backend: "flash"', '+  attention_backend: "fused"']),
        (put("model.cuda_graph_scope", ["mlp"]), ["-  - attn", "-  # about the router", "-  - moe_router", "+  - mlp"]),
        (put("model.cuda_graph_warmup_steps", 1), ["+  cuda_graph_warmup_steps: 1"]),
        (put("rng.te_rng_tracker", True), ["-  te_rng_tracker: false", "+  te_rng_tracker: true"]),
        (put("ddp.check_for_nan_in_grad", False), ["+ddp:", "+  check_for_nan_in_grad: false"]),
        (
            put("comm_overlap.delay_wgrad_compute", False),
            ["-comm_overlap: null", "+comm_overlap:", "+  delay_wgrad_compute: false"],
        ),
        (
            put("train.train_iters", 5),
            ["-train: {train_iters: 10, eval_iters: 2}", "+train: {train_iters: 5, eval_iters: 2}"],
        ),
        (
            put("train.seed", None),
            ["-train: {train_iters: 10, eval_iters: 2}", "+train: {train_iters: 10, eval_iters: 2, seed: null}"],
        ),
        (drop("model.num_layers"), ["-  num_layers: 2   # layers"]),
        (drop("train.train_iters"), ["-train: {train_iters: 10, eval_iters: 2}", "+train: {eval_iters: 2}"]),
        (drop("rng.te_rng_tracker"), ["-rng:", "-  te_rng_tracker: false", "+rng: {}"]),
        (drop("model.no_such_field"), []),
        (env("NCCL_GRAPH_REGISTER", "0"), ["-  NCCL_GRAPH_REGISTER: 1", "+  NCCL_GRAPH_REGISTER: '0'"]),
        (env("A", "b"), ["+  A: b"]),
    ],
    ids=str,
)
def test_yaml_changes_only_the_lines_it_must(fix, lines):
    assert changed(YAML, fix) == lines


def test_yaml_keeps_crlf_and_its_byte_order_mark():
    edited = read("\ufeffmodel:\r\n  cuda_graph_impl: local\r\n".encode()).edit([put("model.x", 1)])
    assert edited == "model:\r\n  cuda_graph_impl: local\r\n  x: 1\r\n"


def test_enum_mappings_are_replaced_by_names():
    text = "model:\n  cuda_graph_modules:\n  - _target_: m.CudaGraphModule\n    _args_: [1]\n    _name_: attn\n  z: 1\n"
    edited = read(text).edit([put("model.cuda_graph_modules", [Member("CudaGraphModule", "mlp")])])
    assert edited == "model:\n  cuda_graph_modules:\n  - mlp\n  z: 1\n"


def test_a_value_that_others_point_at_is_not_edited_in_place():
    assert read("model:\n  a: &x attn\n  cuda_graph_scope: *x\n").edit([put("model.a", "mlp")]) is None


def test_json_keeps_its_layout():
    text = '{\n    "model": {\n        "a": 1,\n        "cuda_graph_impl": "local"\n    }\n}\n'
    assert changed(text, put("model.cuda_graph_modules", ["attn"]), drop("model.a")) == [
        '-        "a": 1,',
        '-        "cuda_graph_impl": "local"',
        '+        "cuda_graph_impl": "local",',
        '+        "cuda_graph_modules": ["attn"]',
    ]


def test_model_config_is_edited_in_its_runners_spelling():
    text = (
        "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 2\n  --cuda-graph-impl: local # c\n"
        '  --cuda-graph-modules: "[attn mlp]"\n'
    )
    fixes = [
        put("--cuda-graph-modules", ["attn", "moe"]),
        put("--te-rng-tracker", []),
        put("--cuda-graph-impl", ["none"]),
    ]
    assert changed(text, *fixes, env("A", "0"), drop("--num-layers")) == [
        "-  A: 1",
        "+  A: 0",
        "-  --num-layers: 2",
        "-  --cuda-graph-impl: local # c",
        '-  --cuda-graph-modules: "[attn mlp]"',
        "+  --cuda-graph-impl: none # c",
        '+  --cuda-graph-modules: "[attn moe]"',
        "+  --te-rng-tracker: true",
    ]


def test_a_mapping_is_copied_and_changed():
    config = {"model": {"cuda_graph_impl": "local"}, "rng": None}
    before = copy.deepcopy(config)
    edited = read(config).edit([put("model.cuda_graph_impl", "none"), put("rng.te_rng_tracker", True)])
    assert edited == {"model": {"cuda_graph_impl": "none"}, "rng": {"te_rng_tracker": True}}
    assert config == before


def test_frameworks_are_edited_where_they_keep_the_field():
    config = {"policy": {"megatron_cfg": {"cuda_graph_impl": "local", "distributed_data_parallel_config": {"a": 1}}}}
    edited = read(config).edit([put("model.cuda_graph_impl", "none"), put("ddp.a", 2)])
    assert edited == {
        "policy": {"megatron_cfg": {"cuda_graph_impl": "none", "distributed_data_parallel_config": {"a": 2}}}
    }


SCRIPT = """\
#!/bin/bash
export NCCL_GRAPH_REGISTER=1
TP=4
ARGS=(
    --num-layers 12   # layers
    --tensor-model-parallel-size ${TP}
    --context-parallel-size ${TP}
    --cuda-graph-impl transformer_engine
    --cuda-graph-scope attn moe_router
)
torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]} \\
    --lr $LR \\
    --recompute-granularity full \\
    --bf16
"""


@pytest.mark.parametrize(
    ("fix", "lines"),
    [
        (
            put("--cuda-graph-scope", ["attn"]),
            ["-    --cuda-graph-scope attn moe_router", "+    --cuda-graph-scope attn"],
        ),
        (put("--cuda-graph-modules", ["attn"]), ["+    --cuda-graph-modules attn"]),
        (put("--te-rng-tracker", []), ["-    --bf16", "+    --bf16 \\", "+    --te-rng-tracker"]),
        (
            put("--context-parallel-size", ["1"]),
            ["-    --context-parallel-size ${TP}", "+    --context-parallel-size 1"],
        ),
        (put("--lr", ["1e-4"]), ["-    --lr $LR \\", "+    --lr 1e-4 \\"]),
        (drop("--cuda-graph-scope"), ["-    --cuda-graph-scope attn moe_router"]),
        (drop("--recompute-granularity"), ["-    --recompute-granularity full \\"]),
        (drop("--bf16"), ["-    --recompute-granularity full \\", "-    --bf16", "+    --recompute-granularity full"]),
        (env("NCCL_GRAPH_REGISTER", "0"), ["-export NCCL_GRAPH_REGISTER=1", "+export NCCL_GRAPH_REGISTER=0"]),
        (env("A", "x y"), ["+export A='x y'"]),
    ],
    ids=str,
)
def test_scripts_change_only_the_lines_they_must(fix, lines):
    assert changed(SCRIPT, fix) == lines


@pytest.mark.parametrize(
    ("text", "fixes", "edited"),
    [
        (
            "A=1 torchrun pretrain_gpt.py --num-layers 4 --cuda-graph-impl=local --moe-layer-freq '([1]*4)'",
            [put("--cuda-graph-impl", ["none"]), put("--moe-layer-freq", ["([0]*4)"]), env("B", "2")],
            "B=2 A=1 torchrun pretrain_gpt.py --num-layers 4 --cuda-graph-impl=none --moe-layer-freq '([0]*4)'",
        ),
        (
            'docker run -e A=0 img bash -c "torchrun pretrain_gpt.py --num-layers 4 --cuda-graph-impl local"',
            [put("--cuda-graph-impl", ["none"]), put("--bf16", []), env("A", "1")],
            'docker run -e A=1 img bash -c "torchrun pretrain_gpt.py --num-layers 4 --cuda-graph-impl none --bf16"',
        ),
        (
            "model.cuda_graph_impl=local\n++model.cuda_graph_modules=[attn,mlp]\nrng.te_rng_tracker=false\n",
            [put("model.cuda_graph_modules", ["attn"]), put("rng.te_rng_tracker", True), drop("model.cuda_graph_impl")],
            "++model.cuda_graph_modules=[attn]\nrng.te_rng_tracker=true\n",
        ),
        (
            "run.py --x 1 '+actor.megatron.override_transformer_config.cuda_graph_impl=local'",
            [put("cuda_graph_modules", ["attn"])],
            "run.py --x 1 '+actor.megatron.override_transformer_config.cuda_graph_impl=local' "
            "+actor.megatron.override_transformer_config.cuda_graph_modules=[attn]",
        ),
        (
            "python setup_experiment.py -m qwen -mr q --cuda_graph_impl transformer_engine "
            "--cuda_graph_scope attn,moe_router",
            [put("model.cuda_graph_scope", ["attn", "mlp"]), put("rerun_state_machine.check_for_nan_in_loss", False)],
            "python setup_experiment.py -m qwen -mr q --cuda_graph_impl transformer_engine --cuda_graph_scope attn,mlp "
            "rerun_state_machine.check_for_nan_in_loss=false",
        ),
        (
            'megatron sft --tensor_model_parallel_size 2 --megatron_extra_kwargs \'{"cuda_graph_impl": "local"}\'',
            [put("cuda_graph_impl", "none"), put("tensor_model_parallel_size", 4)],
            'megatron sft --tensor_model_parallel_size 4 --megatron_extra_kwargs \'{"cuda_graph_impl": "none"}\'',
        ),
        (
            'cfg.model.cuda_graph_impl = "local"  # yes\ncfg.rng.te_rng_tracker = False\n',
            [
                put("model.cuda_graph_impl", "none"),
                put("model.cuda_graph_modules", ["attn"]),
                drop("rng.te_rng_tracker"),
            ],
            'cfg.model.cuda_graph_impl = "none"  # yes\ncfg.model.cuda_graph_modules = ["attn"]\n',
        ),
        (
            "c = TransformerConfig(\n    num_layers=2,\n    cuda_graph_impl='local',\n)\n",
            [put("cuda_graph_impl", "none"), put("cuda_graph_warmup_steps", 1), drop("num_layers")],
            'c = TransformerConfig(\n    cuda_graph_impl="none",\n    cuda_graph_warmup_steps=1,\n)\n',
        ),
        (
            'c = {"num_layers": 2, "cuda_graph_impl": "local"}\n',
            [put("cuda_graph_modules", ["attn"]), drop("num_layers")],
            'c = {"cuda_graph_impl": "local", "cuda_graph_modules": ["attn"]}\n',
        ),
        (
            'import os\nos.environ["A"] = "1"\ncfg.model.cuda_graph_impl = "local"\n',
            [env("A", "0"), env("B", "2")],
            'import os\nos.environ["A"] = "0"\nos.environ["B"] = "2"\ncfg.model.cuda_graph_impl = "local"\n',
        ),
    ],
)
def test_commands_overrides_and_python(text, fixes, edited):
    assert read(text).edit(fixes) == edited


def test_manifests_are_edited_where_the_words_stand():
    text = (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    command: [torchrun, pretrain_gpt.py]\n"
        "    args:\n    - --num-layers\n    - '4'\n    - --cuda-graph-impl\n    - local\n"
        '    env:\n    - name: A\n      value: "0"\n'
    )
    fixes = [put("--cuda-graph-impl", ["none"]), put("--bf16", []), drop("--num-layers"), env("A", "1"), env("B", "2")]
    assert changed(text, *fixes) == [
        "-    - --num-layers",
        "-    - '4'",
        "-    - local",
        "+    - none",
        "+    - --bf16",
        '-      value: "0"',
        '+      value: "1"',
        "+    - name: B",
        '+      value: "2"',
    ]


def test_environment_has_no_place_where_the_text_sets_none():
    text = "torchrun pretrain_gpt.py --num-layers 4"
    assert read(text).edit([env("A", "1")]) == text
    assert read({"num_layers": 4}).edit([env("A", "1")]) == {"num_layers": 4}


# Properties

NAMES = st.sampled_from(["cuda_graph_impl", "cuda_graph_modules", "num_layers", "fp8", "moe_router_topk"])
WORDS = st.text("abcdefgh_:#-'\" ,[]{}", max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | WORDS | st.floats(-9, 9, width=16)
VALUES = SCALARS | st.lists(SCALARS, max_size=3)
TREES = st.dictionaries(
    st.sampled_from(["model", "rng", "ddp", "train"]), st.dictionaries(NAMES, VALUES, max_size=4), max_size=4
).map(lambda tree: {"model": {"cuda_graph_impl": "local"}, **tree})
FIXES = st.lists(
    st.builds(
        lambda section, name, value, gone: drop(f"{section}.{name}") if gone else put(f"{section}.{name}", value),
        st.sampled_from(["model", "rng", "comm_overlap"]),
        NAMES,
        VALUES,
        st.booleans(),
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES, FIXES, st.booleans(), st.booleans(), st.booleans())
def test_a_yaml_or_json_edit_reads_as_the_edited_mapping(tree, fixes, as_json, flow, indented):
    wanted = read(tree).edit(fixes)
    if as_json:
        text = json.dumps(tree, indent=2 if indented else None)
    else:
        text = yaml.safe_dump(tree, default_flow_style=flow, sort_keys=False)
    edited = read(text).edit(fixes)
    assert edited is not None
    assert (json.loads if as_json else yaml.safe_load)(edited) == wanted


TOKENS = st.lists(st.sampled_from(["attn", "mlp", "1", "([1]*4)", "a b", "1e-5"]), max_size=3)
FLAGS = st.sampled_from(["--cuda-graph-impl", "--cuda-graph-modules", "--bf16", "--lr", "--num-layers"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(FLAGS, TOKENS, max_size=4),
    st.dictionaries(FLAGS, st.none() | TOKENS, max_size=3),
    st.integers(0, 2),
)
def test_a_command_line_edit_reads_as_the_edited_flags(flags, changes, style):
    import shlex

    flags = {"--hidden-size": ["8"], **flags}
    words = [" ".join([flag, *map(shlex.quote, tokens)]) for flag, tokens in flags.items()]
    if style == 2:
        text = "ARGS=(\n    " + "\n    ".join(words) + "\n)\ntorchrun pretrain_gpt.py ${ARGS[@]//}\n"
        text = text.replace("[@]//}", "[@]}").replace("${ARGS[@]}", '"${ARGS[@]}"')
    else:
        text = "torchrun pretrain_gpt.py " + (" " if style else " \\\n    ").join(words)
    fixes = [drop(flag) if tokens is None else put(flag, tokens) for flag, tokens in changes.items()]
    wanted = dict(flags)
    for flag, tokens in changes.items():
        if tokens is None:
            wanted.pop(flag, None)
        else:
            wanted[flag] = tokens
    edited = read(text).edit(fixes)
    assert edited is not None
    assert read(edited).values == wanted


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=3),
    st.booleans(),
)
def test_a_python_edit_reads_as_the_edited_fields(fields, changes, constructed):
    fields = {"hidden_size": 8, **fields}
    if constructed:
        text = "c = TransformerConfig(" + ", ".join(f"{name}={value!r}" for name, value in fields.items()) + ")\n"
    else:
        text = "".join(f"cfg.model.{name} = {value!r}  # note\n" for name, value in fields.items())
    prefix = "" if constructed else "model."
    wanted = dict(fields)
    for name, value, gone in changes:
        if gone:
            wanted.pop(name, None)
        else:
            wanted[name] = value
    edited = read(text).edit([drop(prefix + n) if gone else put(prefix + n, v) for n, v, gone in changes])
    assert edited is not None
    values = read(edited).values
    assert (values if constructed else values["model"]) == wanted
