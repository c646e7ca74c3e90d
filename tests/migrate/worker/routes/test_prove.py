"""Answers that were left as JSON: what is proved goes into the package's manifest, the rest is refused with its reason."""

import json
import shutil

import numpy as np
import pytest

from headrace.migrate.worker.routes import choose, prove
from headrace.migrate.worker.routes.package import PackagedModel
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.artifact.manifest import read_content
from tests.migrate.worker.routes.colors import write_colors

LABELS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A package, and the images that are chosen for it."""
    place = tmp_path_factory.mktemp("photos")
    folder = write_colors(place)
    for number, image in enumerate(choose.chosen(PackagedModel(folder), 24)):
        (place / f"photo-{number}.jpg").write_bytes(image)
    return place


@pytest.fixture
def asked(photos, tmp_path):
    """asked(say, ...): what comes of an application that says so of the scores of an image."""
    folder = shutil.copytree(photos / "models" / "colors", tmp_path / "colors")
    probes = [photos / f"photo-{number}.jpg" for number in range(24)]
    rows = PackagedModel(folder).scores([probe.read_bytes() for probe in probes])

    def run(say, *, path="/predict", tables=(), many=24, kind="application/json", **changed):
        said = [json.dumps(say(row)) for row in rows[:many]]
        answers = [{"status": 200, "type": kind, "text": text} for text in (said[0], *said)]
        sent = {"kind": "file", "name": "file"}
        route = {"path": path, "where": "app.py:7", "why": "", "sent": sent, "answers": answers, **changed}
        (tmp_path / "answers.json").write_text(json.dumps({"routes": [route], "tables": list(tables)}))
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        request = {"package": str(folder), "probes": [str(probe) for probe in probes[:many]], "out": str(out)}
        (tmp_path / "request.json").write_text(json.dumps({**request, "answers": str(tmp_path / "answers.json")}))
        assert prove.main([str(tmp_path / "request.json")]) == 0
        told = json.loads((out / "proved.json").read_text())
        return told, folder, out

    return run


def label(row):
    return {"label": LABELS[int(np.argmax(row))]}


def test_what_is_proved_is_in_the_manifest_and_the_package_opens_with_it(asked):
    told, folder, out = asked(label)
    place = {"path": "/predict", "where": "app.py:7"}
    assert told == {"kept": [{**place, "image": "the file 'file' of a form", "proved": 12}], "refused": []}
    before = read_content(folder / "1")
    (folder / "1" / "headrace.json").write_bytes((out / "headrace.json").read_bytes())
    (route,) = load_artifact(folder).routes
    assert (route.path, route.proved, route.source) == ("/predict", 12, "app.py:7")
    after = read_content(folder / "1")
    assert {name: value for name, value in after.items() if name != "routes"} == before


def test_the_applications_own_names_of_classes_are_kept(asked):
    codes = ["n1", "n2", "n3"]
    told, _, out = asked(lambda row: {"id": codes[int(np.argmax(row))]}, tables=[["other"], codes, list(LABELS)])
    assert len(told["kept"]) == 1
    assert json.loads((out / "headrace.json").read_text())["routes"][0]["tables"] == [codes]


def often(sure):
    """A label, but for images of which the model is unsure."""
    return lambda row: {"label": LABELS[int(np.argmax(row))] if np.ptp(row) > sure else "unknown"}


@pytest.mark.parametrize(
    ("say", "changed", "why"),
    [
        (label, {"why": "its path has parameters"}, "its path has parameters"),
        (label, {"path": "/"}, "only paths of letters"),
        (label, {"path": "/v2/x"}, "Headrace answers at /v2 itself"),
        (label, {"path": "/a/../../b"}, "only paths of letters"),
        (label, {"kind": "text/html; charset=utf-8"}, "it answers text/html, not JSON"),
        (label, {"many": 10}, "too few to tell"),
        (label, {"answers": [{"status": 500, "type": "", "text": ""}] * 25}, "status 500"),
        (label, {"answers": [{"status": 200, "type": "application/json", "text": "{"}] * 25}, "no JSON document"),
        (label, {"answers": []}, "it answered 0 of 25"),
        (label, {"sent": {"kind": "body", "name": "x"}}, "no form that a package can hold"),
        (often(3.0), {}, "'label'"),
        (lambda row: {"label": "a photo"}, {"tables": [["a photo"] * 3]}, "cannot be told"),
    ],
)
def test_what_is_not_proved_is_refused_and_nothing_is_written(asked, say, changed, why):
    told, _, out = asked(say, **changed)
    assert told["kept"] == []
    assert why in told["refused"][0]["why"]
    assert not (out / "headrace.json").exists()


def test_a_member_that_differs_for_one_image_is_named(asked):
    texts = [json.dumps({"a": [{"seconds": number}]}) for number in range(25)]
    told, *_ = asked(label, answers=[{"status": 200, "type": "application/json", "text": text} for text in texts])
    why = told["refused"][0]["why"]
    assert "the member 'a[0].seconds' (0, 1) differs from answer to answer for one and the same image" in why


def test_what_half_of_the_images_do_not_show_the_others_contradict(asked):
    seen = iter(range(1000))

    def say(row):  # the images at odd places are those for the proof
        return label(row) if next(seen) % 2 == 0 else {"label": "unknown"}

    told, *_ = asked(say)
    assert 'on another image label is "unknown"' in told["refused"][0]["why"]
