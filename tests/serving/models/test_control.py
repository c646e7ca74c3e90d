"""The model_repository extension, driven by the real clients: load, unload, versions, overrides, refusals."""

import asyncio
import json
import threading
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

IMAGES = np.random.default_rng(3).normal(size=(2, 3, 16, 16)).astype(np.float32)


def _input(module):
    tensor = module.InferInput("images", list(IMAGES.shape), "FP32")
    tensor.set_data_from_numpy(IMAGES)
    return tensor


@pytest.fixture
def scale_of(scores_of):
    """A client -> by how much its answers are the reference's, which tells the version that gave them."""

    def scale(client, name="tiny", version="") -> float:
        module = triton_grpc if "grpc" in type(client).__module__ else triton_http
        scores = client.infer(name, [_input(module)], model_version=version).as_numpy("scores")
        ratio = scores / scores_of(IMAGES)
        np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-3)
        return round(float(ratio.flat[0]), 3)

    return scale


def _rows(client, name="tiny") -> list[tuple[str, str]]:
    """(version, state) of a name, over either protocol."""
    index = client.get_model_repository_index()
    rows = [(row["name"], row["version"], row["state"]) for row in index] if isinstance(index, list) else [
        (row.name, row.version, row.state) for row in index.models
    ]  # fmt: skip
    return [(version, state) for found, version, state in rows if found == name]


def _reason(client, name="tiny", version="") -> str:
    rows = client.get_model_repository_index()
    return next(row["reason"] for row in rows if row["name"] == name and row["version"] == version)


@pytest.fixture
def clients(start, repository):
    """Start a server of `repository` under explicit control; gives its HTTP and gRPC client and the server."""
    opened = []

    def begin(**config):
        server = start(repository.path, model_control_mode="explicit", **config)
        opened.extend((triton_http.InferenceServerClient(server.http), triton_grpc.InferenceServerClient(server.grpc)))
        return (*opened[-2:], server)

    yield begin
    for client in opened:
        client.close()


def test_load_and_unload(clients, repository, scale_of, make_photo):
    repository.package("tiny")
    http, grpc, server = clients()
    assert http.is_server_ready()  # with nothing loaded, as Triton
    assert _rows(http) == _rows(grpc) == [("", "UNAVAILABLE")]
    for client in (http, grpc):
        assert not client.is_model_ready("tiny")
        client.load_model("tiny")
        assert client.is_model_ready("tiny")
        assert client.is_model_ready("tiny", "1")
        assert scale_of(client) == 1
        photo = make_photo(1)
        answer = httpx.post(f"{server.url}/v1/classify/tiny_classify", content=photo).raise_for_status().json()
        assert len(answer["predictions"]) == 5
        assert _rows(client) == _rows(client, "tiny_classify") == _rows(client, "tiny_decode") == [("1", "READY")]
        client.unload_model("tiny")
        assert not client.is_model_ready("tiny")
        assert not client.is_model_ready("tiny_classify")
        with pytest.raises(InferenceServerException, match="is not served"):
            scale_of(client)
        client.unload_model("tiny")  # once more is no error
    assert server.stop() == 0, server.output


def test_asynchronous_clients(clients, repository):
    repository.package("tiny")
    _, _, server = clients()

    async def work() -> None:
        for module, address in ((triton_http_aio, server.http), (triton_grpc_aio, server.grpc)):
            async with module.InferenceServerClient(address) as client:
                await client.load_model("tiny")
                assert await client.is_model_ready("tiny")
                await client.unload_model("tiny", unload_dependents=True)
                assert not await client.is_model_ready("tiny")

    asyncio.run(work())


def test_what_is_loaded_at_the_start(clients, repository):
    for name in ("one", "two"):
        repository.package(name)
    http, _, _ = clients(load_models=["two_classify"])
    names = ("one", "two", "two_decode", "two_classify")
    assert [name for name in names if http.is_model_ready(name)] == ["two", "two_classify"]
    http, _, _ = clients(load_models=["*"])
    assert all(http.is_model_ready(name) for name in ("one", "one_classify", "two", "two_decode"))


def test_a_companion_is_unloaded_alone_and_brings_its_target(clients, repository):
    repository.package("tiny")
    http, _, _ = clients()
    http.load_model("tiny_classify")
    assert http.is_model_ready("tiny")
    assert not http.is_model_ready("tiny_decode")
    http.unload_model("tiny_classify")
    assert http.is_model_ready("tiny")
    assert not http.is_model_ready("tiny_classify")
    http.load_model("tiny_classify")
    http.unload_model("tiny_classify", unload_dependents=True)
    assert not http.is_model_ready("tiny")


def test_a_new_version_takes_over_and_going_back_is_loading_again(clients, repository, scale_of):
    repository.package("tiny")
    http, grpc, _ = clients(load_models=["tiny"])
    repository.add("tiny", 2, scale=2)
    assert scale_of(http) == 1  # nothing changes unasked
    http.load_model("tiny")
    assert scale_of(http) == scale_of(grpc, "tiny", "2") == 2
    assert http.get_model_metadata("tiny")["versions"] == list(grpc.get_model_metadata("tiny").versions) == ["2"]
    with pytest.raises(InferenceServerException, match="version 1 is not found"):
        scale_of(http, version="1")
    assert _rows(http)[0] == ("2", "READY")
    (repository.path / "tiny" / "2").rename(repository.tmp / "withdrawn")
    grpc.load_model("tiny")
    assert scale_of(http) == 1
    assert http.get_model_metadata("tiny")["versions"] == ["1"]


def test_a_version_that_fails_stays_out_and_says_why(clients, repository, scale_of):
    repository.package("tiny", scale=3)
    http, grpc, _ = clients(load_models=["tiny"])
    repository.add("tiny", 2, scale=np.nan)
    for client in (http, grpc):
        with pytest.raises(InferenceServerException, match=r"version 2: output 'scores' of a batch of noise is not finite"):
            client.load_model("tiny")
    broken = repository.add("tiny", 3, scale=4)
    (broken / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(InferenceServerException, match=r"tiny/3/model.onnx is not the file that was written"):
        http.load_model("tiny")
    assert _rows(http) == _rows(grpc) == [("3", "UNAVAILABLE"), ("2", "UNAVAILABLE"), ("1", "READY")]
    assert "not finite" in _reason(http, "tiny", "2")
    assert str(repository.tmp) not in json.dumps(http.get_model_repository_index())
    assert scale_of(http) == scale_of(grpc) == 3
    http.unload_model("tiny")
    with pytest.raises(InferenceServerException, match="version 3"):
        http.load_model("tiny")
    assert scale_of(http) == 3  # the newest that can be served, whatever served before


def test_a_version_whose_files_go_bad_goes_on_from_memory(clients, repository, scale_of):
    repository.package("tiny")
    http, _, _ = clients(load_models=["tiny"])
    (repository.path / "tiny" / "1" / "model.onnx").write_bytes(b"overwritten")
    with pytest.raises(InferenceServerException, match="not the file that was written"):
        http.load_model("tiny")
    assert scale_of(http) == 1
    assert _rows(http) == [("1", "READY")]
    assert "not the file that was written" in _reason(http, "tiny", "1")
    (repository.path / "tiny" / "config.pbtxt").write_text("neither protobuf")
    with pytest.raises(InferenceServerException, match="not a Triton model configuration"):
        http.load_model("tiny")
    assert scale_of(http) == 1


def test_version_policies(clients, repository, scale_of):
    repository.package("tiny")
    for version in (2, 3):
        repository.add("tiny", version, scale=version)
    repository.configure("tiny", "version_policy { latest { num_versions: 2 } }")
    http, grpc, server = clients(load_models=["tiny"])
    assert http.get_model_metadata("tiny")["versions"] == ["3", "2"]
    assert scale_of(http) == 3
    assert scale_of(grpc, version="2") == 2
    assert [row["version"] for row in httpx.get(f"{server.url}/v2/models/tiny/stats").json()["model_stats"]] == ["3", "2"]
    assert [row.version for row in grpc.get_inference_statistics("tiny", "2").model_stats] == ["2"]
    assert _rows(http) == [("3", "READY"), ("2", "READY"), ("1", "UNAVAILABLE")]
    config = repository.path / "tiny" / "config.pbtxt"
    plain = config.read_text().partition("version_policy")[0]
    config.write_text(plain + "version_policy { specific { versions: [1, 9] } }")
    with pytest.raises(InferenceServerException, match="version 9, which is not there"):
        http.load_model("tiny")
    assert http.get_model_metadata("tiny")["versions"] == ["1"]
    config.write_text(plain + "version_policy { all { } }")
    http.load_model("tiny")
    assert http.get_model_metadata("tiny")["versions"] == ["3", "2", "1"]
    assert [scale_of(http, version=version) for version in ("1", "2", "3", "")] == [1, 2, 3, 3]
    metrics = httpx.get(f"http://{server.metrics}/metrics").text
    assert 'nv_inference_request_success{model="tiny",version="1"}' in metrics
    assert 'nv_inference_request_success{model="tiny",version="3"}' in metrics


def test_a_config_given_with_the_request(clients, repository, scale_of):
    repository.package("tiny")
    repository.add("tiny", 2, scale=2)
    http, grpc, _ = clients()
    http.load_model("tiny")
    config = http.get_model_config("tiny")
    config["max_batch_size"] = 1
    config["version_policy"] = {"specific": {"versions": [1]}}
    for client in (http, grpc):
        client.load_model("tiny", config=json.dumps(config))
        assert http.get_model_config("tiny")["max_batch_size"] == 1
        with pytest.raises(InferenceServerException, match="batch-size must be >= 1 and <= 1"):
            scale_of(client)
        client.load_model("tiny_classify")  # brings what it needs as it is
        assert http.get_model_config("tiny")["max_batch_size"] == 1
        client.load_model("tiny")  # L0_lifecycle: test_model_config_overwite
        assert http.get_model_config("tiny")["max_batch_size"] == 1
        (repository.path / "tiny" / "config.pbtxt").touch()
        client.load_model("tiny")
        assert scale_of(client) == 2
    client.load_model("tiny", config=json.dumps(config))
    client.unload_model("tiny")
    client.load_model("tiny")
    assert scale_of(client) == 2
    # What it leaves out is the model's own, as where Triton completes a configuration.
    client.load_model("tiny", config='{"version_policy": {"specific": {"versions": [1]}}}')
    assert http.get_model_config("tiny")["max_batch_size"] > 1
    assert scale_of(client) == 1
    client.unload_model("tiny")
    client.load_model("tiny")
    config["input"][0]["dims"] = [4]
    for bad, says in ((json.dumps(config), "does not fit the model"), ("{", "in JSON"), ('{"nope": 1}', "nope")):
        for client in (http, grpc):
            with pytest.raises(InferenceServerException, match=says):
                client.load_model("tiny", config=bad)
        assert scale_of(http) == 2
    with pytest.raises(InferenceServerException, match="no configuration of its own"):
        http.load_model("tiny_classify", config="{}")


def test_unknown_names(clients, repository):
    repository.package("tiny")
    _, grpc, server = clients()
    for name in ("nope", "..", "tiny/../tiny", ".headrace", "/etc", "tiny\x00", "t" * 5000):
        for call in (grpc.load_model, grpc.unload_model):
            with pytest.raises(InferenceServerException, match="unknown model"):
                call(name)
        for verb in ("load", "unload"):
            # What is no one part of a path is no such route: 404 as well.
            assert httpx.post(f"{server.url}/v2/repository/models/{quote(name, safe='')}/{verb}").status_code == 404


def test_bad_parameters(clients, repository):
    repository.package("tiny")
    http, grpc, server = clients()
    with pytest.raises(InferenceServerException, match="takes no files over the network"):
        grpc.load_model("tiny", config="{}", files={"file:1/model.onnx": b"x"})
    with pytest.raises(InferenceServerException, match="failed to poll from model repository") as error:
        grpc.load_model("tiny", config="{}", files={f"file:1/{256 * 'x'}": b"x"})
    assert error.value.status() == "StatusCode.INTERNAL", "as Triton has it"
    url = f"{server.url}/v2/repository/models/tiny"
    for verb, body, status in (
        ("load", b'{"parameters": {"file:1/model.onnx": "eA=="}}', 501),
        ("load", b'{"parameters": {"config": 1}}', 400),
        ("load", b'{"parameters": {"other": 1}}', 400),
        ("load", b'{"parameters": []}', 200),
        ("load", b'{"parameters": 1}', 400),
        ("load", b"[]", 400),
        ("load", b"{", 400),
        ("load", b"[" * 10000, 400),
        ("unload", b'{"parameters": {"unload_dependents": "yes"}}', 400),
        ("unload", b'{"parameters": {"config": "{}"}}', 400),
        ("unload", b"", 200),
    ):
        answer = httpx.post(f"{url}/{verb}", content=body)
        assert answer.status_code == status, (verb, body, answer.text)
        if status != 200:
            assert answer.json()["error"]
    assert not http.is_model_ready("tiny")


def test_control_calls_of_one_model_take_turns(clients, repository, scale_of):
    repository.package("tiny")
    repository.package("other")
    http, grpc, server = clients(load_models=["*"])
    failures = []

    def control(number: int) -> None:
        with triton_grpc.InferenceServerClient(server.grpc) as own:
            for turn in range(4):
                try:
                    (own.load_model if (number + turn) % 2 else own.unload_model)(("tiny", "other")[number % 2])
                except InferenceServerException as error:
                    failures.append(error)

    threads = [threading.Thread(target=control, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for name in ("tiny", "other"):
        http.load_model(name)
        assert scale_of(grpc, name) == 1
    assert server.stop() == 0, server.output


def test_a_model_whose_folder_is_gone_serves_until_it_is_unloaded(clients, repository, scale_of):
    repository.package("tiny")
    http, _, _ = clients(load_models=["tiny"])
    for name in ("tiny", "tiny_decode", "tiny_classify"):
        (repository.path / name).rename(repository.tmp / name)
    with pytest.raises(InferenceServerException, match="unknown model"):
        http.load_model("tiny")
    assert scale_of(http) == 1
    http.unload_model("tiny")
    assert not http.is_model_ready("tiny")


def test_control_is_refused_unless_it_is_explicit(server):
    with triton_http.InferenceServerClient(server.http) as http, triton_grpc.InferenceServerClient(server.grpc) as grpc:
        for client in (http, grpc):
            for call in (client.load_model, client.unload_model):
                with pytest.raises(InferenceServerException, match="not enabled"):
                    call("tiny")
            assert client.is_model_ready("tiny")
