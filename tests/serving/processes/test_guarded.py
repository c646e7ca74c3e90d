"""Tokens and TLS hold in every process: at each front end, over both protocols, and on the engine's metrics port."""

import ssl
import urllib.error
import urllib.request

import grpc
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import trustme
from tritonclient.utils import InferenceServerException

from headrace.serving.config import ServeConfig
from tests.serving.inputs import input_of, noise

INFER, METRICS = "infer-0123456789abcdef", "metrics-0123456789abcdef"
CALLS = 12  # enough connections that the kernel gives some to each front end


def test_tokens_and_tls(models, launch, tmp_path):
    (tmp_path / "tokens.toml").write_text(f'infer = ["{INFER}"]\nmetrics = ["{METRICS}"]\n')
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem", "token_file": tmp_path / "tokens.toml"}
    with launch(models, frontends=2, log_format="json", access_log=True, **files) as server:
        headers = {"authorization": f"Bearer {INFER}"}  # copied for each call: the HTTP client writes into it
        address = f"localhost:{server.http.split(':')[1]}"
        for _ in range(CALLS):
            options = {"ca_certs": str(tmp_path / "ca.pem")}
            with triton_http.InferenceServerClient(address, ssl=True, ssl_options=options) as client:
                assert client.is_server_ready()
                assert client.infer("tiny", [input_of(triton_http, noise(1))], headers=dict(headers)).as_numpy(
                    "scores"
                ).shape == (1, 7)
                with pytest.raises(InferenceServerException, match="with a token only"):
                    client.infer("tiny", [input_of(triton_http, noise(1))])
            with pytest.raises(OSError, match=r"reset|closed|EOF|refused"):
                urllib.request.urlopen(f"http://{server.http}/v2/health/live", timeout=10)
        credentials = {"ssl": True, "root_certificates": str(tmp_path / "ca.pem")}
        for _ in range(CALLS):
            with triton_grpc.InferenceServerClient(server.grpc, **credentials) as client:
                assert client.is_server_ready()
                assert client.infer("tiny", [input_of(triton_grpc, noise(1))], headers=dict(headers)).as_numpy(
                    "scores"
                ).shape == (1, 7)
                with pytest.raises(InferenceServerException, match="with a token only"):
                    client.infer("tiny", [input_of(triton_grpc, noise(1))])
        with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        asked = urllib.request.Request(f"https://{server.metrics}/metrics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(asked, timeout=10, context=context)
        asked.add_header("Authorization", f"Bearer {METRICS}")
        with urllib.request.urlopen(asked, timeout=10, context=context) as response:
            assert b"nv_inference_count" in response.read()
    assert f"https://{server.http}" in server.output  # which is said only after it is ready
    assert '"call": "ModelInfer"' in server.output
    assert '"call": "POST /v2/models/tiny/infer"' in server.output


def test_what_one_process_keeps_to_itself_needs_one_process(tmp_path):
    for name in ("shared_memory", "allow_settings"):
        with pytest.raises(ValueError, match="needs a single process; leave out --frontends"):
            ServeConfig.of(models=tmp_path, frontends=2, **{name: True})
        assert ServeConfig.of(models=tmp_path, **{name: True}).front_ends == 0
