"""The HTML report is one well-formed page that needs nothing else, shows what the report holds, and runs nothing of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import MigrateError
from headrace.migrate.proving.measurements import Losses, agreements, losses, speeds
from headrace.migrate.proving.verify import Recorded
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reporting.html_plots import loss_curve
from headrace.migrate.reporting.html_report import to_html, write_html
from headrace.migrate.reporting.report import (
    CheckpointReport,
    LossTrace,
    ModelReport,
    Parity,
    PreprocessingReport,
    Report,
    ScriptReport,
)
from headrace.migrate.resolving.resolved import ChainStep
from headrace.migrate.rewriting.rewrite import Change

VOID = {"meta", "br", "col", "circle", "line", "rect", "polyline"}
TAGS = VOID | set(
    re.findall(
        r"\w+",
        "html head title style body header main footer section div small h1 h2 h3 p b i em span code table colgroup tr th td "
        "ol li details summary figure svg g text",
    )
)
ATTRIBUTES = set(
    re.findall(
        r"\S+",
        "lang charset name content http-equiv class style colspan open viewbox role aria-label cx cy r x y x1 y1 x2 y2 width "
        "height text-anchor transform points",
    )
)


class Page(HTMLParser):
    """Reads the page strictly: known tags and attributes only, every one closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, f"<{tag}> came into the page"
        assert {name for name, _ in attributes} <= ATTRIBUTES, (tag, attributes)
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def words(self) -> str:
        return " ".join("".join(self.text).split())


def notebook(source: str) -> bytes:
    cells = [{"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()


def report(evil: str = "") -> Report:
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(7, 5)).astype(np.float32)
    before = Recorded(inputs=np.zeros((7, 3)), outputs=outputs)
    after = Recorded(inputs=np.zeros((7, 3)), outputs=outputs + rng.normal(size=(7, 5)).astype(np.float32) * 1e-6)
    plan = [
        {"backend": "eager", "precision": "fp32", "bucket": 1, "status": "lost", "median_ms": 4.0},
        {"backend": f"openvino{evil}", "precision": "fp32", "bucket": 1, "status": "won", "median_ms": 1.0},
    ]
    made = Report(
        repository=f"/r/name{evil}",
        models=[
            ModelReport(
                name=f"net{evil}", factory=f"net.py{evil}:7", input=[3, 32, 32], classes=5, built=True, captured=True,
                parity=Parity(status="passed", max_abs=1e-6, top1_agreement=1.0, why=f"on images{evil}"), served=True,
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
        speeds=speeds(f"net{evil}", {"measurements": plan}),
    )  # fmt: skip
    made.blocked = f"blocked{evil}"
    return made


def test_the_page_shows_everything() -> None:
    words = Page(to_html(report())).words()
    for expected in (
        "name", "Not written in place: blocked", "net.py:7", "3\N{MULTIPLICATION SIGN}32\N{MULTIPLICATION SIGN}32", "100.00%",
        "resnet18()", "resize", "size 32 32", "c.pth", "PS104", "message", "batch 1", "4.00\N{MULTIPLICATION SIGN}",
        "4.00 ms eager", "1.00 ms openvino fp32", "7 rows", "x = 1 # old", "x = 2 # new", "1/1", "notes.ipynb",
    ):  # fmt: skip
        assert expected in words, expected


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "\"'><img src=x onerror=alert(1)>",
        "</style></code></table><h1>",
        "<!--",
        "&lt;b&gt;",
        "]]><svg onload=alert(1)>",
    ],
)
def test_nothing_of_the_repository_becomes_markup(evil: str) -> None:
    page = Page(to_html(report(evil)))
    assert evil.partition("'")[0] in "".join(page.text), "it is shown as the text that it is"


def test_it_loads_and_runs_nothing() -> None:
    text = to_html(report())
    assert not re.search(r"<script|<link|<img|<iframe|url\(|@import|https?://|javascript:", text)
    assert "default-src 'none'; style-src 'unsafe-inline'" in text


def test_characters_that_hide_others_are_spelt_out() -> None:
    made = Report(repository="/r")
    made.findings = [Finding("a\u202ecod.exe", 1, 0, "PS001", "zero\u200bwidth \x1b[31m \udce9", "note")]
    words = Page(to_html(made)).words()
    assert "a\\u202ecod.exe" in words
    assert "zero\\u200bwidth \\u001b[31m \\udce9" in words


def test_an_empty_report_is_a_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_html(Report(repository="/r"), path)
    assert "Nothing to change. No errors, no warnings." in Page(path.read_text()).words()
    with pytest.raises(MigrateError, match="cannot write the report"):
        write_html(Report(repository="/r"), tmp_path / "nowhere" / "report.html")


def test_the_diff_keeps_every_character_and_leaves_out_what_is_far(tmp_path: Path) -> None:
    before = "".join(f"line_{number} = {number}\n" for number in range(100))
    after = before.replace("line_50 = 50\n", "line_50 = compile(50)\nnew = '''\n  two\n'''\n")
    made = Report(repository="/r", changes=[Change("a.py", before.encode(), after.encode(), [], [])])
    words = Page(to_html(made)).words()
    assert "line_50 = 50" in words
    assert "line_50 = compile(50)" in words
    assert "line_47 = 47" in words
    assert "line_40 = 40" not in words
    crlf = Report(repository="/r", changes=[Change("a.py", before.replace("\n", "\r\n").encode(), after.encode(), [], [])])
    Page(to_html(crlf))


def test_constant_and_huge_outputs_can_be_plotted() -> None:
    for values in (np.zeros((2, 3)), np.full((1, 1), 1e30), np.array([[np.nan, 1.0, np.inf]])):
        recorded = Recorded(inputs=values, outputs=values.astype(np.float32))
        made = Report(repository="/r", agreements=agreements("m.py", {"s": recorded}, {"s": recorded}))
        assert len(made.agreements) == 1
        text = to_html(made)
        Page(text)
        assert "nan" not in text.split("</style>")[1]


def test_the_losses_of_both_trainings_are_drawn_where_they_are() -> None:
    made = report()
    made.scripts[0].loss_trace = LossTrace(status="failed", steps=2, max_relative=0.6, tolerance=1e-5)
    page = to_html(made)
    words = Page(page).words()
    assert "Same training" in words
    assert "main.py training loop main.py:f:1" in words
    assert "the losses of 2 steps of the original, 2 of the migrated; the largest relative difference is 0.6" in words
    assert "1e-05 is allowed" in words
    assert "Same training" not in Page(to_html(Report(repository="/r"))).words()


@pytest.mark.parametrize(
    ("original", "migrated", "runs", "dots"),
    [
        ((2.0, 1.0, 0.5), (2.0, 1.0, 0.5), 1, 3),
        ((2.0, float("nan"), 0.5, 0.4), (2.0, float("inf"), 0.5), 2, 2),
        ((1.0,), (1.0,), 1, 1),
        ((0.0, 0.0), (0.0, 0.0), 1, 2),
        ((-3.0,) * 20, (-3.0,) * 20, 1, 20),
        ((float("nan"),), (float("nan"),), 0, 0),
    ],
)
def test_loss_curves(original: tuple[float, ...], migrated: tuple[float, ...], runs: int, dots: int) -> None:
    drawn = loss_curve(Losses(script="a.py", site="a.py:f:1", original=original, migrated=migrated))
    Page(drawn)
    assert (drawn.count("<polyline"), drawn.count("<circle")) == (runs, dots)
    coordinates = [float(number) for number in re.findall(r"c[xy]=\"([^\"]+)", drawn)]
    assert all(0 <= number <= 360 for number in coordinates)
    line = {point for points in re.findall(r"points=\"([^\"]+)", drawn) for point in points.split()}
    circles = set(zip(*(re.findall(rf"{name}=\"([^\"]+)", drawn) for name in ("cx", "cy")), strict=True))
    assert {tuple(point.split(",")) for point in line} >= circles  # what agrees lies on the line
