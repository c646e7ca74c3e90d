"""A module that is imported under another name as well."""

import importlib
import importlib.abc
import importlib.machinery
import types


class Alias(importlib.abc.Loader):
    """Another name of the module `of`, which keeps the specification of its own."""

    def __init__(self, of: str) -> None:
        self._of = of

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._of)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec
