import ast
from types import SimpleNamespace

import pytest

from headrace.migrate.resolving.task import stated_task, stated_threshold, states_width, with_threshold


def module(text):
    return SimpleNamespace(nodes=list(ast.walk(ast.parse(text))))


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("criterion = nn.CrossEntropyLoss()", "single-label"),
        ("F.nll_loss(out, y)", "single-label"),
        ("criterion = torch.nn.BCEWithLogitsLoss(pos_weight=w)", "multi-label"),
        ("get().binary_cross_entropy(a, b)", "multi-label"),
        ("F.cosine_similarity(a, b)", "embedding"),
        ("loss = nn.BCELoss()\nout.argmax(1)", ""),  # which of them is meant?
        ("loss = nn.MSELoss()", ""),
        ("", ""),
    ],
)
def test_losses_tell_the_task(text, task):
    assert stated_task([module(text)], 10) == task


def test_one_number_is_no_class_among_several():
    assert stated_task([module("criterion = nn.CrossEntropyLoss()")], 1) == ""
    assert stated_task([module("criterion = nn.BCEWithLogitsLoss()")], 1) == "multi-label"


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        ("p = torch.sigmoid(out)\nfound = p > 0.3", 0.3),
        ("found = out.sigmoid().cpu().numpy() >= 0.7", 0.7),
        ("found = 0.2 < nn.Sigmoid()(out)", 0.2),
        ("p = torch.sigmoid(out).cpu().numpy()\nfound = (p[0] > 0.4)", 0.4),
        ("found = torch.sigmoid(out) > 0.3\nmore = torch.sigmoid(out) > 0.5", None),
        ("if accuracy > 0.5: save()", None),
        ("found = torch.sigmoid(out) > threshold", None),
        ("found = torch.sigmoid(out) > 1.5", None),
    ],
)
def test_a_threshold_is_what_a_sigmoid_is_compared_with(text, threshold):
    assert stated_threshold([module(text)]) == threshold
    wanted = "multi-label" if threshold is None else f"multi-label:{threshold}"
    assert with_threshold("multi-label", [module(text)]) == wanted
    assert with_threshold("multi-label:0.5", [module(text)]) == "multi-label:0.5"
    assert with_threshold("single-label", [module(text)]) == "single-label"


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("head = nn.Linear(512, 10)", True),
        ("model = timm.create_model('resnet18', num_classes=10)", True),
        ("loader = DataLoader(images, batch_size=10)", False),
        ("head = nn.Linear(512, len(classes))", False),
        ("model = build('vit', True)", False),
    ],
)
def test_a_number_of_outputs_is_stated_by_layers_and_networks(text, states):
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert states_width([SimpleNamespace(calls=calls)], 10) is states
