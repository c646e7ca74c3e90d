"""The recovered preprocessing, held to what the model's script made of the repository's own images when it was run."""

from __future__ import annotations

import json
import shutil

import numpy as np

from ....errors import SandboxError
from ....specs import Preprocessing
from ...proving.sandbox import read_left_arrays
from ...proving.verify import Recorded
from ...reading.source import walk
from ..migration import Migration
from ..scripts.arguments import IMAGE_SUFFIXES

_MOST_FILES, _MOST_BYTES = 200, 64 * 2**20
"""Of more images than that, nobody knows without trying for long which one a row is made of."""
_ENDINGS = (*IMAGE_SUFFIXES, ".gif", ".tif", ".tiff", ".jfif")
_ROWS = 32
_LEVELS = 2.0
"""Of 255, on average over a row: decoders of JPEG differ by less, another filter or order of channels by more."""
# Written as text because the migrator imports nothing of the runtime; an image that cannot be read has no row.
_OWN_ROWS = """
import io, json, sys
from pathlib import Path
import numpy as np
from PIL import Image
from headrace.runtime.images.preprocessing import image_to_row
request = json.loads(Path(sys.argv[1]).read_text())
rows = {}
for name in request["images"]:
    data = (Path(request["folder"]) / name).read_bytes()
    try:
        plain = Image.open(io.BytesIO(data)).mode in ("RGB", "L")
        rows[name] = np.append(image_to_row(data, request["steps"]).ravel(), plain)
    except Exception:
        continue
np.savez(request["out"], **rows)
"""


def remark_own_images(migration: Migration, made: Preprocessing, recorded: Recorded, where: str) -> None:
    """Say where the script fed its model something else than the package makes of any image file of the repository.

    An image with transparency, a palette or 16 bits is not counted: that it is converted otherwise is found on probes.
    """
    rows = recorded.inputs[np.linspace(0, len(recorded.inputs) - 1, min(len(recorded.inputs), _ROWS)).round().astype(int)]
    files = _own_rows(migration, made)
    fitting = {name: row for name, row in files.items() if row.size - 1 == rows[0].size}
    if not fitting:
        return
    names, per_level = list(fitting), min(abs(made.scale / std) for std in made.std)
    known = np.stack([fitting[name] for name in names])
    apart = np.stack([np.abs(known[:, :-1] - row.reshape(1, -1)).mean(1) / per_level for row in rows])
    unlike = apart.min(1) > _LEVELS
    others = sum(not plain and (apart[:, at] > _LEVELS).all() for at, plain in enumerate(known[:, -1]))
    count = int(unlike.sum()) - others
    if count <= 0 or unlike.all():  # where it takes no row from these files, it has its images elsewhere
        return
    worst = int(apart.min(1).argmax())
    nearest = names[int(apart[worst].argmin())]
    message = (
        f"{count} of {len(rows)} images that the script fed its model are not what the package makes of any image here "
        f"(nearest: {nearest}, off by {apart[worst].min():.0f} of 255 levels on average): it prepares some otherwise, by their "
        "names or by what came before, or calls its model with other views of them"
    )
    migration.remark("PS509", message, "warning", where)


def _own_rows(migration: Migration, made: Preprocessing) -> dict[str, np.ndarray]:
    """What the runtime makes of each image of the repository, by its path, with whether Pillow reads it as plain color or gray;
    none where there are too many."""
    root = migration.surveyed.root
    endings = (*_ENDINGS, *(ending.upper() for ending in _ENDINGS))
    paths = [path for path in walk(root, endings) if not (root / path).is_symlink()]
    if not 0 < len(paths) <= _MOST_FILES or sum((root / path).stat().st_size for path in paths) > _MOST_BYTES:
        return {}
    sandbox = migration.sandbox
    readable, writable = sandbox.readable_folder(), sandbox.writable_folder()
    copies = {f"image_{number}": path for number, path in enumerate(paths)}
    for name, path in copies.items():
        shutil.copyfile(root / path, readable / name)
    request, out = readable / "request.json", writable / "own.npz"
    asked = {"steps": made.to_json()["steps"], "images": list(copies), "folder": str(readable), "out": str(out)}
    request.write_text(json.dumps(asked), encoding="utf-8")
    done = sandbox.run(["-P", "-c", _OWN_ROWS, str(request)], writable)
    try:
        return {copies[name]: row for name, row in read_left_arrays(out).items()} if done.ok else {}
    except SandboxError:
        return {}
