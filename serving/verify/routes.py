"""From an address to what is judged there: a protocol's models over HTTP or gRPC, our own route, or any upload."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ...errors import HeadraceError, VerifyError
from ..protocol.json_limits import parse_json
from ..triton.exchange import GrpcExchange, HttpExchange
from .answers import beginning
from .client import Client, tls_context
from .config import VerifyConfig
from .endpoint import GARBLED, Endpoint, Inference, Interface, find_upload, target_of, with_count
from .images import Sample
from .reference import Reference

_MODEL = re.compile(
    r"(?P<prefix>.*)/v2/models/(?P<model>[^/?]+)(?:/versions/(?P<version>[^/?]+))?(?:/(?:infer|ready|config))?/?"
)
_METADATA = "/inference.GRPCInferenceService/ModelMetadata"
_CLASSIFY, _BINARY = "_classify", "binary_tensor_data"
_ROWS = 8


def find_endpoints(config: VerifyConfig, reference: Reference, trials: Sequence[Sample]) -> list[Endpoint]:
    """What there is to judge at the address. `trials` are images to try uploads with; none where the package knows no
    preprocessing. Raises VerifyError."""
    if urlsplit(config.url).scheme in ("grpc", "grpcs"):
        return [_over_grpc(config, reference)]
    client = Client(
        config.url,
        headers=config.headers,
        timeout_seconds=config.timeout_seconds,
        most_bytes=config.max_answer_bytes,
        authority=config.tls_ca,
    )
    target = target_of(config.url)
    if found := _MODEL.fullmatch(urlsplit(config.url).path):
        return [_over_http(client, found["prefix"], found["model"], found["version"] or "", reference)]
    if urlsplit(config.url).path.strip("/"):
        return [_upload(config, client, target, reference, trials)]
    return _of_server(config, client, reference, trials)


def _of_server(config: VerifyConfig, client: Client, reference: Reference, trials: Sequence[Sample]) -> list[Endpoint]:
    """A server's address alone: its model of that name, by tensors and, where it takes them, by images."""
    status, metadata = _json(client, "/v2")
    if status != 200 or not isinstance(metadata, dict):
        raise VerifyError(
            f"{client.origin} is no server of the Open Inference Protocol (GET /v2: {status}); give the whole address that "
            f"takes images, as in {client.origin}/predict"
        )
    name = reference.artifact.name if config.served_as is None else config.served_as
    found: list[Endpoint] = [_over_http(client, "", name, "", reference)]
    if trials and metadata.get("name") == "headrace":
        found.append(_upload(config, client, f"/v1/classify/{name}", reference, trials))
    elif trials and _json(client, f"/v2/models/{name}{_CLASSIFY}")[0] == 200:
        found.append(_over_http(client, "", name + _CLASSIFY, "", reference))
    return found


def _upload(config: VerifyConfig, client: Client, target: str, reference: Reference, trials: Sequence[Sample]) -> Endpoint:
    if not trials:
        raise VerifyError(
            f"the package of {reference.artifact.name} does not say how an image becomes its input; package it with its "
            "preprocessing (headrace migrate), or give the address of a model that takes tensors"
        )
    if target.startswith("/v1/classify/"):
        target = with_count(target, reference.vocabulary)
    return find_upload(client, target, reference.vocabulary, trials, field=config.field)


def _over_http(client: Client, prefix: str, model: str, version: str, reference: Reference) -> Endpoint:
    path = f"{prefix}/v2/models/{model}" + (f"/versions/{version}" if version else "")
    status, metadata = _json(client, path)
    if status != 200:
        raise VerifyError(f"{client.origin}{path} answers {status} {str(metadata)[:160]}; --served-as names the model there")
    interface = Interface.read(metadata, model, version)
    _, server = _json(client, f"{prefix}/v2")
    extensions = server.get("extensions") if isinstance(server, dict) else None
    binary = isinstance(extensions, list) and _BINARY in extensions

    def call(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        kind = {} if "Inference-Header-Content-Length" in headers else {"Content-Type": "application/json"}
        return client.call(method, prefix + path, body, {**kind, **headers})

    if interface.inputs[0][1] == "BYTES" and not binary:
        raise VerifyError(
            f"{client.origin}{path} takes images, and has no extension {_BINARY} to send them by; use its gRPC port"
        )
    _, settings = _json(client, f"{path}/config")
    how = "with binary tensors" if binary else "as JSON"
    return Inference(
        HttpExchange("", binary=binary, call=call),
        interface,
        reference.vocabulary,
        title=f"POST {client.origin}{path}/infer, {how}",
        most_rows=_largest(settings),
    )


def _over_grpc(config: VerifyConfig, reference: Reference) -> Endpoint:
    import grpc
    from google.protobuf.json_format import MessageToDict

    from ...runtime.artifact.triton_messages import service as pb

    parts = urlsplit(config.url)
    if not parts.hostname or parts.port is None:
        raise VerifyError(f"{config.url} names no host and port; give grpc://HOST:PORT or grpc://HOST:PORT/MODEL")
    model = parts.path.strip("/") or config.served_as or reference.artifact.name
    options = [("grpc.max_receive_message_length", config.max_answer_bytes), ("grpc.max_send_message_length", -1)]

    def channel(address: str) -> Any:
        if parts.scheme == "grpc":
            return grpc.insecure_channel(address, options=options)
        if config.tls_ca is not None:
            tls_context(config.tls_ca)  # says what is wrong with it
        authority = None if config.tls_ca is None else config.tls_ca.read_bytes()
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority), options=options)

    metadata = [(name.lower(), value) for name, value in config.headers.items()]
    with channel(parts.netloc) as opened:
        ask = opened.unary_unary(_METADATA, pb.ModelMetadataRequest.SerializeToString, pb.ModelMetadataResponse.FromString)
        try:
            found = ask(pb.ModelMetadataRequest(name=model), timeout=config.timeout_seconds, metadata=metadata)
        except grpc.RpcError as error:
            raise VerifyError(
                f"{config.url} does not describe the model {model}: {error.code().name} {error.details()}; --served-as names it"
            ) from None
    described = MessageToDict(found, preserving_proto_field_name=True)
    for side in ("inputs", "outputs"):
        for tensor in described.get(side, ()):
            tensor.setdefault("shape", [])
    exchange = GrpcExchange(parts.netloc, timeout=config.timeout_seconds, metadata=metadata, open=channel)
    title = f"ModelInfer of {model} at {config.url}"
    return Inference(exchange, Interface.read(described, model), reference.vocabulary, title=title, most_rows=_ROWS)


def _largest(settings: Any) -> int:
    """How many rows a request may have, by the model's configuration where the server gives it."""
    try:
        return max(1, min(_ROWS, int(settings["max_batch_size"])))
    except GARBLED:
        return _ROWS


def _json(client: Client, path: str) -> tuple[int, Any]:
    """The status and the JSON of a GET, or how the body begins where it is none."""
    status, _, body = client.call("GET", path)
    try:
        return status, parse_json(body) if body.strip() else None
    except HeadraceError:
        return status, beginning(body)
