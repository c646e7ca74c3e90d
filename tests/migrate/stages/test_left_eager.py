"""A model that no graph can hold: its scripts stay eager and behave as before, and a finding says where and why."""

from functools import partial
from pathlib import Path

import pytest

from headrace.migrate.proving.confined_run import Limits
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.reporting.report import ModelReport, Parity
from headrace.migrate.rewriting.rewrite import rewrite_all, rewritten_scripts
from headrace.migrate.stages.left_eager import Migrated, calls_of_no_graph, run_or_leave_eager
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.stages.package_model import ModelOutcome
from headrace.migrate.stages.scripts.migrated import ScriptOutcome
from headrace.migrate.stages.scripts.originals import run_originals
from headrace.migrate.survey.survey import survey

pytestmark = pytest.mark.usefixtures("warm_sandbox")

LEAVES_EARLY = """
import torch
from torch import nn


class Early(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rest = nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x):
        x = x.flatten(1)
        out = self.first(x)
        sure = out.softmax(1).amax(1) >= 0.4
        if sure.all():
            return out
        return torch.where(sure[:, None], out, self.rest(x))
"""
EVALUATES = """
import numpy as np
import torch
from net import Early

torch.manual_seed(0)
model = Early()
model.eval()
right = 0
with torch.no_grad():
    for images, labels in [(torch.randn(4, 3, 2, 2), torch.arange(4) % 3) for _ in range(3)]:
        outputs = model(images)
        right += (outputs.argmax(1) == labels).sum().item()
print({number}(right), float(outputs.sum()))
"""


def migrated(root: Path, tmp_path: Path, models=()) -> tuple[Migrated, Migration]:
    (root / "net.py").write_text(LEAVES_EARLY)
    (tmp_path / "scratch").mkdir()
    rewrite = partial(rewrite_all, survey(root))
    found = rewrite()
    migration = Migration(
        scratch=tmp_path / "scratch", surveyed=found.survey, stages=Stages(None), repairs=found.repairs,
        rewritten=rewritten_scripts(found.survey, found.changes), options=Options(limits=Limits(timeout=240)),
    )  # fmt: skip
    migration.fresh_tree("copy")
    originals = run_originals(migration, None)
    result = run_or_leave_eager(migration, found.changes, originals, [], models, lambda eager: rewrite(eager=eager))
    return result, migration


def test_a_script_whose_model_leaves_early_by_the_data_stays_as_it_was(tmp_path):
    root = tmp_path / "thing"
    root.mkdir()
    (root / "evaluate.py").write_text(EVALUATES.format(number="int"))
    result, migration = migrated(root, tmp_path)
    assert not any(change.changed for change in result.changes)
    assert result.rewritten == {}
    outcome = result.outcomes["evaluate.py"]
    assert outcome.status == "not-run"
    assert outcome.why is not None
    assert outcome.why.startswith("left as it was, because the model cannot be captured: net.py:15: PG120 ")
    (finding,) = [item for change in result.changes for item in change.findings if item.code == "PS201"]
    assert (finding.severity, finding.path, finding.line) == ("warning", "evaluate.py", 12)
    assert "net.py:15: PG120" in finding.message
    assert "torch.where" in finding.message
    assert not [item for item in migration.findings if item.code == "PS401"]


def test_what_else_was_rewritten_stays_and_is_run_again(tmp_path):
    root = tmp_path / "thing"
    root.mkdir()
    (root / "evaluate.py").write_text(EVALUATES.format(number="np.int"))
    result, migration = migrated(root, tmp_path)
    (change,) = [change for change in result.changes if change.changed]
    assert b"headrace" not in change.after
    assert result.rewritten == {"evaluate.py": ["PS116"]}
    assert result.outcomes["evaluate.py"].status == "passed"
    assert not [item for item in migration.findings if item.severity == "error"]


def test_scripts_that_were_not_run_stay_eager_where_the_repositorys_model_cannot_be_captured(tmp_path):
    (tmp_path / "net.py").write_text(LEAVES_EARLY)
    (tmp_path / "evaluate.py").write_text(EVALUATES.format(number="int"))
    surveyed = survey(tmp_path)
    why = "Early cannot become one graph\n  net.py:15: PG120 Python needs a tensor's value here"
    model = ModelOutcome(model=ModelReport(name="Early", built=True, parity=Parity(why=why)))
    (said,) = calls_of_no_graph(surveyed, [], [model], {}).values()
    assert "this script was not run, and Early, the repository's model, cannot be captured: net.py:15: PG120 " in said
    assert calls_of_no_graph(surveyed, [], [model], {"evaluate.py": ScriptOutcome(status="passed")}) == {}
    captured = ModelOutcome(model=ModelReport(name="Other", built=True, captured=True))
    assert calls_of_no_graph(surveyed, [], [model, captured], {}) == {}
