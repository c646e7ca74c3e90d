"""TLS on all three ports with certificates made here, and client certificates where they are asked for."""

import asyncio
import ssl
import time
import urllib.error
import urllib.request

import grpc
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
import trustme

from headrace.errors import HeadraceError
from headrace.serving.config import ServeConfig
from headrace.serving.guard.tls import load_tls
from tests.serving.inputs import input_of, noise


class Files:
    """A server's and a client's authority, and certificates of theirs."""

    def __init__(self, folder):
        server, client = trustme.CA(), trustme.CA()
        self.ca, self.client_ca = folder / "ca.pem", folder / "client_ca.pem"
        server.cert_pem.write_to_path(self.ca)
        client.cert_pem.write_to_path(self.client_ca)
        self.cert, self.key = self._write(server.issue_cert("localhost", "127.0.0.1"), folder, "server")
        self.client_cert, self.client_key = self._write(client.issue_cert("me@example.org"), folder, "client")
        self.other_cert, self.other_key = self._write(trustme.CA().issue_cert("me@example.org"), folder, "other")

    def _write(self, issued, folder, name):
        cert, key = folder / f"{name}.pem", folder / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return cert, key

    def context(self, cert=None, key=None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if cert:
            context.load_cert_chain(cert, key)
        return context

    def credentials(self, cert=None, key=None):
        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(), key.read_bytes() if key else None, cert.read_bytes() if cert else None
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(models, launch, files):
    with launch(models, tls_cert=files.cert, tls_key=files.key) as server:
        yield server


@pytest.fixture(scope="module")
def mutual(models, launch, files):
    with launch(models, tls_cert=files.cert, tls_key=files.key, tls_client_ca=files.client_ca) as server:
        yield server


def test_the_real_clients(secured, files):
    address = f"localhost:{secured.http.split(':')[1]}"
    options = {"ca_certs": str(files.ca)}
    with triton_http.InferenceServerClient(address, ssl=True, ssl_options=options) as client:
        assert client.infer("tiny", [input_of(triton_http, noise(1))]).as_numpy("scores").shape == (1, 7)
    with triton_grpc.InferenceServerClient(secured.grpc, ssl=True, root_certificates=str(files.ca)) as client:
        assert client.infer("tiny", [input_of(triton_grpc, noise(1))]).as_numpy("scores").shape == (1, 7)

    async def work():
        async with triton_http_aio.InferenceServerClient(secured.http, ssl=True, ssl_context=files.context()) as client:
            assert (await client.infer("tiny", [input_of(triton_http_aio, noise(1))])).as_numpy("scores").shape == (1, 7)
        async with triton_grpc_aio.InferenceServerClient(secured.grpc, ssl=True, root_certificates=str(files.ca)) as client:
            assert (await client.infer("tiny", [input_of(triton_grpc_aio, noise(1))])).as_numpy("scores").shape == (1, 7)

    asyncio.run(work())


def test_metrics_too_and_the_address_says_so(secured, files):
    with urllib.request.urlopen(f"https://{secured.metrics}/metrics", context=files.context()) as response:
        assert b"nv_inference_count" in response.read()
    assert f"https://{secured.http}" in secured.output


def test_nobody_gets_in_without(secured):
    for port in (secured.http, secured.metrics):
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(f"http://{port}/v2/health/live", timeout=10)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):  # an authority that nobody knows
            urllib.request.urlopen(f"https://{port}/v2/health/live", timeout=10)
    with grpc.insecure_channel(secured.grpc) as channel, pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=1)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_are_refused(secured, files):
    context = files.context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(urllib.error.URLError, match=r"EOF|PROTOCOL_VERSION"):  # the server hangs up
        urllib.request.urlopen(f"https://{secured.http}/v2/health/live", timeout=10, context=context)


@pytest.mark.parametrize("who", ["nobody", "stranger", "client"])
def test_client_certificates(mutual, files, who):
    pair = {
        "nobody": (None, None),
        "stranger": (files.other_cert, files.other_key),
        "client": (files.client_cert, files.client_key),
    }[who]
    for address in (f"https://{mutual.http}/v2/health/live", f"https://{mutual.metrics}/metrics"):
        if who == "client":
            with urllib.request.urlopen(address, timeout=10, context=files.context(*pair)) as response:
                assert response.status == 200
        else:
            with pytest.raises(OSError, match=r"SSL|alert|reset|EOF|closed|pipe"):
                urllib.request.urlopen(address, timeout=10, context=files.context(*pair))
    with grpc.secure_channel(mutual.grpc, files.credentials(*pair)) as channel:
        ready = grpc.channel_ready_future(channel)
        if who == "client":
            ready.result(timeout=60)
        else:
            with pytest.raises(grpc.FutureTimeoutError):
                ready.result(timeout=1)


def test_files_that_cannot_be_used(tmp_path, files):
    def load(cert, key, ca=None):
        load_tls(ServeConfig.of(models=tmp_path, tls_cert=cert, tls_key=key, tls_client_ca=ca))

    load(files.cert, files.key, files.client_ca)
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for cert, key in ((tmp_path / "nope", files.key), (files.cert, files.other_key), (files.cert, empty), (empty, files.key)):
        with pytest.raises(HeadraceError, match="--tls-cert"):
            load(cert, key)
    for ca in (tmp_path / "nope", empty, files.key):
        with pytest.raises(HeadraceError, match="--tls-client-ca"):
            load(files.cert, files.key, ca)


def test_an_encrypted_key_is_an_error_and_not_a_question(tmp_path, files):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(HeadraceError, match="unencrypted"):
        load_tls(ServeConfig.of(models=tmp_path, tls_cert=files.cert, tls_key=locked))


def test_settings_that_do_not_go_together(tmp_path):
    for settings in ({"tls_cert": tmp_path}, {"tls_key": tmp_path}, {"tls_client_ca": tmp_path}):
        with pytest.raises(ValueError, match="--tls-"):
            ServeConfig.of(models=tmp_path, **settings)


def _names(server, files) -> set[bytes]:
    """The certificates that new connections over HTTP and gRPC are shown."""
    addresses = [tuple(one.split(":")) for one in (server.http, server.metrics, server.grpc)]
    return {ssl.get_server_certificate((host, int(port)), timeout=20).encode() for host, port in addresses}


def _until_said(text, server) -> None:
    """The server writes its log on its own time."""
    end = time.monotonic() + 60
    while text not in server.output:
        assert time.monotonic() < end, server.output
        time.sleep(0.05)


def test_a_renewed_certificate_is_read_while_the_server_runs(models, launch, tmp_path):
    files = Files(tmp_path)
    with launch(models, tls_cert=files.cert, tls_key=files.key, tls_client_ca=files.client_ca) as server:
        before = _names(server, files)
        assert len(before) == 1
        (tmp_path / "later").mkdir()
        later = Files(tmp_path / "later")
        later.cert.replace(files.cert)  # its key comes later
        assert _names(server, files) == before
        _until_said("go on with the certificate read before", server)
        later.key.replace(files.key)
        later.client_ca.replace(files.client_ca)
        (after,) = _names(server, files)
        assert after not in before
        context = later.context(later.client_cert, later.client_key)
        with urllib.request.urlopen(f"https://{server.http}/v2/health/live", timeout=10, context=context) as response:
            assert response.status == 200
        with grpc.secure_channel(server.grpc, later.credentials(later.client_cert, later.client_key)) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        old = ssl.create_default_context(cafile=later.ca)
        old.load_cert_chain(files.client_cert, files.client_key)
        with pytest.raises(OSError, match=r"SSL|alert|reset|EOF|closed|pipe"):  # of an authority that counts no more
            urllib.request.urlopen(f"https://{server.http}/v2/health/live", timeout=10, context=old)
        _until_said("was read again", server)
