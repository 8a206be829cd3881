"""Puts configurations to the real ConfigContainer of a megatron-bridge release, on a CPU.

    python bridge.py --packages DIR --bridge 0.6.2 --core 0.19.2 < cases.jsonl > verdicts.jsonl

A case is {"config": {section: {field: value}}, "env": {...}, "te": "2.14.0", "world_size": 8}. `_target_` in a
section, or in an object inside one, names its class. Sections that the case leaves out are filled with the least
that ConfigContainer asks for. As pretrain() does, and stopping at the first failure:

    construct  the sections and the container are built
    runtime    runtime_config_update(): mixed precision, communication overlap, validate() with megatron-core's own
               __post_init__
    provide    model.provide() is entered, and left where it would build the first module. Only an exception
               about graphs that Bridge's own code raises is a verdict; anything else counts as passed

Replaced: packages that only a GPU machine has are stand-ins (`stubs`); the world size is the case's, as in
Bridge's own unit tests; torch.cuda describes an H100. Transformer Engine is never absent here, since no release
of megatron-bridge imports without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import types
from unittest import mock

import common
import stubs

ABSENT_ON_CPU = {
    "transformer_engine": "2.14.0",
    "transformer_engine_torch": "2.14.0",
    "nvidia_resiliency_ext": "0.6.0",
    "modelopt": "0.44.0",
    "megatron.energon": "7.0.0",
}
MODEL = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "seq_length": 512, "apply_rope_fusion": False}
DATASET = {"random_seed": 1234, "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False}


def make():
    stubs.install(ABSENT_ON_CPU)
    import torch

    hopper = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100", total_memory=80 << 30)
    torch.cuda.get_device_properties = lambda device=None: hopper
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    with stubs.no_extension_builds():
        import megatron.bridge.training.config as training
    return Bridge(training)


@contextlib.contextmanager
def nothing_built():
    """Refuse to build modules: the first one ends the model's construction."""
    import torch

    def refuse(self, *args, **kwargs):
        raise RuntimeError("the model is not built here")

    with mock.patch.object(torch.nn.Module, "__init__", refuse):
        yield


class Bridge:
    def __init__(self, training):
        self.training = training
        self.engine, self.values = stubs.TransformerEngine(), common.Values()
        hints = {f.name: f.type for f in dataclasses.fields(training.ConfigContainer)}
        self.has_validation = "validation" in hints
        self.world_size = 8
        training.get_world_size_safe = lambda: self.world_size

    def target(self, section, default):
        """The class that `_target_` names, or the default."""
        path = section.pop("_target_", None)
        if path is None:
            return default
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)

    def build(self, config):
        training = self.training
        config = {name: dict(v) if isinstance(v, dict) else v for name, v in config.items()}
        values = self.values.decode_all

        def section(name, cls, **least):
            given = config.pop(name, {})
            return self.target(given, cls)(**{**least, **values(given)})

        from megatron.bridge.models.gpt_provider import GPTModelProvider
        from megatron.bridge.training.comm_overlap import CommOverlapConfig
        from megatron.bridge.training.tokenizers.config import TokenizerConfig

        model = section("model", GPTModelProvider, **MODEL)
        built = {
            "model": model,
            "train": section(
                "train", training.TrainingConfig, global_batch_size=32, micro_batch_size=1, train_iters=1000
            ),
            "optimizer": section("optimizer", training.OptimizerConfig, lr=1e-4, use_distributed_optimizer=False),
            "scheduler": section("scheduler", training.SchedulerConfig, lr_decay_style="linear", lr_warmup_iters=0),
            "logger": section("logger", training.LoggerConfig),
            "tokenizer": section("tokenizer", TokenizerConfig),
            "checkpoint": section("checkpoint", training.CheckpointConfig, ckpt_format="torch_dist"),
            "dist": section("dist", training.DistributedInitConfig),
            "ddp": section("ddp", training.DistributedDataParallelConfig),
            "rng": section("rng", training.RNGConfig),
            "rerun_state_machine": section("rerun_state_machine", training.RerunStateMachineConfig),
            "dataset": self.dataset(config.pop("dataset", {}), getattr(model, "seq_length", 512)),
            "profiling": None,
        }
        if self.has_validation:
            built["validation"] = section("validation", training.ValidationConfig)
        if "comm_overlap" in config:
            built["comm_overlap"] = section("comm_overlap", CommOverlapConfig, tp_comm_overlap=False)
        return training.ConfigContainer(**built, **config)

    def dataset(self, given, seq_length):
        given = dict(given)
        cls = self.target(given, self.training.GPTDatasetConfig)
        for name in ("packed_sequence_specs", "offline_packing_specs"):
            if isinstance(given.get(name), dict):
                given[name] = self.packing_class()(**given[name])
        if issubclass(cls, self.training.GPTDatasetConfig):
            try:
                return cls(seq_length=seq_length, **DATASET, **self.values.decode_all(given))
            except TypeError:  # before Bridge took the name over
                return cls(sequence_length=seq_length, **DATASET, **self.values.decode_all(given))
        return cls(seq_length=seq_length, dataset_root="dataset", **self.values.decode_all(given))

    def packing_class(self):
        for module in ("megatron.bridge.data.packing.config", "megatron.bridge.data.datasets.packed_sequence"):
            try:
                return importlib.import_module(module).PackedSequenceSpecs
            except ImportError:
                continue
        raise LookupError("no PackedSequenceSpecs in this release")

    def __call__(self, case):
        self.world_size = case.get("world_size", 8)
        self.engine.set(case.get("te"))
        verdict = {"ok": True, "stage": None, "exception": None, "message": None, "warnings": [], "normalized": None}
        config = None
        stage = "construct"
        with common.environment(case.get("env")), common.graph_warnings(verdict["warnings"]):
            try:
                config = self.build(case["config"])
                stage = "runtime"
                self.training.runtime_config_update(config)
                stage = "provide"
                with nothing_built():
                    config.model.provide(pre_process=True, post_process=True)
            except Exception as exc:
                found = common.raised(exc)
                inmost = found["where"][-1][0] if found["where"] else ""
                about_graphs = inmost.startswith("bridge/") and "graph" in found["message"].lower()
                if stage != "provide" or about_graphs:
                    verdict.update(ok=False, stage=stage, **found)
        if config is not None and verdict["ok"]:
            verdict["normalized"] = self.values.normalized(config.model)
        return verdict


if __name__ == "__main__":
    common.serve(__doc__, make)
