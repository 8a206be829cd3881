"""Command lines, scripts around them, manifests, Hydra overrides and frameworks."""

import textwrap

import pytest

from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.readers import Member, read
from megatron_cuda_graphs.unknown import Unknown

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
set -euxo pipefail
export NCCL_GRAPH_REGISTER=0
export CUDA_DEVICE_MAX_CONNECTIONS=${CONNECTIONS:-1}
SECRET=not-exported
TP=4
LAYERS=$((TP * 8))
DISTRIBUTED_ARGS=(
    --nproc_per_node 8  # GPUs
    --master_port $PORT
)
MODEL_ARGS=(
    --num-layers $LAYERS
    --moe-layer-freq "([0]*4+[1]*9)"
    --tensor-model-parallel-size ${TP}
    # --bf16
    --cuda-graph-impl transformer_engine
    --cuda-graph-scope attn moe_router
)
if [ "$TP" -gt 1 ]; then
    MODEL_ARGS+=(--sequence-parallel)
else
    MODEL_ARGS+=(--fp16)
fi
if [ -n "$DEBUG" ]; then
    MODEL_ARGS+=(--te-rng-tracker)
fi
NCCL_DEBUG=INFO torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    "${MODEL_ARGS[@]}" \\
    --lr $LR \\
    --min-lr=1e-5 $EXTRA_ARGS "$@"
"""


def test_a_launch_script_is_followed_to_its_command():
    reading = read(SCRIPT)
    assert (reading.frontend, reading.format, reading.base) == ("megatron-lm", "script", "defaults")
    values = reading.values
    assert values["--num-layers"] == ["32"]
    assert values["--moe-layer-freq"] == ["([0]*4+[1]*9)"]
    assert values["--tensor-model-parallel-size"] == ["4"]
    assert values["--cuda-graph-scope"] == ["attn", "moe_router"]
    assert values["--sequence-parallel"] == []
    assert values["--min-lr"] == ["1e-5"]
    assert not {"--bf16", "--fp16", "--nproc_per_node", "--nodes"} & values.keys()


def test_only_exports_and_inline_assignments_are_environment():
    assert read(SCRIPT).env == {"NCCL_GRAPH_REGISTER": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_DEBUG": "INFO"}


def test_what_hangs_on_an_unset_variable_or_a_branch_stays_unknown_and_is_named():
    reading = read(SCRIPT)
    assert isinstance(reading.values["--lr"][0], Unknown)
    assert isinstance(reading.values["--te-rng-tracker"], Unknown)
    named = {name for note in reading.notes for name in note.fields}
    assert {"EXTRA_ARGS", "@", "--te-rng-tracker"} <= named


def test_locations_point_at_the_flag_where_it_is_written():
    place = read(SCRIPT, path="run.sh").locations["--cuda-graph-impl"]
    assert (place.path, place.line, place.column) == ("run.sh", 18, 5)


LINE = "pretrain_gpt.py --num-layers 4 --cuda-graph-impl local"


@pytest.mark.parametrize(
    ("text", "env"),
    [
        (LINE.removeprefix("pretrain_gpt.py "), None),
        (f"python {LINE}", None),
        (f"$ torchrun --nproc_per_node 8 {LINE}", None),
        (f"python -m torch.distributed.run --nnodes 2 --rdzv_endpoint a:1 {LINE}", None),
        (f"A=1 B='x y' srun -N 2 --export=ALL,C=3 python -u {LINE}", {"A": "1", "B": "x y", "C": "3"}),
        (f"env A=1 python {LINE}", {"A": "1"}),
        (f"docker run --rm -e A=1 --env=B=2 -v /x:/y image bash -c 'cd /y && torchrun {LINE}'", {"A": "1", "B": "2"}),
        (f'srun --container-image=x bash -lc "export A=1; torchrun {LINE}"', {"A": "1"}),
        (f'sbatch -N 1 --wrap="A=1 torchrun {LINE}"', {"A": "1"}),
        (f'export A=1\nCMD="torchrun {LINE}"\neval $CMD', {"A": "1"}),
        (f'export A=1\nCMD="torchrun {LINE}"\n$CMD', {"A": "1"}),
        (f"run() {{ torchrun $1 --num-layers 4 ${{@:2}} --cuda-graph-impl local; }}\nrun {LINE.split()[0]}", None),
        (f"mpirun -np 8 -x A=1 python {LINE}", {"A": "1"}),
        (f"cat > job.sh <<EOF\nexport A=1\ntorchrun {LINE}\nEOF\nsbatch job.sh", {"A": "1"}),
        (f"(export A=1; torchrun {LINE}) 2>&1 | tee log.txt", {"A": "1"}),
        (f"set -a\nA=1\ntorchrun {LINE} > >(tee log) 2>&1 &\nwait", {"A": "1"}),
        (f"ssh host 'A=1 torchrun {LINE}'", {"A": "1"}),
        (f"torchrun \\\r\n  {LINE.replace(' --', ' ' + chr(92) + chr(13) + chr(10) + ' --')}", None),
    ],
)
def test_wrappers_are_looked_through(text, env):
    reading = read(text)
    assert reading.frontend == "megatron-lm"
    assert reading.values["--num-layers"] == ["4"]
    assert reading.values["--cuda-graph-impl"] == ["local"]
    assert reading.env == env


@pytest.mark.parametrize(
    ("test", "taken"),
    [
        ("[ a = a ]", True),
        ("[[ abc == a* ]]", True),
        ("[[ 3 -lt 2 || x != x ]]", False),
        ("[ -z '' ] && [ 1 -eq 1 ]", True),
        ("(( 2 * 3 ))", True),
        ("true", True),
        ("! true", None),
        ("[ -f file ]", None),
        ("grep -q x file", None),
    ],
)
def test_tests_over_known_text_are_decided_others_are_not(test, taken):
    text = f"A=(--num-layers 2)\nif {test}; then A+=(--bf16); fi\ntorchrun pretrain_gpt.py ${{A[@]}}\n"
    values = read(text).values
    if taken is None:
        assert isinstance(values.get("--bf16", Unknown("x")), (Unknown, list))
    else:
        assert ("--bf16" in values) is taken


def test_case_picks_the_arm_of_a_known_subject():
    text = "M=b\ncase $M in a) X=1;; b|c) X=2;; *) X=3;; esac\ntorchrun pretrain_gpt.py --num-layers $X"
    assert read(text).values["--num-layers"] == ["2"]


def test_options_kept_in_strings_are_split_as_the_shell_splits_them():
    text = (
        "OPTS=\" \\\n  --num-layers 4 \\\n  --moe-layer-freq '([1]*4)' \\\n\"\n"
        "if [ -z $X ]; then MORE='--bf16'; else MORE='--bf16 --fp8-format hybrid'; fi\n"
        'run="torchrun pretrain_gpt.py $OPTS $MORE"\neval $run\n'
    )
    values = read(text).values
    assert values["--num-layers"] == ["4"]
    assert values["--moe-layer-freq"] == ["([1]*4)"]


def test_a_command_that_is_not_read_is_named():
    reading = read(f"torchrun {LINE}\ntorchrun {LINE} --bf16 --te-rng-tracker\n")
    assert "--te-rng-tracker" in reading.values
    assert any("Another command" in note.message for note in reading.notes)


def test_text_without_megatron_flags_is_refused():
    with pytest.raises(InputError, match="Megatron"):
        read("vllm serve --model x --tensor-parallel-size 2")


def test_a_front_end_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="front end"):
        read(f"torchrun {LINE}", frontend="bridge")


def test_kubernetes_manifests_hold_args_or_a_script():
    head = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    env:\n    - {name: A, value: '1'}\n"
    script = head + textwrap.indent(
        "command: [bash, -c]\nargs:\n- |\n  export B=2\n  torchrun pretrain_gpt.py \\\n    --num-layers 4 --bf16\n",
        "    ",
    )
    words = head + "    command: [torchrun, pretrain_gpt.py]\n    args:\n    - --num-layers\n    - '4'\n    - --bf16\n"
    for text, env in ((script, {"A": "1", "B": "2"}), (words, {"A": "1"})):
        reading = read(text)
        assert reading.format == "manifest"
        assert reading.values == {"--num-layers": ["4"], "--bf16": []}
        assert reading.env == env
    assert read(script).locations["--bf16"].line == 13


def test_compose_files_hold_commands_too():
    text = "services:\n  train:\n    environment: {A: 1}\n    command: torchrun pretrain_gpt.py --num-layers 4\n"
    reading = read(text)
    assert reading.values == {"--num-layers": ["4"]}
    assert reading.env == {"A": "1"}


def test_hydra_overrides_one_a_line_or_behind_a_script():
    lines = "model.cuda_graph_impl=local\n++model.cuda_graph_modules=[attn,mlp]\n~model.x\nrng.te_rng_tracker=true\n"
    for text in (lines, "torchrun run_recipe.py --recipe x " + " ".join(lines.split())):
        reading = read(text)
        assert (reading.frontend, reading.format, reading.base) == ("bridge", "hydra", "unknown")
        assert reading.values["model"] == {"cuda_graph_impl": "local", "cuda_graph_modules": ["attn", "mlp"]}
        assert reading.values["rng"] == {"te_rng_tracker": True}
        assert any("~model.x" in note.message for note in reading.notes)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("local", "local"),
        ("'a b'", "a b"),
        ("null", None),
        ("True", True),
        ("3", 3),
        ("1e-4", 1e-4),
        ("[attn, mlp]", ["attn", "mlp"]),
        ("[]", []),
        ("{a:1,b:[x]}", {"a": 1, "b": ["x"]}),
        ("[[1,2],[3]]", [[1, 2], [3]]),
        ("CudaGraphScope.attn", Member("CudaGraphScope", "attn")),
        ("torch.bfloat16", "torch.bfloat16"),
    ],
)
def test_hydra_values_have_hydras_types(text, value):
    from megatron_cuda_graphs.readers.hydra import parse_value

    assert parse_value(text) == (value, "")


def test_a_hydra_sweep_is_named():
    reading = read("model.cuda_graph_modules=attn,mlp\n")
    assert reading.values["model"]["cuda_graph_modules"] == ["attn", "mlp"]
    assert "sweep" in reading.notes[0].message


def test_verl_overrides_are_found_under_their_prefix():
    reading = read(
        "python3 -m verl.trainer.main_ppo data.batch=8 actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\\n"
        "  +actor_rollout_ref.actor.megatron.override_transformer_config.cuda_graph_impl=local $@\n"
    )
    assert (reading.frontend, reading.base) == ("core", "unknown")
    assert reading.values == {"cuda_graph_impl": "local"}
    assert reading.locations["cuda_graph_impl"].line == 2


def test_perf_harness_flags_set_model_fields_and_stay_available():
    reading = read(
        "python scripts/performance/setup_experiment.py -m qwen -mr qwen3_30b_a3b -g h100 -ng 8 -tp 2 "
        "--cuda_graph_impl transformer_engine --cuda_graph_scope attn,moe_router --moe_a2a_overlap true -ce A=1,B=2"
    )
    assert (reading.frontend, reading.format, reading.base) == ("bridge", "perf-harness", "unknown")
    assert reading.values["model"]["cuda_graph_impl"] == "transformer_engine"
    assert reading.values["model"]["cuda_graph_scope"] == ["attn", "moe_router"]
    assert reading.values["model"]["sequence_parallel"] is True
    assert reading.values["rng"] == {"te_rng_tracker": True}
    assert reading.values["comm_overlap"]["delay_wgrad_compute"] is True
    assert reading.values["perf_harness"]["--cuda_graph_scope"] == ["attn,moe_router"]
    assert reading.env == {"A": "1", "B": "2"}
    assert "qwen3_30b_a3b" in reading.notes[0].message


def test_ms_swift_arguments_and_its_json_string():
    reading = read(
        "PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' megatron sft --model Q --sequence_parallel true "
        '--tensor_model_parallel_size 2 --megatron_extra_kwargs \'{"cuda_graph_impl": "local"}\''
    )
    assert (reading.frontend, reading.format, reading.base) == ("core", "ms-swift", "unknown")
    assert reading.values == {"sequence_parallel": True, "tensor_model_parallel_size": 2, "cuda_graph_impl": "local"}
    assert reading.env == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
