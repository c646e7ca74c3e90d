"""Which of the places that read weights are said to have given the packaged ones."""

import pytest

from headrace.migrate.reading.facts import CheckpointSite
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reading.recipe import Recipe
from headrace.migrate.reporting.checkpoint_report import report_checkpoints, warn_of_pickles
from headrace.migrate.reporting.report import CheckpointReport, Report
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.survey.survey import survey

OTHER = "not part of the packaged model's construction"
ABSENT = "file not in the repository"


@pytest.mark.parametrize(
    ("taken", "loaded", "expected"),
    [
        ("/r/kept/new.pt", True, [OTHER, None]),
        ("", True, [None, None]),
        # What stood in for a download, with weights that nobody has: the script's own files are no others for that.
        ("/r/hub/resnet50-11ad3fa6.pth", False, [ABSENT, ABSENT]),
    ],
)
def test_of_the_files_that_scripts_name_the_one_that_a_run_took_is_told(tmp_path, taken, loaded, expected):
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
    report_checkpoints(report, surveyed, resolved, loaded=loaded, asked=False)
    found = sorted(report.checkpoints, key=lambda item: item.path != "old.pt")
    assert [item.why for item in found] == expected
    assert [item.loaded for item in found] == [why is None for why in expected]


def test_where_torch_refuses_a_file_that_a_run_took_a_warning_says_so():
    report = Report(repository="r")
    report.checkpoints = [
        CheckpointReport(source="a.py:3", path="kept/best.pt"),
        CheckpointReport(source="a.py:9", path="b.pt"),
    ]
    stood_in = Finding("a.py", 1, 0, "PS517", "run to see its model: weights: best.pt holds more than weights: torch.load ...")
    notes = [Finding("a.py", line, 8, "PS113", "torch.load reads only tensors") for line in (3, 9)]
    report.findings = [stood_in, *notes, Finding("a.py", 3, 8, "PS202", "the prediction calls model eagerly")]
    warn_of_pickles(report)
    assert [(finding.code, finding.line, finding.severity) for finding in report.findings] == [
        ("PS517", 1, "note"), ("PS113", 3, "warning"), ("PS113", 9, "note"), ("PS202", 3, "note"),
    ]  # fmt: skip
    assert "torch.load refuses kept/best.pt here since torch 2.6" in report.findings[1].message
