import pytest

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

SERVICE = """
import bentoml
from pathlib import Path

@bentoml.service(resources={"cpu": "1"})
class Mine:
    def __init__(self):
        self.net = NET

    @bentoml.api
    def classify(self, image: KIND) -> dict:
        return {"classes": self.net(TAKEN).shape[1]}
"""
ANSWER = 'classify of BentoML: {"classes": 3}\n'
OPENED = "torch.tensor(list(%s.convert('RGB').resize((8, 8)).getdata())).float().reshape(1, 192)"


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("Image.Image", OPENED % "image"),
        ("Path", OPENED % "Image.open(image)"),
        ("list[Image.Image]", OPENED % "image[0]"),
        ("bytes", "opened(image)"),
        ("str", "opened(base64.b64decode(image))"),
    ],
)
def test_a_method_is_called_with_what_it_asks_for(rehearsed, kind, taken):
    done = rehearsed({"main.py": OPENING + SERVICE.replace("KIND", kind).replace("TAKEN", taken)})
    assert done.stdout == ANSWER, done.stderr


def test_an_older_service_runs_the_model_that_the_script_saved(rehearsed):
    text = """
import bentoml
from bentoml.io import JSON, Image as Picture
bentoml.pytorch.save_model("net", NET)
runner = bentoml.pytorch.get("net:latest").to_runner()
svc = bentoml.Service("mine", runners=[runner])

@svc.api(input=Picture(), output=JSON())
async def classify(upload):
    return {"classes": (await runner.async_run(ROW)).shape[1]}
"""
    done = rehearsed({"main.py": OPENING + text.replace("ROW", OPENED % "upload")})
    assert done.stdout == ANSWER, done.stderr


def test_a_model_of_the_store_is_named(rehearsed):
    text = "import bentoml\nrunner = bentoml.pytorch.get('net:latest').to_runner()\n"
    done = rehearsed({"main.py": text})
    assert done.report.ended == "stopped"
    assert "the model net:latest lies in BentoML's store" in done.report.why
