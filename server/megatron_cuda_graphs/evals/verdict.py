"""Yes-or-no statements of an answer: is a configuration accepted, are graphs to blame, does something happen."""

from __future__ import annotations

import re
from typing import Literal

from .text import Sentence, plain, sentences

__all__ = ["About", "polarity", "verdict"]

About = Literal["accepted", "graph"]

_REJECT = re.compile(
    r"\b(?:reject(?:s|ed|ion)?|refus(?:es|ed|al)|(?:will|would|does|do|did|can|could|is|are) ?(?:not|"
    r"n't) (?:be )?(?:start\w*|run|construct\w*|validat\w*|pass\w*|build|built|"
    r"work|accept\w*|valid|get (?:past|through|that far)|load|launch|survive|come up|ok|okay|fine|allowed|"
    r"supported|make it)|"
    r"won't (?:start|run|construct|validate|pass|build|work|get|load|launch|accept|survive|come up|make it)|"
    r"doesn't (?:start|run|construct|validate|pass|build|work|get|load|launch|accept|survive|come up|make it)|"
    r"can't (?:start|run|construct|validate|pass|build|work|launch)|cannot (?:start|run|construct|validate|pass|"
    r"build|work|launch|be (?:used|constructed|combined))|isn't (?:valid|accepted|ok|fine)|"
    r"fail(?:s|ed|ure|ing)?|rais(?:es|ed|ing)|throws?|threw|crash(?:es|ed)?|assert(?:s|ed)|invalid|illegal|dies|"
    r"died|blows up|aborts?|errors? out|stops? (?:with|at|in|before|because)|breaks?|broken|"
    r"unusable|dead on arrival|\w*Error\b|no-go|trips?|hits? (?:the|an?) (?:assert\w*|check|guard))\b",
    re.IGNORECASE,
)
_ACCEPT = re.compile(
    r"\b(?:accept(?:s|ed|able)|valid(?!at)|(?:starts?|runs?|constructs?|validates?|passes|loads?|launches|"
    r"builds?|works|trains?)(?: (?:up|through|cleanly|fine|ok|okay|as is|as it is|unchanged|without (?:error|"
    r"complaint|an error|a word)))?|"
    r"no errors?|nothing (?:is )?raise[sd]?|goes? through|gets? through|does not (?:raise|fail|crash)|"
    r"doesn't (?:raise|fail|crash)|will not (?:raise|fail)|won't (?:raise|fail)|fine|legal|ok(?:ay)?|"
    r"clean(?:ly)?|"
    r"comes? up|takes it|not (?:rejected|refused)|survives?)\b",
    re.IGNORECASE,
)
_NOT_GRAPH = re.compile(
    r"(?:(?:\b(?:not|never|nothing|no)|n't|cannot)\b[^.;:]{0,40}\b(?:CUDA[- ]?)?graphs?\b|"
    r"(?:CUDA[- ]?)?graphs?\b[^.;:,]{0,40}\b(?:innocent|not (?:to blame|the (?:cause|culprit|problem|reason|"
    r"issue)|involved|at fault|responsible|related|implicated)|"
    r"(?:are|is|were|was)(?: not|n't) (?:to blame|the|involved|at fault|responsible|related|implicated|what|"
    r"why)|unrelated|irrelevant|bystanders?|(?:have|has|had) nothing to do|play(?:s|ed)? no|a red herring|"
    r"beside the point|incidental|exonerated|off the hook|cleared)|"
    r"unrelated to (?:the )?(?:CUDA[- ]?)?graphs?|nothing to do with (?:the |CUDA )?(?:CUDA[- ]?)?graphs?|"
    r"independent of (?:the )?(?:CUDA[- ]?)?graphs?|not_cuda_graph\w*|ordinary (?:data|out[- ]of[- ]memory|OOM|"
    r"Python|loader|I/O|failure|error|host)|regardless of (?:the )?(?:CUDA[- ]?)?graphs?|"
    r"with or without (?:CUDA[- ]?)?graphs?)",
    re.IGNORECASE,
)
_IS_GRAPH = re.compile(
    r"\bcuda_graph_failure\b|\b(?:is|was|it's|yes)\b[^.;]{0,25}\b(?:a|the|an?) (?:genuine |real |"
    r"true )?(?:CUDA[- ]?)?graphs?"
    r"(?: \(?(?:capture|replay)\)?)?[- ](?:failure|problem|issue|bug|error|related)|"
    r"(?:CUDA[- ]?)?graphs? (?:capture|replay) (?:failed|failure|broke|fails|died|was invalidated)|"
    r"\b(?:because of|due to|caused by|blame)\b[^.;]{0,20}\b(?:CUDA[- ]?)?(?:graphs?|capture|replay)\b|"
    r"\bgraphs?(?: capture| replay)? (?:are|is) (?:to blame|the (?:cause|culprit|problem)|at fault|responsible)",
    re.IGNORECASE,
)
_YES = re.compile(
    r"^\W*(?:(?:yes|yep|correct|right|indeed|true)\b|(?:it|they|this|that) (?:does|do|will|is)(?:\W*$|[.:,;-]))",
    re.IGNORECASE,
)
_NO = re.compile(
    r"^\W*(?:(?:it|they|this|that) (?:does|do|will|would|is|are)(?: not|n't)(?=\W*$|[.:,;-])|no|nope|"
    r"not (?:as is|as it stands|as written|on|with|in|quite|yet)|false|negative)\b",
    re.IGNORECASE,
)
_AFTERWARDS = re.compile(
    r"\b(?:with (?:that|this|these|those|the) (?:change|fix|edit|two|one|in place)\w*|after (?:that|this|"
    r"the (?:change|fix))|then it|once (?:that|this|you|it)|fixed|to make it|so that it|would then|"
    r"instead|if you|should you|had (?:it|you)|otherwise|alternatively|whereas on|on (?:older|newer|other) releases?|"
    r"to (?:get|make|have) (?:it|this|them)|the (?:smallest|minimal|least) (?:change|edit|fix))\b",
    re.IGNORECASE,
)


def polarity(text: str, about: About) -> bool | None:
    """What one sentence says: True for accepted or a graph failure, False for the opposite, None for neither."""
    if about == "graph":
        if _NOT_GRAPH.search(text):
            return False
        return True if _IS_GRAPH.search(text) else None
    reject, accept = _REJECT.search(text), _ACCEPT.search(text)
    # Of two words the first says it, unless it is a part of the other ("does not start").
    if reject and accept and reject.start() <= accept.start() < reject.end():
        accept = None
    elif reject and accept and accept.start() <= reject.start() < accept.end():
        reject = None
    if reject and (accept is None or reject.start() < accept.start()):
        return bool(_NEGATED.search(text[: reject.start()]))
    if accept:
        return not _NEGATED.search(text[: accept.start()])
    return None


_NEGATED = re.compile(
    r"(?:\b(?:not|never|no|nothing|neither|without|no longer|cannot|hardly|none of (?:them|these|the))|"
    r"n't)\b[^,;:.]{0,18}$",
    re.IGNORECASE,
)


def verdict(answer: str, about: About) -> tuple[bool | None, str]:
    """The answer's verdict and the sentence that gives it: the first sentence that commits itself.

    A leading yes or no counts for "accepted" questions, which ask whether something starts. What would hold after a
    change is passed over.
    """
    units: tuple[Sentence, ...] = sentences(plain(answer))
    for unit in units:
        text = unit.text
        if text.rstrip("* ").endswith("?"):
            continue
        text = re.sub(
            r"^\W*(?:\*\*)?(?:verdict|answer|result|short answer|tl;dr|conclusion|status|outcome)\W*[:-]\s*",
            "",
            text,
            flags=re.IGNORECASE,
        )
        if about == "accepted":
            if _NO.match(text):
                return False, unit.text
            if _YES.match(text):
                return True, unit.text
        elif _NO.match(text) and re.match(r"^\W*no\b", text, re.IGNORECASE):
            return False, unit.text
        elif _YES.match(text):
            return True, unit.text
        if about == "accepted" and _AFTERWARDS.search(text):
            head = _AFTERWARDS.split(text)[0]
            said = polarity(head, about) if len(head) > 15 else None
        else:
            said = polarity(text, about)
        if said is not None:
            return said, unit.text
    return None, ""
