"""What serving needs beyond torch: which of it is missing here, and where a folder of packages or wheels brings it."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

# Imported by the server or by the load generator: the module, and the package that has it.
SERVING = {
    "PIL": "pillow", "cachetools": "cachetools", "fastapi": "fastapi", "google.protobuf": "protobuf", "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking", "grpc_reflection": "grpcio-reflection", "httptools": "httptools",
    "prometheus_client": "prometheus-client", "python_multipart": "python-multipart", "rich": "rich",
    "typer": "typer", "uvicorn": "uvicorn", "uvloop": "uvloop",
}  # fmt: skip
# Without these Pillow alone decodes.
FASTER = {"simplejpeg": "simplejpeg", "cykooz_resizer": "cykooz-resizer"}


def lacking(wanted: dict[str, str]) -> list[str]:
    """The packages whose modules cannot be found."""
    return [package for module, package in wanted.items() if not found(module)]


def found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def unpacked(folder: Path, into: Path) -> Path:
    """The folder itself, or `into` with the wheels unpacked that it holds: Python cannot import compiled modules from those."""
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        return folder
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
    return into
