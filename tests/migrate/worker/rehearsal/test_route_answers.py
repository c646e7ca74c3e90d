"""What an application's routes answer to given images, as it is left for others to read."""

import io
import json

import pytest
from PIL import Image

from headrace.migrate.worker.rehearsal.route_answers import tables_of

FLASK = """
import base64, io
from flask import Flask, jsonify, request
from PIL import Image
app = Flask(__name__)
names = ["cat", "dog"]
index = {"0": ["n1", "tabby"], "1": ["n2", "hound"]}

def size(data):
    return jsonify(size=Image.open(io.BytesIO(data)).size)

@app.route("/file", methods=["POST"])
def file():
    return size(request.files["photo"].read())

@app.route("/body", methods=["POST"])
def body():
    return size(request.data)

@app.route("/json", methods=["POST"])
def encoded():
    return size(base64.b64decode(request.json["picture"]))

@app.route("/of/<who>", methods=["POST"])
def of(who):
    return who

@app.route("/never", methods=["POST"])
def never():
    return "no", 403
"""
FASTAPI = """
import base64, io
from fastapi import Body, FastAPI, File, Form, Request, UploadFile
from pydantic import BaseModel
from PIL import Image
app = FastAPI()

class Asked(BaseModel):
    image: str
    k: int = 3

class Two(BaseModel):
    image: str
    name: str

def size(data):
    return {"size": Image.open(io.BytesIO(data)).size}

@app.post("/file")
async def file(photo: UploadFile = File(...)):
    return size(await photo.read())

@app.post("/object")
def an_object(asked: Asked):
    return size(base64.b64decode(asked.image))

@app.post("/member")
def member(picture: str = Body(..., embed=True)):
    return size(base64.b64decode(picture))

@app.post("/raw")
async def raw(request: Request):
    return size(await request.body())

@app.post("/two")
def two(asked: Two):
    return asked.name

@app.post("/more")
async def more(photo: UploadFile = File(...), name: str = Form(...)):
    return name

@app.post("/table")
def table(data: dict[str, str]):
    return size(base64.b64decode(data["image"]))

@app.post("/nothing")
def nothing():
    return 1
"""


@pytest.fixture
def answers(rehearsed, tmp_path):
    """answers(text): what the routes of an application said of two photos."""
    probes = []
    for number, size in enumerate(((30, 20), (50, 40))):
        file = io.BytesIO()
        Image.new("RGB", size).save(file, "JPEG")
        probes.append(tmp_path / f"photo-{number}.jpg")
        probes[-1].write_bytes(file.getvalue())

    def run(text):
        left = tmp_path / "answers.json"
        done = rehearsed({"main.py": text}, probes=tuple(map(str, probes)), answers=str(left))
        assert done.report.ended == "finished", done.stderr
        return json.loads(left.read_text())

    return run


def forms(told):
    return {route["path"]: (route["sent"]["kind"], route["sent"]["name"]) for route in told["routes"] if not route["why"]}


def refusals(told):
    return {route["path"]: route["why"] for route in told["routes"] if route["why"]}


def test_the_routes_of_a_flask_application(answers):
    told = answers(FLASK)
    assert forms(told) == {"/file": ("file", "photo"), "/body": ("body", ""), "/json": ("json", "picture")}
    why = refusals(told)
    assert why["/of/<who>"] == "its path has parameters"
    assert "takes no image alone" in why["/never"]
    assert "it answers 403" in why["/never"]
    (file,) = [route for route in told["routes"] if route["path"] == "/file"]
    assert file["where"] == "main.py:12"
    assert [json.loads(answer["text"])["size"] for answer in file["answers"]] == [[30, 20], [30, 20], [50, 40]]
    assert {(answer["status"], answer["type"]) for answer in file["answers"]} == {(200, "application/json")}
    assert [table for table in told["tables"] if len(table) == 2] == [["cat", "dog"], ["n1", "n2"], ["tabby", "hound"]]


def test_the_routes_of_a_fastapi_application(answers):
    told = answers(FASTAPI)
    assert forms(told) == {
        "/file": ("file", "photo"), "/object": ("json", "image"), "/member": ("json", "picture"), "/raw": ("body", ""),
        "/table": ("json", "image"),
    }  # fmt: skip
    why = refusals(told)
    assert why["/more"] == "it takes more than an image"
    assert "one member of a JSON object" in why["/two"]
    assert why["/nothing"] == "it takes no image"


def test_an_image_in_a_browsers_form_is_sent_so(answers):
    told = answers(FLASK.replace('request.json["picture"]', 'request.json["picture"].split(",")[1]'))
    assert forms(told)["/json"] == ("json", "picture")


@pytest.mark.parametrize(
    ("value", "tables"),
    [
        (["a", "b"], [["a", "b"]]),
        (("a", "b"), [["a", "b"]]),
        ({0: "a", 1: "b"}, [["a", "b"]]),
        ({"1": "b", "0": "a"}, [["a", "b"]]),
        ({"a": 0, "b": 1}, [["a", "b"]]),
        ({"0": ["n0", "a"], "1": ["n1", "b"]}, [["n0", "n1"], ["a", "b"]]),
        ({1: "a", 2: "b"}, []),
        ({"a": True, "b": False}, []),
        ({"a": "x"}, []),
        (["a"], []),
        ([1, 2], []),
        ([["a"], ["b", "c"]], []),
        ("ab", []),
        (None, []),
    ],
)
def test_names_of_classes_are_lists_of_texts(value, tables):
    assert list(tables_of(value)) == tables
