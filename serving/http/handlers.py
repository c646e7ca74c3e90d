"""What answers each HTTP route: the handlers only convert, the data plane knows what requests mean."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse, Response

from ...errors import InputError
from ..console.pages import ConsolePages
from ..plane.data_plane import DataPlane
from ..protocol.codec import control_parameters, decode_request, encode_response
from ..protocol.json_limits import SMALL_JSON, parse_json, weight
from ..protocol.messages import MANY_STRINGS_BYTES, InferenceRequest, InferenceResponse, many_strings
from .body import BodyReader, Unpacker, client_of, header, header_length, image_of_form, while_connected

T = TypeVar("T")

# An encoding that a client says it does not take (RFC 9110, 12.4.2).
_UNWANTED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*$")
# Below this, packing an answer costs more than it saves.
_WORTH_PACKING = 16 * 1024

# json.dumps makes an encoder at every call that is not its default.
to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Handlers:
    """A method for each handler that protocol/routes.py names. Their docstrings stand in the OpenAPI document."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._limits = plane.config.limits
        self._bodies = BodyReader(limit=self._limits.max_body_bytes, budget=plane.bytes, give_back=plane.give_back_soon)
        self._control_bodies = BodyReader(limit=min(SMALL_JSON, self._limits.max_body_bytes), budget=plane.bytes)
        self._pages = ConsolePages()
        self._document: bytes | memoryview = b""

    async def server_metadata(self) -> Response:
        """Name, version and protocol extensions."""
        return JSONResponse(self._plane.server_metadata())

    async def live(self) -> Response:
        """200 while the process answers."""
        return JSONResponse({"live": True})

    async def ready(self) -> Response:
        """200 once every model was tried and at least one serves; 503 before, and while shutting down."""
        ready = self._plane.repository.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def index(self, request: Request) -> Response:
        """All models with their state and, for those not served, the reason."""
        asked = await self._json(request)
        ready_only = asked.get("ready", False) if isinstance(asked, dict) else None
        if not isinstance(ready_only, bool):
            raise InputError("the request must be a JSON object whose 'ready' is true or false")
        return JSONResponse(self._plane.repository.index(ready_only=ready_only))

    async def load(self, request: Request, model: str) -> Response:
        """Load or renew a model; answered once it serves. Only under explicit model control."""
        await self._plane.load_model(model, await self._control_parameters(request))
        return Response()

    async def unload(self, request: Request, model: str) -> Response:
        """Unload a model; answered once no new request finds it. Only under explicit model control."""
        await self._plane.unload_model(model, await self._control_parameters(request))
        return Response()

    async def all_statistics(self) -> Response:
        """Statistics of all models."""
        return JSONResponse(await self._plane.model_statistics())

    async def model_metadata(self, model: str, version: str = "") -> Response:
        """A model's versions and tensors."""
        return JSONResponse(self._plane.model_metadata(model, version))

    async def model_ready(self, model: str, version: str = "") -> Response:
        """200 when the model serves; otherwise an error that says why not."""
        self._plane.repository.get(model, version)
        return JSONResponse({"name": model, "ready": True})

    async def model_config(self, model: str, version: str = "") -> Response:
        """The model's configuration in Triton's form."""
        return JSONResponse(self._plane.model_config(model, version))

    async def model_statistics(self, model: str, version: str = "") -> Response:
        """The model's statistics."""
        return JSONResponse(await self._plane.model_statistics(model, version))

    async def infer(self, request: Request, model: str, version: str = "") -> Response:
        """Tensors in, tensors out: JSON, or JSON followed by binary tensors (Inference-Header-Content-Length)."""
        self._plane.count_request(client_of(request))
        self._plane.repository.get(model, version, early=True)
        async with self._bodies.read(request) as sent:
            with ExitStack() as held:
                message, answer = await while_connected(request, self._infer(request, sent, model, version, held))
                encode = partial(encode_response, answer, message)
                parts, json_length = await self._plane.in_parser(encode) if many_strings(answer.outputs) else encode()
        return _packed(request, parts, json_length)

    async def _infer(
        self, request: Request, sent: bytes, model: str, version: str, held: ExitStack
    ) -> tuple[InferenceRequest, InferenceResponse]:
        plane, length = self._plane, header_length(request)
        body = await self._unpacked(request, sent, held)
        decode = partial(
            decode_request, body, length, max_depth=self._limits.max_json_depth, max_values=self._limits.max_json_values
        )
        if (text := len(body) if length is None else length) > SMALL_JSON:
            message = await parsed_beside(plane, request, memoryview(body)[:text], decode, held)
        elif len(body) > MANY_STRINGS_BYTES and b"BYTES" in memoryview(body)[:text].tobytes():
            message = await plane.in_parser(decode)
        else:
            message = decode()
        return message, await plane.infer(model, version, message)

    async def _unpacked(self, request: Request, sent: bytes, held: ExitStack) -> bytes:
        """The body without its Content-Encoding; `held` holds what it becomes, as it becomes that."""
        encoding = header(request, b"content-encoding").decode("latin-1").strip().lower()
        if encoding in ("", "identity"):
            return sent
        unpacker = Unpacker(sent, encoding, self._limits.max_decompressed_bytes)
        body = io.BytesIO()  # one block, which the allocator gives back unlike many small ones, and which is never copied
        held.callback(self._plane.give_back_soon, self._limits.max_decompressed_bytes)
        while piece := await self._plane.in_parser(unpacker.next):
            held.enter_context(self._plane.bytes.hold(len(piece), client_of(request)))
            body.write(piece)
        return body.getvalue()

    async def classify(
        self,
        request: Request,
        model: str,
        k: Annotated[int, Query(ge=1, le=1000, description="how many labels")] = 5,
        timeout_ms: Annotated[float | None, Query(gt=0, le=3_600_000, description="answer within so many milliseconds")] = None,
        version: Annotated[str, Query(max_length=20, description="of the model; the newest by default")] = "",
    ) -> Response:
        """The labels of an image, its bytes as the body or one file of a multipart form: the k most probable ones, or all above
        their thresholds where several may hold."""
        return await self._of_image(
            request, model, timeout_ms, partial(self._plane.classify, count=k, version=version), version
        )

    async def embed(
        self,
        request: Request,
        model: str,
        timeout_ms: Annotated[float | None, Query(gt=0, le=3_600_000, description="answer within so many milliseconds")] = None,
        version: Annotated[str, Query(max_length=20, description="of the model; the newest by default")] = "",
    ) -> Response:
        """The embedding of an image: its bytes as the body, or one file of a multipart form."""
        return await self._of_image(request, model, timeout_ms, partial(self._plane.embed, version=version), version)

    async def preprocess(
        self,
        request: Request,
        model: str,
        version: Annotated[str, Query(max_length=20, description="of the model; the newest by default")] = "",
    ) -> Response:
        """How an image becomes the model's input: a small picture after each step, as PNG in base64, and what the step does."""

        async def draw(name: str, image: bytes, *, timeout: float | None) -> dict[str, Any]:
            return await self._plane.preview(name, image, version=version)

        return await self._of_image(request, model, None, draw, version)

    async def _of_image(
        self,
        request: Request,
        model: str,
        timeout_ms: float | None,
        answer_of: Callable[..., Coroutine[Any, Any, dict[str, Any]]],
        version: str = "",
    ) -> Response:
        plane = self._plane
        plane.count_request(client_of(request))
        plane.repository.get(model, version, early=True)
        async with self._bodies.read(request) as sent:
            with ExitStack() as held:
                body = await self._unpacked(request, sent, held)
                form = header(request, b"content-type").lower().startswith(b"multipart/")
                image = await image_of_form(request, body) if form else body
                timeout = None if timeout_ms is None else timeout_ms / 1000
                answer = await while_connected(request, answer_of(model, image, timeout=timeout))
                return Response(to_json(answer), media_type="application/json")

    async def status(self, region: str = "") -> Response:
        """The registered regions, or one of them."""
        return JSONResponse(self._plane.shared_memory_status(region))

    async def register(self, request: Request, region: str) -> Response:
        """Register part of a shared memory object: {"key": ..., "offset": ..., "byte_size": ...}."""
        memory = self._plane.shared_memory
        asked = await self._json(request)
        if not isinstance(asked, dict):
            raise InputError("the request must be a JSON object")
        memory.register(region, asked.get("key"), asked.get("byte_size"), asked.get("offset", 0))
        return Response()

    async def unregister(self, region: str = "") -> Response:
        """Forget one region, or all."""
        self._plane.shared_memory.unregister(region)
        return Response()

    async def cuda_status(self, region: str = "") -> Response:
        """The registered regions: none."""
        return JSONResponse([])

    async def cuda_register(self, region: str) -> Response:
        """Not supported."""
        raise self._plane.no_cuda_shared_memory()

    async def cuda_unregister(self, region: str = "") -> Response:
        """Forget one region, or all: there are none."""
        return Response()

    async def log_settings(self) -> Response:
        """The log settings."""
        return JSONResponse(self._plane.settings("logging").log.to_json())

    async def change_log_settings(self, request: Request) -> Response:
        """Change the log settings that are named."""
        settings = self._plane.settings("logging")
        return JSONResponse(settings.log.update(await self._json(request)))

    async def trace_settings(self, model: str = "") -> Response:
        """The trace settings: off."""
        return JSONResponse(self._plane.trace_settings(model).trace())

    async def change_trace_settings(self, request: Request, model: str = "") -> Response:
        """Refused unless it changes nothing: this server writes no trace files."""
        settings = self._plane.trace_settings(model)
        return JSONResponse(settings.trace(await self._json(request)))

    async def docs(self) -> Response:
        """The page that describes all routes and tries them out."""
        page = get_swagger_ui_html
        if self._pages.has_swagger:
            script, style = (f"/console/swagger-ui{end}" for end in ("-bundle.js", ".css"))
            page = partial(page, swagger_js_url=script, swagger_css_url=style)
        return page(openapi_url="/openapi.json", title="Headrace", swagger_favicon_url="/console/icon.svg")

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        if not self._document:
            self._document = JSONResponse(request.app.openapi()).body
        return Response(self._document, media_type="application/json")

    async def page(self, request: Request) -> Response:
        """The console."""
        return await self._pages.answer(request, "index.html")

    async def page_file(self, request: Request, name: str) -> Response:
        """A file of the console's page."""
        return await self._pages.answer(request, name)

    async def live_stats(self) -> Response:
        """Counters, latency histograms and queues of all models, as the console draws them: rates are their changes."""
        return JSONResponse(await self._plane.live_stats())

    async def history(self) -> Response:
        """What every model did over the last hour, by five seconds, and the last day, by two minutes; and what happened."""
        return Response(to_json(await self._plane.history()), media_type="application/json")

    async def model_plan(self, model: str, version: str = "") -> Response:
        """What a model computes with, the measurements that chose it and why the others lost, and its proofs."""
        return JSONResponse(self._plane.model_plan(model, version))

    async def _json(self, request: Request) -> Any:
        async with self._control_bodies.read(request) as body:
            return parse_json(body, max_depth=self._limits.max_json_depth) if body.strip() else {}

    async def _control_parameters(self, request: Request) -> dict[str, Any]:
        async with self._control_bodies.read(request) as body:
            return control_parameters(body, max_depth=self._limits.max_json_depth)


async def parsed_beside(
    plane: DataPlane, request: Request, text: memoryview, parse: Callable[[], T], held: ExitStack, *, more: int = 0
) -> T:
    """What `parse` makes of a long JSON text, beside the event loop. Its objects, and `more` bytes, count as held by the client
    until `held` ends."""
    objects = await plane.in_parser(partial(weight, text))
    held.enter_context(plane.bytes.hold(objects + more, client_of(request)))
    return await plane.in_parser(parse)


def _packed(request: Request, parts: list[bytes], json_length: int | None) -> Response:
    """The infer answer, compressed where the client asks for it and it is long enough to gain from that."""
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    headers = {} if json_length is None else {"Inference-Header-Content-Length": str(json_length)}
    offered = request.headers.get("accept-encoding", "").lower().split(",")
    accepted = {item.partition(";")[0].strip() for item in offered if not _UNWANTED.search(item)}
    encoding = next((known for known in ("gzip", "deflate") if known in accepted), None)
    if encoding and len(body) >= _WORTH_PACKING:
        packer = zlib.compressobj(level=1, wbits=31 if encoding == "gzip" else 15)
        body = packer.compress(body) + packer.flush()
        headers["Content-Encoding"] = encoding
    return Response(body, headers=headers, media_type="application/json" if json_length is None else "application/octet-stream")
