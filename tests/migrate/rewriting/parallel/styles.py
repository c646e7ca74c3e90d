"""Training scripts of many processes, each as people write them. All of them run on the CPU over gloo, and train the same."""

NET = """\
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 2 * 2, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 4)
        return self.fc(torch.flatten(x, 1))
"""
DATA = """\
import numpy as np
import torch
from torch.utils.data import Dataset


class Squares(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(count)
        self.labels = rng.integers(0, 4, count)
        self.images = rng.normal(size=(count, 1, 8, 8)).astype(np.float32)
        for image, label in zip(self.images, self.labels):
            row, column = divmod(int(label), 2)
            image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.5

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]), int(self.labels[index])
"""
TORCHRUN = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import Squares
from net import Net


def train(model, loader, criterion, optimizer, device):
    model.train()
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * images.size(0)
    return total


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        correct += (outputs.argmax(1) == labels).sum().item()
    return correct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume")
    parser.add_argument("--out", default="checkpoint.pth")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    torch.manual_seed(dist.get_rank())

    train_set, test_set = Squares(48), Squares(21)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=8)

    model = Net().to(device)
    model = DDP(model, device_ids=[local_rank] if cuda else None)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    start = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"]

    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        train(model, train_loader, criterion, optimizer, device)
        if dist.get_rank() == 0:
            correct = evaluate(model.module, test_loader, device)
            print(f"epoch {epoch}: {correct} of {len(test_set)}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, args.out)
            torch.save(model.module.state_dict(), args.out + ".net")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
SPAWNED = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from data import Squares
from net import Net


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", rank=rank, world_size=world_size)


class Trainer:
    def __init__(self, model, loader, optimizer, rank):
        self.rank = rank
        self.loader = loader
        self.optimizer = optimizer
        self.model = DDP(model)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for source, targets in self.loader:
            self._run_batch(source, targets)

    def _save(self, epoch):
        torch.save(self.model.module.state_dict(), "checkpoint.pth")

    def train(self, epochs):
        self.model.train()
        for epoch in range(epochs):
            self._run_epoch(epoch)
            if self.rank == 0:
                self._save(epoch)


def main(rank, world_size, epochs):
    setup(rank, world_size)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = Squares(48)
    loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset))
    Trainer(model, loader, optimizer, rank).train(epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = max(2, torch.cuda.device_count())
    mp.spawn(main, args=(world_size, 2), nprocs=world_size)
"""
LAUNCHED = """\
# python -m torch.distributed.launch --nproc_per_node=2 train.py
import argparse

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import Squares
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()

cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.set_device(args.local_rank)
device = torch.device("cuda", args.local_rank) if cuda else torch.device("cpu")
torch.distributed.init_process_group(backend="nccl" if cuda else "gloo", init_method="env://")
assert args.local_rank == torch.distributed.get_rank()

torch.manual_seed(1)
net = Net()
net = nn.SyncBatchNorm.convert_sync_batchnorm(net).to(device)
net = nn.parallel.DistributedDataParallel(net, device_ids=[args.local_rank] if cuda else None, find_unused_parameters=True)
net_without_ddp = net.module

dataset = Squares(48)
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=4, sampler=sampler, drop_last=True)
loss_function = nn.CrossEntropyLoss()
optimizer = optim.Adam(net.parameters(), lr=args.lr)

for epoch in range(2):
    sampler.set_epoch(epoch)
    net.train()
    for step, (inputs, target) in enumerate(loader):
        inputs, target = inputs.to(device), target.to(device)
        logits = net(inputs)
        loss = loss_function(logits, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        if step % 2 == 0 and args.local_rank == 0:
            print("epoch", epoch, "step", step, "loss", loss.item(), flush=True)
    if args.local_rank == 0:
        torch.save(net_without_ddp.state_dict(), "checkpoint.pth")
"""
REPLICATED = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import Squares
from net import Net


def accuracy(net, loader, device):
    net.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            outputs = net(images)
            correct += (outputs.argmax(dim=1) == labels).sum().item()
    return correct / len(loader.dataset)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Squares(46), batch_size=4, shuffle=True)
    test_loader = DataLoader(Squares(21), batch_size=8)
    net = Net().to(device)
    if torch.cuda.device_count() > 1:
        print("Let's use", torch.cuda.device_count(), "GPUs!")
        net = nn.DataParallel(net)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    os.makedirs("runs", exist_ok=True)
    for epoch in range(2):
        net.train()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            outputs = net(images)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), accuracy(net, test_loader, device))


if __name__ == "__main__":
    main()
"""
STYLES = {"torchrun": TORCHRUN, "spawned": SPAWNED, "launched": LAUNCHED, "replicated": REPLICATED}
