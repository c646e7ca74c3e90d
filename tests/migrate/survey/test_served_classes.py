import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.survey.model_archives import ModelArchive
from headrace.migrate.survey.served_classes import KINDS, served


def found_in(text, archives=()):
    (module,) = Repository([parse_source("main.py", text.encode())]).modules.values()
    return {server: [node.name for node in nodes] for server, nodes in served(module, archives).items()}


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("from ts.torch_handler.base_handler import BaseHandler\nclass Mine(BaseHandler): ...\n", "torchserve"),
        (
            "import ts.torch_handler.vision_handler\nclass Mine(ts.torch_handler.vision_handler.VisionHandler): ...\n",
            "torchserve",
        ),
        ("class Mine:\n    def initialize(self, context): ...\n    def handle(self, data, context): ...\n", "torchserve"),
        ("def handle(data, context):\n    return [1]\n", "torchserve"),
        ("import litserve as ls\nclass Mine(ls.LitAPI): ...\n", "litserve"),
        ("class TritonPythonModel:\n    def execute(self, requests): ...\n", "triton_python"),
        ("import bentoml\n@bentoml.service\nclass Mine: ...\n", "bentoml"),
        ("import bentoml as b\n@b.service(name='x')\nclass Mine: ...\n", "bentoml"),
        ("from django.http import HttpResponse\ndef classify(request): ...\n", "django"),
        ("from django.views import View\nclass Mine(View): ...\n", "django"),
        ("from rest_framework.views import APIView\nclass Mine(APIView): ...\n", "django"),
        ("import bentoml\nsvc = bentoml.Service('x')\n@svc.api(input=1)\ndef mine(image): ...\n", "bentoml"),
        ("def lambda_handler(event, context): ...\n", "cloud_functions"),
        ("def handler(job): ...\n", "cloud_functions"),
        ("def init(): ...\ndef run(raw_data): ...\n", "cloud_functions"),
        ("def model_fn(model_dir): ...\ndef input_fn(body, kind): ...\n", "cloud_functions"),
    ],
)
def test_what_a_server_would_call_is_found(text, server):
    assert list(found_in(text)) == [server]


@pytest.mark.parametrize(
    "text",
    [
        "class BaseHandler: ...\n",
        "from logging import Handler\nclass Mine(Handler):\n    def handle(self, record): ...\n",
        "from mine import BaseHandler\nclass Mine(other.BaseHandlerMixin): ...\n",
        "from mine import service\n@service\nclass Mine: ...\n",
        "def handle(self, request): ...\n",
        "from mine import View\nclass Mine(View): ...\n",
        "from flask import Flask\ndef classify(request): ...\n",
        "from django.http import HttpResponse\ndef classify(image, request): ...\n",
        "@app.api(1)\ndef mine(): ...\n",
        "def on_click_handler(event, widget): ...\n",
        "def handler(request, context): ...\n",
        "def run(raw_data): ...\n",
        "def model_fn(settings): ...\n",
    ],
)
def test_what_only_looks_like_it_is_not(text):
    assert found_in(text) == {}


def test_an_archive_tells_its_function_and_its_model_file():
    text = "def entry(data, context): ...\ndef other(): ...\n"
    assert found_in(text, [ModelArchive(name="x", handler="main.py", function="entry")]) == {"torchserve": ["entry"]}
    assert found_in(text, [ModelArchive(name="x", handler="image_classifier", model_file="main.py")]) == {"torchserve": []}
    assert found_in(text, [ModelArchive(name="x", handler="other.py", model_file="main.py")]) == {}


def test_each_kind_has_the_file_of_its_host():
    from headrace.migrate.worker.rehearsal.edges.hosts import all_hosts

    of_classes = {
        name: host for name, host in all_hosts().items() if hasattr(host, "LIBRARY")
    }  # bots, clouds and the like have functions
    assert {kind.server for kind in KINDS} == set(of_classes)
    assert {kind.library for kind in KINDS} == {host.LIBRARY for host in of_classes.values()}
