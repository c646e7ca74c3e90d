"""What a script does to an image between opening it and giving it to its model, on probe images: `trace_probe` taken live.

Run as `python -m headrace.migrate.worker.live.transform REQUEST.json`, with the request and the answer of `trace_probe`. The
script runs to where it opens the image that its model gets. There the process forks for every probe: the fork opens the probe
instead and goes on, through whatever data set, transform or function there is, until the model is called.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import math
import os
import random
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Subset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from ...proving.trace_journal import Journal, follows, note
from ...proving.trace_probe import NOT_REACHED
from ...reading.recipe import Recipe
from ..rehearsal import Taken, making, torchvision_sets
from ..rehearsal.edges.libraries import image_extension
from ..rehearsal.places import is_users
from .calls import ModuleCalls
from .model import run_script
from .seen import Call, Seen

_SECONDS, _LEAST_SECONDS, _SLOWER = 20.0, 2.0, 20.0
"""What a fork may take from its image to the model's call; once others came there, so many times the slowest of them."""
_TRIED = 6
"""So many of the images that are opened before a call are tried for the one that the model gets."""
_TWICE = 2
"""So many probes are also run with other random numbers."""
_DATASETS, _MORE_SECONDS = 3, 40.0
"""So many data sets with which the model is evaluated are tried where what is done to the first one's images is random, each
for so long: a script may evaluate with what it trains on before it does with what it tests on."""
_NOT_THE_SCRIPTS = str(Path(__file__).parents[1] / "rehearsal") + os.sep, str(Path(Image.__file__).parent) + os.sep
"""What makes the images that stand in for the script's, and Pillow itself."""
_DECODING = os.path.join("edges", "libraries", "image_extension.py")
"""What decodes images for the script in place of torchvision, which does so where nobody can follow."""
_OF_TRANSFORMS = os.path.join("torchvision", "transforms", "_functional_pil.py")
"""What makes images of images: a change of hue, say."""


class Sources:
    """Where a script gets images from. `at` hears of each opened image's number before it is opened, and `past` of each that is
    opened after the probe.

    After `replace_next`, the next image is that of a file, and the journal follows it alone.
    """

    def __init__(self, journal: Journal, at: Callable[[int], None], past: Callable[[], None]) -> None:
        self._journal, self._at, self._past = journal, at, past
        self._probe: str | None = None
        self.given = False
        """Whether the probe was opened."""
        self.count = 0
        journal.strict = True
        journal.install()
        self._open = Image.open
        self._replace(Image, "open", self._open)
        for name in ("fromarray", "frombuffer"):
            self._replace(Image, name, self._array)
        self._replace(torchvision_sets, "photo", self._array)  # an item of a data set that is not here
        self._replace(making, "handed", self._handed)
        with contextlib.suppress(ImportError):
            cv2 = importlib.import_module("cv2")
            cv2.setNumThreads(0)  # a fork has none of its threads, and would wait for them
            journal.follow_opencv(cv2)
            for name in ("imread", "imdecode"):
                self._replace(cv2, name, self._opencv(name, getattr(cv2, name)))
        with contextlib.suppress(ImportError):
            image_extension.decode_by_pillow(importlib.import_module("torchvision.io"))

    def replace_next(self, path: str) -> None:
        self._probe = path

    def _array(self, *_: Any, **__: Any) -> Image.Image:
        assert self._probe is not None
        made = self._open(self._probe)
        made.load()
        return made

    def _handed(self, _: str, __: tuple[int, int], mode: str = "RGB") -> Image.Image:
        return self._array().convert(mode)

    def _opencv(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def read(source: Any, *args: Any, **kwargs: Any) -> Any:
            assert self._probe is not None
            return plain(self._probe if name == "imread" else np.fromfile(self._probe, np.uint8), *args, **kwargs)

        return read

    def _replace(self, owner: Any, name: str, probe: Callable[..., Any]) -> None:
        plain = getattr(owner, name)

        def opened(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_code.co_filename
            ours = caller.startswith(_NOT_THE_SCRIPTS) and not caller.endswith(_DECODING)
            within = owner is Image and (ours or caller.endswith(_OF_TRANSFORMS))
            if within or (self.given and name.startswith("from")):
                return plain(*args, **kwargs)  # a stand-in is being made; or it is of the probe's own pixels, perhaps
            if self.given:
                self._past()
            else:
                self.count += 1
                self._at(self.count)
            if self._probe is not None and not self.given:
                self.given = True
                return probe(self._probe, *args[1:], **kwargs)
            before = self._journal.read
            made = plain(*args, **kwargs)
            self._journal.read = before
            getattr(made, "__dict__", {}).pop("_ops", None)
            return made

        setattr(owner, name, opened)


class Tracer:
    """One run of the script that forks at the image which its model gets."""

    def __init__(self, recipe: Recipe, probes: list[str], alike: Sequence[int | None], out: Path) -> None:
        assert recipe.live is not None
        self.recipe, self.live, self.probes, self.alike, self.out = recipe, recipe.live, probes, alike, out
        self.journal = Journal()
        self.sources = Sources(self.journal, self._at, self._past)
        self.events: list[int] = []
        self.opened = 0
        """How many images were opened since the call before, of which those of `events` are tried."""
        self.before = self.latest = 0
        """The images that were opened when the call came last that got others, and when any came last."""
        self.looking = False
        self.child: Path | None = None
        self.missed = out / "missed.txt"
        """Holds why the script did not come to the call when it was run to learn which images are the call's."""
        self.found: list[tuple[dict[str, Any], np.ndarray | None, np.ndarray | None]] = []
        self._datasets: list[Any] = []
        self._openers: dict[int, int] = {}
        """Which object of the user's opened an image, by its identity."""
        self._which = 0
        self._doubtful: int | None = None
        """The first of several images that changes what the model gets, though that does not follow from its pixels alone."""
        self._until = math.inf
        self._slowest, self._came = _SECONDS / _SLOWER, False
        """What the forks took that came to the call, in seconds, and whether one did."""

    @property
    def random(self) -> bool:
        """Whether what is done to the images is another thing each time."""
        return any(found.get("random") for found, _, _ in self.found)

    def next_dataset(self) -> bool:
        """Turn to the call with images of the next data set, if the script comes to one soon."""
        for place in self.out.glob("probe-*"):
            place.unlink()
        self._which += 1
        self._until = time.monotonic() + _MORE_SECONDS
        self._start_anew([])
        return self._which < _DATASETS and self.look()

    def _start_anew(self, events: list[int]) -> None:
        self.found, self.events, self._doubtful, self.journal.read = [], events, None, None
        self.before = self.latest = self.sources.count = 0

    def run(self) -> str | None:
        """Run the script; why it did not come to the model's call, or None."""
        why = self._run()
        if not self.found and self._doubtful is not None:  # nothing that the script opened after it was a better one
            self._start_anew([self._doubtful])
            why = self._run()
        return why

    def _run(self) -> str | None:
        torch.set_num_threads(1)  # a fork waits for ever for the threads that its parent had
        with self.journal.follow_torch(torch), _one_image_batches(lambda: self.child is not None and self.sources.given):
            self._datasets = []
            ended = run_script(self.recipe, ModuleCalls(Path(self.recipe.root), self._hear), seed=0, until=self._until)
        if self.child is not None:
            os._exit(7)  # a fork that went past its call
        return ended.why

    def look(self) -> bool:
        """Run the script once in a fork, to learn which of the images that it opens are those of the call."""
        told = self.out / "events.json"
        told.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            self.looking = True
            self.missed.write_text(self.run() or "", encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)
        found: dict[str, Any] = json.loads(told.read_text()) if told.exists() else {"opened": 0, "tried": []}
        self.opened, self.events = max(self.opened, found["opened"]), found["tried"]
        return told.exists()

    def _tried(self, since: range) -> list[int]:
        """Those of the images opened before a call that are changed, one after the other."""
        if len(since) <= _TRIED:
            return list(since)
        *_, before, last = [], *(list(each) for _, each in itertools.groupby(since, self._openers.get))
        if (
            before
        ):  # of objects that open all their images as they are made, the call may be with those of the last or one before
            return sorted({since[0], *before[:2], *last[:2], since[-1]})
        # The first may be of a batch that the script took and did not use, the last of what it opens beside the model's images.
        return [*since[: _TRIED // 2], *since[-_TRIED // 2 :]]

    def why_none(self) -> str:
        """Why nothing was found though the script came to the call."""
        if self.opened <= _TRIED:
            return "the model's images are opened neither by Pillow nor by OpenCV"
        return (
            f"the script opens {self.opened} images before the model's call, and changed none of its batch where {_TRIED} of "
            "them were changed; images that are opened one by one, as a data set's items, can be followed"
        )

    def _hear(self, seen: Seen, call: Call) -> None:
        meant = seen.ordinal == self.live.ordinal and call.evaluating == self.live.evaluating
        wanted = meant and not (self.live.settled and call.training) and self._is_of_this(call)
        if self.looking and self.sources.count != self.latest:  # a part of the model, or another one, may get the same before
            self.before, self.latest = self.latest, self.sources.count
        if self.looking and wanted:
            since = range(self.before + 1, self.sources.count + 1)
            (self.out / "events.json").write_text(json.dumps({"opened": len(since), "tried": self._tried(since)}))
            raise Taken
        if self.child is not None and wanted:
            images = call.images.detach().cpu().float().reshape(len(call.images), *call.row).numpy()
            read = self.journal.read
            found, pixels = note(read)
            np.savez(self.child, images=images, **({} if pixels is None else {"pixels": pixels}))  # type: ignore[arg-type]
            self.child.with_suffix(".json").write_text(json.dumps(found))
            os._exit(0)
        if wanted and self.child is None and not self.looking:
            raise Taken  # past all images of the call

    def _is_of_this(self, call: Call) -> bool:
        """Whether a call is one with the data set that it is about, as the first one is with the first."""
        if all(known is not call.dataset for known in self._datasets):
            self._datasets.append(call.dataset)
        return self._which < len(self._datasets) and self._datasets[self._which] is call.dataset

    def _at(self, number: int) -> None:
        if self.looking:
            self._openers[number] = _opener(self.recipe.root)
        if self.looking or self.child is not None or number not in self.events:
            return
        if (
            self.found
        ):  # a handler of the script's took the end of the first for its own (`except:`), or it was another thread's
            raise Taken
        tests: list[np.ndarray | None] = []
        for index in (0, 1):
            if self._fork(index, 0):
                return
            tests.append(self._result(index, 0)[1])
        row = _differing(*tests)
        if row is None:
            return
        pixels, images = self._result(1, 0)[2], tests[1]
        of_them = images is not None and pixels is not None and follows(images[row], pixels)
        if len(self.events) > 1 and not of_them:
            self._doubtful = self._doubtful or number
            return
        for index, first in enumerate(self.alike):
            if first is not None and (self.found[first][1] is None or self.found[first][0]["mode"] == "RGB"):
                self.found.append(({"ok": False, "error": "not tried: one like it tells all"}, None, None))
                continue
            for attempt in range(2 if index < _TWICE else 1):
                if (index > 1 or attempt) and self._fork(index, attempt):
                    return
            found, images, pixels = self._result(index, 0)
            again = self._result(index, 1)[1] if index < _TWICE else images
            same = images is None or (again is not None and np.array_equal(images, again, equal_nan=True))
            output = images[min(row, len(images) - 1)] if images is not None else None
            self.found.append(({**found, "random": not same}, output, pixels))
            if not same:  # nothing will be fitted to what becomes of the others
                left = len(self.probes) - len(self.found)
                self.found += [({"ok": False, "error": "not tried: what is done is random"}, None, None)] * left
                break
        raise Taken

    def _past(self) -> None:
        """End a fork that turns to another image, where each call is with one: what it comes to is not the probe's."""
        if self.child is not None and self.opened == 1:
            os._exit(9)

    def _place(self, index: int, attempt: int) -> Path:
        return self.out / f"probe-{index}-{attempt}.npz"

    def _fork(self, index: int, attempt: int) -> bool:
        """Fork to run one probe; True in the fork, which goes on with the probe as its next image."""
        sys.stdout.flush()
        began, alone = time.monotonic(), threading.current_thread() is not threading.main_thread()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            if self._place(index, attempt).exists():
                took = time.monotonic() - began
                self._slowest = took if not self._came else max(self._slowest, took)
                self._came = True
            return False
        signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
        signal.setitimer(signal.ITIMER_REAL, min(_SECONDS, max(_LEAST_SECONDS, _SLOWER * self._slowest)))
        if alone:
            _end_with(_outermost(self.recipe.root))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        torch.set_num_threads(1)  # of those that it has started, the fork has none, and would wait for them
        random.seed(attempt)
        np.random.seed(attempt)
        torch.manual_seed(attempt)
        self.child = self._place(index, attempt)
        self.journal.read = None
        self.sources.replace_next(self.probes[index])
        return True

    def _result(self, index: int, attempt: int) -> tuple[dict[str, Any], np.ndarray | None, np.ndarray | None]:
        place = self._place(index, attempt)
        if not place.with_suffix(".json").exists():
            return {"ok": False, "error": NOT_REACHED}, None, None
        with np.load(place) as arrays:
            return json.loads(place.with_suffix(".json").read_text()), arrays["images"], arrays.get("pixels")


def _opener(root: str) -> int:
    """The object whose method of the user's runs."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and not is_users(frame.f_code.co_filename, root):
        frame = frame.f_back
    return id(frame.f_locals.get("self")) if frame is not None else 0


def _outermost(root: str) -> types.FrameType | None:
    """The user's function that this thread was given to run; None where that may stop in between."""
    frame, found = sys._getframe(), None
    while frame is not None:
        found = frame if is_users(frame.f_code.co_filename, root) else found
        frame = frame.f_back  # type: ignore[assignment]
    return None if found is None or found.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_GENERATOR) else found


def _end_with(function: types.FrameType | None) -> None:
    """End this fork when the function returns or raises: the thread that waits for that, as a server's does, is not here."""

    def profile(frame: types.FrameType, event: str, _: object) -> None:
        if event == "return" and frame is function:
            os._exit(8)

    if function is not None:
        sys.setprofile(profile)


@contextlib.contextmanager
def _one_image_batches(cut: Callable[[], bool]) -> Iterator[None]:
    """Within it, a batch ends with the image after which `cut` is true, and has no other: images of all sizes can be one."""
    plain = _MapDatasetFetcher.fetch

    def fetch(self: Any, indices: Any) -> Any:
        if not self.auto_collation or not _has_items(self.dataset):
            return plain(self, indices)
        items = []
        for index in indices:
            items.append(self.dataset[index])
            if cut():
                items = items[-1:]
                break
        return self.collate_fn(items)

    _MapDatasetFetcher.fetch = fetch
    try:
        yield
    finally:
        _MapDatasetFetcher.fetch = plain


def _has_items(dataset: Any) -> bool:
    """Whether a data set gives one item after the other, as a part of such does, too; some of the user's give batches."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return not hasattr(dataset, "__getitems__")


def _differing(one: np.ndarray | None, other: np.ndarray | None) -> int | None:
    """The row of the batch in which two probes make a difference."""
    if one is None or other is None or len(one) != len(other):
        return None
    differ = [one.shape != other.shape or not np.array_equal(a, b) for a, b in zip(one, other, strict=True)]
    return differ.index(True) if True in differ else None


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = Path(request["out"])
    names = Recipe.__dataclass_fields__
    recipe = Recipe.from_json({name: value for name, value in request["recipe"].items() if name in names})
    answer: dict[str, Any] = {"ok": False, "error": "the model's call was not made again", "where": recipe.script}
    arrays: dict[str, np.ndarray] = {}
    tracer = Tracer(recipe, request["probes"], request["alike"], out)
    if tracer.look():
        why = tracer.run()
        first = tracer.found
        while tracer.random and tracer.next_dataset():
            tracer.run()
        tracer.found = tracer.found if tracer.found and not tracer.random else first
        if tracer.found:
            probes = [{"path": path, **found} for path, (found, _, _) in zip(request["probes"], tracer.found, strict=True)]
            answer = {"ok": True, "probes": probes}
            for index, (_, output, pixels) in enumerate(tracer.found):
                pair = {f"output{index}": output, f"pixels{index}": pixels}
                arrays |= {name: value for name, value in pair.items() if value is not None}
        else:
            answer["error"] = why or tracer.why_none()
    elif tracer.missed.exists() and (missed := tracer.missed.read_text(encoding="utf-8")):
        answer["error"] = f"{answer['error']}: {missed}"
    np.savez(out / "trace.npz", **arrays)  # type: ignore[arg-type]
    (out / "trace.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
