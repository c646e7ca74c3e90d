"""Other servers of the same model, found in a folder such as examples/peers: a file per service, and peers.json beside them.

    {"environments": "../../build/peers", "install": "make peers", "services": {"litserve": {"path": "/predict", ...}}}

`environments` holds a virtual environment per service, `install` is the command that makes them; `path`, `encoding` and `field`
say where and how the service takes an image (see `Service`). NAME_service.py is started as

    ENVIRONMENTS/NAME/bin/python NAME_service.py --model MODELS/NAME --session SESSION --ready-file FILE
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from ...errors import BenchError
from .load.messages import Encoding
from .servers import Service

__all__ = ["SESSIONS", "peers_in"]

MANIFEST = "peers.json"
SESSIONS = ("onnxruntime", "headrace")


def peers_in(
    folder: Path, model: Path, *, session: str = "onnxruntime", names: Sequence[str] | None = None
) -> tuple[tuple[Service, ...], dict[str, str]]:
    """The services that are installed, and for the others why they are left out. `names` are those wanted; by default all.

    `model` is the model's folder. With the session "onnxruntime" they run its fp32 graph as that comes, with "headrace" what
    Headrace compiled, so that the server alone differs. Raises BenchError where the folder does not say what is in it.
    """
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        services, install = dict(content["services"]), str(content["install"])
        environments = folder / str(content["environments"])
        for service in services.values():
            if service["encoding"] not in get_args(Encoding):
                raise ValueError(f"no encoding {service['encoding']!r}")
            str(service["path"]), str(service["field"])
    except OSError as error:
        raise BenchError(
            f"{folder / MANIFEST} cannot be read ({error.strerror}); give --peers-from DIR, such as examples/peers"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{folder / MANIFEST} does not say which services there are: {error!r}") from error
    wanted = list(services) if names is None else list(names)
    if unknown := sorted(set(wanted) - set(services)):
        raise BenchError(f"{folder} has no service {unknown[0]!r}; it has {', '.join(services)}")
    found, absent = [], {}
    for name in wanted:
        python = environments / name / "bin" / "python"
        if not python.exists():
            absent[name] = f"it is not installed; `{install}` does that"
            continue
        script = folder.resolve() / f"{name}_service.py"
        command = (str(python.absolute()), str(script), "--model", str(model.resolve()), "--session", session)
        service = services[name]
        found.append(
            Service(
                name=name,
                command=(*command, "--ready-file", "{ready}"),
                path=service["path"],
                encoding=service["encoding"],
                field=service["field"],
            )
        )
    return tuple(found), absent
