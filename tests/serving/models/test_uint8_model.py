import io

import httpx
import numpy as np
import torch
from PIL import Image
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.specs import CenterCrop, Preprocessing, Resize

LABELS = ["red", "green", "blue"]


class Color(nn.Module):
    """The channel that is brightest after normalization."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        nn.init.dirac_(self.conv.weight)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


def test_a_model_that_takes_pixels_is_served_from_images_and_from_tensors(start, tmp_path):
    steps = Preprocessing(geometry=(Resize(size=20), CenterCrop(size=(16, 16))), mean=(0.5,) * 3, std=(0.25,) * 3)
    pixels = torch.randint(0, 256, (4, 16, 16, 3), dtype=torch.uint8)
    config = GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1, max_tuning_seconds=0.1)
    graph = headrace.compile(Color(), pixels, preprocessing=steps, config=config)
    graph.save(tmp_path / "models" / "color", labels=LABELS)
    server = start(tmp_path / "models")
    for index, name in enumerate(LABELS):
        color = np.full((30, 40, 3), 60, np.uint8)
        color[..., index] = 200
        file = io.BytesIO()
        Image.fromarray(color).save(file, "PNG")
        answer = httpx.post(f"{server.url}/v1/classify/color", content=file.getvalue()).raise_for_status().json()
        assert answer["predictions"][0]["label"] == name
    body = {"inputs": [{"name": "x", "datatype": "UINT8", "shape": [4, 16, 16, 3], "data": pixels.flatten().tolist()}]}
    answer = httpx.post(f"{server.url}/v2/models/color/infer", json=body).raise_for_status().json()
    given = np.array(answer["outputs"][0]["data"], np.float32).reshape(4, 3)
    np.testing.assert_allclose(given, graph(pixels).numpy(), rtol=1e-4, atol=1e-4)
