"""A whole application, migrated: what its package answers to an image that nobody has seen is what the application answers."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import headrace
from headrace.migrate.worker.routes.package import PackagedModel
from headrace.runtime.artifact.routes.answer_template import Answered

pytestmark = pytest.mark.usefixtures("warm_sandbox")

APP = """
import io
import numpy as np
import torch
from fastapi import FastAPI, File, UploadFile
from PIL import Image
from torch import nn

FLOWERS = {"0": ["f01", "rose"], "1": ["f02", "tulip"], "2": ["f03", "lily"], "3": ["f04", "aster"]}
net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
net.load_state_dict(torch.load("flowers.pt"))
net.eval()
app = FastAPI()


@app.post("/v1/flower")
async def flower(picture: UploadFile = File(...)):
    image = Image.open(io.BytesIO(await picture.read())).convert("RGB").resize((32, 32), Image.BILINEAR)
    pixels = torch.from_numpy(np.asarray(image, np.float32).transpose(2, 0, 1) / 255)
    with torch.no_grad():
        shares = torch.softmax(net(pixels[None]), 1)[0]
    values, indices = shares.topk(2)
    best = [FLOWERS[str(index)] for index in indices.tolist()]
    top = [{"code": code, "name": name, "share": value} for (code, name), value in zip(best, values.tolist())]
    return {"top": top, "text": f"{best[0][1]} ({values[0] * 100:.1f}%)", "file": picture.filename}
"""
ASK = """
import json, sys
from fastapi.testclient import TestClient
import app
for path in sys.argv[1:]:
    print("SAID", TestClient(app.app).post("/v1/flower", files={"picture": ("new.png", open(path, "rb"))}).text)
"""


# Its parts: test_keep asks an application and keeps what is proved, worker/routes compares, the server fills in what is kept.
@pytest.mark.slow
def test_the_package_answers_as_the_application_does(tmp_path, warm_python):
    root = tmp_path / "flowers"
    root.mkdir()
    torch.manual_seed(5)
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
    with torch.no_grad():  # of every class something is seen
        net[2].weight.copy_(5 * torch.randn(4, 12))
        net[2].bias.copy_(-0.5 * net[2].weight.sum(1))
    torch.save(net.state_dict(), root / "flowers.pt")
    (root / "app.py").write_text(APP)
    report = headrace.migrate(root, out=tmp_path / "out", planned=False, verify=False)
    (kept,) = [finding for finding in report.findings if finding.code == "PS521"]
    assert (kept.path, kept.severity) == ("app.py", "note")
    assert "POST /v1/flower takes an image as the file 'picture' of a form" in kept.message
    (model,) = report.models
    package = PackagedModel(tmp_path / "out" / model.artifact)
    (route,) = package.artifact.routes
    random = np.random.default_rng(9)
    photos = []
    for number in range(6):
        photos.append(tmp_path / f"{number}.png")
        pixels = random.integers(0, 256, (3, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((90, 70)).save(photos[-1])
    done = warm_python(["-c", ASK, *map(str, photos)], cwd=root)
    said = [json.loads(line.removeprefix("SAID ")) for line in done.stdout.splitlines() if line.startswith("SAID ")]
    rows = package.scores([photo.read_bytes() for photo in photos])
    filled = [route.template.fill(Answered(row, (package.labels, *route.tables), "new.png"), None) for row in rows]
    assert len(said) == len(photos), done.stderr
    for own, theirs in zip(filled, said, strict=True):
        for item, other in zip(own["top"], theirs["top"], strict=True):
            assert item.pop("share") == pytest.approx(other.pop("share"), abs=1e-5)
    assert filled == said
