"""A PyTorch repository, migrated to graph mode and proved.

The package and the public function share a name, so the module itself is callable:
`headrace.migrate("path/to/repository", out="build/migrated")` is `headrace.migrate.api.migrate`.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _CallablePackage(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from ..extras import require

        require("headrace.migrate", "migrate")
        from .api import migrate

        return migrate(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
