"""What the server reports to whoever started it: lines on stdout, and a file with its ports."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .config import ServeConfig

_PATHS = {"metrics": "/metrics"}


def report(line: str) -> None:
    """One line on stdout, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serving_line(models: Iterable[str], config: ServeConfig, ports: Mapping[str, int]) -> str:
    """Which models are served where. `ports` has "http" first."""
    host = f"[{config.addresses.host}]" if ":" in config.addresses.host else config.addresses.host
    scheme = "http" if config.security.tls_cert is None else "https"
    schemes = {"http": f"{scheme}://", "metrics": f"metrics {scheme}://", "grpc": "gRPC "}
    where = [f"{schemes[name]}{host}:{port}{_PATHS.get(name, '')}" for name, port in ports.items()]
    names = ", ".join(dict.fromkeys(models)) or "no model yet"
    return f"serving {names} at {', '.join(where)}; open {where[0]}/ in a browser"


def announce(models: Iterable[str], config: ServeConfig, ports: Mapping[str, int]) -> None:
    """That these models are served, as a line and in the file that was asked for."""
    report(serving_line(models, config, ports))
    if config.addresses.ready_file is not None:
        write_ready(config.addresses.ready_file, {**ports, "pid": os.getpid()})


def write_ready(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all, as somebody waits for this file to appear."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(dict(content)), encoding="utf-8")
    aside.replace(path)
