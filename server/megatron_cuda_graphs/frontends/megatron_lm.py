"""Megatron-LM's command line: what `parse_args` makes of the flags, under the names that the rules read.

argparse's own steps are mirrored here (values, types, choices, what it refuses and how it says so); what
`validate_args` and `core_transformer_config_from_args` then do with the arguments is in `rules.lm_*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .. import arguments, fields
from ..arguments import Flag
from ..readers.reading import Member, Reading
from ..report import EnvFix, FieldFix, Fix
from ..rules._rule import Change
from ..settings import Settings
from ..stack import Judged
from ..unknown import Unknown

__all__ = ["CANONICAL", "MEGATRON_LM", "Problem", "arity", "module_names"]

# The rules' name -> the argument that it is, where megatron-core or Bridge name it otherwise.
CANONICAL = {
    "num_moe_experts": "num_experts",
    "fp8_param": "fp8_param_gather",
    "fp4_param": "fp4_param_gather",
    "use_te_rng_tracker": "te_rng_tracker",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "rng.te_rng_tracker": "te_rng_tracker",
    "rng.inference_rng_tracker": "inference_rng_tracker",
    "rerun_state_machine.check_for_nan_in_loss": "check_for_nan_in_loss_and_grad",
    "ddp.check_for_nan_in_grad": "check_for_nan_in_loss_and_grad",
    "ddp.overlap_grad_reduce": "overlap_grad_reduce",
    "ddp.overlap_param_gather": "overlap_param_gather",
    "ddp.use_distributed_optimizer": "use_distributed_optimizer",
    "ddp.use_megatron_fsdp": "use_megatron_fsdp",
    "ddp.data_parallel_sharding_strategy": "data_parallel_sharding_strategy",
    "optimizer.optimizer_cuda_graph": "optimizer_cuda_graph",
    "train.rampup_batch_size": "rampup_batch_size",
    "train.micro_batch_size": "micro_batch_size",
    "train.global_batch_size": "global_batch_size",
}
# 0.18 hides the old flag behind another attribute, to tell it from the new one.
_DEPRECATED_SCOPE = "cuda_graph_scope_deprecated"
_FREQUENCIES = ("moe_freq_type", "no_rope_freq_type", "la_freq_type")
_KEEPS = ("full", "full_iteration", "full_iteration_inference")


class Problem(NamedTuple):
    """Something that makes parse_args stop.

    kind: "choice", "value", "missing", "name" (an enum's member that is not there), "extra" (a word that no argument
    takes) or "unknown" (a flag that is not the parser's own, with the words behind it as token); message: argparse's
    own text, or the KeyError's.
    """

    kind: str
    flag: str
    dest: str
    token: str
    message: str


def module_names(core: str) -> tuple[str, ...]:
    """What the flag for graph modules takes in a release."""
    kind = next(f.type for f in _module_flags(core))
    if kind == "CudaGraphScope":
        return ("full", *fields.enum_members("CudaGraphScope", core))
    return (*fields.enum_members("CudaGraphModule", core), *_KEEPS)


def _module_flags(core: str) -> list[Flag]:
    known = arguments.flags(core)
    return [known[n] for n in ("--cuda-graph-modules", "--cuda-graph-scope") if n in known]


class MegatronLM:
    """`validate_args(parse_args())`, and the TransformerConfig made from the arguments."""

    def settings(self, reading: Reading, judged: Judged, env: Mapping[str, Any] | None) -> Settings:
        core = judged.core_version
        known = arguments.flags(core)
        values: dict[str, Any] = {}
        given: dict[str, tuple[str, ...]] = {}
        problems: list[Problem] = []
        extras: list[Problem] = []
        unknown: list[str] = []
        for name, tokens in _as_they_stand(reading):
            flag = known.get(name)
            if flag is None:
                unknown.append(name)
                words = [t for t in tokens if isinstance(t, str)] if isinstance(tokens, list) else []
                extras.append(Problem("unknown", name, "", " ".join(words), ""))
                continue
            given[flag.dest] = (*(n for n in given.get(flag.dest, ()) if n != name), name)
            values[flag.dest] = _value(flag, tokens, core, problems, extras)
        unknown = list(dict.fromkeys(unknown))
        if _DEPRECATED_SCOPE in values:
            values["cuda_graph_scope"] = values.pop(_DEPRECATED_SCOPE)
            given["cuda_graph_scope"] = given.pop(_DEPRECATED_SCOPE)
        for name, argument in CANONICAL.items():
            if argument in values and "." not in name:
                values[name] = values[argument]
        mla = values.get("multi_latent_attention") is True
        return Settings(
            {
                **values,
                "args.given": given,
                "args.unknown": unknown,
                "args.problems": problems,
                "args.extras": extras,
                "args.words": reading.values,
            },
            frontend="megatron-lm",
            judged=judged,
            defaults=_defaults(core, "MLATransformerConfig" if mla else "TransformerConfig"),
            environ=env,
            partial=reading.base == "unknown",
            written={**values, **{name: reading.values[name] for name in unknown}},
        )

    def dotted(self, name: str, settings: Settings) -> str:
        """The attribute of `args`."""
        if name.startswith("--"):
            return name[2:].replace("-", "_")
        return CANONICAL.get(name, name)

    def written_as(self, name: str, settings: Settings) -> str:
        """The flag that gives a setting, as it stands in the input; its first spelling where it is not given."""
        if name.startswith("--"):
            return name
        argument = CANONICAL.get(name, name)
        given = settings.v["args.given"].get(argument)
        if given:
            return str(given[-1])
        flags = self._flags(argument, settings)
        return flags[0].name if flags else name

    def edits(self, changes: Iterable[Change], settings: Settings) -> list[Fix]:
        edits: list[Fix] = []
        for change in changes:
            if change.op == "setenv":
                edits.append(EnvFix(name=change.name, value=change.value))
            elif change.name.startswith("--"):
                value = _tokens(change.value) if change.op == "set" else None
                edits.append(FieldFix(op=change.op, field=change.name, value=value))
            else:
                edits += self._edit(change, settings)
        return edits

    def _edit(self, change: Change, settings: Settings) -> list[Fix]:
        argument = CANONICAL.get(change.name, change.name)
        given = settings.v["args.given"].get(argument, ())
        edits: list[Fix] = [FieldFix(op="unset", field=name) for name in given]
        if argument == "recompute_granularity":  # --recompute-activations is its short form
            edits += [FieldFix(op="unset", field=n) for n in settings.v["args.given"].get("recompute_activations", ())]
        if argument == "cpu_offloading":  # has no flag of its own
            edits += [
                FieldFix(op="unset", field=n) for n in settings.v["args.given"].get("cpu_offloading_num_layers", ())
            ]
        if change.op == "unset" or change.value in (None, []):
            return edits
        flags = self._flags(argument, settings)
        if isinstance(change.value, bool):
            flag = next((f for f in flags if f.kind == str(change.value).lower()), None)
            tokens: list[str] = []
        else:
            flag = next((f for f in flags if f.kind == "store"), None)
            tokens = _tokens(change.value)
        if flag is None:
            return edits
        return [*(e for e in edits if e.field != flag.name), FieldFix(op="set", field=flag.name, value=tokens)]  # type: ignore[union-attr]

    def _flags(self, argument: str, settings: Settings) -> Sequence[Flag]:
        by_dest = arguments.flags_of(settings.judged.core_version)
        if argument == "cuda_graph_scope" and _DEPRECATED_SCOPE in by_dest:
            argument = _DEPRECATED_SCOPE
        return by_dest.get(argument, ())


@lru_cache(maxsize=16)
def _defaults(core: str, cls: str) -> dict[str, Any]:
    """Fields of the configuration class, and over them the arguments with argparse's defaults."""
    own = dict(arguments.defaults(core))
    own.pop(_DEPRECATED_SCOPE, None)
    values = {**fields.core_fields(core, cls), **own}
    for name, argument in CANONICAL.items():
        if argument in own:
            values[name] = own[argument]
    return values


# argparse ------------------------------------------------------------------------------------------------------------


def _as_they_stand(reading: Reading) -> Iterator[tuple[str, Any]]:
    """Flags and their tokens in argparse's order, those given more than once each time."""
    yield from reading.repeated
    several = {name for name, _ in reading.repeated}
    yield from ((name, tokens) for name, tokens in reading.values.items() if name not in several)


def _value(flag: Flag, tokens: Any, core: str, problems: list[Problem], extras: list[Problem]) -> Any:
    """What the flag sets `args.<dest>` to."""
    if isinstance(tokens, Unknown):
        return tokens
    tokens = list(tokens)
    if flag.kind != "store" and flag.kind not in ("append", "extend"):
        if any(isinstance(t, Unknown) for t in tokens):
            return Unknown(flag.dest, reason="what stands behind the flag is not known")
        extras += [Problem("extra", flag.name, flag.dest, t, "") for t in tokens]
        return flag.kind != "false"
    least, most, wanted = arity(flag)
    if len(tokens) < least:
        problems.append(
            Problem("missing", flag.name, flag.dest, "", f"argument {_option(flag, core)}: expected {wanted}")
        )
        return Unknown(flag.dest, reason="the flag's value is missing")
    if most is not None and len(tokens) > most:
        if not any(isinstance(t, Unknown) for t in tokens):
            extras += [Problem("extra", flag.name, flag.dest, t, "") for t in tokens[most:]]
        tokens = tokens[:most]
    items = [_item(flag, t, core, problems) for t in tokens]
    if flag.nargs is None or flag.nargs == "?":
        return items[0] if items else flag.default
    return items


def arity(flag: Flag) -> tuple[int, int | None, str]:
    """How many words the flag takes at least and at most, and argparse's name for that."""
    if flag.kind not in ("store", "append", "extend"):
        return 0, 0, ""
    match flag.nargs:
        case int(count):
            return count, count, f"{count} argument{'s' if count != 1 else ''}"
        case "+":
            return 1, None, "at least one argument"
        case "*":
            return 0, None, ""
        case "?":
            return 0, 1, "at most one argument"
    return 1, 1, "one argument"


def _option(flag: Flag, core: str) -> str:
    """argparse's name for an argument: all its option strings."""
    same = [f.name for f in arguments.flags_of(core)[flag.dest] if f[1:] == flag[1:]]
    return "/".join(same) if flag.kind == "store" else flag.name


def _item(flag: Flag, token: Any, core: str, problems: list[Problem]) -> Any:
    """One word converted to the flag's type."""
    if isinstance(token, Unknown):
        return Unknown(flag.dest, reason=token.reason)
    value: Any = token
    if flag.type in ("int", "float"):
        try:
            value = int(token) if flag.type == "int" else float(token)
        except ValueError:
            message = f"argument {_option(flag, core)}: invalid {flag.type} value: {token!r}"
            problems.append(Problem("value", flag.name, flag.dest, token, message))
            return Unknown(flag.dest, reason="the flag's value is not a number")
    elif flag.type == "bool":
        value = bool(token)
    elif flag.type in _FREQUENCIES:
        value = _frequency(flag, token)
    elif flag.type in ("CudaGraphScope", "_parse_cuda_graph_modules_arg"):
        if token not in module_names(core):
            problems.append(Problem("name", flag.name, flag.dest, token, repr(token)))
    elif flag.type == "AttnBackend":
        value = Member("AttnBackend", token)
    elif flag.type != "str":
        return Unknown(flag.dest, reason=f"it is read by {flag.type}")
    if flag.choices is not None and value not in flag.choices:
        allowed = ", ".join(map(repr, flag.choices))
        message = f"argument {_option(flag, core)}: invalid choice: {value!r} (choose from {allowed})"
        problems.append(Problem("choice", flag.name, flag.dest, token, message))
    return value


def _frequency(flag: Flag, token: str) -> Any:
    """A layer pattern: a number, or arithmetic on lists such as ([0]*4+[1]*9)."""
    from ..readers.literal import NotLiteral, fold

    try:
        return fold(token)
    except NotLiteral:
        return Unknown(flag.dest, reason=f"{token} is no pattern that can be read")


def _tokens(value: Any) -> list[str]:
    """The words that give a value."""
    if value is True or value is None:
        return []
    return [str(v) for v in value] if isinstance(value, (list, tuple)) else [str(value)]


MEGATRON_LM = MegatronLM()
