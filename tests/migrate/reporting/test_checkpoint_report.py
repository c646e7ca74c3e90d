"""Which of the places that read weights are said to have given the packaged ones."""

import pytest

from headrace.migrate.reading.facts import CheckpointSite
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.reporting.checkpoint_report import report_checkpoints
from headrace.migrate.reporting.report import Report
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.survey.survey import survey


@pytest.mark.parametrize(("taken", "expected"), [("/r/kept/new.pt", [False, True]), ("", [True, True])])
def test_of_the_files_that_scripts_name_the_one_that_a_run_took_is_told(tmp_path, taken, expected):
    for name in ("old", "new"):
        (tmp_path / f"{name}.py").write_text(
            f"import torch\nfrom net import Net\nnet = Net()\nnet.load_state_dict(torch.load('{name}.pt'))\n"
        )
    surveyed = survey(tmp_path)
    sites = tuple(site for site in surveyed.checkpoints if site.weights)
    assert [type(site) for site in sites] == [CheckpointSite] * 2
    recipe = Recipe(root=str(tmp_path), script="new.py", source="net = Net()\n", expression="net")
    resolved = Resolved(name="Net", recipe=recipe, checkpoints=sites, weights_from=(taken,) if taken else ())
    report = Report(repository=str(tmp_path))
    report_checkpoints(report, surveyed, resolved, loaded=True, asked=False)
    assert [item.loaded for item in sorted(report.checkpoints, key=lambda item: item.path != "old.pt")] == expected
