"""The server between two stretches of cases: the same answers as at the start, and what it holds of memory, files and
threads."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import psutil
from drawing import Draw
from grammars.grpc_messages import good
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb
from world import World, images

# Threads and files that come and go with connections need a moment after the last of these was closed.
_SETTLE_SECONDS = 20.0
_STEP_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the server's processes hold together at one moment."""

    cases: int
    rss_bytes: int
    files: int
    threads: int


class Health:
    """One server, watched from outside."""

    def __init__(self, server: Any, world: World) -> None:
        self._server = server
        self._world = world
        self._read = 0
        self._before: list[tuple[str, object]] = []

    @property
    def ended(self) -> bool:
        """Whether the server's process is gone."""
        return self._server.process.poll() is not None

    async def start(self) -> None:
        """Remember what the control requests are answered with."""
        self._before = await asyncio.to_thread(self._answers)

    async def problems(self) -> list[str]:
        """What is wrong with the server now."""
        if self.ended:
            return [f"the server ended with {self._server.process.returncode}: {self._log()[-2000:]}"]
        try:
            after = await asyncio.to_thread(self._answers)
        except (OSError, http.client.HTTPException, grpc.RpcError) as error:
            return [f"a control request failed: {error!r}"]
        changed = [
            f"the control request {name} was answered {str(was)[:300]!r} before, {str(now)[:300]!r} now"
            for (name, was), (_, now) in zip(self._before, after, strict=True)
            if was != now
        ]
        return changed + self._logged()

    def _logged(self) -> list[str]:
        """Errors that the log got since it was looked at last."""
        text = self._log()
        new, self._read = text[self._read :], len(text)
        at = next(
            (new.find(word) for word in ("Traceback", " ERROR ", '"level": "error"', "never retrieved") if word in new), -1
        )
        return [f"the log has {new[max(0, at - 500) : at + 3000]}"] if at >= 0 else []

    def _log(self) -> str:
        return str(self._server.log.read_bytes().decode(errors="replace"))

    async def held(self, cases: int) -> Held:
        """Once no connection is open any more, or does not close in a long time: what is held."""
        end = time.monotonic() + _SETTLE_SECONDS
        if self._world.key:
            await asyncio.to_thread(self._http, "POST", "/v2/systemsharedmemory/unregister")
        while self._connections() and time.monotonic() < end:
            await asyncio.sleep(_STEP_SECONDS)
        processes = self._processes()
        return Held(
            cases=cases,
            rss_bytes=sum(process.memory_info().rss for process in processes),
            files=sum(process.num_fds() for process in processes),
            threads=sum(process.num_threads() for process in processes),
        )

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process(self._server.process.pid)
        return [own, *own.children(recursive=True)]

    def _connections(self) -> int:
        return sum(
            one.status != psutil.CONN_LISTEN for process in self._processes() for one in process.net_connections(kind="tcp")
        )

    def _answers(self) -> list[tuple[str, object]]:
        """Name and answer of every control request."""
        rows = self._world.rows(Draw(0, 0).random, 2)
        tensor = {"name": "images", "datatype": "FP32", "shape": list(rows.shape)}
        text = json.dumps({"inputs": [tensor | {"data": rows.ravel().tolist()}]}).encode()
        sized = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": rows.nbytes}}]}).encode()
        found: list[tuple[str, object]] = [
            ("JSON", self._http("POST", "/v2/models/tiny/infer", text)),
            (
                "binary",
                self._http(
                    "POST",
                    "/v2/models/tiny/infer",
                    sized + rows.tobytes(),
                    {"Inference-Header-Content-Length": str(len(sized))},
                ),
            ),
            *(
                (f"image {number}", self._http("POST", "/v1/classify/tiny", image))
                for number, image in enumerate(images()[:16:3])
            ),
            *(
                (path, self._http("GET", path))
                for path in ("/v2", "/v2/health/ready", "/v2/models/tiny", "/v2/models/tiny/config", "/v2/models/nope")
            ),
        ]
        with grpc.insecure_channel(self._server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            for method, message in (
                ("/inference.GRPCInferenceService/ModelInfer", good(Draw(0, 1), self._world)[0]),
                ("/inference.GRPCInferenceService/ServerMetadata", b""),
                ("/inference.GRPCInferenceService/ModelMetadata", pb.ModelMetadataRequest(name="tiny").SerializeToString()),
                ("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest().SerializeToString()),
            ):
                found.append((method, channel.unary_unary(method)(message, timeout=60, wait_for_ready=True)))
        return found

    def _http(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._server.http, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()


def growth(held: list[Held]) -> tuple[float, float]:
    """Medians of the resident bytes of the earlier and of the later half of these moments."""
    values = [one.rss_bytes for one in held]
    half = len(values) // 2
    return float(np.median(values[:half] or values)), float(np.median(values[half:]))
