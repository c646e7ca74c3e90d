"""Ways to break a good models folder: what lint must find, and whether a real Triton refuses it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as schema


@dataclass(frozen=True)
class Broken:
    """`edit` breaks the folder of models given to it, whose models are `tiny`, `tiny_decode` and `tiny_classify`.

    `code` is the finding that must name `model`. `refused`: Triton does not load it. A warning loads all the same.
    """

    code: str
    edit: Callable[[Path], None]
    model: str = "tiny"
    refused: bool = True


def changed(change: Callable[[Any], None], model: str = "tiny") -> Callable[[Path], None]:
    """Change the config's message."""

    def edit(models: Path) -> None:
        path = models / model / "config.pbtxt"
        message = text_format.Parse(path.read_text(), schema.ModelConfig())
        change(message)
        path.write_text(text_format.MessageToString(message))

    return edit


def replaced(old: str, new: str, model: str = "tiny") -> Callable[[Path], None]:
    """Change the config's text."""

    def edit(models: Path) -> None:
        path = models / model / "config.pbtxt"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


def added(text: str, model: str = "tiny") -> Callable[[Path], None]:
    def edit(models: Path) -> None:
        path = models / model / "config.pbtxt"
        path.write_text(f"{path.read_text()}\n{text}\n")

    return edit


def appended(place: str, text: str) -> Callable[[Path], None]:
    def edit(models: Path) -> None:
        with (models / place).open("a") as file:
            file.write(text)

    return edit


def renamed(old: str, new: str) -> Callable[[Path], None]:
    return lambda models: (models / old).rename(models / new) and None


def removed(name: str) -> Callable[[Path], None]:
    def edit(models: Path) -> None:
        path = models / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


def _warmup(**given: Any) -> Callable[[Path], None]:
    def change(config: Any) -> None:
        fields = dict(given)  # a case may be used more than once
        warmup = config.model_warmup.add(name="w", batch_size=fields.pop("batch_size", 1))
        source = warmup.inputs[fields.pop("input", "images")]
        source.data_type = fields.pop("data_type", schema.TYPE_FP32)
        source.dims.extend(fields.pop("dims", [3, 16, 16]))
        for name, value in (fields or {"random_data": True}).items():
            setattr(source, name, value)

    return changed(change)


def _step(change: Callable[[Any], None], index: int = 1) -> Callable[[Path], None]:
    return changed(lambda config: change(config.ensemble_scheduling.step[index]), "tiny_classify")


def _group(text: str, model: str = "tiny") -> Callable[[Path], None]:
    def change(config: Any) -> None:
        del config.instance_group[:]
        text_format.Merge(text, config)

    return changed(change, model)


def _batching(text: str) -> Callable[[Path], None]:
    return changed(lambda config: text_format.Merge(f"dynamic_batching {{ {text} }}", config))


def _batches_itself(config: Any) -> None:
    config.ClearField("ensemble_scheduling")
    config.dynamic_batching.SetInParent()


def _clear(name: str, model: str = "tiny") -> Callable[[Path], None]:
    return changed(lambda config: config.ClearField(name), model)


def _set(model: str = "tiny", **values: Any) -> Callable[[Path], None]:
    def change(config: Any) -> None:
        for name, value in values.items():
            setattr(config, name, value)

    return changed(change, model)


def _input(**values: Any) -> Callable[[Path], None]:
    def change(config: Any) -> None:
        for name, value in values.items():
            if name == "dims":
                del config.input[0].dims[:]
                config.input[0].dims.extend(value)
            else:
                setattr(config.input[0], name, value)

    return changed(change)


def _output(**values: Any) -> Callable[[Path], None]:
    def change(config: Any) -> None:
        for name, value in values.items():
            if name == "dims":
                del config.output[0].dims[:]
                config.output[0].dims.extend(value)
            else:
                setattr(config.output[0], name, value)

    return changed(change)


BROKEN: dict[str, Broken] = {
    # The text.
    "unknown key": Broken("TR001", replaced("max_batch_size", "max_batchsize")),
    "unknown dtype name": Broken("TR001", replaced("TYPE_FP32", "TYPE_FLOAT")),
    "unknown kind": Broken("TR001", added("instance_group { kind: KIND_TPU }")),
    "a bracket too few": Broken("TR001", added("optimization {")),
    "text where a number belongs": Broken("TR001", replaced("max_batch_size: 8", 'max_batch_size: "8"')),
    "not UTF-8": Broken("TR001", lambda models: (models / "tiny" / "config.pbtxt").write_bytes(b"name: \xff\xfe") and None),
    # The folder.
    "another name": Broken("TR002", _set(name="other")),
    "no version": Broken("TR003", removed("tiny/1")),
    "version with a leading zero": Broken("TR003", renamed("tiny/1", "tiny/01")),
    # Triton loads it; the embedded server counts from 1.
    "version 0": Broken("TR003", renamed("tiny/1", "tiny/0"), refused=False),
    "version with a v": Broken("TR003", renamed("tiny/1", "tiny/v1")),
    "a specific version that is absent": Broken("TR004", added("version_policy { specific { versions: 7 } }")),
    "no latest versions": Broken("TR004", added("version_policy { latest { num_versions: 0 } }")),
    "no model.onnx": Broken("TR005", removed("tiny/1/model.onnx")),
    "another file name": Broken("TR005", _set(default_model_filename="other.onnx")),
    "a decoder of others": Broken("TR019", appended("tiny_decode/1/model.py", "\n# mine\n"), "tiny_decode", refused=False),
    "a module beside the decoder": Broken("TR019", appended("tiny_decode/1/more.py", "x = 1\n"), "tiny_decode", refused=False),
    "no model.py": Broken("TR005", removed("tiny_decode/1/model.py"), "tiny_decode"),
    "no backend": Broken("TR006", _clear("backend"), refused=False),
    "our own backend": Broken("TR006", _set(backend="headrace")),
    "unknown backend": Broken("TR006", _set(backend="onnxrt")),
    "no labels file": Broken("TR012", removed("tiny/labels.txt")),
    "fewer labels than classes": Broken(
        "TR012", lambda models: (models / "tiny" / "labels.txt").write_text("a\nb\n") and None, refused=False
    ),
    # Tensors.
    "negative max_batch_size": Broken("TR007", _set(max_batch_size=-1)),
    "no max_batch_size": Broken("TR011", _set(max_batch_size=0)),
    "no dims": Broken("TR008", _input(dims=[])),
    "a dim of zero": Broken("TR008", _input(dims=[3, 0, 16])),
    "a dim of minus two": Broken("TR008", _input(dims=[3, -2, 16])),
    "a reshape to other sizes": Broken(
        "TR008", added('output { name: "x" data_type: TYPE_FP32 dims: 4 reshape { shape: [3] } }')
    ),
    "no data type": Broken("TR009", changed(lambda config: config.input[0].ClearField("data_type"))),
    "an input without a name": Broken("TR010", _input(name="")),
    "no input": Broken("TR010", _clear("input")),
    "no output": Broken("TR010", _clear("output")),
    "an input twice": Broken("TR010", added('input { name: "images" data_type: TYPE_FP32 dims: [3, 16, 16] }')),
    # Against the graph.
    "another input": Broken("TR011", _input(name="pixels")),
    "another data type": Broken("TR011", _input(data_type=schema.TYPE_FP16)),
    "the batch dimension given": Broken("TR011", _input(dims=[8, 3, 16, 16])),
    "another size": Broken("TR011", _input(dims=[3, 16, 15])),
    "another output": Broken("TR011", _output(name="probabilities")),
    "more classes": Broken("TR011", _output(dims=[8])),
    "no onnx in the file": Broken(
        "TR011", lambda models: (models / "tiny" / "1" / "model.onnx").write_bytes(b"not a graph") and None
    ),
    # Instances.
    "a GPU that is not there": Broken("TR013", _group("instance_group { kind: KIND_GPU }")),
    "a GPU by number that is not there": Broken("TR013", _group("instance_group { kind: KIND_GPU gpus: 3 }")),
    "GPUs of a CPU": Broken("TR013", _group("instance_group { kind: KIND_CPU gpus: 0 }")),
    "a negative count": Broken("TR013", _group("instance_group { kind: KIND_CPU count: -1 }"), refused=False),
    "instances of an ensemble": Broken("TR013", added("instance_group { count: 1 }", "tiny_classify"), "tiny_classify"),
    "an unknown accelerator": Broken(
        "TR017",
        added('optimization { execution_accelerators { cpu_execution_accelerator { name: "turbo" } } }'),
    ),
    # Batching.
    "a preferred size above the largest": Broken("TR014", _batching("preferred_batch_size: 9")),
    "a preferred size of zero": Broken("TR014", _batching("preferred_batch_size: 0")),
    "a default priority above the levels": Broken("TR014", _batching("priority_levels: 2 default_priority_level: 3")),
    "no default priority": Broken("TR014", _batching("priority_levels: 2")),
    "a policy for a level that is not there": Broken(
        "TR014",
        _batching("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 5 value { } }"),
    ),
    "two kinds of batching": Broken("TR001", added("sequence_batching { }")),
    "sequences": Broken("TR014", changed(lambda config: config.sequence_batching.SetInParent()), refused=False),
    "an output twice": Broken(
        "TR010", changed(lambda config: config.output.add(name="scores", data_type=schema.TYPE_FP32, dims=[7])), refused=False
    ),
    "an ensemble that batches": Broken("TR014", changed(_batches_itself, "tiny_classify"), "tiny_classify"),
    # Ensembles.
    "no steps": Broken("TR015", changed(lambda c: c.ensemble_scheduling.ClearField("step"), "tiny_classify"), "tiny_classify"),
    "a step of a model that is not there": Broken(
        "TR015", _step(lambda step: setattr(step, "model_name", "nope")), "tiny_classify"
    ),
    "a step of itself": Broken("TR015", _step(lambda step: setattr(step, "model_name", "tiny_classify")), "tiny_classify"),
    "a version that is not there": Broken("TR015", _step(lambda step: setattr(step, "model_version", 9)), "tiny_classify"),
    "an input that the model has not": Broken(
        "TR015", _step(lambda step: step.input_map.update({"other": "DECODED_IMAGE"})), "tiny_classify"
    ),
    "an input that is not mapped": Broken("TR015", _step(lambda step: step.input_map.clear()), "tiny_classify"),
    "a tensor that nothing makes": Broken(
        "TR015", _step(lambda step: step.input_map.update({"images": "NOWHERE"})), "tiny_classify"
    ),
    "an output that the model has not": Broken(
        "TR015", _step(lambda step: step.output_map.update({"other": "more"})), "tiny_classify"
    ),
    "a step without outputs": Broken("TR015", _step(lambda step: step.output_map.clear()), "tiny_classify"),
    "a tensor of another type": Broken(
        "TR015", changed(lambda c: setattr(c.input[0], "data_type", schema.TYPE_UINT8), "tiny_classify"), "tiny_classify"
    ),
    "an output of another size": Broken(
        "TR015", changed(lambda c: c.output[0].dims.__setitem__(0, 9), "tiny_classify"), "tiny_classify"
    ),
    "batches larger than a step's": Broken("TR015", _set("tiny_classify", max_batch_size=64), "tiny_classify"),
    "an ensemble without its platform": Broken("TR006", _clear("platform", "tiny_classify"), "tiny_classify"),
    # Warm-up.
    "warm-up of an input that is not there": Broken("TR016", _warmup(input="other")),
    "warm-up of another data type": Broken("TR016", _warmup(data_type=schema.TYPE_FP16)),
    "warm-up of another size": Broken("TR016", _warmup(dims=[3, 16, 15])),
    "warm-up with too many rows": Broken("TR016", _warmup(batch_size=9)),
    "warm-up with a file that is not there": Broken("TR016", _warmup(input_data_file="rows")),
    # Parameters of the backend.
    "threads that are no number": Broken(
        "TR018", added('parameters { key: "intra_op_thread_count" value { string_value: "many" } }')
    ),
}
