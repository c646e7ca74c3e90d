"""Which classes of a repository are whole classifiers of images."""

import textwrap

import pytest

from headrace.migrate.reading.scopes import Repository
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.factories import ModelTable

HEAD = "import timm, torch\nimport torch.nn as nn\nfrom torchvision import models\n\n"
FORWARD = "    def forward(self, x):\n        return self.head(self.body(x))\n"


def found(source):
    text = HEAD + textwrap.dedent(source)
    return [item.name for item in ModelTable(Repository([parse_source("nets.py", text.encode())])).factories]


def network(*lines, parameters="", before=""):
    body = "".join(f"        {line}\n" for line in ("super().__init__()", *lines))
    return f"{before}class Net(nn.Module):\n    def __init__(self{parameters}):\n{body}\n{FORWARD}"


PART = """\
class Top(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(), nn.Linear(width, outputs))

    def forward(self, x):
        return self.layers(x)


class FinalHead(Top):
    pass


"""


@pytest.mark.parametrize(
    "source",
    [
        network("self.body = models.resnet18()", "self.body.fc = nn.Linear(512, n)", parameters=", n"),
        network("self.body = models.resnet18()", "self.body.fc = nn.Linear(512, cfg['kinds'])", parameters=", cfg"),
        network("self.body = timm.create_model(name, num_classes=0)", "self.head = nn.Linear(512, 7)", parameters=", name"),
        network("self.body = timm.create_model('vit_tiny', num_classes=n)", parameters=", n=3"),
        network(
            "self.body = torch.hub.load('repo', 'net')", "self.color = nn.Linear(9, colors)", parameters=", colors, shapes"
        ),
        network("self.body = getattr(models, name)(weights=None)", parameters=", name='resnet18'"),
        network(
            "self.body = NETWORKS[name]",
            "self.body.fc = nn.Linear(512, n)",
            parameters=", name, n",
            before="NETWORKS = {'small': models.resnet18(), 'large': models.resnet50()}\n",
        ),
        network("self.body = nn.Conv2d(3, 8, 3)", "self.head = Top(8, n_classes)", parameters=", n_classes", before=PART),
        network("self.body = nn.Conv2d(3, 8, 3)", "self.head = FinalHead(8, outputs=5)", before=PART),
        network(
            "self.body = nn.Conv2d(3, 8, 3)",
            "self.head = nn.Identity()",
            "self.color_head = nn.Linear(8, colors)",
            "self.shape_head = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, shapes))",
            parameters=", colors, shapes",
        ),
        network(
            "self.body = nn.Conv2d(3, 8, 3)",
            "self.heads = nn.ModuleDict({k: nn.Linear(8, v) for k, v in tasks.items()})",
            parameters=", tasks",
        ),
        network("self.body = backbone", "self.head = nn.Linear(512, nb_classes)", parameters=", backbone, nb_classes"),
    ],
)
def test_classifiers(source):
    assert found(source) == ["Net"]


@pytest.mark.parametrize(
    "source",
    [
        network("self.body = timm.create_model('vit_tiny', num_classes=0)"),
        network("self.body = models.resnet18()", "self.body.fc = nn.Identity()"),
        network("self.body = models.resnet18()", "self.head = nn.Linear(512, embedding_dim)", parameters=", embedding_dim"),
        network("self.body = models.resnet18()", "self.head = nn.Linear(512, 1)"),
        network("self.body = models.detection.fasterrcnn_resnet50_fpn()"),
        network("self.body = nn.Conv2d(3, 8, 3)", "self.gate = Top(8, 8)", before=PART),
        network("self.body = nn.Conv2d(3, 8, 3)", "self.head = nn.Linear(8, embed_dim)", parameters=", embed_dim"),
        network("self.body = nn.Linear(4, 8)", "self.head = nn.Linear(8, n)", parameters=", n"),
    ],
)
def test_other_networks(source):
    assert "Net" not in found(source)


YES_OR_NO = network("self.body = nn.Conv2d(3, 8, 3)", "self.head = nn.Linear(8, 1)")


@pytest.mark.parametrize(
    ("around", "taken"),
    [
        ("loss = nn.BCEWithLogitsLoss()(net(x), y)", True),
        ("loss = torch.nn.functional.binary_cross_entropy(net(x).sigmoid(), y)", True),
        ("loss = nn.MSELoss()(net(x), y)", False),
        ("loss = nn.BCELoss()(net(make(z)), y)\nmake = nn.ConvTranspose2d(8, 3, 3)", False),
        ("netD = Net()\nloss = nn.BCELoss()(netD(x), y)", False),
    ],
)
def test_a_network_with_one_score_is_a_classifier_where_such_scores_are_trained(around, taken):
    assert ("Net" in found(f"{YES_OR_NO}\n{around}\n")) == taken


ROWS = """
class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, x):
        return self.layers(x)


class Top(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(x.view(len(x), -1))


PAIRS = [None, {row}]


class Both(nn.Module):
    def __init__(self, version):
        super().__init__()
        body, top = PAIRS[version]
        self.body, self.top = body(), top(10)

    def forward(self, x):
        return self.top(self.body(x))
"""


@pytest.mark.parametrize(("row", "left"), [("(Dense, Top)", []), ("Dense, Top", ["Dense"])])
def test_what_stands_together_in_a_row_of_a_networks_table_is_a_part_of_it(row, left):
    assert [name for name in found(ROWS.replace("{row}", row)) if name != "Top"] == left
