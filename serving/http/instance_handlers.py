"""What answers the routes of other platforms: KServe V1, SageMaker, Vertex AI. They differ in paths, not in what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from ...errors import InputError
from ..models.models import ClassifyModel, DecodeModel
from ..plane.data_plane import DataPlane
from ..protocol.instances import Instances, read_instances, rows_of, tensors_of
from ..protocol.json_limits import SMALL_JSON
from ..protocol.messages import InferenceRequest, Tensor
from .body import BodyReader, client_of, header, while_connected
from .handlers import parsed_beside, to_json

_IMAGES = ("image/", "application/x-image", "application/octet-stream")
# Batches of one request that are under way together: the next is decoded while one runs, and others' requests come between.
_BATCHES = 2
_FEW_VALUES = 10_000  # are written as JSON in a few milliseconds


class InstanceHandlers:
    """A method for each handler of a route with an `api` in protocol/routes.py."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        limit = plane.config.limits.max_body_bytes
        self._bodies = BodyReader(limit=limit, budget=plane.bytes, give_back=plane.give_back_soon)

    async def v1_models(self) -> Response:
        """The names of the models that serve."""
        return JSONResponse({"models": sorted({model.name for model in self._plane.repository.ready_models()})})

    async def v1_model(self, model: str) -> Response:
        """Whether a model serves; otherwise an error that says why not."""
        self._plane.repository.get(model)
        return JSONResponse({"name": model, "ready": True})

    async def platform_health(self) -> Response:
        """200 once models serve, 503 before, and while shutting down."""
        ready = self._plane.repository.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def v1_predict(self, request: Request, model: str) -> Response:
        """KServe V1: {"instances": [...]} to {"predictions": [...]}."""
        return await self._of_instances(request, model)

    async def vertex_predict(self, request: Request) -> Response:
        """The same of Vertex AI, for the one model that is served."""
        return await self._of_instances(request, self._only_model())

    async def invocations(self, request: Request) -> Response:
        """SageMaker: an image as the body, or instances, for the one model that is served."""
        name, kind = self._only_model(), header(request, b"content-type").decode("latin-1").partition(";")[0].strip().lower()
        if kind.startswith(_IMAGES):
            self._plane.count_request(client_of(request))
            async with self._bodies.read(request) as image:
                return _json(await while_connected(request, self._plane.answer_image(name, image)))
        if kind not in ("application/json", ""):
            raise InputError(f"Content-Type {kind[:100]!r} is not supported; send an image, or instances as application/json")
        return await self._of_instances(request, name)

    def _only_model(self) -> str:
        """The one whose name these platforms do not send."""
        models = self._plane.repository.ready_models()
        names = sorted({model.name for model in models if not isinstance(model, (ClassifyModel, DecodeModel))})
        if len(names) != 1:
            served = f"{len(names)} are served: {', '.join(names)}" if names else "none is served"
            raise InputError(f"this route is for a server of one model, and {served}")
        return names[0]

    async def _of_instances(self, request: Request, name: str) -> Response:
        plane, limits = self._plane, self._plane.config.limits
        plane.count_request(client_of(request))
        plane.repository.get(name, early=True)
        async with self._bodies.read(request) as body:
            read = partial(read_instances, body, max_depth=limits.max_json_depth, max_values=limits.max_json_values)
            if len(body) <= SMALL_JSON:
                return _predicted(await while_connected(request, self._predictions(name, read())))
            with ExitStack() as held:  # images decoded from base64 are three quarters of the body beside it
                asked = await parsed_beside(plane, request, memoryview(body), read, held, more=len(body))
                return _predicted(await while_connected(request, self._predictions(name, asked)))

    async def _predictions(self, name: str, asked: Instances) -> list[bytes]:
        """One for each instance, as JSON: what many hold together is too much to be written in one go, on the event loop."""
        model = self._plane.repository.get(name)
        size = max(1, model.config.max_batch_size)
        predictions: list[bytes] = []
        for at in range(0, len(asked.images), _BATCHES * size):
            some = list(enumerate(asked.images))[at : at + _BATCHES * size]
            answers = await _all([self._of_image(name, number, image, asked.count) for number, image in some])
            predictions += await self._written(answers, len(some) * asked.count)
        for at in range(0, len(asked.rows), _BATCHES * size):
            firsts = range(at, min(at + _BATCHES * size, len(asked.rows)), size)
            for outputs in await _all([self._of_rows(name, asked.rows[first : first + size]) for first in firsts]):
                predictions += await self._written(rows_of(outputs), sum(output.data.size for output in outputs))
        return predictions

    async def _written(self, answers: Iterable[Any], values: int) -> list[bytes]:
        """Each as JSON; in all they hold about so many values."""
        if values <= _FEW_VALUES:
            return [to_json(answer).encode() for answer in answers]
        return await self._plane.in_parser(lambda: [to_json(answer).encode() for answer in answers])

    async def _of_image(self, name: str, number: int, image: bytes, count: int) -> dict[str, Any]:
        try:
            answer = await self._plane.answer_image(name, image, count=count)
        except InputError as error:
            raise InputError(f"instances[{number}]: {error}") from None
        return {key: value for key, value in answer.items() if key not in ("model", "version")}

    async def _of_rows(self, name: str, rows: Sequence[Any]) -> list[Tensor]:
        model = self._plane.repository.get(name)
        inputs, batches = tensors_of(rows, model.config.inputs), model.config.max_batch_size > 0
        given = inputs if batches else [replace(tensor, data=tensor.data[0]) for tensor in inputs]
        answer = await self._plane.infer(name, "", InferenceRequest(inputs=given))
        return [one if batches else replace(one, data=one.data[None]) for one in answer.outputs]


async def _all(work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """What they return, in their order. Once one fails nobody waits for the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()  # an error's traceback holds this frame: a circle that would keep the whole request in memory


def _predicted(predictions: Sequence[bytes]) -> Response:
    return Response(b'{"predictions":[%b]}' % b",".join(predictions), media_type="application/json")


def _json(answer: Any) -> Response:
    return Response(to_json(answer), media_type="application/json")
