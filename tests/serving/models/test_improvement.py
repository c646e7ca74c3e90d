"""What is tried beside the first session: by sessions that compute real (small) answers, and by OpenVINO's under traffic."""

import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from headrace.runtime.artifact.package import write_package
from headrace.runtime.artifact.plan import Choice, Measurement, Plan
from headrace.runtime.base.fingerprint import fingerprint
from headrace.serving.batching.batcher import Batcher
from headrace.serving.batching.latency_table import LatencyTable
from headrace.serving.config import ServeConfig
from headrace.serving.models.improvement import Candidate, Improvement
from headrace.serving.models.loading import load_tensor_model
from headrace.serving.models.memory_bound import MIB, MemoryBound
from headrace.specs import FP32
from tests.serving.conftest import BATCH, LABELS, PREPROCESSING, SIGNATURE, WEIGHTS, _onnx

SECONDS = 60.0


class Session:
    """Gives twice its input after so many seconds, with `twin` as another of the same; `fails` from that run on."""

    def __init__(self, seconds=0.0, *, factor=2.0, fails=None):
        self.seconds, self.factor, self.fails = seconds, factor, fails
        self.runs, self.closed = 0, threading.Event()

    def run(self, inputs):
        assert not self.closed.is_set()
        self.runs += 1
        if self.fails is not None and self.runs > self.fails:
            raise RuntimeError("out of memory")
        time.sleep(self.seconds)
        return [inputs[0] * self.factor]

    def close(self):
        self.closed.set()


class Serving:
    """A batcher of one session for two buckets, with what is tried beside it; each open session takes so much memory."""

    def __init__(self, first, *, limit=None, expected=0, taken=0, own=None, second=None, prove=None):
        self.first, self.resident, self.grown = first, 100 * MIB, []
        self.batcher = Batcher([dict.fromkeys((1, 4), first)], LatencyTable({1: 0.01, 4: 0.04}))
        self.memory = MemoryBound(limit, resident=lambda: self.resident, free=lambda: 200.0)  # an eighth of which is 25
        self.memory.settle()

        def opening(session):
            def open_it():
                self.resident += taken
                return {bucket: session() for bucket in (4,)} if own else dict.fromkeys((1, 4), session())

            return Candidate(open_it, expected)

        self.improvement = Improvement(
            "tiny",
            self.batcher,
            self.memory,
            own={4: opening(own)} if own else {},
            second=(lambda sessions: opening(second)) if second else None,
            prove=prove or (lambda made: None),
            unlike=lambda wanted, given: None if np.array_equal(wanted[0], given[0]) else "row 0 is off",
            grown=self.grown.append,
            slice_seconds=0.02,
        )
        self.improvement.start()
        self.stopped = threading.Event()

    def ask(self, rows=4):
        given = np.random.default_rng(rows).random((rows, 3), np.float32)
        ticket = self.batcher.admit(rows, timeout=SECONDS)
        self.batcher.submit(ticket, [given])
        np.testing.assert_array_equal(ticket.future.result(SECONDS)[0], given * 2)

    def until(self, *outcome, clients=1):
        """Ask until that came out."""
        end = time.monotonic() + SECONDS

        def client(_):
            while not self.improvement.outcomes[outcome] and time.monotonic() < end:
                self.ask()

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))
        assert self.improvement.outcomes == {outcome: 1}

    def close(self):
        self.improvement.stop()
        self.batcher.close()


@pytest.fixture
def serving():
    made = []

    def make(*given, **options):
        made.append(Serving(*given, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_quicker_session_for_one_batch_size_takes_it_over(serving):
    first, own = Session(0.004), Session(0.0005)
    running = serving(first, own=lambda: own)
    running.until("fixed batch", "kept")
    deadline = time.monotonic() + SECONDS
    while running.batcher.sessions()[4].session is not own and time.monotonic() < deadline:
        time.sleep(0.01)
    runs = own.runs
    running.ask(4)
    assert own.runs == runs + 1
    runs = first.runs
    running.ask(1)  # the other size is the first's still
    assert first.runs == runs + 1
    assert not first.closed.is_set()
    assert running.batcher.table.seconds(4) < running.batcher.table.seconds(1) * 4


def test_a_slower_one_is_closed_and_its_memory_counted_no_more(serving):
    first, own = Session(0.0005), Session(0.004)
    running = serving(first, own=lambda: own, taken=5 * MIB)
    running.until("fixed batch", "lost")
    assert own.closed.wait(SECONDS)
    running.ask(4)
    assert running.memory.room() == 25 * MIB


def test_without_traffic_nothing_is_opened(serving):
    own = Session()
    running = serving(Session(), own=lambda: own)
    for _ in range(40):
        running.ask(1)
    assert (own.runs, running.improvement.outcomes) == (0, {})


def test_a_size_that_the_first_session_runs_badly_is_tried_nevertheless():
    """Four requests that wait would always be two batches of two by the first session's times."""
    own = Session()
    batcher = Batcher([dict.fromkeys((1, 2, 4), Session(0.002))], LatencyTable({1: 0.002, 2: 0.003, 4: 0.009}))
    opened = threading.Event()

    def open_it():
        opened.set()
        return {4: own}

    memory = MemoryBound(None, resident=lambda: 0, free=lambda: 200.0)
    memory.settle()
    improvement = Improvement(
        "tiny", batcher, memory, own={4: Candidate(open_it, 0)}, second=None, prove=lambda made: None, unlike=lambda *_: None
    )
    improvement.start()
    end = time.monotonic() + SECONDS

    def client(_):
        while not opened.is_set() and time.monotonic() < end:
            ticket = batcher.admit(1, timeout=SECONDS)
            batcher.submit(ticket, [np.ones((1, 3), np.float32)])
            ticket.future.result(SECONDS)

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(client, range(8)))
        assert opened.is_set()
    finally:
        improvement.stop()
        batcher.close()


@pytest.mark.parametrize(
    ("expected", "taken", "opened"),
    [(30 * MIB, 0, False), (0, 30 * MIB, True), (30 * MIB, 30 * MIB, False)],
    ids=["by what was measured", "by what it takes", "both"],
)
@pytest.mark.parametrize("limit", [None, 120 * MIB])
def test_what_does_not_fit_is_not_kept(serving, limit, expected, taken, opened, caplog):
    own = Session()
    running = serving(Session(), own=lambda: own, limit=limit, expected=expected, taken=taken)
    with caplog.at_level("INFO", "headrace.serving"):
        running.until("fixed batch", "memory")
    assert (own.closed.wait(SECONDS if opened else 0), own.runs) == (opened, 0)
    assert [record.message for record in caplog.records if "memory bound leaves" in record.message]
    running.ask(4)


def test_what_cannot_be_opened_or_is_not_right_leaves_the_service_as_it_was(serving):
    def broken():
        raise RuntimeError("no such instruction")

    serving(Session(), own=broken).until("fixed batch", "failed")

    def wrong(made):
        raise ValueError("row 3 got an answer that is not its own")

    own = Session()
    running = serving(Session(), own=lambda: own, prove=wrong)
    running.until("fixed batch", "failed")
    assert own.closed.wait(SECONDS)
    assert own.runs == 0  # no request saw it
    running.ask(4)


def test_one_that_fails_while_it_is_tried_costs_no_request(serving):
    own = Session(fails=4)
    running = serving(Session(0.001), own=lambda: own)
    running.until("fixed batch", "failed")  # every answer is looked at
    assert own.closed.wait(SECONDS)


def test_one_that_answers_otherwise_is_closed_and_no_request_sees_it(serving):
    own = Session(factor=3.0)
    running = serving(Session(0.001), own=lambda: own)
    running.until("fixed batch", "failed")  # every answer is looked at
    assert own.closed.wait(SECONDS)
    running.ask(4)


def test_one_that_stays_and_is_wrong_later_is_taken_back(serving, caplog):
    first, own = Session(0.004), Session(0.0005)
    running = serving(first, own=lambda: own)
    running.until("fixed batch", "kept")
    own.factor = 3.0
    given = np.ones((4, 3), np.float32)
    end = time.monotonic() + SECONDS
    while not own.closed.is_set() and time.monotonic() < end:
        ticket = running.batcher.admit(4, timeout=SECONDS)
        running.batcher.submit(ticket, [given])
        ticket.future.result(SECONDS)
    assert running.improvement.outcomes == {("fixed batch", "kept"): 1, ("fixed batch", "failed"): 1}
    assert running.batcher.sessions() == dict.fromkeys((1, 4), first)
    assert "it answers otherwise: row 0 is off" in caplog.text
    running.ask(4)
    assert running.memory.room() == 25 * MIB


def test_a_second_instance_stays_where_it_serves_more(serving):
    running = serving(Session(0.004), second=lambda: Session(0.004))
    running.until("instance", "kept", clients=8)
    deadline = time.monotonic() + SECONDS
    while running.grown != [2] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (running.grown, running.batcher.instances) == ([2], 2)
    running.ask(4)


def test_one_that_serves_no_more_goes(serving):
    """The two share one device, as two requests to one compiled model do."""
    device = threading.Lock()

    class Sharing(Session):
        def run(self, inputs):
            with device:
                return super().run(inputs)

    second = Sharing(0.004)
    running = serving(Sharing(0.004), second=lambda: second)
    running.until("instance", "lost", clients=8)
    assert second.closed.wait(SECONDS)
    assert (running.grown, running.batcher.instances) == ([], 1)
    running.ask(4)


def test_a_lone_client_never_needs_a_second_instance(serving):
    second = Session()
    running = serving(Session(), second=lambda: second)
    for _ in range(200):
        running.ask(1)
        time.sleep(0.001)
    assert (second.runs, running.improvement.outcomes) == (0, {})


def test_closing_does_not_wait_for_what_is_being_opened():
    opening, go_on, own = threading.Event(), threading.Event(), Session()

    def slow():
        opening.set()
        assert go_on.wait(SECONDS)
        return own

    running = Serving(Session(), own=slow)
    while not opening.is_set():
        running.ask(4)
    running.close()  # with a model that was removed, or at the server's end
    assert not own.closed.is_set()
    assert running.first.closed.is_set()
    go_on.set()
    assert own.closed.wait(SECONDS)
    assert (own.runs, running.improvement.outcomes) == (0, {})


def test_closing_while_two_run_in_turn_closes_both():
    own = Session(0.001)
    running = Serving(Session(0.001), own=lambda: own)
    while not own.runs:
        running.ask(4)
    running.close()
    assert own.closed.is_set()
    assert running.first.closed.is_set()


def test_closing_while_a_second_instance_is_tried_closes_both():
    second = Session(0.004)
    running = Serving(Session(0.004), second=lambda: second)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [running.ask() for _ in range(30)] if not second.runs else None, range(40)))
    running.close()
    assert running.first.closed.is_set()
    assert second.closed.is_set() or not second.runs


def test_a_process_that_is_done_does_not_wait_for_a_library(tmp_path):
    code = """
import threading, time
from headrace.serving.models import improvement
stuck = threading.Thread(target=time.sleep, args=(600,))
improvement._under_way.add(stuck)
improvement.leave()
stuck.start()
print("answered", flush=True)
improvement.leave()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "answered\n"), done.stderr


# With OpenVINO, whose fixed-batch sessions are what plans on CPUs have.


@pytest.fixture
def planned(tmp_path):
    """A repository whose plan has one session for any batch, and two for batches of 4 and 8 alone."""
    pytest.importorskip("openvino")
    files, models = tmp_path / "files", tmp_path / "models"
    files.mkdir()
    models.mkdir()
    _onnx(files / "model.onnx")
    any_batch = Choice(backend="openvino", precision=FP32, files=("model.onnx",))
    fixed = {size: Choice(backend="openvino", precision=FP32, files=("model.onnx",), batch=size) for size in (4, BATCH)}
    measured = [
        Measurement(
            choice=Choice(backend="openvino", precision=FP32), bucket=BATCH, status="lost", median_ms=1.01, memory_mb=1
        ),
        Measurement(
            choice=Choice(backend="openvino", precision=FP32, batch=BATCH),
            bucket=BATCH,
            status="won",
            median_ms=1.0,
            memory_mb=1,
        ),
    ]
    plan = Plan(fingerprint=fingerprint(), choices={1: any_batch, **fixed}, threads=1, measurements=tuple(measured))
    write_package(
        models / "tiny", name="tiny", files_from=files, signature=SIGNATURE, preprocessing=PREPROCESSING, labels=LABELS,
        parity={}, plans=[plan], provenance={}, max_batch_size=BATCH,
    )  # fmt: skip
    return models


def load(models, memory, **options):
    config = ServeConfig.of(models=models, threads=1, **options)
    return load_tensor_model(models / "tiny", config, lambda text: None, version=1, memory=memory)


def ask(model, rows=4):
    given = np.random.default_rng(rows).random((rows, *SIGNATURE.inputs[0].row_shape), np.float32)
    ticket = model.batcher.admit(rows, timeout=SECONDS)
    model.batcher.submit(ticket, [given])
    np.testing.assert_allclose(ticket.future.result(SECONDS)[0], given.reshape(rows, -1) @ WEIGHTS, atol=1e-4)


def test_one_session_serves_every_size_until_others_are_proved(planned):
    model = load(planned, MemoryBound(1 << 40))
    try:
        sessions = model.batcher.sessions()
        assert sessions[1] is sessions[BATCH]  # measured beside each other, and not worth it
        assert sessions[4].session is sessions[1]
        end = time.monotonic() + SECONDS
        while not sum(model.improvement.outcomes.values()) and time.monotonic() < end:
            ask(model)
        assert sum(count for (tried, _), count in model.improvement.outcomes.items() if tried == "fixed batch") == 1
        assert not model.improvement.outcomes["fixed batch", "failed"]
        for rows in (1, 3, 4, 7):
            ask(model, rows)
    finally:
        model.close()


def test_a_bound_that_is_too_small_leaves_the_first_session(planned):
    model = load(planned, MemoryBound(1))
    try:
        end = time.monotonic() + SECONDS
        while not model.improvement.outcomes["fixed batch", "memory"] and time.monotonic() < end:
            ask(model)
        ask(model)
        while (sessions := model.batcher.sessions())[4] is not sessions[1] and time.monotonic() < end:  # just after it is told
            time.sleep(0.01)
        assert sessions[4] is sessions[1]
    finally:
        model.close()


def test_files_that_are_gone_when_they_are_tried_are_told_and_no_more(planned, caplog):
    model = load(planned, MemoryBound(1 << 40))
    try:
        shutil.rmtree(planned / "tiny")
        end = time.monotonic() + SECONDS
        while not model.improvement.outcomes["fixed batch", "failed"] and time.monotonic() < end:
            ask(model)
        assert model.improvement.outcomes["fixed batch", "failed"] == 1
        (line,) = [record.message for record in caplog.records if "is not used" in record.message]
        assert "the session for batches of 4" in line
        ask(model)
    finally:
        model.close()


def test_a_version_takes_over_while_another_is_tried(planned):
    """What was tried for the old one ends with it; the new one is tried by itself, with as much memory."""
    memory = MemoryBound(1 << 40)
    old = load(planned, memory)
    for _ in range(20):
        ask(old)
    new = load_tensor_model(
        planned / "tiny", ServeConfig.of(models=planned, threads=1), lambda text: None, version=1, before=old, memory=memory
    )
    old.close()
    try:
        end = time.monotonic() + SECONDS
        while not new.improvement.outcomes.total() and time.monotonic() < end:
            ask(new)
        assert new.improvement.outcomes.total()
        assert not any(outcome == "failed" for _, outcome in new.improvement.outcomes)
        ask(new, 7)
    finally:
        new.close()


def classify(server, image):
    connection = http.client.HTTPConnection(server.http, timeout=SECONDS)
    connection.request("POST", "/v1/classify/tiny", image, {"Content-Type": "image/png"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.mark.parametrize("frontends", [pytest.param(0, marks=pytest.mark.slow), 1])  # the engine does it, in either
def test_a_server_that_is_stopped_amid_all_this_ends_cleanly(planned, start, make_photo, monkeypatch, frontends):
    """Cold, then two at once from what it kept, then with that damaged: the answers are the same, and so is the end."""
    cache = planned.parent / "cache"
    monkeypatch.setenv("HEADRACE_CACHE", str(cache))
    answers = []
    for damaged, servers in ((False, 1), (False, 2), (True, 1)):
        for path in (cache / "compiled").iterdir() if damaged else ():
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        running = [start(planned, frontends=frontends, instances=None, memory_bytes=1 << 40) for _ in range(servers)]
        for server in running:
            status, answer = classify(server, make_photo(1))
            assert status == 200, server.output
            answers.append(answer["predictions"])
            assert ("is not as it was written" in server.output) == damaged
        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(classify, server, make_photo(seed)) for seed in range(150) for server in running]
            asked[20].result()
            for server in running:
                server.process.send_signal(signal.SIGTERM)
            codes = [server.process.wait(SECONDS) for server in running]
            answered = [one.result()[0] for one in asked if one.exception() is None]  # those that came too late found nobody
        assert codes == [0] * servers, [server.output for server in running]
        assert set(answered) <= {200, 503}
        assert not any("Traceback" in server.output for server in running)
    assert answers == answers[:1] * 4
    assert len(list((cache / "compiled").iterdir())) >= 1
