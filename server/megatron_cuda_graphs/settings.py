"""The view of a configuration that rules read: values over defaults, with one release's meaning.

Field names are megatron-core's `TransformerConfig` names, whatever front end the configuration came through;
fields of other Bridge sections keep their dotted name (`rng.te_rng_tracker`), and Megatron-LM arguments that are
not configuration fields keep their `args` name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .readers.reading import Frontend, Member
from .stack import Judged
from .unknown import Unknown

__all__ = ["GRAPH_NAMES", "Settings", "module_name"]

# Fields that say which graphs, in any release's spelling. cuda_graph_impl is not among them: it decides everything.
GRAPH_NAMES = frozenset({
    "cuda_graph_modules", "cuda_graph_scope", "cuda_graph_warmup_steps", "enable_cuda_graph", "external_cuda_graph",
    "inference_cuda_graph_scope",
})  # fmt: skip


def module_name(value: Any) -> Any:
    """The plain name of a str or an enum member; anything else unchanged."""
    return value.name if isinstance(value, Member) else value


class Settings:
    """Values by name; attribute access falls back to the release's default, then to None.

    Rules read; migrations write with `set`, as the upstream code they mirror does. `v` holds the values in force,
    `written` those that the configuration itself gives.
    """

    __slots__ = (
        "__dict__",
        "assumed",
        "bridge",
        "core",
        "defaults",
        "environ",
        "frontend",
        "judged",
        "modules_field",
        "partial",
        "provider",
        "v",
        "written",
    )

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        frontend: Frontend,
        judged: Judged,
        defaults: Mapping[str, Any],
        environ: Mapping[str, Any] | None,
        partial: bool = False,
        provider: str | None = None,
        written: Mapping[str, Any] | None = None,
    ) -> None:
        self.v = dict(values)
        self.written = values if written is None else written
        self.frontend = frontend
        self.judged = judged
        self.core = judged.core
        self.bridge = judged.bridge
        self.defaults = defaults
        self.environ = environ
        self.partial = partial
        # A change of graph settings is read as if the configuration below it left the other names for them alone.
        touched = "cuda_graph_impl" in values or not GRAPH_NAMES.isdisjoint(values)
        self.assumed = GRAPH_NAMES if partial and touched else frozenset[str]()
        self.provider = provider
        self.modules_field = "cuda_graph_modules" if self.core >= (0, 18) else "cuda_graph_scope"
        # Rules read hundreds of names: as plain attributes they cost a quarter of a call of __getattr__.
        self.__dict__ = {**values} if partial else {**defaults, **values}
        for name in _OWN:
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        v = self.v
        if name in v:
            return v[name]
        if self.partial and name in self.defaults and name not in self.assumed:
            return Unknown(name, reason="not set here, and the configuration this text changes is not shown")
        return self.defaults.get(name)

    __getitem__ = __getattr__

    def set(self, name: str, value: Any) -> None:
        self.v[name] = value
        if name not in _OWN:
            self.__dict__[name] = value

    def has(self, name: str) -> bool:
        """True when this release has the field."""
        return name in self.defaults

    def given(self, name: str) -> bool:
        """True when the configuration itself sets the field."""
        return name in self.written

    @property
    def modules(self) -> Any:
        """The modules: plain names once the release's own normalisation has run."""
        return getattr(self, self.modules_field)

    def env(self, name: str, default: str = "") -> Any:
        """An environment variable of the job; Unknown when the environment is not known."""
        if self.environ is None:
            return Unknown(name, reason="the job's environment is not known")
        return self.environ.get(name, default)

    def te_at_least(self, version: tuple[int, ...]) -> Any:
        """megatron.core.utils.is_te_min_version; Unknown when the version is not known.

        An absent Transformer Engine counts as 0.0 from megatron-core 0.17 on, the package's own fallback.
        """
        judged = self.judged
        if judged.te_absent:
            return False
        if judged.te is None:
            return Unknown("transformer-engine", key=("te>=", version), reason="its version is not known")
        return judged.te >= (*version, 0, 0, 0)[:4]

    def torch_at_least(self, version: tuple[int, ...]) -> Any:
        """megatron.core.utils.is_torch_min_version; Unknown when the version is not known."""
        if self.judged.torch is None:
            return Unknown("torch", key=("torch>=", version), reason="its version is not known")
        return self.judged.torch >= version

    def sm_at_least(self, sm: int) -> Any:
        """Compute capability times ten of the job's GPU; Unknown when it is not known."""
        if self.judged.sm is None:
            return Unknown("gpu_arch", key=("sm>=", sm), reason="the GPU is not known")
        return self.judged.sm >= sm


_OWN = frozenset(name for name in vars(Settings) if name[:2] != "__")  # names that no field may take the place of
