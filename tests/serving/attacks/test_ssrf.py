"""Requests that would have the server fetch something (CVE-2023-43654): it opens no connection, whatever it is told to load."""

import json
import socket
import threading

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc


class Listener:
    """An address that notices whoever connects."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.settimeout(0.1)
        self.visits, self.stop = 0, False
        self.thread = threading.Thread(target=self._accept)
        self.thread.start()
        return self

    def _accept(self):
        while not self.stop:
            try:
                self.socket.accept()[0].close()
                self.visits += 1
            except TimeoutError:
                pass

    @property
    def url(self):
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/model"

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()
        self.socket.close()


def test_nothing_is_fetched(target, request_to):
    with Listener() as listener:
        socket.create_connection(listener.socket.getsockname()).close()  # that it notices
        url = listener.url
        config = json.dumps({"name": "x", "backend": "onnxruntime", "default_model_filename": url})
        tensor = {"name": url, "datatype": "BYTES", "shape": [1, 1], "data": [url]}
        image = {"name": "IMAGE", "datatype": "BYTES", "shape": [1, 1], "data": [url]}
        external = {
            "name": "IMAGE",
            "datatype": "BYTES",
            "shape": [1, 1],
            "parameters": {"url": url, "uri": url, "source": url},
        }
        svg = f'<svg xmlns:xlink="x"><image xlink:href="{url}"/></svg>'
        for path, body in (
            ("/v2/repository/models/x/load", {"parameters": {"config": config, "file:1/model.onnx": url, "url": url}}),
            (f"/v2/repository/models/{url.replace('/', '%2f')}/load", {}),
            ("/v2/repository/index", {"repository_name": url}),
            ("/v2/models/tiny_classify/infer", {"inputs": [image], "parameters": {"callback": url}}),
            ("/v2/models/tiny_classify/infer", {"inputs": [external]}),
            ("/v2/models/tiny/infer", {"inputs": [tensor], "outputs": [{"name": url}]}),
            ("/v2/systemsharedmemory/region/r/register", {"key": url, "byte_size": 1}),
            ("/v2/trace/setting", {"trace_file": url}),
            ("/v2/logging", {"log_file": url}),
        ):
            status, answer = request_to(target.http, "POST", path, json.dumps(body).encode())
            assert status < 500 or status == 501, (path, status, answer)
        for body in (url.encode(), svg.encode(), b"GIF89a" + url.encode()):
            assert (
                request_to(target.http, "POST", "/v1/classify/tiny", body, {"Referer": url, "X-Forwarded-Host": url})[0] == 400
            )
        with grpc.insecure_channel(target.grpc) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            load = pb.RepositoryModelLoadRequest(repository_name=url, model_name=url)
            load.parameters["config"].string_param = config
            load.parameters["file:1/model.onnx"].bytes_param = url.encode()
            with pytest.raises(grpc.RpcError) as caught:
                stub.RepositoryModelLoad(load)
            assert caught.value.code().name in ("UNIMPLEMENTED", "NOT_FOUND", "INVALID_ARGUMENT")
    assert listener.visits == 1
