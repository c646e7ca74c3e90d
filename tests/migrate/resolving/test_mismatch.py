"""Training and evaluation transforms that disagree about mean and std are noticed; those that agree are not."""

import pytest

from headrace.migrate.resolving.mismatch import trained_otherwise
from headrace.migrate.survey.survey import project_index, survey

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def module(tmp_path, text):
    (tmp_path / "data.py").write_text(f"import torch\nfrom torchvision import transforms as T\n{text}")
    return project_index(survey(tmp_path)).repository.modules["data.py"]


@pytest.mark.parametrize(
    "text",
    [
        "train = T.Compose([T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])",
        "normalize = T.Normalize((0.5,), (0.5,))\ntrain = T.Compose([T.RandomCrop(32), T.ToTensor(), normalize])",
        "M = (0.5, 0.5, 0.5)\nS = M\ntrain = T.Compose([T.ColorJitter(), T.ToTensor(), T.Normalize(mean=M, std=S)])",
    ],
)
def test_other_numbers_than_evaluation(tmp_path, text):
    there = module(tmp_path, text)
    assert trained_otherwise(HALVES, [there]) is None
    found = trained_otherwise(IMAGENET, [there])
    assert found is not None
    assert found[0] == "data.py"


@pytest.mark.parametrize(
    "text",
    [
        "train = T.Compose([T.RandomCrop(32), T.ToTensor()])",
        "train = T.Compose([T.RandomCrop(32), T.ToTensor(), T.Normalize(compute_mean(), compute_std())])",
        "train = T.Compose([T.RandomCrop(32), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])",
        "test = T.Compose([T.ToTensor(), T.Normalize((0.1, 0.1, 0.1), (0.2, 0.2, 0.2))])",
    ],
)
def test_nothing_to_compare_or_nothing_different(tmp_path, text):
    assert trained_otherwise(IMAGENET, [module(tmp_path, text)]) is None
