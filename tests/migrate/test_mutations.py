"""Properties of the rewrite under edits that people make: bytes outside of the rules' spans stay, a second run is empty."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import MigrateError
from headrace.migrate.reading.source import parse_source, split_lines
from headrace.migrate.resolving.resolve import resolve
from headrace.migrate.rewriting.rewrite import Change, rewrite
from headrace.migrate.survey.survey import survey

CORPUS = Path(__file__).parent / "corpus"
EVALUATION = ["PS201", "PS202", "PS203"]
"""The rules whose edits `taken_back` can take back; all the others are under the other laws here."""
SOURCES = {
    f"{path.parts[-3] if path.parent.name == 'repository' else path.parts[-4]}/{path.name}": path
    for path in sorted(CORPUS.glob("*/repository/**/*.py"))
    if parse_source("a.py", path.read_bytes()).tree is not None and b"torch" in path.read_bytes()
}
TakenBack = Callable[[Change], bytes]
COMMENTS = ["# model(x)", "#: é中🐈 net(images)", "#", "# type: ignore  ", "# fmt: off", "#\f"]
NAMES = ["net_", "модель", "self_model", "grAph", "graph", "headrace_model", "_", "modèle"]
LINES = [
    "",
    "pass",
    "'''model(x)\n\n  net(y)\n'''",
    "import os",
    "x = lambda model: model",
    "if 1: pass",
    "é = 'ü'; 中 = é",
    "\f",
]
DAMAGE = [b"", b"\x00", b"\xff", b"\r", b"\n\n", b"(", b"'''", b"\t", b"model(x)", b"\\\n"]
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("comment"), st.integers(0, 10**6), st.sampled_from(COMMENTS)),
        st.tuples(st.just("line"), st.integers(0, 10**6), st.sampled_from(LINES)),
        st.tuples(st.just("trail"), st.integers(0, 10**6), st.sampled_from(COMMENTS)),
        st.tuples(st.just("rename"), st.sampled_from(["model", "net", "images", "x", "loader"]), st.sampled_from(NAMES)),
        st.tuples(
            st.just("wrap"), st.integers(0, 10**6), st.sampled_from(["if True:", "try:", "with open('f'):", "for _ in 'a':"])
        ),
        st.tuples(
            st.just("decorate"), st.integers(0, 10**6), st.sampled_from(["@staticmethod", "@torch.no_grad()", "@f(model(1))"])
        ),
        st.tuples(st.just("swap"), st.integers(0, 10**6), st.integers(0, 10**6)),
        st.tuples(st.just("indent"), st.sampled_from(["\t", "  ", "        ", " "]), st.just("")),
        st.tuples(st.just("delete"), st.integers(0, 10**6), st.just("")),
        st.tuples(st.just("blanks"), st.integers(0, 10**6), st.sampled_from([" ", "\t", " \\\n "])),
    ),
    max_size=6,
)
FORMS = st.tuples(st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]), st.booleans())


def edited(text: str, edit: tuple[str, object, object]) -> str:
    """The text after one edit; it may no longer parse, and then the caller drops the edit."""
    kind, where, what = edit
    tree = ast.parse(text)
    if not tree.body:
        return text
    lines = split_lines(text)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    node = nodes[where % len(nodes)] if isinstance(where, int) else nodes[0]
    first, last = node.lineno - 1, node.end_lineno or node.lineno
    margin = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    if kind in ("comment", "line"):
        lines.insert(first, f"{margin if kind == 'line' else ''}{what}\n")
    elif kind == "trail":
        lines[last - 1] = f"{lines[last - 1].rstrip()}  {what}\n"
    elif kind == "rename":
        return re.sub(rf"\b{where}\b", str(what), text)
    elif kind == "wrap":
        body = [f"    {line}" for line in lines[first:last]]
        tail = [f"{margin}finally:\n", f"{margin}    pass\n"] if what == "try:" else []
        lines[first:last] = [f"{margin}{what}\n", *body, *tail]
    elif kind == "decorate":
        functions = [item for item in nodes if isinstance(item, ast.FunctionDef)]
        if functions:
            chosen = functions[int(str(where)) % len(functions)]
            lines.insert(chosen.lineno - 1, f"{' ' * chosen.col_offset}{what}\n")
    elif kind == "swap":
        body = tree.body
        one, two = sorted((int(str(where)) % len(body), int(str(what)) % len(body)))
        if one != two:
            spans = [(item.lineno - 1, item.end_lineno or item.lineno) for item in (body[one], body[two])]
            (a, b), (c, d) = spans
            lines = [*lines[:a], *lines[c:d], *lines[b:c], *lines[a:b], *lines[d:]]
    elif kind == "indent":
        return re.sub(r"(?m)^(?: {4})+", lambda found: str(where) * (len(found[0]) // 4), text)
    elif kind == "delete":
        del lines[first:last]
    elif kind == "blanks":
        lines[first] = lines[first].replace(" = ", f" ={what}", 1)
    return "".join(lines)


def mutated(path: Path, edits: list[tuple[str, object, object]], form: tuple[str, str, bool]) -> bytes:
    file = parse_source(path.name, path.read_bytes())
    assert file.text is not None
    text = file.text.replace("\r\n", "\n")
    for edit in edits:
        try:
            candidate = edited(text, edit)
            ast.parse(candidate)
        except (SyntaxError, ValueError):
            continue
        text = candidate
    ending, encoding, last = form
    text = re.sub(r"^# -\*- coding: .*\n", "", text)
    text = text if last else text.rstrip("\n")
    if encoding == "latin-1":
        text = f"# -*- coding: latin-1 -*-\n{text.encode('latin-1', 'replace').decode('latin-1')}"
    return text.replace("\n", ending).encode(encoding)


def laws(folder: Path, name: str, before: bytes, unsafe: bool, taken_back: TakenBack) -> None:
    """Nothing raises; what was written parses, and is the same but for the edits; a second run changes nothing."""
    for path in folder.rglob("*.py"):
        path.unlink()
    (folder / name).write_bytes(before)
    (folder / "uses_torch.py").write_bytes(b"import torch\n")
    surveyed = survey(folder)
    with contextlib.suppress(MigrateError):  # the one family of errors that a resolver may raise
        resolve(surveyed)
    changes = [change for change in rewrite(surveyed, unsafe=unsafe) if change.changed]
    for change in changes:
        ast.parse(change.after)
        (folder / change.path).write_bytes(change.after)
    assert [change.path for change in rewrite(survey(folder), unsafe=unsafe) if change.changed] == []
    for change in (item for item in rewrite(surveyed, unsafe=unsafe, select=EVALUATION) if item.changed):
        assert change.before == before
        assert taken_back(change).replace(b".forward(", b"(") == before.replace(b".forward(", b"(")


def tried(examples: int) -> settings:
    return settings(
        max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    )  # fmt: skip


def edited_sources(
    tmp_path: Path,
    taken_back: TakenBack,
    source: str,
    edits: list[tuple[str, object, object]],
    form: tuple[str, str, bool],
    unsafe: bool,
) -> None:
    laws(tmp_path, SOURCES[source].name, mutated(SOURCES[source], edits, form), unsafe, taken_back)


of_sources = given(source=st.sampled_from(sorted(SOURCES)), edits=EDITS, form=FORMS, unsafe=st.booleans())
test_edited_sources_keep_the_laws = tried(25)(of_sources(edited_sources))
test_many_edited_sources_keep_the_laws = pytest.mark.slow(tried(120)(of_sources(edited_sources)))


@given(source=st.sampled_from(sorted(SOURCES)), data=st.data())
@tried(30)
def test_damaged_bytes_raise_nothing(tmp_path: Path, taken_back: TakenBack, source: str, data: st.DataObject) -> None:
    """Bytes cut, doubled and replaced: most of it does not parse; what does is under the same laws."""
    content = bytearray(SOURCES[source].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 40))
        content[at : at + length] = data.draw(st.sampled_from(DAMAGE))
    laws(tmp_path, "a.py", bytes(content), True, taken_back)
