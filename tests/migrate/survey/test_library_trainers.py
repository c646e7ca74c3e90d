"""Scripts that leave their loops to a library's trainer."""

import re
import textwrap

import pytest

from headrace.errors import NothingToMigrateError
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.rewriting.rewrite import rewrite
from headrace.migrate.survey.survey import resurvey, survey
from tests.migrate.repositories import surveyed

NETS = """
    from torch import nn

    class Small(nn.Module):
        def __init__(self, width=8, num_classes=10):
            super().__init__()
            self.conv = nn.Conv2d(3, width, 3)
            self.fc = nn.Linear(width, num_classes)

        def forward(self, x):
            return self.fc(self.conv(x).mean((2, 3)))

    class Large(Small):
        def __init__(self, **kwargs):
            super().__init__(width=64, **kwargs)
"""


def write(root, **files):
    return surveyed(root, nets=NETS, **files)


@pytest.mark.parametrize(
    "handed",
    [
        "trainer = create_supervised_trainer(model, optimizer, loss)",
        "with library.SupervisedTrainer(model, optimizer, loss) as trainer:\n    trainer.train(loader)",
        "Runner().train(model=model, loaders=loaders)",
        "Trainer(model=model, args=options, train_dataset=train, eval_dataset=test).train()",
        "Learner(dls, model, loss).fit(5)",
        "fit(Large(num_classes=5), loader)",
    ],
)
def test_what_a_library_is_handed_is_the_model(tmp_path, handed):
    found = write(
        tmp_path,
        run=f"""
            from library import *
            import library
            from nets import Large

            model = Large(num_classes=5)
            {textwrap.indent(handed, " " * 12).strip()}
        """,
    )
    (script,) = found.scripts
    assert (script.path, script.roles) == ("run.py", ("train",))
    resolved = resolve(found)
    assert resolved.factory_name == "Large"
    assert "Large(num_classes=5)" in resolved.recipe.source
    assert rewrite(found) == []  # there is no loop to rewrite


def test_it_is_followed_through_the_scripts_arguments_and_data(tmp_path):
    found = write(
        tmp_path,
        run="""
            import argparse
            from library import Trainer
            from nets import Large, Small
            from torchvision import transforms
            from torchvision.datasets import ImageFolder

            def main(args):
                model = Large(num_classes=args.classes) if args.large else Small()
                train = ImageFolder("data/train", transforms.Compose([transforms.RandomCrop(32), transforms.ToTensor()]))
                test = ImageFolder("data/test", transforms.Compose([transforms.Resize(40), transforms.ToTensor()]))
                Trainer(model, train_dataset=train, eval_dataset=test).train()

            if __name__ == "__main__":
                parser = argparse.ArgumentParser()
                parser.add_argument("--classes", type=int, default=7)
                parser.add_argument("--large", action="store_true")
                main(parser.parse_args())
        """,
    )
    resolved = resolve(found)
    assert "--classes" in resolved.recipe.source
    assert "Resize(40)" in resolved.transform_recipe.source


@pytest.mark.parametrize(
    "line",
    [
        "summary(model, (3, 32, 32))",
        "print(model)",
        "torch.onnx.export(model, torch.zeros(1, 3, 32, 32), 'model.onnx')",
        "own_train(model)",
        "trainer.fit(data)",
    ],
)
def test_what_is_no_librarys_trainer_is_none(tmp_path, line):
    found = write(
        tmp_path,
        tools="def own_train(model):\n    return sum(p.numel() for p in model.parameters())\n",
        run=f"import torch\nfrom library import summary, trainer, data\nfrom nets import Small\nfrom tools import own_train\nmodel = Small()\n{line}\n",  # noqa: E501
    )
    assert found.scripts == ()


def test_a_script_with_a_loop_of_its_own_counts_by_that(tmp_path):
    found = write(
        tmp_path,
        run="""
            from library import Trainer
            from nets import Large, Small

            model, other = Small(), Large()
            Trainer(other).train()
            model.eval()
            for images, labels in loader:
                print((model(images).argmax(1) == labels).sum())
        """,
    )
    assert found.scripts[0].roles == ("evaluate",)
    assert resolve(found).factory_name == "Small"


def test_of_two_such_scripts_the_first_by_name_is_taken(tmp_path):
    script = "from library import Trainer\nfrom nets import {0}\nTrainer({0}()).train()\n"
    found = write(tmp_path, cifar=script.format("Small"), imagenet=script.format("Large"))
    assert resolve(found).recipe.script == "cifar.py"
    assert resolve(found, entry="imagenet.py").factory_name == "Large"


@pytest.mark.parametrize(
    ("source", "maker"),
    [
        ("from fastai.vision.all import *\nlearn = vision_learner(dls, resnet34)\n", "vision_learner() of fastai"),
        ("from ultralytics import YOLO\nYOLO('a.pt').predict('a.jpg')\n", "YOLO() of ultralytics"),
        ("import transformers as hf\npipe = hf.pipeline('image-classification')\n", "pipeline() of transformers"),
    ],
)
def test_a_library_that_owns_the_loop_is_named(tmp_path, source, maker):
    (tmp_path / "main.py").write_text(source)
    surveyed = survey(tmp_path)
    (finding,) = surveyed.findings
    assert (finding.where.rpartition(":")[0], finding.code) == ("main.py:2", "PS016")
    assert finding.message.startswith(f"{maker} holds the model and its loops")
    assert resurvey(surveyed, surveyed.files).findings == surveyed.findings
    with pytest.raises(NothingToMigrateError, match=re.escape(f"main.py:2:{finding.column}: {maker}")):
        resolve(surveyed)


def test_a_function_of_ones_own_is_no_library(tmp_path):
    (tmp_path / "main.py").write_text("import torch, transformers\n\n\ndef pipeline():\n    pass\n\n\npipeline()\n")
    assert survey(tmp_path).findings == ()
