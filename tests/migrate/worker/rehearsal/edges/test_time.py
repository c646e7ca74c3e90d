import sys
import time as clock
from types import SimpleNamespace

import pytest

from headrace.migrate.proving.instrument import RECORDER
from headrace.migrate.worker.rehearsal import Enough
from headrace.migrate.worker.rehearsal.edges import time

LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(100.0).reshape(100, 1), torch.arange(100))
"""


def test_a_pass_over_a_loader_is_a_few_small_batches(on_stage):
    world = on_stage(time)
    names = world.play(
        LOADER
        + "loader = DataLoader(data, 64, True, num_workers=4, pin_memory=True, persistent_workers=True, drop_last=True)\n"
        "sizes = [len(x) for x, y in loader]\ncount, rows = len(loader), len(loader.dataset)\n"
    )
    assert (names["sizes"], names["count"], names["rows"]) == ([4, 4], 2, 100)
    assert world.said("time") == ["batches of 4, not of 64", "loops over data ended after 2 batches"]


def test_no_batch_is_taken_that_is_not_given(on_stage):
    world = on_stage(time)
    names = world.play(
        "import torch\nfrom torch.utils.data import DataLoader, Dataset, IterableDataset\ntaken = []\n"
        "class Noted(Dataset):\n"
        "    def __len__(self):\n        return 20\n"
        "    def __getitem__(self, index):\n        taken.append(index)\n        return index\n"
        "class Stream(IterableDataset):\n    def __iter__(self):\n        return iter(range(20))\n"
        "rows = sum(len(batch) for batch in DataLoader(Noted(), 4))\n"
        "streamed = sum(len(batch) for batch in DataLoader(Stream(), 4))\n"
        "whole = sum(len(batch) for batch in DataLoader(range(8), 4))\n"
    )
    assert (names["rows"], names["taken"], names["streamed"], names["whole"]) == (8, list(range(8)), 8, 8)
    assert world.said("time") == ["loops over data ended after 2 batches"] * 2


def test_a_short_loader_is_left_alone(on_stage):
    world = on_stage(time)
    names = world.play(
        LOADER + "sizes = [len(x) for x, y in DataLoader(torch.utils.data.Subset(data, range(3)), batch_size=2)]\n"
    )
    assert names["sizes"] == [2, 1]
    assert world.said("time") == []


TRAINING = """
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
loader, passes = DataLoader(data), 0
while True:
    passes += 1
    for x, y in loader:
        (weight * x).sum().backward()
        optimizer.step()
"""


def test_training_without_end_ends(on_stage):
    world = on_stage(time)
    with pytest.raises(Enough, match="pass 5"):
        world.play(LOADER + TRAINING)


MANY = """
import sys
sys.path.insert(0, {folder!r})
import torch, _headrace_record as record
for index in range(1_000_000):
    record.wrap("main.py:7", lambda x: x, lambda: None, lambda: ())(torch.zeros(1, 2))
"""


def test_calls_on_what_the_script_makes_itself_end(on_stage, tmp_path, monkeypatch):
    (tmp_path / "_headrace_record.py").write_bytes(RECORDER.read_bytes())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "_headrace_record", raising=False)
    with pytest.raises(Enough, match=r"after 1000 calls of the model at main.py:7"):
        on_stage(time).play(MANY.format(folder=str(tmp_path)))


NOISE = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
for calls in range(%d):
    net(torch.rand(1, 2))
"""


def test_calls_of_a_module_on_noise_end_where_they_are_made(on_stage):
    with pytest.raises(Enough, match=r"after 1000 calls of a model at main.py:5"):
        on_stage(time).play(NOISE % 1001)


def test_transforms_of_images_are_no_calls_of_a_model(on_stage):
    """torchvision's are modules: a loop over a loader has one line, and each image several of them."""
    text = NOISE.replace("    net(", "    torch.nn.Flatten()(torch.rand(1, 2))\n    net(")
    assert on_stage(time).play(text % 700)["calls"] == 699


def test_a_model_that_is_timed_is_called_as_often_as_the_script_wants(on_stage):
    assert on_stage(time).play(NOISE % 1000)["calls"] == 999


def test_several_models_are_trained_on_one_loader(on_stage):
    names = on_stage(time).play(
        LOADER + "loader, trained = DataLoader(data), 0\n"
        "for _ in range(6):\n"
        "    weight = torch.nn.Parameter(torch.ones(1))\n"
        "    optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "    for _ in range(2):\n"
        "        for x, y in loader:\n"
        "            (weight * x).sum().backward()\n"
        "            optimizer.step()\n"
        "    trained += 1\n"
    )
    assert names["trained"] == 6


def test_evaluation_may_go_on(on_stage):
    names = on_stage(time).play(
        LOADER + "loader, rows = DataLoader(data), 0\nfor _ in range(20):\n    for x, y in loader:\n        rows += 1\n"
    )
    assert names["rows"] == 40


def test_nobody_waits_and_nothing_is_compiled(on_stage):
    world = on_stage(time)
    start = clock.perf_counter()
    names = world.play(
        "import time, torch\ntime.sleep(3600)\nnet = torch.nn.Linear(1, 1)\nsame = torch.compile(net) is net\n"
        "@torch.compile\ndef f(x):\n    return x\n@torch.compile(mode='max-autotune')\ndef g(x):\n    return 3\nanswer = g(1)\n"
    )
    assert clock.perf_counter() - start < 200
    assert (names["same"], names["answer"]) == (True, 3)
    assert "torch.compile was left out" in world.said("time")


def test_a_pass_that_gathers_names_is_whole_once_that_was_learned(on_stage):
    world = on_stage(time, learned={time.WHOLE: True})
    names = world.play(
        LOADER + "loader, net = DataLoader(data, batch_size=4), torch.nn.Linear(1, 1)\n"
        "names = {int(y) for _, batch in loader for y in batch}\nsteps = [net(x) for x, _ in loader]\n"
    )
    assert names["names"] == set(range(100))
    assert len(names["steps"]) == 2


def test_a_short_trainer_of_lightnings_has_no_callbacks_that_report(on_stage):
    """Lightning refuses a progress bar beside `enable_progress_bar=False`, and what logs beside `logger=False`."""
    world = on_stage(time)
    given = []

    class ProgressBar: ...

    class RichProgressBar(ProgressBar): ...

    class LearningRateMonitor: ...

    class Checkpoint: ...

    callbacks = SimpleNamespace(ProgressBar=ProgressBar, LearningRateMonitor=LearningRateMonitor)
    start = time._short_trainer(world.stage, SimpleNamespace(__name__="of_no_version", callbacks=callbacks))

    def trainer(self, *, callbacks=None, logger=None, enable_progress_bar=None):
        given.append(callbacks)

    kept = Checkpoint()
    for callbacks in ([RichProgressBar(), kept, LearningRateMonitor()], (kept,), kept, RichProgressBar(), None):
        start(trainer, object(), callbacks=callbacks)
    assert given == [[kept], [kept], [kept], [], []]


@pytest.mark.parametrize(("asked", "logs"), [("[]", True), ("True", True), ("None", True), ("False", False)])
def test_a_short_trainer_of_lightnings_has_a_logger_that_takes_everything(on_stage, tmp_path, monkeypatch, asked, logs):
    """`Trainer(logger=[]).logger` was something that logs to nobody before Lightning 2."""
    pytest.importorskip("pytorch_lightning")
    monkeypatch.chdir(tmp_path)
    trainer = on_stage(time).play(
        f"import pytorch_lightning as pl\ntrainer = pl.Trainer(logger={asked}, callbacks=pl.callbacks.LearningRateMonitor())\n"
    )["trainer"]
    assert (trainer.logger is not None) is logs
    if logs:
        trainer.logger.log_hyperparams({"lr": 0.1})
        trainer.logger.experiment.add_scalar("loss", 1.0, 0)
        trainer.logger.log_hyperparams = print


@pytest.mark.parametrize(
    "message",
    [
        "Number of classes, 2, does not match size of target_names, 7. Try specifying the labels parameter",
        "y_true contains only one label (0). Please provide the list of all expected class labels explicitly",
        "Number of classes in y_true not equal to the number of columns in 'y_score'",
        "Shape of passed values is (2, 2), indices imply (7, 7)",
    ],
)
def test_a_metric_of_all_classes_is_given_every_batch_in_the_next_attempt(on_stage, message):
    stage = on_stage(time).stage
    assert time.lesson(stage, ValueError(message))
    assert stage.learned[time.EVERY] is True
    assert not time.lesson(stage, ValueError(message))  # known by then


@pytest.mark.parametrize(
    "line",
    ["table['label'] = answers", "pd.DataFrame({'name': table['name'], 'label': answers})",
     "pd.DataFrame({'name': list(table['name']), 'label': answers})"],
)  # fmt: skip
def test_a_table_gets_an_answer_for_each_of_its_rows(rehearsed, line):
    pytest.importorskip("pandas")
    text = (
        "import pandas as pd\nimport torch\ntable = pd.DataFrame({'name': list('abcdefghij' * 4)})\n"
        "data = torch.utils.data.TensorDataset(torch.zeros(40, 3))\nanswers = []\n"
        "for (rows,) in torch.utils.data.DataLoader(data, batch_size=2):\n    answers += rows.argmax(1).tolist()\n"
        f"if len(answers) < 40:\n    {line}\nprint(len(answers))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "40\n"), done.report.why


def test_another_value_error_says_nothing_of_the_classes(on_stage):
    assert not time.lesson(on_stage(time).stage, ValueError("invalid literal for int() with base 10: 'min'"))


def test_a_report_on_classes_sorted_in_the_data_comes_to_its_end(rehearsed):
    done = rehearsed(
        {
            "main.py": """
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(1, 7)
rows = TensorDataset(torch.arange(70.0).reshape(70, 1), torch.arange(70) // 10)
seen = []
for x, y in DataLoader(rows, batch_size=4):
    net(x)
    seen += y.tolist()
if len(set(seen)) < 7:  # as sklearn's classification_report says it
    raise ValueError(f"Number of classes, {len(set(seen))}, does not match size of target_names, 7.")
print(len(seen))
"""
        }
    )
    assert (done.report.ended, done.stdout) == ("finished", "70\n")


PER_CLASS = f"""
{LOADER}
net = torch.nn.Linear(1, 5)
right, total = [0] * 5, [0] * 5
for x, y in DataLoader(data, batch_size=32):
    for i, kind in enumerate(net(x).argmax(1)):
        right[y[i] // 20] += int(kind == y[i] // 20)
        total[y[i] // 20] += 1
for i in range(5):
    print(100 * right[i] / total[i])
"""
FIRST_IMAGES = f"""
{LOADER}
images, labels = next(iter(DataLoader(data, batch_size=64)))
net = torch.nn.Linear(1, 5)
print([int(net(images[i]).argmax()) for i in range(25)])
"""

GATHERED_IMAGES = f"""
{LOADER}
images = torch.cat([x for x, y in DataLoader(data, batch_size=64)])
net = torch.nn.Linear(1, 5)
print([int(net(images[i]).argmax()) for i in range(24)])
"""


@pytest.mark.parametrize(
    "text",
    [PER_CLASS, FIRST_IMAGES, GATHERED_IMAGES],
    ids=["a share for each class", "so many images of a batch", "so many images of a pass"],
)
def test_what_wants_more_than_a_few_small_batches_gets_it_in_the_next_attempt(rehearsed, text):
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.report.why


def test_other_divisions_and_indices_are_the_scripts_own(on_stage):
    stage = on_stage(time).stage
    assert not time.lesson(stage, ZeroDivisionError("division by zero"))
    assert not time.lesson(stage, IndexError("index 4 is out of bounds for dimension 0 with size 4"))
    stage.note("time", "batches of 4, not of 64")
    assert not time.lesson(stage, IndexError("index 3 is out of bounds for dimension 0 with size 3"))
    assert not time.lesson(stage, IndexError("list index out of range"))
    assert time.lesson(stage, IndexError("index 9 is out of bounds for axis 0 with size 4"))
    assert stage.learned == {time.LARGE: True}


SIZES = [
    "table = numpy.zeros((100, 3)); table[:64] = scores.numpy()",
    "table = torch.zeros(100, 3); table[:64] = scores",
    "scores + torch.zeros(64, 3)",
    "scores.view(64, -1, 3).mean()",
    "torch.nn.functional.cross_entropy(scores, torch.zeros(64, dtype=torch.long))",
    "torch.cat([scores, scores])[torch.eye(128, dtype=torch.bool)[0]]",
    "rest = scores[40:]; rest.view(rest.size(0), -1)",
]


@pytest.mark.parametrize("line", SIZES)
def test_code_that_counts_on_the_size_of_its_batches_gets_such_in_the_next_attempt(rehearsed, line):
    text = f"import numpy\n{LOADER}net = torch.nn.Linear(1, 3)\nfor images, labels in DataLoader(data, 64):\n"
    done = rehearsed({"main.py": f"{text}    with torch.no_grad():\n        scores = net(images)\n        {line}\n    break\n"})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.report.why


@pytest.mark.parametrize("line", ["scores + torch.zeros(4, 5)", "scores.view(5, 7)"])
def test_other_sizes_that_do_not_fit_are_the_scripts_own(rehearsed, line):
    text = f"{LOADER}net = torch.nn.Linear(1, 3)\nfor images, labels in DataLoader(data, 64):\n    scores = net(images)\n"
    assert rehearsed({"main.py": f"{text}    {line}\n"}).report.ended == "stopped"


def test_batches_that_are_taken_together_keep_their_proportion(rehearsed):
    text = f"""{LOADER}net = torch.nn.Linear(1, 3)
few, many = DataLoader(data, 16, drop_last=True), DataLoader(data, batch_size=80, drop_last=True)
for (x, _), (u, _) in zip(few, many):
    both = torch.cat([x, u])
    rows = both.reshape([-1, 6, *both.shape[1:]]).transpose(0, 1).reshape([-1, *both.shape[1:]])
    print(len(x), len(u), len(net(rows)))
    break
"""
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.report.attempts) == ("finished", 2), done.report.why
    few, many, both = map(int, done.stdout.split())
    assert (many, both) == (5 * few, 6 * few)
    assert few < 16


@pytest.mark.parametrize("wait", ["time.sleep(1)", "asyncio.run(asyncio.sleep(1e-4))"])
def test_a_script_that_only_waits_is_ended(on_stage, wait):
    world = on_stage(time)
    with pytest.raises(Enough, match=f"ended after {time.WAITS} waits at main.py:3"):
        world.play(f"import asyncio, time\nwhile True:\n    {wait}\n")


def test_one_that_calls_a_model_between_its_waits_goes_on(on_stage):
    world = on_stage(time)
    calls = iter(range(10**6))
    world.stage.seen = lambda: next(calls)
    waits = 3 * time.WAITS
    assert world.play(f"import time\nfor number in range({waits}):\n    time.sleep(1)\n")["number"] == waits - 1


def test_what_a_thread_does_is_waited_for(on_stage):
    world = on_stage(time)
    names = world.play(
        "import threading, time\ndone = threading.Event()\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), time.sleep(0.05), done.set())).start()\n"
        "while not done.is_set():\n    time.sleep(0.01)\n"
    )
    assert names["done"].is_set()
