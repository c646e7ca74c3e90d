"""Functions that a cloud calls: of AWS Lambda and RunPod one that handles an event, of Azure `init` and `run`, of SageMaker
`model_fn`, `input_fn`, `predict_fn` and `output_fn`, in this order."""

from __future__ import annotations

import base64
import contextlib
import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ....survey.served_classes import handles_an_event
from ..requests import ENCODED, Form, forms, jpeg
from ..silent import Silent
from ..stage import Stage
from . import answered, at_its_class, own_values, source_of

LIBRARIES = ("azureml", "runpod", "sagemaker_inference")  # most import none
_FLAG = re.compile(r"^is[A-Z_]")
_KIND = re.compile(r"""["'](image/[\w.*+-]+|application/[\w.+-]+)["']""")
_OF_NUMBERS = re.compile(r"npy|python|pickle|xml", re.I)


class Event(str):
    """An image in an event, encoded: it is whatever is looked for in that, down to the first of several records."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, slice) else self.get(key)

    def get(self, key: Any, _: Any = None) -> Any:
        return False if isinstance(key, str) and _FLAG.match(key) else self

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        yield self


def hosted(stage: Stage) -> list[Any]:
    """The first of the script's functions that a cloud would call with an image."""
    own = {item.__name__: item for item in own_values(stage) if isinstance(item, types.FunctionType)}
    if "model_fn" in own and "input_fn" in own:
        return [own["model_fn"]]
    handlers = [item for item in own.values() if handles_an_event(item.__name__, [*inspect.signature(item).parameters], own)]
    return handlers[:1]


def call(stage: Stage, function: Any) -> None:
    stage.served = True
    if function.__name__ == "model_fn":
        answered(stage, "predict_fn of SageMaker", _of_sagemaker(stage, function))
        return
    begin = vars(sys.modules["__main__"]).get("init")
    if isinstance(begin, types.FunctionType) and not inspect.signature(begin).parameters:
        at_its_class(stage, begin, None, begin)  # of Azure's
    others = [Silent("context")] * (len(inspect.signature(function).parameters) - 1)
    encoded = [form for form in forms(stage, source_of(stage, function)) if form.name in ENCODED]
    answered(stage, f"{function.__name__} of a cloud", ((form.name, _told(stage, function, form, others)) for form in encoded))


def _told(stage: Stage, function: Any, form: Form, others: list[Any]) -> Callable[[], Any]:
    def ask() -> Any:
        with events_read():
            return at_its_class(stage, function, None, function, Event(form.make()), *others)

    return ask


def _of_sagemaker(stage: Stage, load: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Requests of the kinds of content that `input_fn` names."""
    own = vars(sys.modules["__main__"])
    model = at_its_class(stage, load, None, load, *[str(stage.made)] * min(1, len(inspect.signature(load).parameters)))
    named = [kind for kind in _KIND.findall(source_of(stage, own["input_fn"])) if not _OF_NUMBERS.search(kind)]
    for kind in dict.fromkeys([*named, "application/x-image", "image/jpeg"]):
        body = Event(base64.b64encode(jpeg(stage)).decode()) if "json" in kind else jpeg(stage)
        yield kind, partial(_asked, stage, model, body, kind)


def _asked(stage: Stage, model: Any, body: Any, kind: str) -> Any:
    own = vars(sys.modules["__main__"])
    predict, tell = own.get("predict_fn"), own.get("output_fn")
    with events_read():
        given = at_its_class(stage, own["input_fn"], None, own["input_fn"], body, kind)
        answer = model(given) if predict is None else at_its_class(stage, predict, None, predict, given, model)
        return answer if tell is None else at_its_class(stage, tell, None, tell, answer, "application/json")


@contextlib.contextmanager
def events_read() -> Iterator[None]:
    """Within it, JSON reads an event as itself."""
    plain = json.loads

    def loads(text: Any, *args: Any, **named: Any) -> Any:
        return text if isinstance(text, Event) else plain(text, *args, **named)

    json.loads = loads  # type: ignore[assignment]
    try:
        yield
    finally:
        json.loads = plain
