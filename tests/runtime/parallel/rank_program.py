"""What one rank of a test does: `rank_program.py FUNCTION ARGUMENTS` prints as JSON what the function returns."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[3]))
torch.set_num_threads(1)

import headrace  # noqa: E402
from headrace import parallel  # noqa: E402
from headrace.errors import InputError  # noqa: E402
from headrace.runtime.parallel import buckets  # noqa: E402
from headrace.runtime.parallel.agreement import Agreement  # noqa: E402
from headrace.runtime.parallel.planner import measure as measuring  # noqa: E402
from headrace.runtime.parallel.planner.operators import Model  # noqa: E402
from headrace.runtime.parallel.shares import share_of  # noqa: E402
from headrace.runtime.parallel.stage_parameters import part_of  # noqa: E402
from tests.runtime.parallel import cases  # noqa: E402
from tests.runtime.training import staged_cases  # noqa: E402

sbp = parallel.sbp
BUCKET_BYTES = buckets.BUCKET_BYTES


def training(mesh, trainings):
    """Each training by itself, on rank 0 alone, and on the mesh: how far losses and parameters are apart, and how the steps
    ran."""
    found = []
    for given in trainings:
        options = {"graph": "captured", **given}
        name, steps = options.pop("name"), options.pop("steps")
        config = options.pop("graph")
        config = None if config is None else headrace.GraphConfig(backend=config or None)
        shared = {key: value for key, value in options.items() if key not in ("zero", "tensor")}
        alone = {**shared, "graph": config and headrace.GraphConfig(backend="eager")}
        expected = cases.train(name, steps, **alone) if os.environ["RANK"] == "0" else None
        placed = parallel.world("cpu", mesh if options.get("tensor") else None)
        losses, values, step = cases.train(name, steps, placed, graph=config, **options)
        found.append(
            {
                "given": given,
                "losses": expected and max(abs(float(a - b) / float(a)) for a, b in zip(expected[0], losses, strict=True)),
                "values": expected and cases.furthest(expected[1], values),
                "first": float(losses[0]),
                "steps": [str(record) for record in step.steps] if step else [],
                "ways": [record.way for record in step.steps] if step else [],
                "collectives": collectives(step) if step else 0,
            }
        )
    return found


def collectives(graph):
    """Nodes of the captured programs that exchange data."""
    kinds = [item for item in graph._trainer._kinds.values() if item.captured]
    return sum("_c10d_functional" in str(node.target) for item in kinds for node in item.captured.program.graph.nodes)


def inference(mesh):
    found = {}
    for name in ("mlp", "cnn", "vit"):
        images, _ = cases.batch(name, 0)
        expected = cases.model(name).eval()(images).softmax(1).detach()
        module = cases.model(name).train()
        placed = parallel.world("cpu", mesh)
        rows = cases.lay(name, module, placed, tensor=True)
        graph = cases.Classify(module, headrace.GraphConfig(backend="captured"))
        for _ in range(4):
            given = parallel.whole(graph(parallel.to_global(images, placed, rows)))
        modes = all(part.training for part in module.modules())
        found[name] = [
            cases.furthest({"": expected}, {"": given}),
            [record.way for record in graph.steps],
            modes,
            graph.captures,
        ]
    return found


def piped(shape, trainings):
    """How far losses and parameters of trainings through a pipeline are from those on one device."""
    found = []
    for name, schedule, steps in trainings:
        losses, values, _ = cases.train(name, steps)
        mesh = parallel.world("cpu", shape)
        with torch.random.fork_rng():
            stages = cases.stages(name, parallel.rank())
        pipeline = parallel.Pipeline(stages, functional.cross_entropy, mesh, microbatches=2, schedule=schedule)
        optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.05, momentum=0.9)
        furthest = 0.0
        for at in range(steps):
            loss = pipeline.step(*cases.batch(name, at))
            furthest = max(furthest, abs(float((loss - losses[at]) / losses[at])))
            optimizer.step()
            optimizer.zero_grad()
        own = {id(value) for value in pipeline.parameters()}
        mine = {key: value.detach() for key, value in cases.named(name, stages) if id(value) in own}
        found.append([name, schedule, furthest, cases.furthest({key: values[key] for key in mine}, mine), sorted(mine)])
    return found


class PlannedStep(headrace.Graph):
    def __init__(self, module, optimizer, way="captured"):
        super().__init__(config=headrace.GraphConfig(backend=way))
        self.module = module
        self.add_optimizer(optimizer)

    def build(self, images, labels):
        loss = parallel.cross_entropy(self.module(images), labels)
        loss.backward()
        return loss


def planned(trainings):
    """Trainings that follow a plan in a file: how far losses and values are from those of one device, and how the steps ran."""
    found = []
    for name, shape, path, steps in trainings:
        losses, values, _ = cases.train(name, steps)
        module = cases.model(name).train()
        if parallel.rank():
            with torch.no_grad():
                for value in module.parameters():  # rank 0's count
                    value.add_(1)
        graph = PlannedStep(module, cases.optimizer_of(module))
        applied = parallel.apply_plan(graph, path, parallel.world("cpu", shape))
        given = [graph(*applied.batch(*cases.batch(name, at))) for at in range(steps)]
        after = parallel.whole(graph.state_dict()["modules"]["module"])
        found.append(
            {
                "title": applied.title,
                "losses": max(abs(float((a - parallel.whole(b)) / a)) for a, b in zip(losses, given, strict=True)),
                "values": cases.furthest(values, after),
                "steps": [str(record) for record in graph.steps],
                "own": sum(parallel.to_local(value).numel() for value in module.parameters()),
                "all": sum(value.numel() for value in values.values()),
                "checkpoint": len(graph._trainer.options.checkpoint),
            }
        )
    return found


def planned_module(name, path):
    """A module without a graph, with an optimizer made before, on an axis with a name of its own: the furthest loss, and what
    is said of a batch that does not divide."""
    losses, _, _ = cases.train(name, 3)
    module = cases.model(name).train()
    optimizer = cases.optimizer_of(module)
    applied = parallel.apply_plan(module, path, parallel.world("cpu", names=("ranks",)), optimizer=optimizer)
    furthest = 0.0
    for at in range(3):
        images, labels = applied.batch(*cases.batch(name, at))
        loss = parallel.cross_entropy(module(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        furthest = max(furthest, abs(float((losses[at] - parallel.whole(loss)) / losses[at])))
    try:
        applied.batch(*(value[:7] for value in cases.batch(name, 0)))
    except InputError as error:
        return furthest, str(error)
    return furthest, ""


def misplanned(paths, other, missing):
    """What each rank is told where one of them, or each, cannot follow a plan; and that the module is as it was, by a loss."""
    mesh, own, told = parallel.world("cpu"), parallel.rank(), []

    def tell(target, path, mesh=mesh, **options):
        try:
            parallel.apply_plan(target, path, mesh, **options)
        except InputError as error:
            told.append(str(error))
        else:
            told.append("followed")

    def graph(name="mlp"):
        module = cases.model(name)
        return PlannedStep(module, cases.optimizer_of(module))

    tell(graph(), missing if own else paths["data"])  # one rank has no file
    tell(graph(), paths["zero"] if own else paths["data"])
    tell(graph("chain" if own else "mlp"), paths["data"])  # one rank has another model
    tell(graph(), other)
    tell(graph(), paths["data"], parallel.world("cpu", (1, -1)))
    tell(cases.model("mlp"), paths["pipeline"])
    stepped = graph()
    expected = float(stepped(*cases.batch("mlp", 0)))
    tell(stepped, paths["data"])
    staged_already = graph()
    staged_already.set_stage(staged_already.module, 0)
    tell(staged_already, paths["pipeline"])
    tell(graph("mlp"), paths["data"], optimizer=torch.optim.SGD([torch.ones(1)], lr=1.0))
    kept = graph()
    tell(kept, missing if own else paths["data"])
    return told, float(kept(*cases.batch("mlp", 0))) == expected


def numbers(parameter):
    """How many a rank has of a parameter, between two steps."""
    part = part_of(parameter)
    return share_of(parameter if part is None else part).numel()


def staged(shape, trainings):
    """How far the losses, outputs, gradients and states of graphs with stages are from those on one device, and what a rank
    keeps."""
    mesh, found = parallel.world("cpu", shape), []
    for given in trainings:
        options = dict(given)
        name, steps, rows = options.pop("name"), options.pop("steps"), options.pop("later", 16)
        buckets.BUCKET_BYTES = options.pop("bucket", BUCKET_BYTES)
        options["optimizer"] = getattr(staged_cases, options.pop("optimizer", "sgd"))
        alone = {
            key: value for key, value in options.items() if key not in ("microbatches", "schedule", "zero", "again", "tensor")
        }
        expected, one = staged_cases.train(name, steps, **alone)
        results, many = staged_cases.train(name, steps, mesh, **options)
        states = one.state_dict(), many.state_dict()
        slots = [
            {
                f"{at}.{key}": torch.as_tensor(value)
                for at, slot in state["training"]["optimizer"]["state"].items()
                for key, value in slot.items()
            }
            for state in states
        ]
        gradients = [state["training"]["gradients"] for state in states]
        assert all(set(pair[0]) == set(pair[1]) for pair in (slots, gradients))
        assert states[0]["training"]["updates"] == states[1]["training"]["updates"]
        found.append(
            {
                "losses": max(abs(float((a - b) / a)) for (a, _), (b, _) in zip(expected, results, strict=True)),
                "outputs": max(cases.furthest({"": a}, {"": b}) for (_, a), (_, b) in zip(expected, results, strict=True)),
                "values": cases.furthest(states[0]["modules"]["model"], states[1]["modules"]["model"]),
                "slots": cases.furthest(*slots),
                "gradients": cases.furthest(*gradients) if gradients[0] else 0.0,
                "kept": [key for key, value in many.model.named_parameters() if numbers(value)],
                "held": sum(map(numbers, many.model.parameters())),
                "updated": len(many._trainer.optimizer.state),
                "state": sum(
                    share_of(value).numel()
                    for slot in many._trainer.optimizer.state.values()
                    for value in slot.values()
                    if value is not None
                ),
                "steps": [str(record) for record in many.steps],
            }
        )
        many.load_state_dict(states[0])  # of one device
        again = [graph(*staged_cases.batch(name, steps, rows))[0] for graph in (one, many)]
        found[-1]["again"] = abs(float((again[0] - again[1]) / again[0]))
    return found


def staged_checkpoint(folder, until, shape=(-1,), zero=0, tensor=None):
    """Losses of a graph with stages (with none where there is no shape) from the newest checkpoint on, of which it then writes
    the next; and what is said of a module whose stages run already."""
    mesh, module = shape and parallel.world("cpu", shape), staged_cases.net("cnn")
    if tensor is not None:
        staged_cases.lay("cnn", module, mesh[tensor])
    optimizer = staged_cases.sgd(module)
    begun = parallel.resume(folder, module, optimizer)
    config = None if mesh else headrace.GraphConfig(backend="eager")
    graph = staged_cases.Step(module, optimizer, mesh, microbatches=4, zero=zero, config=config)
    losses = [float(graph(*staged_cases.batch("cnn", at))[0]) for at in range(begun, until)]
    parallel.save(folder, until, module, optimizer)
    try:
        parallel.resume(folder, module, optimizer)
    except InputError as error:
        return losses, str(error)
    return losses, ""


def staged_criterion(folder):
    """A stage, and a rank, that has no parameters: how far the state after a checkpoint is from that of one device."""

    class Step(headrace.Graph):
        def __init__(self, model, mesh=None):
            super().__init__()
            self.model, self.criterion = model, torch.nn.CrossEntropyLoss()
            if mesh is not None:
                self.set_stage(model, 0)
                self.set_stage(self.criterion, 1)
                self.add_pipeline(mesh, microbatches=2)
            self.add_optimizer(staged_cases.adam(model))

        def build(self, images, labels):
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            return loss

    mesh = parallel.world("cpu")
    graphs = [Step(staged_cases.net("mlp")), Step(staged_cases.net("mlp"), mesh)]
    for at in range(2):
        losses = [float(graph(*staged_cases.batch("mlp", at))) for graph in graphs]
    parallel.save(folder, 2, graphs[1].model, graphs[1]._trainer.optimizer)
    states = [graph.state_dict() for graph in graphs]
    slots = [state["training"]["optimizer"]["state"] for state in states]
    return {
        "losses": abs(losses[0] - losses[1]) / losses[0],
        "values": cases.furthest(*(state["modules"]["model"] for state in states)),
        "slots": max(cases.furthest(slots[0][at], slots[1][at]) for at in range(len(slots[0]))),
        "kept": sum(value.numel() for value in graphs[1].model.parameters()),
    }


def staged_misfits():
    """What each rank is told where the ranks were given other batches, or one cannot be computed, and a step after that."""
    mesh, own = parallel.world("cpu", [1, -1]), parallel.rank()
    module = staged_cases.net("mlp")
    graph = staged_cases.Step(module, staged_cases.sgd(module), mesh)
    images, labels = staged_cases.batch("mlp", 0)
    told = []
    lies = [(sbp.broadcast, sbp.split(0)), (sbp.split(0), sbp.broadcast)]
    for given in (
        (images[: 8 + 4 * own], labels[: 8 + 4 * own]),
        (images[:7], labels[:7]),
        (images, torch.where(torch.arange(16) < 3, -100, labels)),
        *((parallel.to_global(images, mesh, rows), parallel.to_global(labels, mesh, rows)) for rows in lies),
    ):
        try:
            told.append(float(graph(*given)[0]))
        except InputError as error:
            told.append(str(error))
    other = staged_cases.net("mlp")
    other.forward = lambda rows: type(other).forward(other, rows.abs() if own else rows)
    try:
        staged_cases.Step(other, staged_cases.sgd(other), mesh)(images, labels)
    except InputError as error:
        told.append(str(error))
    rows = parallel.world("cpu", [-1, 1])
    for noise in (0, own):  # the ranks of a layer compute otherwise, or have other rows
        other = staged_cases.lay("mlp", staged_cases.net("mlp"), rows["data"])
        other.forward = lambda images, other=other, odd=own > noise: type(other).forward(other, images.abs() if odd else images)
        try:
            staged_cases.Step(other, staged_cases.sgd(other), rows)(images + noise, labels)
        except InputError as error:
            told.append(str(error))
    for optimizer, zero in ((torch.optim.SGD, 1 + own), (staged_cases.Failing, 1)):
        other = staged_cases.net("mlp")
        graph = staged_cases.Step(other, optimizer(other.parameters(), lr=0.1), rows, zero=zero)
        try:
            graph(images, labels)
        except InputError as error:
            told.append(str(error))
    expected = functional.cross_entropy(staged_cases.net("mlp")(images), labels)
    return told, float(expected)


def losing_a_stage(who):
    """Train for ever; one rank is killed at its fourth step."""
    mesh, module = parallel.world("cpu"), staged_cases.net("mlp")
    graph = staged_cases.Step(module, staged_cases.sgd(module), mesh)
    with parallel.watched(seconds=3):
        for at in range(1_000_000):
            graph(*staged_cases.batch("mlp", at % 50))
            if at == 3 and parallel.rank() == who:
                os.kill(os.getpid(), signal.SIGKILL)


def head(mesh, classes, steps, both=False):
    """A head that is split over classes, trained in a graph and asked for its best, beside the same on one device."""

    class Step(headrace.Graph):
        def __init__(self, module, optimizer):
            super().__init__(config=headrace.GraphConfig(backend="captured"))
            self.module = module
            self.add_optimizer(optimizer)

        def build(self, features, targets):
            loss = parallel.cross_entropy(self.module(features), targets)
            loss.backward()
            return loss

    class Best(headrace.Graph):
        def __init__(self, module, k):
            super().__init__(config=headrace.GraphConfig(backend="captured"))
            self.module, self.k = module, k

        def build(self, features):
            return parallel.topk(self.module(features), self.k)

    torch.manual_seed(0)
    plain = torch.nn.Linear(8, classes).double()
    module = torch.nn.Linear(8, classes).double()
    module.load_state_dict(plain.state_dict())
    placed = parallel.world("cpu", mesh)
    first = sbp.split(0) if both else sbp.broadcast  # of the classes; rows are split where they are not
    rows = (sbp.broadcast if both else sbp.split(0), sbp.broadcast)
    parallel.boxed(parallel.to_global(module, placed, {"*": (first, sbp.split(0))}), inputs=rows)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (plain, module)]
    step, losses = Step(module, optimizers[1]), []
    for at in range(steps):
        generator = torch.Generator().manual_seed(at)
        features = torch.randn(8, 8, generator=generator, dtype=torch.float64)
        targets = torch.randint(0, classes, (8,), generator=generator)
        optimizers[0].zero_grad()
        expected = functional.cross_entropy(plain(features), targets)
        expected.backward()
        optimizers[0].step()
        given = step(parallel.to_global(features, placed, rows), parallel.to_global(targets, placed, rows))
        losses.append(abs(float((parallel.whole(given) - expected.detach()) / expected.detach())))
    best = []
    for k in (1, 5, classes):
        graph = Best(module, k)
        for _ in range(3):
            values, numbers = graph(parallel.to_global(features, placed, rows))
        wanted = plain(features).detach().topk(k)
        best.append(
            torch.equal(parallel.whole(numbers), wanted.indices) and torch.allclose(parallel.whole(values), wanted.values)
        )
    values = cases.furthest(dict(plain.state_dict()), {key: parallel.whole(v) for key, v in module.named_parameters()})
    return {
        "losses": max(losses),
        "values": values,
        "best": best,
        "steps": [str(record) for record in step.steps + graph.steps],
    }


def rates(mesh, model):
    """The rates that this rank knows; each operation runs five times."""
    timed, measuring._PAIRS = measuring.timed, 1
    measuring.timed = lambda step, seconds=0.0, between=None: timed(step, 0.0, between)
    return measuring.measure(tuple(mesh), "cpu", Model.from_json(model)).to_json()


def agreeing():
    """Ranks 0 and 2 of three agree; 1 has no part in it."""
    mesh = parallel.placement("cpu", [0, 2])
    own = parallel.rank()
    if own == 1:
        return {"ranks": Agreement([torch.ones(1)]).ranks}
    agreement = Agreement([parallel.to_global(torch.ones(2), mesh)])
    reason = f"rank {own} cannot" if own else None
    return {"ranks": agreement.ranks, "first": agreement.first(own), "any": agreement.any(reason), "none": agreement.any(None)}


def going_on(folder, until, every, zero, way=None):
    """Train from the newest checkpoint, if there is one, up to that step; where it went on, and the parameters' sums."""
    mesh = parallel.world("cpu")
    module = cases.model("mlp").train()
    rows = cases.lay("mlp", module, mesh, zero=zero)
    optimizer = cases.optimizer_of(module, "adam")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    begun = parallel.resume(folder, module, optimizer, schedule=schedule)
    step = cases.Step(module, optimizer, headrace.GraphConfig(backend=way), lr_scheduler=schedule)
    for at in range(begun, until):
        images, labels = (parallel.to_global(value, mesh, rows) for value in cases.batch("mlp", at))
        step(images, labels)
        if (at + 1) % every == 0:
            parallel.save(folder, at + 1, module, optimizer, schedule=schedule)
    return begun, {name: parallel.whole(value).flatten().tolist() for name, value in module.named_parameters()}


def losing(who, how, way):
    """Train for ever; one rank is killed, hangs or raises at its fourth step."""
    mesh = parallel.world("cpu")
    module = cases.model("mlp").train()
    rows = cases.lay("mlp", module, mesh)
    step = cases.Step(module, cases.optimizer_of(module), headrace.GraphConfig(backend=way))
    with parallel.watched(seconds=3):
        for at in range(1_000_000):
            images, labels = (parallel.to_global(value, mesh, rows) for value in cases.batch("mlp", at % 50))
            step(images, labels)
            if at == 3 and parallel.rank() == who:
                if how == "raise":
                    raise ValueError("labels of another data set")
                os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)


def own_rows():
    """A module called with this rank's rows, and with whole batches; and the loss of a step that is given its share."""
    mesh = parallel.world("cpu")
    own = parallel.rank()
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    rows, labels = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 1])
    expected = module(rows).detach()
    mean = float(functional.cross_entropy(expected, labels))
    parallel.to_global(module, mesh)
    shares, whole = parallel.local_view(module), parallel.local_view(module, batches="whole")
    mine = slice(3 * own, 3 * own + 3)
    noise = torch.zeros_like(rows) if own == 0 else torch.randn_like(rows)  # rank 0's batch is taken
    found = {
        "expected": expected.tolist(), "mean": mean, "shares": shares(rows[mine]).tolist(),
        "whole": whole(rows + noise).tolist(), "uneven": whole(torch.cat([rows, rows[:1]]) + 0).tolist(),
    }  # fmt: skip
    step = headrace.training_step(
        module, functional.cross_entropy, torch.optim.SGD(module.parameters(), lr=0.1), batches="shares"
    )  # fmt: skip
    loss, outputs = step(rows[mine], labels[mine])
    assert type(loss) is type(outputs) is torch.Tensor
    return {**found, "loss": float(loss)}


def same_start():
    import random

    import numpy as np

    torch.manual_seed(100 + int(os.environ["RANK"]))
    mesh = parallel.same_start("cpu")
    return [mesh.size(), random.random(), float(np.random.rand()), float(torch.rand(1))]


def own_rows_on_rank_0():
    mesh = parallel.world("cpu")
    module = parallel.to_global(cases.model("cnn").eval(), mesh)
    images = cases.batch("cnn", 0)[0][:3]
    return len(parallel.local_view(module)(images)) if parallel.rank() == 0 else None


def own_statistics(each):
    """For each of those options of batch normalization, by itself, as in `trained_by_own_statistics`; of the first also how far
    off statistics of all rows are."""
    return [trained_by_own_statistics(options, beside=at == 0) for at, options in enumerate(each)]


def trained_by_own_statistics(options, beside):
    """A training with batch normalization beside that of DistributedDataParallel, and `beside` one of all ranks' statistics."""
    mesh = parallel.world("cpu")
    own = parallel.rank()

    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4, **options), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 3)
        )

    generator = torch.Generator().manual_seed(own)
    batches = [
        (torch.randn(4, 1, 8, 8, generator=generator) + own, torch.randint(0, 3, (4,), generator=generator)) for _ in range(6)
    ]
    traces, nets = [], []
    for kind in ("ddp", "own", "all") if beside else ("ddp", "own"):
        module = net()
        if kind == "ddp":
            wrapped = torch.nn.parallel.DistributedDataParallel(module)
        else:
            parallel.to_global(module, mesh, own_statistics=kind == "own")
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        step = headrace.training_step(module, functional.cross_entropy, optimizer, batches="shares")
        trace = []
        for images, labels in batches:
            if kind == "ddp":
                optimizer.zero_grad()
                loss = functional.cross_entropy(wrapped(images), labels)
                loss.backward()
                optimizer.step()
                loss = loss.detach()
                torch.distributed.all_reduce(loss)
                loss /= 2
            else:
                loss, _ = step(images, labels)
            trace.append(float(loss))
        if kind == "ddp":
            wrapped.eval()(batches[0][0])  # hands out the buffers of rank 0
        traces.append(torch.tensor(trace))
        nets.append({name: value.float() for name, value in parallel.whole(module.state_dict()).items()})
    return {
        "losses": float(((traces[0] - traces[1]) / traces[0]).abs().max()),
        "apart": float(((traces[0] - traces[-1]) / traces[0]).abs().max()),
        "values": cases.furthest(nets[0], nets[1]),
        "options": options,
    }


if __name__ == "__main__":
    function, arguments = globals()[sys.argv[1]], json.loads(sys.argv[2])
    print("\n" + json.dumps(function(**arguments)), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
