"""Where stored weights are read, and what is taken off their keys."""

import pytest

from headrace.migrate.survey.survey import survey

LOADED = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 2))
{treated}
net.load_state_dict(torch.load("best.pth")["state_dict"])
net.eval()
net(images)
"""


@pytest.mark.parametrize(
    ("treated", "strip"),
    [
        ("state = {key.removeprefix('module.'): value for key, value in stored.items()}", "module."),
        ("for key in stored:\n    new[key.replace('backbone.', '')] = stored[key]", "backbone."),
        # Which of the model's own parameters learn has nothing to do with what a file calls them.
        ("for name, value in net.named_parameters():\n    value.requires_grad = name.startswith('classifier.')", None),
        ("head = [value for name, value in net.named_parameters() if name.startswith('head.')]", None),
    ],
)
def test_a_prefix_is_taken_off_the_keys_of_a_file_and_off_no_names_of_the_model(tmp_path, treated, strip):
    (tmp_path / "main.py").write_text(LOADED.format(treated=treated))
    assert [site.strip for site in survey(tmp_path).checkpoints] == [strip]
