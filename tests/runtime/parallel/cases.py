"""Small models, the ways to lay them on ranks, and trainings of them; for ranks simulated in a process and for real ones."""

from __future__ import annotations

import contextlib
import functools
import sys

import torch
from torch import nn
from torch.nn import functional

import headrace
from headrace import parallel

sbp = parallel.sbp
CLASSES = 12


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))

    def attend(self, x):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ViT(nn.Module):
    def __init__(self, width=16, blocks=2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width) / 4)
        self.places = nn.Parameter(torch.randn(1, 5, width) / 4)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class CNN(nn.Module):
    """Nearly all of its parameters are those of the last layer, as in face recognition."""

    def __init__(self, classes=512):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, classes)

    def forward(self, images):
        x = functional.relu(self.norm1(self.conv1(images)))
        x = functional.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


def mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def chain(classes=512):
    """Convolutions and a large last layer, one after another, with nothing of which microbatches would have statistics."""
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1)]
    return nn.Sequential(*parts, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))


MODELS = {"mlp": mlp, "cnn": CNN, "vit": ViT, "a block": functools.partial(ViT, blocks=1), "chain": chain}


def plainly():
    """Where ranks are simulated, tensors drawn within are plain ones, and not one for each rank."""
    module = sys.modules.get("torch.distributed._local_tensor")
    mode = module.local_tensor_mode() if module else None
    return mode.disable() if mode else contextlib.nullcontext()


def randn(*shape):
    with plainly():
        return torch.randn(shape, dtype=torch.float64)


def model(name):
    with plainly():
        torch.manual_seed(3)
        return MODELS[name]().double()


class Tokens(nn.Module):
    """What comes before a ViT's blocks."""

    def __init__(self, vit):
        super().__init__()
        self.vit = vit

    def forward(self, images):
        x = self.vit.patches(images).flatten(2).transpose(1, 2)
        return torch.cat([self.vit.token.expand(x.shape[0], -1, -1), x], dim=1) + self.vit.places


class Head(nn.Module):
    def __init__(self, vit):
        super().__init__()
        self.norm, self.head = vit.norm, vit.head

    def forward(self, x):
        return self.head(self.norm(x)[:, 0])


def stages(name, rank):
    """Four stages of the network. On other ranks than the first they have other values, which must not count."""
    module = model(name)
    if rank:
        with torch.no_grad():
            for value in module.parameters():
                value.add_(1)
    if name == "mlp":
        return [module[:1], module[1:3], module[3:5], module[5]]  # each with parameters, which optimizers want
    blocks, last = module.blocks, Head(module)
    del module.blocks, module.norm, module.head
    return [Tokens(module), blocks[0], blocks[1], last]


def named(name, cut):
    """The stages' parameters by their names in the network."""
    if name == "mlp":
        parts = [part for stage in cut for part in (stage if isinstance(stage, nn.Sequential) else [stage])]
        return [(f"{at}.{key}", value) for at, part in enumerate(parts) for key, value in part.named_parameters()]
    prefixes = ["", "blocks.0.", "blocks.1.", ""]
    return [
        (prefix + key.removeprefix("vit."), value)
        for prefix, stage in zip(prefixes, cut, strict=True)
        for key, value in stage.named_parameters()
    ]


def batch(name, step, rows=12):
    generator = torch.Generator().manual_seed(100 + step)
    shape = (rows, 12) if name == "mlp" else (rows, 3, 8, 8)
    with plainly():
        images = torch.randn(shape, generator=generator, dtype=torch.float64)
        return images, torch.randint(0, CLASSES, (rows,), generator=generator)


def lay(name, module, mesh, *, zero=0, tensor=False):
    """Data parallel over the first axis; with `tensor`, the second axis splits what is wide. How the batch lies comes back."""
    rest = (sbp.broadcast,) * (mesh.ndim - 1)
    rows = (sbp.split(0), *rest)
    if not tensor:
        parallel.to_global(module, mesh, zero=zero)
        return rows
    column, row = (sbp.broadcast, sbp.split(0)), (sbp.broadcast, sbp.split(1))
    if name == "mlp":
        table, firsts, lasts = {"3.*": column, "5.weight": row}, [module[3]], [module[5]]
    elif name == "cnn":
        table, firsts, lasts = {"head.*": column}, [module.head], [module.head]
    else:
        table = {f"blocks.*.{part}.*": column for part in ("q", "k", "v", "mlp.0")}
        table |= {f"blocks.*.{part}.weight": row for part in ("out", "mlp.2")}
        firsts = [part for block in module.blocks for part in (block.q, block.k, block.v, block.mlp[0])]
        lasts = [part for block in module.blocks for part in (block.out, block.mlp[2])]
    parallel.to_global(module, mesh, table, zero=zero)
    for part in firsts:
        parallel.boxed(part, inputs=rows)
    for part in lasts:
        parallel.boxed(part, outputs=rows)
    return rows


class Step(headrace.Graph):
    def __init__(self, module, optimizer, config=None, **options):
        super().__init__(config=config)
        self.module = module
        self.add_optimizer(optimizer, **options)

    def build(self, images, labels):
        loss = functional.cross_entropy(self.module(images), labels)
        loss.backward()
        return loss


class Classify(headrace.Graph):
    def __init__(self, module, config=None):
        super().__init__(config=config)
        self.module = module

    def build(self, images):
        return self.module(images).softmax(1)


def optimizer_of(module, kind="sgd"):
    if kind == "adam":
        return torch.optim.Adam(module.parameters(), lr=1e-3)
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)


def train(name, steps, mesh=None, *, zero=0, tensor=False, optimizer="sgd", graph=None, accumulate=1, clip=None, checkpoint=()):
    """Losses of each step and the parameters and buffers at the end, as plain tensors; on one device where there is no mesh.

    `graph` is None for eager steps, or the config of a graph.
    """
    module = model(name).train()
    rows = None if mesh is None else lay(name, module, mesh, zero=zero, tensor=tensor)
    own = optimizer_of(module, optimizer)
    parts = [module.get_submodule(part) for part in checkpoint]
    step = None if graph is None else Step(module, own, graph, accumulate=accumulate, clip_grad_norm=clip, checkpoint=parts)
    losses = []
    for at in range(steps):
        images, labels = batch(name, at)
        if mesh is not None:
            images, labels = parallel.to_global(images, mesh, rows), parallel.to_global(labels, mesh, rows)
        if step is not None:
            loss = step(images, labels)
        else:
            loss = functional.cross_entropy(module(images), labels)
            loss.backward()
            own.step()
            own.zero_grad()
        losses.append(parallel.whole(loss))
    values = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return losses, {key: parallel.whole(value) for key, value in values.items()}, step


def furthest(expected, given):
    """The largest difference of two tables of tensors, as a share of each one's range; what is zero but for roundings, as the
    gradient of a key's bias, has none, so that of a millionth of the largest is the least."""
    ranges = {key: float(value.double().abs().max()) for key, value in expected.items()}
    least = 1e-6 * max(ranges.values())
    return max(
        float((expected[key].double() - given[key].double()).abs().max()) / max(scale, least) for key, scale in ranges.items()
    )
