"""torchmetrics as scripts used it before a metric had a task."""

import pytest

from headrace.migrate.worker.rehearsal.edges import metrics

pytest.importorskip("torchmetrics")
SCORES = "import torch\nscores, target = torch.eye(4)[torch.tensor([0, 1, 2, 2])], torch.arange(4)\n"


@pytest.mark.parametrize("made", ["Accuracy(num_classes=4)", "Accuracy(0.5, num_classes=4)", "Accuracy(compute_on_step=False)"])
def test_a_metric_without_a_task_is_one_of_classes(on_stage, made):
    world = on_stage(metrics, learned={"classes": 4})
    names = world.play(f"{SCORES}import torchmetrics\nfound = float(torchmetrics.{made}(scores, target))\n")
    assert names["found"] == 0.75
    assert world.said("metrics") == ["torchmetrics' Accuracy has no task: one of 4 classes, as older versions took it"]


def test_a_metric_without_a_task_keeps_its_name_in_a_collection(on_stage):
    world = on_stage(metrics, learned={"classes": 4})
    names = world.play(
        f"{SCORES}import copy\nfrom torchmetrics import Accuracy, MetricCollection\n"
        "every = copy.deepcopy(MetricCollection([Accuracy()]).clone(prefix='val/'))\n"
        "found = {name: float(value) for name, value in every(scores, target).items()}\n"
    )
    assert names["found"] == {"val/Accuracy": 0.75}


def test_the_function_counts_the_classes_in_the_scores(on_stage):
    world = on_stage(metrics)
    names = world.play(f"{SCORES}from torchmetrics.functional import accuracy\nfound = float(accuracy(scores, target))\n")
    assert names["found"] == 0.75
    assert "one of 4 classes" in world.said("metrics")[0]


def test_a_metric_with_its_task_is_left_alone(on_stage):
    world = on_stage(metrics)
    names = world.play(
        f"{SCORES}from torchmetrics import Accuracy, F1Score\nfrom torchmetrics.functional import accuracy\n"
        "found = [float(Accuracy(task='multiclass', num_classes=4)(scores, target)),\n"
        "         float(Accuracy('multiclass', num_classes=4)(scores, target)),\n"
        "         float(accuracy(scores, target, 'multiclass', num_classes=4))]\n"
        "binary = type(F1Score(task='binary')).__name__\n"
    )
    assert (names["found"], names["binary"]) == ([0.75] * 3, "BinaryF1Score")
    assert world.said("metrics") == []
