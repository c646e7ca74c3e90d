"""Clients of servers whose models are several processes."""

import io
import itertools
import json
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import psutil
from PIL import Image


def photo(seed):
    pixels = np.random.default_rng(seed).integers(0, 255, (20, 24, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def ask(server, path, data=None):
    """The status, the body and the headers of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}{path}", data), timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null"), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null"), error.headers


def ranks_of(server, program="split.rank"):
    """The processes of a server that run that module, in the order of their numbers."""
    named = [(_command(child), child) for child in psutil.Process(server.process.pid).children(recursive=True)]
    found = [(command[-1], child) for command, child in named if any(part.endswith(program) for part in command)]
    return [child for _, child in sorted(found, key=lambda one: one[0])]


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def infer(client_module, address, rows, output="scores", model="faces", **options):
    with client_module.InferenceServerClient(address) as client:
        tensor = client_module.InferInput("images", rows.shape, "FP32")
        tensor.set_data_from_numpy(rows)
        wanted = [client_module.InferRequestedOutput(output, **options)]
        return client.infer(model, [tensor], outputs=wanted).as_numpy(output)


PAUSE = 0.02


class Load:
    """Clients that classify one photo each, again and again, with a pause between, until it is left; what they got: the status,
    the body, the headers and the number of the photo."""

    def __init__(self, server, clients=4):
        self._server = server
        self._stop = threading.Event()
        self.seen = []
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(clients)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        until(lambda: len(self.seen) > 10)
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed):
        image = photo(seed)
        while not self._stop.is_set():
            self.seen.append((*ask(self._server, "/v1/classify/faces", image), seed))
            self._stop.wait(PAUSE)

    def are_their_own(self):
        """Whether all answers are those that the photos got first, but for rounding, and those of no two photos are alike."""
        first = {}
        answers = [(_probabilities(body), seed) for status, body, _, seed in self.seen if status == 200]
        same = [_alike(first.setdefault(seed, answer), answer) for answer, seed in answers]
        apart = [not _alike(one, other) for one, other in itertools.combinations(first.values(), 2)]
        return all(same) and all(apart) and len(first) == len(self._threads)


def _probabilities(body):
    return {item["label"]: item["probability"] for item in body["predictions"]}


def _alike(one, other):
    """Batches of other sizes round otherwise."""
    return one.keys() == other.keys() and np.allclose([one[label] for label in one], [other[label] for label in one], rtol=1e-4)
