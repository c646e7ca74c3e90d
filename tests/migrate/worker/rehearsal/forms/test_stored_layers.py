import pytest

PREDICTS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Flatten()
        self.classifier = %s

    def forward(self, x):
        return self.classifier(self.body(x))

checkpoint = torch.load("checkpoint.pth")
model = Net()
model.classifier = checkpoint["classifier"]
model.class_to_idx = checkpoint["class_to_idx"]
model.load_state_dict(checkpoint["state_dict"])
print(model.eval()(torch.rand(2, 3, 4, 4)).shape[1], len(model.class_to_idx))
"""


@pytest.mark.parametrize("layers", ["nn.Linear(48, 9)", "nn.Sequential(nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 9))"])
def test_a_model_keeps_the_layers_that_a_checkpoint_would_have(rehearsed, layers):
    done = rehearsed({"main.py": PREDICTS % layers, "names.py": "CLASSES = ['ant', 'bee', 'cow']\n"})
    assert done.report.ended == "finished", done.report.why
    assert done.stdout == "3 3\n"
    assert "Net.classifier: weights that are not yours stood in" in [item.what for item in done.standins("network")]


def test_they_are_as_wide_as_those_that_the_training_makes(rehearsed):
    trains = "from torch import nn\nlayers = nn.Sequential(nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 7), nn.LogSoftmax(1))\n"
    done = rehearsed({"main.py": PREDICTS % "nn.Linear(48, classes)".replace("classes", "7 + 2 - 0"), "train.py": trains})
    assert done.stdout == "7 7\n", done.report.why


def test_what_is_no_layer_of_the_scripts_own_making_is_its_error(rehearsed):
    text = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2))\nsetattr(net, '0', [1])\n"
    done = rehearsed({"main.py": text})
    assert "cannot assign 'list' as child module '0'" in str(done.report.why)
