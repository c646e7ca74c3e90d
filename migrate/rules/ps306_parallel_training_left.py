"""PS306: a script of many processes was not understood well enough to be rewritten."""

from collections.abc import Iterator

from ..rewriting.parallel.training import parallel_trainings
from ..rewriting.rule import Context, Fix, Rule

_DROPOUT = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
sampler = DistributedSampler(data)
model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10))
model = DistributedDataParallel(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
"""
_SUM = _DROPOUT.replace("nn.Dropout(0.5), ", "").replace("CrossEntropyLoss()", 'CrossEntropyLoss(reduction="sum")')
_PLAIN = _DROPOUT.replace("model = DistributedDataParallel(model)\n", "")


class ParallelTrainingLeft(Rule):
    """What it does: says why a script that trains by DistributedDataParallel or DataParallel was left as it was (`--parallel`).

    Why: such a script is rewritten whole or not at all: the wrapper, every use of the model, the loop and the launch go
    together. Dropout, losses that are no plain mean over the rows, mixed precision with a scaler, and models that are handed
    to code in other files are outside of what is understood.

    Example: a model with dropout, whose random numbers would depend on the ranks.

    Fix safety: there is no fix; docs/parallel.md says how a training over global tensors is written by hand.
    """

    safety = "manual"
    option = "parallel"
    VALID = (_PLAIN,)
    INVALID = ((_DROPOUT, None), (_SUM, None))

    def check(self, context: Context) -> Iterator[Fix]:
        for found in parallel_trainings(context):
            if found.rejected is not None:
                message = f"the script stays one of {found.kind}: {found.rejected}"
                yield self.fix(context, found.call, message)
