"""Which calls make layers of classes, and which make published models."""

import ast

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.heads import is_head, makes_published


@pytest.mark.parametrize(
    ("call", "is_one"),
    [
        ("nn.Linear(512, num_classes)", True),
        ("nn.Linear(512, n)", True),
        ("nn.Linear(512, n_out)", True),
        ("nn.Linear(512, output_dim)", True),
        ("nn.Linear(512, dim_out)", True),
        ("nn.Linear(512, out_features=self.nb_classes)", True),
        ("nn.Linear(512, cfg['num_classes'])", True),
        ("nn.Linear(512, len(names))", True),
        ("nn.LazyLinear(10)", True),
        ("nn.Conv2d(512, n_classes, 1)", True),
        ("nn.Conv2d(512, n, 1)", False),
        ("nn.Conv2d(3, 64, 3)", False),
        ("nn.Linear(512, 1)", False),
        ("nn.Linear(512, hidden)", False),
        ("nn.Linear(*sizes)", False),
        ("nn.BatchNorm1d(num_classes)", False),
    ],
)
def test_heads(call, is_one):
    assert is_head(ast.parse(call, mode="eval").body) is is_one


@pytest.mark.parametrize(
    ("call", "is_one"),
    [
        ("models.resnet18(pretrained=True)", True),
        ("getattr(models, name)(weights=None)", True),
        ("models.__dict__[name]()", True),
        ("timm.create_model(name, num_classes=n)", True),
        ("torch.hub.load('repo', 'net')", True),
        ("transformers.ViTModel.from_pretrained('vit')", True),
        ("models.detection.fasterrcnn_resnet50_fpn()", False),
        ("models.list_models()", False),
        ("models.ResNet50_Weights.DEFAULT.transforms()", False),
        ("transformers.BertModel.from_pretrained('bert')", False),
        ("getattr(self, name)()", False),
        ("layers[name]()", False),
        ("NETWORKS[name](weights=None)", True),
    ],
)
def test_published_models(call, is_one):
    table = "NETWORKS = {'small': models.resnet18}\nlayers = {'relu': torch.nn.ReLU}\n"
    source = f"import torch, timm, transformers\nfrom torchvision import models\n{table}{call}\n"
    module = Repository([parse_source("a.py", source.encode())]).modules["a.py"]
    assert makes_published(module, module.tree.body[-1].value) is is_one
