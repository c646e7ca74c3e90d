"""One rank of a split model: a process that computes the scores of its own classes, until the session that started it ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import ArtifactError, BackendError, HeadraceError
from ...base.memory import give_back_memory
from ...base.session import Session
from .best import best_of_part
from .link import Kind
from .member import begin, open_part, show_life


def main() -> None:
    """It begins as `begin_child` says, the session's process being its parent."""
    if (begun := begin()) is None:
        return
    link, wanted = begun
    try:
        session, width = _open(wanted)
    except HeadraceError as error:
        link.send(Kind.FAILED, 0, 0, str(error).encode())
        return
    link.send(Kind.READY, 0, width)
    show_life(link)
    while (message := link.receive()) is not None:
        try:
            features = np.frombuffer(message.data, np.float32).reshape(-1, width)
            answer = _answer(session, features, wanted["classes"], message.value)
        except HeadraceError as error:
            link.send(Kind.FAILED, message.serial, 0, str(error).encode())
        else:
            link.send(Kind.RESULT, message.serial, 0, *answer)


def _open(wanted: dict[str, Any]) -> tuple[Session, int]:
    """The part's session, and the width of the features that it takes."""
    file, classes, session = wanted["file"], wanted["classes"], open_part(wanted)
    inputs, outputs = session.tensors
    widths = [shape[1] for _, kind, shape in inputs if kind == "tensor(float)" and len(shape) == 2]
    rows = [list(shape[1:]) for _, kind, shape in outputs if kind == "tensor(float)"]
    if len(inputs) != 1 or len(outputs) != 1 or rows != [[classes]] or not widths or type(widths[0]) is not int:
        raise ArtifactError(
            f"{file} is no graph from float32 features to the scores of {classes} classes; split the model again"
        )
    session.run([np.zeros((1, widths[0]), np.float32)])
    give_back_memory()
    return session, widths[0]


def _answer(session: Session, features: np.ndarray, classes: int, count: int) -> tuple[np.ndarray, ...]:
    (scores,) = session.run([features])
    if scores.shape != (len(features), classes) or scores.dtype != np.float32:
        raise BackendError(f"scores are {scores.dtype}{list(scores.shape)}, not float32{[len(features), classes]}")
    if not count:
        return (np.ascontiguousarray(scores),)
    return tuple(np.ascontiguousarray(value) for value in best_of_part(scores, count))


if __name__ == "__main__":
    main()
