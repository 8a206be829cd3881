"""Faults to provoke on purpose, by name: what the tool must report, each once seen on a real GPU.

A fault acts on the graphed twin alone (or on both, where the workload itself is at fault), at one of the moments
of `Fault`. `wrong` ones raise nothing: the parity check has to find them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from .channel import rank_of, world_of

__all__ = ["FAULTS", "Fault", "get"]

AFTER = 3  # replayed steps before a fault that strikes later


class Fault:
    """No fault: every hook does nothing."""

    name = ""
    tiers: tuple[str, ...] = ()
    in_capture: Callable[[Any], Any] | None = None  # torch tier: on the hidden states, inside the captured region
    in_layer: Callable[[Any], Any] | None = None  # Megatron tiers: on an MLP's input, inside the captured layer
    ddp: Mapping[str, Any] = MappingProxyType({})
    optimizer_capturable = True
    wrap_optimizer = False

    def before_build(self, fields: dict[str, Any]) -> None:
        """Change the workload."""

    def loss(self, loss: Any) -> Any:
        """Look at the loss inside the step."""
        return loss

    def before_capture(self, pair: Any) -> None:
        """After warm-up, before capture."""

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        """Before lockstep step `step`, counted from capture."""


# In the captured region, on the tensor x. Each takes and returns x.


def _keep(action: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def op(x: Any) -> Any:
        action(x.detach())
        return x

    return op


def _event(use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def action(_: Any) -> None:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        b.record()
        use(a, b)

    return _keep(action)


def _nested(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass


def _foreign_event(_: Any) -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    event.record(side)
    torch.cuda.current_stream().wait_event(event)


def _other_thread(_: Any) -> None:
    said: list[BaseException] = []

    def call() -> None:
        try:
            torch.empty(1 << 20).pin_memory()
            torch.cuda.synchronize()
        except BaseException as exc:
            said.append(exc)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def _scaler(x: Any) -> None:
    with torch.enable_grad():
        p = torch.nn.Parameter(torch.ones(4, device=x.device))
        optimizer, scaler = torch.optim.SGD([p], lr=0.1), torch.amp.GradScaler("cuda")
        scaler.scale((p * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()


def _compiled(x: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        torch.compile(lambda t: torch.nn.functional.scaled_dot_product_attention(t, t, t).sin().sum())(
            x[None, :, :, :64].contiguous()
        )


def _seed(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        torch.cuda.manual_seed(int(time.time()))


def _oom(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        torch.empty(300 * 2**30, dtype=torch.uint8, device="cuda")


def _hang(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        time.sleep(3600)


def _crash(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        ctypes.string_at(0)


def _exit(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        os._exit(7)


def _last_rank() -> bool:
    return rank_of() == world_of() - 1


def _host_memory(_: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        hog = []
        while True:
            hog.append(bytearray(os.urandom(1 << 20) * 256))
            time.sleep(0.05)


REGION: dict[str, Callable[[Any], Any]] = {
    "boolean_mask_index": _keep(lambda x: x[x > 0].sum()),
    "nonzero": _keep(lambda x: torch.nonzero(x > 0)),
    "python_if_on_tensor": _keep(lambda x: 1 if x.sum() > 0 else 0),
    "item": _keep(lambda x: x.sum().item()),
    "tolist_splits": _keep(lambda x: torch.split(x.reshape(-1)[:64], torch.full((2,), 32, device=x.device).tolist())),
    "synchronize": _keep(lambda x: torch.cuda.synchronize()),
    "stream_synchronize": _keep(lambda x: torch.cuda.current_stream().synchronize()),
    "event_synchronize": _event(lambda a, b: b.synchronize()),
    "event_elapsed_time": _event(lambda a, b: torch.cuda.is_current_stream_capturing() and a.elapsed_time(b)),
    "pageable_h2d": _keep(lambda x: torch.ones(64, 64).to("cuda", non_blocking=True)),
    "nested_capture": _keep(_nested),
    "wait_on_uncaptured_event": _keep(_foreign_event),
    "other_thread_cuda_call": _keep(_other_thread),
    "grad_scaler_step": _keep(_scaler),
    "compile_in_capture": _keep(_compiled),
    "manual_seed_in_capture": _keep(_seed),
    "oom_in_capture": _keep(_oom),
    "hang": _keep(_hang),
    "crash": _keep(_crash),
    "exit": _keep(_exit),
    "host_memory": _keep(_host_memory),
    "item_on_last_rank": _keep(lambda x: x.sum().item() if _last_rank() else None),
}


class _Region(Fault):
    def __init__(self, name: str, op: Callable[[Any], Any]) -> None:
        self.name, self.in_capture, self.in_layer = name, op, op


class ParamStorageReplaced(Fault):
    """Weights given new storage after capture: the graph reads the old."""

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        if step == AFTER:
            for w in pair.graph.weights():
                w.data = w.data.clone()


class MicrobatchesChanged(Fault):
    """Twice as many microbatches as captured."""

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        if step == AFTER:
            for i, batch in enumerate(data):
                data[i] = [*batch, *({k: v.flip(-1) for k, v in m.items()} for m in batch)]


class GradAccumulation(Fault):
    """Gradients kept in the callables' own buffers (zero_grad(set_to_none=False))."""

    tiers = ("torch",)

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        # By then a step has made each p.grad from None: it is the graph's own buffer.
        if step == AFTER:
            pair.eager.keep_grads = pair.graph.keep_grads = True


class CallableMicrobatches(Fault):
    """Several microbatches accumulated through graphed callables; ask for microbatches > 1."""

    tiers = ("torch",)


class OptimizerNotCapturable(Fault):
    """The optimizer's step captured without its capturable state: its step counter stands still."""

    tiers = ("megatron-full-iteration",)
    optimizer_capturable = False
    wrap_optimizer = True


class NoTeRngTracker(Fault):
    """Dropout without a tracker whose states can be captured."""

    def before_build(self, fields: dict[str, Any]) -> None:
        fields.update(use_te_rng_tracker=False, attention_dropout=0.1, hidden_dropout=0.1)


class CheckForNanInGrad(Fault):
    """DDP looks at the gradients inside the captured iteration."""

    ddp = MappingProxyType({"check_for_nan_in_grad": True})


class LossIsnanCheck(Fault):
    """The loss function looks at the loss inside the captured iteration."""

    def loss(self, loss: Any) -> Any:
        assert not torch.isnan(loss).any(), "loss is NaN"
        return loss


class ShorterSequence(Fault):
    """A batch with half the tokens after capture."""

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        if step == AFTER:
            for batch in data:
                for m in batch:
                    for key, value in m.items():
                        m[key] = value[:, : value.shape[1] // 2].contiguous()


class MicroBatchSizeChanged(Fault):
    """A batch of twice the rows after capture."""

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        if step == AFTER:
            for batch in data:
                for m in batch:
                    for key, value in m.items():
                        m[key] = torch.cat([value, value])


class UserForwardHook(Fault):
    """A forward hook on the layers when capture comes."""

    def before_capture(self, pair: Any) -> None:
        for layer in pair.layers(pair.graph):
            layer.register_forward_hook(lambda *a: None)


class IndexOutOfRange(Fault):
    """A token that the embedding does not have, after capture."""

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        if step == AFTER:
            for batch in data:
                for m in batch:
                    m["tokens"] = m["tokens"] + (1 << 20)


class FreedInput(Fault):
    """Tensors the graph reads freed, and their memory given back to the driver, before replay."""

    tiers = ("torch",)

    def at_step(self, step: int, pair: Any, data: list[Any]) -> None:
        if step == AFTER:
            pair.graph.model.embed.weight.data = pair.graph.model.embed.weight.data.clone()
            for layer in pair.graph.model.layers:
                for w in layer.parameters():
                    w.data = torch.zeros(w.shape, dtype=w.dtype, device=w.device)
            torch.cuda.empty_cache()


class RankFails(Fault):
    """One rank (the last) fails at capture while the others go on."""

    def before_capture(self, pair: Any) -> None:
        if _last_rank():
            raise RuntimeError("this rank was told to fail before capture")


class RankKilled(Fault):
    """One rank (the last) is killed from outside at capture, as by the host's out-of-memory killer."""

    def before_capture(self, pair: Any) -> None:
        if _last_rank():
            os.kill(os.getpid(), signal.SIGKILL)


FAULTS: dict[str, Callable[[], Fault]] = {
    **{name: partial(_Region, name, op) for name, op in REGION.items()},
    "param_storage_replaced": ParamStorageReplaced,
    "microbatches_changed": MicrobatchesChanged,
    "grad_buffers_kept": GradAccumulation,
    "callable_microbatches": CallableMicrobatches,
    "optimizer_not_capturable": OptimizerNotCapturable,
    "no_te_rng_tracker": NoTeRngTracker,
    "check_for_nan_in_grad": CheckForNanInGrad,
    "loss_isnan_check": LossIsnanCheck,
    "shorter_sequence": ShorterSequence,
    "micro_batch_size_changed": MicroBatchSizeChanged,
    "user_forward_hook": UserForwardHook,
    "index_out_of_range": IndexOutOfRange,
    "freed_input": FreedInput,
    "rank_fails": RankFails,
    "rank_killed": RankKilled,
}


def get(name: str | None, tier: str) -> Fault:
    """The fault by name; no fault for None. Raises ValueError for a name or tier that has none."""
    if name is None:
        return Fault()
    if name not in FAULTS:
        raise ValueError(f"there is no fault {name!r}: {', '.join(FAULTS)}")
    fault = FAULTS[name]()
    if fault.tiers and tier not in fault.tiers:
        raise ValueError(f"the fault {name!r} is for {', '.join(fault.tiers)}")
    return fault
