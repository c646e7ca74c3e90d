"""Do two runs of a script print the same? All but times: each is masked where it stands, and its line is compared."""

from __future__ import annotations

import math
import re

_FLOAT_DIGITS = 6
"""Decimal digits that a float32 holds (FLT_DIG of C): of those that Python prints of one, the rest is of the rounding."""
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
# What runs are called after: 20261201_171334, and as TensorBoard has it, Dec01_17-13-34.
_NAMED_AFTER = (
    r"(?:(?:19|20)\d\d[01]\d[0-3]\d[T_-]?[0-2]\d[0-5]\d[0-5]\d(?!\d)"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\d\d_\d\d-\d\d-\d\d)"
)
_TOKEN = re.compile(
    r"(?P<stamp>-?(?:\d{4}(?P<between>[-/._])\d\d(?P=between)\d\d"
    r"(?:[T ,_-]+(?:\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?|\d\dh\d\d(?:m\d\ds?)?|\d\d(?P<within>[-_.])\d\d(?P=within)\d\d(?![\d.])))?"
    rf"|{_NAMED_AFTER})"
    r"|(?:\d+ days?, )?\d{1,3}:[0-5]\d:[0-5]\d(?:[.,]\d+)?)"
    r"|(?P<clock>\d{1,3}:[0-5]\d(?:\.\d+)?(?![:\d]))"
    r"|(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    rf"|(?P<word>[^\W\d_]+(?:/(?!{_NAMED_AFTER})[^\W\d_]+)?(?:(?!{_NAMED_AFTER})\d+(?![\d.]))?)"
    r"|(?P<other>[^\s_])"
)
_PIECE = re.compile(r"[^\s,;:=|()\[\]{}<>'\"]+|\S")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")  # of an object without a text of its own
# The line of a source that a logger tells, as main.py:351, (main.py 351) or "main.py", line 351: rules insert lines above.
_POSITION = re.compile(r"""(\.py(?::|\(|["']?, line ))\d+(?![\d.])|(\([^\s()]+\.py )\d+(?=\))""")
# What Rich's handler of logs writes before a level: the time, or as many blanks where that is the line's before.
_LOGGED = re.compile(r"^(?:\[\d\d/\d\d/\d\d \d\d:\d\d:\d\d\]| {19}) (?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)")
# What torch writes behind the numbers of a tensor with a history; those of a graph have none.
_HISTORY = re.compile(r",\s*grad_fn=<\w+>(?=\))")
_PER = re.compile(r"(?<=[^\W\d_])\s*(?:/|\bper\b)\s*(?=[^\W\d_])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LONG = _words("h hr hrs hour hours m min mins minute minutes d day days")
_SHORT = _words("ns us µs μs ms msec msecs millisecond milliseconds s sec secs second seconds fps hz")
_LABELS = _words("time times elapsed eta speed throughput latency took takes taken duration runtime date")
_COUNTED = _words(
    "it its iter iters iteration iterations img imgs image images sample samples frame frames step steps batch batches epoch "
    "epochs row rows example examples call calls file files run runs request requests query queries"
)
# Words that may stand between a label and its time; with any other word, the number may be something else's.
_BETWEEN = _COUNTED | _words(
    "is was of in on at for per the a an avg average mean median total used about approx cpu gpu wall evaluation eval "
    "inference test testing train training prediction forward ~ : = ( ) [ ] - . @ |"
)


def first_difference(before: str, after: str, again: str | None = None) -> tuple[str, str] | None:
    """The first two lines that say different things: other words, or numbers more than one unit of the last place apart, of the
    places that a float32 holds.

    `again` is what a second run of the first printed: what differs there, a name drawn at random say, is compared with nothing,
    but the rest of its line is.
    """
    old, new = _lines(before), _lines(after)
    twice = _lines(again) if again is not None else old
    for at, (one, other) in enumerate(zip(old, new, strict=False)):
        unsteady = len(twice) == len(old) and not _same_line(one, twice[at])
        if not (_same_but(one, twice[at], other) if unsteady else _same_line(one, other)):
            return one, other
    if len(old) != len(new):
        longer = old if len(old) > len(new) else new
        extra = longer[min(len(old), len(new))]
        return (extra, "") if longer is old else ("", extra)
    return None


def _lines(text: str) -> list[str]:
    text = _HISTORY.sub("", text.replace("\r\n", "\n"))
    last_states = (line.rsplit("\r", 1)[-1] for line in text.split("\n"))  # progress bars overwrite
    lines = (_LOGGED.sub("", _ADDRESS.sub("at 0x0", line.rstrip())) for line in last_states if line.strip())
    return [_POSITION.sub(r"\1\2~", line) for line in lines]


def masked(line: str) -> str:
    """The line with "~" for each time, rate and date, and for the unit that goes with it.

    A number is a time by its own form, by the unit behind it, or by the label before it.
    """
    line = _PER.sub("/", line)
    tokens = list(_TOKEN.finditer(line))
    spans: list[tuple[int, int]] = []
    meter: str | None = None  # of the number before, if a label made it a time: its places
    begin = 0  # of what names the next number
    shapes = [_shape(tokens, at) for at in range(2, len(tokens))]
    pairs = {shape for shape in shapes if shape is not None and shapes.count(shape) > 1}
    for at, token in enumerate(tokens):
        if token.lastgroup not in ("stamp", "clock", "number"):
            continue
        name = [item.group().lower() for item in tokens[begin:at]]
        end = _own_unit(tokens, at, name)
        following = tokens[at + 1].group().lower() if at + 1 < len(tokens) else ""
        counts = end == at and following in _COUNTED
        places = token.group().partition(".")[2]
        labeled = not counts and following != "%" and _names_a_time(name, after_times=bool(spans))
        bracketed = name == ["("] and meter is not None
        repeated = bracketed and (
            len(places) == len(meter or "") or _shape(tokens, at) in pairs
        )  # its mean, as meters print it
        in_bar = token.lastgroup == "clock" and "<" in [item.group() for item in tokens[max(0, at - 1) : at + 2]]
        if token.lastgroup == "stamp" or end > at or labeled or repeated or in_bar:
            spans.append((token.start(), tokens[end].end()))
        meter = places if labeled and end == at else None
        if not counts:  # of "time for 100 images: 3.2", the label belongs to the second number
            begin = end + 1
    for start, stop in reversed(spans):
        line = f"{line[:start]}~{line[stop:]}"
    return re.sub(r"\s*~[\s~]*", " ~ ", re.sub(r"\s+", " ", line)) if spans else line  # widths differ with the numbers


def _shape(tokens: list[re.Match[str]], at: int) -> tuple[int, int] | None:
    """Of a number in parentheses behind another, the places of both: a line of meters has several such pairs."""
    first, between, second = tokens[at - 2 : at + 1]
    if (first.lastgroup, between.group(), second.lastgroup) != ("number", "(", "number"):
        return None
    return len(first.group().partition(".")[2]), len(second.group().partition(".")[2])


def _own_unit(tokens: list[re.Match[str]], at: int, name: list[str]) -> int:
    """The index of the unit of the number at that index; its own where it has none."""
    words = [item.group().lower() if item.lastgroup == "word" else "" for item in tokens[at + 1 : at + 4]] + [""] * 3
    unit = words[0]
    if unit in _LONG and words[2] in _LONG | _SHORT:  # 3 min 12 s
        return at + 1 if "." not in tokens[at].group() else at
    if not _is_unit(unit) and unit not in _LONG - {"m", "d"}:
        return at
    if tokens[at + 1].start() == tokens[at].end():
        return at + 1
    following = next((item for item in tokens[at + 2 :] if item.group() not in (":", "=")), None)
    named = any(word.isalpha() for word in name)
    if named and following is not None and following.lastgroup in ("number", "clock"):
        return at  # of "accuracy 0.91 seconds 3.2", the unit names the next number
    smallest = unit in ("min", "mins") and name[-1:] not in (["in"], ["after"], ["took"])  # and not minutes
    return at if smallest else at + 1


def _is_unit(word: str) -> bool:
    parts = set(word.split("/"))
    return bool(parts & _SHORT) and parts <= _SHORT | _COUNTED


def _names_a_time(name: list[str], *, after_times: bool) -> bool:
    """Whether what stands before a number says that it is a time, and nothing else."""
    words = [word.rstrip("0123456789") or "~" for word in name]
    labels = [(set(word.split("/")) <= _LABELS | _COUNTED and word not in _COUNTED) or _is_unit(word) for word in words]
    labels = [label or (word == "data" and after_times) for label, word in zip(labels, words, strict=True)]
    return any(labels) and all(label or word in _BETWEEN for label, word in zip(labels, words, strict=True))


def _same_line(one: str, other: str) -> bool:
    if one == other:
        return True
    one, other = masked(one), masked(other)
    if NUMBER.sub("#", one).split() != NUMBER.sub("#", other).split():  # columns of a table are as wide as its numbers
        return False
    return all(_same_number(a, b) for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True))


def _same_but(one: str, again: str, other: str) -> bool:
    """Whether two lines are the same in all words, numbers and signs that two runs of the first have in common."""
    first, second, third = (_PIECE.findall(masked(line)) for line in (one, again, other))
    if not len(first) == len(second) == len(third):
        return False
    steady = [_same_line(a, b) for a, b in zip(first, second, strict=True)]
    return all(not same or _same_line(a, b) for same, a, b in zip(steady, first, third, strict=True))


def _same_number(one: str, other: str) -> bool:
    if one == other:
        return True
    if "." not in one and "e" not in one.lower():
        return False  # a count
    places = len(re.split(r"[eE]", one)[0].partition(".")[2])
    exponent = float("1" + one[one.lower().index("e") :]) if "e" in one.lower() else 1.0
    largest = max(abs(float(one)), abs(float(other)))
    held = 10.0 ** (math.floor(math.log10(largest)) + 1 - _FLOAT_DIGITS) if 0 < largest < math.inf else 0.0
    return abs(float(one) - float(other)) <= 1.01 * max(10.0**-places * exponent, held)
