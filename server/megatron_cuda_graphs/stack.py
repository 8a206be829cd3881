"""Which releases a configuration is judged for, and how each was found out."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from . import releases
from .errors import InputError
from .releases import Release

__all__ = ["Judged", "Resolution", "Stack"]

Resolution = Literal["given", "installed", "paired", "default", "unknown"]
ABSENT = "absent"

_DISTRIBUTIONS = {
    "megatron_core": ("megatron-core",),
    "megatron_bridge": ("megatron-bridge",),
    "transformer_engine": ("transformer-engine", "transformer-engine-torch", "transformer-engine-cu12",
                           "transformer-engine-cu13"),
    "torch": ("torch",),
}  # fmt: skip

# Compute capability by what people call a GPU. Names are matched without case, spaces and dashes.
_ARCHITECTURES = {
    "a100": 80, "ampere": 80, "a40": 86, "l40": 89, "l40s": 89, "ada": 89,
    "h100": 90, "h200": 90, "h800": 90, "h20": 90, "gh200": 90, "hopper": 90,
    "b100": 100, "b200": 100, "gb200": 100, "blackwell": 100, "b300": 103, "gb300": 103,
    "r100": 107, "vr200": 107, "rubin": 107,
}  # fmt: skip


class Judged(NamedTuple):
    """A stack with every version settled on a covered release.

    `te` (see `_ordered`) and `torch` are None when unknown; `te_absent` says that Transformer Engine is known not to be
    there.
    `problems` are (rule name, severity, message) of what is wrong with the stack itself.
    """

    core: Release
    core_version: str
    bridge: Release | None
    bridge_version: str | None
    te: tuple[int, ...] | None
    te_absent: bool
    torch: Release | None
    sm: int | None
    problems: tuple[tuple[str, str, str], ...]


class Stack(BaseModel):
    """Versions of the packages. None is unknown, "absent" is not installed.

    If only `megatron_bridge` is given, `megatron_core` is its pair; if nothing is given, the newest covered
    releases are taken. `resolved` says of each field how its value came about.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    packages: ClassVar[tuple[str, ...]] = ("megatron_core", "megatron_bridge", "transformer_engine", "torch")

    megatron_core: str | None = Field(default=None, examples=["0.19.2"])
    megatron_bridge: str | None = Field(default=None, examples=["0.6.2"])
    transformer_engine: str | None = Field(default=None, examples=["2.14.0"])
    torch: str | None = Field(default=None, examples=["2.11.0"])
    gpu_arch: str | None = Field(default=None, description="sm_90, or a name such as H100.", examples=["sm_90"])
    resolved: dict[str, Resolution] = Field(default_factory=dict, description="How each field was resolved.")
    _judged: dict[str, Judged] = PrivateAttr(default_factory=dict)
    _settled: dict[str, Stack] = PrivateAttr(default_factory=dict)

    @field_validator("megatron_core", "megatron_bridge", "transformer_engine", "torch", mode="before")
    @classmethod
    def _version(cls, value: Any) -> Any:
        if value is None or value == ABSENT:
            return value
        text = str(value).strip().removeprefix("core_").lstrip("vr=")
        try:
            releases.parse(text)
        except ValueError:
            raise ValueError(f"{value!r} is not a version; give one such as 0.19.2, or 'absent'") from None
        return text

    def model_post_init(self, context: Any) -> None:
        for name in (*self.packages, "gpu_arch"):
            self.resolved.setdefault(name, "given" if getattr(self, name) is not None else "unknown")

    @classmethod
    def parse(cls, text: str) -> Stack:
        """A stack as people type it: `bridge=0.6.2,te=2.14.0`, `megatron-core==0.19.2`, `core 0.19.2`.

        Raises:
            InputError: when a part names no known package or no version.
        """
        short = {"core": "megatron_core", "mcore": "megatron_core", "bridge": "megatron_bridge",
                 "mbridge": "megatron_bridge", "te": "transformer_engine", "gpu": "gpu_arch",
                 "arch": "gpu_arch"}  # fmt: skip
        values: dict[str, str] = {}
        for part in filter(None, re.split(r"[,;]\s*|\s+(?=[a-zA-Z])", text.strip())):
            match = re.fullmatch(r"([A-Za-z_-]+?)\s*(?:[=:@ ]=*|-(?=\d)|_[vr](?=\d))\s*(\S+)", part.strip())
            name = match and match[1].lower().replace("-", "_")
            name = name and short.get(name, name)
            if not match or name not in (*cls.packages, "gpu_arch"):
                raise InputError(
                    f"can't read {part!r} as part of a stack.",
                    hint="Write core=0.19.2, bridge=0.6.2, te=2.14.0, torch=2.11.0 or gpu=h100, comma separated.",
                )
            values[name] = match[2]
        return cls.of(**values)

    @classmethod
    def of(cls, **values: Any) -> Stack:
        """`Stack(...)` whose errors are InputError: for values that come from a person or a program.

        Raises:
            InputError: unknown field, or a text that is no version.
        """
        from pydantic import ValidationError

        try:
            return cls(**values)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"]))
            reason = str(first["msg"]).removeprefix("Value error, ")
            if first["type"] == "extra_forbidden":
                reason = f"no such field; there are {', '.join((*cls.packages, 'gpu_arch'))}"
            raise InputError(f"stack {where}: {reason}.") from None

    @classmethod
    def detect(cls) -> Stack:
        """The versions installed in this environment, from package metadata; nothing is imported."""
        from importlib import metadata

        values: dict[str, Any] = {}
        for field, names in _DISTRIBUTIONS.items():
            for name in names:
                try:
                    values[field] = metadata.version(name)
                    break
                except metadata.PackageNotFoundError:
                    continue
        return cls(**values, resolved=dict.fromkeys(values, "installed"))

    @classmethod
    def read(cls, text: str) -> Stack:
        """Versions from requirements, a lock file, `pip freeze`, `pip list`, or the version lines of a job log.

        The first plain version of each package counts. Packages not mentioned stay unknown.
        """
        values: dict[str, Any] = {}
        for field, names in _DISTRIBUTIONS.items():
            alternatives = "|".join(re.escape(n).replace(r"\-", "[-_. ]?") for n in names)
            pattern = (
                rf"(?im)(?<![\w./-])(?:{alternatives})(?![\w-])[\"']?"
                r"(?:\[[^\]]*\])?\s*(?:[=~]=+|@\s*\S*?(?:core_)?[rv]|version|[:=,]|\s)?"
                r"[\s\"'=:]*(?:version[\s\"'=:]*)?v?(\d+\.\d+(?:\.\d+)?[\w.+-]*)"
            )
            if match := re.search(pattern, text):
                values[field] = match[1].rstrip(".-+")
        return cls(**values)

    def judged(self, frontend: str = "core") -> Judged:
        """Settle every version on a covered release; memoised per front end."""
        if frontend not in self._judged:
            self._judged[frontend] = _judge(self, frontend)
        return self._judged[frontend]

    def settled(self, frontend: str = "core") -> Stack:
        """This stack with the versions that are judged for filled in, and how each was found, for reports."""
        if frontend not in self._settled:
            self._settled[frontend] = self._settle(frontend)
        return self._settled[frontend]

    def _settle(self, frontend: str) -> Stack:
        judged = self.judged(frontend)
        values = {name: getattr(self, name) for name in (*self.packages, "gpu_arch")}
        resolved = dict(self.resolved)
        for name, version in (("megatron_core", judged.core_version), ("megatron_bridge", judged.bridge_version)):
            if values[name] is None and version is not None:
                values[name] = version
                other = "megatron_bridge" if name == "megatron_core" else "megatron_core"
                resolved[name] = "paired" if getattr(self, other) not in (None, ABSENT) else "default"
        return Stack(**values, resolved=resolved)


def _cover(name: str, version: str, covered: tuple[str, ...]) -> tuple[str, tuple[str, str, str] | None]:
    """The covered release that stands in for `version`, and what to say about it."""
    if version in covered:
        return version, None
    release = releases.parse(version)
    known = [(releases.parse(v), v) for v in covered]
    lower = [v for r, v in known if r <= release]
    stand_in = lower[-1] if lower else covered[0]
    if releases.parse(stand_in) == release:  # a pre-release or local build of a covered release
        return stand_in, (
            "release-not-covered", "info",
            f"{name} {version} is judged as the release {stand_in}; a pre-release or local build can differ.",
        )  # fmt: skip
    if not lower:
        why = f"is older than the first covered release, {covered[0]}"
    elif stand_in == covered[-1]:
        why = f"is newer than the newest covered release, {covered[-1]}"
    else:
        why = "is not one of the releases covered"
    return stand_in, (
        "release-not-covered", "warning",
        f"{name} {version} {why}: judged as {stand_in}, so a rule that changed since is not seen.",
    )  # fmt: skip


def _judge(stack: Stack, frontend: str) -> Judged:
    problems: list[tuple[str, str, str]] = []
    bridge, core = stack.megatron_bridge, stack.megatron_core
    if bridge == ABSENT:
        bridge = None
    bridge_version: str | None = None
    if bridge is not None:
        bridge_version, problem = _cover("megatron-bridge", bridge, releases.BRIDGE)
        problems += [problem] if problem else []
    if core is None or core == ABSENT:
        core_version = releases.PAIRS[bridge_version] if bridge_version else releases.CORE[-1]
    else:
        core_version, problem = _cover("megatron-core", core, releases.CORE)
        problems += [problem] if problem else []
    core_release = releases.parse(core_version)
    if bridge_version is None and frontend == "bridge":
        paired = releases.bridges_of(core_release)
        bridge_version = paired[-1] if paired else releases.BRIDGE[0]
        if not paired:
            problems.append((
                "no-bridge-for-core", "warning",
                f"no covered megatron-bridge release belongs to megatron-core {core_version}: "
                f"judged with megatron-bridge {bridge_version}.",
            ))  # fmt: skip
    if bridge_version is not None and bridge is not None:  # a Bridge release that only stands in is no pair to fault
        own = releases.PAIRS[bridge_version]
        lines = releases.BRIDGE_NEEDS_CORE[releases.line(releases.parse(bridge_version))]
        if releases.line(core_release) not in lines:
            wanted = ", ".join(f"{a}.{b}" for a, b in sorted(lines))
            problems.append((
                "pair-does-not-import", "error",
                f"megatron-bridge {bridge_version} does not import with megatron-core {core_version}; "
                f"it needs megatron-core {wanted}.",
            ))  # fmt: skip
        elif releases.line(core_release) != releases.line(releases.parse(own)):
            problems.append((
                "pair-not-released-together", "warning",
                f"megatron-bridge {bridge_version} was released with megatron-core {own}; it imports with "
                f"{core_version}, for which it was not made.",
            ))  # fmt: skip
    te = stack.transformer_engine
    return Judged(
        core=core_release,
        core_version=core_version,
        bridge=releases.parse(bridge_version) if bridge_version else None,
        bridge_version=bridge_version,
        te=_ordered(te) if te not in (None, ABSENT) else None,
        te_absent=te == ABSENT,
        torch=releases.parse(stack.torch) if stack.torch not in (None, ABSENT) else None,
        sm=_sm(stack.gpu_arch),
        problems=tuple(problems),
    )


def _ordered(version: str | None) -> tuple[int, ...]:
    """(2, 14, 0, 0), or (2, 14, 0, -1) for a pre-release of it: comparable with (2, 14, 0, 0)."""
    text = version or ""
    return (*releases.parse(text), -1 if re.search(r"\d\.?(a|b|rc|dev)\d*", text.partition("+")[0]) else 0)


def _sm(arch: str | None) -> int | None:
    """'sm_90', '9.0', 'NVIDIA H100 80GB HBM3' -> 90."""
    if arch is None:
        return None
    text = arch.lower()
    if match := re.search(r"(?:sm|compute)[_ ]?(\d{2,3})", text):
        return int(match[1])
    if match := re.fullmatch(r"\s*(\d{1,2})\.(\d)\s*", text):
        return int(match[1]) * 10 + int(match[2])
    words = re.findall(r"[a-z]+\d*[a-z]?", text.replace("-", " "))
    return next((_ARCHITECTURES[w] for w in words if w in _ARCHITECTURES), None)
