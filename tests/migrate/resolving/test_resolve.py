"""Small repositories, one shape each: what they build is resolved to a recipe, and the recipe is run."""

import json

import pytest

from headrace.errors import AmbiguousError, MigrateError, NothingToMigrateError
from headrace.migrate.resolving.resolve import resolve

HELPER = """
import json, os, sys, traceback
import torch
from headrace.migrate.worker.recipe import Recipe, build_model
for line in sys.stdin:
    request = json.loads(line)
    read, write = os.pipe()
    if os.fork() == 0:
        torch.set_num_threads(1)
        os.dup2(2, 1)
        try:
            if "input" in request:
                size = request.pop("input")
                model = build_model(Recipe.from_json(request))
                shape = list(model(torch.rand(2, *size)).shape)
                total = float(sum(p.double().sum() for p in model.parameters()))
                answer = {"class": type(model).__name__, "shape": shape, "sum": total}
            else:
                os.chdir(os.path.join(request["root"], request["directory"]))
                sys.path[0] = os.path.dirname(os.path.join(request["root"], request["script"]))
                sys.argv = [request["script"], *request["argv"]]
                names = {"__name__": "__headrace__", "__file__": os.path.join(request["root"], request["script"])}
                exec(request["source"], names)
                value = eval(request["expression"], names)
                if "image" in request:
                    from PIL import Image
                    value = value(Image.new(request["image"], (50, 40)) if request["takes"] == "image" else request["image"])
                    answer = {"shape": list(value.shape)}
                else:
                    answer = {"value": value}
        except BaseException as error:
            answer = {"error": "".join(traceback.format_exception(error))}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        print(pipe.read(), flush=True)
    os.wait()
"""


SHAPES = {"features.0.weight": (4, 3, 3, 3), "features.0.bias": (4,), "fc.weight": (10, 4), "fc.bias": (10,)}


@pytest.fixture(scope="module")
def run(warm_torch):
    """Run recipes, each in a fork of one process that has imported torch."""
    with warm_torch.talk(["-c", HELPER]) as (said, answers):

        def ask(recipe, **more):
            said.write(json.dumps({**recipe.to_json(), **more}) + "\n")
            said.flush()
            answer = json.loads(answers.readline())
            assert "error" not in answer, f"{recipe.source}\n{answer['error']}"
            return answer

        yield ask


NET = """
    import torch.nn as nn

    class Net(nn.Module):
        def __init__(self, num_classes=10, width=4):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
            self.fc = nn.Linear(width, num_classes)

        def forward(self, x):
            return self.fc(self.features(x).flatten(1))

    def small(num_classes=10):
        return Net(num_classes)

    def wide(num_classes=10):
        return Net(num_classes, width=8)
"""
TRANSFORMS = """
    import numpy as np
    import torch

    class Compose:
        def __init__(self, steps):
            self.steps = steps
        def __call__(self, image):
            for step in self.steps:
                image = step(image)
            return image

    class Resize:
        def __init__(self, size):
            self.size = size
        def __call__(self, image):
            return image.resize(self.size)

    class ToTensor:
        def __call__(self, image):
            return torch.from_numpy(np.array(image, dtype=np.float32)).permute(2, 0, 1) / 255

    class RandomFlip:
        def __call__(self, image):
            raise AssertionError("training only")
"""


def test_main_with_argparse_checkpoint_and_data(repository, run, tmp_path):
    surveyed = repository(
        net=NET,
        transforms=TRANSFORMS,
        evaluate="""
            import argparse
            import torch
            import transforms as T
            from torch.utils.data import DataLoader
            from folder import Folder
            import net

            CLASSES = ("cat", "dog", "emu")

            def evaluate(model, loader, device):
                model.eval()
                correct = 0
                with torch.no_grad():
                    for images, target in loader:
                        output = model(images.to(device))
                        correct += (output.argmax(1) == target).sum()
                return correct

            def main():
                parser = argparse.ArgumentParser()
                parser.add_argument("data")
                parser.add_argument("-a", "--arch", default="small", choices=["small", "wide"])
                parser.add_argument("--workers", type=int, default=4)
                parser.add_argument("--weights", default="")
                args = parser.parse_args()
                torch.backends.cudnn.benchmark = True
                torch.cuda.set_device(0)
                model = net.__dict__[args.arch](num_classes=len(CLASSES)).cuda()
                model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
                if args.weights:
                    model.load_state_dict(torch.load(args.weights)["state_dict"])
                eval_transform = T.Compose([T.Resize((32, 24)), T.ToTensor()])
                loader = DataLoader(Folder(args.data, transform=eval_transform), num_workers=args.workers)
                print(evaluate(model, loader, "cuda"))

            if __name__ == "__main__":
                main()
        """,
        folder="class Folder:\n    pass\n",
    )
    resolved = resolve(surveyed)
    assert resolved.name == "small"
    assert resolved.factory == "net.py:13"
    assert resolved.recipe.argv == ()
    assert resolved.class_names == ("cat", "dog", "emu")
    assert resolved.input_size == (3, 32, 24)
    assert "DataLoader" not in resolved.recipe.source
    assert "--workers" not in resolved.recipe.source
    assert run(resolved.recipe, input=[3, 32, 32]) | {"sum": 0} == {"class": "Net", "shape": [2, 3], "sum": 0}
    assert "load_state_dict" not in resolved.fallback_recipe.source
    transform = resolved.transform_recipe
    assert transform.source_at.startswith("evaluate.py:")
    assert run(transform, image="RGB") == {"shape": [3, 24, 32]}
    wide = resolve(surveyed, model="wide")
    assert list(wide.recipe.argv) == ["--arch", "wide"]
    assert wide.factory == "net.py:16"
    with pytest.raises(AmbiguousError, match="--model small"):
        resolve(surveyed, model="huge")


def test_weights_come_through_the_option_and_its_switch(repository, run, tmp_path):
    import torch

    surveyed = repository(
        net=NET,
        main="""
            import argparse
            import torch
            from net import *

            parser = argparse.ArgumentParser()
            parser.add_argument("--lr", default=0.1, type=float)
            parser.add_argument("--resume", "-r", action="store_true")
            args = parser.parse_args()
            best = 0
            net = Net(7)
            if args.resume:
                checkpoint = torch.load("./checkpoint/ckpt.pth")
                net.load_state_dict(checkpoint["net"])
                best = checkpoint["acc"]
            optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)

            def train(epoch):
                net.train()
                for inputs, targets in loader:
                    optimizer.zero_grad()
                    criterion(net(inputs), targets).backward()
                    optimizer.step()

            def test(epoch):
                global best
                net.eval()
                with torch.no_grad():
                    for inputs, targets in loader:
                        outputs = net(inputs)

            for epoch in range(10):
                train(epoch)
                test(epoch)
        """,
    )
    resolved = resolve(surveyed)
    assert "range(10)" not in resolved.recipe.source, "importing must never train"
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 7]
    network = torch.nn.Module()
    torch.manual_seed(3)
    weights = {
        "features.0.weight": torch.rand(4, 3, 3, 3),
        "features.0.bias": torch.rand(4),
        "fc.weight": torch.rand(7, 4),
        "fc.bias": torch.rand(7),
    }
    del network
    torch.save({"net": weights, "acc": 1}, tmp_path / "w.pth")
    loaded = resolve(surveyed, checkpoint=str(tmp_path / "w.pth"))
    assert list(loaded.recipe.argv) == ["--resume"]
    total = float(sum(value.double().sum() for value in weights.values()))
    assert run(loaded.recipe, input=[3, 16, 16])["sum"] == pytest.approx(total)
    assert loaded.checkpoints[0].key == "net"


@pytest.mark.parametrize("script", [True, False])
def test_a_checkpoint_is_loaded_where_no_code_of_the_repository_loads_one(repository, run, tmp_path, script):
    import torch

    use = """
        import torch
        from net import Net
        model = torch.nn.DataParallel(Net())
        with torch.no_grad():
            for images, targets in [(torch.rand(2, 3, 16, 16), torch.arange(2))]:
                outputs = model(images)
                print((outputs.argmax(1) == targets).sum())
        """
    surveyed = repository(net=NET, **({"use": use} if script else {}))
    weights = {name: torch.rand(*shape) for name, shape in SHAPES.items()}
    torch.save({"model_state": {f"module.{name}": value for name, value in weights.items()}}, tmp_path / "w.pth")
    loaded = resolve(surveyed, model=None if script else "small", checkpoint=str(tmp_path / "w.pth"))
    total = float(sum(value.double().sum() for value in weights.values()))
    assert run(loaded.recipe, input=[3, 16, 16])["sum"] == pytest.approx(total)


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ('"--model", default="small"', 'os.path.join(args.folder, f"{args.model}_best.pth")'),
        ('"--model", default="small"', 'args.folder + "/" + args.model'),
        ('"--model", default="small", choices=["small", "wide"]', "os.path.join(args.folder, args.model)"),
    ],
)
def test_the_name_of_a_model_is_no_file_though_its_checkpoint_is_named_by_it(repository, run, tmp_path, option, path):
    import torch

    surveyed = repository(
        net=NET,
        test=f"""
            import argparse
            import os
            import torch
            from net import Net, small
            parser = argparse.ArgumentParser()
            parser.add_argument({option})
            parser.add_argument("--folder", default="kept")
            args = parser.parse_args()
            if args.model == "small":
                model = small()
            else:
                raise RuntimeError("unknown model")
            model.load_state_dict(torch.load({path}))
            model.eval()
            for images, targets in [(torch.rand(2, 3, 16, 16), torch.arange(2))]:
                print((model(images).argmax(1) == targets).sum())
        """,
    )
    weights = {name: torch.rand(*shape) for name, shape in SHAPES.items()}
    torch.save(weights, tmp_path / "w.pth")
    loaded = resolve(surveyed, checkpoint=str(tmp_path / "w.pth"))
    assert (loaded.name, loaded.recipe.argv) == ("small", ())
    total = float(sum(value.double().sum() for value in weights.values()))
    assert run(loaded.recipe, input=[3, 16, 16])["sum"] == pytest.approx(total)


def test_script_without_main_guard_and_trained_model_at_the_end(repository, run):
    resolved = resolve(
        repository(
            net=NET,
            finetune="""
                import copy
                import torch
                from net import Net

                def train_model(model, loaders, epochs=25):
                    for phase in ["train", "val"]:
                        model.train() if phase == "train" else model.eval()
                        for inputs, labels in loaders[phase]:
                            with torch.set_grad_enabled(phase == "train"):
                                outputs = model(inputs)
                                loss = criterion(outputs, labels)
                                if phase == "train":
                                    loss.backward()
                    return model

                model_ft = Net()
                num_ftrs = model_ft.fc.in_features
                model_ft.fc = torch.nn.Linear(num_ftrs, 2)
                model_ft = model_ft.to("cuda:0")
                model_ft = train_model(model_ft, dataloaders)
                model_ft.eval()
                with torch.no_grad():
                    for inputs, labels in dataloaders["val"]:
                        outputs = model_ft(inputs)
            """,
        )
    )
    assert "train_model" not in resolved.recipe.source
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 2]


def test_transform_out_of_dictionaries_by_phase(repository, run):
    resolved = resolve(
        repository(
            net=NET,
            transforms=TRANSFORMS,
            test="""
                import torch
                from net import Net
                from transforms import Compose, RandomFlip, Resize, ToTensor
                from images import ImageFolder

                data_transforms = {
                    "train": Compose([RandomFlip(), ToTensor()]),
                    "val": Compose([Resize((20, 20)), ToTensor()]),
                }
                image_datasets = {x: ImageFolder("data/" + x, data_transforms[x]) for x in ["train", "val"]}
                dataloaders = {x: torch.utils.data.DataLoader(image_datasets[x], batch_size=4) for x in ["train", "val"]}
                class_names = image_datasets["train"].classes
                model = Net().eval()
                for phase in ["train", "val"]:
                    for inputs, labels in dataloaders[phase]:
                        outputs = model(inputs)
            """,
        )
    )
    transform = resolved.transform_recipe
    assert "RandomFlip" in transform.source, "the whole dictionary is one statement"
    assert run(transform, image="RGB") == {"shape": [3, 20, 20]}
    assert resolved.class_names is None


def test_loader_function_of_another_file(repository, run):
    resolved = resolve(
        repository(
            net=NET,
            transforms=TRANSFORMS,
            data="""
                from torch.utils.data import DataLoader
                from transforms import *

                SIDE = 18

                class Photos:
                    def __init__(self, root, tf=None):
                        self.tf = tf
                        if not open(root):
                            raise FileNotFoundError(root)
                    def __getitem__(self, index):
                        from PIL import Image
                        return self.tf(Image.open(self.paths[index]).convert("RGB")), 0

                def get_loaders(root, size, batch_size=8):
                    train_tf = Compose([RandomFlip(), ToTensor()])
                    val_tf = Compose([Resize((size, SIDE)), ToTensor()])
                    train = DataLoader(Photos(root, train_tf), batch_size)
                    val = DataLoader(Photos(root, tf=val_tf), batch_size)
                    return train, val
            """,
            validate="""
                import argparse
                import torch
                from data import get_loaders
                from net import wide

                def validate(net, loader):
                    net.eval()
                    for step, (x, y) in enumerate(loader):
                        pred = net(x)

                def run(args):
                    train_loader, val_loader = get_loaders(args.root, args.size)
                    validate(wide(), val_loader)

                if __name__ == "__main__":
                    p = argparse.ArgumentParser()
                    p.add_argument("--root", required=True)
                    p.add_argument("--size", type=int, default=26)
                    run(p.parse_args())
            """,
        )
    )
    assert resolved.factory_name == "wide"
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 10]
    transform = resolved.transform_recipe
    assert transform.convert == "RGB"
    assert run(transform, image="RGB") == {"shape": [3, 18, 26]}


def test_class_that_builds_and_uses_the_model(repository, run):
    resolved = resolve(
        repository(
            net=NET,
            trainer="""
                import argparse
                import torch
                from net import small

                class Tester:
                    def __init__(self, options, log_dir):
                        self.options = options
                        self.log = open(log_dir)
                        self.loader = make_loader(options)
                        self._build()

                    def _build(self):
                        self.model = small(num_classes=self.options.classes)
                        self.model.cuda()
                        self.meter = Meter()

                    def test(self):
                        self.model.eval()
                        with torch.no_grad():
                            for image, label in self.loader:
                                logits = self.model(image)

                def main():
                    parser = argparse.ArgumentParser()
                    parser.add_argument("--classes", type=int, default=6)
                    tester = Tester(parser.parse_args(), "logs")
                    tester.test()

                main()
            """,
        )
    )
    assert "open(" not in resolved.recipe.source
    assert "make_loader" not in resolved.recipe.source
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 6]


def test_click_defaults_and_required_choice(repository, run):
    surveyed = repository(
        net=NET,
        cli="""
            import click
            import torch
            import net

            @click.command()
            @click.option("--num-classes", default=4, type=int)
            @click.option("--half", is_flag=True)
            def main(num_classes, half):
                model = net.small(num_classes)
                model.eval()
                for x, y in loader:
                    out = model(x)

            if __name__ == "__main__":
                main()
        """,
    )
    resolved = resolve(surveyed)
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 4]


def test_prediction_function_on_a_path_and_names_from_a_file(repository, run, tmp_path):
    surveyed = repository(
        net=NET,
        predict="""
            import argparse
            import json
            import numpy as np
            import torch
            from PIL import Image
            from net import Net

            def load_image(path):
                image = Image.open(path).convert("RGB")
                image = image.resize((24, 24), Image.BILINEAR)
                array = np.asarray(image, dtype=np.float32) / 255
                array = (array - 0.5) / 0.25
                return torch.from_numpy(array.transpose(2, 0, 1)).unsqueeze(0)

            def predict(model, image_path, names):
                x = load_image(image_path)
                with torch.no_grad():
                    scores = model(x)
                return names[str(scores.argmax().item())]

            if __name__ == "__main__":
                parser = argparse.ArgumentParser()
                parser.add_argument("image_path")
                args = parser.parse_args()
                with open("names.json") as stream:
                    class_names = json.load(stream)
                model = Net(len(class_names)).eval()
                print(predict(model, args.image_path, class_names))
        """,
    )
    (tmp_path / "names.json").write_text(json.dumps({"0": "ant", "1": "bee", "2": "cow"}))
    resolved = resolve(surveyed)
    assert resolved.script.image_argument == "image_path"
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 3]
    transform = resolved.transform_recipe
    assert transform.takes == "image"
    assert run(transform, image="RGB") == {"shape": [3, 24, 24]}
    names = resolved.class_names_recipe
    assert run(names) == {"value": {"0": "ant", "1": "bee", "2": "cow"}}


def test_web_service_with_a_global_model(repository, run):
    resolved = resolve(
        repository(
            net=NET,
            app="""
                import io
                import torch
                from flask import Flask, request
                from PIL import Image
                from net import Net
                import transforms as T

                app = Flask(__name__)
                model = Net(5)
                model.eval()

                def transform_image(image_bytes):
                    my_transforms = T.Compose([T.Resize((12, 12)), T.ToTensor()])
                    return my_transforms(Image.open(io.BytesIO(image_bytes))).unsqueeze(0)

                @app.route("/predict", methods=["POST"])
                def predict():
                    with torch.no_grad():
                        outputs = model.forward(transform_image(request.files["file"].read()))
                    return str(outputs)

                if __name__ == "__main__":
                    app.run()
            """,
            transforms=TRANSFORMS,
        )
    )
    assert "flask" not in resolved.recipe.source
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 5]
    transform = resolved.transform_recipe
    assert run(transform, image="RGB") == {"shape": [3, 12, 12]}


def test_loop_in_an_engine_and_parser_in_options(repository, run):
    resolved = resolve(
        repository(
            models__net=NET,
            packages=["models"],
            engine="""
                import torch

                @torch.no_grad()
                def evaluate(data_loader, model, device):
                    model.eval()
                    for images, target in metric_logger.log_every(data_loader, 10, "Test:"):
                        images = images.to(device, non_blocking=True)
                        with torch.cuda.amp.autocast():
                            output = model(images)
            """,
            options="""
                import argparse

                def get_args_parser():
                    parser = argparse.ArgumentParser("Evaluation", add_help=False)
                    group = parser.add_argument_group("model")
                    group.add_argument("--model", default="wide", type=str)
                    group.add_argument("--nb_classes", default=9, type=int)
                    parser.add_argument("--data-path", required=True)
                    return parser
            """,
            main="""
                import argparse
                import models
                from engine import evaluate
                from options import get_args_parser

                def create(name, **kwargs):
                    if name not in ("small", "wide"):
                        raise ValueError(name)
                    return getattr(models, name)(**kwargs)

                def main(args):
                    model = create(args.model, num_classes=args.nb_classes)
                    model_without_ddp = model
                    evaluate(build_loader(args), model, "cuda")

                if __name__ == "__main__":
                    parser = argparse.ArgumentParser(parents=[get_args_parser()])
                    main(parser.parse_args())
            """,
        )
    )
    assert resolved.factory_name == "wide"
    assert list(resolved.recipe.argv) == ["--data-path", "."]
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 9]


def test_module_prefix_stripped_and_the_loaded_names_of_aliases(repository, run):
    resolved = resolve(
        repository(
            net=NET,
            evaluate="""
                import torch
                from net import Net

                model = Net(3)
                raw = model
                if torch.cuda.device_count() > 8:
                    model = torch.nn.DataParallel(model)
                raw.load_state_dict(torch.load("missing.pth"))
                print(sum(p.numel() for p in model.parameters()))
                model.eval()
                for x, y in loader:
                    model(x)
            """,
        )
    )
    assert "raw.load_state_dict" in resolved.recipe.source
    assert "load" not in resolved.fallback_recipe.source
    assert run(resolved.fallback_recipe, input=[3, 16, 16])["shape"] == [2, 3]


def test_factories_alone(repository, run):
    surveyed = repository(packages=["zoo"], zoo__net=NET)
    found = resolve(surveyed)
    assert found.factory_name == "small"
    assert [item.message for item in found.findings if item.code == "PS011"] == [
        "taken for the model; no script chooses one, and there are others: wide (--model takes one of them)"
    ]
    (surveyed.root / "README.md").write_text("The wide form is better.\n")
    assert resolve(surveyed).factory_name == "wide"
    resolved = resolve(surveyed, model="wide(num_classes=11)")
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 11]
    assert resolved.script is None
    assert resolved.place == resolved.factory
    assert resolved.place.startswith("zoo/net.py:")
    with pytest.raises(AmbiguousError, match="no model 'resnet'"):
        resolve(surveyed, model="resnet")


def test_hard_coded_factory_is_replaced_by_the_wanted_one(repository, run):
    surveyed = repository(
        net=NET,
        evaluate="from net import small\nmodel = small()\nmodel.eval()\nfor x, y in loader:\n    model(x)\n",
    )
    assert resolve(surveyed).factory_name == "small"
    resolved = resolve(surveyed, model="wide")
    assert resolved.factory_name == "wide"
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 10]


def test_several_scripts(repository):
    loop = "from net import {0}\nmodel = {0}()\nmodel.eval()\nfor x, y in loader:\n    model(x)\n"
    surveyed = repository(net=NET, alpha=loop.format("small"), beta=loop.format("wide"))
    found = resolve(surveyed)
    assert (found.script.path, found.factory_name) == ("alpha.py", "small")
    assert ["--entry takes another (beta.py)" in item.message for item in found.findings if item.code == "PS011"] == [True]
    assert resolve(surveyed, entry="beta.py").factory_name == "wide"
    with pytest.raises(MigrateError, match=r"gamma\.py"):
        resolve(surveyed, entry="gamma.py")


def test_a_launcher_is_not_a_script_of_its_own(repository):
    surveyed = repository(
        net=NET,
        main="""
            import argparse
            from net import small, wide

            def get_parser():
                parser = argparse.ArgumentParser(add_help=False)
                parser.add_argument("--arch", default="small")
                return parser

            def main(args):
                model = small() if args.arch == "small" else wide()
                model.eval()
                for x, y in loader:
                    model(x)

            if __name__ == "__main__":
                main(argparse.ArgumentParser(parents=[get_parser()]).parse_args())
        """,
        submit="""
            import argparse
            import main as task

            class Trainer:
                def __init__(self, args):
                    self.args = args

                def __call__(self):
                    task.main(self.args)

            if __name__ == "__main__":
                Trainer(argparse.ArgumentParser(parents=[task.get_parser()]).parse_args())()
        """,
    )
    assert {script.path for script in surveyed.scripts} == {"main.py", "submit.py"}
    resolved = resolve(surveyed)
    assert resolved.script.path == "main.py"
    (step,) = [step for step in resolved.chain if step.kind == "argument"]
    (line,) = [option.line for option in resolved.script.options if option.dest == "arch"]
    assert (step.text, step.line) == ("--arch = small", line)
    assert resolve(surveyed, entry="submit.py").script.path == "submit.py"


def test_the_name_of_an_experiment_is_not_that_of_a_model(repository):
    script = """
        import argparse
        import torch
        from torchvision import datasets
        from net import small

        parser = argparse.ArgumentParser()
        parser.add_argument("--dataset", default="cifar10", help="cifar10 or cifar100")
        parser.add_argument("--classes", default=10, type=int)
        parser.add_argument("--name", default="first-try", type=str, help="of the experiment")
        args = parser.parse_args()
        data = datasets.__dict__[args.dataset.upper()]("data", train=False)
        net = small(args.classes)
        net.eval()
        for x, y in torch.utils.data.DataLoader(data):
            net(x)
    """
    resolved = resolve(repository(net=NET, main=script))
    assert (resolved.name, resolved.input_size) == ("small", (3, 32, 32))
    assert not [step for step in resolved.chain if step.kind == "argument"]


SMALL_DATA = """
    from torch.utils.data import Dataset
    from torchvision.datasets import CIFAR10, MNIST


    class Pairs(CIFAR10):
        def __getitem__(self, index):
            return self.data[index], self.data[index]
"""
FACES = """

    class Faces(Dataset):
        pass
"""


@pytest.mark.parametrize(
    ("file", "data", "size"),
    [
        ("net", SMALL_DATA, (3, 32, 32)),
        ("net", SMALL_DATA + FACES, None),
        ("cifar_net", SMALL_DATA + FACES, (3, 32, 32)),
        ("cifar_net", SMALL_DATA + FACES + "\n    digits = MNIST('data')\n", (3, 32, 32)),
        ("net", SMALL_DATA + "\n    digits = MNIST('data')\n", None),
    ],
)
def test_the_size_of_a_model_without_a_script_is_that_of_the_data_sets_that_are_derived_from(repository, file, data, size):
    resolved = resolve(repository(**{file: NET, "data": data}))
    assert (resolved.name, resolved.input_size) == ("small", size)
    said = [finding.message for finding in resolved.findings if finding.code == "PS015"]
    assert any("--input-size" in message for message in said) == (size is not None)


PREPARED = "from torchvision import transforms as T\nprepare = T.Compose([T.ToPILImage(), T.Resize((96, 80)), T.ToTensor()])\n"
AUGMENTED = "draw = T.Compose([T.RandomResizedCrop(64), T.Resize((64, 64)), T.ToTensor()])\n"


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (PREPARED, (3, 96, 80)),
        (PREPARED + AUGMENTED, (3, 96, 80)),
        (PREPARED + "small = T.Compose([T.Resize((32, 32)), T.ToTensor()])\n", None),
        ("from torchvision import transforms as T\n" + AUGMENTED, None),
    ],
)
def test_the_size_of_a_model_that_nothing_calls_is_that_of_the_transforms_where_they_agree(repository, data, size):
    resolved = resolve(repository(net=NET, data=data))
    assert resolved.input_size == size
    said = [finding.message for finding in resolved.findings if finding.code == "PS015"]
    assert said == (
        [f"its input is taken to be {list(size)}, as data.py:2 has it; --input-size C,H,W says otherwise"] if size else []
    )


def test_a_class_method_that_makes_the_model(repository, run):
    surveyed = repository(
        sized="""
import torch.nn as nn

class Sized(nn.Module):
    def __init__(self, width, num_classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))

    @classmethod
    def from_name(cls, name):
        return cls({"s": 4, "m": 8}[name])

    @classmethod
    def widths(cls):
        return [4, 8]
""",
        evaluate="from sized import Sized\nmodel = Sized.from_name('m').eval()\nfor x, y in loader:\n    model(x)\n",
    )
    assert [factory.name for factory in surveyed.factories] == ["Sized"]
    resolved = resolve(surveyed)
    assert resolved.name == "Sized"
    assert run(resolved.recipe, input=[3, 16, 16])["shape"] == [2, 10]
    chosen = resolve(surveyed, model="Sized.from_name('s')")
    assert chosen.recipe.source.endswith("model = Sized.from_name('s')\n")
    assert run(chosen.recipe, input=[3, 16, 16])["shape"] == [2, 10]
    hub = "from sized import Sized\ndef small():\n    return Sized.from_name('s')\ndef widths():\n    return Sized.widths()"
    assert [factory.name for factory in repository(hub=hub).factories] == ["small"]


def test_torch_without_a_model(repository):
    with pytest.raises(NothingToMigrateError, match=r"nn\.Module"):
        resolve(repository(main="import torch\nprint(torch.ones(2))\n"))


def test_a_factory_is_chosen_by_its_name_or_by_the_key_it_is_kept_under(repository, run):
    survey = repository(
        net=NET
        + """
    MODELS = {"Net-S": small, "Net-W": wide}

    def by_name(name):
        return MODELS[name]
""",
        main="""
    import argparse
    import torch
    from net import by_name

    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="Net-S")
    args = parser.parse_args()
    model = by_name(args.arch)()
    model.eval()
    with torch.no_grad():
        for images, labels in torch.load("data.pt"):
            print((model(images).argmax(1) == labels).sum())
""",
    )
    for name in ("Net-W", "wide"):
        found = resolve(survey, model=name)
        assert list(found.recipe.argv) == ["--arch", "Net-W"]
        assert run(found.recipe, input=[3, 9, 9])["shape"] == [2, 10]
