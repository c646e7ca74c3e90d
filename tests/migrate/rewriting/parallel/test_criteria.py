"""Losses that are a mean over the rows, wherever their criterion is made."""

import pytest

from headrace.migrate.rewriting.parallel.criteria import why_no_mean
from headrace.migrate.rewriting.parallel.flows import flows
from headrace.migrate.rewriting.training_loops import read_step

TEXT = """\
import torch
from torch import nn
from torch.nn import functional as F

MADE
net = nn.Linear(1, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train(net, loader, loss_of):
    for images, labels in loader:
        outputs = net(images)
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(net, loader, criterion)
"""


@pytest.mark.parametrize(
    ("made", "loss", "mean"),
    [
        ("criterion = nn.CrossEntropyLoss()", "loss_of(outputs, labels)", True),
        ("criterion = nn.CrossEntropyLoss().cuda()", "loss_of(outputs, labels)", True),
        ("criterion = nn.MSELoss(reduction='mean')", "loss_of(outputs, labels)", True),
        ("criterion = F.nll_loss", "loss_of(outputs, labels)", True),
        ("first = nn.CrossEntropyLoss()\ncriterion = first.to(0)", "loss_of(outputs, labels)", True),
        ("", "F.cross_entropy(outputs, labels)", True),
        ("", "nn.CrossEntropyLoss()(outputs, labels)", True),
        ("", "nn.CrossEntropyLoss(weights)(outputs, labels)", False),
        ("", "F.cross_entropy(outputs, labels, reduction='mean')", True),
        ("", "F.cross_entropy(outputs, labels, reduction='sum')", False),
        ("", "F.cross_entropy(outputs, labels, label_smoothing=0.1)", False),
        ("criterion = nn.CrossEntropyLoss(weights)", "loss_of(outputs, labels)", False),
        ("criterion = nn.CrossEntropyLoss(ignore_index=0)", "loss_of(outputs, labels)", False),
        ("criterion = make()", "loss_of(outputs, labels)", False),
        ("class CrossEntropyLoss: pass\ncriterion = CrossEntropyLoss()", "loss_of(outputs, labels)", False),
        ("criterion = nn.CrossEntropyLoss() if a else nn.KLDivLoss()", "loss_of(outputs, labels)", False),
        ("criterion = nn.CrossEntropyLoss()\ncriterion = make()", "loss_of(outputs, labels)", False),
        ("criterion = nn.CrossEntropyLoss()", "2 * loss_of(outputs, labels)", False),
        ("criterion = nn.CrossEntropyLoss()", "loss_of(outputs, labels) + net.weight.norm()", False),
    ],
)
def test_a_mean_is_told_from_what_may_be_none(context_of, made, loss, mean):
    context = context_of(TEXT.replace("MADE", made).replace("LOSS", loss))
    (site,) = context.sites
    why = why_no_mean(context.module, read_step(site, context.sites), flows(context.module))
    assert (why is None) == mean, why
