"""IPython's syntax in a cell, which is not Python: magics, shell lines and help, turned into comments and back.

Of magics that are written without their sign (`ls`, `pip install timm`) those are known that IPython takes so by default.

See https://ipython.readthedocs.io/en/stable/interactive/reference.html
"""

import ast
import re

from ..text_lines import split_lines

PYTHON_CELLS = frozenset("time timeit capture prun memit mprun snakeviz".split())  # noqa: SIM905
"""Cell magics whose cell is Python; others (%%bash, %%writefile, %%html, ...) hold something else."""
_TIMED = re.compile(r"(?P<indent>[ \t]*)(?P<magic>%time[ \t]+)(?P<code>\S.*)", re.S)
_ASSIGNED = re.compile(r"(?P<target>[ \t]*[^\W\d][\w, .]*=[ \t]*)(?P<magic>[!%].*)", re.S)
_PYLAB = re.compile(r"(?P<indent>[ \t]*)(?P<magic>%pylab\b[^;\\]*)")
_OF_PYLAB = "from pylab import *; import matplotlib.pyplot as plt, numpy as np"
"""What `%pylab` imports, as far as scripts use it."""
_FUTURE = re.compile(r"from[ \t]+__future__[ \t]+import\b[^(;\\]*")
_UNSIGNED = re.compile(
    r"[ \t]*(cat|cd|conda|cp|history|ll|ls|man|mkdir|more|mv|pip|pwd|rm|rmdir|who|whos)(?:[ \t]+\S.*)?[ \t]*"
)
_HELP = re.compile(r"[ \t]*[%\w.*]+\?{1,2}\s*$")
_SYNTAX = re.compile(r"""'''|\"\"\"|"(?:\\.|[^"\\\r\n])*"?|'(?:\\.|[^'\\\r\n])*'?|[\[\](){}]|\#""")


def python_part(source: str) -> bool:
    """Whether a cell is Python, but for single lines."""
    first = next((line for line in split_lines(source) if line.strip()), "").strip()
    return not first.startswith("%%") or re.split(r"[^\w]", first[2:], maxsplit=1)[0] in PYTHON_CELLS


class Magics:
    """Turns IPython's lines into comments and back. The comments begin with `marker`, which occurs nowhere in `code`."""

    def __init__(self, code: str) -> None:
        self.marker = "#headrace"
        while self.marker in code:
            self.marker += "_"
        self._code = code

    def comment_out(self, source: str, futures: bool = False) -> str:
        """The cell with as many lines, all of them Python as far as the cell is.

        `futures`: also what it imports from `__future__`, which each cell may begin with and a module only once.
        """
        result: list[str] = []
        place = _Place()
        inside = False
        for line in split_lines(source):
            body = line.rstrip("\r\n")
            if inside or (place.begins and (self._is_magic(body) or (futures and _FUTURE.fullmatch(body)))):
                result.append(self._hide(body, inside) + line[len(body) :])
                inside = body.endswith("\\")  # a magic goes on where its line ends in a backslash
            else:
                result.append(line)
                place.pass_over(body)
        return "".join(result)

    def restore(self, shown: str) -> str:
        """The cell again; lines that are not hidden magics stay as they are."""
        if self.marker not in shown:
            return shown
        lines = []
        for line in split_lines(shown):
            code, found, rest = line.partition(self.marker)
            kind, rest = rest[:1], rest[1:]
            if not found:
                lines.append(line)
            elif kind == "=":
                lines.append(code.removesuffix("get_ipython()  ") + rest)
            elif kind == "~":
                lines.append(code.removesuffix(f"{_OF_PYLAB}  ") + rest)
            elif kind == "@":
                magic = rest.rstrip("\r\n")
                indent = code[: len(code) - len(code.lstrip(" \t"))]
                lines.append(indent + magic + code.strip(" \t") + rest[len(magic) :])
            else:
                lines.append(code.removesuffix("pass  ") + rest)
        return "".join(lines)

    def _is_magic(self, body: str) -> bool:
        signed = body.lstrip(" \t").startswith(("%", "!", "?"))
        return bool(signed or _HELP.match(body) or _ASSIGNED.fullmatch(body) or self.is_unsigned(body))

    def is_unsigned(self, body: str) -> bool:
        """Whether a line is a magic without its sign: no Python, or a word alone to which nothing is bound."""
        found = _UNSIGNED.fullmatch(body)
        if found is None or body.rstrip().endswith((",", "(", "[", "{")):
            return False
        try:
            statements = ast.parse(body.strip()).body
        except SyntaxError:
            return True
        bound = rf"\b{found[1]}[ \t]*(=(?!=)|,|:=)|\b(as|def|for|global|import)[ \t]+{found[1]}\b"
        match statements:
            case [ast.Expr(value=ast.Name())]:
                return re.search(bound, self._code) is None
        return False

    def _hide(self, body: str, inside: bool) -> str:
        if not inside and (found := _TIMED.fullmatch(body)) and not body.endswith((" ", "\t", "\\")):
            return f"{found['indent']}{found['code']}  {self.marker}@{found['magic']}"
        if not inside and (found := _ASSIGNED.fullmatch(body)):
            return f"{found['target']}get_ipython()  {self.marker}={found['magic']}"
        if not inside and (found := _PYLAB.fullmatch(body)):
            return f"{found['indent']}{_OF_PYLAB}  {self.marker}~{found['magic']}"
        text = body.lstrip(" \t")
        indent = body[: len(body) - len(text)]
        # a block needs a statement; at the top level a statement would draw insertions to where they do not belong
        return f"{indent}{'pass  ' if indent and not inside else ''}{self.marker}:{text}"


class _Place:
    """Where a line of Python ends: inside brackets, a long string, or a continued line, or at the end of a statement."""

    def __init__(self) -> None:
        self._quote: str | None = None
        self._depth = 0
        self._continued = False

    @property
    def begins(self) -> bool:
        """Whether the next line begins a statement."""
        return self._quote is None and self._depth == 0 and not self._continued

    def pass_over(self, body: str) -> None:
        position = 0
        self._continued = body.endswith("\\")
        while position < len(body):
            if self._quote is not None:
                found = re.compile(rf"\\.|{self._quote}", re.S).search(body, position)
                if found is None:
                    return
                self._quote = None if found[0] == self._quote else self._quote
            else:
                found = _SYNTAX.search(body, position)
                if found is None:
                    return
                if found[0] == "#":
                    self._continued = False
                    return
                if found[0] in ("'''", '"""'):
                    self._quote = found[0]
                elif found[0] in "([{":
                    self._depth += 1
                elif found[0] in ")]}":
                    self._depth = max(0, self._depth - 1)
            position = found.end()
