"""Small networks whose forward pass is no chain, cut into stages, and graphs that train them on one rank or on many."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

import headrace
from headrace import parallel

sbp = parallel.sbp
CLASSES = 12


class MLP(nn.Module):
    """The first stage's value is used in every other one, and a module without a stage is called between two."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.between, self.last = nn.LayerNorm(16), nn.Linear(32, CLASSES)

    def forward(self, rows):
        begun = functional.gelu(self.first(rows))
        values = torch.relu(self.second(begun)) + begun
        values = self.third(self.between(values)) * begun
        return self.last(torch.cat([values, begun], 1))

    def stages(self):
        return [self.first, self.second, self.third, self.last]


class CNN(nn.Module):
    """Nearly all of its parameters are those of the last layer. A stage writes in place to what it got, a skip crosses two."""

    def __init__(self, classes=512):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.ReLU(inplace=True))
        convolutions = [nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)]
        self.blocks = nn.ModuleList(
            [nn.Sequential(convolutions[0], nn.ReLU(inplace=True)), nn.Sequential(nn.ReLU(inplace=True), convolutions[1])]
        )
        self.frozen = nn.Conv2d(8, 8, 1).requires_grad_(False)
        self.head = nn.Linear(16, classes)

    def forward(self, images):
        begun = self.stem(images)
        values = self.blocks[1](self.frozen(self.blocks[0](begun.transpose(2, 3))))
        return self.head(torch.cat([values.mean((2, 3)), begun.amax((2, 3))], 1))

    def stages(self):
        return [self.stem, self.blocks[0], self.blocks[1], self.head]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width) / 4)
        self.places = nn.Parameter(torch.randn(1, 5, width) / 4)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])

    def stages(self):
        return [self.patches, self.blocks[0], self.blocks[1], self.blocks[2]]


class Odd(nn.Module):
    """Lengths that do not divide, a single number, a weight of two modules, a frozen layer, a stage without parameters."""

    def __init__(self):
        super().__init__()
        self.first, self.scale = nn.Linear(12, 5), nn.Parameter(torch.tensor(1.5))
        self.second, self.again = nn.Linear(5, 5, bias=False), nn.Linear(5, 5)
        self.again.weight = self.second.weight
        self.frozen = nn.Linear(5, 3).requires_grad_(False)
        self.third, self.last = nn.Tanh(), nn.Linear(3, CLASSES)
        self.wide = nn.Parameter(torch.ones(1, 1, 3))

    def forward(self, rows):
        values = self.frozen(self.again(self.second(self.first(rows) * self.scale)))
        return self.last((self.third(values) * self.wide).squeeze(0))

    def stages(self):
        return [self.first, self.second, self.third, self.last]


NETS = {"mlp": MLP, "cnn": CNN, "vit": ViT, "odd": Odd}


def net(name):
    torch.manual_seed(3)
    return NETS[name]().double()


def lay(name, module, mesh):
    """Split what is wide over a mesh of one axis: columns, rows, and the classes of a large layer, whose scores stay split."""
    before, after = {"inputs": sbp.broadcast}, {"outputs": sbp.broadcast}
    both = before | after
    table, conversions = {
        "mlp": ({"second.*": 0, "last.weight": 1}, {"second": both, "last": both}),
        "cnn": ({"head.*": 0}, {"head": before}),
        "vit": (
            {"blocks.*.mlp.0.*": 0, "blocks.*.mlp.2.weight": 1},
            {f"blocks.{at}.mlp.{part}": way for at in range(3) for part, way in ((0, before), (2, after))},
        ),
        "odd": ({"first.*": 0, "last.weight": 1}, {"first": both, "last": both}),
    }[name]
    parallel.to_global(module, mesh, {pattern: sbp.split(dim) for pattern, dim in table.items()})
    for part, way in conversions.items():
        parallel.boxed(module.get_submodule(part), **way)
    return module


def batch(name, step, rows=16):
    generator = torch.Generator().manual_seed(100 + step)
    shape = (rows, 12) if name in ("mlp", "odd") else (rows, 3, 8, 8)
    images = torch.randn(shape, generator=generator, dtype=torch.float64)
    return images, torch.randint(0, CLASSES, (rows,), generator=generator)


class Step(headrace.Graph):
    """With a mesh its modules are stages: `stages` of them, four unless given. `again`: the first two keep no activations."""

    def __init__(
        self,
        model,
        optimizer,
        mesh=None,
        *,
        stages=None,
        microbatches=2,
        schedule="1f1b",
        zero=0,
        again=False,
        config=None,
        **options,
    ):
        super().__init__(config=config)
        self.model = model
        if again:
            options["checkpoint"] = model.stages()[:2]
        if mesh is not None:
            for number, module in enumerate((stages or type(model).stages)(model)):
                self.set_stage(module, number)
            self.add_pipeline(mesh, microbatches=microbatches, schedule=schedule, zero=zero)
        self.add_optimizer(optimizer, **options)

    def build(self, images, labels):
        scores = self.model(images)
        loss = parallel.cross_entropy(scores, labels)
        loss.backward()
        return loss, scores


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def groups(model):
    """Two groups with settings of their own, by the kernels that take lists; a parameter of the model is in neither."""
    found = [value for name, value in model.named_parameters() if name != "last.bias"]
    parts = [{"params": found[::2], "weight_decay": 0.1}, {"params": found[1::2], "lr": 1e-2}]
    return torch.optim.Adam(parts, lr=1e-3, foreach=True)


def nadam(model):
    return torch.optim.NAdam(model.parameters(), lr=1e-3)


def adagrad(model):
    """Its state is there before the first step."""
    return torch.optim.Adagrad(model.parameters(), lr=1e-2)


class Normed(torch.optim.Optimizer):
    """A step of each parameter is as long as the parameter is, as in LARS: a part's own length would be another."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    state = self.state[value]
                    state["mean"] = value.grad.clone() if not state else state["mean"].mul_(0.9).add_(value.grad)
                    length = value.norm() / (state["mean"].norm() + 1e-9)
                    value.sub_(group["lr"] * length * state["mean"])


class Failing(torch.optim.SGD):
    """On the first rank it has no kernel for parts."""

    def step(self):
        if not parallel.rank() and isinstance(self.param_groups[0]["params"][0], DTensor):
            raise RuntimeError("no parts on rank 0")
        return super().step()


def normed(model):
    return Normed(model.parameters(), lr=0.05)


def train(name, steps, mesh=None, *, optimizer=sgd, clip=None, tensor=None, **options):
    """What each step returns, and the graph; where there is a mesh, other ranks than the first begin with other values.
    `tensor` is the axis of the mesh over which wide parameters are split."""
    model = net(name)
    if mesh is not None and parallel.rank():
        with torch.no_grad():
            for value in model.parameters():
                value.add_(1)
    if tensor is not None:
        lay(name, model, mesh[tensor])
    own = optimizer(model)
    schedule = torch.optim.lr_scheduler.StepLR(own, 3, gamma=0.5)
    config = headrace.GraphConfig(backend="eager") if mesh is None else None
    graph = Step(model, own, mesh, config=config, clip_grad_norm=clip, lr_scheduler=schedule, **options)
    return [graph(*batch(name, at)) for at in range(steps)], graph
