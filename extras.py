"""What pyproject.toml leaves to extras, and the one sentence that says so where it is not installed.

This module imports nothing of the package but its errors, and none of the libraries that it looks for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from .errors import MissingExtraError

__all__ = ["LIBRARIES", "require"]

# By extra, the libraries that nothing of it works without; a test compares them with pyproject.toml.
# What runs a model is not among them: backends say themselves what they lack, and one of several will do.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "serve": (
        *(
            "cachetools",
            "fastapi",
            "google.protobuf",
            "grpc",
            "grpc_health",
            "grpc_reflection",
            "httptools",
            "multipart",
            "numpy",
            "PIL",
        ),
        *("prometheus_client", "psutil", "uvicorn", "uvloop"),
    ),
    "migrate": ("google.protobuf", "numpy", "onnx", "onnxscript", "PIL", "psutil", "torch"),
    "bench": ("matplotlib",),
    "classify": ("pyarrow", "spdl"),
    "ray": ("fsspec", "pyarrow", "ray", "spdl"),
    "telemetry": ("opentelemetry.exporter", "opentelemetry.sdk"),
}


def require(what: str, *extras: str) -> None:
    """Raise MissingExtraError unless the libraries of these extras, which `what` ("headrace tune") needs, are installed.

    Nothing is imported for that but the packages that a library is part of.
    """
    for extra in extras:
        if missing := [name for name in LIBRARIES[extra] if not _installed(name)]:
            verb = "is" if len(missing) == 1 else "are"
            raise MissingExtraError(
                f"{what} needs the extra {extra}: pip install 'headrace[{extra}]' ({', '.join(missing)} {verb} not installed)"
            )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it would be part of
        return False
