"""A tensor's state, as cheap as it can be asked: which it is, how often torch counted a write, where it lies, its shape, and a
few of its numbers, since torch counts no writes through `.data` or a NumPy array."""

from __future__ import annotations

from collections.abc import Callable

import torch

_NUMBERS = 16
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # of so many bytes; NumPy has no bfloat16
_PLAIN = (torch.nn.Parameter, torch.Tensor)
State = tuple[int, int, int, torch.Size, bytes]


class Sample:
    """Numbers spread over a tensor in the CPU's memory; none of other tensors, which would wait for a device.

    What writes all of a tensor (averages of weights, masks, loading) changes some of them, but for luck; what writes to a few
    of its elements need not.
    """

    def __init__(self, value: torch.Tensor) -> None:
        self._id = id(value)
        self._counts = not value.is_inference()
        self._at = -1
        self._read: Callable[[], bytes] = bytes
        whole = _WHOLE.get(value.element_size())
        if type(value) in _PLAIN and value.device.type == "cpu" and value.layout == torch.strided and value.numel() and whole:
            self._at, self._read = value.data_ptr(), _reader(value, whole)

    def state(self, value: torch.Tensor) -> State:
        """That of the tensor of which this was made."""
        at = value.data_ptr()
        return self._id, value._version if self._counts else 0, at, value.shape, self._read() if at == self._at else b""


def _reader(value: torch.Tensor, whole: torch.dtype) -> Callable[[], bytes]:
    """What reads some of its numbers; it keeps the memory of them."""
    plain = value.detach()
    span = 1 + sum((count - 1) * step for count, step in zip(plain.shape, plain.stride(), strict=True))
    flat = torch.as_strided(plain, (span,), (1,), plain.storage_offset()).view(whole).numpy()
    return flat[:: max(1, -(-span // _NUMBERS))].tobytes


def state_of(value: torch.Tensor) -> State:
    """Without any of its numbers; what stands in for a tensor while a graph is captured lies nowhere."""
    try:
        at = value.data_ptr()
    except RuntimeError:
        at = 0
    return id(value), 0 if value.is_inference() else value._version, at, value.shape, b""
