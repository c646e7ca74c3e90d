"""What answers the routes that are kept of migrated applications: their forms of requests and answers, and this server's
limits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import Response

from ...errors import ExecutionError, InputError, NotFoundError
from ...runtime.artifact.routes.answer_template import Answered
from ...runtime.artifact.routes.kept_route import KeptRoute
from ..models.kept_routes import KeptRoutes
from ..plane.data_plane import DataPlane
from ..protocol.json_limits import SMALL_JSON
from ..protocol.kept_requests import image_of_json
from .body import BodyReader, FormFile, client_of, file_of_form, header, while_connected
from .handlers import parsed_beside, to_json


class KeptHandlers:
    """A method for each handler of a route with the `api` KEPT in protocol/routes.py."""

    def __init__(self, plane: DataPlane, kept: KeptRoutes) -> None:
        self._plane = plane
        self._kept = kept
        limit = plane.config.limits.max_body_bytes
        self._bodies = BodyReader(limit=limit, budget=plane.bytes, give_back=plane.give_back_soon)

    async def kept(self, request: Request, model: str, number: str) -> Response:
        """An image as the application took it, answered as the application did."""
        plane, route = self._plane, self._kept.get(model, number)
        if route is None:
            raise NotFoundError(f"model '{model[:100]}' keeps no such route")
        if request.scope["query_string"]:
            raise InputError("this path takes no query; what it changed of the application's answers is not kept")
        plane.count_request(client_of(request))
        plane.repository.get(model, early=True)
        async with self._bodies.read(request) as body:
            with ExitStack() as held:
                sent = await self._image(request, route, body, held)
                write = partial(_written, route, sent.name)
                answer = await while_connected(request, plane.fill(model, sent.data, write))
                return Response(to_json(answer), media_type="application/json")

    async def _image(self, request: Request, route: KeptRoute, body: bytes, held: ExitStack) -> FormFile:
        """The image of a request in the one form that was proved."""
        if header(request, b"content-encoding").strip().lower() not in (b"", b"identity"):
            raise InputError("this path takes no Content-Encoding, as the application took none")
        form, kind = route.image, header(request, b"content-type").lower()
        if form.kind == "body":
            if kind.startswith(b"multipart/"):
                raise InputError("the image must be the body; this path takes no form")
            return FormFile("", "", body)
        if form.kind == "file":
            if not kind.startswith(b"multipart/"):
                raise InputError(f"the image must be the file {form.name!r} of a form, as in curl -F {form.name}=@photo.jpg")
            sent = await file_of_form(request, body)
            if sent.field != form.name or sent.others:
                other = sent.others[0] if sent.field == form.name else sent.field
                raise InputError(f"the form must hold the file {form.name!r} alone, not {other[:100]!r}")
            return sent
        limits, plane = self._plane.config.limits, self._plane
        read = partial(image_of_json, body, form.name, max_depth=limits.max_json_depth, max_values=limits.max_json_values)
        if len(body) <= SMALL_JSON:
            return FormFile("", "", read())
        # An image that is decoded from base64 is three quarters of the body beside it.
        return FormFile("", "", await parsed_beside(plane, request, memoryview(body), read, held, more=len(body)))


def _written(route: KeptRoute, file_name: str, labels: Sequence[str], row: np.ndarray) -> Any:
    """The answer, from the scores of an image."""
    if not np.isfinite(row).all():
        raise ExecutionError("gives scores for this image that are not numbers")
    tables = (tuple(labels), *route.tables)
    try:
        return route.template.fill(Answered(row, tables, file_name), None)
    except IndexError:  # another version, loaded since
        raise ExecutionError("has not the classes with which this route was proved; start the server again") from None
