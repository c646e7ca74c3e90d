import pytest

from headrace.migrate.worker.rehearsal.edges import downloads
from headrace.migrate.worker.rehearsal.requests import ADDRESS

DRIVE = """
import requests, torch

def token_of(response):
    for key, value in response.cookies.items():
        if key.startswith("download_warning"):
            return value

def download(id, destination):
    session = requests.Session()
    response = session.get("https://docs.example.invalid/uc?export=download", params={"id": id}, stream=True)
    token = token_of(response)
    if token:
        response = session.get("https://docs.example.invalid/uc", params={"id": id, "confirm": token}, stream=True)
    with open(destination, "wb") as file:
        for chunk in response.iter_content(1 << 15):
            file.write(chunk)

download("1-7KaljDeB", "net.pth")
net = torch.nn.Linear(2, 2)
print(net.load_state_dict(torch.load("net.pth")))
"""


def test_images_and_names_by_url_are_made(on_stage):
    world = on_stage(downloads)
    names = world.play(
        "import io, json, requests, urllib.request\nfrom PIL import Image\nclasses = ['cat', 'dog']\n"
        "one = Image.open(urllib.request.urlopen('https://example.invalid/dog.jpg')).size\n"
        "two = Image.open(io.BytesIO(requests.get('https://example.invalid/a/cat.png?size=1').content)).size\n"
        "names = requests.get('https://example.invalid/labels.json').json()\n"
        "path, _ = urllib.request.urlretrieve('https://example.invalid/dog.jpg', 'dog.jpg')\nthere = open(path, 'rb').read(2)\n"
    )
    assert (names["one"], names["two"], names["there"]) == ((256, 256), (256, 256), b"\xff\xd8")
    assert "0" in names["names"]
    assert "labels.json was made, not downloaded" in world.said("network")
    assert "dog.jpg was made, not downloaded" in world.said("data")  # nobody's data


def test_a_file_of_a_drive_is_what_its_destination_is_named(rehearsed):
    done = rehearsed({"main.py": DRIVE})
    assert (done.report.ended, done.report.attempts, done.stdout) == ("finished", 1, "<All keys matched successfully>\n")
    assert not done.report.user_weights
    assert "net.pth was made, not downloaded" in [item.what for item in done.standins("network")]


@pytest.mark.parametrize(
    ("reads", "says"),
    [
        ("print(Image.open(io.BytesIO(data)).size)", "(256, 256)"),
        ("print(len(json.loads(data)))", "10"),
        ("print(torch.nn.Linear(1, 1).load_state_dict(torch.load(io.BytesIO(data))))", "<All keys matched successfully>"),
        ("print(zipfile.ZipFile(io.BytesIO(data)).namelist())", "[]"),
        ("print(tarfile.open(fileobj=io.BytesIO(data)).getnames())", "[]"),
        ("print(len(ast.literal_eval(data.decode())))", "10"),
        ("print(len(data.decode().split()))", "10"),
    ],
)
def test_an_address_that_says_nothing_holds_what_its_reader_wants(rehearsed, reads, says):
    text = (
        "import ast, io, json, tarfile, urllib.request, zipfile\nimport torch\nfrom PIL import Image\n"
        "with urllib.request.urlopen('https://example.invalid/raw') as answer:\n"
        f"    size, data = answer.getheader('Content-Length'), answer.read()\nassert int(size) == len(data)\n{reads}\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", f"{says}\n"), done.stderr


def test_nobody_is_logged_in(on_stage):
    pytest.importorskip("huggingface_hub")
    world = on_stage(downloads)
    world.play("import huggingface_hub\nhuggingface_hub.login(add_to_git_credential=False)\n")
    assert world.said("network") == ["huggingface_hub.login logged nobody in"]


def test_httpx_is_answered_and_its_tests_of_applications_are_not(on_stage):
    httpx = pytest.importorskip("httpx")
    world = on_stage(downloads)
    names = world.play(
        "import httpx\nlabels = httpx.get('https://example.invalid/labels.json').json()\n"
        "client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(204)))\n"
        "own = client.get('https://example.invalid/labels.json').status_code\n"
    )
    assert (len(names["labels"]), names["own"]) == (10, 204)
    assert httpx.HTTPTransport


def test_code_is_nothing_to_make_up(on_stage):
    world = on_stage(downloads)
    with pytest.raises(OSError, match="."):
        world.play("import urllib.request\nurllib.request.urlopen('https://github.com/who/net/zipball/main', timeout=1)\n")
    assert world.said("network") == []


def test_the_address_that_a_request_has_for_an_image_holds_one(rehearsed):
    text = "import io, sys\nfrom urllib.request import urlopen\nfrom PIL import Image\n"
    done = rehearsed({"main.py": f"{text}print(Image.open(io.BytesIO(urlopen({ADDRESS!r}).read())).format)\n"})
    assert (done.report.ended, done.stdout) == ("finished", "JPEG\n"), done.report.why


def test_a_server_says_that_what_it_sends_is_an_image(rehearsed):
    text = (
        "import urllib.request\nfor name in ('a.jpg', 'b.png', 'labels.json', 'data.zip'):\n"
        "    print(urllib.request.urlopen(f'https://images.invalid/{name}').headers['Content-Type'])\n"
    )
    done = rehearsed({"main.py": text})
    assert done.stdout.split() == ["image/jpeg", "image/png", "application/json", "application/octet-stream"], done.report.why
