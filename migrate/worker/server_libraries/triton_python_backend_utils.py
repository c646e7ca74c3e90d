"""What Triton's Python backend gives to a model: tensors, requests, responses, and what a configuration says.

After the backend's `triton_python_backend_utils.py`; memory of devices, and requests to other models, are not here.
"""

# mypy: ignore-errors
# The names, and what their arguments may be, are those of another library.
import json

import numpy as np

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 1, 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
_NUMPY = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}


class TritonModelException(Exception): ...


class TritonError(Exception):
    def __init__(self, message="", code=0):
        super().__init__(message)
        self._message = message

    def message(self):
        return self._message


class Tensor:
    def __init__(self, name, numpy_array):
        self._name, self._array = name, np.asarray(numpy_array)

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array

    def shape(self):
        return list(self._array.shape)

    def triton_dtype(self):
        return numpy_to_triton_type(self._array.dtype)

    def is_cpu(self):
        return True

    def to_dlpack(self):
        return self._array.__dlpack__()

    def __dlpack__(self, **named):
        return self._array.__dlpack__(**named)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    @classmethod
    def from_dlpack(cls, name, tensor):
        array = tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else None
        if array is None:
            import torch

            array = torch.utils.dlpack.from_dlpack(tensor).cpu().numpy()
        return cls(name, array)


class InferenceRequest:
    def __init__(self, inputs=(), requested_output_names=(), model_name="", model_version=1, request_id="1", **_):
        self._inputs, self._outputs, self._model = list(inputs), list(requested_output_names), model_name
        self._id = request_id

    def inputs(self):
        return self._inputs

    def requested_output_names(self):
        return self._outputs

    def request_id(self):
        return self._id

    def correlation_id(self):
        return 0

    def parameters(self):
        return "{}"

    def flags(self):
        return 0

    def model_name(self):
        return self._model

    def get_response_sender(self):
        self.sender = ResponseSender()
        return self.sender

    def exec(self, **_):
        raise TritonModelException(
            f"the Python model calls the model {self._model!r} of its server, which does not run here; migrate that one"
        )

    async_exec = exec


class ResponseSender:
    def __init__(self):
        self.responses = []

    def send(self, response=None, flags=0):
        if response is not None:
            self.responses.append(response)

    def is_cancelled(self):
        return False


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None, **_):
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self):
        return self._tensors

    def error(self):
        return self._error

    def has_error(self):
        return self._error is not None


class Logger:
    @staticmethod
    def log(*_): ...

    log_info = log_warn = log_error = log_verbose = log


def get_input_tensor_by_name(inference_request, name):
    return next((tensor for tensor in inference_request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(inference_response, name):
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)


def _by_name(model_config, part, name):
    model_config = json.loads(model_config) if isinstance(model_config, str) else model_config
    return next((item for item in model_config.get(part, ()) if item.get("name") == name), None)


def get_input_config_by_name(model_config, name):
    return _by_name(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    return _by_name(model_config, "output", name)


def using_decoupled_model_config(model_config):
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled"))


def triton_string_to_numpy(triton_type_string):
    return _NUMPY[triton_type_string]


def numpy_to_triton_type(data_type):
    return next(name for name, kind in _NUMPY.items() if np.dtype(kind) == np.dtype(data_type))


def serialize_byte_tensor(input_tensor):
    rows = [item if isinstance(item, bytes) else str(item).encode() for item in np.asarray(input_tensor).ravel()]
    return np.frombuffer(b"".join(len(row).to_bytes(4, "little") + row for row in rows), np.uint8)


def deserialize_bytes_tensor(encoded_tensor):
    data, rows, at = bytes(encoded_tensor), [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        rows.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return np.array(rows, dtype=np.object_)
