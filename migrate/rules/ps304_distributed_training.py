"""PS304: a script trains by DistributedDataParallel."""

from collections.abc import Iterable, Iterator

from ..rewriting.parallel.training import DISTRIBUTED, parallel_trainings
from ..rewriting.rule import Context, Fix, Rule, diff
from ..survey.loops import CallSite

_TORCHRUN = diff("""\
import os

+import headrace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import Digits
from net import Net


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    sampler = DistributedSampler(Digits())
    loader = DataLoader(Digits(), batch_size=32, sampler=sampler)
    net = Net().to(device)
-    net = DistributedDataParallel(net, device_ids=[device.index])
+    placement = headrace.parallel.world(next(net.parameters()).device.type)
+    net = headrace.parallel.to_global(net, placement, own_statistics=True)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
+        train_step = headrace.training_step(net, criterion, optimizer, batches="shares")
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
-            optimizer.zero_grad()
-            loss = criterion(net(images), labels)
-            loss.backward()
-            optimizer.step()
+            loss, _ = train_step(images, labels)
        if dist.get_rank() == 0:
            print(epoch, loss.item())
-            torch.save(net.module.state_dict(), "net.pth")
+            torch.save(headrace.parallel.whole(net.state_dict()), "net.pth")


if __name__ == "__main__":
    main()
""")
_SPAWNED = diff("""\
import os

+import headrace
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import Digits
from net import Net


def train(model, loader, optimizer, rank):
+    train_step = headrace.training_step(model, F.cross_entropy, optimizer, batches="shares")
    for data, target in loader:
        data, target = data.to(rank), target.to(rank)
-        optimizer.zero_grad()
-        output = model(data)
-        loss = F.cross_entropy(output, target)
-        loss.backward()
-        optimizer.step()
+        loss, output = train_step(data, target)


def worker(rank, world_size):
-    os.environ["MASTER_ADDR"] = "localhost"
-    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    loader = DataLoader(Digits(), 32, sampler=DistributedSampler(Digits(), num_replicas=world_size, rank=rank))
-    model = DDP(Net().to(rank), device_ids=[rank])
+    model = Net().to(rank)
+    placement = headrace.parallel.world(next(model.parameters()).device.type)
+    model = headrace.parallel.to_global(model, placement, own_statistics=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        train(model, loader, optimizer, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
-    mp.spawn(worker, args=(world_size,), nprocs=world_size, join=True)
+    world_size = headrace.parallel.world_size()
+    worker(int(os.environ["LOCAL_RANK"]), world_size)
""")


class DistributedTraining(Rule):
    """What it does: makes a script that trains by DistributedDataParallel a program over global tensors, for torchrun
    (`--parallel`).

    Why: the step is captured with its collectives, as one graph; ZeRO and split layers are then an argument of `to_global`
    away.

    Example: `net = DistributedDataParallel(net)` becomes `net = headrace.parallel.to_global(net, placement)`, its loop a
    training step that is given this rank's share of each batch, and what calls `net` elsewhere a `local_view` of it. Processes
    that the script spawned itself are started by `torchrun --nproc-per-node N SCRIPT`. State dicts keep the names that they
    had.

    Fix safety: safe. Gradients are those of the mean over all ranks' rows, which is the mean of the ranks' means, and a batch
    normalization takes each rank's own rows unless it is a SyncBatchNorm. The loss that comes back is that of the rows of all
    ranks, where it was that of the rank's own. A script that is not understood whole is left as it was (PS306).
    """

    safety = "safe"
    option = "parallel"
    VALID = (_TORCHRUN[1], "from torch.nn.parallel import DistributedDataParallel\n\nmodel = DistributedDataParallel(model)\n")
    INVALID = (_TORCHRUN, _SPAWNED)

    def check(self, context: Context) -> Iterator[Fix]:
        for found in parallel_trainings(context):
            if found.kind == DISTRIBUTED and found.rejected is None:
                message = "the model is trained by DistributedDataParallel, each process for itself"
                yield self.fix(context, found.call, message, found.edits, severity="note")

    def claims(self, context: Context) -> Iterable[CallSite]:
        return [site for found in parallel_trainings(context) if found.kind == DISTRIBUTED for site in found.sites]
