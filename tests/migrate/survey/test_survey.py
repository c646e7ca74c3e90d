"""What a survey states about small repositories."""

import textwrap

import pytest

from headrace.errors import MigrateError, NothingToMigrateError
from headrace.migrate.survey.survey import runnable, survey
from tests.migrate.repositories import surveyed as write
from tests.migrate.repositories import written

MODELS = """
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    def conv3x3(a, b):
        return nn.Conv2d(a, b, 3)

    class Block(nn.Module):
        expansion = 1
        def __init__(self, a, b):
            super(Block, self).__init__()
            self.conv = conv3x3(a, b)
            self.gate = nn.Linear(b, b // 4)
        def forward(self, x):
            return F.relu(self.conv(x))

    class LabelSmoothing(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
            self.fc = nn.Linear(2, num_classes)
        def forward(self, logits, target):
            return logits

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(3, 3, 2)
            self.fc = nn.Linear(3, 10)
        def forward(self, x):
            return self.up(x)

    class ResNet(nn.Module):
        def __init__(self, block, layers, num_classes=10):
            super().__init__()
            self.layer = nn.Sequential(*[block(3, 3) for _ in range(layers)])
            self.linear = nn.Linear(3, num_classes)
        def forward(self, x):
            return self.linear(self.layer(x).mean((2, 3)))

    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 6, 5)
            self.fc = nn.Linear(84, 10)
        def forward(self, x, return_features=False):
            return self.fc(self.conv(x))

    class Trainable(LeNet):
        pass

    def _resnet(block, layers, **kwargs):
        model = ResNet(block, layers, **kwargs)
        return model

    def resnet8(**kwargs):
        return _resnet(Block, 2, **kwargs)

    def resnet14(pretrained=False, **kwargs):
        model = _resnet(Block, 4, **kwargs)
        if pretrained:
            model.load_state_dict(torch.load("r14.pth"))
        return model

    def get_model(name):
        if name == "resnet8":
            return resnet8()
        elif name == "lenet":
            return LeNet()
        raise ValueError(name)

    registry = {"resnet8": resnet8}

    def from_registry(name):
        return registry[name]()

    def test():
        net = resnet8()
        y = net(torch.randn(1, 3, 32, 32))
"""


def test_factories_and_nothing_else(tmp_path):
    surveyed = write(
        tmp_path,
        models=MODELS,
        zoo="import torchvision\n\ndef tuned(classes=3):\n    return torchvision.models.resnet18(num_classes=classes)\n",
    )
    found = {(factory.name, factory.kind) for factory in surveyed.factories}
    assert found == {
        ("resnet8", "function"),
        ("resnet14", "function"),
        ("LeNet", "class"),
        ("Trainable", "class"),
        ("tuned", "function"),
    }
    assert surveyed.loops == (), "a self-test on random numbers is not a use of the model"


@pytest.mark.parametrize("name", ["class_num", "classes_count", "n_class", "number_of_labels", "cls_num", "category_num"])
def test_the_count_of_classes_has_many_names(tmp_path, name):
    source = f"""
    import torch.nn as nn
    class Narrow(nn.Module):
        def __init__(self, {name}=100):
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 3)
            self.head = nn.Linear(16, {name})
        def forward(self, x):
            return self.head(self.conv(x).mean((2, 3)))
    """
    assert [factory.name for factory in write(tmp_path, models=source).factories] == ["Narrow"]


def test_scripts_roles_and_options(tmp_path):
    surveyed = write(
        tmp_path,
        models=MODELS,
        engine="""
            import torch

            def train_one_epoch(model, loader, optimizer):
                model.train()
                for step, (images, target) in enumerate(loader):
                    loss = criterion(model(images), target)
                    loss.backward()
                    optimizer.step()

            @torch.no_grad()
            def evaluate(model, loader):
                model.eval()
                for batch in loader:
                    images = batch[0].cuda()
                    target = batch[-1].cuda()
                    output = model(images)
        """,
        main="""
            import argparse
            from engine import evaluate, train_one_epoch
            from models import get_model

            def main():
                parser = argparse.ArgumentParser()
                parser.add_argument("data", metavar="DIR")
                parser.add_argument("--arch", "-a", default="resnet8", choices=["resnet8", "lenet"])
                parser.add_argument("--out", dest="output", required=True)
                args = parser.parse_args()
                model = get_model(args.arch)
                for epoch in range(3):
                    train_one_epoch(model, loader, optimizer)
                    evaluate(model, loader)

            if __name__ == "__main__":
                main()
        """,
        predict="""
            import argparse
            import torch
            from PIL import Image
            from models import LeNet

            parser = argparse.ArgumentParser()
            parser.add_argument("--picture", required=True)
            args = parser.parse_args()
            net = LeNet()
            net.load_state_dict({k.replace("module.", ""): v for k, v in torch.load("best.pth")["state_dict"].items()})
            net.eval()
            x = to_tensor(Image.open(args.picture))
            with torch.no_grad():
                print(net(x).argmax())
        """,
    )
    scripts = {script.path: script for script in surveyed.scripts}
    assert set(scripts) == {"main.py", "predict.py"}, "a library of functions is not a script"
    assert scripts["main.py"].roles == ("train", "evaluate")
    assert scripts["main.py"].argparse_required == ("data", "output")
    assert scripts["predict.py"].roles == ("predict",)
    assert scripts["predict.py"].image_argument == "picture"
    (loop,) = [loop for loop in surveyed.loops if loop.kind == "evaluate"]
    assert (loop.path, loop.function, loop.model, loop.inputs, loop.outputs, loop.targets) == (
        "engine.py",
        "evaluate",
        "model",
        "images",
        "output",
        "target",
    )
    (site,) = [site for site in surveyed.checkpoints if site.path == "predict.py"]
    assert (site.expression, site.key, site.strip) == ("'best.pth'", "state_dict", "module.")


def test_one_bad_file_stops_nothing(tmp_path):
    (tmp_path / "old.py").write_text("import torch\nx.cuda(async=True)\n")
    (tmp_path / "notes.ipynb").write_text("{}")
    surveyed = write(tmp_path, models=MODELS)
    found = [(item.path, item.line, item.code) for item in surveyed.errors]
    assert found == [("notes.ipynb", 1, "PS002"), ("old.py", 2, "PS001")]
    assert len(surveyed.factories) >= 3


def test_nothing_to_migrate(tmp_path):
    with pytest.raises(NothingToMigrateError, match="no Python file"):
        survey(tmp_path)
    with pytest.raises(MigrateError, match="not a folder"):
        survey(tmp_path / "missing")
    with pytest.raises(NothingToMigrateError, match="torch"):
        write(tmp_path, app="print('hello')\n")


def test_cycles_of_imports_and_classes_end(tmp_path):
    surveyed = write(
        tmp_path,
        a="import torch\nfrom b import *\nclass A(B):\n    pass\ndef f():\n    return g()\n",
        b="from a import *\nclass B(A):\n    pass\ndef g():\n    return f()\n",
    )
    assert surveyed.factories == ()


PIXELS = """
import torch.nn as nn
import torch.nn.functional as F


class Segmenter(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3)
        self.head = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        return F.interpolate(self.head(self.body(x)), size=x.shape[2:])


class Resizing(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.body(F.interpolate(x, size=(32, 32))).mean((2, 3)))
"""


def test_networks_that_answer_per_pixel_are_no_classifiers(tmp_path):
    assert [factory.name for factory in write(tmp_path, nets=PIXELS).factories] == ["Resizing"]


def test_progress_is_told(tmp_path):
    seen = []
    (tmp_path / "m.py").write_text(textwrap.dedent(MODELS))
    survey(tmp_path, progress=lambda fraction, text: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_star_imports_of_each_other_are_searched_once(tmp_path):
    """Thirty files that import each other by star are two to the thirtieth paths; looking for a name ends all the same."""
    stars = {f"m{number}": "".join(f"from m{other} import *\n" for other in range(30)) for number in range(30)}
    surveyed = write(tmp_path, **stars, main="import torch\nfrom m0 import *\nmodel = nowhere()\nsummary(nowhere)\n")
    assert surveyed.factories == ()


def test_an_imported_value_is_a_model_only_with_evidence(tmp_path):
    surveyed = write(
        tmp_path,
        util="""
            import functools

            def mode(train, model):
                yield model

            eval_model = functools.partial(mode, False)
            model_names = sorted(["a"])
        """,
        nets=MODELS + "\n\n    net = resnet8()\n",
        main="""
            import torch
            from util import eval_model, model_names
            from nets import net

            for x, y in loader:
                with eval_model(x):
                    print(eval_model(x), net(x))
        """,
    )
    assert [loop.model for loop in surveyed.loops] == ["net"]


SERVICE = """
    import torch
    from fastapi import {framework}, UploadFile
    from model import net, prepare

    {name} = {framework}()

    @{name}.post("/predict")
    async def predict(file: UploadFile):
        with torch.no_grad():
            scores = net(prepare(file))
        return {{"class": int(scores.argmax())}}
"""
LIVE_MODEL = """
    import torch
    from torchvision import models
    net = models.resnet18()
    net.load_state_dict(torch.load("weights.pth"))
    net.eval()
"""


def test_a_service_whose_handlers_are_coroutines_is_a_script(tmp_path):
    surveyed = write(tmp_path, model=LIVE_MODEL, main=SERVICE.format(framework="FastAPI", name="app"))
    assert [(script.path, script.roles) for script in surveyed.scripts] == [("main.py", ("predict",))]


def test_a_service_that_takes_in_routers_is_a_script(tmp_path):
    main = """
        from fastapi import FastAPI
        import router
        app = FastAPI()
        app.include_router(router.router, prefix="/v1")
    """
    surveyed = write(tmp_path, model=LIVE_MODEL, main=main, router=SERVICE.format(framework="APIRouter", name="router"))
    assert ("main.py", ("predict",)) in [(script.path, script.roles) for script in surveyed.scripts]


@pytest.mark.parametrize(
    ("config", "use"),
    [
        ("parser = argparse.ArgumentParser()", "from config import parser\nargs = parser.parse_args()"),
        ("parser = argparse.ArgumentParser()", "import config\nargs = config.parser.parse_args()"),
        ("parser = argparse.ArgumentParser()", "from config import args\n"),
    ],
)
def test_options_of_a_parser_that_another_file_makes(tmp_path, config, use):
    text = f"import argparse\n{config}\nparser.add_argument('--num_classes', type=int, default=6)\n"
    if "import args" in use:
        text += "args = parser.parse_args()\n"
    main = (
        f"from torchvision.models import resnet18\n{use}\nnet = resnet18(num_classes=args.num_classes).eval()\nprint(net(x))\n"
    )
    surveyed = write(tmp_path, config=text, main=main)
    assert [[option.dest for option in script.options] for script in surveyed.scripts] == [["num_classes"]]


def test_options_of_a_parser_in_a_file_of_a_package_that_is_imported_whole(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "config.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--num_classes', type=int, default=6)\n"
    )
    main = "from torchvision.models import resnet18\nimport package.config as config\nargs = config.parser.parse_args()\n"
    surveyed = write(tmp_path, main=f"{main}net = resnet18(num_classes=args.num_classes).eval()\nprint(net(x))\n")
    assert [[option.dest for option in script.options] for script in surveyed.scripts] == [["num_classes"]]


def test_options_of_another_script_are_not_ones_own(tmp_path):
    train = "import argparse\ndef helper(): ...\nif __name__ == '__main__':\n    p = argparse.ArgumentParser()\n"
    train += "    p.add_argument('--x')\n"
    train += "    a = p.parse_args()\n"
    main = "from train import helper\nfrom torchvision.models import resnet18\nnet = resnet18().eval()\nprint(net(x))\n"
    surveyed = write(tmp_path, train=train, main=main)
    assert [(script.path, script.options) for script in surveyed.scripts] == [("main.py", ())]


def test_of_a_django_project_the_files_of_views_near_a_model_are_scripts(tmp_path):
    views = """
        from django.http import JsonResponse
        from rest_framework.viewsets import ModelViewSet
        from .net import net

        def predict(request):
            return JsonResponse({"best": net(opened(request)).argmax(1).tolist()})

        class Images(ModelViewSet):
            def create(self, request):
                return predict(request)
    """
    routes = """
        from django.urls import path
        from rest_framework import routers
        from .views import Images, predict
        router = routers.DefaultRouter()
        router.register("images", Images)
        urlpatterns = [path("", predict)]
    """
    other = "from django.shortcuts import render\ndef index(request):\n    return render(request, 'index.html')\n"
    found = write(tmp_path, app__views=views, app__urls=routes, app__net=LIVE_MODEL, home__views=other)
    (script,) = found.scripts
    assert (script.path, script.roles, script.server) == ("app/views.py", ("predict",), "django")


def test_a_file_that_an_installed_command_calls_is_a_script(tmp_path):
    files = {
        "pyproject.toml": '[project.scripts]\nleaves = "leaves.cli:cli"\n',
        "leaves/cli.py": (
            "import click\nimport torch\n\nfrom leaves.net import Net\n\n\n@click.group()\ndef cli():\n    pass\n\n\n"
            "def helper(net, image):\n    with torch.no_grad():\n        return net(image).argmax(1)\n"
        ),
        "leaves/net.py": "from torch import nn\n\n\nclass Net(nn.Module):\n    pass\n",
        "leaves/other.py": "import torch\n\n\ndef main():\n    pass\n",
    }
    found = survey(written(tmp_path, files))
    assert [script.path for script in runnable(found)] == ["leaves/cli.py"]


def test_a_file_whose_class_another_program_asks_is_a_script_where_there_is_no_other(tmp_path):
    source = (
        "import torch\nfrom torchvision import models\n\n\nclass Model:\n    def load(self):\n"
        "        self.net = models.resnet18(num_classes=3)\n        self.net.eval()\n\n"
        "    def predict(self, request):\n        with torch.no_grad():\n            return self.net(request['x']).argmax(1)\n"
    )
    assert [script.path for script in survey(written(tmp_path, {"model/model.py": source})).scripts] == ["model/model.py"]
