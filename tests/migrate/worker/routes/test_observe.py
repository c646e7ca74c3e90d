"""A script is run, and what its application's routes say of given images is left; see tests/migrate/proving/routes for the
sandbox."""

import io
import json

from PIL import Image

from headrace.migrate.reading.recipe import Recipe

APP = """
import io
from flask import Flask, jsonify, request
from PIL import Image
app = Flask(__name__)

@app.post("/predict")
def predict():
    return jsonify(size=Image.open(io.BytesIO(request.files["image"].read())).size)

app.run()
"""


def observed(tmp_path, warm_python, text):
    file = io.BytesIO()
    Image.new("RGB", (30, 20)).save(file, "JPEG")
    (tmp_path / "photo-0.jpg").write_bytes(file.getvalue())
    root = tmp_path / "repository"
    root.mkdir()
    (root / "app.py").write_text(text)
    out = tmp_path / "out"
    out.mkdir()
    recipe = Recipe(root=str(root), script="app.py").to_json()
    request = {"recipe": recipe, "probes": [str(tmp_path / "photo-0.jpg")], "out": str(out)}
    (tmp_path / "request.json").write_text(json.dumps(request))
    done = warm_python(["-m", "headrace.migrate.worker.routes.observe", tmp_path / "request.json"], cwd=out)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "answers.json").read_text())


def test_the_routes_are_asked_about_the_images(tmp_path, warm_python):
    (route,) = observed(tmp_path, warm_python, APP)["routes"]
    assert (route["path"], route["where"], route["sent"]) == ("/predict", "app.py:7", {"kind": "file", "name": "image"})
    assert [json.loads(answer["text"]) for answer in route["answers"]] == [{"size": [30, 20]}] * 2


def test_a_script_that_serves_nothing_says_so(tmp_path, warm_python):
    told = observed(tmp_path, warm_python, "print('done')\n")
    assert told["routes"] == []
    assert "no application of Flask's or FastAPI's" in told["why"]


def test_a_script_that_stops_says_where(tmp_path, warm_python):
    told = observed(tmp_path, warm_python, "x = 1\nraise ValueError('no weights')\n")
    assert told["why"] == "ValueError: no weights (app.py:2)"
