"""Triton Python-backend model: encoded images in, rows of a model's input out.

`package.py` copies this file as model.py into NAME_decode/1, beside the source of preprocessing.py and the recovered steps
(steps.json), so it needs only numpy and Pillow, and `triton_python_backend_utils`, which Triton provides.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np


class TritonPythonModel:
    """The three methods that Triton calls, see the README of triton-inference-server/python_backend."""

    def initialize(self, args: dict[str, str]) -> None:
        here = Path(__file__).resolve().parent
        source = importlib.util.spec_from_file_location("headrace_preprocessing", here / "preprocessing.py")
        if source is None or source.loader is None:
            raise ImportError(f"cannot import {here / 'preprocessing.py'}")
        preprocessing = importlib.util.module_from_spec(source)
        source.loader.exec_module(preprocessing)
        settings = json.loads((here / "steps.json").read_text(encoding="utf-8"))
        self.input: str = settings["input"]
        self.output: str = settings["output"]
        self.row_shape = tuple(settings["row_shape"])
        self.preprocess = preprocessing.Preprocessor(settings["steps"], pixels=settings.get("pixels", False))
        self.image_error: type[Exception] = preprocessing.ImageError
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.pool = concurrent.futures.ThreadPoolExecutor(cores)  # Pillow decodes and resizes without the GIL

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request, in order; a bad image fails its own request only."""
        decoded = [self._submit(request) for request in requests]
        return [self._response(rows, jobs) for rows, jobs in decoded]

    def finalize(self) -> None:
        self.pool.shutdown()

    def _submit(self, request: Any) -> tuple[Any, list[concurrent.futures.Future[Any]]]:
        import triton_python_backend_utils as pb_utils

        images = pb_utils.get_input_tensor_by_name(request, self.input).as_numpy().reshape(-1)
        rows = np.empty((len(images), *self.row_shape), self.preprocess.dtype)
        return rows, [self.pool.submit(self.preprocess, image, row) for image, row in zip(images, rows)]  # noqa: B905 - 3.10

    def _response(self, rows: Any, jobs: list[concurrent.futures.Future[Any]]) -> Any:
        import triton_python_backend_utils as pb_utils

        concurrent.futures.wait(jobs)
        try:
            for job in jobs:
                job.result()
        except self.image_error as error:
            return pb_utils.InferenceResponse(
                output_tensors=[], error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            )
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(self.output, rows)])
