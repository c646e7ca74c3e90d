"""The Markdown report shows what the report holds, and nothing of the repository becomes markup in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

from headrace.errors import MigrateError
from headrace.migrate.proving.measurements import Losses, agreements, losses
from headrace.migrate.proving.verify import Recorded
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reporting.markdown_report import to_markdown, write_markdown
from headrace.migrate.reporting.report import (
    CheckpointReport,
    LossTrace,
    ModelReport,
    Parity,
    PreprocessingReport,
    Report,
    ScriptReport,
    Speedup,
)
from headrace.migrate.resolving.resolved import ChainStep
from headrace.migrate.rewriting.rewrite import Change


def words_of(text: str) -> str:
    """What a reader sees of the Markdown; fails where there is any other markup than headings, tables, and code blocks."""
    words = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        kind = token.type.removesuffix("_open").removesuffix("_close")
        assert kind in {"heading", "paragraph", "inline", "fence", "table", "thead", "tbody", "tr", "th", "td"}, token
        assert {child.type for child in token.children or ()} <= {"text", "text_special", "softbreak"}, token
        words += [child.content for child in token.children] if token.children is not None else [token.content]
        words += [" "] * (token.type != "inline")
    return " ".join("".join(words).split())


def notebook(source: str) -> bytes:
    cells = [{"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()


def report(evil: str = "") -> Report:
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(7, 5)).astype(np.float32)
    before = Recorded(inputs=np.zeros((7, 3)), outputs=outputs)
    after = Recorded(inputs=np.zeros((7, 3)), outputs=outputs + rng.normal(size=(7, 5)).astype(np.float32) * 1e-6)
    speed = Speedup(
        batch=1, eager_ms=4.0, graph_ms=1.0, ratio=4.0, ratio_low=3.9, ratio_high=4.1, chosen=f"openvino{evil} fp32"
    )  # fmt: skip
    made = Report(
        repository=f"/r/name{evil}",
        models=[
            ModelReport(
                name=f"net{evil}", factory=f"net.py{evil}:7", input=[3, 32, 32], classes=5, built=True, captured=True,
                parity=Parity(status="passed", max_abs=1e-6, top1_agreement=1.0, why=f"on images{evil}"), served=True,
                speed=[speed],
            )
        ],
        scripts=[ScriptReport(path=f"main.py{evil}", roles=["evaluate"], rules=["PS201"], why=f"why{evil}")],
        preprocessing=[
            PreprocessingReport(
                source=f"main.py{evil}:3", for_models=[f"net{evil}"], steps=[{"op": f"resize{evil}", "size": [32, 32]}]
            )
        ],
        checkpoints=[
            CheckpointReport(source=f"main.py{evil}:8", path=f"c.pth{evil}", key=f"net{evil}", strip=f"module.{evil}")
        ],
        findings=[Finding(f"b.py{evil}", 2, 0, f"PS104{evil}", f"message{evil}", "warning")],
        chain=(ChainStep("factory", f"m.py{evil}", 7, f"resnet18({evil})"),),
        changes=[
            Change(
                f"main.py{evil}", f"x = 1  # old{evil}\nsame = '''{evil}'''\n".encode(),
                f"x = 2  # new{evil}\nsame = '''{evil}'''\n".encode(), [f"PS201{evil}"], [],
            ),
            Change("notes.ipynb", notebook(f"y = 1  # old{evil}"), notebook(f"y = 2  # new{evil}"), ["PS201"], []),
        ],
        would_change=True,
        agreements=agreements(f"main.py{evil}", {f"main.py:9{evil}": before}, {f"main.py:9{evil}": after}),
        losses=losses(f"main.py{evil}", {f"main.py:f:1{evil}": np.array([2.5, 1.5])}, {f"main.py:f:1{evil}": np.ones(2)}),
    )  # fmt: skip
    made.blocked = f"blocked{evil}"
    return made


def test_the_report_shows_everything() -> None:
    words = words_of(to_markdown(report()))
    for expected in (
        "name", "Not written in place: blocked", "net.py:7", "3x32x32", "100.00%", "resnet18()", "resize size 32 32", "c.pth",
        "PS104", "message", "net 1 4.00 1.00 openvino fp32 4.00 (3.90 to 4.10)",
         "main.py:9 7", "-x = 1 # old", "+x = 2 # new", "1 of 1",
        "notes.ipynb:cell 1", "from 1e-7: ",
    ):  # fmt: skip
        assert expected in words, expected


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "![x](http://x/y.png)",
        "| a | b\n\n# heading\n\n---\n",
        "```\n**bold** <!--",
        "&lt;b&gt; &amp;",
        "~~a~~ _b_ *c* `d` \\",
        "<http://x> [a]: http://x",
    ],
)
def test_nothing_of_the_repository_becomes_markup(evil: str) -> None:
    words = words_of(to_markdown(report(evil)))
    assert words.count(" ".join(f"message{evil}".split())) == 1, "it is shown as the text that it is"


def test_characters_that_hide_others_are_spelled_out() -> None:
    made = Report(repository="/r")
    made.findings = [Finding("a\u202ecod.exe", 1, 0, "PS001", "zero\u200bwidth \x1b[31m \udce9", "note")]
    words = words_of(to_markdown(made))
    assert "a\\u202ecod.exe" in words
    assert "zero\\u200bwidth \\u001b[31m \\udce9" in words


def test_an_empty_report_is_a_report(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    write_markdown(Report(repository="/r"), path)
    assert "Nothing to change. No errors, no warnings." in words_of(path.read_text())
    with pytest.raises(MigrateError, match="cannot write the report"):
        write_markdown(Report(repository="/r"), tmp_path / "nowhere" / "report.md")


def test_the_diff_keeps_every_character_and_leaves_out_what_is_far() -> None:
    before = "".join(f"line_{number} = {number}\n" for number in range(100))
    after = before.replace("line_50 = 50\n", "line_50 = compile(50)\nnew = '''\n```\n'''\n")
    made = Report(repository="/r", changes=[Change("a.py", before.encode(), after.encode(), ["PS201"], [])])
    words = words_of(to_markdown(made))
    assert "-line_50 = 50 +line_50 = compile(50) +new = ''' +``` +''' line_51" in words
    assert "line_47 = 47" in words
    assert "line_40 = 40" not in words
    crlf = Report(repository="/r", changes=[Change("a.py", before.replace("\n", "\r\n").encode(), after.encode(), [], [])])
    assert "u000d" not in words_of(to_markdown(crlf))


def test_outputs_that_are_not_finite_are_left_out() -> None:
    recorded = Recorded(inputs=np.zeros((1, 3)), outputs=np.array([[np.nan, 1.0, np.inf]]))
    made = Report(repository="/r", agreements=agreements("m.py", {"s": recorded}, {"s": recorded}))
    assert "m.py s 1 0 equal: 1" in words_of(to_markdown(made))


def test_the_losses_of_both_trainings_are_listed_where_they_are() -> None:
    made = report()
    made.scripts[0].loss_trace = LossTrace(status="failed", steps=2, max_relative=0.6, tolerance=1e-5)
    words = words_of(to_markdown(made))
    assert "Same training" in words
    assert "main.py, training loop main.py:f:1" in words
    assert "the losses of 2 steps of the original, 2 of the migrated; the largest relative difference is 0.6" in words
    assert "1e-05 is allowed" in words
    assert "1 2.5 1 2 1.5 1" in words
    assert "Same training" not in words_of(to_markdown(Report(repository="/r")))
    longer = Losses(script="a.py", site="a.py:f:1", original=(2.0, float("nan"), 0.5), migrated=(2.0, float("inf")))
    assert "1 2 2 2 nan inf 3 0.5" in words_of(to_markdown(Report(repository="/r", losses=[longer])))
