"""The commands: what they print, and the page they write."""

import json
import re

import pytest

from tests.benchmarks.scale.__main__ import main


def test_validate_says_what_holds(stages_file, capsys):
    status = main(["validate", "--stages", str(stages_file), "--seconds", "2"])
    said = capsys.readouterr().out
    assert said.count("at a time") == 6
    assert said.count("Poisson") == 4
    assert status == ("OUTSIDE" in said)


@pytest.mark.slow
def test_the_page(stages_file, tmp_path):
    """A small demand, so that the clusters are quickly simulated."""
    out = tmp_path / "scale"
    arguments = ["docs", "--stages", str(stages_file), "--out", str(out), "--seconds", "1", "--requests", "300"]
    assert main([*arguments, "--images-per-day", "2e6"]) == 0
    page, record = out.with_suffix(".md").read_text(), json.loads(out.with_suffix(".json").read_text())
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "2.0 million images a day are 23.1 a second" in page
    assert "published" in page
    assert "make bench-gpu" in page
    for episode in record["episodes"]:
        assert episode["what"] in page
        assert sum(episode["outcomes"].values()) > 100
        assert episode["before"]["p99_ms"] > 0
    assert record["cpu"]["machines"] > record["cpu"]["tight"] > 0
    assert [one["limit_ms"] for one in record["gpu"]["per_gpu"]] == [15.0, 25.0, 50.0]
    rates = [one["rate"] for one in record["gpu"]["per_gpu"]]
    assert rates == sorted(rates)
    for one in record["validation"]:
        assert f"| {one['traffic']} | {one['figure']} |" in page
    assert not re.search(r"\bnan\b", page)
    assert "with each at its mean" in page


def test_without_stages_the_remedy_is_named(tmp_path, capsys):
    assert main(["validate", "--stages", str(tmp_path / "none.json")]) == 2
    assert "make stages" in capsys.readouterr().err


def test_what_cannot_be_asked_for(stages_file, capsys):
    assert main(["predict", "--stages", str(stages_file), "--peak", "0.1"]) == 2
    assert "peak >= 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
