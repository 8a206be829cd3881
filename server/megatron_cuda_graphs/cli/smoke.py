"""`smoke`: a real capture and replay, and the records of earlier ones."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, get_args

from ..errors import InputError
from ..files import read_file
from ._context import add_format
from ._terminal import dump, err, out, progress_bar, style

if TYPE_CHECKING:
    from ..smoke.model import Progress, SmokeReport

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs smoke
  megatron-cuda-graphs smoke --preset qwen3-30b-a3b --tier megatron-te --modules attn,moe_router,moe_preprocess
  megatron-cuda-graphs smoke --config run.yaml --sweep
  megatron-cuda-graphs smoke list                # the presets
  megatron-cuda-graphs smoke show last --html report.html

"""
# Options that are not a request's field under its own name.
_OWN = {"config", "modules", "overrides", "env", "tier"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments: one option for each field of SmokeRequest."""
    from ..smoke.model import TIERS, SmokeRequest

    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "show", "list"),
        default="run",
        help="run a workload (default), show a record of an earlier run, list the presets",
    )
    parser.add_argument("--list", action="store_true", dest="presets", help="list the presets, as list does")
    parser.add_argument("record", nargs="?", metavar="RECORD", help="for show: a record's file or id, or last")
    parser.add_argument("--tier", choices=("auto", *TIERS), help=SmokeRequest.model_fields["tier"].description)
    parser.add_argument("--config", metavar="FILE", help=SmokeRequest.model_fields["config"].description)
    parser.add_argument("--modules", metavar="A,B", help=SmokeRequest.model_fields["modules"].description)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="overrides",
        help=SmokeRequest.model_fields["overrides"].description,
    )  # fmt: skip
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help=SmokeRequest.model_fields["env"].description
    )
    for name, field in SmokeRequest.model_fields.items():
        if name in _OWN:
            continue
        kinds = {k for k in (get_args(field.annotation) or (field.annotation,)) if k is not type(None)}
        option = f"--{name.replace('_', '-')}"
        if field.annotation is bool:
            parser.add_argument(option, action="store_true", default=None, help=field.description)
        elif all(isinstance(k, str) for k in kinds):
            parser.add_argument(option, choices=get_args(field.annotation), help=field.description)
        else:
            kind = next((k for k in (int, float) if k in kinds), str)
            parser.add_argument(option, type=kind, metavar=kind.__name__.upper(), help=field.description)
    parser.add_argument("--python", metavar="FILE", help="the interpreter that has torch; default: this one")
    parser.add_argument("--html", metavar="FILE", help="also write the record as a page")
    parser.add_argument("--svg", metavar="FILE", help="also write the record as a picture")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if args.action == "list" or args.presets:
        return _list(args.format)
    if args.record and args.action != "show":
        raise InputError(f"unexpected {args.record!r}; options give the workload.")
    if args.action == "show":
        from ..smoke.record import find, load

        report = load(find(args.record or "last"))
    else:
        from ..smoke import run_capture_smoke

        bar = progress_bar()

        def on_progress(at: Progress) -> None:
            if bar is not None:
                bar(at.fraction, f"{at.phase} {at.message}".strip())

        report = run_capture_smoke(_request(args), on_progress=on_progress, python=args.python)
        if bar is not None:
            bar(1.0, "")
    _show(args, report)
    return report.exit_code if args.action == "run" else 0


def _request(args: argparse.Namespace) -> dict[str, Any]:
    from ..smoke.model import SmokeRequest

    request = {n: v for n in SmokeRequest.model_fields if n not in _OWN and (v := getattr(args, n)) is not None}
    if args.tier is not None:
        request["tier"] = args.tier
    if args.config is not None:
        request["config"] = read_file(args.config).decode("utf-8", "replace")
    if args.modules is not None:
        request["modules"] = [m.strip() for m in args.modules.split(",") if m.strip()]
    for key in ("overrides", "env"):
        pairs = {}
        for item in getattr(args, key):
            name, equals, value = item.partition("=")
            if not equals:
                raise InputError(f"{item!r} is not NAME=VALUE.")
            pairs[name] = _value(value) if key == "overrides" else value
        if pairs:
            request[key] = pairs
    return request


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _list(kind: str) -> int:
    from ..smoke.presets import presets

    if kind == "json":
        dump(presets())
    else:
        width = max(map(len, presets()))
        out("\n".join(f"{name:<{width}}  {p['title']}" for name, p in presets().items()))
    return 0


def _show(args: argparse.Namespace, report: SmokeReport) -> None:
    if args.format == "json":
        dump(report.model_dump(mode="json"))
    else:
        from ..render.smoke import text

        out(text(report, style()))
    for path, kind in ((args.html, "html"), (args.svg, "svg")):
        if path:
            from ..render import smoke
            from ._write import replace

            replace(path, getattr(smoke, kind)(report))
            err(f"{path}: written.")
