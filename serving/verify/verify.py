"""An address held to a packaged model: what is there is found, asked and judged."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...errors import InputError, VerifyError
from ...runtime.images.image_folder import image_files
from .config import VerifyConfig
from .endpoint import Endpoint, Inference
from .images import PHOTO, TRIALS, Sample, samples
from .judge import GIVEN, Judge
from .pipeline import Pipeline
from .reference import Reference, open_reference
from .routes import find_endpoints
from .verdict import Finding, Judgement, Verification

_GIVEN_IMAGES, _NOISE_ROWS = 16, 8


def verify(config: VerifyConfig, *, report: Callable[[str], None] = lambda _: None) -> Verification:
    """Judge every endpoint at the address. Raises VerifyError where none can be judged, ArtifactError for a broken package."""
    reference = open_reference(config.models, config.model)
    try:
        made = _samples(config, reference)
        endpoints = find_endpoints(config, reference, [sample for sample in made if sample.name in TRIALS])
        judgements = tuple(_judged(endpoint, config, reference, made, report) for endpoint in endpoints)
    finally:
        reference.close()
    own = reference.artifact
    return Verification(url=config.url, model=own.name, version=own.version, judgements=judgements)


def _judged(
    endpoint: Endpoint, config: VerifyConfig, reference: Reference, made: list[Sample], report: Callable[[str], None]
) -> Judgement:
    if isinstance(endpoint, Inference):
        mismatch = endpoint.mismatch(reference.input.dtype, reference.input.row_shape)
        if mismatch is not None:
            text = f"it is another model than the package's by its inputs: {mismatch}"
            return Judgement(endpoint=endpoint.title, findings=(Finding(fault="interface", text=text),))
    judge = Judge(endpoint, reference, tolerance=config.tolerance, report=report)
    if not endpoint.takes_images:
        return judge.rows(_rows(reference, made))
    if reference.artifact.preprocessing is None:
        raise VerifyError(
            f"{endpoint.title} takes images, and the package of {reference.artifact.name} does not say how one becomes its "
            "input; package it with its preprocessing (headrace migrate)"
        )
    return judge.images(made)


def _samples(config: VerifyConfig, reference: Reference) -> list[Sample]:
    """The generated images for the size of the model's rows, and the user's own."""
    if reference.artifact.preprocessing is None:
        return []
    shape = reference.input.row_shape
    found = list(samples(*(shape[:2] if reference.artifact.signature.takes_pixels else shape[1:])))
    if config.images is None:
        return found
    files = image_files(config.images, _GIVEN_IMAGES)
    given = [Sample(file.name, GIVEN, _read(file), lossy=file.suffix.lower() not in (".png", ".bmp")) for file in files]
    return [*found, *given]


def _rows(reference: Reference, made: list[Sample]) -> np.ndarray:
    """Rows of the model's input: of images where it says how, else noise; beside them zeros, and rows of other magnitude."""
    shape, dtype = reference.input.row_shape, np.dtype(reference.input.dtype)
    preprocessing, rows = reference.artifact.preprocessing, []
    if preprocessing is not None:
        pipeline = Pipeline(preprocessing)
        plain = [sample for sample in reference.taken(pipeline, made) if sample.group in (PHOTO, GIVEN)]
        rows = list(itertools.chain.from_iterable([reference.rows(pipeline, [sample])] for sample in plain))
    random = np.random.default_rng(23)
    if dtype.kind == "f":
        factors = (1.0,) * _NOISE_ROWS + (0.0, 0.1, 3.0)
        noise = [(factor * random.normal(size=shape)).astype(dtype) for factor in factors]
    else:
        noise = [random.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype) for _ in range(_NOISE_ROWS)]
    return np.stack([*(row[0] for row in rows if row is not None), *noise])


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
