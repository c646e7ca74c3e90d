"""What lets the update of a training loop be done where the loss is computed, and what does not."""

import ast

import pytest

from headrace.migrate.reading.scopes import Repository, bound_names
from headrace.migrate.reading.source import parse_source
from headrace.migrate.slicing.early_update import may_update_early

SCRIPT = """
import library

weights = list(model.parameters())
average = copy.deepcopy(model)
net = model
_, best = validate(model)
scheduler = Schedule(optimizer)

def size():
    return sum(item.grad.norm() for item in net.parameters())

def accuracy(outputs, labels):
    _, predicted = outputs.topk(1)
    return predicted.eq(labels).sum()

def attacked(images):
    score(images).backward()
    return images

for index, (images, labels) in enumerate(loader):
    BEFORE
    outputs = model(images)
    loss = criterion(outputs, labels)
    EARLY
    loss.backward()
    LATE
    optimizer.step()
    optimizer.zero_grad()
    BEHIND
"""


def early(before="pass", early="pass", late="pass", behind="pass", end="pass"):
    text = SCRIPT.replace("BEFORE", before).replace("EARLY", early).replace("LATE", late).replace("BEHIND", behind) + end
    module = Repository([parse_source("main.py", text.encode())]).modules["main.py"]
    (loop,) = (item for item in module.tree.body if isinstance(item, ast.For))
    _, forward, loss, one, backward, two, step, zero, _ = loop.body
    names = ("model", "optimizer")
    return may_update_early(module, None, loop, names, bound_names(loop), [one], [two], [forward, loss, backward, step, zero])


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"early": "meter.update(loss.item(), len(images))"},
        {"early": "print(loss.item())", "late": "correct = outputs.argmax(1).eq(labels).sum().item()"},
        {"late": "losses.append(loss.item())"},
        {"late": "meter.update(loss.item())", "behind": "scheduler.step()"},
        {"before": "model.train()", "behind": "library.log(loss)"},
        {"before": "images = augment(images)"},
        {"before": "scheduler.batch_step()"},
        {"before": "model.cuda()"},
        {"early": "correct = accuracy(outputs, labels)"},
        {"late": "_, predicted = library.max(outputs, 1)"},
    ],
)
def test_statistics_leave_the_update_where_it_may_be_early(given):
    assert early(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"early": "print(size())"},
        {"early": "before = sum(item.norm() for item in weights)"},
        {"early": "schedule(index)"},
        {"late": "library.clip(weights, 1.0)"},
        {"late": "for one in callbacks: one.after_backward(loss)"},
        {"late": "hook(loss)"},
        {"late": "average.update(net)"},
        {"before": "images = attacked(images)"},
        {"before": "images = library.attack(net, images)"},
        {"before": "with attacked(images): pass"},
        {"behind": "print(size())"},
        {"end": "print(size())"},
        {"end": "if index: print(weights[0].grad)"},
    ],
)
def test_what_comes_to_gradients_weights_or_rates_keeps_the_update(given):
    assert not early(**given)
