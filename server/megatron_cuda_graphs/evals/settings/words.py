"""Modules and implementations that are spoken of without the name of their field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..text import Sentence, Stance, stance
from ..vocabulary import LISTS, MODULES, field_name, leaf, names_in
from .setting import GRAPHS, MODULES_FIELD, Setting
from .values import JOIN

__all__ = ["spoken_graphs", "spoken_modules"]

_PART = r"(?:\"|')?(?:[A-Za-z]+_[a-z_]+|attn|mlp|moe|mamba|layernorm)(?:\"|')?"
_PARTS = rf"(?P<parts>{_PART}(?:{JOIN}(?:the )?{_PART})*)"
_EDIT = re.compile(
    rf"\b(?P<verb>drop(?:ping)?|remov(?:e|ing)|delet(?:e|ing)|tak(?:e|ing)|leav(?:e|ing) out|without|"
    rf"strip(?:ping)?|omit(?:ting)?|exclud(?:e|ing)|add(?:ing)?|includ(?:e|ing)|append(?:ing)?|"
    rf"keep(?:ing)?(?: only)?)"
    rf"\s+(?:just |only |the |both |also )*{_PARTS}(?P<tail>(?:\s+(?:module|scope|modules|scopes|entry|entries|"
    rf"out|away))*(?:\s+(?:from|to|in|out of|of)\s+(?:the\s+)?(?P<where>[\w.-]+))?)",
    re.IGNORECASE,
)
_SWAP = re.compile(
    rf"\b(?:replac(?:e|ing)|swap(?:ping)?|substitut(?:e|ing)|chang(?:e|"
    rf"ing))\s+(?:the )?(?P<old>{_PART})\s+(?:with|for|by|to)\s+(?:the )?{_PARTS}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"\b(?:modules?|scopes?|scoped|capture[sd]?|capturing|graph(?:s|ed|ing)?|with|on|over|of|around|for|just|"
    rf"only)\b[\s:=(\[]{{1,3}}(?:are |is |being |just |only |the |to |of |on |over |for |should be |modules? |"
    rf"scopes? |list )*[\[(]?{_PARTS}",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"\b(?:no|without(?: any)?|empty|an empty|clear(?:ing)? (?:the|out the)|drop(?:ping)? (?:the|all)|remov(?:e|"
    r"ing) (?:the|all))\s+(?:list of |cuda[ _-]graph[ _-])?(?:graph )?(?:modules?|"
    r"scopes?)(?: list)?\b(?! (?:named|given|at|and impl))",
    re.IGNORECASE,
)


def spoken_modules(unit: Sentence, names: list[tuple[re.Match[str], str]], explicit: set[str]) -> Iterator[Setting]:
    s = unit.text
    lists = [leaf(f) for _, f in names if leaf(f) in LISTS]

    def target(parts: list[str], where: str | None) -> str:
        said = where and field_name(where)
        if said and leaf(said) in LISTS:
            return said
        if where and "recompute" in where.lower():
            return "recompute_modules"
        inside = all(p in MODULES for p in parts)
        others = [x for x in lists if (x in ("cuda_graph_modules", "cuda_graph_scope")) == inside]
        if not inside and not others:
            return "recompute_modules"
        if lists and (others or len(set(lists)) == 1):
            return (others or lists)[0]
        if re.search(r"recomput", s, re.IGNORECASE) and not re.search(
            r"cuda_graph|graph module|modules list|scope", s, re.IGNORECASE
        ):
            return "recompute_modules"
        return MODULES_FIELD

    def made(field: str, op: Any, value: Any, at: int, how: Stance) -> Setting:
        return Setting(field, op, value, how, 0, "prose", s, unit.start + at)

    for match in _SWAP.finditer(s):
        new, old = names_in(match["parts"]), names_in(match["old"])
        if new and old and not explicit & set(LISTS):
            field, how = target(new, None), stance(s, match.start(), match.start())
            yield made(field, "drop", old, match.start(), how)
            yield made(field, "add", new, match.start(), how)
            return
    done = False
    for match in _EDIT.finditer(s):
        parts = names_in(match["parts"])
        if not parts or field_name(match["parts"].split()[0].strip("\"',")):
            continue
        verb = match["verb"].lower()
        adds = re.match(r"add|includ|append|keep", verb) is not None
        field = target(parts, match["where"])
        if leaf(field) in explicit and not re.search(r"from|to|out", match["tail"] or ""):
            continue
        how = stance(s, match.start(), match.start())
        if verb.startswith("keep"):
            yield made(field, "set" if "only" in match[0] else "add", parts, match.start(), how)
        else:
            yield made(field, "add" if adds else "drop", parts, match.start(), how)
        done = True
    if not done and not explicit & {"cuda_graph_modules", "cuda_graph_scope"}:
        for match in _NAMED.finditer(s):
            parts = [p for p in names_in(match["parts"]) if p in MODULES]
            if (
                not parts
                or field_name(match["parts"].split()[0].strip("\"',"))
                or (
                    len(parts) == 1
                    and not re.match(r"modules?|scopes?|captur|just|only|graph", match[0], re.IGNORECASE)
                )
            ):
                continue
            how = stance(
                s,
                match.start("parts"),
                match.end("parts"),
                need_directive=not re.match(r"\W*(?:modules?|scopes?)", s, re.IGNORECASE),
            )
            yield made(MODULES_FIELD, "set", parts, match.start(), how)
            break
    if emptied := _EMPTY.search(s):
        how = "denied" if stance(s, emptied.start(), emptied.start()) == "denied" else "asserted"
        yield made(MODULES_FIELD, "set", [], emptied.start(), how)


_IMPL = re.compile(
    r"(?P<te>\btransformer[_ -]engine\b(?:'s)?(?=\W*(?:scoped|graphs?|impl|implementation|capture|backend|"
    r"per-layer|CUDA|\(|with|on|as|,|\.|$|over|for|and))|\bTE(?:'s)?[ -](?:scoped|graphs?|impl|implementation|"
    r"backend|CUDA)\b)"
    r"|"
    r"(?P<full>(?<!remove )(?<!drop )(?<!delete )(?<!scope )(?<!module )(?<!modules )(?<!name )"
    r"\bfull[_ -]iteration\b(?!\s*(?:only|"
    r"in \S*scope|from|out|among|module|scope|is (?:gone|deprecated|a scope))))|"
    r"(?P<local>\blocal\b(?=\s+(?:graphs?|impl|implementation|backend|CUDA|capture|per-layer|inference)))",
    re.IGNORECASE,
)
_OFF = re.compile(
    r"\b(?:turn(?:ing)?|switch(?:ing)?|leav(?:e|ing)|keep(?:ing)?)\s+(?:the |"
    r"all )?(?:CUDA[ -])?graphs?\s+(?:capture )?(?:off|disabled|out)\b|\b(?:turn(?:ing)?|"
    r"switch(?:ing)?) off (?:the |all )?(?:CUDA[ -])?graphs?\b|"
    r"\bdisabl(?:e|ing) (?:the |all )?(?:CUDA[ -])?graphs?\b|^\W*(?:just |simply |so |then )?(?:run|train|stay|"
    r"keep it|go)\s+(?:it\s+|this\s+)?eager(?:ly)?\b|"
    r"\b(?:do not|don't|should not|shouldn't|would not|wouldn't|never) (?:use|enable|turn on|switch on|"
    r"add) (?:any |the )?(?:CUDA[ -])?graphs?\b|\bno CUDA graphs?\b(?: at all| here)?|\bCUDA graphs? (?:should|"
    r"must) (?:stay|remain|be(?: left| kept)?) (?:off|disabled)\b|\bleave (?:them|it) off\b|\bkeep (?:them|"
    r"it) off\b",
    re.IGNORECASE,
)
_SEGMENTS = re.compile(
    r"\b(?:remov(?:e|ing)|drop(?:ping)?|tak(?:e|ing)|turn(?:ing)? off|switch(?:ing)? off|disabl(?:e|ing)|"
    r"delet(?:e|ing)|giv(?:e|ing) up)\s+(?:the )?expandable[_ ]segments\b|\b(?:turn|"
    r"switch)(?:ing)?\s+expandable[_ ]segments off\b",
    re.IGNORECASE,
)
_RNG = re.compile(
    r"\b(?:TE|Transformer[ _]Engine)(?:'s)? (?:RNG|random[- ]number)(?: state)?[ -]tracker\b", re.IGNORECASE
)
_NAN = re.compile(r"\b(?:loss )?NaN[- ]checks?\b", re.IGNORECASE)


_LAST_WAY = re.compile(r",\s*or\s+(?:else |just |simply )?$", re.IGNORECASE)


def spoken_graphs(unit: Sentence, explicit: set[str]) -> Iterator[Setting]:
    s = unit.text
    at = unit.start
    if "cuda_graph_impl" not in explicit:
        if match := _OFF.search(s):
            how = stance(s, match.start(), match.start())
            if how == "asserted" and re.search(
                r",\s*or\s+(?:else |just |simply )?$", s[: match.start()], re.IGNORECASE
            ):
                how = "mentioned"  # the last of several ways out
            yield Setting(GRAPHS, "set", "none", how, 0, "prose", s, at + match.start())
        else:
            for match in _IMPL.finditer(s):
                name = {"te": "transformer_engine", "full": "full_iteration", "local": "local"}[str(match.lastgroup)]
                how = stance(s, match.start(), match.end(), need_directive=True)
                yield Setting(GRAPHS, "set", name, how, 0, "prose", s, at + match.start())
                if how == "asserted":
                    break
    if match := _SEGMENTS.search(s):
        how = stance(s, match.start(), match.start())
        yield Setting("PYTORCH_CUDA_ALLOC_CONF", "unset", None, how, 0, "prose", s, at + match.start())
    for pattern, field in ((_RNG, "rng.te_rng_tracker"), (_NAN, "rerun_state_machine.check_for_nan_in_loss")):
        if leaf(field) in explicit or "use_te_rng_tracker" in explicit:
            continue
        found = pattern.search(s)
        if found is not None:
            match = found
            off = re.search(
                r"\b(?:off|disabl\w+|drop|remove|without|no)\b[^.]{0,25}$", s[: match.start()], re.IGNORECASE
            ) or re.match(
                r"\s*(?:must be |should be |has to be |is |be |needs to be )*(?:off|disabled|removed)",
                s[match.end() :],
                re.IGNORECASE,
            )
            if pattern is _NAN and off:
                yield Setting(field, "set", False, "asserted", 0, "prose", s, at + match.start())
            elif pattern is _RNG:
                how = stance(s, match.start(), match.end(), need_directive=True)
                if re.match(
                    r"\s*(?:must be |should be |has to be |is |be )*(?:on|enabled|needed|required|switched on|"
                    r"turned on)",
                    s[match.end() :],
                    re.IGNORECASE,
                ):
                    how = "asserted"
                yield Setting(field, "set", True, how, 0, "prose", s, at + match.start())
