"""Statistics, parity verdicts, scaling, the profiler trace and the worker's CPU-only parts."""

from __future__ import annotations

import math

import pytest

from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.smoke import assess, presets, stats, workload
from megatron_cuda_graphs.smoke.model import SmokeRequest
from megatron_cuda_graphs.smoke.worker import releases, trace
from megatron_cuda_graphs.smoke.worker.__main__ import chain_of

from .standin import result


def test_a_difference_within_the_blocks_spread_is_not_resolved():
    eager = [10 + (i // 5) % 2 * 4 for i in range(30)]
    replay = [10 + (i // 5 + 1) % 2 * 4 for i in range(30)]
    assert not stats.ratio(eager, replay).resolved


def test_a_clear_difference_is_resolved_and_its_interval_holds_it():
    r = stats.ratio([10.0 + i % 3 for i in range(30)], [5.0 + i % 2 / 10 for i in range(30)])
    assert r.resolved
    assert r.low <= r.value <= r.high


def test_one_block_pair_resolves_nothing():
    assert not stats.ratio([10.0] * 5, [1.0] * 5).resolved


def rows(**changes):
    return {**result()["parity"], **changes}


@pytest.mark.parametrize(
    ("changes", "verdict", "step"),
    [
        ({}, "bit_equal", None),
        ({"losses_replay": [7.0] * 4 + [None] * 6}, "wrong", 5),
        ({"losses_replay": [7.0] * 9 + [7.3]}, "wrong", 10),
        ({"counts_replay": [1] * 5 + [2] * 5}, "wrong", 6),
        ({"updates_replay": [0.1, 0.12] + [0.1] * 8}, "wrong", 2),
        ({"gradient_distance": [0.02] + [0.0] * 9}, "wrong", 1),
        ({"gradient_distance": [0.0, 0.9] + [0.0] * 8}, "wrong", 2),
        ({"gradient_distance": [None] * 10, "losses_replay": [None] * 10}, "wrong", 1),
        ({"gradient_distance": [1e-3] + [1e-2] * 9, "weights_equal": [False] * 10}, "rounding", None),
        ({"gradient_distance": [1e-3] * 10, "weights_equal": [False] * 10, "noise": 1e-3}, "within_noise", None),
        ({"gradient_distance": [2e-2] * 10, "noise": 1e-3}, "wrong", 1),
        ({"weights_equal": [True] * 9 + [False]}, "rounding", None),
        ({"losses_eager": []}, "not_checked", None),
    ],
)
def test_parity(changes, verdict, step):
    got = stats.parity(rows(**changes))
    assert (got.verdict, got.first_wrong_step) == (verdict, step)


def test_both_twins_diverging_alike_is_not_the_graphs_fault():
    nan = [7.0] * 5 + [None] * 5
    assert stats.parity(rows(losses_eager=nan, losses_replay=nan)).verdict != "wrong"


def test_the_gap_is_explained_by_the_launches_left():
    raw = result()
    raw["profile"]["replay"] = {"busy_ms": 1.9, "launches": 20, "graph_launches": 1, "graph_launch_us": 10}
    # eager 10.145 ms over 400 launches: 25.4 us each; 20 left are 0.507 ms of 0.61 ms above busy.
    m = assess.measures(raw)
    assert m.gap_explained == pytest.approx((20 * 10.145 / 400 + 0.01) / (m.replay.step.median_ms - 1.9), abs=1e-3)


def test_nothing_replayed_is_seen_from_the_profiler():
    raw = result()
    raw["profile"]["replay"]["graph_launches"] = 0
    assert not assess.measures(raw).replayed


def event(cat, name, ts, dur, correlation=0):
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"correlation": correlation}}


def test_the_trace_gives_busy_time_and_launches_without_the_marks():
    mark = "at::cuda::spin_kernel(long)"
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 0, 5, 1),
        event("kernel", mark, 10, 1, 1),
        event("cuda_runtime", "cudaLaunchKernel", 12, 5, 2),
        event("cuda_runtime", "cuLaunchKernelEx", 18, 5, 3),
        event("cuda_runtime", "cudaGraphLaunch", 25, 8, 4),
        event("cuda_runtime", "cudaStreamSynchronize", 40, 8, 5),
        event("kernel", "a", 20, 100, 2),
        event("kernel", "b", 70, 100, 3),  # overlaps a by 50
        event("gpu_memcpy", "Memcpy DtoD", 200, 30, 4),
        event("cuda_runtime", "cudaLaunchKernel", 300, 5, 6),
        event("kernel", mark, 310, 1, 6),
        event("cuda_runtime", "cudaMemsetAsync", 320, 5, 7),
        event("gpu_memset", "Memset", 330, 10, 7),
        {"ph": "M", "name": "process_name"},
    ]
    got = trace.summarize(events, 1)
    assert got["busy_ms"] == pytest.approx(0.190)
    assert got["fwd_bwd_busy_ms"] == pytest.approx(0.180)
    assert (got["launches"], got["graph_launches"], got["kernels"]) == (3, 1, 2)
    assert got["graph_launch_us"] == 8


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_states_its_source_and_fits_an_h200(name):
    work, _ = workload.resolve(SmokeRequest(preset=name), 139.8)
    assert work.source
    assert workload.gib_needed(work.fields) < 139.8
    assert work.fields["num_layers"] == presets.preset(name)["fields"]["num_layers"]
    assert set(work.fields) <= set(workload.FIELDS)
    pattern = work.fields.get("hybrid_layer_pattern")
    assert pattern is None or len(pattern) == work.fields["num_layers"]


def test_scaling_keeps_layer_shapes_and_says_what_it_took():
    asked = SmokeRequest(preset="llama3-8b", overrides={"num_layers": 32})
    work, _ = workload.resolve(asked, 40.0)
    full = presets.preset("llama3-8b")["fields"]
    assert work.fields["num_layers"] < 32
    assert {k: work.fields[k] for k in ("hidden_size", "ffn_hidden_size", "seq_length")} == {
        k: full[k] for k in ("hidden_size", "ffn_hidden_size", "seq_length")
    }
    assert any(s.startswith("num_layers: ") and "to fit" in s for s in work.scaled)


def test_a_layer_that_can_not_fit_is_an_input_error():
    with pytest.raises(InputError, match="One layer"):
        workload.resolve(SmokeRequest(preset="gpt-oss-120b"), 8.0)


KNOWN_015 = {"cuda_graph_impl": "str", "cuda_graph_scope": "str"}
KNOWN_017 = {"cuda_graph_impl": "Literal", "cuda_graph_scope": "Union[str, CudaGraphScope, List[str]]"}
KNOWN_019 = {**KNOWN_017, "cuda_graph_modules": "Union[str, CudaGraphModule, List[str]]"}


@pytest.mark.parametrize(
    ("known", "tier", "modules", "impl", "key", "value"),
    [
        (KNOWN_015, "megatron-te", ["attn"], "transformer_engine", "cuda_graph_scope", "attn"),
        (KNOWN_015, "megatron-local", [], "local", "cuda_graph_scope", "full"),
        (KNOWN_015, "megatron-full-iteration", [], "local", "cuda_graph_scope", "full_iteration"),
        (KNOWN_017, "megatron-full-iteration", [], "local", "cuda_graph_scope", ["full_iteration"]),
        (KNOWN_017, "megatron-te", ["attn", "mlp"], "transformer_engine", "cuda_graph_scope", ["attn", "mlp"]),
        (KNOWN_019, "megatron-te", [], "transformer_engine", "cuda_graph_modules", []),
        (KNOWN_019, "megatron-full-iteration", [], "full_iteration", "cuda_graph_modules", []),
    ],
)
def test_each_release_is_spoken_to_in_its_own_words(known, tier, modules, impl, key, value):
    got = releases.graph_fields(known, tier, modules, 3)
    assert (got["cuda_graph_impl"], got[key]) == (impl, value)


def test_a_release_without_a_word_for_the_set_says_so():
    with pytest.raises(ValueError, match="captures one of"):
        releases.graph_fields(KNOWN_015, "megatron-te", ["attn", "mlp"], 3)


def test_the_chain_ends_at_the_root_even_when_it_was_hidden():
    try:
        try:
            raise RuntimeError("the cause")
        except RuntimeError:
            raise ValueError("what is shown") from None
    except ValueError as exc:
        chain = chain_of(exc)
    assert [c["type"] for c in chain] == ["ValueError", "RuntimeError"]
    assert "the cause" in chain[-1]["where"]


# The real worker's CPU-only parts, where torch is there (a CPU build does; CI may have none).


@pytest.fixture
def tiny():
    return {
        "num_layers": 2, "hidden_size": 32, "ffn_hidden_size": 64, "num_attention_heads": 4, "vocab_size": 64,
        "seq_length": 16, "micro_batch_size": 1,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_query_groups": 2, "gated_linear_unit": True, "activation_func": "silu"},
        {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 16, "gated_linear_unit": True},
        {"hybrid_layer_pattern": "*-E", "num_moe_experts": 4, "moe_ffn_hidden_size": 16, "optimizer": "sgd"},
    ],
)
def test_two_twins_of_the_torch_tier_stay_equal(tiny, changes):
    torch = pytest.importorskip("torch")
    from megatron_cuda_graphs.smoke.worker.torch_tier import _Twin

    f = {**tiny, **changes}
    a, b = _Twin(f, 1, "cpu"), _Twin(f, 1, "cpu")
    tokens = torch.randint(0, 64, (1, 17))
    batch = [{"tokens": tokens[:, :-1], "labels": tokens[:, 1:], "position_ids": torch.arange(16)[None]}]
    for _ in range(3):
        (la,), na = a.run(batch, lambda: None)
        (lb,), nb = b.run(batch, lambda: None)
        assert torch.equal(la, lb)
        assert torch.equal(na, nb)
    assert all(torch.equal(x, y) for x, y in zip(a.weights(), b.weights(), strict=True))
    assert math.isfinite(float(la))


@pytest.mark.filterwarnings("ignore")
def test_mamba_layers_are_refused_by_the_torch_tier(tiny):
    pytest.importorskip("torch")
    from megatron_cuda_graphs.smoke.worker.torch_tier import Gpt

    with pytest.raises(NotImplementedError, match="Mamba"):
        Gpt({**tiny, "hybrid_layer_pattern": "M-"})


@pytest.mark.filterwarnings("ignore")
def test_faults_have_hooks_for_every_moment():
    pytest.importorskip("torch")
    from megatron_cuda_graphs.smoke.worker import faults

    for name in faults.FAULTS:
        made = faults.FAULTS[name]()
        assert isinstance(made, faults.Fault), name
    with pytest.raises(ValueError, match="there is no fault"):
        faults.get("nope", "torch")


# The user's own configuration, in the shapes validate_config reads.


@pytest.mark.parametrize(
    ("config", "expected", "tier", "modules"),
    [
        (
            {
                "num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_moe_experts": 128,
                "moe_ffn_hidden_size": 768, "cuda_graph_impl": "transformer_engine",
                "cuda_graph_modules": ["attn", "moe_router"],
            },
            {"hidden_size": 2048, "num_moe_experts": 128, "moe_ffn_hidden_size": 768},
            "megatron-te",
            ["attn", "moe_router"],
        ),
        (
            "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 8192 "
            "--micro-batch-size 1 --swiglu --disable-bias-linear --cuda-graph-impl full_iteration --te-rng-tracker",
            {"hidden_size": 4096, "gated_linear_unit": True, "activation_func": "silu", "add_bias_linear": False},
            "megatron-full-iteration",
            None,
        ),
        (
            "model:\n  num_layers: 4\n  hidden_size: 1024\n  num_attention_heads: 16\n  cuda_graph_impl: local\n"
            "  cuda_graph_scope: [full_iteration]\nrng:\n  te_rng_tracker: true\ntrain:\n  micro_batch_size: 2\n",
            {"hidden_size": 1024, "micro_batch_size": 2, "use_te_rng_tracker": True},
            "megatron-full-iteration",
            ["full_iteration"],
        ),
    ],
)  # fmt: skip
def test_your_own_configuration_is_read_and_scaled(config, expected, tier, modules):
    from megatron_cuda_graphs.smoke.plan import tier_of

    asked = SmokeRequest(config=config)
    work, graphs = workload.resolve(asked, 139.8)
    assert {k: work.fields[k] for k in expected} == expected
    assert tier_of(asked, graphs, "megatron-te") == tier
    assert graphs["modules"] == modules
    assert workload.gib_needed(work.fields) < 139.8


def test_bridges_missing_tracker_is_kept_missing():
    text = "model:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  cuda_graph_impl: local\n"
    work, _ = workload.resolve(SmokeRequest(config=text), None)
    assert work.fields["use_te_rng_tracker"] is False


@pytest.mark.parametrize("text", ["}{", "foo: 1", "\0\1", ""])
def test_a_configuration_that_is_none_is_an_input_error(text):
    with pytest.raises(InputError):
        workload.resolve(SmokeRequest(config=text), None)


@pytest.fixture
def cpu_pair(tiny, monkeypatch):
    """Two eager twins on the CPU where the session expects an eager and a graphed one."""
    torch = pytest.importorskip("torch")
    from types import SimpleNamespace

    from megatron_cuda_graphs.smoke.worker import torch_tier

    monkeypatch.setattr(torch.cuda, "synchronize", lambda *a: None)
    f = {**tiny, "optimizer": "sgd"}
    pair = SimpleNamespace(eager=torch_tier._Twin(f, 1, "cpu"), graph=torch_tier._Twin(f, 1, "cpu"))
    pair.before_step = lambda index: None
    gen = torch.Generator().manual_seed(0)
    data = []
    for _ in range(4):
        tokens = torch.randint(0, 64, (1, 17), generator=gen)
        data.append([{"tokens": tokens[:, :-1], "labels": tokens[:, 1:], "position_ids": torch.arange(16)[None]}])
    return pair, data


def compared(pair, data, steps=6, before=lambda i, pair, data: None):
    from megatron_cuda_graphs.smoke.worker import session

    lock = session.Lockstep(pair, data)
    for i in range(steps):
        before(i, pair, data)
        lock.step(i)
    noise = session.repeatability(pair.eager, data[0])
    return stats.parity({**lock.told(), "noise": noise, "equal_at_capture": True})


@pytest.mark.filterwarnings("ignore")
def test_lockstep_finds_like_twins_equal(cpu_pair):
    assert compared(*cpu_pair).verdict == "bit_equal"


def faster(pair):
    pair.graph.optimizer.param_groups[0]["lr"] *= 1.2


def blanked(pair):
    for w in pair.graph.weights():
        w.data.zero_()


def halved(pair):
    losses = pair.graph.losses
    pair.graph.losses = lambda batch: losses(batch)[:0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", [faster, blanked, halved])
def test_lockstep_finds_the_step_from_which_a_twin_differs(cpu_pair, fault):
    got = compared(*cpu_pair, before=lambda i, pair, data: fault(pair) if i == 2 else None)
    assert (got.verdict, got.first_wrong_step) == ("wrong", 3)
