"""The torch tier: a plain GPT of the workload's layer shapes, captured with torch.cuda's own means.

modules: `step` (forward, backward and optimizer in one graph), `fwd_bwd` (optimizer eager), `layers`
(make_graphed_callables on every layer).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .channel import world_of
from .faults import Fault
from .twin import Batch

__all__ = ["Gpt", "TorchPair", "build"]

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "squared_relu": lambda x: F.relu(x) ** 2,
}


class Attention(nn.Module):
    def __init__(self, f: dict[str, Any]) -> None:
        super().__init__()
        h, self.heads = f["hidden_size"], f["num_attention_heads"]
        self.size = f.get("kv_channels") or h // self.heads
        self.groups = f.get("num_query_groups") or self.heads
        self.qkv = nn.Linear(h, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.out = nn.Linear(self.heads * self.size, h, bias=False)

    def forward(self, x: Any) -> Any:
        b, s, _ = x.shape
        q, k, v = self.qkv(x).split([n * self.size for n in (self.heads, self.groups, self.groups)], dim=-1)
        q, k, v = (t.view(b, s, -1, self.size).transpose(1, 2) for t in (q, k, v))
        if self.groups != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, f: dict[str, Any]) -> None:
        super().__init__()
        h, ffn = f["hidden_size"], f.get("ffn_hidden_size") or 4 * f["hidden_size"]
        self.gated = bool(f.get("gated_linear_unit"))
        self.act = ACTIVATIONS.get(f.get("activation_func") or "gelu", F.gelu)
        self.up = nn.Linear(h, ffn * (2 if self.gated else 1), bias=False)
        self.down = nn.Linear(ffn, h, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.up(x)
        if self.gated:
            a, b = y.chunk(2, dim=-1)
            return self.down(self.act(a) * b)
        return self.down(self.act(y))


class Moe(nn.Module):
    """Experts with a fixed capacity (drop and pad): the only routing with shapes a graph can hold."""

    def __init__(self, f: dict[str, Any]) -> None:
        super().__init__()
        h, ffn, n = f["hidden_size"], f.get("moe_ffn_hidden_size") or f["ffn_hidden_size"], f["num_moe_experts"]
        self.gated, self.n, self.k = bool(f.get("gated_linear_unit")), n, f.get("moe_router_topk") or 2
        self.act = ACTIVATIONS.get(f.get("activation_func") or "gelu", F.gelu)
        self.router = nn.Linear(h, n, bias=False)
        self.up = nn.Parameter(torch.empty(n, h, ffn * (2 if self.gated else 1)).normal_(0, 0.02))
        self.down = nn.Parameter(torch.empty(n, ffn, h).normal_(0, 0.02))

    def forward(self, x: Any) -> Any:
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        capacity = max(1, x.shape[0] * self.k // self.n)
        weight, index = self.router(x).float().softmax(-1).t().topk(capacity, dim=-1)
        y = torch.bmm(x[index.reshape(-1)].view(self.n, capacity, -1), self.up)
        if self.gated:
            a, b = y.chunk(2, dim=-1)
            y = self.act(a) * b
        else:
            y = self.act(y)
        y = torch.bmm(y, self.down) * weight.unsqueeze(-1).to(x.dtype)
        out = torch.zeros_like(x)
        return out.index_add(0, index.reshape(-1), y.reshape(-1, shape[-1])).view(shape)


class Layer(nn.Module):
    def __init__(self, f: dict[str, Any], kind: str) -> None:
        super().__init__()
        h = f["hidden_size"]
        self.parts = nn.ModuleList()
        self.norms = nn.ModuleList()
        for part in {"*": (Attention,), "-": (Mlp,), "E": (Moe,), "T": (Attention, Mlp), "X": (Attention, Moe)}[kind]:
            self.parts.append(part(f))
            self.norms.append(nn.LayerNorm(h))

    def forward(self, x: Any) -> Any:
        for norm, part in zip(self.norms, self.parts, strict=False):
            x = x + part(norm(x))
        return x


class Gpt(nn.Module):
    """Embedding, layers, head; returns the mean loss."""

    def __init__(self, f: dict[str, Any]) -> None:
        super().__init__()
        pattern = f.get("hybrid_layer_pattern") or ("X" if f.get("num_moe_experts") else "T") * f["num_layers"]
        if "M" in pattern:
            raise NotImplementedError("the torch tier has no Mamba layers; take a Megatron tier")
        self.embed = nn.Embedding(f["vocab_size"], f["hidden_size"])
        self.position = nn.Embedding(f["seq_length"], f["hidden_size"])
        self.layers = nn.ModuleList(Layer(f, kind) for kind in pattern)
        self.norm = nn.LayerNorm(f["hidden_size"])
        self.head = nn.Linear(f["hidden_size"], f["vocab_size"], bias=False)
        self.fault: Callable[[Any], Any] | None = None

    def forward(self, tokens: Any, labels: Any, position_ids: Any) -> Any:
        x = self.embed(tokens) + self.position(position_ids)
        for layer in self.layers:
            x = layer(x)
        if self.fault is not None:
            x = self.fault(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


class _Twin:
    def __init__(self, fields: dict[str, Any], seed: int, device: str = "cuda") -> None:
        torch.manual_seed(seed)
        with torch.device(device):
            self.model = Gpt(fields).to(torch.bfloat16)
        self.params = [p for p in self.model.parameters() if p.requires_grad]
        cuda = device == "cuda"
        lr = fields.get("lr") or (1e-3 if fields["hidden_size"] <= 1024 else 3e-4)
        if fields.get("optimizer") == "sgd":
            self.optimizer: Any = torch.optim.SGD(self.params, lr=lr, momentum=0.9)
        else:
            self.optimizer = torch.optim.AdamW(self.params, lr=lr, capturable=cuda, fused=cuda)
        self.keep_grads = False

    def losses(self, batch: Batch) -> list[Any]:
        out = []
        for m in batch:
            loss = self.model(m["tokens"], m["labels"], m["position_ids"])
            (loss / len(batch)).backward()
            out.append(loss.detach())
        return out

    def norm(self) -> Any:
        return torch.stack(torch._foreach_norm([p.grad for p in self.params])).norm()

    def run(self, batch: Batch, mark: Callable[[], None]) -> tuple[list[Any], Any]:
        self.optimizer.zero_grad(set_to_none=not self.keep_grads)
        losses = self.losses(batch)
        mark()
        norm = self.norm()
        self.optimizer.step()
        return losses, norm

    def gradients(self, batch: Batch) -> list[Any]:
        self.optimizer.zero_grad(set_to_none=True)
        self.losses(batch)
        return self.grads()

    def grads(self) -> list[Any]:
        return [p.grad for p in self.params]

    def weights(self) -> list[Any]:
        return self.params


class _Graphed(_Twin):
    """The twin that is captured; eager until then."""

    def __init__(self, fields: dict[str, Any], seed: int, how: str) -> None:
        super().__init__(fields, seed)
        self.how = how
        self.graph: Any = None
        self.static: list[dict[str, Any]] = []
        self.out: tuple[list[Any], Any] = ([], None)
        self.stream = torch.cuda.Stream()

    def capture(self, batch: Batch) -> None:
        if self.how == "layers":
            m = batch[0]
            x = self.model.embed(m["tokens"]).detach().requires_grad_()
            layers = tuple(self.model.layers)
            torch.cuda.make_graphed_callables(layers, tuple((x.clone().detach().requires_grad_(),) for _ in layers))
            self.graph = layers
            return
        self.static = [{k: v.clone() for k, v in m.items()} for m in batch]
        # Gradients of None: the backward then makes them in the graph's pool, where each replay overwrites them.
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self.stream):
            losses = self.losses(self.static)
            norm = None
            if self.how == "step":
                norm = self.norm()
                self.optimizer.step()
            self.out = (losses, norm)
        self.graph = graph

    def run(self, batch: Batch, mark: Callable[[], None]) -> tuple[list[Any], Any]:
        if self.graph is None or self.how == "layers":
            # Warm-up on the capture stream, so that no autograd node remembers another one.
            if self.graph is not None:
                return super().run(batch, mark)
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                done = super().run(batch, mark)
            torch.cuda.current_stream().wait_stream(self.stream)
            return done
        for into, given in zip(self.static, batch, strict=False):
            for name, buffer in into.items():
                buffer.copy_(given[name], non_blocking=True)
        self.graph.replay()
        if self.how == "step":
            return self.out
        mark()
        norm = self.norm()
        self.optimizer.step()
        return self.out[0], norm


class TorchPair:
    """Both twins of the torch tier."""

    def __init__(self, job: dict[str, Any], fields: dict[str, Any], fault: Fault) -> None:
        how = (job["modules"] or ["step"])[0]
        if how not in ("step", "fwd_bwd", "layers"):
            raise ValueError(f"the torch tier captures step, fwd_bwd or layers, not {how!r}")
        seed = job["request"]["seed"]
        self.eager = _Twin(fields, seed)
        self.graph = _Graphed(fields, seed, how)
        self.capture_s = 0.0
        self.warmup = job["request"]["warmup_steps"]
        self.data: Batch | None = None
        self.fault = fault
        self.notes: list[str] = []
        if fields.get("num_moe_experts"):
            self.notes.append("The torch tier routes with a fixed capacity, whatever the configuration's dispatcher.")
        sample = torch.zeros(fields["micro_batch_size"], fields["seq_length"], dtype=torch.long, device="cuda")
        position = torch.arange(fields["seq_length"], device="cuda").expand_as(sample).contiguous()
        self.sample = [
            {"tokens": sample, "labels": sample, "position_ids": position}
            for _ in range(job["request"]["microbatches"])
        ]

    def before_step(self, index: int) -> None:
        if index != self.warmup or self.graph.graph is not None:
            return
        self.graph.model.fault = self.fault.in_capture
        torch.cuda.synchronize()
        start = time.monotonic()
        self.graph.capture(self.sample)
        torch.cuda.synchronize()
        self.capture_s += time.monotonic() - start

    def close(self) -> None:
        if hasattr(self.graph.graph, "reset"):
            self.graph.graph.reset()
        self.graph.graph = None
        torch.cuda.synchronize()
        del self.eager, self.graph, self.sample


def build(job: dict[str, Any], fields: dict[str, Any], fault: Fault) -> TorchPair:
    """The pair for a job."""
    if world_of() > 1:
        raise ValueError("the torch tier runs on one GPU; take a Megatron tier for several")
    # Flash attention's backward sums with atomics; asked for, it does so in a fixed order.
    torch.use_deterministic_algorithms(True, warn_only=True)
    return TorchPair(job, fields, fault)
