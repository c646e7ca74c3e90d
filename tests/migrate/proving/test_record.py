"""What the recorder does inside of a script, beyond the calls that it notes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace.migrate.proving.instrument import RECORDER
from headrace.migrate.proving.verify import read_record

Warm = Callable[..., subprocess.CompletedProcess[str]]
Recorded = Callable[..., tuple[str, Path]]


@pytest.fixture
def recorded_by(tmp_path: Path, warm_python: Warm) -> Recorded:
    """`recorded_by(script, **environment)`: what a script that finds the recorder in `folder` prints, and its record."""

    def run(text: str, **environment: str) -> tuple[str, Path]:
        script, record = tmp_path / "script.py", tmp_path / "record.npz"
        script.write_text(text.format(folder=str(RECORDER.parent)))
        done = warm_python([script], cwd=tmp_path, env={**os.environ, "HEADRACE_RECORD": str(record), **environment})
        assert done.returncode == 0, done.stderr
        return done.stdout, record

    return run


SERVICE = """
import sys
sys.path.insert(0, {folder!r})
import record
record.seed()
{serve}
print("went on")
"""


@pytest.mark.parametrize(
    ("serve", "ends"),
    [
        ("from http.server import HTTPServer; HTTPServer(('127.0.0.1', 0), None).serve_forever()", True),
        ("import asyncio; asyncio.run(asyncio.start_server(print, '::1', 0))", True),
        ("import socket; socket.create_server(('127.0.0.1', 0)).accept()", True),
        ("from multiprocessing import get_context; get_context('fork').Manager().dict()", False),
        ("import socket; socket.socketpair()", False),
    ],
)
def test_a_service_ends_where_it_begins_to_wait(tmp_path: Path, serve: str, ends: bool) -> None:
    script = tmp_path / "service.py"
    script.write_text(SERVICE.format(folder=str(RECORDER.parent), serve=serve))
    environment = {**os.environ, "HEADRACE_RECORD": str(tmp_path / "record.npz")}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "went on" in done.stdout) == ((1, False) if ends else (0, True)), done.stderr
    assert ends == done.stderr.endswith("it is a service, which waits for requests\n")


NUDGED = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import record
import torch
record.seed()
drawn = np.random.random(), torch.rand(1).item()
outputs = record.wrap("main.py:1", lambda x: x, lambda: None, lambda: ())(torch.arange(600.0).reshape(100, 6))
whole = record.wrap("main.py:2", lambda x: x, lambda: None, lambda: ())(torch.arange(6).reshape(3, 2))
by = outputs - torch.arange(600.0).reshape(100, 6)
print(sorted({{round(value, 3) for value in by.flatten().tolist()}}), whole.tolist(), drawn, np.random.random())
"""


@pytest.mark.parametrize(("nudge", "changes"), [("0.25", "[-0.25, 0.25]"), (None, "[0.0]")])
def test_outputs_are_nudged_and_random_numbers_are_not(recorded_by: Recorded, nudge: str | None, changes: str) -> None:
    printed, record = recorded_by(NUDGED, **({"HEADRACE_NUDGE": nudge} if nudge is not None else {}))
    assert printed == f"{changes} [[0, 1], [2, 3], [4, 5]] (0.5488135039273248, 0.49625658988952637) 0.7151893663724195\n"
    with np.load(record) as noted:
        assert np.array_equal(noted["main.py:1/outputs"], np.arange(600.0).reshape(100, 6))


SHARED = """
import sys
sys.path.insert(0, {folder!r})
import record
import torch
step = record.wrap("module.py:1", lambda x: 2 * x, lambda: None, lambda: (), graded=False)
trained = step(torch.ones(1, 2))
with torch.no_grad():
    print(trained.tolist(), step(torch.zeros(1, 2)).tolist())
"""


def test_a_call_that_serves_training_too_counts_where_no_gradients_are_wanted(recorded_by: Recorded) -> None:
    printed, record = recorded_by(SHARED, HEADRACE_NUDGE="0.5")
    trained, evaluated = printed.split("]] ")
    assert trained == "[[2.0, 2.0"
    assert "0.5" in evaluated, "only the evaluation is nudged"
    with np.load(record) as noted:
        assert noted["module.py:1/outputs"].tolist() == [[0, 0]]


TOGETHER = """
import sys
sys.path.insert(0, {folder!r})
import collections
import types
import record
import torch
Named = collections.namedtuple("Named", "logits features count")
given = torch.tensor([[1.0, -4.0]])
made = Named(given, 10 * given, 3), [given, torch.arange(2), None], types.SimpleNamespace(logits=given.clone())
by = lambda value, of: sorted((value - of).abs().unique().tolist())
for site in ("a.py:1", "b.py:2"):
    both = {{"features": 10 * given, "logits": given, "count": 3}}
    keyed = record.wrap(site, lambda x, both=both: both, lambda: None, lambda: ())(given)
    assert list(keyed) == ["features", "logits", "count"] and keyed["count"] == 3
    assert [round(v, 4) for v in by(keyed["logits"], given)] == ([0.5] if site == "a.py:1" else [0.0]), keyed
    named, listed, own = (record.wrap(site, lambda x, m=m: m, lambda: None, lambda: ())(given) for m in made)
    print([round(v, 4) for v in by(named.logits, given) + by(named.features, 10 * given) + by(listed[0], given)], named.count)
    print(listed[1:], [round(v, 4) for v in by(own.logits, given)])
"""


def test_outputs_that_stand_together_are_nudged_in_proportion_and_at_the_sites_that_are_told(recorded_by: Recorded) -> None:
    printed, record = recorded_by(TOGETHER, HEADRACE_NUDGE='{"a.py:1": 0.5}')
    told, others = "[tensor([0, 1]), None]", "[0.0, 0.0, 0.0] 3"
    assert printed.splitlines() == ["[0.5, 5.0, 0.5] 3", f"{told} [0.5]", others, f"{told} [0.5]"], printed
    with np.load(record) as noted:
        assert [noted["a.py:1/calls"].tolist(), noted["b.py:2/calls"].tolist()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


GENERATORS = """
import sys
sys.path.insert(0, {folder!r})
import random
import numpy as np
import record
record.seed()
drawn = [np.random.default_rng().random(), np.random.default_rng(None).random(), np.random.default_rng(seed=None).random()]
drawn += [np.random.RandomState().rand()]
drawn += [random.Random().random(), random.Random(None).random(), random.random()]
told = [np.random.default_rng(5).random(), random.Random(5).random()]
print(drawn, told, random.SystemRandom().random() != random.SystemRandom().random())
"""


def test_generators_that_nobody_seeds_start_alike(tmp_path: Path) -> None:
    script = tmp_path / "generators.py"
    script.write_text(GENERATORS.format(folder=str(RECORDER.parent)))
    command = [sys.executable, script]
    runs = [subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1]
    assert str([np.random.default_rng(5).random(), random.Random(5).random()]) in runs[0]
    assert runs[0].endswith("True\n")


LATER = """
import sys
sys.path.insert(0, {folder!r})
import record
record.seed()
before = "torch" in sys.modules
import torch
print(before, torch.rand(1).item(), torch.utils.data.DataLoader([0] * 8, batch_size=2)._index_sampler.rows)
"""


def test_torch_starts_alike_and_takes_slices_too_where_it_is_imported_later(tmp_path: Path) -> None:
    script = tmp_path / "later.py"
    script.write_text(LATER.format(folder=str(RECORDER.parent)))
    environment = {**os.environ, "HEADRACE_SLICE": "4"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "False 0.49625658988952637 4\n", done.stderr


RANK = """
import sys, time
sys.path.insert(0, {folder!r})
import record
record.LONGEST = 2.0
started = time.monotonic()
record.save()
record.wait_for_other_ranks()
print("waited", time.monotonic() - started >= 1.0)
import os; os._exit(0)
"""


@pytest.mark.parametrize("other", [True, False])
def test_a_rank_waits_for_what_the_others_write(tmp_path: Path, other: bool) -> None:
    (tmp_path / "record.py").write_bytes(RECORDER.read_bytes())
    record = tmp_path / "record.npz"
    if other:
        record.touch()
    environment = {**os.environ, "HEADRACE_RECORD": f"{record}.rank1", "HEADRACE_RANKS": "2"}
    command = [sys.executable, "-c", RANK.format(folder=str(tmp_path))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"waited {not other}\n"


MODELS = """
import sys
sys.path.insert(0, {folder!r})
import record
import torch
from torch import nn


class Other(nn.Linear):
    pass


def made(seed, kind=nn.Linear):
    torch.manual_seed(seed)
    return kind(3, 2)


def call(model):
    record.wrap("main.py:1", model, lambda: None, lambda: ())(torch.ones(2, 3))


first = made(1)
for model in (first, made(2), nn.DataParallel(first), made(1, Other).forward, first.forward, made(1), lambda rows: rows[:, :2]):
    call(model)
with torch.no_grad():
    first.weight += 1  # it is trained
call(first)
body = nn.Sequential(first)
for state in (made(3).state_dict(), made(4).state_dict(), made(3).state_dict()):  # folds
    first.load_state_dict(state)
    call(body)
"""


def test_rows_tell_which_of_several_models_gave_them(recorded_by: Recorded) -> None:
    _, record = recorded_by(MODELS)
    (recorded,) = read_record(record).values()
    assert recorded.models is not None
    assert recorded.models[::2].tolist() == [0, 1, 0, 2, 0, 0, 3, 0, 4, 5, 4]
    assert recorded.kinds == ("Linear", "Linear", "Other", "function", "Sequential", "Sequential")
    assert np.array_equal(recorded.of_model("Other").outputs, recorded.outputs[6:8])
    assert len(recorded.of_model("Linear").outputs) == len(recorded.of_model("nobody's").outputs) == 10
    alone = recorded.of_model("Other")
    assert (len(alone.inputs), alone.calls is not None and alone.calls.tolist(), alone.targets) == (2, [3, 3], None)


LOWER = """
import sys
sys.path.insert(0, {folder!r})
import record
import torch
from torch import nn


class Counts(nn.Linear):
    calls = 0

    def forward(self, rows):
        Counts.calls += 1
        return super().forward(rows)


torch.manual_seed(0)
model, rows = Counts(300, 5), torch.randn(2, 300)


def call(site, model, rows, training=False):
    Counts.calls = 0
    getattr(model, "__self__", model).train(training)
    result = record.wrap(site, model, lambda: None, lambda: ())(rows)
    print(site, Counts.calls, result.dtype)


call("plain", model, rows)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    call("lower", model.forward, rows)
    call("training", model, rows, True)
    call("only", model, rows.bfloat16())
    record.wrap("function", lambda rows: rows, lambda: None, lambda: ())(rows)
model.bfloat16()
call("weights", model, rows.bfloat16())
model.load_state_dict({{name: value * 0 for name, value in model.state_dict().items()}})
call("other weights", model, rows.bfloat16())
"""


def test_under_autocast_the_outputs_without_it_are_noted_beside_the_scripts_own(recorded_by: Recorded) -> None:
    printed, record = recorded_by(LOWER)
    # One that trains is not called again, and what is fed in a lower precision gives nothing without.
    said = dict(line.split(" ", 1) for line in printed.splitlines())
    assert said == {
        "plain": "1 torch.float32", "lower": "2 torch.bfloat16", "training": "1 torch.bfloat16", "only": "2 torch.bfloat16",
        "weights": "2 torch.bfloat16", "other": "weights 2 torch.bfloat16",
    }  # fmt: skip
    recorded = read_record(record)
    assert {site: (of.precision, of.reduced > 0) for site, of in recorded.items()} == {
        "plain": (None, False), "lower": ("bfloat16", True), "training": (None, False), "only": ("bfloat16", False),
        "function": (None, False), "weights": ("bfloat16", True), "other weights": ("bfloat16", False),
    }  # fmt: skip
    lower = recorded["lower"]
    assert np.array_equal(lower.outputs, recorded["plain"].outputs)
    assert lower.own is not None
    assert np.array_equal(lower.own, recorded["training"].outputs)
    assert lower.of_model("Counts").reduced == lower.reduced < 0.02


HELPED = """
import subprocess
import sys
sys.path.insert(0, {folder!r})
import record
import numpy as np
if sys.argv[1:] == ["helps"]:
    sys.stdin.read()  # until the one that called it has ended
else:
    record.wrap("a.py:1", lambda rows: 2 * rows, lambda: None, lambda: ())(np.ones((3, 2), np.float32))
    helper = subprocess.Popen([sys.executable, __file__, "helps"], stdin=subprocess.PIPE)
    print(helper.pid, flush=True)
"""


def test_a_process_that_helps_the_script_and_ends_after_it_takes_nothing_away(tmp_path: Path) -> None:
    script = tmp_path / "helped.py"
    script.write_text(HELPED.format(folder=str(RECORDER.parent)))
    environment = {**os.environ, "HEADRACE_RECORD": str(tmp_path / "record.npz")}
    # The output's end is that of both.
    done = subprocess.run([sys.executable, script], env=environment, stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout
    (recorded,) = read_record(tmp_path / "record.npz").values()
    assert recorded.outputs.tolist() == [[2, 2]] * 3


def test_a_module_that_torch_froze_has_no_mode_and_is_recorded(recorded_by: Recorded) -> None:
    text = (
        "import sys\nsys.path.insert(0, {folder!r})\nimport record\nimport torch\n"
        "net = torch.jit.freeze(torch.jit.trace(torch.nn.Linear(3, 2).eval(), torch.rand(1, 3)))\n"
        "print(tuple(record.wrap('main.py:1', net, lambda: None, lambda: ())(torch.rand(4, 3)).shape))\n"
    )
    printed, record = recorded_by(text)
    assert printed == "(4, 2)\n"
    with np.load(record) as noted:
        assert noted["main.py:1/outputs"].shape == (4, 2)
