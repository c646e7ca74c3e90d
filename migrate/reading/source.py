"""Reading a repository's Python files and notebooks without losing a byte, and without stopping at a bad one.

Byte order marks, declared encodings (PEP 263), line endings and form feeds survive, because edits are made on the decoded
text and encoded back the same way. What cannot be read or parsed becomes a Finding.
"""

import ast
import codecs
import contextlib
import io
import os
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...trust import open_regular
from .finding import Finding
from .notebooks.notebook import Notebook, read_notebook
from .text_lines import split_lines

__all__ = [
    "MAX_BYTES",
    "MAX_FILES",
    "NOTEBOOK",
    "STORED",
    "SUFFIXES",
    "SourceFile",
    "folders",
    "head",
    "parse_source",
    "read_source",
    "readme_text",
    "split_lines",
    "walk",
]
NOTEBOOK = ".ipynb"
CELLS = ".cells.py"
"""What is put to a notebook's name for the module of its cells, where that is run beside it."""
SUFFIXES = (".py", NOTEBOOK)
STORED = (".pth", ".pt", ".ckpt", ".safetensors", ".bin", ".pkl", ".t7", ".tar", ".h5")
"""The endings of files that mostly hold weights."""
MAX_BYTES = 2_000_000
"""Larger sources are data or generated code, not something a person wrote."""
MAX_NOTEBOOK_BYTES = 200_000_000
"""Notebooks carry their outputs, images among them, as text."""
MAX_FILES = 20_000
MAX_DEPTH = 200
"""Analysis and printing of syntax trees recurse; what people write is nested far less."""

_SKIPPED = frozenset(
    "__pycache__ build dist node_modules site-packages env venv virtualenv conda wandb mlruns".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class SourceFile:
    """One Python file, or a notebook as the module that its code cells make.

    `text` is None when its bytes could not be decoded, `tree` is None when they could not be parsed.
    """

    path: str
    """Relative to the repository root, POSIX."""
    data: bytes = field(repr=False)
    encoding: str = "utf-8"
    text: str | None = field(default=None, repr=False)
    """Decoded, line endings as they are, without the byte order mark."""
    tree: ast.Module | None = field(default=None, repr=False)
    problem: Finding | None = None
    notebook: Notebook | None = field(default=None, repr=False)

    def encode(self, text: str) -> bytes:
        """The bytes of an edited text, in this file's encoding and with its byte order mark; a notebook's whole JSON."""
        mark = codecs.BOM_UTF8 if self.data.startswith(codecs.BOM_UTF8) else b""
        return mark + (text if self.notebook is None else self.notebook.encode(text)).encode(self.encoding)

    @property
    def lines(self) -> list[str]:
        """Lines with their endings; split as Python's tokenizer does, so that `ast` line numbers index them."""
        return split_lines(self.text or "")


def read_source(root: Path, path: str) -> SourceFile:
    """Read and parse `root/path`. Never raises for what the file holds: see `SourceFile.problem`."""
    absolute = root / path
    try:
        size = absolute.stat().st_size
        limit = MAX_NOTEBOOK_BYTES if path.endswith(NOTEBOOK) else MAX_BYTES
        if size > limit:
            message = f"skipped: {size:,} bytes is more than the {limit:,} that a source file may have"
            return SourceFile(path, b"", problem=Finding(path, 1, 0, "PS003", message, "note"))
        data = head(absolute, limit)
    except OSError as error:
        return SourceFile(
            path, b"", problem=Finding(path, 1, 0, "PS002", f"cannot be read: {error.strerror or error}", "error")
        )
    return parse_source(path, data)


def head(path: Path, most: int) -> bytes:
    """The beginning of a file of the repository, at most so many bytes. Raises OSError, also for what is no file: pipes and
    devices, which would be waited for."""
    with open_regular(path) as file:
        return file.read(most)


def readme_text(root: Path) -> str:
    """What the README files at the root of a repository say, one after the other."""
    files = (path for path in sorted(root.iterdir()) if path.name.lower().startswith("readme") and path.is_file())
    return "\n".join(head(path, MAX_BYTES).decode(errors="replace") for path in files)


def parse_source(path: str, data: bytes) -> SourceFile:
    """Decode and parse the bytes of one Python file or notebook."""
    if path.endswith(NOTEBOOK):
        return _parse_notebook(path, data)
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        encoding = "utf-8" if declared == "utf-8-sig" else declared
        text = data.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        return SourceFile(path, data, problem=Finding(path, 1, 0, "PS002", f"cannot be decoded: {error}", "error"))
    return _parsed(path, data, encoding, text)


def _parse_notebook(path: str, data: bytes) -> SourceFile:
    try:
        notebook = read_notebook(path, data.removeprefix(codecs.BOM_UTF8).decode())
    except ValueError as error:  # UnicodeDecodeError is one
        return SourceFile(path, data, problem=Finding(path, 1, 0, "PS002", f"the notebook cannot be read: {error}", "error"))
    if len(notebook.text) > MAX_BYTES:
        message = f"skipped: its code has more than the {MAX_BYTES:,} characters that a source may have"
        return SourceFile(path, data, problem=Finding(path, 1, 0, "PS003", message, "note"))
    return _parsed(path, data, "utf-8", notebook.text, notebook)


def _parsed(path: str, data: bytes, encoding: str, text: str, notebook: Notebook | None = None) -> SourceFile:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the user's strings are not ours to print
            tree = ast.parse(text, filename=path)
    except SyntaxError as error:
        finding = Finding(
            path, error.lineno or 1, max(0, (error.offset or 1) - 1), "PS001", f"does not parse: {error.msg}", "error"
        )
        return SourceFile(path, data, encoding, text, problem=finding, notebook=notebook)
    except (ValueError, RecursionError, MemoryError) as error:
        finding = Finding(path, 1, 0, "PS001", f"does not parse: {type(error).__name__}: {error}", "error")
        return SourceFile(path, data, encoding, text, problem=finding, notebook=notebook)
    if _depth(tree) > MAX_DEPTH:
        finding = Finding(path, 1, 0, "PS003", f"skipped: code nested more than {MAX_DEPTH} levels deep", "note")
        return SourceFile(path, data, encoding, text, problem=finding, notebook=notebook)
    return SourceFile(path, data, encoding, text, tree, notebook=notebook)


def _depth(tree: ast.AST) -> int:
    """Levels of the tree, counted without recursion."""
    depth, level = 0, [tree]
    while level and depth <= MAX_DEPTH:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def folders(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, and at any depth: before Python 3.12 that one recurses, and a thousand folders in each other end it."""
    waiting = [os.fspath(root)]
    while waiting:
        here = waiting.pop()
        inner: list[str] = []
        files: list[str] = []
        with contextlib.suppress(OSError), os.scandir(here) as found:
            for item in found:
                is_folder = False
                with contextlib.suppress(OSError):  # a link to itself
                    is_folder = item.is_dir()
                (inner if is_folder else files).append(item.name)
        yield here, inner, files
        waiting += [os.path.join(here, name) for name in reversed(inner) if not os.path.islink(os.path.join(here, name))]


def walk(
    root: Path, suffixes: tuple[str, ...] = (".py",), closed: list[str] | None = None, most: int | None = MAX_FILES
) -> Iterator[str]:
    """Relative POSIX paths of the files with those suffixes, sorted, at most so many. `closed` gets unreadable folders.

    Left out: hidden folders, build outputs, virtual environments (known by their `pyvenv.cfg` or `conda-meta`), and links
    that lead to folders, so that no loop can arise.
    """
    count = 0
    for folder, directories, names in folders(root):
        here = Path(folder)
        wanted = sorted(name for name in directories if _wanted(here / name))
        directories[:] = [name for name in wanted if os.access(here / name, os.R_OK | os.X_OK)]
        if closed is not None:
            closed += [(here / name).relative_to(root).as_posix() for name in wanted if name not in directories]
        for name in sorted(names):
            if not name.endswith(suffixes) or not (here / name).is_file():
                continue
            yield (here / name).relative_to(root).as_posix()
            count += 1
            if count == most:
                return


def _wanted(folder: Path) -> bool:
    name = folder.name
    if name.startswith(".") or name in _SKIPPED or name.endswith(".egg-info") or folder.is_symlink():
        return False
    return not os.path.exists(folder / "pyvenv.cfg") and not os.path.exists(folder / "conda-meta")
