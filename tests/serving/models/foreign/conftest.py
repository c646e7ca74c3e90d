"""Model folders as other tools write them: ONNX graphs of additions and copies, OpenVINO and TorchScript ones, ensembles."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

FLOAT, INT32, STRING = TensorProto.FLOAT, TensorProto.INT32, TensorProto.STRING


class Foreign:
    """A repository that Triton would serve."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)

    def config(self, name: str, text: str) -> Path:
        (self.root / name).mkdir(exist_ok=True)
        path = self.root / name / "config.pbtxt"
        path.write_text(text)
        return path

    def folder(self, name: str, version: int = 1) -> Path:
        path = self.root / name / str(version)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def onnx(self, name: str, nodes, inputs, outputs, *, version: int = 1, file: str = "model.onnx", initializers=()) -> Path:
        """A graph of `nodes`; tensors are (name, type, shape)."""
        graph = helper.make_graph(
            nodes,
            "graph",
            [helper.make_tensor_value_info(*tensor) for tensor in inputs],
            [helper.make_tensor_value_info(*tensor) for tensor in outputs],
            list(initializers),
        )
        path = self.folder(name, version) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    def add(self, name: str, value: float = 1.0, *, version: int = 1, shape=("batch", 4), **options) -> Path:
        """y = x + value."""
        constant = helper.make_tensor("value", FLOAT, [], [value])
        nodes = [helper.make_node("Add", ["x", "value"], ["y"])]
        tensors = [("x", FLOAT, shape)], [("y", FLOAT, shape)]
        return self.onnx(name, nodes, *tensors, version=version, initializers=[constant], **options)

    def copy(self, name: str, kind: int, shape=("batch", 2)) -> Path:
        """y = x, of any type."""
        return self.onnx(name, [helper.make_node("Identity", ["x"], ["y"])], [("x", kind, shape)], [("y", kind, shape)])

    def mean(self, name: str) -> Path:
        """Rows less the mean of all rows of the batch, which shows which rows met."""
        nodes = [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
            helper.make_node("Sub", ["x", "mean"], ["y"]),
        ]
        return self.onnx(name, nodes, [("x", FLOAT, ("batch", "wide"))], [("y", FLOAT, ("batch", "wide"))])

    def ensemble(self, name: str, steps, *, inputs="x", output="y", kind="TYPE_FP32", batch: int = 8) -> None:
        """`steps` are (model, {own input: shared}, {own output: shared})."""
        wired = "".join(
            f'step {{ model_name: "{model}" model_version: -1 '
            + "".join(f'input_map {{ key: "{own}" value: "{shared}" }} ' for own, shared in given.items())
            + "".join(f'output_map {{ key: "{own}" value: "{shared}" }} ' for own, shared in made.items())
            + "} "
            for model, given, made in steps
        )
        tensor = f'name: "%s" data_type: {kind} dims: [ 4 ]'
        self.config(
            name,
            f'platform: "ensemble" max_batch_size: {batch} input {{ {tensor % inputs} }} output {{ {tensor % output} }} '
            f"ensemble_scheduling {{ {wired} }}",
        )


@pytest.fixture
def foreign(tmp_path) -> Foreign:
    return Foreign(tmp_path / "models")


@pytest.fixture
def load(foreign):
    """Load one model of the repository; all are closed at the end."""
    from headrace.serving.config import ServeConfig
    from headrace.serving.models.foreign.loading import load_foreign

    made = []

    def begin(name: str, *, version: int = 1, **options):
        config = ServeConfig.of(models=foreign.root, frontends=0, **options)
        made.append(load_foreign(foreign.root / name, config, lambda line: None, version=version))
        return made[-1]

    yield begin
    for model in made:
        model.close(drain=False)


@pytest.fixture
def repository_of(foreign):
    """A loaded ModelRepository of the folder, closed at the end."""
    from headrace.serving.config import ServeConfig
    from headrace.serving.models.repository import ModelRepository

    made = []

    def begin(**options):
        made.append(ModelRepository(ServeConfig.of(models=foreign.root, frontends=0, **options)))
        made[-1].load()
        return made[-1]

    yield begin
    for repository in made:
        repository.close(drain=False)


@pytest.fixture
def run():
    """Rows through a model's own queue, as clients send and get them."""
    from headrace.serving.protocol.messages import InferenceRequest, Tensor

    kinds = {"f": "FP32", "i": "INT32", "O": "BYTES"}

    def ask(model, *arrays):
        given = zip(model.config.inputs, arrays, strict=True)
        tensors = [Tensor(one.name, kinds[array.dtype.kind], np.ascontiguousarray(array)) for one, array in given]
        checked, rows = model.check_inputs(InferenceRequest(tensors))
        model.check_values(checked)
        ticket = model.batcher.admit(rows, timeout=60)
        model.batcher.submit(ticket, [tensor.data for tensor in checked])
        found = ticket.future.result(60)
        return found if model.config.max_batch_size else [array[0] for array in found]

    return ask
