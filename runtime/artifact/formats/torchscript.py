"""TorchScript programs, `model.pt`: code, whose tensors are what a config declares.

The order of tensors is that of Triton's pytorch_backend: by the names of `forward`'s arguments where the inputs have them, by
the numbers after "__" where all names end so, and otherwise as the config lists them.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import BackendError
from ...backends import loading
from . import Declared, Format, GraphTensor, OpenedGraph

if TYPE_CHECKING:
    import numpy as np

_DATATYPES = ("FP32", "FP64", "FP16", "BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64")
_NUMBERED = re.compile(r".*__([0-9]{1,4})")


class TorchScript(Format):
    """Only for repositories that are trusted."""

    backend, platform, file, runs_code = "pytorch", "pytorch_libtorch", "model.pt", True

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("torch") else "torch is not installed: pip install torch"

    def open(self, path: Path, declared: Declared, *, threads: int | None, parameters: Mapping[str, str]) -> OpenedGraph:
        inputs, outputs = declared
        if not inputs or not outputs:
            raise BackendError(f"{path.name} does not say what its tensors are; declare input and output in config.pbtxt")
        if unknown := [tensor for tensor in (*inputs, *outputs) if tensor.datatype not in _DATATYPES]:
            first = unknown[0]
            raise BackendError(f"tensor {first.name!r} is {first.datatype}; TorchScript programs take {', '.join(_DATATYPES)}")
        import torch

        with loading(path, f"torch {torch.__version__}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, which is what the file is
            program = torch.jit.load(str(path), map_location="cpu").eval()
        arguments = [argument.name for argument in program.forward.schema.arguments[1:]]
        given, taken = _places(inputs, arguments), _places(outputs, ())
        if sorted(given) != list(range(len(given))):
            raise BackendError(f"the inputs {', '.join(tensor.name for tensor in inputs)} leave out an argument before others")
        return OpenedGraph(inputs=inputs, outputs=outputs, session=_Program(program, given, taken), described=False)


def _places(tensors: Sequence[GraphTensor], arguments: Sequence[str]) -> list[int]:
    """The position of each tensor among the arguments, or among the results."""
    names = [tensor.name for tensor in tensors]
    if arguments and all(name in arguments for name in names):
        places = [arguments.index(name) for name in names]
    elif all(numbers := [_NUMBERED.fullmatch(name) for name in names]):
        places = [int(number[1]) for number in numbers if number]
    else:
        places = list(range(len(names)))
    if len(set(places)) != len(places):
        raise BackendError(f"the names {', '.join(names)} give two tensors one place")
    return places


class _Program:
    """Any thread may run it."""

    def __init__(self, program: Any, given: list[int], taken: list[int]) -> None:
        self._program, self._given, self._taken = program, given, taken

    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        import numpy as np
        import torch

        if self._program is None:
            raise BackendError("this session is closed; open another")
        ordered = [torch.from_numpy(np.array(inputs[self._given.index(place)])) for place in sorted(self._given)]
        try:
            with torch.inference_mode():
                results = self._program(*ordered)
            listed = [results] if isinstance(results, torch.Tensor) else list(results)
            return [listed[place].numpy(force=True) for place in self._taken]
        except Exception as error:  # whatever the program raises
            shapes = [value.shape for value in inputs]
            raise BackendError(f"the TorchScript program failed on inputs of shape {shapes}: {error}") from error

    def twin(self) -> _Program:
        return _Program(self._program, self._given, self._taken)

    def close(self) -> None:
        self._program = None


FORMAT = TorchScript()
