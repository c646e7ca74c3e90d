"""The configuration that Hydra hands to a script's main function is composed for the model too."""

import sys

import pytest

from headrace.errors import MigrateError
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.survey.survey import survey

SCRIPT = """
import hydra
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


def evaluate(model, loader):
    with torch.no_grad():
        for images, labels in loader:
            print((model(images).argmax(1) == labels).sum())


@hydra.main(%s)
def main(cfg):
    evaluate(Net(cfg.model.classes), [])


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("model:\n  classes: 3\n")

    def make(arguments):
        (tmp_path / "evaluate.py").write_text(SCRIPT % arguments)
        return survey(tmp_path)

    return make


@pytest.mark.parametrize(
    "arguments",
    [
        'config_path="conf", config_name="config"',
        '"conf", "config.yaml"',
        'version_base=None, config_path="conf", config_name="config"',
    ],
)
def test_configuration_is_composed_where_the_script_stands(repository, arguments):
    source = resolve(repository(arguments)).recipe.source
    assert ".compose('config', overrides=" in source
    assert "dirname(__file__), 'conf')" in source


def test_model_is_made_as_configured(repository, monkeypatch):
    pytest.importorskip("hydra")
    resolved = resolve(repository('config_path="conf", config_name="config"'), entry="evaluate.py model.classes=7")
    recipe = resolved.recipe
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *recipe.argv])
    names = {"__name__": "__headrace__", "__file__": f"{recipe.root}/evaluate.py"}
    exec(compile(recipe.source, "recipe", "exec"), names)
    assert eval(recipe.expression, names).fc.out_features == 7


def test_a_name_that_is_not_literal_is_not_guessed(repository):
    with pytest.raises(MigrateError, match="cannot be built without num_classes"):
        resolve(repository("config_path=PLACE, config_name=NAME"))
