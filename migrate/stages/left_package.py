"""What a worker left as a package, held to what a package of Headrace is: the user's code can write there too.

A package is served later, where no sandbox stands: by `headrace serve`, which opens code of trusted packages only, and by
Triton, which runs whatever a config names. So what is taken over has no configuration but what Headrace writes, and companions
have its own code alone.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
# The code of a decoder, which Triton's Python backend runs, and what it is a copy of.
DECODER = {
    "1/model.py": _PACKAGE / "runtime" / "artifact" / "decode_model.py",
    "1/preprocessing.py": _PACKAGE / "runtime" / "images" / "preprocessing.py",
}
_CONFIG_BYTES = 2**20
_TEXT = r'"[^"\\]*"'
# One field per line, as protobuf writes the text format: nothing that a line of another form could mean has to be understood.
_LINES = re.compile(
    rf"\s*(?:(?:name|model_name|key|value): {_TEXT}"
    r'|label_filename: "labels(?:_\d+)?\.txt"'
    r"|(?:max_batch_size|dims|count|model_version|max_queue_delay_microseconds|preferred_batch_size): -?\d+"
    r"|data_type: TYPE_\w+|kind: KIND_\w+|format: FORMAT_\w+"
    r"|(?:input|output|reshape|instance_group|dynamic_batching|ensemble_scheduling|step|input_map|output_map) \{"
    r'|\}|backend: "(?P<backend>\w+)"|platform: "(?P<platform>\w+)")',
    re.ASCII,
)
_RUN_BY = {"": ("onnxruntime", "headrace"), "_decode": ("python",), "_classify": ("ensemble",)}
# All that lies in a companion: Triton's Python backend imports what lies beside the decoder before what is installed.
_FILES = {"_decode": {*DECODER, "1/steps.json"}, "_classify": {"1/README"}}
_LABELS = re.compile(r"labels(_\d+)?\.txt", re.ASCII)
"""Of the outputs that have some, which no server runs."""


def why_no_package(models: Path, name: str) -> str | None:
    """What of the folder is not as the worker leaves it; None where all is. Raises OSError."""
    known = {f"{name}{end}" for end in _RUN_BY}  # a model with its preprocessing has a decoder and an ensemble beside it
    if models.is_symlink() or name not in os.listdir(models) or not known.issuperset(os.listdir(models)):
        return f"there is more in its folder than {name}"

    def stop(error: OSError) -> None:
        raise error

    for folder, names, files in os.walk(models, onerror=stop):
        for inside in (*names, *files):
            kind = os.lstat(os.path.join(folder, inside)).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                return f"{inside} is a link, a pipe or a device"
    folders = [(models / f"{name}{end}", end) for end in _RUN_BY]
    return next(filter(None, (_foreign(folder, end) for folder, end in folders if folder.exists())), None)


def _foreign(folder: Path, end: str) -> str | None:
    """What of one folder would have Triton run code of others."""
    config = folder / "config.pbtxt"
    if not folder.is_dir() or not config.is_file() or config.stat().st_size > _CONFIG_BYTES:
        return f"{folder.name} has no config.pbtxt as Headrace writes it"
    text = config.read_text("utf-8", "replace")
    lines = [(line, _LINES.fullmatch(line)) for line in text.split("\n") if line.strip()]
    if strange := next((line for line, match in lines if match is None), None):
        return f"config.pbtxt of {folder.name} says {strange.strip()[:100]!r}"
    named = [match["backend"] or match["platform"] for _, match in lines if match and (match["backend"] or match["platform"])]
    if len(named) != 1 or named[0] not in _RUN_BY[end]:
        return f"config.pbtxt of {folder.name} has it run by {', '.join(named) or 'nothing'}"
    for path in folder.rglob("*"):
        place = path.relative_to(folder).as_posix()
        known = place in ("config.pbtxt", *_FILES.get(end, {place})) or (end == "_classify" and _LABELS.fullmatch(place))
        if path.is_file() and not known:
            return f"{folder.name} holds {place}"
        if place in DECODER and end == "_decode" and path.read_bytes() != DECODER[place].read_bytes():
            return f"{place} of {folder.name} is not Headrace's own"
        if path.name.startswith("libtriton_"):
            return f"{folder.name} holds {place}, which Triton would load"
    return None
