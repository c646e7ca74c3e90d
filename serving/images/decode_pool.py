"""Images to rows of a model's input, on a bounded pool of threads. Pillow and numpy release the GIL for most of that work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from ...errors import InputError, OverloadedError
from ...runtime.base.memory import keep_freed_memory
from ...runtime.images.preprocessing import ImageError, Preprocessor
from .gpu_preprocessing import GpuPreprocessor

T = TypeVar("T")


class DecodePool:
    """Threads that decode images, or parse large bodies, with at most `limit` pieces of work waiting or running."""

    def __init__(self, threads: int, *, limit: int) -> None:
        keep_freed_memory()
        self._limit = limit
        self._outstanding = 0
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="headrace-decode")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on a thread; cancelling the future before it began drops it. Raises OverloadedError when full."""
        with self._lock:
            if self._outstanding >= self._limit:
                raise OverloadedError(f"all threads for this are busy and {self._limit} requests wait; try again later")
            self._outstanding += 1
        try:
            future = self._executor.submit(work)
        except RuntimeError:
            self._leave(None)
            raise OverloadedError("the server is shutting down") from None
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _: object) -> None:
        with self._lock:
            self._outstanding -= 1

    def close(self) -> None:
        """Finish what was submitted and end the threads."""
        self._executor.shutdown(wait=True)


def decode_rows(
    preprocessor: Preprocessor, images: Sequence[bytes], row_shape: tuple[int, ...], out: np.ndarray | None = None
) -> np.ndarray:
    """The model's input, [len(images), *row_shape] in the preprocessor's dtype; in `out`, which has that form, when given.
    Raises InputError saying which image is wrong and how."""
    rows: np.ndarray = np.empty((len(images), *row_shape), preprocessor.dtype) if out is None else out
    ready = preprocessor.together(images) if isinstance(preprocessor, GpuPreprocessor) else [None] * len(images)
    for number, (image, row, done) in enumerate(zip(images, rows, ready, strict=True)):
        try:
            if done is not None and done.shape == row.shape:
                row[...] = done
            else:
                preprocessor(image, row)
        except ImageError as error:
            raise InputError(str(error) if len(images) == 1 else f"image {number}: {error}") from error
    return rows
