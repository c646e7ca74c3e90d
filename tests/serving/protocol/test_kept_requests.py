"""An image in the one member of a JSON object in which an application took it."""

import base64
import json

import pytest

from headrace.errors import InputError
from headrace.serving.protocol.kept_requests import image_of_json


def read(message):
    return image_of_json(json.dumps(message).encode(), "image", max_depth=8, max_values=100)


@pytest.mark.parametrize("head", ["", "data:image/jpeg;base64,", "data:image/png;base64,"])
def test_the_image_is_taken_with_and_without_a_browsers_head(head):
    assert read({"image": head + base64.b64encode(b"bytes").decode()}) == b"bytes"


def test_a_long_one_is_never_one_string():
    image = bytes(range(256)) * 8192  # 2 MiB
    for head in ("", "data:image/jpeg;base64,"):
        assert read({"image": head + base64.b64encode(image).decode()}) == image


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ([], "a JSON object whose 'image'"),
        ({}, "a JSON object whose 'image'"),
        ({"image": 3}, "a JSON object whose 'image'"),
        ({"image": "AAAA", "k": 3}, "unknown field 'k'"),
        ({"image": "A"}, "'image' is not valid base64"),
        ({"image": "data:text/html,AAAA"}, "'image' is not valid base64"),
    ],
)
def test_what_is_wrong_is_said(message, says):
    with pytest.raises(InputError, match=says):
        read(message)
