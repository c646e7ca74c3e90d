"""What a cloud calls of a script that calls nothing itself."""

import pytest

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

HANDLER = """
import base64, json

def lambda_handler(event, context):
    return {"statusCode": 200, "body": NET(opened(base64.b64decode(TAKEN))).shape[1], "id": str(context.aws_request_id)}
"""
ANSWER = 'lambda_handler of a cloud: {"statusCode": 200, "body": 3, "id": ""}\n'


@pytest.mark.parametrize(
    "taken",
    [
        "json.loads(event['body'])['image']",
        "(json.loads(event['body']) if isinstance(event['body'], str) else event['body'])['image']",
        "event['image'].split(',')[1]",
        "event.get('queryStringParameters', {}).get('img')",
        "event['Records'][0]['payload']",
        "[record['data'] for record in event['Records']][0]",
        "b'' if event.get('isBase64Encoded') else event['input']['image_base64']",
    ],
)
def test_an_image_is_found_in_an_event(rehearsed, taken):
    done = rehearsed({"main.py": OPENING + HANDLER.replace("TAKEN", taken)})
    assert done.stdout == ANSWER, done.report.why


def test_what_azure_calls_begins_first(rehearsed):
    text = (
        "import base64, json\ndef init():\n    global net\n    net = NET\n"
        "def run(raw_data):\n    return net(opened(base64.b64decode(json.loads(raw_data)['data']))).shape[1]\n"
    )
    done = rehearsed({"main.py": OPENING + text})
    assert done.stdout == "run of a cloud: 3\n", done.report.why


SAGEMAKER = """
import base64, json, os

def model_fn(model_dir):
    assert os.path.isabs(model_dir)
    return NET

def input_fn(request_body, content_type="application/x-image"):
    READ
    raise ValueError(content_type)

def predict_fn(rows, model):
    return model(rows).shape[1]
TELL
"""


@pytest.mark.parametrize("tell", ["", "def output_fn(prediction, accept):\n    return f'{prediction} {accept}'"])
@pytest.mark.parametrize(
    "read",
    [
        "if content_type == 'image/jpeg':\n        return opened(request_body)",
        "return opened(request_body)",
        "if content_type == 'application/json':\n        return opened(base64.b64decode(json.loads(request_body)['image']))",
        "if content_type == 'application/x-npy':\n        raise AssertionError\n"
        "    if content_type in ['image/png']:\n        return opened(request_body)",
    ],
)
def test_what_sagemaker_calls_is_called_in_its_order(rehearsed, read, tell):
    done = rehearsed({"main.py": OPENING + SAGEMAKER.replace("READ", read).replace("TELL", tell)})
    said = '"3 application/json"' if tell else "3"
    assert done.stdout == f"predict_fn of SageMaker: {said}\n", done.report.why


def test_a_handler_that_finds_no_image_ends_with_its_own_error(rehearsed):
    done = rehearsed({"main.py": OPENING + "def handler(event, context):\n    raise KeyError('order')\n"})
    assert (done.report.ended, done.report.why) == ("stopped", "KeyError: 'order'")
