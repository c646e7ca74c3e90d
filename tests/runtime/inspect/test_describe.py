import pytest
import torch
from torch import nn

import headrace
from headrace import GraphConfig
from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.runtime.inspect.describe import module_lines, plan_lines
from headrace.specs import BF16, FP32, Preprocessing, Resize


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(Block(4), Block(4), Block(4), Block(6), nn.ReLU(), nn.ReLU())
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return x


def test_the_tree_is_limited_in_depth_and_numbered_neighbors_that_are_alike_share_a_line():
    assert module_lines([("model", Net())], 2) == [
        "(model): Net, 132 float32 parameters, 36 float32 + 4 int64 in buffers",
        "  (stages): Sequential, 120 float32 parameters, 36 float32 + 4 int64 in buffers",
        "    (0-2): 3 x Block(...), each 24 float32 parameters, each 8 float32 + 1 int64 in buffers",
        "    (3): Block(...), 48 float32 parameters, 12 float32 + 1 int64 in buffers",
        "    (4-5): 2 x ReLU()",
        "  (one): Linear(in_features=2, out_features=2, bias=True), 6 float32 parameters",
        "  (two): Linear(in_features=2, out_features=2, bias=True), 6 float32 parameters",
    ]
    assert module_lines([("model", Net())], 0) == ["(model): Net(...), 132 float32 parameters, 36 float32 + 4 int64 in buffers"]


def test_dtypes_frozen_parameters_and_those_without_a_shape_are_told():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4).half(), nn.LazyLinear(2))
    model[0].requires_grad_(False)
    lines = module_lines([("model", model)])
    assert lines[0] == "(model): Sequential, 9 float32 + 16 float16 parameters, 9 frozen, some of no shape yet"
    assert lines[1].endswith("9 float32 parameters")
    assert "some of no shape yet" in lines[3]


def test_neighbors_of_one_look_and_other_contents_have_lines_of_their_own():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    assert [line.partition(":")[0].strip() for line in module_lines([("model", model)])] == ["(model)", "(0)", "(1)"]


def test_the_plan_tells_times_beside_eagers_and_why_it_is_portable():
    won = Measurement(choice=Choice(backend="openvino", precision=BF16), bucket=4, status="won", median_ms=0.5, why="")
    lost = Measurement(choice=Choice(backend="eager", precision=FP32), bucket=4, status="lost", median_ms=2.25, why="slower")
    choices = {1: Choice(backend="eager", precision=FP32), 4: Choice(backend="openvino", precision=BF16)}
    plan = Plan(fingerprint={}, choices=choices, threads=2, measurements=(won, lost))
    assert plan_lines(plan) == [
        "plan for cpu (threads: 2)",
        "  batch 1: eager fp32",
        "  batch 4: openvino bf16, 0.5 ms (eager 2.25 ms)",
    ]
    portable = Plan(fingerprint={}, choices={1: Choice(backend="eager", precision=FP32)}, portable=True, reason="no plan")
    assert plan_lines(portable)[0] == "plan for cpu, not measured here: no plan"


def test_a_graph_shows_itself_before_and_after_it_is_captured(conv_net, tmp_path):
    graph = headrace.compile(conv_net, config=GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1))
    first, *lines, last = str(graph).splitlines()
    assert (first, last) == ("ModuleGraph(", ")")
    assert lines[0] == "  (model): ConvNet, 589 float32 parameters, 32 float32 + 2 int64 in buffers"
    assert (
        "    (stem): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False), 216 float32 parameters"
        in lines
    )
    assert lines[-1] == "  not captured yet: call it, or compile it with example inputs"
    for size in (16, 12):
        graph(torch.randn(2, 3, size, size))
    text = str(graph)
    for part in (
        "  input images: float32 ['batch', 3, 12, 12]\n  output output: float32 ['batch', 5], class scores\n  passes: ",
        "fold_batch_norm",
        "  plan for cpu (threads: 1)\n    batch 1: onnxruntime fp32, ",
        "\n    batch 4: onnxruntime fp32",  # measured where there was time
        "  parity passed, differs by up to ",
        "  captures: 2, 2 kept of at most 4\n    capture 2: input images has row shape (3, 12, 12), before (3, 16, 16)\n)",
    ):
        assert part in text, text
    steps = Preprocessing(geometry=(Resize(size=(12, 12)),))
    loaded = headrace.load(graph.save(tmp_path / "net", labels=list("abcde"), preprocessing=steps))
    text = str(loaded)
    for part in (
        "LoadedGraph(\n  net version 1\n  input images: float32 ['batch', 3, 12, 12]\n",
        "  labels of output: 5 classes\n  preprocessing: RGB image, Resize(size=(12, 12)",
        "fold_batch_norm",
        "    batch 4: onnxruntime fp32",
        "  parity passed",
    ):
        assert part in text, text


class Train(headrace.Graph):
    def __init__(self, model, optimizer, **options):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, **options)

    def build(self, rows, labels):
        loss = nn.functional.cross_entropy(self.model(rows), labels)
        loss.backward()
        return loss


def test_a_training_graph_shows_its_optimizer_its_options_and_its_steps():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[1].parameters(), "weight_decay": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.25, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    graph = Train(model, optimizer, lr_scheduler=scheduler, clip_grad_norm=1.0, accumulate=2)
    assert "trained by SGD, updates so far: 0" in str(graph)
    for _ in range(4):
        graph(torch.randn(5, 6), torch.randint(0, 3, (5,)))
    text = str(graph)
    for part in (
        "(model): Sequential, 43 float32 parameters",
        "  trained by SGD, updates so far: 2\n    2 parameters: lr 0.5, momentum 0.9, initial_lr 0.5\n",
        "    2 parameters: weight_decay 0.1, lr 0.25, momentum 0.9, initial_lr 0.25\n",
        "    lr_scheduler StepLR\n    clip_grad_norm 1.0\n    accumulate 2\n",
        "    step for [(5, 6), (5,)]: captured",
        f"  captures: {graph.captures}\n",
    ):
        assert part in text, text


@pytest.mark.parametrize("rate", [1e-3, torch.tensor(1e-3)])
def test_an_optimizer_whose_settings_are_tensors_or_pairs_is_shown(rate):
    model = nn.Linear(6, 3)
    graph = Train(model, torch.optim.Adam(model.parameters(), lr=rate))
    assert "2 parameters: lr 0.001, betas (0.9, 0.999), eps 1e-08" in str(graph)
