"""`grpc.health.v1.Health/Check`, which load balancers and Kubernetes probe.

Its two messages are built here, in a pool of their own: the package that carries them would be a dependency for ten lines, and
two definitions in one pool collide. Definition: github.com/grpc/grpc-proto, grpc/health/v1/health.proto.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["SERVICE", "health_handler", "health_messages"]

SERVICE = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = 1, 2


def health_messages() -> tuple[Any, Any]:
    """The classes HealthCheckRequest {string service} and HealthCheckResponse {ServingStatus status}."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="grpc/health/v1/health.proto", package="grpc.health.v1", syntax="proto3")
    request = file.message_type.add(name="HealthCheckRequest")
    request.field.add(name="service", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    response = file.message_type.add(name="HealthCheckResponse")
    status = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        status.value.add(name=name, number=number)
    response.field.add(
        name="status",
        number=1,
        type=field.TYPE_ENUM,
        type_name=".grpc.health.v1.HealthCheckResponse.ServingStatus",
        label=field.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    return classes["grpc.health.v1.HealthCheckRequest"], classes["grpc.health.v1.HealthCheckResponse"]


def health_handler(ready: Callable[[str], bool | None]) -> Any:
    """A handler for grpc.aio servers. `ready` takes a service's name ("" is the whole server); None means it is unknown."""
    request_class, response_class = health_messages()

    async def check(request: Any, context: Any) -> Any:
        state = ready(request.service)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return response_class(status=_SERVING if state else _NOT_SERVING)

    method = grpc.unary_unary_rpc_method_handler(
        check, request_deserializer=request_class.FromString, response_serializer=response_class.SerializeToString
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Check": method})
