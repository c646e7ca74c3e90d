"""Servers that do what the package says, each in its own way: none of them may be accused of anything."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from headrace.serving.verify.config import VerifyConfig
from headrace.serving.verify.verify import verify
from tests.serving.verify.network import GRAY, LABELS, PREPROCESSING, SIDE, network, package, scores
from tests.serving.verify.oip_server import oip_server
from tests.serving.verify.upload_server import Service, reply, serving, softmax, upload_server


def judged(url, models, **options):
    done = verify(VerifyConfig(url=url, models=models, **options))
    assert [finding.text for judgement in done.judgements for finding in judgement.findings] == []
    assert done.same
    return done.judgements


def test_our_own_server_by_images_and_by_tensors(server, models):
    """Its fast decoding of JPEG differs by up to 2 of 255 levels from the package's, which is no fault."""
    tensors, images = judged(server.url, models, model="tiny")
    assert "/v2/models/tiny/infer, with binary tensors" in tensors.endpoint
    assert "/v1/classify/tiny?k=7, the image as the body" in images.endpoint
    assert images.groups["exif"] == (8, 8)
    assert images.requests < 100


@pytest.mark.parametrize("address", ["{0.url}/v2/models/tiny_classify", "grpc://{0.grpc}/tiny_classify"])
def test_a_model_of_the_protocol_that_takes_images(server, models, address):
    (found,) = judged(address.format(server), models, model="tiny")
    assert found.groups["exif"] == (8, 8)
    assert found.groups["alpha"] == (3, 3)


def test_our_own_server_with_front_ends_over_grpc_and_http(start, models):
    started = start(models, frontends=2)
    (by_grpc,) = judged(f"grpc://{started.grpc}/tiny", models, model="tiny")
    assert by_grpc.groups["rows"][0] > 20
    assert len(judged(started.url, models, model="tiny")) == 2


def test_an_upload_service_with_eager_torch(fish):
    with upload_server(Service()) as url:
        (found,) = judged(url, fish)
    assert found.groups["flat"] == (8, 8)
    assert "field 'file'" in found.endpoint


def test_a_protocol_server_written_by_hand(fish):
    with oip_server() as url:
        (found,) = judged(f"{url}/v2/models/fish", fish)
    assert any("tensors" in note for note in found.notes)


def _service(answer):
    """An image as the body; `answer` makes JSON of scores."""
    service = Service(activate=lambda values: values, answer=answer)
    return serving(lambda handler, body: reply(handler, service(body)))


def percentages(values):
    order = np.argsort(-values)[:3]
    shares = softmax(values)
    return {
        "result": [{"name": LABELS[i].replace(" ", "_").upper(), "confidence": round(100 * float(shares[i]), 2)} for i in order]
    }


ANSWERS = {
    "labels to probabilities": lambda values: {"data": dict(zip(LABELS, map(float, softmax(values)), strict=True))},
    "a list for all classes": lambda values: [[float(value) for value in softmax(values)]],
    "raw scores": lambda values: {"scores": [float(value) for value in values]},
    "rounded percentages of three classes": percentages,
    "one class": lambda values: {"class_id": int(values.argmax()), "class_name": LABELS[int(values.argmax())]},
    "a label alone": lambda values: LABELS[int(values.argmax())],
    "labels beside values": lambda values: {
        "labels": list(LABELS),
        "confidences": [round(float(v), 4) for v in softmax(values)],
    },
    "index and label": lambda values: {
        "predictions": [{"index": int(i), "label": LABELS[i], "score": float(softmax(values)[i])} for i in np.argsort(-values)]
    },
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_of_any_usual_shape(fish, answer):
    with _service(answer) as url:
        (found,) = judged(f"{url}/classify", fish)
    assert found.groups["photo"] == (13, 13)


def test_a_model_of_gray_images_that_gives_probabilities_without_labels(tmp_path):
    models = package(tmp_path / "models", tmp_path, preprocessing=GRAY, labels=None, softmax=True)

    def answer(handler, body):
        image = Image.open(io.BytesIO(body)).convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        row = ((np.asarray(image, np.float32) / 255 - 0.13) / 0.31)[None, None]
        reply(handler, {"prediction": [float(value) for value in softmax(scores(row, network(5, 1))[0])]})

    with serving(answer) as url:
        judged(f"{url}/digits", models)


def test_a_users_own_images_are_asked_about_too(fish, tmp_path):
    for number in range(3):
        Image.effect_noise((40, 30), 90).convert("RGB").save(tmp_path / f"{number}.jpg")
    with upload_server(Service()) as url:
        (found,) = judged(url, fish, images=tmp_path)
    assert found.groups["given"] == (3, 3)


def test_a_model_without_preprocessing_is_judged_by_tensors(tmp_path):
    models = package(tmp_path / "models", tmp_path, preprocessing=None)
    with oip_server() as url:
        (found,) = judged(url, models)
    assert found.groups["rows"] == (11, 11)
    assert PREPROCESSING.row_size == (SIDE, SIDE)
