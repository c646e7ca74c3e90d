"""Ways of writing models, and the scripts around them, that people use and that were once missed."""

import textwrap

import pytest

from headrace.errors import AmbiguousError
from headrace.migrate.proving.trace_transform import row_shape
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey
from headrace.specs import Preprocessing, Resize
from tests.migrate.repositories import surveyed as write

MIXER = """
    from torch import nn
    from einops.layers.torch import Rearrange, Reduce

    def Head(dim, num_classes):
        return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_classes))

    def Encoder(dim):
        return nn.Sequential(nn.Conv2d(3, dim, 3), nn.GELU())

    def Mixer(*, patch, dim, num_classes):
        return nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=patch, q=patch),
            nn.Linear(3 * patch ** 2, dim),
            Reduce("b n c -> b c", "mean"),
            nn.Linear(dim, num_classes),
        )

    class PatchNet(nn.Module):
        def __init__(self, patch, dim, num_classes):
            super().__init__()
            self.cut = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=patch, q=patch), nn.Linear(12, dim))
            self.head = nn.Linear(dim, num_classes)

        def forward(self, x):
            return self.head(self.cut(x)[:, 0])
"""


def test_networks_without_a_convolution_and_written_out_ones(tmp_path):
    found = write(tmp_path, mixer=MIXER)
    assert [(item.name, item.kind) for item in found.factories] == [("Mixer", "function"), ("PatchNet", "class")]


def test_a_class_that_gets_its_head_from_a_library(tmp_path):
    found = write(
        tmp_path,
        nets="""
            import timm.models.vision_transformer
            import torchvision
            from torchvision.models.resnet import Bottleneck

            class Vit(timm.models.vision_transformer.VisionTransformer):
                def forward_features(self, x):
                    return super().forward_features(x)[:, 0]

            class Wide(torchvision.models.ResNet):
                def forward(self, x):
                    return self.fc(x)

            class Block(Bottleneck):
                pass

            def vit_small(**kwargs):
                return Vit(embed_dim=192, **kwargs)
        """,
    )
    assert [item.name for item in found.factories] == ["Wide", "vit_small"]


ASKING = """
    import torch
    from nets import Net

    path = input("which weights? ")
    model = torch.load(path)
    model.eval()
    for images, labels in loader:
        print((model(images).argmax(1) == labels).sum())
"""
TRAINING = """
    from nets import Net

    model = Net(num_classes=7)
    model.train()
    for images, labels in loader:
        loss(model(images), labels).backward()
"""
NET = """
    from torch import nn

    class Net(nn.Module):
        def __init__(self, num_classes=10):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.fc = nn.Linear(8, num_classes)

        def forward(self, x):
            return self.fc(self.conv(x).mean((2, 3)))
"""


def test_a_script_that_asks_at_the_terminal_gives_way_to_one_that_does_not(tmp_path):
    found = write(tmp_path, nets=NET, test=ASKING, train=TRAINING)
    resolved = resolve(found)
    assert resolved.script.path == "train.py"
    assert "Net(num_classes=7)" in resolved.recipe.source


def test_where_every_script_asks_that_is_said(tmp_path):
    resolved = resolve(write(tmp_path, nets=NET, test=ASKING))
    assert resolved.factory_name == "Net"
    (finding,) = [item for item in resolved.findings if item.code == "PS015"]
    assert "test.py:5 asks at the terminal" in finding.message


def test_a_lone_script_called_test_uses_the_model(tmp_path):
    found = write(tmp_path, nets=NET, test_on_cpu=TRAINING)
    assert resolve(found).script.path == "test_on_cpu.py"
    found = write(tmp_path, nets=NET, test_on_cpu=TRAINING, train=TRAINING.replace("7", "8"))
    assert resolve(found).script.path == "train.py"


def test_a_menu_with_one_unknown_item_is_still_a_model(tmp_path):
    found = write(
        tmp_path,
        nets="""
            import torch.nn as nn

            class Net(nn.Module):
                def __init__(self, num_classes=10):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 8, 3)
                    self.fc = nn.Linear(8, num_classes)

                def forward(self, x):
                    return self.fc(self.conv(x).mean((2, 3)))

            class Odd(nn.Module):
                def forward(self, x, y):
                    return x
        """,
        main="""
            import torch
            from nets import Net, Odd

            net = Net() if use else None
            if use:
                net = Net()
            else:
                net = Odd()
            for images, labels in loader:
                outputs = net(images)
                correct = outputs.argmax(1) == labels
        """,
    )
    assert [(loop.model, loop.kind) for loop in found.loops] == [("net", "evaluate")]


def test_helpers_of_timm_and_classes_from_stars_are_no_models(tmp_path):
    found = write(
        tmp_path,
        main="""
            from timm.data import Mixup
            from timm.utils import *

            def train(model, loader):
                mixup_fn = Mixup(mixup_alpha=0.8)
                model_ema = ModelEma(model, decay=0.9)
                for images, labels in loader:
                    images, labels = mixup_fn(images, labels)
                    loss = model(images).sum()
                    loss.backward()

            train(None, [])
        """,
    )
    assert [loop.model for loop in found.loops] == ["model"]


SIZED = """
    import torch.nn as nn

    class Net(nn.Module):
        def __init__(self, num_classes=10, input_size=64, in_chans=3):
            super().__init__()
            self.conv = nn.Conv2d(in_chans, 8, 3)
            self.fc = nn.Linear(8, num_classes)

        def forward(self, x):
            return self.fc(self.conv(x).mean((2, 3)))
"""


@pytest.mark.parametrize(
    ("factory", "size"),
    [
        ("def net():\n    return Net()\n", (3, 64, 64)),
        ("def net(pretrained=False):\n    model = Net(num_classes=5)\n    return model\n", (3, 64, 64)),
        ("def net():\n    return Net(10, input_size=96)\n", (3, 96, 96)),
        ("def net(img_size=48):\n    return Net(input_size=img_size)\n", (3, 48, 48)),
        ("def net():\n    return Net(10, side())\n", None),
        ("def net(**kwargs):\n    return Net(input_size=side())\n", None),
    ],
)
def test_the_size_that_a_constructor_states(tmp_path, factory, size):
    (tmp_path / "net.py").write_text(textwrap.dedent(SIZED) + "\n\n" + factory)
    assert resolve(survey(tmp_path), model="net").input_size == size


def test_a_size_that_the_user_gives_is_not_the_constructors(tmp_path):
    found = write(tmp_path, net=SIZED)
    assert resolve(found).input_size == (3, 64, 64)
    assert resolve(found, model="Net(input_size=128)").input_size is None


def test_an_experiment_tracker_is_no_part_of_the_construction(tmp_path):
    found = write(
        tmp_path,
        net=SIZED,
        main="""
            import argparse
            from net import Net

            parser = argparse.ArgumentParser()
            parser.add_argument("--classes", type=int, default=7)
            args = parser.parse_args()
            if args.classes:
                import wandb
                wandb.init(project="x")
                wandb.config.update(args)
            net = Net(args.classes)
            for images, labels in loader:
                outputs = net(images)
                correct = outputs.argmax(1) == labels
        """,
    )
    assert "wandb" not in resolve(found).recipe.source


def test_the_script_named_main_is_the_main_one(tmp_path):
    text = """
        {imported}
        net = {made}
        for images, labels in loader:
            outputs = net(images)
            correct = outputs.argmax(1) == labels
    """
    own = text.format(imported="from net import Net", made="Net()")
    other = text.format(imported="from torchvision.models import resnet18", made="resnet18()")
    found = write(tmp_path, net=SIZED, main=own, finetune=other)
    resolved = resolve(found)
    assert resolved.recipe.script == "main.py"
    assert [item.code for item in resolved.findings if "finetune.py" in item.message] == ["PS011"]
    (tmp_path / "main.py").rename(tmp_path / "train.py")
    assert resolve(survey(tmp_path)).recipe.script == "train.py"
    (tmp_path / "README.md").write_text("    python finetune.py\n")
    assert resolve(survey(tmp_path)).recipe.script == "finetune.py"


def test_what_a_function_of_data_sets_writes_into_the_arguments_is_kept(tmp_path):
    found = write(
        tmp_path,
        net=SIZED,
        data="""
            import torchvision

            def get_dataset(args):
                args.classes = 7
                return torchvision.datasets.CIFAR10("data", train=False)
        """,
        main="""
            import argparse
            from net import Net
            from data import get_dataset

            parser = argparse.ArgumentParser()
            parser.add_argument("--depth", type=int, default=7)
            args = parser.parse_args()
            test_set = get_dataset(args)
            net = Net(args.classes)
            for images, labels in test_set:
                outputs = net(images)
                correct = outputs.argmax(1) == labels
        """,
    )
    assert "get_dataset(args)" in resolve(found).recipe.source
    main = (tmp_path / "main.py").read_text()
    (tmp_path / "main.py").write_text(main.replace("--depth", "--classes"))
    assert "get_dataset" not in resolve(survey(tmp_path)).recipe.source


def test_factories_that_are_only_declared(tmp_path):
    found = write(
        tmp_path,
        net=SIZED
        + """
    import sys
    from functools import partial

    def net_7(**kwargs) -> Net: ...
    def net_9(**kwargs) -> Net: pass
    def path(name) -> str: ...

    for classes in (7, 9):
        setattr(sys.modules[__name__], f"net_{classes}", partial(Net, num_classes=classes))
    """,
    )
    assert [item.name for item in found.factories] == ["net_7", "net_9"]


@pytest.mark.parametrize("imported", ["import net", "from net import Net", "import net as nets"])
def test_the_size_in_the_tests_of_a_model(tmp_path, imported):
    write(
        tmp_path,
        net=SIZED.replace("input_size=64", "wide=False"),
        test_net=f"""
        import torch
        {imported}

        def test_it():
            assert make()(torch.empty((1, 3, 40, 40))).shape == (1, 10)
    """,
    )
    assert resolve(survey(tmp_path)).input_size == (3, 40, 40)
    (tmp_path / "test_net.py").write_text((tmp_path / "test_net.py").read_text().replace(imported, "import other"))
    assert resolve(survey(tmp_path)).input_size is None


def test_candidates_of_one_name_are_told_apart(tmp_path):
    found = write(tmp_path, one=SIZED, two=SIZED, three=SIZED.replace("class Net", "class Other"))
    with pytest.raises(AmbiguousError, match=r"--model one.py:Net\n.*--model Other\n.*--model two.py:Net"):
        resolve(found, model="Missing")
    assert resolve(found, model="two.py:Net").factory == "two.py:4"


def test_a_resize_of_images_that_are_all_alike(tmp_path):
    found = write(
        tmp_path,
        net=SIZED.replace("input_size=64", "wide=False"),
        main="""
            import torchvision
            from torchvision import transforms
            from net import Net

            size = int("32")
            resized = transforms.Compose([transforms.Resize(size), transforms.ToTensor()])
            kept = torchvision.datasets.CIFAR10("data", transform=resized)
            net = Net()
            for images, labels in kept:
                outputs = net(images)
                correct = outputs.argmax(1) == labels
        """,
    )
    assert resolve(found).image_size == (3, 32, 32)
    resized = Preprocessing(geometry=(Resize(size=48),))
    assert row_shape(resized) is None
    assert row_shape(resized, (32, 32)) == (3, 48, 48)


def test_a_transform_needs_no_weights(tmp_path):
    found = write(
        tmp_path,
        net=SIZED,
        main="""
            import argparse
            import numpy as np
            import torchvision
            from torchvision import transforms
            from net import Net

            def setup(args):
                model = Net()
                model.load_from(np.load(args.weights))
                args.size = 48
                return args, model

            parser = argparse.ArgumentParser()
            parser.add_argument("--weights", default="none.npz")
            args, model = setup(parser.parse_args())
            transform = transforms.Compose([transforms.Resize((args.size, args.size)), transforms.ToTensor()])
            for images, labels in torchvision.datasets.CIFAR10("data", transform=transform):
                outputs = model(images)
                correct = outputs.argmax(1) == labels
        """,
    )
    resolved = resolve(found)
    assert "load_from" in resolved.recipe.source
    assert "args.size = 48" in resolved.transform_recipe.source
    assert "load_from" not in resolved.transform_recipe.source


def test_folders_whose_names_are_no_identifiers(tmp_path):
    folder = tmp_path / "back-end 2"
    folder.mkdir()
    write(
        folder,
        net=NET,
        inference="""
            from torch import nn

            def with_scores(model):
                return nn.Sequential(model, nn.Softmax(1))

            def predict(images, model):
                model = with_scores(model)
                return model(images)
        """,
        app="""
            from inference import predict
            from net import Net

            net = Net(num_classes=3).eval()
            print(predict(images, net))
        """,
    )
    source = resolve(survey(tmp_path)).recipe.source
    assert "def _from_back_end_2_inference():" in source
    compile(source, "recipe", "exec")


def test_a_package_without_a_script_says_by_its_functions_how_the_model_is_built(tmp_path):
    found = write(
        tmp_path,
        net=NET,
        predictor="""
            import torch
            from net import Net

            class Predictor:
                def __init__(self, weights):
                    self.model = Net(num_classes=3)
                    self.model.load_state_dict(torch.load(weights))

                def predict(self, images):
                    return self.model(images).softmax(1)

            def classify(images):
                return Predictor("best.pth").predict(images)
        """,
    )
    assert "Net(num_classes=3)" in resolve(found).recipe.source
