"""Where the cases and labelled answers are, and how they are read."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import EnvironmentLacks, InputError
from .model import Answer, Case, Labelled

__all__ = ["folder", "load_answers", "load_cases", "load_labelled", "schema"]


def folder() -> Path:
    """The evals folder: beside the installed package, or in the checkout that the package is in.

    Raises:
        EnvironmentLacks: neither has it.
    """
    here = Path(__file__).resolve()
    for candidate in (here.parents[1] / "skill" / "evals", here.parents[3] / "evals"):
        if (candidate / "evals.json").is_file():
            return candidate
    raise EnvironmentLacks("this installation has no evals/evals.json.", hint="Give the cases with --cases.")


def _read(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as exc:
        raise InputError(f"can't be read: {exc.strerror or exc}.", path=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text.", path=str(path)) from None


def _json(text: str, path: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InputError(f"is not JSON: {exc}.", path=path, line=line or getattr(exc, "lineno", None)) from None


@lru_cache(maxsize=8)
def load_cases(path: str | None = None) -> dict[str, Case]:
    """The cases by id.

    Raises:
        InputError: the file can't be read or is not in the format.
    """
    from pydantic import TypeAdapter, ValidationError

    source = path or str(folder() / "evals.json")
    data = _json(_read(source), source)
    try:
        cases = TypeAdapter(list[Case]).validate_python(data)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {first['msg']}.", path=source, hint="See evals/schema/evals.schema.json.") from None
    return {case.id: case for case in cases}


def load_labelled(path: str | os.PathLike[str]) -> dict[str, Labelled]:
    """The answers that cases ship with, by case, from the folder `evals/answers`.

    Raises:
        InputError: a file can't be read or is not in the format.
    """
    from pydantic import ValidationError

    found = {}
    for file in sorted(Path(path).glob("*.json")):
        try:
            labelled = Labelled.model_validate(_json(_read(file), str(file)))
        except ValidationError as exc:
            first = exc.errors()[0]
            raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.", path=str(file)) from None
        found[labelled.id] = labelled
    return found


def load_answers(path: str | os.PathLike[str]) -> list[Answer]:
    """Recorded answers from a JSON file (a list, or an object with `answers`), JSON lines, or a folder of these.

    Fields beside `answers` (model, date, arm, answerer) hold for every answer of the file.

    Raises:
        InputError: something can't be read, or is not an answer.
    """
    source = Path(path)
    if source.is_dir():
        files = sorted(f for f in source.rglob("*") if f.suffix in (".json", ".jsonl"))
        found = [answer for file in files for answer in load_answers(file)]
        if not found:
            raise InputError("holds no recorded answers.", path=str(path), hint="Expected .json or .jsonl files.")
        return found
    text = _read(source)
    shared: dict[str, Any] = {}
    rows: list[tuple[Any, int | None]]
    if source.suffix == ".jsonl":
        rows = [(_json(line, str(path), n), n) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    else:
        data = _json(text, str(path))
        if isinstance(data, dict):
            shared = {k: v for k, v in data.items() if k in Answer.model_fields}
            data = data.get("answers")
        if not isinstance(data, list):
            raise InputError("holds no list of answers.", path=str(path), hint='Expected [{"id": ..., "answer": ...}].')
        rows = [(row, None) for row in data]
    return [_answer({**shared, **row} if isinstance(row, dict) else row, str(path), n) for row, n in rows]


def _answer(row: Any, path: str, line: int | None) -> Answer:
    from pydantic import ValidationError

    try:
        return Answer.model_validate(row)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"])) or "answer"
        raise InputError(f"{where}: {first['msg']}.", path=path, line=line) from None


def schema(what: str = "cases") -> dict[str, Any]:
    """The JSON Schema of evals.json ("cases"), a case's labelled answers ("labelled"), or recorded ones ("answers")."""
    from pydantic import TypeAdapter

    kinds: dict[str, Any] = {"cases": list[Case], "labelled": Labelled, "answers": list[Answer]}
    made = TypeAdapter(kinds[what]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
