"""Stand-ins that let the real packages be imported on a machine without a GPU.

Nothing of `megatron` is replaced here. A stand-in module answers every attribute with a fresh empty class, which
can be called, subclassed, used as a decorator and joined with `|`; importlib.metadata reports the versions given.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
import types
from contextlib import contextmanager
from unittest import mock


class _AnyClass(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _any_class(name)
        setattr(cls, name, made)
        return made

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())


def _any_class(name):
    def call(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def getattribute(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _any_class(attribute)()

    body = {
        "__init__": lambda self, *args, **kwargs: None,
        "__call__": call,
        "__getattr__": getattribute,
        "__module__": "stub",
        "__class_getitem__": classmethod(lambda cls, item: cls),
    }
    return _AnyClass(name, (), body)


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _any_class(name)
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, versions):
        self.versions = versions

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.versions or name in self.versions or self._below(name):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def _below(self, name):
        return any(name.startswith(root + ".") for root in self.versions)

    def create_module(self, spec):
        module = _Module(spec.name)
        module.__version__ = self.versions.get(spec.name.partition(".")[0], "0")
        return module

    def exec_module(self, module):
        pass


def install(versions):
    """Answer imports of these top packages (name -> version to report) with stand-ins."""
    sys.meta_path.insert(0, _Finder(dict(versions)))
    real = importlib.metadata.version

    def version(name):
        return versions.get(name.replace("-", "_")) or real(name)

    importlib.metadata.version = version


@contextmanager
def no_extension_builds():
    """megatron-core 0.15 compiles a CUDA extension when it is imported; its own `except RuntimeError` goes on."""
    import torch.utils.cpp_extension

    def refuse(*args, **kwargs):
        raise RuntimeError("no CUDA compiler here")

    with mock.patch.object(torch.utils.cpp_extension, "load_inline", refuse):
        yield


# What megatron-core imports from Transformer Engine and holds as None without it.
_FUSED_KERNELS = {
    "megatron.core.transformer.moe.moe_utils": (
        "fused_permute", "fused_permute_with_probs", "fused_permute_and_pad_with_probs", "fused_unpermute",
        "fused_sort_chunks_by_index", "fused_sort_chunks_by_index_with_probs",
        "fused_compute_score_for_moe_aux_loss", "fused_moe_aux_loss", "fused_topk_with_score_function",
    ),
    "megatron.core.models.common.embeddings.rope_utils": (
        "fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd",
    ),
}  # fmt: skip


class TransformerEngine:
    """Sets the Transformer Engine version that the real `megatron.core.utils` finds.

    None is absent. What megatron-core holds as None only because the package can't be imported here (fused
    kernels) becomes a placeholder while a version is set, so that a check for it goes as on a real machine.
    """

    def __init__(self):
        import importlib

        import megatron.core.utils

        self.utils = megatron.core.utils
        modules = {importlib.import_module(name): names for name, names in _FUSED_KERNELS.items()}
        self.found = {(m, n): getattr(m, n) for m, names in modules.items() for n in names if hasattr(m, n)}

    def set(self, version):
        from packaging.version import Version

        self.utils._te_version = None if version is None else Version(version)
        for (module, name), value in self.found.items():
            setattr(module, name, value if value is not None or version is None else object())
