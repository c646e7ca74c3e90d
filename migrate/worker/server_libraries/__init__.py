"""What model servers give to the classes that they call: one file for each library, for where that is not installed.

A script of the user's imports such a file by the library's own name, never as a part of this package. Every module below the
library's name is that one file, so each name stands where any part of the library has it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

from ..module_alias import Alias


class Finder(importlib.abc.MetaPathFinder):
    """To be asked last: what no installed library is. `wanted` hears of each that is asked for, and says whether it may be."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self.found: set[str] = set()
        """The names of the modules that it found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        library, _, part = fullname.partition(".")
        file = Path(__file__).with_name(f"{library}.py")
        if library == "__init__" or not file.is_file():
            return None
        own = getattr(sys.modules.get(library), "__file__", None) == str(file)
        if not (own if part else self._wanted(library)):
            return None
        self.found.add(fullname)
        if part:
            return importlib.machinery.ModuleSpec(fullname, Alias(library))
        return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=[])
