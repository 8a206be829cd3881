"""Python text that builds or changes a configuration."""

import pytest

from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.readers import Member, read
from megatron_cuda_graphs.unknown import Unknown

RECIPE = '''\
import os

from megatron.core.transformer.enums import CudaGraphModule

os.environ["NCCL_GRAPH_REGISTER"] = "0"


def my_recipe(tp: int = 4, dtype=None):
    """A recipe."""
    cfg = _common()
    cfg.model = AutoBridge.from_hf("x").to_megatron_provider(load_weights=False)
    cfg.model.tensor_model_parallel_size = tp
    cfg.model.seq_length = 4096 * 2
    cfg.model.moe_layer_freq = [0] * 4 + [1] * 9
    cfg.model.cuda_graph_impl = "transformer_engine"
    cfg.model.cuda_graph_modules = [CudaGraphModule.attn, "mlp"]
    cfg.model.pipeline_dtype = torch.bfloat16
    cfg.model.params_dtype = dtype
    if cfg.model.seq_length > 100:
        cfg.rng.te_rng_tracker = True
    if USE_RECOMPUTE:
        cfg.model.recompute_granularity = "full"
    for i in range(3):
        cfg.model.n = i
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    tune(cfg)
    return cfg
'''


def test_a_recipe_function_is_followed():
    reading = read(RECIPE)
    model = reading.values["model"]
    assert (reading.frontend, reading.format, reading.base) == ("bridge", "python", "unknown")
    assert model["tensor_model_parallel_size"] == 4
    assert model["seq_length"] == 8192
    assert model["moe_layer_freq"] == [0] * 4 + [1] * 9
    assert model["cuda_graph_modules"] == [Member("CudaGraphModule", "attn"), "mlp"]
    assert model["pipeline_dtype"] == "torch.bfloat16"
    assert model["params_dtype"] is None
    assert reading.values["rng"] == {"te_rng_tracker": True}
    assert reading.values["comm_overlap"]["tp_comm_overlap"] is True
    assert isinstance(model["recompute_granularity"], Unknown)
    assert isinstance(model["n"], Unknown)
    assert reading.env == {"NCCL_GRAPH_REGISTER": "0"}
    assert any("tune(cfg)" in note.message for note in reading.notes)
    assert reading.locations["model.cuda_graph_impl"].line == 15


@pytest.mark.parametrize(
    ("text", "frontend", "base", "values"),
    [
        ('cfg.model.cuda_graph_impl = "local"', "bridge", "unknown", {"model": {"cuda_graph_impl": "local"}}),
        ('provider.cuda_graph_impl = "local"', "bridge", "unknown", {"model": {"cuda_graph_impl": "local"}}),
        ('    cfg.model.cuda_graph_impl = "local"\n', "bridge", "unknown", {"model": {"cuda_graph_impl": "local"}}),
        (
            'c = TransformerConfig(num_layers=2 * 2, cuda_graph_scope="attn, mlp")',
            "core",
            "defaults",
            {"num_layers": 4, "cuda_graph_scope": "attn, mlp"},
        ),
        (
            "cfg = ConfigContainer(model=GPTModelProvider(num_layers=2), rng=RNGConfig(te_rng_tracker=True))",
            "bridge",
            "defaults",
            {
                "_target_": "ConfigContainer",
                "model": {"_target_": "GPTModelProvider", "num_layers": 2},
                "rng": {"_target_": "RNGConfig", "te_rng_tracker": True},
            },
        ),
        (
            "@dataclass\nclass Mine(GPTModelProvider):\n    num_layers: int = 2\n    cuda_graph_impl: str = 'local'\n",
            "bridge",
            "defaults",
            {"model": {"_target_": "GPTModelProvider", "num_layers": 2, "cuda_graph_impl": "local"}},
        ),
        (
            'config = {"num_layers": 2, "cuda_graph_impl": "local"}',
            "core",
            "defaults",
            {"num_layers": 2, "cuda_graph_impl": "local"},
        ),
        (
            'config = dict(model=dict(cuda_graph_impl="local"))',
            "bridge",
            "defaults",
            {"model": {"cuda_graph_impl": "local"}},
        ),
    ],
)
def test_constructors_assignments_and_literals(text, frontend, base, values):
    reading = read(text)
    assert (reading.frontend, reading.base, reading.values) == (frontend, base, values)


def test_lists_that_grow_are_followed():
    reading = read(
        'mods = ["attn"]\nmods.append("mlp")\ncfg.model.cuda_graph_modules = mods\n'
        'cfg.model.cuda_graph_modules += ["moe"]\n'
    )
    assert reading.values["model"]["cuda_graph_modules"] == ["attn", "mlp", "moe"]


def test_a_call_that_sets_graphs_makes_them_unknown():
    reading = read('cfg.model.cuda_graph_impl = "none"\nset_full_iteration_cuda_graph(cfg.model)\n')
    assert isinstance(reading.values["model"]["cuda_graph_impl"], Unknown)


def test_a_local_function_that_changes_the_configuration_is_followed():
    reading = read('def graphs(c):\n    c.model.cuda_graph_impl = "local"\n\ncfg = recipe()\ngraphs(cfg)\n')
    assert reading.values == {"model": {"cuda_graph_impl": "local"}}


def test_a_splat_of_something_unknown_leaves_the_base_unknown():
    reading = read('c = TransformerConfig(cuda_graph_impl="local", **extra)')
    assert reading.base == "unknown"
    assert "extra" in reading.notes[0].message


def test_other_configurations_in_the_text_are_named():
    reading = read(
        "a = TransformerConfig(num_layers=1, cuda_graph_impl='local')\nb = TransformerConfig(num_layers=2)\n"
    )
    assert reading.values["num_layers"] == 1
    assert any("`b`" in note.message for note in reading.notes)


def test_python_without_a_configuration_is_refused():
    with pytest.raises(InputError, match="neither builds nor changes"):
        read("import os\nprint(os.getcwd())\n", path="x.py")


def test_a_syntax_error_has_its_line():
    with pytest.raises(InputError) as caught:
        read("cfg.model.x = 1\ncfg.model.y = = 2\n", path="x.py")
    assert caught.value.line == 2
