"""How many classes made data should have, and whether their names or their numbers stand in it: what errors say of that."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import re
import types
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..making import BELOW, CALLED, MADE_NAME, NUMBERS, TOLD_APART, WAYS_TO_CALL, Maker
from ..places import is_users, of_kind, shape_of
from ..settings.running_code import around
from ..stage import WHOLE, Stage
from . import tables

_MOST_CLASSES = 30_000
_SCORES = re.compile(r"out|logit|pred|score|prob|^(log_?)?ps$|^y_?hat$", re.I)
"""Names of what a model gives."""
_AS_TEXT = re.compile(
    r"Can only use \.str accessor|'(numpy\.)?(int|float)\d*' object has no attribute '(split|strip|lower|upper|replace|title)'"
)
"""What is said of a column of numbers that the script takes for one of texts."""
_NO_LABEL = re.compile(
    r"\b(un(known|expected|recogni[sz]ed|supported)|invalid|bad) (labels?|class(es)?|categor(y|ies))\b.*?\b\d+\b", re.I | re.S
)
"""What a script says of a number where it knows the names of the classes."""
_YES_OR_NO = re.compile(r"all elements of target should be between 0 and 1|multi_class must be in")
"""What a loss for one output, and the area under a curve, say of labels of more than two classes."""
_CONFUSED = re.compile(r"shape '\[(\d+), \1\]' is invalid for input of size")
"""What a metric of so many classes says of labels beyond them."""
_IN_TEXT = re.compile(
    r"(expected str instance, |can only concatenate str \(not \"|argument must be str, .*not '|or bytes-like object, got ')"
    r"(numpy\.)?int\d*\b"
)
"""What is said of a number that is put into a text: a label of a table, where one was made."""
_AS_NUMBER = re.compile(
    r"type str doesn't define __round__|can't multiply sequence by non-int|must be real number, not str"
    r"|can only concatenate str|bad operand type .*'str'|(unsupported operand type|not supported between instances).*'str'"
)
"""What is said of a text with which a script computes."""
_SINGLE = re.compile(
    r"least populated class.* only 1 member|n_splits=\d+ cannot be greater than the number of members in each class"
)
"""What scikit-learn says of classes to divide whose column had a name of its own in each row."""
_NONE = re.compile(r"found <class 'NoneType'>|infer dtype of NoneType|not 'NoneType'")
"""What is said of an image whose class was looked up in vain."""
_SPLIT = re.compile(r"split\(\s*['\"][_.-]['\"]")
"""Takes the name of a file apart."""
_IN_FOLDER = re.compile(r"\bclass_\d{3}/\d{4}\.\w+")
"""An image in the folder of its class, where a table has no row of it."""
_LABEL = re.compile(r"label|class|target|^y$", re.I)
_TAKEN = re.compile(r"""\[\s*['"](\w+)['"]\s*\]""")


def lesson(stage: Stage, error: BaseException, frames: Sequence[types.FrameType]) -> bool | None:
    """What an error says of classes and their names; None where it says nothing of them."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, IndexError) and _SPLIT.search(_last_line(stage, frames)) and _called_otherwise(stage):
        return True
    if isinstance(error, KeyError | IndexError) and _more_classes(stage, error, frames):
        return True
    if isinstance(error, KeyError) and _beyond_a_table(stage, error, frames):
        return True
    if tables.has_table(stage) and (numbers := _told_apart(stage, frames)):
        learned = [stage.learn(TOLD_APART, numbers), stage.learn("classes", len(numbers)), stage.learn("other_columns", True)]
        return any(learned)
    if isinstance(error, KeyError) and _IN_FOLDER.search(text) and tables.has_table(stage) and stage.learn(BELOW, True):
        return True
    named = isinstance(error, KeyError) and error.args and error.args[0] in Maker(stage).names
    unknown = named or (isinstance(error, TypeError | RuntimeError) and _NONE.search(text))
    if unknown and tables.has_table(stage) and stage.learn("labels", "text"):
        return True  # the table had numbers for the classes whose names folders have
    if named and stage.learn(WHOLE, True):
        return True  # the names of the classes were gathered from the first batches alone
    in_text = (_IN_TEXT.search(text) or _NO_LABEL.search(text)) and tables.has_table(stage)
    if (in_text or _AS_TEXT.search(text) or _misses_names(stage, error, frames)) and stage.learn("labels", "text"):
        return True
    if _YES_OR_NO.search(text) and stage.learn("classes", 2):
        return True
    of_metrics = any(f"{os.sep}torchmetrics{os.sep}" in frame.f_code.co_filename for frame in frames)
    counted = _CONFUSED.search(text) if of_metrics else None
    return stage.learn("classes", int(counted[1])) if counted is not None else None


def _last_line(stage: Stage, frames: Sequence[types.FrameType]) -> str:
    """The line of the user's code that was running."""
    own = [frame for frame in frames if is_users(frame.f_code.co_filename, stage.root)]
    return linecache.getline(own[-1].f_code.co_filename, own[-1].f_lineno) if own else ""


def _told_apart(stage: Stage, frames: Sequence[types.FrameType]) -> list[int]:
    """The numbers with one of which the code that gave up expected a value to be equal: the classes are called so, -1 and 1."""
    own = [frame for frame in frames if is_users(frame.f_code.co_filename, stage.root)]
    known: dict[str, list[int]] = {}
    for node in around(own[-1]) if own else ():
        match node.test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if _LABEL.search(ast.unparse(left)):
                with contextlib.suppress(ValueError):  # no constant
                    known.setdefault(ast.unparse(left), []).append(ast.literal_eval(right))
    return next((found for found in known.values() if len(found) > 1 and all(type(item) is int for item in found)), [])


def numbers_and_names(stage: Stage, error: BaseException, own: Sequence[types.FrameType]) -> bool | None:
    """What is said of a name where a number was expected; `own` are the frames of the user's code. None of other errors."""
    computes = isinstance(error, TypeError) and _AS_NUMBER.search(str(error)) and _has_a_name(own)
    if isinstance(error, ValueError) and _SINGLE.search(str(error)) and tables.has_table(stage):
        return stage.learn("other_columns", True)
    if computes or (isinstance(error, AttributeError | TypeError | ValueError) and _has_names_for_labels(own)):
        return stage.learn("other_columns", True)
    if not isinstance(error, ValueError):
        return None
    text = str(error)
    if re.search(r"invalid literal for int\(\)|could not convert string to float", text) is None:
        return None
    if not MADE_NAME.search(text):
        if _called_otherwise(stage):
            return True
        return (_of_a_class(stage, text) and stage.learn("numbered", True)) or None
    line = _last_line(stage, own)
    known = stage.learned.get(NUMBERS, [])
    numbers = [name for name in _TAKEN.findall(line) if name not in known]
    return (bool(numbers) and stage.learn(NUMBERS, [*known, *numbers])) or stage.learn("other_columns", True)


def _called_otherwise(stage: Stage) -> bool:
    """Call the images of folders without folders of classes in the next of the usual ways: a part of a name is no number."""
    called = stage.learned.get(CALLED, 0) + 1
    flat = bool(stage.made_flat or stage.learned.get("flat"))
    return flat and called < WAYS_TO_CALL and stage.learn(CALLED, called)


def _misses_names(stage: Stage, error: BaseException, frames: Sequence[types.FrameType]) -> bool:
    """Whether a number was looked up where a table of the user's has the names of the classes: those that it has, then."""
    if not (isinstance(error, KeyError) and error.args and isinstance(error.args[0], int | np.integer)):
        return False
    names, found_in = set(Maker(stage).names), _tables(stage, frames)
    if any(set(table) == names for table in found_in):
        return True
    numbered = (table for table in found_in if all(isinstance(name, str) for name in table) and _counts_up(table.values()))
    if (found := next(numbered, None)) is not None:
        stage.learn("names", list(found))
    return found is not None


def _tables(stage: Stage, frames: Sequence[types.FrameType]) -> list[dict[Any, Any]]:
    """The dictionaries that the user's code has at hand where it stopped."""
    own = [frame for frame in frames if is_users(frame.f_code.co_filename, stage.root)]
    known = [table for frame in own for table in (frame.f_locals, frame.f_globals, vars(frame.f_locals.get("self", stage)))]
    return [value for table in known for value in table.values() if type(value) is dict and len(value) > 1]


def _beyond_a_table(stage: Stage, error: KeyError, frames: Sequence[types.FrameType]) -> bool:
    """Whether a number of a class was looked up in a table of fewer, which has those from 0 on: there are as many classes."""
    key = error.args[0] if error.args else None
    if not isinstance(key, int | np.integer):
        return False
    counts = [len(table) for table in _tables(stage, frames) if _counts_up(table) and 0 in table and key >= len(table)]
    return bool(counts) and stage.learn("classes", max(counts))


def _counts_up(values: Collection[Any]) -> bool:
    """Whether values are the numbers from 0 or 1 on, each once."""
    numbers = [value for value in values if type(value) is int]
    return len(numbers) == len(values) and sorted(numbers) in ([*range(len(numbers))], [*range(1, len(numbers) + 1)])


def _has_names_for_labels(own: Sequence[types.FrameType]) -> bool:
    """Whether a batch has names of made images, where its images are there: a column of labels was not known for one."""
    batches = [value for _, value in (of_kind(own[-1].f_locals, tuple, list) if own else ()) if value]
    return any(all(isinstance(item, str) and MADE_NAME.fullmatch(item) for item in batch) for batch in batches)


def _has_a_name(own: Sequence[types.FrameType]) -> bool:
    """Whether the name of a made image is at hand where the user's code stopped: any other column has it, too."""
    values = own[-1].f_locals.values() if own else ()
    return any(isinstance(value, str) and MADE_NAME.fullmatch(value) for value in values)


def _of_a_class(stage: Stage, text: str) -> bool:
    """Whether a number was expected where the name of a class stands."""
    found = re.search(r": '(.*)'$", text)
    return found is not None and any(name in found[1] for name in Maker(stage).names)


def fewer(stage: Stage, frames: Sequence[types.FrameType]) -> bool:
    """The model's outputs are fewer than the classes that were made: the loss's input says how many."""
    for frame in reversed(frames):
        of_loss = frame.f_code.co_name in ("cross_entropy", "nll_loss")
        for name, value in frame.f_locals.items():
            shape = shape_of(value)
            wide = isinstance(shape, tuple) and len(shape) == 2 and shape[1] >= 2
            outputs = wide and (getattr(value, "requires_grad", False) or (of_loss and name == "input"))
            if outputs and int(shape[1]) != stage.learned.get("classes"):
                return stage.learn("classes", int(shape[1]))
    return stage.learn("full", True)


def _more_classes(stage: Stage, error: KeyError | IndexError, frames: Sequence[types.FrameType]) -> bool:
    """A table of the classes has fewer than the model has outputs: the scores at hand say how many these are."""
    made = Maker(stage).classes
    key = error.args[0] if error.args else None
    wanted = int(key) if isinstance(error, KeyError) and isinstance(key, int | np.integer) else made
    for frame in reversed(frames):
        shapes = {name: shape_of(value) for name, value in frame.f_locals.items()}
        flat = {name: shape for name, shape in shapes.items() if isinstance(shape, tuple) and len(shape) == 2}
        counts = [int(shape[1]) for name, shape in flat.items() if isinstance(error, KeyError) or _SCORES.search(name)]
        if wanted >= made and (fitting := [count for count in counts if wanted < count <= _MOST_CLASSES]):
            return stage.learn("classes", min(fitting))
    return False
