"""What tests/serving/fuzzing has found, one test each, with the seed and number of a case; attacks/ has what closed a port."""

import http.client
import io
import json

import pytest
from PIL import Image


@pytest.fixture(scope="module")
def own(models, launch):
    with launch(models, allow_settings=True) as server:
        yield server


def _post(server, path: str, body: bytes, headers=None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(server.http, timeout=30)
    try:
        connection.request("POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("value", [[5e-324], {}, None, 1])
def test_a_log_format_that_is_no_text(own, value):
    """2:9043: a list cannot be looked up among the formats, which was an internal error."""
    status, answer = _post(own, "/v2/logging", json.dumps({"log_format": value}).encode())
    assert status == 400
    assert "must be text or json" in answer["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/logging", b'{"\\ud800": 1}'),
        ("/v2/trace/setting", b'{"\\udfff": 1}'),
        ("/v2/models/tiny/infer", b'{"inputs": [{"name": "\\ud800", "datatype": "FP32", "shape": [1], "data": [1]}]}'),
        ("/v2/models/tiny/infer", b'{"inputs": [{"name": "images", "datatype": "\\ud800", "shape": [1], "data": [1]}]}'),
    ],
)
def test_half_of_a_surrogate_pair(own, path, body):
    """7:*: an error that quotes one could not be encoded, which was an internal error."""
    status, answer = _post(own, path, body)
    assert status == 400
    assert answer["error"]


def test_odd_files_and_forms_write_no_log(own):
    """2:*: Pillow's warnings and the form reader's were a line each, and the warnings' texts were kept for ever."""
    before = len(own.output)
    exif = Image.Exif()
    exif[0x010E] = "x" * 50
    for number in range(20):
        data = io.BytesIO()
        Image.new("RGB", (40, 30)).save(data, "JPEG", exif=exif)
        image = data.getvalue().replace(b"\x01\x0e\x00\x02\x00\x00\x00\x33", b"\x01\x0e\x00\x02\x00\x00\x7f" + bytes([number]))
        assert _post(own, "/v1/classify/tiny", image)[0] in (200, 400)
        kind = {"Content-Type": "multipart/form-data; boundary=B"}
        form = (
            b'--B\r\nContent-Disposition: form-data; name="file"; filename="x"\r\nX: %c\r\n\r\n' % number
            + image
            + b"\r\n--B--\r\n"
        )
        assert _post(own, "/v1/classify/tiny", form, kind)[0] in (200, 400)
        assert _post(own, "/v1/classify/tiny", b"--C" + form, kind)[0] == 400
    assert own.output[before:] == ""


def test_a_palette_image_without_its_palette(own):
    """7:12086: Pillow asserts that there is one, which was an internal error."""
    data = io.BytesIO()
    Image.linear_gradient("L").convert("P").save(data, "PNG", transparency=3)
    image, chunks, at = data.getvalue(), [], 8
    while at < len(image):
        end = at + 12 + int.from_bytes(image[at : at + 4], "big")
        chunks.append(image[at:end])
        at = end
    without = image[:8] + b"".join(chunk for chunk in chunks if chunk[4:8] != b"PLTE")
    assert len(without) < len(image)
    status, answer = _post(own, "/v1/classify/tiny", without)
    assert status == 400, answer
    assert "damaged" in answer["error"]
    assert _post(own, "/v1/classify/tiny", image)[0] == 200


def test_an_empty_tensor_of_boundless_size(own):
    """21:47179: NumPy multiplies the sizes that are not zero, which may not fit into 63 bits: it was an internal error."""
    tensor = {"name": "images", "datatype": "FP32", "shape": [16, 2**31, 2**31, 16, 0]}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 0}}]}).encode()
    for body, said in (
        (head, {"Inference-Header-Content-Length": str(len(head))}),
        (json.dumps({"inputs": [{**tensor, "data": []}]}), {}),
    ):
        status, answer = _post(own, "/v2/models/tiny/infer", body if isinstance(body, bytes) else body.encode(), said)
        assert status == 400, answer
        assert "too large" in answer["error"]
