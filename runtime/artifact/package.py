"""The three folders of a model in Triton's repository: the tensor model, its decoder, and the ensemble of both.

`NAME_decode` is a self-contained Python-backend model, encoded image in, the model's input out; `NAME_classify` chains it
with `NAME`, so that Triton answers image bytes with labels. The embedded server does the same natively and ignores both.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from ...errors import ArtifactError
from ...specs import Preprocessing, Signature
from ..base.atomic import replacing
from .manifest import ONNX_FILE, STEPS_FILE
from .model_config import DATATYPES, FILE, read_config, to_text
from .write_artifact import ModelContents, check_target, fill_artifact

DECODE, CLASSIFY = "_decode", "_classify"
IMAGE = "IMAGE"
DECODER = (Path(__file__).with_name("decode_model.py"), Path(__file__).parents[1] / "images" / "preprocessing.py")
"""What a decoder's code is copied from: model.py and preprocessing.py."""
_ROWS = "DECODED_IMAGE"  # the tensor between the two steps of the ensemble


def write_package(directory: Path, **model: Unpack[ModelContents]) -> Path:
    """Write the model's folder and, where its preprocessing is known, its decoder and ensemble beside it; return the first.

    Where the preprocessing is not known, a decoder and an ensemble of an earlier package go away, for they would no longer be
    true. Raises ArtifactError; then all folders are as they were.
    """
    name, signature, preprocessing = model["name"], model["signature"], model.get("preprocessing")
    helpers = [name + DECODE, name + CLASSIFY]
    check_target(directory, name)
    for helper in helpers:
        check_target(directory.with_name(helper), helper)
    complete = preprocessing is not None
    with replacing(directory.parent, [name, *helpers] if complete else [name], remove=[] if complete else helpers) as folders:
        fill_artifact(folders[0], **model)
        if preprocessing is not None:
            check_fit(preprocessing, signature)
            rows = read_config(folders[0]).max_batch_size
            _write_decode(folders[1], name, signature, preprocessing, rows)
            label_files = {output.name: output.label_filename for output in read_config(folders[0]).outputs}
            _write_classify(folders[2], name, signature, rows, label_files)
            for file in filter(None, label_files.values()):
                (folders[2] / file).write_bytes((folders[0] / file).read_bytes())
    return directory


def place_package(made: Path, out: Path, name: str) -> Path:
    """Copy a model's folder and its companions from `made` to `out`, and return the model's own there.

    What stood there of the model is replaced in one step, companions that this one has not go away. Raises ArtifactError; then
    all is as it was.
    """
    folders = [name, *(f"{name}{end}" for end in (DECODE, CLASSIFY) if (made / f"{name}{end}").is_dir())]
    gone = [f"{name}{end}" for end in (DECODE, CLASSIFY) if f"{name}{end}" not in folders]
    for folder in (*folders, *gone):
        check_target(out / folder, folder)
    with replacing(out, folders, remove=gone) as places:
        for folder, place in zip(folders, places, strict=True):
            shutil.copytree(made / folder, place, dirs_exist_ok=True)
    return out / name


def copy_model_files(names: Iterable[str], directory: Path, into: Path) -> None:
    """Copy what a model is written from: files that its plan opens, and the portable graph if there is one."""
    copy_files({*names, *(path.name for path in directory.glob(f"{ONNX_FILE}*"))}, directory, into)


def copy_files(names: Iterable[str], directory: Path, into: Path) -> None:
    """Copy files by their names relative to a folder."""
    for name in sorted(names):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(directory / name, into / name)


def check_fit(preprocessing: Preprocessing, signature: Signature) -> None:
    """Raise ArtifactError unless the preprocessing gives what the model takes."""
    from ..images.preprocessing import Preprocessor

    if len(signature.inputs) != 1:
        raise ArtifactError(
            f"a model with {len(signature.inputs)} inputs cannot be fed from one image; package it without preprocessing"
        )
    spec = signature.inputs[0]
    channels = len(preprocessing.row_mode)
    size = Preprocessor(preprocessing.to_json()["steps"]).size
    if signature.takes_pixels:
        if spec.row_shape[2] != channels or size not in (None, spec.row_shape[:2]):
            raise ArtifactError(
                f"the preprocessing gives pixels {size} of {channels} channels; the model takes {spec.row_shape}"
            )
        return
    if spec.dtype != "float32" or len(spec.row_shape) != 3 or spec.row_shape[0] != channels:
        raise ArtifactError(
            f"the preprocessing gives float32 rows of {channels} channels; the model takes {spec.dtype} of {spec.row_shape}"
        )
    if size is not None and size != spec.row_shape[1:]:
        raise ArtifactError(f"the preprocessing gives images of (height, width) {size}; the model takes {spec.row_shape[1:]}")


def _write_decode(folder: Path, name: str, signature: Signature, preprocessing: Preprocessing, rows: int) -> None:
    from .triton_messages import model_config as schema

    spec = signature.inputs[0]
    config = schema.ModelConfig(name=name + DECODE, backend="python", max_batch_size=rows)
    config.input.add(name=IMAGE, data_type=schema.TYPE_STRING, dims=[1])
    config.output.add(name=spec.name, data_type=_data_type(spec.dtype), dims=spec.row_shape)
    config.dynamic_batching.SetInParent()
    config.instance_group.add(kind=schema.ModelInstanceGroup.KIND_CPU, count=1)
    (folder / FILE).write_text(to_text(config), encoding="utf-8")
    version = folder / "1"
    version.mkdir()
    for source, copy in zip(DECODER, ("model.py", "preprocessing.py"), strict=True):
        (version / copy).write_bytes(source.read_bytes())
    steps = {
        "input": IMAGE,
        "output": spec.name,
        "row_shape": spec.row_shape,
        "pixels": signature.takes_pixels,
        **preprocessing.to_json(),
    }
    (version / STEPS_FILE).write_text(json.dumps(steps, indent=1) + "\n", encoding="utf-8")


def _data_type(dtype: str) -> Any:
    from .triton_messages import model_config as schema

    return schema.DataType.Value(f"TYPE_{DATATYPES[dtype]}")


def _write_classify(folder: Path, name: str, signature: Signature, rows: int, label_files: Mapping[str, str]) -> None:
    from .triton_messages import model_config as schema

    spec = signature.inputs[0]
    config = schema.ModelConfig(name=name + CLASSIFY, platform="ensemble", max_batch_size=rows)
    config.input.add(name=IMAGE, data_type=schema.TYPE_STRING, dims=[1])
    for output in signature.outputs:
        added = config.output.add(name=output.name, data_type=_data_type(output.dtype), dims=output.row_shape or (1,))
        added.label_filename = label_files[output.name]
    decode = config.ensemble_scheduling.step.add(model_name=name + DECODE, model_version=-1)
    decode.input_map[IMAGE] = IMAGE
    decode.output_map[spec.name] = _ROWS
    model = config.ensemble_scheduling.step.add(model_name=name, model_version=-1)
    model.input_map[spec.name] = _ROWS
    for output in signature.outputs:
        model.output_map[output.name] = output.name
    (folder / FILE).write_text(to_text(config), encoding="utf-8")
    version = folder / "1"  # Triton wants a version folder even where nothing is in it; the file keeps it in archives and git
    version.mkdir()
    (version / "README").write_text(f"The ensemble of {name + DECODE} and {name}; see ../{FILE}.\n", encoding="utf-8")
