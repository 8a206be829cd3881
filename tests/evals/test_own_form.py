"""Answers that do not end as asked, but say it all: groups, tables, sentences, diffs; and what is wrong in them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import pytest
from evals_shared import CASES, EVALS, LABELLED

from megatron_cuda_graphs.evals.changes import about, changed
from megatron_cuda_graphs.evals.closing import code, lines
from megatron_cuda_graphs.evals.closing_lines import judge, quotes
from megatron_cuda_graphs.evals.facts import facts, is_word
from megatron_cuda_graphs.evals.graders import grade
from megatron_cuda_graphs.evals.model import Case, Config, Line
from megatron_cuda_graphs.evals.names import mentions
from megatron_cuda_graphs.evals.statements import statements
from megatron_cuda_graphs.evals.text import plain

FILES = ("a.yaml", "b.yaml", "c.yaml", "d.yaml")
RELEASES = ("0.16.1", "0.17.1", "0.18.2", "0.19.2")
MOE = "moe cuda graph is only supported with drop-padding MoE"
FULL = "full recompute is only supported with full iteration CUDA graph"


def said(text: str, names: tuple[str, ...] = FILES) -> dict[str, set[bool | None]]:
    found: dict[str, set[bool | None]] = {}
    for one in statements(text, names, (MOE, FULL)):
        if one.said is not None:
            found.setdefault(one.name, set()).add(one.said)
    return found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("b and d, please", ("b.yaml", "d.yaml")),
        ("a and c are refused", ("a.yaml", "c.yaml")),
        ("a wrong file", ()),
        ("see x/b.yaml", ("b.yaml",)),
        ("e.g. none", ()),
    ],
)
def test_a_file_is_known_without_its_extension_where_no_word_can_be_meant(text: str, names: tuple[str, ...]) -> None:
    assert tuple(n for m in mentions(text, FILES) for n in m.names) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0.16.1 to 0.18.2 start", RELEASES[:3]),
        ("0.18.2 and newer stop", RELEASES[2:]),
        ("core_v0.17.1 starts", ("0.17.1",)),
        ("0.18 and 0.19.2", RELEASES[2:]),
        ("needs >= 0.17.1", ()),
        ("0.17.10", ()),
    ],
)
def test_releases_are_known_in_ranges_and_shortened(text: str, names: tuple[str, ...]) -> None:
    assert tuple(n for m in mentions(text, RELEASES) for n in m.names) == names


YES, NO = {True}, {False}
A_AND_C = {"a.yaml": YES, "c.yaml": YES, "b.yaml": NO, "d.yaml": NO}


@pytest.mark.parametrize(
    "text",
    [
        f"Half of them get through, a and c. The other two are turned down: b fails with `{MOE}`, d with `{FULL}`.",
        f"Fine:\n- a\n- c\n\nRaising:\n- b: `{MOE}`\n- d: `{FULL}`",
        f"## Accepted\n\na.yaml, c.yaml\n\n## Refused\n\nb.yaml ({MOE}) and d.yaml ({FULL})",
        f"| config | starts? | text |\n|---|---|---|\n| a | yes | |\n| b | no | {MOE} |\n| c | yes | |\n"
        f"| d | no | {FULL} |",
        f"| verdict | which |\n|---|---|\n| passes | a, c |\n| fails: {MOE} | b |\n| fails: {FULL} | d |",
        f"a.yaml starts and so does c.yaml. b.yaml raises\n```\nAssertionError: {MOE}\n```\nand d.yaml raises\n"
        f"```\nAssertionError: {FULL}\n```",
        f"All but b and d validate. b dies on \"{MOE}\"; d dies on \"{FULL}\".",
        f"Only a and c work; the rest is rejected.\n\n* b - *{MOE}*\n* d - *{FULL}*",
    ],
)  # fmt: skip
def test_a_verdict_is_found_in_any_form(text: str) -> None:
    assert said(text) == A_AND_C


def test_what_is_only_supposed_is_no_verdict() -> None:
    assert said("If d had graphs off it would start. Once that is changed, b starts. Does c start?") == {}


def test_two_verdicts_on_a_name_are_both_kept() -> None:
    assert said("All four start. b.yaml is refused.")["b.yaml"] == {True, False}


# On every case -------------------------------------------------------------------------------------------------------

Verdicts = dict[str, tuple[bool, str]]


def table(v: Verdicts) -> str:
    rows = [f"| {'goes through' if ok else 'is turned down, it raises'} | {n} | {m} |" for n, (ok, m) in v.items()]
    return "\n".join(["| what happens | for | words |", "|:--|:--|:--|", *rows])


def grouped(v: Verdicts) -> str:
    good = [n for n, (ok, _) in v.items() if ok]
    bad = [f"* for {n} it says `{m}`" for n, (ok, m) in v.items() if not ok]
    head = (
        f"These get past every check: {' and '.join(good)}." if good else "I checked each of them against the source."
    )
    return "\n".join([head, "", "The following are rejected:", "", *bad]) if bad else head


def sentences(v: Verdicts) -> str:
    return " ".join(
        f"On my reading {n} validates without complaint." if ok else f'With {n} the run stops at "{m}".'
        for n, (ok, m) in v.items()
    )


def fenced(v: Verdicts) -> str:
    return "\n\n".join(
        f"What about {n}? It is accepted: {n} constructs." if ok else f"For {n} construction fails:\n\n```\n{m}\n```"
        for n, (ok, m) in v.items()
    )


def headed(v: Verdicts) -> str:
    return "\n\n".join(f"### {n}\n\n- {'accepted' if ok else f'refused with *{m}*'}" for n, (ok, m) in v.items())


FORMS: list[Callable[[Verdicts], str]] = [table, grouped, sentences, fenced, headed]
JUDGED = [c for c in CASES.values() if all(isinstance(k, Line) and k.verdict for k in c.checks.require)]


def truth(case: Case) -> Verdicts:
    lines = [k for k in case.checks.require if isinstance(k, Line)]
    return {k.name: (k.verdict == "accepted", k.messages[0] if k.messages else "") for k in lines}


def right(case: Case, text: str) -> bool:
    return grade(case, text, root=str(EVALS)).right


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("judged", JUDGED, ids=lambda c: c.id)
def test_every_form_of_the_truth_is_right_and_of_anything_else_wrong(
    judged: Case, form: Callable[[Verdicts], str]
) -> None:
    verdicts = truth(judged)
    assert right(judged, form(verdicts)), form(verdicts)
    chance = random.Random(judged.id)
    messages = [m for _, m in verdicts.values() if m]
    for name, (ok, _) in verdicts.items():
        other = chance.choice(messages)
        assert not right(judged, form({**verdicts, name: (not ok, other)})), (name, "the other verdict")
        assert not right(judged, form({n: v for n, v in verdicts.items() if n != name})), (name, "missing")
        own = next(k.messages for k in judged.checks.require if isinstance(k, Line) and k.name == name)
        foreign = [m for m in messages if not any(quotes(one, m) for one in own)]
        if not ok:
            foreign.append("cuda graphs are not supported with this combination of options at all")
            for wrong in foreign[:2]:
                assert not right(judged, form({**verdicts, name: (False, wrong)})), (name, "another message")


@pytest.mark.parametrize("form", [grouped, sentences], ids=lambda f: f.__name__)
@pytest.mark.parametrize("judged", JUDGED[::3], ids=lambda c: c.id)
def test_a_verdict_taken_back_makes_any_form_wrong(judged: Case, form: Callable[[Verdicts], str]) -> None:
    verdicts = truth(judged)
    for name, (ok, message) in verdicts.items():
        back = f"{name} is refused: `{message or 'CUDA graphs not supported'}`." if ok else f"{name} starts."
        assert not right(judged, f"{form(verdicts)}\n\n{back}"), name
        hedge = form(verdicts).replace(name, f"probably {name}") if form is sentences else None
        assert hedge is None or not right(judged, hedge), name


# In words of several hands --------------------------------------------------------------------------------------------


def of(name: str) -> dict[str, str]:
    return {n: m for n, (_, m) in truth(CASES[name]).items()}


LAYERS, UB, OFF = of("which-bridge-layers")["0.6.2"], of("env-nccl-ub-releases"), of("review-offloading-core-0-19")
FOUR = of("review-bridge-0-4")
REST = "\n".join(f'- {n[0]} raises "{m}"' for n, m in OFF.items() if m)


@pytest.mark.parametrize(
    ("name", "good", "text"),
    [
        ("which-bridge-layers", True, f"Every release but 0.6.2 accepts it. That one ends with `ValueError: {LAYERS}`"),
        ("which-bridge-layers", True, f"**Works:** 0.3.1 through 0.5.1\n\n**Does not work:** 0.6.2, for \"{LAYERS}\""),
        ("which-bridge-layers", True, f"0.3.1, 0.4.2 and 0.5.1 take it. 0.6.2 refuses it, with\n\n> {LAYERS}"),
        ("which-bridge-layers", False, f"Every release accepts it, 0.6.2 included; it only warns `{LAYERS}`"),
        ("which-bridge-layers", False, f"0.3.1 and 0.4.2 accept it. 0.5.1 and 0.6.2 refuse it: `{LAYERS}`"),
        ("which-bridge-layers", False, f"0.3.1 and 0.4.2 accept it. 0.6.2 refuses it: `{LAYERS}`"),
        ("which-bridge-layers", False, f"0.3.1, 0.4.2 and perhaps 0.5.1 accept it. 0.6.2 refuses it: `{LAYERS}`"),
        ("env-nccl-ub-releases", True, f"0.5.1 and 0.6.2 are fine. On 0.3.1 you get\n\n```\n{UB['0.3.1']}\n```\n\n"
         "and 0.4.2 stops with the same message."),
        ("env-nccl-ub-releases", True, f"The two old ones stop: 0.3.1 with `{UB['0.3.1']}` "
         f"and 0.4.2 with `{UB['0.4.2']}`. The other two start."),
        ("env-nccl-ub-releases", False, f"Only 0.6.2 is fine. On the others you get\n\n```\n{UB['0.3.1']}\n```\n"),
        ("review-offloading-core-0-19", True, f"c is the only one that constructs. The rest:\n\n{REST}"),
        ("review-offloading-core-0-19", True,
         "| | " + " | ".join(n[0] for n in OFF) + " |\n" + "|--" * 6 + "|\n| constructs | "
         + " | ".join("no" if m else "yes" for m in OFF.values()) + " |\n| text | " + " | ".join(OFF.values()) + " |"),
        ("review-offloading-core-0-19", False, f"c and d construct. The rest:\n\n{REST}"),
        ("review-bridge-0-4", True, "\n".join(f"{n.upper()[0]}. {'❌ ' + m if m else '✅'}" for n, m in FOUR.items())),
        ("review-bridge-0-4", True, "Passing: `c.yaml`, `d.yaml`\n\nNot passing:\n\n"
         + "\n".join(f"* `{n}` - {m}" for n, m in FOUR.items() if m)),
    ],
)  # fmt: skip
def test_people_say_it_as_they_like(name: str, good: bool, text: str) -> None:
    assert right(CASES[name], text) is good


Values = dict[str, str]


def in_words(value: str) -> str:
    match = re.fullmatch(r"(?:(\w+) )?\[(.*)\]", value)
    if not match:
        return value
    modules = " and ".join(m.strip() for m in match[2].split(",") if m.strip())
    return f"{match[1] or ''} {'over ' + modules if modules else 'without any module'}".strip()


def in_sentences(values: Values) -> str:
    return "This is what I find. " + " ".join(f"With {n} it is {in_words(v)}." for n, v in values.items())


def in_groups(values: Values) -> str:
    together: dict[str, list[str]] = {}
    for name, value in values.items():
        together.setdefault(value, []).append(name.removesuffix(".yaml"))
    return "All of them:\n\n" + "\n".join(f"- {' and '.join(n)}: {in_words(v)}" for v, n in together.items())


VALUED = [
    c for c in CASES.values()
    if all(isinstance(k, Line) and not k.verdict and not is_word(k.name) for k in c.checks.require)
]  # fmt: skip


@pytest.mark.parametrize("write", [in_sentences, in_groups], ids=lambda f: f.__name__)
@pytest.mark.parametrize("valued", VALUED, ids=lambda c: c.id)
def test_values_are_found_in_any_form(valued: Case, write: Callable[[Values], str]) -> None:
    names = tuple(k.name for k in valued.checks.require if isinstance(k, Line))
    values = {s.name: s.value for s in lines(LABELLED[valued.id].right[0].whole, names) if s.closing}
    assert right(valued, write(values)), write(values)
    for name, value in values.items():
        assert not right(valued, write({n: v for n, v in values.items() if n != name})), f"without {name}"
        check = next(k for k in valued.checks.require if isinstance(k, Line) and k.name == name)
        for other in {v for v in values.values() if v != value and not judge(check, v, "")[0]}:
            assert not right(valued, write({**values, name: other})), (name, other)


# Files ---------------------------------------------------------------------------------------------------------------

FILE = "model:\n  num_layers: 4\n  cuda_graph_impl: local\n  cuda_graph_scope: [attn]\nrng:\n  seed: 1\n"


@pytest.mark.parametrize(
    "diff",
    [
        "@@ -3,2 +3,1 @@\n-  cuda_graph_impl: local\n-  cuda_graph_scope: [attn]\n+  cuda_graph_impl: none",
        "-cuda_graph_impl: local\n-cuda_graph_scope: [attn]\n+cuda_graph_impl: none",
        "--- a/run.yaml\n+++ b/run.yaml\n@@\n   num_layers: 4\n-  cuda_graph_impl: local\n+  cuda_graph_impl: none\n"
        "-  cuda_graph_scope: [attn]\n rng:",
    ],
)
def test_a_diff_is_laid_over_the_file(diff: str) -> None:
    wanted = "model:\n  num_layers: 4\n  cuda_graph_impl: none\nrng:\n  seed: 1\n"
    assert changed(f"The change:\n\n```diff\n{diff}\n```", FILE) == wanted


def test_a_diff_of_another_file_is_none() -> None:
    assert changed("```diff\n-cuda_graph_impl: transformer_engine\n+cuda_graph_impl: none\n```", FILE) is None


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("take the file as it is", True), ("no change", True), ("unchanged", True), ("Keep run.yaml as given.", True),
        ("The file cannot stay unchanged.", False), ("All other lines stay unchanged.", False),
        ("Perhaps no change is needed.", False), ("Set it to none.", False),
    ],
)  # fmt: skip
def test_a_file_that_stays_is_the_question_s(text: str, same: bool) -> None:
    assert (changed(text, FILE) == FILE) is same


def test_each_release_has_its_own_part_of_an_answer() -> None:
    parts = about(
        "Both lose the old switch.\n\n## 0.16.1\n\nleave it\n\n## 0.19.2\n\n```diff\n-x: 1\n+x: 2\n```\n\n"
        "All the rest stays.",
        ("0.16.1", "0.19.2"),
    )
    assert "leave it" in parts["0.16.1"]
    assert "+x: 2" in parts["0.19.2"]
    assert "old switch" in parts[""]
    assert "rest stays" in parts[""]


def test_a_table_or_list_of_changes_is_laid_over_the_file() -> None:
    wanted = "model:\n  num_layers: 4\n  cuda_graph_impl: full_iteration\nrng:\n  seed: 1\n"
    table = (
        "| key | old | new |\n|---|---|---|\n| `cuda_graph_impl` | local | full_iteration |\n"
        "| cuda_graph_scope | [attn] | - |"
    )
    listed = "- `cuda_graph_impl`: local -> full_iteration\n- delete `cuda_graph_scope`"
    assert changed(table, FILE) == changed(listed, FILE) == wanted
    assert changed(table.replace("| local", "| none"), FILE) is None  # it is not what stands there


Pairs = list[tuple[str, str | None, str | None]]


def pairs(old: str, new: str) -> Pairs:
    one, other = (
        {
            k.strip(): v.partition(" #")[0].strip()
            for k, _, v in (r.partition(":") for r in text.split("\n"))
            if v.strip()
        }
        for text in (old, new)
    )
    return [(k, one.get(k), other.get(k)) for k in dict.fromkeys([*one, *other]) if one.get(k) != other.get(k)]


def as_table(edits: Pairs) -> str:
    rows = [f"| `{k}` | {o or 'not there'} | {n or '(removed)'} |" for k, o, n in edits]
    return "\n".join(["| key | present | wanted |", "|:-|:-|:-|", *rows])


def as_list(edits: Pairs) -> str:
    return "\n".join(
        f"1. `{k}`: `{o}` => `{n}`" if o and n else f"1. drop the line `{k}`" if o else f"1. add `{k}: {n}`"
        for k, o, n in edits
    )


def described(case: Case, form: Callable[[Pairs], str], without: str = "") -> str:
    """The truth of a case with its file told by its changes, without those of some fields."""
    checks = case.checks
    assert checks.config
    file = (EVALS / checks.config).read_text()
    said = [
        f"{k.name}: {k.verdict} - {k.messages[0]}" if k.messages else f"{k.name}: {k.verdict}"
        for k in checks.require
        if isinstance(k, Line)
    ]
    whole = plain(LABELLED[case.id].right[0].whole)
    for label in dict.fromkeys(k.block for k in checks.require if isinstance(k, Config)):
        edits = pairs(file, code(whole, None if label == "last" else label)[0])
        edits = [e for e in edits if not re.fullmatch(without, e[0])]
        head = "What changes:" if label == "last" else f"**{label}**"
        said += ["", head, "", form(edits) if edits else "Nothing changes."]
    return "\n".join(said)


TOLD = [
    c for c in CASES.values()
    if (c.checks.config or "").endswith(".yaml") and any(isinstance(k, Config) and k.block for k in c.checks.require)
    and all(isinstance(k, Config) or (isinstance(k, Line) and k.verdict) for k in c.checks.require)
]  # fmt: skip


@pytest.mark.parametrize("form", [as_table, as_list], ids=lambda f: f.__name__)
@pytest.mark.parametrize("told", TOLD, ids=lambda c: c.id)
def test_a_file_can_be_told_by_its_changes(told: Case, form: Callable[[Pairs], str]) -> None:
    text = described(told, form)
    assert right(told, text), text
    assert not right(told, described(told, form, without=".*"))
    if "=> `" in text and "`cuda_graph_impl`" in text:
        assert not right(told, described(told, form, without="cuda_graph_impl"))


# Words ---------------------------------------------------------------------------------------------------------------

QUESTION = (
    "`line` is the line of the log where it began, `rank` its global rank; `held` is how much memory the process held, "
    "`wanted` the size of the request that failed. mode is one of out_of_memory, time_out and data_error. End with "
    "these lines: `rank: N`, `line: N`, `mode: NAME`, `held: N MiB`, `wanted: N MiB`."
)
WORDS = ("rank", "line", "mode", "held", "wanted")


@pytest.mark.parametrize(
    "text",
    [
        "| | |\n|---|---|\n| where | rank 3, line 41 |\n| mode | `out_of_memory` |\n"
        "| memory of the process | 70 MiB |\n"
        "| failed request | 9 MiB |",
        "It is out_of_memory on rank 3, at line 41.\n\n- Size of the request: 9 MiB\n- Held: 70 MiB (of 80)",
        "- rank / line: rank 3, line 41\n- mode: not a time_out but out_of_memory\n- the process held: 70 MiB\n"
        "- request: 9 MiB",
    ],
)
def test_words_are_known_by_their_meaning(text: str) -> None:
    found = {name: {value for value, _ in values} for name, values in facts(text, QUESTION, WORDS).items()}
    assert found == {"rank": {"3"}, "line": {"41"}, "mode": {"out_of_memory"}, "held": {"70 MiB"}, "wanted": {"9 MiB"}}


def test_two_modes_are_two_values() -> None:
    found = facts("It is out_of_memory, or else a time_out.", QUESTION, WORDS)
    assert {value for value, _ in found["mode"]} == {"out_of_memory", "time_out"}


def test_long_answers_are_read_in_time() -> None:
    text = " ".join(f"{n} starts, {n} is refused (`{MOE}`), and the others stop;" for n in FILES * 400)
    began = time.process_time()
    statements(text, FILES, (MOE, FULL))
    statements(text.replace(";", "\n"), FILES, (MOE, FULL))
    facts(text, QUESTION, WORDS)
    assert time.process_time() - began < 10  # minutes, when it grows with the square
