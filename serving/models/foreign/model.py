"""A foreign model that serves: its tensors as clients have them, and as its graph has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....errors import ExecutionError, InputError
from ....runtime.artifact.formats import OpenedGraph
from ....runtime.artifact.model_config import ModelConfig
from ....runtime.base.session import Session
from ...protocol.messages import DATATYPES, InferenceRequest, Tensor
from ..models import QueuedModel


@dataclass(kw_only=True)
class ForeignModel(QueuedModel):
    """Tensors in, tensors out, of any size that its config allows. One that takes no batches runs a request at a time."""

    label_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    texts: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.input_names = tuple(tensor.name for tensor in self.config.inputs)
        self.output_names = tuple(tensor.name for tensor in self.config.outputs)

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        return self.label_files

    def check_inputs(self, request: InferenceRequest) -> tuple[list[Tensor], int]:
        tensors, rows = super().check_inputs(request)
        if self.config.max_batch_size:
            return tensors, rows
        return [replace(tensor, data=tensor.data[None]) for tensor in tensors], 1

    def check_values(self, tensors: Sequence[Tensor]) -> None:
        if self.texts:
            for tensor in tensors:
                if tensor.datatype == "BYTES" and not all(map(_is_text, tensor.data.ravel())):
                    raise InputError(f"input '{tensor.name}' holds bytes that are no UTF-8, and model '{self.name}' takes text")


class GraphSession:
    """A graph's session for a batcher: rows as a config declares them in, rows as it declares them out.

    A model without batches is one whose only row is the whole tensor.
    """

    def __init__(self, config: ModelConfig, graph: OpenedGraph, session: Session) -> None:
        self._config, self._graph, self._session = config, graph, session
        given = {tensor.name: position for position, tensor in enumerate(config.inputs)}
        self._inputs = [(given[tensor.name], config.inputs[given[tensor.name]]) for tensor in graph.inputs]
        places = {tensor.name: position for position, tensor in enumerate(graph.outputs)}
        self._outputs = [(places[tensor.name], tensor) for tensor in config.outputs]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        rows, batches = len(inputs[0]), self._config.max_batch_size > 0
        lead = (rows,) if batches else ()
        arrays = []
        for position, tensor in self._inputs:
            array = inputs[position] if batches else inputs[position][0]
            array = array if tensor.shape == tensor.dims else array.reshape((*lead, *tensor.shape))
            arrays.append(np.asarray(array, order="C"))
        found = self._session.run(arrays)
        return [self._given(found[place], tensor.name, lead) for place, tensor in self._outputs]

    def _given(self, array: np.ndarray, name: str, lead: tuple[int, ...]) -> np.ndarray:
        tensor = next(tensor for tensor in self._config.outputs if tensor.name == name)
        array = np.asarray(array)
        if tensor.shape != tensor.dims:
            try:
                array = array.reshape((*lead, *tensor.dims))
            except ValueError:
                raise ExecutionError(f"output '{name}' has shape {array.shape}, which cannot become {tensor.dims}") from None
        if array.dtype != np.dtype(DATATYPES[tensor.datatype]):
            raise ExecutionError(f"output '{name}' is {array.dtype}, and declared {tensor.datatype}")
        return array if lead else array[None]

    def twin(self) -> GraphSession:
        """Another over the same weights, where the library can."""
        twin: Session = self._session.twin()  # type: ignore[attr-defined]
        return GraphSession(self._config, self._graph, twin)

    def close(self) -> None:
        self._session.close()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
