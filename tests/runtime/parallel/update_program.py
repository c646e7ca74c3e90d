"""What one rank of a test of updates does: `update_program.py FUNCTION ARGUMENTS` prints as JSON what the function returns."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[3]))
torch.set_num_threads(1)

import headrace  # noqa: E402
from headrace import parallel  # noqa: E402
from headrace.errors import InputError  # noqa: E402

WIDTH = 6


class Net(nn.Module):
    """Parameters of odd lengths, a number, nothing, one that lies transposed, one of two modules, a frozen one, one that only
    training uses, an image's weights channels last; and buffers."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.first, self.scale = nn.Linear(WIDTH, 5), nn.Parameter(torch.tensor(1.25))
        self.none = nn.Parameter(torch.empty(0, 3))
        self.turned = nn.Parameter(torch.randn(5, 7).t())
        self.second, self.again = nn.Linear(7, 7, bias=False), nn.Linear(7, 7, bias=False)
        self.again.weight = self.second.weight
        self.frozen = nn.Linear(7, 7, bias=False).requires_grad_(False)
        self.training_only = nn.Linear(7, 7, bias=False)
        self.image = nn.Conv2d(7, 3, 3, padding=1).to(memory_format=torch.channels_last)
        self.last = nn.Linear(3, 4)
        self.register_buffer("shift", torch.randn(7))
        self.register_buffer("counts", torch.arange(3))
        self.to(dtype)

    def forward(self, rows):
        values = functional.linear(self.first(rows) * self.scale, self.turned) + self.shift
        values = torch.tanh(self.again(torch.tanh(self.second(values)))) + self.none.sum()
        if self.training:
            values = self.training_only(values)
        values = self.frozen(values)[:, :, None, None].expand(-1, -1, 2, 2)
        return self.last(self.image(values).amax((2, 3)))

    def stages(self, count):
        return [self.first, self.image][:count] if count < 3 else [self.first, self.second, self.image]


def model(dtype=torch.float64):
    torch.manual_seed(5)
    return Net(dtype)


def batch(step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(12, WIDTH, generator=generator, dtype=torch.float64).to(dtype), torch.randint(
        0, 4, (12,), generator=generator
    )


class Step(headrace.Graph):
    def __init__(self, module, optimizer, mesh=None, *, stages=0, zero=0, **options):
        super().__init__(config=headrace.GraphConfig(backend="eager" if mesh is None else "captured"))
        self.module = module
        if mesh is not None and stages:
            for number, part in enumerate(module.stages(stages)):
                self.set_stage(part, number)
            self.add_pipeline(mesh, microbatches=2, zero=zero)
        self.add_optimizer(optimizer, **options)

    def build(self, rows, labels):
        loss = parallel.cross_entropy(self.module(rows), labels)
        loss.backward()
        return loss


class Own(torch.optim.AdamW):
    """One of the user's own, that nobody knows."""


def hooked(parameters, **settings):
    """The norm of what a hook sees is written into the learning rate."""
    optimizer = torch.optim.SGD(parameters, **settings)

    def measure(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            norms = [float(parallel.whole(value.norm())) for value in group["params"] if value.grad is not None]
            group["lr"] = 0.01 / (1 + max(norms, default=0.0))

    optimizer.register_step_pre_hook(measure)
    return optimizer


def rated(parameters, **settings):
    """The learning rate is a tensor."""
    return torch.optim.AdamW(parameters, lr=torch.tensor(1e-2, dtype=torch.float64), **settings)


def two_groups(parameters, **settings):
    """Parameters that come later are in a group of their own; one is in none."""
    given = list(parameters)[1:]
    return torch.optim.Adam([{"params": given[::2]}, {"params": given[1::2], "lr": 0.02}], **settings)


OPTIMIZERS = {name: getattr(torch.optim, name) for name in (
    "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adagrad", "Adadelta", "Adamax", "RMSprop", "Rprop", "ASGD",
)} | {"own": Own, "hooked": hooked, "rated": rated, "two groups": two_groups}  # fmt: skip


def changed(module, optimizer, at, steps):
    """What the user does before a step: freezes, melts, evaluates, adds a group, gives a gradient of their own."""
    parameters = dict(module.named_parameters())
    for what in steps.get(str(at), []):
        if what == "freeze":
            module.last.requires_grad_(False)
        elif what == "melt":
            module.last.requires_grad_(True)
            module.frozen.requires_grad_(True)
        elif what == "mode":
            module.train(not module.training)
        elif what == "group":
            optimizer.add_param_group({"params": [parameters["frozen.weight"]], "lr": 0.03})
        elif what == "gradient":
            value = parameters["scale"]
            value.grad = torch.full_like(value, 0.5)
        elif what == "reload":
            optimizer.load_state_dict(optimizer.state_dict())


def train(kind, settings, mesh=None, *, stages=0, zero=0, changes=None, dtype="float64", count=5, **options):
    dtype = getattr(torch, dtype)
    module = model(dtype)
    if mesh is not None and not stages:
        parallel.to_global(module, mesh, zero=zero)
    optimizer = OPTIMIZERS[kind]([value for name, value in module.named_parameters() if "frozen" not in name], **settings)
    graph = Step(module, optimizer, mesh, stages=stages, zero=zero, **options)
    losses = []
    for at in range(count):
        changed(module, optimizer, at, changes or {})
        given = batch(at, dtype)
        if mesh is not None and not stages:
            given = tuple(parallel.to_global(value, mesh, (parallel.sbp.split(0),) * mesh.ndim) for value in given)
        losses.append(parallel.whole(graph(*given)).double())
    state = parallel.whole(graph.state_dict())
    slots = {
        f"{at} {key}": torch.as_tensor(value).double()
        for at, slot in state["training"]["optimizer"]["state"].items()
        for key, value in slot.items()
        if value is not None
    }
    values = {key: value.double() for key, value in state["modules"]["module"].items()}
    return torch.stack(losses), values, slots, graph


def apart(one, other):
    """The largest difference, as a share of each one's range."""
    assert one.keys() == other.keys(), (sorted(one), sorted(other))
    found = [
        float((one[key] - other[key]).abs().max()) / max(float(one[key].abs().max()), 1e-6) for key in one if one[key].numel()
    ]
    return max(found, default=0.0)


def updates(shape, trainings):
    """How far the losses, parameters and states of trainings on the mesh are from those of one process, and how they ran."""
    mesh, found = parallel.world("cpu", shape), []
    for kind, settings, options in trainings:
        shared = {key: value for key, value in options.items() if key not in ("stages", "zero")}
        expected, given = train(kind, settings, **shared), train(kind, settings, mesh, **options)
        losses = float(((expected[0] - given[0]) / expected[0]).abs().max())
        found.append([losses, apart(expected[1], given[1]), apart(expected[2], given[2]), str(given[3].steps[-1])])
    return found


def reduced(stages):
    """Whether parts of parameters in 16 bits are updated to the very numbers that whole ones are; and the dtypes."""
    mesh, settings = parallel.world("cpu", (-1, 1)), {"lr": 1e-2}
    whole, split = (train("AdamW", settings, mesh, stages=stages, zero=zero, dtype="bfloat16") for zero in (0, 1))
    same = all(torch.equal(whole[part][key], split[part][key]) for part in (1, 2) for key in whole[part])
    kept = split[3]._trainer.optimizer.state.values()
    return same, sorted({str(value.dtype) for slot in kept for key, value in slot.items() if key != "step"})


def posted(zero):
    """How many collectives a step posts in which all parameters are updated."""
    module = model()
    graph = Step(module, torch.optim.AdamW(module.parameters()), parallel.world("cpu", (-1, 1)), stages=2, zero=zero)
    for at in range(2):
        graph(*batch(at))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as told:
        graph(*batch(2))
    return sum(event.name.startswith("gloo:") for event in told.events()), len(list(module.parameters()))


def misled(zero):
    """What each rank is told where one has a gradient of its own, and the loss of the step after that; where the optimizer was
    given what a module computes with in a parameter's place; and where another graph has the module's stages."""
    told = []
    mesh, rows, own = parallel.world("cpu", (-1, 1)), parallel.world("cpu"), parallel.rank()

    def tell(call):
        try:
            told.append(float(parallel.whole(call())))
        except InputError as error:
            told.append(str(error))

    module = model()
    graph = Step(module, torch.optim.SGD(module.parameters(), lr=0.1), mesh, stages=2, zero=zero)
    graph(*batch(0))
    if own:
        module.training_only.weight.grad = torch.ones(7, 7, dtype=torch.float64)
    module.eval()  # it has no gradient of the step's
    tell(lambda: graph(*batch(1)))
    module.training_only.weight.grad = None
    tell(lambda: graph(*batch(1)))

    module = parallel.to_global(model(), rows, zero=zero)
    optimizer = torch.optim.SGD([{"params": module.first.parameters()}, {"params": [module.frozen.weight]}], lr=0.1)
    graph = Step(module, optimizer, rows)
    given = [parallel.to_global(value, rows, parallel.sbp.split(0)) for value in batch(0)]
    for _ in range(2):
        tell(lambda: graph(*given))
    return told


def two_optimizers(zero):
    """Two networks with an optimizer each, two pipelines, in turns: how far the losses are from those of one process."""
    mesh, furthest = parallel.world("cpu", (-1, 1)), 0.0

    def graphs(mesh, **options):
        modules = [model(), model()]
        optimizers = [torch.optim.AdamW(modules[0].parameters(), lr=1e-2), torch.optim.SGD(modules[1].parameters(), lr=0.1)]
        return [Step(module, own, mesh, **options) for module, own in zip(modules, optimizers, strict=True)]

    alone, many = graphs(None), graphs(mesh, stages=2, zero=zero)
    for at in range(6):
        expected, given = alone[at % 2](*batch(at)), many[at % 2](*batch(at))
        furthest = max(furthest, abs(float((given - expected) / expected)))
    return furthest


def without_parameters(zero):
    """A rank whose only stage has no parameters: the furthest loss and value."""

    class Criterion(Step):
        def __init__(self, module, optimizer, mesh=None, **options):
            super().__init__(module, optimizer, mesh, **options)
            self.criterion = nn.CrossEntropyLoss()
            if mesh is not None:
                self.set_stage(module, 0)
                self.set_stage(self.criterion, 1)
                self.add_pipeline(mesh, microbatches=2, zero=zero)

        def build(self, rows, labels):
            loss = self.criterion(self.module(rows), labels)
            loss.backward()
            return loss

    mesh, modules = parallel.world("cpu", (-1, 2)), [model(), model()]
    alone, many = (
        Criterion(module, torch.optim.AdamW(module.parameters(), lr=1e-2), where, clip_grad_norm=0.1)
        for module, where in zip(modules, (None, mesh), strict=True)
    )
    losses = []
    for at in range(4):
        expected, given = alone(*batch(at)), many(*batch(at))
        losses.append(abs(float((given - expected) / expected)))
    states = [graph.state_dict()["modules"]["module"] for graph in (alone, many)]
    return [max(losses), apart(*states), sum(value.numel() for value in modules[1].parameters())]


def second_graph():
    """What each rank is told where the modules are stages of another graph already."""
    mesh, module = parallel.world("cpu", (1, -1)), model()
    Step(module, torch.optim.SGD(module.parameters(), lr=0.1), mesh, stages=2)(*batch(0))
    try:
        Step(module, torch.optim.SGD(module.parameters(), lr=0.1), mesh, stages=2)(*batch(1))
    except InputError as error:
        return str(error)
    return "nothing"


def losing_within_an_update(zero):
    """Train for ever; the second rank is killed in its fourth update."""
    mesh, module, taken = parallel.world("cpu", (-1, 1)), model(), []

    class Dying(torch.optim.SGD):
        def step(self):
            taken.append(1)
            if len(taken) == 4 and parallel.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step()

    graph = Step(module, Dying(module.parameters(), lr=0.1), mesh, stages=2, zero=zero)
    with parallel.watched(seconds=3):
        for at in range(1_000_000):
            graph(*batch(at % 50))


if __name__ == "__main__":
    function, arguments = globals()[sys.argv[1]], json.loads(sys.argv[2])
    print("\n" + json.dumps(function(**arguments)), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
