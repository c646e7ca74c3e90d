"""Which of the preprocessings that a transform proved equal to is the model's, and what is said where none is."""

from dataclasses import replace

import pytest

from headrace.migrate.proving.trace_transform import Traced
from headrace.migrate.reading.recipe import LiveModel, TransformRecipe
from headrace.migrate.resolving.resized import resizing_transforms
from headrace.migrate.resolving.resolved import ChainStep
from headrace.migrate.stages.model.preprocessing import preprocessing_of, traced
from headrace.migrate.survey.survey import project_index
from headrace.specs import CenterCrop, Preprocessing, Resize

COLORED = Preprocessing(geometry=(CenterCrop(size=(16, 16)),), source="data.py:9")
GRAY = Preprocessing(mode="L", channels="L", mean=(0.5,), std=(0.5,), geometry=(CenterCrop(size=(16, 16)),), source="data.py:9")
ANY_SIZE = Preprocessing(source="data.py:9")


def test_without_a_transform_nothing_runs_and_that_is_said(migration_of, resolved, remarks):
    migration = migration_of()
    found = traced(migration, resolved())
    assert preprocessing_of(migration, resolved(), found, (3, 16, 16))[0] is None
    assert remarks(migration) == [
        (
            "PS504",
            "no preprocessing is known, so the model takes tensors, not images: "
            "no evaluation transform was found in the scripts",
        )
    ]


PREDICTS = """
import torch

model = torch.nn.Linear(3, 2).eval()

def predict(path):
    with torch.no_grad():
        return model(read(path)).argmax(1)

if __name__ == "__main__":
    print(predict("a.png"))
"""


@pytest.mark.parametrize(("script", "named"), [("train.py", True), ("app.py", False)])
def test_another_script_that_predicts_is_named_where_none_is_known(migration_of, resolved, remarks, script, named):
    migration = migration_of({"app.py": PREDICTS})
    (app,) = migration.surveyed.scripts
    model = resolved(script=replace(app, path=script))
    preprocessing_of(migration, model, Traced(why="the transform is random"), (3, 16, 16))
    ((_, message),) = remarks(migration)
    told = "the transform is random; app.py predicts as well: --entry app.py takes the model and its preprocessing from there"
    assert message.endswith(told if named else "the transform is random")


@pytest.mark.parametrize(
    ("row", "chosen"), [((1, 16, 16), GRAY), ((3, 16, 16), COLORED), ((3, 99, 7), ANY_SIZE), ((1, 20, 20), None)]
)
def test_the_models_channels_and_size_choose(migration_of, resolved, remarks, row, chosen):
    migration = migration_of()
    found = Traced(candidates=(COLORED, GRAY, ANY_SIZE), notes=("it cuts",))
    made, why = preprocessing_of(migration, resolved(), found, row)
    assert made is chosen
    if chosen is not None:
        assert (why, remarks(migration)) == ("", [("PS509", "it cuts")])
    else:
        assert why == "the transform gives 3x16x16, 1x16x16, any size, the model takes 1x20x20"
        assert [code for code, _ in remarks(migration)] == ["PS504"]


@pytest.mark.parametrize("shown", [Traced(candidates=(GRAY,)), Traced(why="it is random")])
def test_where_a_run_shows_another_transform_than_the_sources_state_its_place_is_the_models_call(
    migration_of, resolved, remarks, shown
):
    """The source has that of another script, which predicts with another size."""
    migration = migration_of()
    stated = TransformRecipe(root="/r", script="infer.py", takes="image", source_at="infer.py:19")
    live = replace(stated, script="train.py", live=LiveModel(class_name="Net", ordinal=0, evaluating=True, row=(3, 16, 16)))
    model = resolved(transform_recipe=live, stated_transform=stated, chain=(ChainStep("call", "train.py", 7, "Net"),))
    read, tree = Traced(candidates=(COLORED,)), migration.tree
    migration.traced[stated.in_copy(tree), None] = read
    migration.traced[live.in_copy(tree), read] = Traced(why="off by 3")  # the run does something else
    migration.traced[replace(live, source_at="train.py:7").in_copy(tree), None] = shown
    found = traced(migration, model)
    assert (found.candidates, found.why) == (shown.candidates, shown.why)
    assert preprocessing_of(migration, model, found, (3, 16, 16))[0] is None
    assert [finding.where for finding in migration.findings] == ["train.py:7:0"]


@pytest.mark.parametrize(("mean", "said"), [("[0.5, 0.5, 0.5]", ["PS530"]), ("[0.0, 0.0, 0.0]", [])])
def test_training_with_other_numbers_is_remarked(migration_of, resolved, remarks, mean, said):
    source = (
        "import torch\nfrom torchvision import transforms as T\n"
        f"train = T.Compose([T.RandomCrop(16), T.ToTensor(), T.Normalize({mean}, [1.0, 1.0, 1.0])])\n"
    )
    migration = migration_of({"data.py": source})
    assert preprocessing_of(migration, resolved(), Traced(candidates=(COLORED,)), (3, 16, 16)) == (COLORED, "")
    assert [code for code, _ in remarks(migration)] == said


@pytest.mark.parametrize(
    ("geometry", "mean", "taken"),
    [
        ((Resize(size=(16, 16)),), (0.0, 0.0, 0.0), True),
        ((Resize(size=(16, 16)),), (0.5, 0.5, 0.5), False),
        ((Resize(size=(32, 32)),), (0.0, 0.0, 0.0), False),
        ((Resize(size=20), CenterCrop(size=(16, 16))), (0.0, 0.0, 0.0), False),
    ],
)
def test_pictures_are_resized_as_where_the_repository_predicts(migration_of, resolved, remarks, geometry, mean, taken):
    """CIFAR's images need no resize, those of the page do; the package refused all of another size."""
    migration = migration_of(
        {"page.py": "from torchvision import transforms as T\npage = T.Compose([T.Resize(16), T.ToTensor()])\n"}
    )
    (recipe,) = resizing_transforms(migration.surveyed.root, project_index(migration.surveyed), "RGB")
    there = Preprocessing(geometry=geometry, mean=mean, source="page.py:2")
    migration.traced[recipe.in_copy(migration.tree), None] = Traced(candidates=(there,))
    made, why = preprocessing_of(migration, resolved(), Traced(candidates=(ANY_SIZE,)), (3, 16, 16))
    assert (made, made.source, why) == ((there, "page.py:2", "") if taken else (ANY_SIZE, "data.py:9", ""))
    assert [code for code, _ in remarks(migration)] == ["PS509"] * taken
