"""Which transforms of a repository resize, and how each is made again."""

from headrace.migrate.resolving.resized import resizing_transforms
from headrace.migrate.survey.survey import project_index, survey

SOURCE = """
from torchvision import transforms as T
SIZE = 24
def evaluation():
    return T.Compose([T.ToTensor()])
train = T.Compose([T.Resize(SIZE), T.RandomHorizontalFlip(), T.ToTensor()])
page = T.Compose([T.Resize((SIZE, SIZE)), T.ToTensor()])
def again():
    steps = T.Compose([T.Resize((SIZE, SIZE)), T.ToTensor()])
    return steps
"""


def test_those_that_resize_and_do_not_augment_are_offered_once(tmp_path):
    (tmp_path / "page.py").write_text(SOURCE)
    (recipe,) = resizing_transforms(tmp_path, project_index(survey(tmp_path)), "L")
    assert (recipe.source_at, recipe.takes, recipe.convert) == ("page.py:7", "image", "L")
    assert "SIZE = 24" in recipe.source
    assert "Random" not in recipe.source
