"""`headrace migrate --parallel` from end to end."""

import pytest

import headrace
from tests.migrate.rewriting.parallel.styles import DATA, NET, TORCHRUN


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in {"net": NET, "data": DATA, "train": TORCHRUN}.items():
        (root / f"{name}.py").write_text(text)
    return root


def test_only_the_option_asks_for_it(repository):
    plain = headrace.migrate(repository, check=True)
    assert "to_global" not in plain.diff
    asked = headrace.migrate(repository, check=True, parallel=True)
    assert "+    model = headrace.parallel.to_global(" in asked.diff
    assert [script.rules for script in asked.scripts] == [["PS304"]]
    left = headrace.migrate(repository, check=True, parallel=True, ignore=["PS304"])
    assert "to_global" not in left.diff


@pytest.mark.slow
def test_the_report_says_on_how_many_ranks_it_was_proved(repository, tmp_path):
    report = headrace.migrate(
        repository, out=tmp_path / "out", parallel=True, random_weights=True, precision="fp32", tuning_seconds=1
    )  # fmt: skip
    (script,) = report.scripts
    assert (script.executed, script.why) == ("passed", None)
    assert script.told.endswith("2 ranks")
    assert script.loss_trace.ranks == 2
    assert report.to_json()["scripts"][0]["loss_trace"]["ranks"] == 2
    assert "to_global" in (tmp_path / "out" / "train.py").read_text()
    assert headrace.migrate(tmp_path / "out", check=True, parallel=True).would_change is False
