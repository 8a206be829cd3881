"""Which releases are judged for."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs import Stack, releases
from megatron_cuda_graphs.errors import InputError


@pytest.mark.parametrize(("bridge", "core"), sorted(releases.PAIRS.items()))
def test_bridge_alone_is_judged_with_its_pair(bridge, core):
    settled = Stack(megatron_bridge=bridge).settled("bridge")
    assert settled.megatron_core == core
    assert settled.resolved["megatron_core"] == "paired"
    assert settled.resolved["megatron_bridge"] == "given"


def test_nothing_given_is_the_newest_covered():
    settled = Stack().settled()
    assert settled.megatron_core == releases.CORE[-1]
    assert settled.resolved["megatron_core"] == "default"


@pytest.mark.parametrize(("core", "bridge"), [("0.16.1", "0.3.1"), ("0.17.0", "0.4.2"), ("0.19.2", "0.6.2")])
def test_a_bridge_configuration_with_core_alone_takes_the_newest_bridge_of_that_line(core, bridge):
    judged = Stack(megatron_core=core).judged("bridge")
    assert judged.bridge_version == bridge
    assert judged.core_version == core


def test_a_release_that_is_not_covered_is_judged_as_the_nearest_older_and_said():
    judged = Stack(megatron_core="0.20.1").judged()
    assert judged.core_version == releases.CORE[-1]
    assert judged.problems[0][:2] == ("release-not-covered", "warning")
    assert Stack(megatron_core="0.16.9").judged().core_version == "0.16.1"
    assert Stack(megatron_core="0.11.0").judged().core_version == "0.14.0"
    assert Stack(megatron_core="0.19.2rc1").judged().problems[0][1] == "info"


@pytest.mark.parametrize(("bridge", "core"), [("0.3.1", "0.17.1"), ("0.6.2", "0.18.2"), ("0.5.1", "0.17.1")])
def test_a_pair_that_does_not_import_is_an_error(bridge, core):
    problems = Stack(megatron_bridge=bridge, megatron_core=core).judged("bridge").problems
    assert [p[:2] for p in problems] == [("pair-does-not-import", "error")]


@pytest.mark.parametrize(
    ("bridge", "core", "told"),
    [("0.4.2", "0.17.0", False), ("0.4.2", "0.18.0", True), ("0.5.1", "0.18.0", False), ("0.5.0", "0.19.2", True)],
)
def test_a_pair_of_two_lines_that_imports_is_a_warning(bridge, core, told):
    problems = Stack(megatron_bridge=bridge, megatron_core=core).judged("bridge").problems
    assert [p[:2] for p in problems] == [("pair-not-released-together", "warning")] * told


def test_versions_are_read_from_what_people_have():
    freeze = "torch==2.11.0+cu130\nmegatron-core==0.19.2\ntransformer_engine==2.14.0\n"
    locked = '[[package]]\nname = "{}"\nversion = "{}"\n\n'
    lock = locked.format("megatron-core", "0.17.1") + locked.format("megatron-bridge", "0.4.2")
    log = "[rank0]: Megatron-Core 0.18.2 | TransformerEngine v2.12.0 | torch: 2.9.1"
    requirements = (
        "megatron-core @ git+https://example.com/Megatron-LM@core_v0.16.1\ntransformer-engine[pytorch]~=2.10.0"
    )
    assert Stack.read(freeze).megatron_core == "0.19.2"
    assert Stack.read(freeze).torch == "2.11.0+cu130"
    assert Stack.read(freeze).transformer_engine == "2.14.0"
    assert (Stack.read(lock).megatron_core, Stack.read(lock).megatron_bridge) == ("0.17.1", "0.4.2")
    assert (Stack.read(log).megatron_core, Stack.read(log).transformer_engine) == ("0.18.2", "2.12.0")
    assert Stack.read(log).torch == "2.9.1"
    assert Stack.read(requirements).megatron_core == "0.16.1"
    assert Stack.read(requirements).transformer_engine == "2.10.0"
    assert Stack.read("nothing here").megatron_core is None


@pytest.mark.parametrize(
    "text",
    ["bridge=0.6.2,te=2.14.0", "bridge==0.6.2 te==2.14.0", "megatron-bridge=0.6.2; transformer-engine=2.14.0",
     "bridge 0.6.2, te 2.14.0", "bridge:0.6.2,te:2.14.0"],
)  # fmt: skip
def test_a_stack_as_people_type_it(text):
    stack = Stack.parse(text)
    assert (stack.megatron_bridge, stack.transformer_engine) == ("0.6.2", "2.14.0")


@pytest.mark.parametrize("text", ["brigde=0.6.2", "core=new", "0.6.2", "core=0.19.2,rocm=6"])
def test_a_stack_that_says_nothing_usable_is_an_input_error(text):
    with pytest.raises(InputError):
        Stack.parse(text)


def test_an_unknown_field_is_an_input_error():
    with pytest.raises(InputError, match="no such field"):
        Stack.of(megatron="0.19.2")


@pytest.mark.parametrize(
    ("arch", "sm"),
    [("sm_90", 90), ("NVIDIA H100 80GB HBM3", 90), ("B200", 100), ("gb300", 103), ("9.0", 90), ("?", None)],
)
def test_gpu_architectures_by_any_name(arch, sm):
    assert Stack(gpu_arch=arch).judged().sm == sm


def test_detect_reads_metadata_and_imports_nothing():
    import sys

    stack = Stack.detect()
    assert "torch" not in sys.modules
    assert all(how in ("installed", "unknown") for how in stack.resolved.values())


@pytest.mark.parametrize(
    ("te", "at_least"),
    [("2.10.0", True), ("2.10.0+c90a720", True), ("2.10.0.dev0+abc", False), ("2.10.0rc1", False), ("2.9.1", False)],
)
def test_a_pre_release_comes_before_its_release(te, at_least):
    from megatron_cuda_graphs.settings import Settings

    judged = Stack(transformer_engine=te).judged()
    settings = Settings({}, frontend="core", judged=judged, defaults={}, environ={})
    assert settings.te_at_least((2, 10)) is at_least
