"""The Megatron tiers: two models, one captured as Megatron-LM's training loop does it.

The order of things is that of `pretrain`/`train` in megatron/training/training.py (read for 0.15 to 0.19): model,
Float16Module, DDP on a side stream, optimizer, then per step zero_grad_buffer, zero_grad, forward_backward_func,
optimizer.step. Transformer Engine graphs are made after the warm-up steps by TECudaGraphHelper.create_cudagraphs;
local graphs by the schedule at the end of the first step; the full iteration by FullCudaGraphWrapper.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.full_cuda_graph import FullCudaGraphWrapper
from megatron.core.models.gpt import GPTModel
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import schedules
from megatron.core.transformer import cuda_graphs
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from .channel import rank_of, world_of
from .faults import Fault
from .releases import graph_fields
from .twin import Batch

__all__ = ["MegatronPair", "build"]

# Workload fields that belong to the model or the step, not to TransformerConfig.
MODEL_FIELDS = {
    "vocab_size", "seq_length", "micro_batch_size", "position_embedding_type", "rotary_base", "rotary_percent",
    "share_embeddings_and_output_weights", "hybrid_layer_pattern", "packed_lengths", "optimizer", "lr",
    "use_te_rng_tracker", "check_for_nan_in_grad", "activation_func",
}  # fmt: skip


def _activation(name: str | None) -> Any:
    if name == "silu":
        return F.silu
    if name == "quick_gelu":
        from megatron.core.fusions.fused_bias_geglu import quick_gelu

        return quick_gelu
    if name == "squared_relu":
        from megatron.core.activations import squared_relu

        return squared_relu
    return F.gelu


def _takes(function: Any, **given: Any) -> dict[str, Any]:
    """Those keywords that this release's function has."""
    known = inspect.signature(function).parameters
    return {k: v for k, v in given.items() if k in known}


class _Twin:
    """One model (its chunks), its optimizer and its schedule."""

    def __init__(self, job: dict[str, Any], fields: dict[str, Any], fault: Fault, graphed: bool) -> None:
        ask = job["request"]
        self.fields, self.fault, self.graphed, self.tier = fields, fault, graphed, job["tier"]
        self.size, self.length = fields["micro_batch_size"], fields["seq_length"]
        modules = [m for m in job["modules"] if m != "optimizer"]
        self.optimizer_graph = "optimizer" in job["modules"] or fault.wrap_optimizer
        known = {f.name: f.type for f in dataclasses.fields(TransformerConfig)}
        config = {k: v for k, v in fields.items() if k not in MODEL_FIELDS and v is not None}
        config["activation_func"] = _activation(fields.get("activation_func"))
        if isinstance(config.get("window_size"), list):
            config["window_size"] = tuple(config["window_size"])
        config.setdefault("attention_dropout", 0.0)
        config.setdefault("hidden_dropout", 0.0)
        config.update(
            bf16=True,
            params_dtype=torch.bfloat16,
            pipeline_dtype=torch.bfloat16,
            tensor_model_parallel_size=ask["tp"],
            pipeline_model_parallel_size=ask["pp"],
            expert_model_parallel_size=ask["ep"],
            gradient_accumulation_fusion=False,
        )
        if ask.get("vp"):
            layers = fields["num_layers"] // ask["pp"] // ask["vp"]
            # Megatron-LM's own default with interleaving; two stages can't tell batched transfers apart.
            overlap = {"overlap_p2p_comm": True, "batch_p2p_comm": False}
            config.update(virtual_pipeline_model_parallel_size=ask["vp"], **overlap)
            if layers * ask["pp"] * ask["vp"] != fields["num_layers"]:
                raise ValueError(f"{fields['num_layers']} layers can't be cut into {ask['pp']} x {ask['vp']} chunks")
        if ask["pp"] > 1 and job["tier"] == "megatron-full-iteration":
            config["batch_p2p_sync"] = False  # its synchronize is not permitted while capturing
        if graphed:
            config.update(graph_fields(known, job["tier"], modules, ask["warmup_steps"]))
        self.left_out = sorted(k for k in config if k not in known)
        self.config = TransformerConfig(**{k: v for k, v in config.items() if k in known})
        self.chunks = self._models(ask)
        self.optimizer: Any = None
        self.schedule: Any = None
        self.norm: Any = None

    def _models(self, ask: dict[str, Any]) -> list[Any]:
        chunks = []
        for stage in range(ask.get("vp") or 1):
            virtual = stage if ask.get("vp") else None
            first = parallel_state.is_pipeline_first_stage(
                **_takes(parallel_state.is_pipeline_first_stage, ignore_virtual=False, vp_stage=virtual)
            )
            last = parallel_state.is_pipeline_last_stage(
                **_takes(parallel_state.is_pipeline_last_stage, ignore_virtual=False, vp_stage=virtual)
            )
            model = self._model(first, last, virtual)
            chunks.append(Float16Module(self.config, model.cuda()))
        ddp = {"grad_reduce_in_fp32": True, "overlap_grad_reduce": False, "use_distributed_optimizer": False}
        ddp["check_for_nan_in_grad"] = bool(self.fields.get("check_for_nan_in_grad"))
        if self.graphed:
            ddp.update(self.fault.ddp)
        ddp_config = DistributedDataParallelConfig(**ddp)
        stream = torch.cuda.Stream()
        shared = getattr(import_module("megatron.core.full_cuda_graph"), "get_shared_capture_stream", None)
        if self.graphed and self.tier == "megatron-full-iteration" and shared is not None:
            stream = shared()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            wrapped = [
                DistributedDataParallel(
                    config=self.config, ddp_config=ddp_config, module=chunk, disable_bucketing=i > 0
                )
                for i, chunk in enumerate(chunks)
            ]
        torch.cuda.current_stream().wait_stream(stream)
        return wrapped

    def _model(self, first: bool, last: bool, virtual: int | None) -> Any:
        f = self.fields
        common = {
            "config": self.config,
            "vocab_size": f["vocab_size"],
            "max_sequence_length": f["seq_length"],
            "pre_process": first,
            "post_process": last,
            "position_embedding_type": f.get("position_embedding_type") or "rope",
            "rotary_base": int(f.get("rotary_base") or 10000),
            "rotary_percent": float(f.get("rotary_percent") or 1.0),
            "share_embeddings_and_output_weights": bool(f.get("share_embeddings_and_output_weights")),
            "vp_stage": virtual,
        }
        if f.get("hybrid_layer_pattern"):
            try:
                hybrid = import_module("megatron.core.models.hybrid")
                model = import_module("megatron.core.models.hybrid.hybrid_model").HybridModel
                spec = import_module("megatron.core.models.hybrid.hybrid_layer_specs").hybrid_stack_spec
                common["hybrid_stack_spec"] = spec
                del hybrid
            except ModuleNotFoundError:
                model = import_module("megatron.core.models.mamba").MambaModel
                common["mamba_stack_spec"] = import_module(
                    "megatron.core.models.mamba.mamba_layer_specs"
                ).mamba_stack_spec
            names = inspect.signature(model.__init__).parameters
            key = "hybrid_layer_pattern" if "hybrid_layer_pattern" in names else "hybrid_override_pattern"
            common[key] = f["hybrid_layer_pattern"]
            return model(**_takes(model.__init__, **common))
        from megatron.core.models.gpt import gpt_layer_specs

        if f.get("num_moe_experts") or self.config.pipeline_model_parallel_size > 1:
            spec = gpt_layer_specs.get_gpt_decoder_block_spec(
                self.config, use_transformer_engine=True,
                **_takes(gpt_layer_specs.get_gpt_decoder_block_spec, vp_stage=virtual),
            )  # fmt: skip
        else:
            spec = gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec(qk_layernorm=self.config.qk_layernorm)
        return GPTModel(transformer_layer_spec=spec, **_takes(GPTModel.__init__, **common))

    def finish(self, ask: dict[str, Any]) -> None:
        """The optimizer and the schedule; weights are final by now."""
        f = self.fields
        lr = f.get("lr") or (1e-3 if f["hidden_size"] <= 1024 else 3e-4)
        known = {x.name for x in dataclasses.fields(OptimizerConfig)}
        given: dict[str, Any] = {
            "optimizer": f.get("optimizer") or "adam",
            "lr": lr,
            "min_lr": lr,
            "weight_decay": 0.01,
            "bf16": True,
            "params_dtype": torch.bfloat16,
            "use_distributed_optimizer": False,
            "clip_grad": 1.0,
        }
        if self.optimizer_graph:
            if "optimizer_cuda_graph" not in known:
                raise ValueError("this megatron-core release can't capture the optimizer")
            given["optimizer_cuda_graph"] = self.fault.optimizer_capturable
        self.optimizer = get_megatron_optimizer(OptimizerConfig(**given), self.chunks)
        self.config.finalize_model_grads_func = finalize_model_grads
        self.config.grad_scale_func = self.optimizer.scale_loss
        self.schedule = schedules.get_forward_backward_func()
        self.step_optimizer = self.optimizer.step
        if self.graphed and self.tier == "megatron-full-iteration":
            pool = {"use_single_mempool": getattr(self.config, "cuda_graph_use_single_mempool", False)}
            self.schedule = FullCudaGraphWrapper(
                self.schedule, cuda_graph_warmup_steps=ask["warmup_steps"],
                **_takes(FullCudaGraphWrapper.__init__, **pool),
            )  # fmt: skip
            if self.optimizer_graph:
                wrapper = import_module("megatron.core.optimizer.optimizer_cuda_graph").OptimizerCudaGraphWrapper
                self.step_optimizer = wrapper(
                    self.optimizer.step, cuda_graph_warmup_steps=ask["warmup_steps"],
                    **_takes(wrapper.__init__, **pool),
                )  # fmt: skip

    def _forward(self, data_iterator: Any, model: Any) -> Any:
        batch = next(data_iterator)
        more = {}
        if self.fields.get("packed_lengths"):
            more["packed_seq_params"] = self._packed(batch)
        output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"], **more)

        def loss(out: Any) -> Any:
            mask = batch["loss_mask"].view(-1).float()
            value = (out.view(-1).float() * mask).sum() / mask.sum()
            if self.graphed:
                value = self.fault.loss(value)
            return value, {"lm loss": value.detach()}

        return output, loss

    def _packed(self, batch: Any) -> Any:
        from megatron.core.packed_seq_params import PackedSeqParams

        lengths = self.fields["packed_lengths"]
        if not hasattr(self, "_cu"):
            ends = [0]
            for n in lengths:
                ends.append(ends[-1] + n)
            if ends[-1] != self.length:
                raise ValueError(f"packed_lengths add up to {ends[-1]}, not to seq_length {self.length}")
            self._cu = torch.tensor(ends, dtype=torch.int32, device="cuda")
        return PackedSeqParams(
            qkv_format="thd", cu_seqlens_q=self._cu, cu_seqlens_kv=self._cu,
            max_seqlen_q=max(lengths), max_seqlen_kv=max(lengths),
        )  # fmt: skip

    def _pass(self, batch: Batch) -> list[Any]:
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        length, size = batch[0]["tokens"].shape[1], batch[0]["tokens"].shape[0]
        iterators: Any = [iter([dict(m) for m in batch]) for _ in self.chunks]
        out = self.schedule(
            forward_step_func=self._forward,
            data_iterator=iterators if len(self.chunks) > 1 else iterators[0],
            model=self.chunks,
            num_microbatches=len(batch),
            seq_length=length,
            micro_batch_size=size,
            decoder_seq_length=length,
            forward_only=False,
        )
        return [row["lm loss"] for row in out or []]

    def run(self, batch: Batch, mark: Callable[[], None]) -> tuple[list[Any], Any]:
        losses = self._pass(batch)
        mark()
        _, norm, _ = self.step_optimizer()
        return losses, norm

    def gradients(self, batch: Batch) -> list[Any]:
        self._pass(batch)
        return self.grads()

    def grads(self) -> list[Any]:
        return [p.main_grad for p in self.weights()]

    def weights(self) -> list[Any]:
        return [p for chunk in self.chunks for p in chunk.parameters() if p.requires_grad]


class MegatronPair:
    """Both twins; captures the one."""

    def __init__(self, job: dict[str, Any], fields: dict[str, Any], fault: Fault) -> None:
        ask = job["request"]
        self.capture_s, self.fault, self.tier, self.ask = 0.0, fault, job["tier"], ask
        self._start(ask, fields)
        self.eager = _Twin(job, fields, fault, graphed=False)
        self.graph = _Twin(job, fields, fault, graphed=True)
        with torch.no_grad():
            for a, b in zip(self.eager.weights(), self.graph.weights(), strict=True):
                b.copy_(a)
        for twin in (self.eager, self.graph):
            twin.finish(ask)
        self.notes = []
        if self.graph.left_out:
            self.notes.append(f"This release has no {', '.join(self.graph.left_out)}: left out.")
        if fault.in_layer is not None:
            self._poison(fault.in_layer)
        self.helper: Any = None
        if self.tier == "megatron-te":
            self.helper = cuda_graphs.TECudaGraphHelper(
                model=self.graph.chunks, config=self.graph.config, seq_length=fields["seq_length"],
                micro_batch_size=fields["micro_batch_size"], optimizers=[self.graph.optimizer],
            )  # fmt: skip
        elif self.tier == "megatron-local":
            self._time_local()
        else:
            self._time_full()

    def _start(self, ask: dict[str, Any], fields: dict[str, Any]) -> None:
        rank, world = rank_of(), world_of()
        meet = os.environ.get("MCG_SMOKE_RENDEZVOUS")
        if world == 1 and "MASTER_ADDR" not in os.environ:
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
        elif meet:
            torch.distributed.init_process_group("nccl", init_method=meet, rank=rank, world_size=world)
        else:
            torch.distributed.init_process_group("nccl", rank=rank, world_size=world)
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=ask["tp"],
            pipeline_model_parallel_size=ask["pp"],
            virtual_pipeline_model_parallel_size=ask.get("vp"),
            expert_model_parallel_size=ask["ep"],
        )
        tracker = fields.get("use_te_rng_tracker")
        seed = tensor_parallel.model_parallel_cuda_manual_seed
        seed(ask["seed"], **_takes(seed, te_rng_tracker=tracker is not False))
        torch.manual_seed(ask["seed"])
        replicas = world // (ask["tp"] * ask["pp"])
        init_num_microbatches_calculator(
            rank=rank,
            rampup_batch_size=None,
            global_batch_size=ask["microbatches"] * fields["micro_batch_size"] * replicas,
            micro_batch_size=fields["micro_batch_size"],
            data_parallel_size=replicas,
        )

    def layers(self, twin: _Twin) -> list[Any]:
        """The twin's transformer layers."""
        found = []
        for chunk in twin.chunks:
            model = chunk
            while hasattr(model, "module"):
                model = model.module
            found += list(model.decoder.layers)
        return found

    def _poison(self, op: Callable[[Any], Any]) -> None:
        for layer in self.layers(self.graph):
            mlp = getattr(layer, "mlp", None)
            if mlp is not None:
                original = mlp.forward

                def forward(x: Any, *args: Any, original: Any = original, **kwargs: Any) -> Any:
                    return original(op(x), *args, **kwargs)

                mlp.forward = forward

    def before_step(self, index: int) -> None:
        if self.helper is None or index != self.ask["warmup_steps"]:
            return
        torch.cuda.synchronize()
        start = time.monotonic()
        self.helper.create_cudagraphs()
        torch.cuda.synchronize()
        self.capture_s += time.monotonic() - start
        if not self.helper.flattened_callables:
            raise RuntimeError("no layer of this model is graphable with these modules")

    def _time_local(self) -> None:
        original = schedules.create_cudagraphs

        def create_cudagraphs() -> Any:
            start = time.monotonic()
            done = original()
            torch.cuda.synchronize()
            spent = time.monotonic() - start
            if not self.capture_s:  # later calls have nothing to create
                self.capture_s = spent
            return done

        schedules.create_cudagraphs = create_cudagraphs

    def _time_full(self) -> None:
        graph = torch.cuda.graph
        enter, leave = graph.__enter__, graph.__exit__
        began = [0.0]

        def __enter__(this: Any) -> Any:
            torch.cuda.synchronize()
            began[0] = time.monotonic()
            return enter(this)

        def __exit__(this: Any, *error: Any) -> Any:
            done = leave(this, *error)
            self.capture_s += time.monotonic() - began[0]
            return done

        graph.__enter__, graph.__exit__ = __enter__, __exit__

    def close(self) -> None:
        """Graphs first: a process group destroyed under live graphs that captured its collectives hangs."""
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.helper is not None and hasattr(self.helper, "delete_cuda_graphs"):
                made = getattr(self.helper, "graphs_created", None)
                if made is None or made():
                    self.helper.delete_cuda_graphs()
            if self.tier == "megatron-full-iteration":
                if self.graph.optimizer_graph:
                    self.graph.step_optimizer = None
                reset = getattr(self.graph.schedule, "reset_cuda_graph", None)
                if reset is not None:
                    reset()
                else:
                    FullCudaGraphWrapper.cuda_graph = {"training": None, "validation": None}
            if self.tier == "megatron-local":
                for module in (m for chunk in self.graph.chunks for m in chunk.modules()):
                    for runner in getattr(module, "cudagraph_runners", ()):
                        runner.fwd_graph = runner.bwd_graph = None
                cuda_graphs.delete_cuda_graphs()
        torch.cuda.synchronize()
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
        del self.eager, self.graph, self.helper


def build(job: dict[str, Any], fields: dict[str, Any], fault: Fault) -> MegatronPair:
    """The pair for a job."""
    return MegatronPair(job, fields, fault)
