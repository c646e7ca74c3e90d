import json

import pytest
import torch

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

HANDLER = """
class Handler:
    def initialize(self, context):
        self.net = NET
        self.name = context.manifest["model"]["serializedFile"], context.system_properties["gpu_id"]

    def handle(self, data, context):
        rows = torch.cat([opened(row.get("data") or row.get("body")) for row in data])
        return [{"scores": len(scores), "name": self.name} for scores in self.net(rows)]
"""
ANSWER = 'Handler of TorchServe: {"scores": 3, "name": ["model.pth", null]}\n'


def test_a_handler_is_initialized_and_handles_a_request(rehearsed):
    done = rehearsed({"main.py": OPENING + HANDLER})
    assert (done.report.ended, done.stdout) == ("finished", ANSWER), done.stderr
    assert "Handler of TorchServe was called with a made image (bytes as body)" in done.standins("servers")[0].what


def test_a_function_is_initialized_by_its_first_call(rehearsed):
    text = "made = []\ndef handle(data, context):\n    if data is None:\n        made.append(1)\n        return None\n"
    text += "    return [len(made) + len(NET(opened(data[0]['body'])))]\n"
    assert rehearsed({"main.py": OPENING + text}).stdout == "handle of TorchServe: 2\n"


def test_a_function_comes_before_the_class_that_it_calls(rehearsed):
    text = "\ndef handle(data, context):\n    if data is None:\n        return None\n"
    text += "    return [Handler.__name__ + str(len(NET(opened(data[0]['body']))))]\n"
    assert rehearsed({"main.py": OPENING + HANDLER + text}).stdout == 'handle of TorchServe: "Handler1"\n'


def test_text_and_json_are_tried_where_bytes_are_not_taken(rehearsed):
    text = HANDLER.replace('opened(row.get("data") or row.get("body"))', 'opened(base64.b64decode(row["body"]["picture"]))')
    done = rehearsed({"main.py": OPENING + text})
    assert done.stdout == ANSWER, done.stderr
    assert "(base64 as body picture)" in done.standins("servers")[0].what


def test_an_error_that_every_request_meets_stops_the_rehearsal(rehearsed):
    text = HANDLER.replace("rows = ", "raise KeyError('nothing here')\n        rows = ")
    done = rehearsed({"main.py": OPENING + text})
    assert (done.report.ended, done.report.why) == ("stopped", "KeyError: 'nothing here'")


@pytest.fixture
def archived(rehearsed, tmp_path):
    """An archive with a model file, its weights and names, whose handler of TorchServe's own is written out."""

    def run(handler, *, files=(), script="main.py"):
        net = "import torch\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n"
        net += "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(192, 3))\n"
        names = json.dumps({"0": ["n1", "ant"], "1": ["n2", "bee"], "2": ["n3", "cat"]})
        root = tmp_path / "repository"
        root.mkdir(exist_ok=True)
        torch.save({"1.weight": torch.zeros(3, 192), "1.bias": torch.arange(3.0)}, root / "net.pth")
        return rehearsed({"net.py": net, "index_to_name.json": names, "main.py": handler, **dict(files)}, script=script)

    return run


VISION = """
from ts.torch_handler.vision_handler import VisionHandler
from ts.utils.util import map_class_to_label

class Handler(VisionHandler):
    image_processing = staticmethod(lambda image: opened_image(image))

    def postprocess(self, data):
        values, numbers = data.topk(2, dim=1)
        return map_class_to_label(values.tolist(), self.mapping, numbers.tolist())

def opened_image(image):
    return torch.tensor(list(image.convert("RGB").resize((8, 8)).getdata())).float().reshape(8, 8, 3).permute(2, 0, 1)
"""


def test_a_documented_archive_tells_model_file_weights_and_names(archived):
    command = "torch-model-archiver --model-name net --model-file net.py --serialized-file net.pth --handler main.py\n"
    done = archived(OPENING + VISION, files={"README.md": command})
    assert done.stdout == 'Handler of TorchServe: {"cat": 2.0, "bee": 1.0}\n', done.stderr
    assert done.report.user_weights


def test_a_manifest_tells_them_too(archived):
    model = {"modelName": "net", "handler": "vision_handler", "modelFile": "net.py", "serializedFile": "net.pth"}
    done = archived(OPENING + VISION, files={"MAR-INF/MANIFEST.json": json.dumps({"model": model})})
    assert done.stdout == 'Handler of TorchServe: {"cat": 2.0, "bee": 1.0}\n', done.stderr


def test_weights_that_are_not_here_are_marked_as_nobodys(archived):
    command = "torch-model-archiver --model-name net --model-file net.py --serialized-file other.pth --handler main.py\n"
    done = archived(OPENING + VISION, files={"README.md": command})
    assert done.report.ended == "finished", done.stderr
    assert not done.report.user_weights
