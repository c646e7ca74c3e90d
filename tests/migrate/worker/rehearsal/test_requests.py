import ast
import asyncio
import io

import pytest
from PIL import Image

from headrace.migrate.worker.rehearsal.requests import Images, Upload, bodies, forms, jpeg, keys_of, members_of, taken


def keys(text, number=1):
    return keys_of(ast.parse(text).body[0], number)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(self, request):\n    return request['threshold'], request['image']\n", ["image", "threshold"]),
        ("def f(self, request):\n    return request.get('content').file\n", ["content"]),
        ("def f(self, data):\n    for row in data:\n        x = row.get('data') or row.get('body')\n", ["data", "body"]),
        ("def f(self, data):\n    return [row['b64'] for row in data]\n", ["b64"]),
        ("def f(self, data):\n    body = json.loads(data[0]['body'])\n    return body['picture']\n", ["picture", "body"]),
        ("def f(self, request):\n    return self.table['x'], other.get('image')\n", []),
        ("def f(self):\n    return 1\n", []),
    ],
)
def test_the_keys_of_an_argument_are_found(text, found):
    assert keys(text) == found


@pytest.mark.parametrize(
    ("source", "first"),
    [
        ("base64.b64decode(x)", "base64"),
        ("base64.b64decode(x.split(',')[1])", "header"),
        ("x.file.read()", "upload"),
        ("requests.get(url)", "address"),
        ("bytes.fromhex(x)", "hex"),
        ("np.array(x)", "pixels"),
        ("", "upload"),
    ],
)
def test_the_form_that_a_source_speaks_of_comes_first(on_stage, source, first):
    assert forms(on_stage().stage, source)[0].name == first


def test_every_form_can_be_made(on_stage):
    made = {form.name: form.make() for form in forms(on_stage().stage, "")}
    assert Image.open(io.BytesIO(bytes.fromhex(made["hex"]))).size == (256, 256)
    assert Image.open(made["path"]).size == (256, 256)
    assert made["array"].shape == (256, 256, 3)


def test_an_upload_is_read_at_once_or_awaited(on_stage):
    image = jpeg(on_stage().stage)

    async def awaited():
        return await Upload(image).read()

    assert Upload(image).read() == image == asyncio.run(awaited()) == Upload(image).file.read()


def test_what_the_sources_take_out_of_a_request_is_found_in_all_or_in_one_of_them(on_stage):
    views = "def f(request):\n    data = json.loads(request.body)\n    return data['picture'], data.get('top')\n"
    views += "def g(request):\n    return request.FILES['one']\n"
    files = {
        "forms.py": "class Form(forms.Form):\n    scan = forms.ImageField()\n    name = forms.CharField()\n",
        "views.py": views,
    }
    world = on_stage(files=files | {"routes.py": "x = request.get_json()\ny = x['image']\nz = other['none']\n"})
    assert taken(world.stage) == Images(files=("scan", "one"), entries=("image", "picture", "top"))
    assert taken(world.stage, world.root / "routes.py") == Images(entries=("image",))


@pytest.mark.parametrize(
    ("cut", "with_header"),
    [
        ("x = x.split(',')[1]", True),
        ("head, x = x.split(',', 1)", True),
        ("x = x.partition(',')[2]", True),
        ("x = re.search(r'base64,(.*)', x).group(1)", True),
        ("x = re.sub('^data:image/.+;base64,', '', x)", True),
        ("x = x[x.find('base64,') + 7:]", True),
        ("x = x[22:]", True),
        ("y = row.split(',')", False),
        ("y = row[22:]", False),
        ("import base64, io", False),
        ("x = x.strip()", False),
    ],
)
def test_a_header_that_is_cut_off_before_is_sent(on_stage, cut, with_header):
    view = f"def predict():\n    x = request.get_json()['image']\n    {cut}\n    return base64.b64decode(x)\n"
    assert taken(on_stage(files={"routes.py": view}).stage).with_header is with_header


def test_a_body_that_is_an_image_has_no_entries(on_stage):
    text = "image = Image.open(io.BytesIO(request.data)).convert('L')\ntop = request.json.get('k', 1)\n"
    world = on_stage(files={"app.py": text})
    assert taken(world.stage) == Images(entries=("k",))


def test_a_table_may_be_given_by_name_alone():
    async def route(*, data: dict):
        return data["image"], data.get("kind")

    assert members_of(route, "data", dict) == ["image"]


@pytest.mark.parametrize(
    ("source", "first", "has"),
    [
        ("data = self.rfile.read()", "image", "file image"),
        ("import json\nb64decode(json.loads(body)['picture'])", "JSON picture", "image"),
        ("part = await (await request.multipart()).next()\nok = part.name == 'photo'", "file photo", "image"),
    ],
)
def test_the_forms_of_which_the_sources_speak_come_first(on_stage, source, first, has):
    names = [body.name for body in bodies(on_stage(files={"app.py": source}).stage)]
    assert names[0] == first
    assert has in names
