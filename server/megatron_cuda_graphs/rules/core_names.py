"""MCG001-MCG029: implementation, module and inference-scope names, and their migrations between releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..fields import enum_members
from ..readers.reading import Member
from ..settings import Settings, module_name
from ..unknown import require
from . import _state as state
from ._rule import Change, migration, rule, to, unset

CONFIG = "megatron/core/transformer/cuda_graph_config.py :: "
# 0.16 and 0.17 have it in __post_init__ itself, 0.18 and newer in a function of its own.
BOTH = (
    "megatron/core/transformer/transformer_config.py, megatron/core/transformer/cuda_graph_config.py :: "
    "TransformerConfig.__post_init__, "
)
OLD_FLAGS = ("enable_cuda_graph", "external_cuda_graph")
DEPRECATED = ("full_iteration", "full_iteration_inference")  # as module names, from 0.18


def implementations(s: Settings) -> tuple[str, ...]:
    """Values of cuda_graph_impl that the release takes."""
    names = ("none", "local", "transformer_engine")
    return (*names, "full_iteration") if s.core >= (0, 18) else names


def module_names(s: Settings) -> tuple[str, ...]:
    """Names that the release takes in its list of modules."""
    if s.core >= (0, 18):
        return (*enum_members("CudaGraphModule", s.judged.core_version), *DEPRECATED)
    return tuple(enum_members("CudaGraphScope", s.judged.core_version))


def inference_scopes(s: Settings) -> tuple[str, ...]:
    """Names that the release takes as inference_cuda_graph_scope; none before 0.18."""
    return tuple(enum_members("InferenceCudaGraphScope", s.judged.core_version))


def is_member(s: Settings, value: Any, enum: str) -> bool:
    """True for a member of an enum that the release has."""
    return isinstance(value, Member) and value.enum == enum and value.name in enum_members(enum, s.judged.core_version)


def show(s: Settings, value: Any) -> str:
    """repr() of the Python object that upstream would see."""
    if isinstance(value, Member):
        return f"<{value.enum}.{value.name}: {enum_members(value.enum, s.judged.core_version).get(value.name)}>"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(s, v) for v in value) + "]"
    return repr(value)


_ALIASES = {
    "te": "transformer_engine", "graph": "transformer_engine", "full": "full_iteration",
    "attention": "attn", "self_attention": "attn", "core_attn": "attn", "self_attn": "attn",
    "ffn": "mlp", "experts": "moe", "moe_experts": "moe", "router": "moe_router", "preprocess": "moe_preprocess",
    "moe_dispatch": "moe_preprocess", "iteration": "full_iteration", "whole": "full", "whole_layer": "full",
    "layers": "layer", "per_layer": "layer",
}  # fmt: skip


def meant(name: Any, allowed: tuple[str, ...]) -> str | None:
    """The allowed name that someone who wrote `name` most likely meant."""
    text = str(module_name(name)).strip().strip("[]\"'").replace("-", "_").lower()
    text = text.rpartition(".")[2]
    for candidate in (text, _ALIASES.get(text, ""), text.replace("_", "")):
        if candidate in allowed:
            return candidate
    squeezed = {a.replace("_", ""): a for a in allowed}
    if text.replace("_", "") in squeezed:
        return squeezed[text.replace("_", "")]
    from difflib import get_close_matches

    close = get_close_matches(text, allowed, n=1, cutoff=0.6)
    return close[0] if close else None


# 0.14: the flags are the only switches; 0.15 and newer: deprecated, but migrated ----------------------------------


@rule(
    "MCG001",
    "old-flag-with-impl",
    at=("post_init", 220),
    releases="0.15..",
    text="Do not use enable_cuda_graph or external_cuda_graph with cuda_graph_impl.",
    fields=("enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl"),
    says="{flag} is the old switch and can't stand beside cuda_graph_impl={cuda_graph_impl!r}.",
    fixes=lambda s: [[unset(f) for f in OLD_FLAGS if s.written.get(f)]],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def old_flag_with_impl(s: Settings) -> Any:
    """enable_cuda_graph and external_cuda_graph were replaced by cuda_graph_impl in 0.15 and are still migrated,
    but only when cuda_graph_impl is left at "none"."""
    if (s.enable_cuda_graph or s.external_cuda_graph) and s.cuda_graph_impl != "none":
        return {"flag": "enable_cuda_graph" if s.enable_cuda_graph else "external_cuda_graph"}
    return False


@rule(
    "MCG002",
    "both-old-flags",
    at=("post_init", 230),
    releases="0.15..",
    text="enable_cuda_graph and external_cuda_graph cannot be enabled at the same time.",
    fields=OLD_FLAGS,
    says="enable_cuda_graph means local graphs and external_cuda_graph Transformer Engine's: only one can be on.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("external_cuda_graph")]],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def both_old_flags(s: Settings) -> Any:
    """Each old flag migrates to an implementation of its own, so both together have no meaning."""
    return s.enable_cuda_graph and s.external_cuda_graph


def _new_impl(s: Settings) -> list[Change]:
    """cuda_graph_impl instead of the old flag. Bridge 0.6 takes no local written out: see MCG508."""
    if s.bridge is not None and s.bridge >= (0, 6) and s.v.get("enable_cuda_graph"):
        return []
    switches = zip(OLD_FLAGS, ("local", "transformer_engine"), strict=True)
    return [change for f, i in switches if s.v.get(f) for change in (unset(f), to("cuda_graph_impl", i))]


@rule(
    "MCG003",
    "old-flag-deprecated",
    at=("post_init", 235),
    releases="0.15..",
    severity="warning",
    exception="UserWarning",
    text="{flag} is deprecated, use cuda_graph_impl={impl} instead.",
    fields=OLD_FLAGS,
    says="{flag} is deprecated; this release reads it as cuda_graph_impl={impl!r}.",
    fixes=lambda s: [_new_impl(s)],
)
def old_flag_deprecated(s: Settings) -> Any:
    """The migration leaves the old flag True, so a second finalize() of the same object then fails as MCG001."""
    if s.enable_cuda_graph:
        return {"flag": "enable_cuda_graph", "impl": "local"}
    if s.external_cuda_graph:
        return {"flag": "external_cuda_graph", "impl": "transformer_engine"}
    return False


@migration(at=("post_init", 240), releases="0.15..", sets=("cuda_graph_impl",))
def migrate_old_flags(s: Settings) -> None:
    if s.enable_cuda_graph:
        s.set("cuda_graph_impl", "local")
    if s.external_cuda_graph:
        s.set("cuda_graph_impl", "transformer_engine")


# 0.16 and 0.17: cuda_graph_scope becomes a list of CudaGraphScope --------------------------------------------------


@migration(at=("post_init", 300), releases="0.16..0.17", sets=("cuda_graph_scope",))
def scope_to_list(s: Settings) -> None:
    scope = require(s.cuda_graph_scope)
    if scope is None:
        s.set("cuda_graph_scope", [])
    elif is_member(s, scope, "CudaGraphScope"):
        s.set("cuda_graph_scope", [scope])


@rule(
    "MCG004",
    "modules-wrong-type",
    at=("post_init", 305),
    releases="0.16..0.17",
    text="cuda_graph_scope must be a string that can be converted to a list of CudaGraphScope, got {shown}.",
    fields=("cuda_graph_scope",),
    says="cuda_graph_scope takes a list of names, a comma separated string or None, not {shown}.",
    fixes=lambda s: [state.set_modules(s, [m for m in [meant(s.cuda_graph_scope, module_names(s))] if m])],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def scope_wrong_type(s: Settings) -> Any:
    """Anything else can't be turned into a list of CudaGraphScope."""
    scope = require(s.cuda_graph_scope)
    if isinstance(scope, (list, str)) and not isinstance(scope, Member):
        return False
    return {"shown": str(scope) if not isinstance(scope, Member) else f"{scope.enum}.{scope.name}"}


@migration(at=("post_init", 310), releases="0.16..0.17", sets=("cuda_graph_scope",))
def split_scope(s: Settings) -> None:
    require(s.cuda_graph_scope)
    if isinstance(s.cuda_graph_scope, str):
        s.set("cuda_graph_scope", s.cuda_graph_scope.split(","))  # unstripped, so "attn, mlp" fails


# 0.18 and newer: cuda_graph_scope moves to cuda_graph_modules ------------------------------------------------------


@rule(
    "MCG005",
    "scope-and-modules",
    at=("post_init", 300),
    releases="0.18..",
    text="cuda_graph_scope and cuda_graph_modules cannot be set together.",
    fields=("cuda_graph_scope", "cuda_graph_modules"),
    says="cuda_graph_scope is the old name of cuda_graph_modules; this configuration sets both.",
    fixes=lambda s: [[unset("cuda_graph_scope")], [unset("cuda_graph_modules")]],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def scope_and_modules(s: Settings) -> Any:
    """From 0.18 on cuda_graph_scope is an alias; cuda_graph_modules counts as unset at "full", None and []."""
    return s.cuda_graph_scope is not None and s.cuda_graph_modules not in ("full", None, [])


@rule(
    "MCG006",
    "scope-deprecated",
    at=("post_init", 301),
    releases="0.18..",
    severity="warning",
    exception="DeprecationWarning",
    text="cuda_graph_scope is deprecated, use cuda_graph_modules instead.",
    fields=("cuda_graph_scope",),
    says="cuda_graph_scope is deprecated; this release reads it as cuda_graph_modules.",
    fixes=lambda s: [[unset("cuda_graph_scope"), to("cuda_graph_modules", state.as_list(s.cuda_graph_scope))]],
)
def scope_deprecated(s: Settings) -> Any:
    """Python hides DeprecationWarning by default, so nobody sees upstream's."""
    return s.given("cuda_graph_scope") and s.cuda_graph_scope is not None and s.cuda_graph_impl != "none"


@migration(at=("post_init", 305), releases="0.18..", sets=("cuda_graph_scope", "cuda_graph_modules"))
def move_scope(s: Settings) -> None:
    def plain(value: Any) -> Any:
        return value.name if is_member(s, value, "CudaGraphScope") else value

    scope = require(s.cuda_graph_scope)
    require(s.cuda_graph_modules)
    if scope is not None:
        s.set("cuda_graph_modules", [plain(v) for v in scope] if isinstance(scope, list) else plain(scope))
        s.set("cuda_graph_scope", None)
    modules = s.cuda_graph_modules
    if not isinstance(modules, list):
        if modules is None or modules == "":
            modules = []
        elif isinstance(modules, str):
            modules = modules.split(",")
        else:
            modules = [modules]
        s.set("cuda_graph_modules", modules)


@rule(
    "MCG007",
    "full-with-modules",
    at=("post_init", 315),
    releases="0.16..",
    symbol=BOTH + "normalize_cuda_graph_modules",
    text="full scope cannot be used with other scopes.",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="'full' means the whole layer and can't stand beside other modules: {modules}.",
    fixes=lambda s: [state.set_modules(s, [m for m in state.as_list(s.modules) if m != "full"]),
                     state.set_modules(s, [])],
    stops=True,
    failure_mode="illegal_scope_combination",
)  # fmt: skip
def full_with_modules(s: Settings) -> Any:
    """'full' is the old spelling of an empty list."""
    modules = require(s.modules)
    if s.core < (0, 18) and not all(isinstance(m, str) for m in modules):
        return False  # a list with enum members is not looked at for 'full' there
    return "full" in modules and modules != ["full"]


@rule(
    "MCG008",
    "full-deprecated",
    at=("post_init", 316),
    releases="0.16..",
    severity="warning",
    exception="UserWarning",
    text={
        "0.16..0.17": "full scope is deprecated. Use empty cuda_graph_scope to capture the whole layer.",
        "0.18..": "full scope is deprecated. Use empty cuda_graph_modules to capture the whole layer.",
    },
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="'full' is deprecated; an empty list captures the whole layer.",
    fixes=lambda s: [state.set_modules(s, [])],
)
def full_deprecated(s: Settings) -> Any:
    """'full' is the default of every release, so upstream warns on each untouched configuration. Reported only
    where graphs are on and the configuration itself says 'full'."""
    return s.modules == ["full"] and s.given(s.modules_field) and s.cuda_graph_impl != "none"


@migration(at=("post_init", 317), releases="0.16..0.17", sets=("cuda_graph_scope",))
def full_to_empty(s: Settings) -> None:
    if s.cuda_graph_scope == ["full"]:
        s.set("cuda_graph_scope", [])


def _unknown_module(s: Settings) -> Any:
    """The first item that upstream can't use, as ("type" | "key", item)."""
    require(s.modules)
    if s.modules == ["full"]:
        return None
    if s.core < (0, 18):
        if not all(isinstance(m, str) for m in s.modules):
            return None
        bad = next((m for m in s.modules if m not in module_names(s)), None)
        return bad if bad is None else ("key", bad)
    for item in s.modules:
        if isinstance(item, str):
            if item not in module_names(s):
                return "key", item
        elif not is_member(s, item, "CudaGraphModule"):
            return "type", item
    return None


def _replaced(s: Settings) -> list[str]:
    """The modules with each name that is not one replaced by what was meant, or left out."""
    full_iteration_first = (*module_names(s), "full")
    names = (meant(m, full_iteration_first) for m in s.modules)
    return [n for n in dict.fromkeys(names) if n is not None and n != "full"]


def _fix_names(s: Settings) -> Iterator[list[Change]]:
    names = _replaced(s)
    if "full_iteration" in names:
        names = ["full_iteration"] if s.core < (0, 18) else []
        yield state.set_impl(s, "full_iteration", names)
    else:
        yield state.set_modules(s, names)


@rule(
    "MCG009",
    "unknown-module",
    at=("post_init", 320),
    releases="0.16..",
    symbol=BOTH + "normalize_cuda_graph_modules",
    exception="KeyError",
    text="{bad!r}",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="{bad!r} is no CUDA-graph module of this release; there are {allowed}.{hint}",
    fixes=_fix_names,
    stops=True,
    failure_mode="illegal_scope_combination",
)
def unknown_module(s: Settings) -> Any:
    """Upstream looks the name up in an enum, so the error is a bare KeyError that does not say what was looked up.
    Names are checked even when cuda_graph_impl is "none", and spaces are not stripped."""
    found = _unknown_module(s)
    if not found or found[0] != "key":
        return False
    bad = found[1]
    guess = meant(bad, module_names(s))
    return {"bad": bad, "allowed": ", ".join(module_names(s)), "hint": f" Did you mean {guess!r}?" if guess else ""}


@rule(
    "MCG010",
    "modules-mixed",
    at=("post_init", 321),
    releases="0.16..0.17",
    text="cuda_graph_scope must be a list of CudaGraphScope, got {shown}.",
    fields=("cuda_graph_scope",),
    says="cuda_graph_scope mixes strings and enum members, or holds something else: {shown}.",
    fixes=lambda s: [state.set_modules(s, _replaced(s))],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def modules_mixed(s: Settings) -> Any:
    """A list is either all strings or all CudaGraphScope members."""
    scope = require(s.cuda_graph_scope)
    if all(isinstance(m, str) for m in scope) or all(is_member(s, m, "CudaGraphScope") for m in scope):
        return False
    return {"shown": show(s, scope)}


@rule(
    "MCG011",
    "modules-wrong-element",
    at=("post_init", 321),
    releases="0.18..",
    symbol=CONFIG + "normalize_cuda_graph_modules",
    text="cuda_graph_modules values must be strings or CudaGraphModule enums, got {shown}.",
    fields=("cuda_graph_modules",),
    says="cuda_graph_modules holds {shown}, which is neither a name nor a CudaGraphModule.",
    fixes=lambda s: [state.set_modules(s, _replaced(s))],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def modules_wrong_element(s: Settings) -> Any:
    """A member of the old CudaGraphScope enum is such a thing too; in cuda_graph_scope it would be migrated."""
    found = _unknown_module(s)
    return {"shown": show(s, found[1])} if found and found[0] == "type" else False


@migration(at=("post_init", 322), releases="0.16..0.17", sets=("cuda_graph_scope",))
def scope_names(s: Settings) -> None:
    s.set("cuda_graph_scope", [module_name(m) for m in require(s.cuda_graph_scope)])


# 0.18 and newer: full_iteration and full_iteration_inference leave the list ----------------------------------------


def deprecated_modules(s: Settings) -> list[Any]:
    return [m for m in s.cuda_graph_modules if m in DEPRECATED]


@rule(
    "MCG012",
    "two-deprecated-modules",
    at=("post_init", 325),
    releases="0.18..",
    symbol=CONFIG + "validate_deprecated_cuda_graph_modules_migration_inputs",
    text="cuda_graph_modules cannot contain multiple deprecated values at the same time: {both!r}.",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="full_iteration and full_iteration_inference migrate to different settings and can't stand together.",
    fixes=lambda s: [
        state.set_impl(s, "full_iteration"),
        [*state.set_modules(s, []), *state.set_impl(s, "local"), to("inference_cuda_graph_scope", "block")],
    ],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def two_deprecated_modules(s: Settings) -> Any:
    """Training graphs over the iteration are cuda_graph_impl="full_iteration" from 0.18 on, inference graphs
    inference_cuda_graph_scope="block"."""
    both = deprecated_modules(s)
    return {"both": both} if len(set(both)) > 1 else False


def _inference_name(s: Settings) -> Any:
    scope = s.inference_cuda_graph_scope
    return scope.name if is_member(s, scope, "InferenceCudaGraphScope") else scope


@rule(
    "MCG013",
    "unknown-inference-scope-in-migration",
    at=("post_init", 326),
    releases="0.18..",
    symbol=CONFIG + "validate_deprecated_cuda_graph_modules_migration_inputs",
    exception="KeyError",
    text="{inference_cuda_graph_scope!r}",
    fields=("inference_cuda_graph_scope", "cuda_graph_modules"),
    says="{inference_cuda_graph_scope!r} is no inference scope; there are none, layer and block.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    stops=True,
    failure_mode="inference_graph_config",
)
def unknown_inference_scope_in_migration(s: Settings) -> Any:
    """The migration of full_iteration and full_iteration_inference looks the inference scope up first."""
    scope = s.inference_cuda_graph_scope
    return bool(deprecated_modules(s)) and isinstance(scope, str) and scope not in inference_scopes(s)


@rule(
    "MCG014",
    "full-iteration-module-with-impl",
    at=("post_init", 327),
    releases="0.18..",
    symbol=CONFIG + "validate_deprecated_cuda_graph_modules_migration_inputs",
    text="cuda_graph_modules='full_iteration' cannot be combined with cuda_graph_impl={cuda_graph_impl!r}.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration is an implementation of its own and can't be a module of {cuda_graph_impl!r}.",
    fixes=lambda s: [state.set_impl(s, "full_iteration"), state.switch_to_te(s)],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def full_iteration_module_with_impl(s: Settings) -> Any:
    """The deprecated module name migrates to cuda_graph_impl="full_iteration" from none, local and
    full_iteration only."""
    return "full_iteration" in s.cuda_graph_modules and s.cuda_graph_impl not in ("none", "local", "full_iteration")


@rule(
    "MCG015",
    "full-iteration-module-with-inference-scope",
    at=("post_init", 328),
    releases="0.18..",
    symbol=CONFIG + "validate_deprecated_cuda_graph_modules_migration_inputs",
    text="cuda_graph_modules='full_iteration' cannot be combined with inference_cuda_graph_scope={scope!r}.",
    fields=("inference_cuda_graph_scope", "cuda_graph_modules", "cuda_graph_scope"),
    says="full_iteration is for training and leaves no room for inference_cuda_graph_scope={scope!r}.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    stops=True,
    failure_mode="inference_graph_config",
)
def full_iteration_module_with_inference_scope(s: Settings) -> Any:
    """The full_iteration implementation allows no inference graphs."""
    scope = _inference_name(s)
    if "full_iteration" in s.cuda_graph_modules and scope is not None and module_name(scope) != "none":
        return {"scope": module_name(scope)}
    return False


@rule(
    "MCG016",
    "inference-module-with-impl",
    at=("post_init", 329),
    releases="0.18..",
    symbol=CONFIG + "validate_deprecated_cuda_graph_modules_migration_inputs",
    text="cuda_graph_modules='full_iteration_inference' cannot be combined with cuda_graph_impl={cuda_graph_impl!r}.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration_inference means inference graphs, which only local has, not {cuda_graph_impl!r}.",
    fixes=lambda s: [
        state.set_modules(s, [m for m in state.as_list(s.modules) if m != "full_iteration_inference"]),
        [*state.set_impl(s, "local", []), to("inference_cuda_graph_scope", "block")],
    ],
    stops=True,
    failure_mode="inference_graph_config",
)
def inference_module_with_impl(s: Settings) -> Any:
    """From 0.18 on inference graphs are chosen by inference_cuda_graph_scope, and only with local."""
    return "full_iteration_inference" in s.cuda_graph_modules and s.cuda_graph_impl not in ("none", "local")


@rule(
    "MCG017",
    "inference-module-with-inference-scope",
    at=("post_init", 330),
    releases="0.18..",
    symbol=CONFIG + "validate_deprecated_cuda_graph_modules_migration_inputs",
    text="cuda_graph_modules='full_iteration_inference' cannot be combined with inference_cuda_graph_scope={scope!r}.",
    fields=("inference_cuda_graph_scope", "cuda_graph_modules", "cuda_graph_scope"),
    says="full_iteration_inference means inference_cuda_graph_scope='block', but {scope!r} is set.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    stops=True,
    failure_mode="inference_graph_config",
)
def inference_module_with_inference_scope(s: Settings) -> Any:
    """The deprecated name and the new field must not contradict each other."""
    scope = _inference_name(s)
    name = module_name(scope)
    if "full_iteration_inference" in s.cuda_graph_modules and scope is not None and name != "block":
        return {"scope": name}
    return False


@rule(
    "MCG018",
    "graphs-switched-on-by-module",
    at=("post_init", 335),
    releases="0.18..",
    severity="warning",
    exception="DeprecationWarning",
    text="cuda_graph_modules 'full_iteration' is deprecated. Use cuda_graph_impl='full_iteration' instead.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="cuda_graph_impl is 'none', but the module full_iteration switches full-iteration graphs on all the same.",
    fixes=lambda s: [state.set_modules(s, []), state.set_impl(s, "full_iteration")],
    failure_mode="unexpected_graphs_on",
)
def graphs_switched_on_by_module(s: Settings) -> Any:
    """The migration sets cuda_graph_impl="full_iteration" whatever it was, "none" included, with nothing but a
    DeprecationWarning, which Python hides. Bridge 0.6 clears the modules before, Bridge 0.5 does not."""
    return "full_iteration" in s.cuda_graph_modules and s.cuda_graph_impl == "none"


@rule(
    "MCG019",
    "full-iteration-module-deprecated",
    at=("post_init", 336),
    releases="0.18..",
    severity="warning",
    exception="DeprecationWarning",
    text="cuda_graph_modules 'full_iteration' is deprecated. Use cuda_graph_impl='full_iteration' instead.",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="The module name full_iteration is deprecated; this release reads it as cuda_graph_impl='full_iteration'.",
    fixes=lambda s: [state.set_impl(s, "full_iteration")],
)
def full_iteration_module_deprecated(s: Settings) -> Any:
    """Full iteration is an implementation of its own from 0.18 on."""
    return "full_iteration" in s.cuda_graph_modules and s.cuda_graph_impl != "none"


@rule(
    "MCG020",
    "inference-module-without-effect",
    at=("post_init", 337),
    releases="0.18..",
    severity="warning",
    exception="DeprecationWarning",
    text="cuda_graph_modules 'full_iteration_inference' is deprecated and has no effect when cuda_graph_impl='none'. "
    "Use cuda_graph_impl='local' with inference_cuda_graph_scope='block' to enable inference CUDA graphs.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration_inference has no effect while cuda_graph_impl is 'none': inference runs without graphs.",
    fixes=lambda s: [[*state.set_impl(s, "local", []), to("inference_cuda_graph_scope", "block")]],
    failure_mode="graph_not_applied",
)
def inference_module_without_effect(s: Settings) -> Any:
    """The name is dropped from the list with a DeprecationWarning."""
    return "full_iteration_inference" in s.cuda_graph_modules and s.cuda_graph_impl == "none"


@rule(
    "MCG027",
    "inference-module-deprecated",
    at=("post_init", 338),
    releases="0.18..",
    severity="warning",
    exception="DeprecationWarning",
    text="cuda_graph_modules 'full_iteration_inference' is deprecated. Use inference_cuda_graph_scope="
    "<InferenceCudaGraphScope.block: 3> instead.",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="The module name full_iteration_inference is deprecated; this release reads it as "
    "inference_cuda_graph_scope='block'.",
    fixes=lambda s: [[
        *state.set_modules(s, [m for m in state.as_list(s.modules) if m != "full_iteration_inference"]),
        to("inference_cuda_graph_scope", "block"),
    ]],
)  # fmt: skip
def inference_module_deprecated(s: Settings) -> Any:
    """Inference graphs are chosen by a field of their own from 0.18 on."""
    return "full_iteration_inference" in s.cuda_graph_modules and s.cuda_graph_impl != "none"


@migration(
    at=("post_init", 340),
    releases="0.18..",
    sets=("cuda_graph_impl", "cuda_graph_modules", "inference_cuda_graph_scope"),
)
def deprecated_modules_leave(s: Settings) -> None:
    modules = require(s.cuda_graph_modules)
    if modules == ["full"]:
        modules = []
    if "full_iteration_inference" in modules and s.cuda_graph_impl != "none":
        s.set("inference_cuda_graph_scope", "block")
    if "full_iteration" in modules:
        s.set("cuda_graph_impl", "full_iteration")
    s.set("cuda_graph_modules", [n for n in map(module_name, modules) if n not in DEPRECATED])


# The implementation ------------------------------------------------------------------------------------------------


def _fix_impl(s: Settings) -> Iterator[list[Change]]:
    guess = meant(s.cuda_graph_impl, (*implementations(s), "full_iteration")) or "transformer_engine"
    names = state.as_list(s.modules)
    if guess == "full_iteration":
        yield state.set_impl(s, guess)
    elif guess == "transformer_engine" and s.core >= (0, 16):
        yield state.set_impl(s, guess, state.settle(s, names, guess) if names else None)
    else:
        yield state.set_impl(s, guess)
    yield state.off(s)


@rule(
    "MCG021",
    "unknown-impl",
    at=("post_init", 350),
    releases="0.15..",
    text="Invalid cuda graph implementation: {cuda_graph_impl}",
    fields=("cuda_graph_impl",),
    says="{cuda_graph_impl!r} is no implementation of this release; there are {allowed}.{hint}",
    fixes=_fix_impl,
    stops=True,
    failure_mode="illegal_scope_combination",
)
def unknown_impl(s: Settings) -> Any:
    """full_iteration is an implementation from 0.18 on; before, it is a scope of local."""
    if s.cuda_graph_impl in implementations(s):
        return False
    guess = meant(s.cuda_graph_impl, implementations(s))
    hint = f" Did you mean {guess!r}?" if guess else ""
    if s.cuda_graph_impl == "full_iteration":
        hint = " Here it is written cuda_graph_impl='local' with cuda_graph_scope='full_iteration'."
    return {"allowed": ", ".join(implementations(s)), "hint": hint}


@migration(at=("post_init", 360), releases="0.18..", sets=("inference_cuda_graph_scope",))
def inference_default(s: Settings) -> None:
    if require(s.inference_cuda_graph_scope) is None:
        s.set("inference_cuda_graph_scope", "layer" if s.cuda_graph_impl == "local" else "none")


@rule(
    "MCG022",
    "inference-scope-wrong-type",
    at=("post_init", 362),
    releases="0.18..",
    symbol=CONFIG + "normalize_inference_cuda_graph_scope",
    text="inference_cuda_graph_scope must be a string or InferenceCudaGraphScope enum, got {shown}.",
    fields=("inference_cuda_graph_scope",),
    says="inference_cuda_graph_scope takes none, layer or block, not {shown}.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    stops=True,
    failure_mode="inference_graph_config",
)
def inference_scope_wrong_type(s: Settings) -> Any:
    """A name or an enum member, nothing else."""
    scope = require(s.inference_cuda_graph_scope)
    if isinstance(scope, str) or is_member(s, scope, "InferenceCudaGraphScope"):
        return False
    return {"shown": show(s, scope)}


@rule(
    "MCG023",
    "unknown-inference-scope",
    at=("post_init", 364),
    releases="0.18..",
    symbol=CONFIG + "normalize_inference_cuda_graph_scope",
    exception="KeyError",
    text="{inference_cuda_graph_scope!r}",
    fields=("inference_cuda_graph_scope",),
    says="{inference_cuda_graph_scope!r} is no inference scope; there are none, layer and block.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    stops=True,
    failure_mode="inference_graph_config",
)
def unknown_inference_scope(s: Settings) -> Any:
    """Looked up in an enum by its exact name, so the error is a bare KeyError."""
    scope = s.inference_cuda_graph_scope
    return isinstance(scope, str) and scope not in inference_scopes(s)


@migration(at=("post_init", 366), releases="0.18..", sets=("inference_cuda_graph_scope",))
def inference_name(s: Settings) -> None:
    s.set("inference_cuda_graph_scope", module_name(s.inference_cuda_graph_scope))


@rule(
    "MCG024",
    "inference-scope-not-allowed",
    at=("post_init", 368),
    releases="0.18..",
    text="Invalid inference CUDA graph scope {inference_cuda_graph_scope!r} for cuda_graph_impl={cuda_graph_impl!r}.",
    fields=("inference_cuda_graph_scope", "cuda_graph_impl"),
    says="cuda_graph_impl={cuda_graph_impl!r} does not go with inference_cuda_graph_scope="
    "{inference_cuda_graph_scope!r}: local takes layer or block, every other implementation none.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    failure_mode="inference_graph_config",
)
def inference_scope_not_allowed(s: Settings) -> Any:
    """Left unset it is layer for local and none otherwise. An explicit none with local is refused too."""
    allowed = ("layer", "block") if s.cuda_graph_impl == "local" else ("none",)
    return s.inference_cuda_graph_scope not in allowed


@rule(
    "MCG025",
    "full-iteration-with-modules",
    at=("post_init", 370),
    releases="0.18..",
    text='cuda_graph_modules must be empty when cuda_graph_impl="full_iteration".',
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration captures everything, so cuda_graph_modules must be empty, not {modules}.",
    fixes=lambda s: [
        state.set_impl(s, "full_iteration")
        if s.written.get("cuda_graph_impl") != "full_iteration"
        else state.set_modules(s, []),
        state.switch_to_te(s),
    ],
    failure_mode="illegal_scope_combination",
)
def full_iteration_with_modules(s: Settings) -> Any:
    """Modules name parts of a layer; a graph of the whole iteration has no parts."""
    return s.cuda_graph_impl == "full_iteration" and s.cuda_graph_modules != []


@rule(
    "MCG026",
    "full-iteration-needs-local",
    at=("post_init", 430),
    releases="0.16..0.17",
    text="To use full iteration cuda graph, please use cuda_graph_impl=local instead of "
    "cuda_graph_impl=transformer_engine.",
    fields=("cuda_graph_impl", "cuda_graph_scope"),
    says="full_iteration is a scope of local in this release, not of transformer_engine.",
    fixes=lambda s: [state.set_impl(s, "full_iteration"), state.switch_to_te(s)],
    failure_mode="illegal_scope_combination",
)
def full_iteration_needs_local(s: Settings) -> Any:
    """Transformer Engine's graphs are per layer."""
    return s.cuda_graph_impl == "transformer_engine" and "full_iteration" in s.cuda_graph_scope
