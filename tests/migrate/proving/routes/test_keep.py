"""An application is asked in the sandbox, and its package holds the routes that were proved; the application computes with
numpy alone, so that nothing but the routes is tried here."""

import json

import pytest

from headrace.errors import SandboxError
from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.proving.routes.keep import IMAGES, Route, keep_routes
from headrace.migrate.proving.sandbox import Sandbox
from headrace.migrate.reading.recipe import Recipe
from headrace.runtime.artifact.artifact import load_artifact
from tests.migrate.worker.routes.colors import write_colors

pytestmark = pytest.mark.usefixtures("torch_sandbox")

APP = """
import io, random
import numpy as np
from flask import Flask, jsonify, request
from PIL import Image

app = Flask(__name__)
COLORS = ["red", "green", "blue"]

def shares():
    image = Image.open(io.BytesIO(request.files["photo"].read())).convert("RGB").resize((16, 16), Image.BILINEAR)
    outputs = 12 * (np.asarray(image, np.float32) / 255).mean((0, 1))
    exponents = np.exp(outputs - outputs.max())
    return exponents / exponents.sum()

@app.route("/predict", methods=["POST"])
def predict():
    found = shares()
    best = int(found.argmax())
    return jsonify(color=COLORS[best], sure=round(float(found[best]) * 100, 1), file=request.files["photo"].filename)

@app.route("/sure", methods=["POST"])
def sure():
    found = shares()
    return jsonify(color=COLORS[int(found.argmax())] if found.max() > 0.7 else "none")

@app.route("/drawn", methods=["POST"])
def drawn():
    return jsonify(color=COLORS[int(shares().argmax())], lot=random.random())

@app.route("/page", methods=["POST"])
def page():
    return "<b>%s</b>" % COLORS[int(shares().argmax())]

@app.route("/v2/predict", methods=["POST"])
def second():
    return jsonify(color=COLORS[int(shares().argmax())])
"""


@pytest.fixture
def kept(tmp_path):
    """kept(text): the routes of an application, and its package."""

    def run(text):
        sandbox = Sandbox(scratch=tmp_path / "scratch", limits=Limits(timeout=120))
        sandbox.tree.mkdir(parents=True)
        (sandbox.tree / "app.py").write_text(text)
        write_colors(sandbox.scratch)
        package = sandbox.models / "colors"
        return keep_routes(Recipe(root=str(sandbox.tree), script="app.py"), package, sandbox), package

    return run


def test_what_is_proved_is_in_the_package_and_the_rest_says_why(kept):
    routes, package = kept(APP)
    found = {route.path: route for route in routes}
    image = "the file 'photo' of a form"
    assert found.pop("/predict") == Route(path="/predict", where="app.py:16", image=image, proved=IMAGES // 2)
    assert {path: route.where for path, route in found.items()} == {
        "/sure": "app.py:22", "/drawn": "app.py:27", "/page": "app.py:31", "/v2/predict": "app.py:35",
    }  # fmt: skip
    assert "no label and no score" in found["/sure"].why
    assert "the member 'lot'" in found["/drawn"].why
    assert "differs from answer to answer" in found["/drawn"].why
    assert found["/page"].why == "it answers text/html, not JSON"
    assert found["/v2/predict"].why == "Headrace answers at /v2 itself"
    (route,) = load_artifact(package).routes
    assert (route.path, route.image.name) == ("/predict", "photo")


def test_without_a_proof_the_package_stays_as_it_was(kept, tmp_path):
    head, _, rest = APP.partition('@app.route("/predict"')
    routes, package = kept(head + rest[rest.index('@app.route("/sure"') :])
    assert all(route.why for route in routes)
    assert "routes" not in json.loads((package / "1" / "headrace.json").read_text())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('hello')", "no application of Flask's or FastAPI's"),
        ("import nowhere_to_be_found_at_all\nraise SystemExit('gone')", "could not be asked"),
        ("from flask import Flask\napp = Flask(__name__)\n@app.route('/')\ndef index():\n    return 'x'\n", "takes POST"),
    ],
)
def test_a_script_without_such_routes_says_so(kept, text, why):
    with pytest.raises(SandboxError, match=why):
        kept(text)


LEAVES_A_LINK = (
    APP
    + """
import atexit, glob, os

def leave():
    (place,) = glob.glob(os.path.join(os.path.dirname(os.environ["HEADRACE_CACHE"]), "writable-*", "answers.json"))
    os.unlink(place)
    os.symlink("/etc/passwd", place)

atexit.register(leave)
"""
)
LEAVES_NONSENSE = LEAVES_A_LINK.replace(
    'os.symlink("/etc/passwd", place)', 'open(place, "w").write(\'{"routes": [7], "tables": {}}\')'
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LEAVES_A_LINK, "answers.json cannot be read"),
        # What cannot be read of an answer attacks/test_answers holds.
        pytest.param(LEAVES_NONSENSE, "its routes could not be tried", marks=pytest.mark.slow),
    ],
)
def test_what_the_application_leaves_is_data(kept, text, why):
    with pytest.raises(SandboxError, match=why):
        kept(text)
