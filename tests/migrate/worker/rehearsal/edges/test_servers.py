import pytest
import torch

from headrace.migrate.worker.rehearsal.edges import servers

FLASK = """
import io
from flask import Flask, jsonify, request
from PIL import Image
app = Flask(__name__)

@app.route("/")
def index():
    return "hello"

@app.route("/predict", methods=["POST"])
def predict():
    image = Image.open(io.BytesIO(request.files["photo"].read()))
    return jsonify(size=image.size)

if __name__ == "__main__":
    app.run(host="0.0.0.0")
"""


def test_the_route_of_a_flask_app_is_called_once(rehearsed):
    done = rehearsed({"main.py": FLASK})
    assert done.report.ended == "finished"
    assert done.stdout == 'POST /predict: 200 {"size":[256,256]}\n\n'
    assert done.standins("servers")[0].what == "POST /predict was called with a made image instead of serving"


def test_an_app_that_another_program_serves_is_found_at_the_end(rehearsed):
    done = rehearsed({"main.py": FLASK.partition("if __name__")[0] + "print('loaded')\n"})
    assert done.stdout.startswith("loaded\nPOST /predict: 200")


def test_so_is_one_of_a_script_that_runs_as_a_module(rehearsed):
    text = FLASK.partition("if __name__")[0] + "from .names import NAME\nprint(NAME)\n"
    done = rehearsed({"api/__init__.py": "", "api/names.py": "NAME = 'loaded'\n", "api/main.py": text}, script="api/main.py")
    assert done.stdout.startswith("loaded\nPOST /predict: 200"), done.stderr


def test_an_error_in_a_route_stops_the_rehearsal(rehearsed):
    done = rehearsed({"main.py": FLASK.replace("size=image.size", "size=1 / 0")})
    assert (done.report.ended, done.report.why, done.report.where) == (
        "stopped",
        "ZeroDivisionError: division by zero",
        "main.py:14",
    )


TWO_ROUTES = """
import io
import torch
from flask import Flask, jsonify, request
app = Flask(__name__)
net = torch.nn.Conv2d(3, 2, 3)

@app.route("/", methods=["POST"])
def upload():
    return request.files["photo"].nothing.split(".")[-1]

@app.route("/predict", methods=["POST"])
def predict():
    scores = NET(torch.rand(1, 3, 8, 8))
    return jsonify(classes=scores.shape[1])

app.run()
"""


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [("net", True), ("(lambda x: x)", False), ("(lambda x: net(x)[0, 9])", False)],
)
def test_a_route_with_an_error_of_its_own_keeps_no_other_from_the_model(on_stage, capsys, answer, goes_on):
    world = on_stage(servers)
    called = []
    world.stage.seen = lambda: len(called)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: called.append(1))
    try:
        with pytest.raises((AttributeError, IndexError)) as caught:
            world.play(TWO_ROUTES.replace("NET", answer))
        assert servers.last_lesson(world.stage, caught.value) is goes_on
        if goes_on:
            world.play(TWO_ROUTES.replace("NET", answer))
    finally:
        hook.remove()
    said = capsys.readouterr().out
    assert ("POST /: 500 AttributeError" in said) is goes_on
    assert ("POST /predict: 200" in said) is (answer != "(lambda x: net(x)[0, 9])")
    assert any("POST / ended with an error of its own" in what for what in world.said("servers")) is goes_on


def test_an_encoded_image_is_sent_under_the_name_by_which_it_is_taken(rehearsed):
    text = (
        "import base64, io, json\nfrom flask import Flask, request\nfrom PIL import Image\napp = Flask(__name__)\n"
        "@app.route('/', methods=['POST'])\ndef predict():\n    data = json.loads(request.data.decode('utf-8'))\n"
        "    return str(Image.open(io.BytesIO(base64.b64decode(data['picture']))).size)\napp.run()\n"
    )
    assert rehearsed({"main.py": text}).stdout == "POST /: 200 (256, 256)\n"
    form = text.replace("data['picture']", "request.form['drawn'].split(',')[1]").replace(
        "json.loads(request.data.decode('utf-8'))", "0"
    )
    assert rehearsed({"main.py": form}).stdout == "POST /: 200 (256, 256)\n"


def test_pages_are_asked_for_where_nothing_takes_an_image(rehearsed):
    page = "@app.route('/')\ndef index():\n    print('seen')\n    return 'x'\n"
    text = f"from flask import Flask\napp = Flask(__name__)\n{page}app.run()\n"
    done = rehearsed({"main.py": text})
    assert done.stdout == "seen\nGET /: 200\n"
    assert done.standins("servers")[0].what == "GET / was called instead of serving"


FASTAPI = """
import base64, io
from fastapi import Body, FastAPI, File, Form, Request, UploadFile
from pydantic import BaseModel
from PIL import Image
app = FastAPI()

class Asked(BaseModel):
    picture: str
    top_k: int = 3

def size(data):
    return Image.open(io.BytesIO(data)).size

@app.post("/json")
def of_json(asked: Asked):
    return size(base64.b64decode(asked.picture))

@app.post("/embedded")
def of_embedded(picture: str = Body(..., embed=True)):
    return size(base64.b64decode(picture))

@app.post("/file")
def of_file(upload: UploadFile, top_k: int = Form(3)):
    return size(upload.file.read())

@app.post("/form")
def of_form(picture: str = Form()):
    return size(base64.b64decode(picture))

@app.post("/body")
async def of_body(request: Request):
    return size(await request.body())

@app.post("/read")
async def of_read(request: Request):
    return size(base64.b64decode((await request.json())["image"]))

@app.post("/table")
async def of_a_table(data: dict):
    text = data.get("image")
    if "," in text:
        text = text.split(",")[1]
    return [data.get("kind", "digit"), *size(base64.b64decode(text))][1:]

@app.post("/other")
def of_nothing():
    raise SystemExit(3)
"""


def test_the_routes_of_a_fastapi_app_are_called_in_the_form_that_each_declares(rehearsed):
    done = rehearsed({"main.py": FASTAPI})
    assert done.report.ended == "finished", done.stderr
    said = "".join(f"POST /{name}: 200 [256,256]\n" for name in ("json", "embedded", "file", "form", "body", "read", "table"))
    assert done.stdout == said


ROUTERS = """
import torch
from fastapi import APIRouter, FastAPI, File, UploadFile
app, inner, mounted = FastAPI(), APIRouter(prefix="/images"), FastAPI()

@inner.post("/score")
def score(file: UploadFile = File(...)):
    return file.size > 0

@mounted.post("/score")
def of_mounted(file: UploadFile = File(...)):
    return file.size > 0

app.include_router(inner, prefix="/v1")
app.mount("/sub", mounted)
"""


def test_routes_of_routers_and_of_mounted_applications_are_called_too(rehearsed):
    done = rehearsed({"main.py": ROUTERS})
    assert done.stdout == "POST /v1/images/score: 200 true\nPOST /sub/score: 200 true\n", done.stderr


ROUTES = """
import torch
from flask import Flask, request
app = Flask(__name__)

@app.post("/v1/names")
def names():
    return f"name {len(request.get_data())}"

@app.post("/v1/predict-frame")
def frame():
    return f"frame {len(request.get_data())}"

@app.post("/v1/checks")
def checks():
    return str(len(request.files))

app.run()
"""


def test_routes_for_images_are_asked_before_others(rehearsed):
    done = rehearsed({"main.py": ROUTES})
    assert done.report.ended == "finished", done.report.why
    paths = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert paths == ["POST /v1/predict-frame", "POST /v1/checks", "POST /v1/names"]


CHOSEN = """
import urllib.request, io
from flask import Flask, request
from PIL import Image
app = Flask(__name__)

@app.route("/predict", methods=["POST"])
def predict():
    address = request.json["image_url"]
    kind = request.json["model"]
    known = ["alexnet", "resnet"]
    if kind not in known:
        return "unknown"
    image = Image.open(io.BytesIO(urllib.request.urlopen(address).read()))
    return f"{kind} {image.size}"

app.run()
"""


def test_entries_are_what_is_offered_for_them_or_an_address_by_their_names(rehearsed):
    done = rehearsed({"main.py": CHOSEN})
    assert (done.report.ended, done.stdout) == ("finished", "POST /predict: 200 alexnet (256, 256)\n"), done.report.why


def test_a_route_whose_model_takes_images_of_one_size_is_sent_one_of_that_size(rehearsed):
    text = """
import io

import numpy as np
import torch
from flask import Flask, request
from PIL import Image
from torch import nn

app = Flask(__name__)
net = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10)).eval()


@app.route("/eval", methods=["POST"])
def evaluate():
    image = Image.open(io.BytesIO(request.data)).convert("L")
    return {"size": image.size, "result": net(torch.tensor(np.array(image))[None] / 255).argmax(1).item()}


app.run()
"""
    done = rehearsed({"app.py": text}, script="app.py")
    assert "[28,28]" in done.stdout.replace(" ", "").replace("\n", ""), done.stderr
