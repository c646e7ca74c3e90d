"""One fault planted in an upload service at a time: each is named, and nothing else is."""

from __future__ import annotations

import io
import json
import threading

import numpy as np
import pytest
from PIL import Image, ImageOps

from headrace.runtime.artifact.plan import Choice, Plan
from headrace.serving.verify.config import VerifyConfig
from headrace.serving.verify.verdict import FAULTS as NAMES
from headrace.serving.verify.verify import verify
from headrace.specs import INT8, CenterCrop, Preprocessing, Resize
from tests.serving.verify.network import LABELS, MEAN, STD, network, package, scores
from tests.serving.verify.planted import ALPHABETICAL, FAULTS
from tests.serving.verify.upload_server import Service, normalized, opened, reply, serving, softmax, upload_server


def judged(service, models, **options):
    with upload_server(service) as url:
        (judgement,) = verify(VerifyConfig(url=url, models=models, **options)).judgements
    assert judgement.requests < 100
    return judgement


def findings(service, models, **options):
    return judged(service, models, **options).findings


# Of each kind the first, but for those that another test here plants.
ELSEWHERE = {"channel-order", "resize-filter", "normalization", "softmax", "exif", "label-order", "refused"}
FIRST = {planted.fault: name for name, planted in reversed(FAULTS.items()) if planted.fault not in ELSEWHERE}


@pytest.mark.parametrize(
    "name", [name if name in FIRST.values() else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_a_planted_fault_is_named(fish, name):
    planted = FAULTS[name]
    (found,) = findings(planted.service(), fish)
    assert (found.fault, planted.says in found.text) == (planted.fault, True), found.text


def test_at_least_twenty_kinds_of_faults_are_planted():
    assert len({planted.fault for planted in FAULTS.values()}) >= 20
    assert {planted.fault for planted in FAULTS.values()} <= set(NAMES)


@pytest.mark.slow  # two of them: below
def test_two_faults_at_once_are_both_named(fish):
    def gray_world(pixels):
        return ((pixels[:, :, ::-1] / 255 - np.array(STD)) / np.array(MEAN)).transpose(2, 0, 1).astype(np.float32)

    found = findings(Service(normalize=gray_world, activate=lambda values: softmax(softmax(values))), fish)
    assert {one.fault for one in found} == {"channel-order", "normalization", "softmax"}
    assert all(one.explains > 0.99 for one in found)


def test_a_small_fault_behind_a_large_one_is_named_too(fish):
    filtered, plain = FAULTS["bicubic"].service(), FAULTS["not normalized"].service()
    found = findings(Service(shape=filtered.shape, normalize=plain.normalize), fish)
    assert {one.fault for one in found} == {"normalization", "resize-filter"}


def test_a_fault_of_all_images_and_one_of_some(fish):
    def turned(data):
        return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")

    found = findings(Service(open=turned, normalize=lambda pixels: normalized(pixels[:, :, ::-1])), fish)
    assert {one.fault for one in found} == {"channel-order", "exif"}


def test_a_package_that_stands_images_upright_and_an_endpoint_that_does_not(tmp_path):
    made = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(16, 16))), mean=MEAN, std=STD, upright=True)
    models = package(tmp_path / "models", tmp_path, preprocessing=made)
    (found,) = findings(Service(), models)
    assert (found.fault, found.text) == ("exif", "the EXIF orientation is ignored")
    assert (
        findings(Service(open=lambda data: ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")), models) == ()
    )


def test_another_model_of_the_same_folder_is_named(fish, tmp_path):
    models = package(package(tmp_path / "models", tmp_path), tmp_path, "birds", seed=11)
    (found,) = findings(Service(infer=lambda row: scores(row[None], network(11))[0]), models, model="fish")
    assert (found.fault, found.text) == ("model", "it answers with the model birds")


def test_labels_that_are_not_those_of_the_numbers_beside_them(fish):
    def answer(values):
        return [{"index": int(i), "label": LABELS[ALPHABETICAL[i]], "score": float(values[i])} for i in np.argsort(-values)]

    (found,) = findings(Service(answer=answer), fish)
    assert found.fault == "label-order"
    assert "numbers beside them (alphabetical)" in found.text


def test_labels_that_the_package_does_not_have(fish):
    names = (*LABELS[:2], "goldfish", *LABELS[3:])
    found = findings(Service(answer=lambda values: {"label": names[int(values.argmax())]}), fish)
    assert "labels" in {one.fault for one in found}
    assert "goldfish" in next(one.text for one in found if one.fault == "labels")


def test_of_an_endpoint_that_names_one_class_the_order_is_seen_too(fish):
    (found,) = findings(Service(answer=lambda values: {"class": LABELS[ALPHABETICAL[int(values.argmax())]]}), fish)
    assert found.fault == "label-order"


def test_what_rounding_hides_is_no_difference_and_what_it_does_not_hide_is(fish):
    def answer(values):
        return {
            "predictions": [
                {"label": label, "probability": round(float(p), 3)} for label, p in zip(LABELS, values, strict=True)
            ]
        }

    assert findings(Service(answer=answer), fish) == ()
    (found,) = findings(Service(answer=answer, normalize=lambda pixels: normalized(pixels[:, :, ::-1])), fish)
    assert found.fault == "channel-order"


def test_what_nothing_explains_says_what_is_right(fish):
    """A geometry that nobody thought of: flat colors agree, so the rest is right."""

    def zoomed(image):
        return image.crop((0, 0, -(-image.width // 2), -(-image.height // 2))).resize((16, 16))

    (found,) = findings(Service(shape=zoomed), fish)
    assert found.fault == "unexplained"
    assert "resized or cropped in a way that none" in found.text
    assert found.images


def test_an_endpoint_that_answers_only_some_kinds_of_images(fish):
    def picky(data):
        if not data.startswith(b"\x89PNG"):
            raise ValueError("only PNG is taken")
        return opened(data)

    found = findings(Service(open=picky), fish)
    assert {one.fault for one in found} == {"refused"}
    assert any("8 of 8 exif images are not answered: HTTP 500" in one.text for one in found)


def test_a_busy_service_is_not_accused(fish):
    """429 where several come at once: a note, not a finding."""
    slots, service = threading.Semaphore(1), Service()

    def handle(handler, body):
        if not slots.acquire(blocking=False):
            reply(handler, {"error": "too many requests"}, 429)
            return
        try:
            threading.Event().wait(0.01)
            reply(handler, service(body))
        finally:
            slots.release()

    with serving(handle) as url:
        (judgement,) = verify(VerifyConfig(url=f"{url}/predict", models=fish)).judgements
    assert judgement.findings == ()
    assert any("not answered side by side: HTTP 429" in note for note in judgement.notes)


def test_a_judgement_is_json(fish):
    with upload_server(FAULTS["BGR"].service()) as url:
        done = verify(VerifyConfig(url=url, models=fish)).to_json()
    assert json.loads(json.dumps(done)) == done
    assert done["verdict"] == "differs"
    (endpoint,) = done["endpoints"]
    assert endpoint["groups"]["photo"]["asked"] == 13
    assert endpoint["findings"][0]["explains"] == 1.0


def int8_plan():
    choice = Choice(backend="openvino", precision=INT8, files=("model.onnx",))
    return Plan(fingerprint={}, choices={1: choice}, device="cpu")


def test_a_precision_that_the_package_allows_is_a_note(tmp_path):
    """Another int8 than the simulated one, too; but no fault that is more than rounding."""
    models = package(tmp_path / "models", tmp_path, plans=(int8_plan(),))

    def unlike(row):
        """Off by about a tenth, always the same for an image, as no simulation is."""
        exact = scores(row[None])[0]
        return exact + 0.3 * np.sin(1000 * exact)

    judgement = judged(Service(infer=unlike), models)
    assert judgement.findings == ()
    assert any("own plans allow" in note for note in judgement.notes)
    assert [one.fault for one in findings(FAULTS["bicubic"].service(), models)] == ["resize-filter"]


def test_an_endpoint_that_takes_jpeg_alone_is_judged_by_that(fish):
    def picky(data):
        if not data.startswith(b"\xff\xd8"):
            raise ValueError("only JPEG is taken")
        return opened(data)

    found = findings(Service(open=picky, normalize=lambda pixels: normalized(pixels[:, :, ::-1])), fish)
    assert {one.fault for one in found} == {"refused", "channel-order"}
    assert found[0].text.startswith("PNG images are not answered, so plain ones were sent as JPEG")
