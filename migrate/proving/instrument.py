"""Insert the recorder into a scratch copy of a script, at the calls of its model, without moving a line.

`outputs = model(images)` becomes `outputs = __import__("_headrace_record").wrap("site", model, ...)(images)`. In a migrated
script the same call is found again by its function, its arguments and the name it is bound to, since the rules keep those.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

from ..reading.bindings import root_of
from ..reading.facts import Loop
from ..reading.source import parse_source, split_lines

MODULE = "_headrace_record"
PACKAGE = "headrace"
RECORDER = Path(__file__).with_name("record.py")
_Edit = tuple[int, int, str]


def site_of(loop: Loop) -> str:
    """A name for the call that original and migrated script share."""
    return f"{loop.path}:{loop.call_line}"


def install(tree: Path, folder: Path, loops: Sequence[Loop], entry: str) -> list[str]:
    """Instrument the files of `loops` and their steps below `tree`, seed `entry`, put the recorder into `folder`.

    Returns the sites inserted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{MODULE}.py").write_bytes(RECORDER.read_bytes())
    by_path: dict[str, list[Loop]] = {entry: []}
    steps = {step for loop in loops for step in loop.steps}
    for loop in (*loops, *sorted(steps.difference(loops), key=site_of)):
        by_path.setdefault(loop.path, []).append(loop)
    found: list[str] = []
    for path, there in by_path.items():
        file = tree / path
        data, sites = instrument(
            file.read_bytes(), path, there, steps=steps, seeded=path == entry, reached=roots(tree) if path == entry else ()
        )
        found += sites
        file.write_bytes(data)
    return found


def roots(tree: Path) -> list[Path]:
    """The folders of a repository from which packages are installed: what lies there is found last, as if it had been."""
    return [folder for folder in (tree, tree / "src") if folder.is_dir()]


def instrument(
    data: bytes,
    path: str,
    loops: Iterable[Loop],
    *,
    steps: Set[Loop] = frozenset(),
    seeded: bool = False,
    reached: Sequence[Path] = (),
) -> tuple[bytes, list[str]]:
    """The source with its model calls recorded, and the sites that were found. Unparsable sources come back as they are.

    Of `steps`, which serve training too, the calls count that want no gradients. `seeded` starts its random numbers alike in
    every run; `reached` are folders to end its import path with.
    """
    source = parse_source(path, data)
    if source.tree is None or source.text is None:
        return data, []
    lines = split_lines(source.text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:  # ast counts columns in UTF-8 bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    edits: list[_Edit] = []
    sites: list[str] = []
    for loop, call in _found(source.tree, source.text, loops):
        start = offset(call.func.lineno, call.func.col_offset)
        end = offset(call.func.end_lineno or 0, call.func.end_col_offset or 0)
        targets = loop.targets if loop.targets and loop.targets.isidentifier() else "None"
        names = "".join(f"{name}, " for name in _names(loop.iterator))
        before = f'__import__("{MODULE}").wrap({site_of(loop)!r}, '
        graded = "" if loop not in steps else ", graded=False"
        edits += [(start, start, before), (end, end, f", lambda: {targets}, lambda: ({names}){graded})")]
        sites.append(site_of(loop))
    if seeded:
        edits += _seeding(source.tree, offset)
    if reached:
        edits += _reaching(source.tree, offset, reached)
    text = source.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return source.encode(text), sites


def _found(tree: ast.Module, text: str, loops: Iterable[Loop]) -> list[tuple[Loop, ast.Call]]:
    """The calls of these loops in a file, in which lines may have come and gone: where a function has as many that read alike
    as there are loops, each has its own in their order; else the nearest, as many lines on as the one before it is."""
    groups: dict[object, list[Loop]] = {}
    for loop in sorted(loops, key=lambda loop: (loop.call_line, loop.call_column)):
        groups.setdefault((loop.function, loop.outputs, loop.inputs, loop.model), []).append(loop)
    own, graphs = _graphs(tree)
    found: list[tuple[Loop, ast.Call]] = []
    taken: set[int] = set()
    for there in groups.values():
        alike = [call for call in _alike(tree, text, there[0], own, graphs) if id(call) not in taken]
        if len(alike) != len(there):
            alike = list(_nearest(alike, there))
        taken.update(map(id, alike))
        found += zip(there, alike, strict=False)
    return found


def _nearest(alike: Sequence[ast.Call], loops: Sequence[Loop]) -> Iterator[ast.Call]:
    left, moved = list(alike), 0
    for loop in loops:
        if not left:
            return
        call = min(left, key=lambda call: abs(call.lineno - loop.call_line - moved))
        moved = call.lineno - loop.call_line
        left.remove(call)
        yield call


def _alike(tree: ast.Module, text: str, loop: Loop, own: Set[str], graphs: Set[str]) -> list[ast.Call]:
    """The calls that read the same but for the name of what is called, from top to bottom; only those of its model, or of a
    graph that took its place, where there are such: a function may be given the images first, too."""
    alike = []
    for function, call, bound in _calls(tree):
        same_place = function == (loop.function or "") and bound == loop.outputs
        given = call.args[:1] or [item.value for item in call.keywords]
        if same_place and any(_same(text, item, loop.inputs) for item in given):
            alike.append(call)
    alike.sort(key=lambda call: (call.lineno, call.col_offset))
    known = {loop.model, f"{loop.model}.forward", f"{loop.model}.__call__", *graphs}
    return [call for call in alike if ast.unparse(call.func) in known or root_of(call.func) in own] or alike


def _graphs(tree: ast.Module) -> tuple[Set[str], Set[str]]:
    """The names that Headrace has in a file, and those, with dots, of what its functions return."""
    own = {PACKAGE}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = node.module if isinstance(node, ast.ImportFrom) else None
            own |= {item.asname or item.name for item in node.names if (package or item.name).partition(".")[0] == PACKAGE}
    made = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and root_of(node.value) in own
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return own, {ast.unparse(target) for target in made}


def _same(text: str, node: ast.expr, wanted: str) -> bool:
    """Whether an argument reads as the survey wrote it down, which has quotes and parentheses of its own."""
    written = ast.get_source_segment(text, node)
    return ast.unparse(node) == wanted or (
        written is not None
        and (written == wanted or wanted.startswith(written + ",") or "".join(written.split()) == "".join(wanted.split()))
    )


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call, str | None]]:
    """Every call, with the qualified name of its function and the plain name its result is bound to."""

    def visit(node: ast.AST, function: str, bound: str | None) -> Iterator[tuple[str, ast.Call, str | None]]:
        if isinstance(node, ast.Call):
            yield function, node, bound
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}" if function else node.name
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function, _bound_name(node) if child is getattr(node, "value", None) else None)

    yield from visit(tree, "", None)


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None


def _names(iterator: str | None) -> list[str]:
    """Names and attributes in `enumerate(tqdm(self.loader))` that may be the loader, as expressions."""
    if iterator is None:
        return []
    try:
        parsed = ast.parse(iterator, mode="eval")
    except SyntaxError:
        return []
    called = {id(node.func) for node in ast.walk(parsed) if isinstance(node, ast.Call)}
    wanted = [
        ast.unparse(node)
        for node in ast.walk(parsed)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and id(node) not in called
    ]
    return list(dict.fromkeys(wanted))


def _reaching(tree: ast.Module, offset: object, folders: Iterable[Path]) -> list[_Edit]:
    """Before the first import that may stand after something."""
    assert callable(offset)
    imports = [item for item in tree.body if isinstance(item, ast.Import | ast.ImportFrom)]
    first = next((item for item in imports if not (isinstance(item, ast.ImportFrom) and item.module == "__future__")), None)
    if first is None:
        return []
    place = offset(first.lineno, first.col_offset)
    return [(place, place, f'__import__("sys").path.extend({[str(folder) for folder in folders]!r}); ')]


def _seeding(tree: ast.Module, offset: object) -> list[_Edit]:
    """Before the first plain statement after the imports at the top: by then torch is there to be seeded."""
    assert callable(offset)
    simple = (ast.Assign, ast.AnnAssign, ast.Expr, ast.AugAssign)
    last_import = None
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last_import = statement
        elif isinstance(statement, simple) and last_import is not None:
            break
    if last_import is None:
        return []
    place = offset(last_import.end_lineno, last_import.end_col_offset)
    return [(place, place, f'; __import__("{MODULE}").seed()')]
