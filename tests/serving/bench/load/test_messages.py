import asyncio
import base64
import json

import httptools
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartParser

from headrace.serving.bench.load.messages import message
from headrace.serving.protocol.codec import decode_request

IMAGE = bytes(range(256)) * 3 + b"\r\n--"


class Parsed:
    """What a server's parser makes of the bytes."""

    def __init__(self, sent):
        self.headers, self.body, self.ended = {}, b"", False
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(sent)
        self.method = parser.get_method()

    def on_url(self, url):
        self.url = url

    def on_header(self, name, value):
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.ended = True


def test_the_body_itself():
    parsed = Parsed(message("http://127.0.0.1:8/v1/x?k=5", IMAGE, ".JPG"))
    assert (parsed.method, parsed.url, parsed.body, parsed.ended) == (b"POST", b"/v1/x?k=5", IMAGE, True)
    assert (parsed.headers["host"], parsed.headers["content-type"]) == ("127.0.0.1:8", "image/jpeg")


def test_a_file_of_a_form():
    parsed = Parsed(message("http://h:1/predict", IMAGE, ".jpg", "form", field="picture"))

    async def read():
        async def stream():
            yield parsed.body

        form = await MultiPartParser(Headers(parsed.headers), stream()).parse()
        return await form["picture"].read()

    assert asyncio.run(read()) == IMAGE


def test_base64_in_json():
    parsed = Parsed(message("http://h:1/v2/models/m/infer", IMAGE, ".jpg", "v2"))
    (tensor,) = json.loads(parsed.body)["inputs"]
    assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("image", "BYTES", [1, 1])
    assert base64.b64decode(tensor["data"][0]) == IMAGE


def test_binary_tensor_data():
    parsed = Parsed(message("http://h:1/v2/models/m/infer", IMAGE, ".jpg", "v2-binary"))
    request = decode_request(parsed.body, int(parsed.headers["inference-header-content-length"]), max_depth=8)
    (tensor,) = request.inputs
    assert tensor.data.ravel().tolist() == [IMAGE]
    assert tensor.shape == (1, 1)
