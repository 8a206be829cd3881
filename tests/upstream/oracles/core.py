"""Puts configurations to the real `TransformerConfig` of a megatron-core release, on a CPU.

    python core.py --packages DIR --core 0.19.2 < cases.jsonl > verdicts.jsonl

A case is {"config": {field: value}, "env": {...}, "te": "2.14.0" or null}. The real __post_init__ runs unmodified;
what surrounds it is told in `stubs`: the Transformer Engine version is set instead of found.
"""

from __future__ import annotations

import common
import stubs


def make():
    with stubs.no_extension_builds():
        from megatron.core.transformer.transformer_config import TransformerConfig

        engine, values = stubs.TransformerEngine(), common.Values()

    def judge(case):
        engine.set(case.get("te"))
        verdict = {"ok": True, "stage": None, "exception": None, "message": None, "warnings": [], "normalized": None}
        with common.environment(case.get("env")), common.graph_warnings(verdict["warnings"]):
            try:
                config = TransformerConfig(**values.decode_all(case["config"]))
            except Exception as exc:
                return {**verdict, "ok": False, "stage": "construct", **common.raised(exc)}
        return {**verdict, "normalized": values.normalized(config)}

    return judge


if __name__ == "__main__":
    common.serve(__doc__, make)
