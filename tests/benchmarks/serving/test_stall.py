"""The waits are measured by another process, while bodies are sent to a real server."""

from tests.benchmarks.serving.stall import TOGETHER, measure
from tests.serving.attacks.bodies import BODIES


def test_every_body_has_its_row(server):
    chosen = dict(list(BODIES.items())[:2])
    rows = measure(server.http, "tiny", chosen)
    assert [row[:3] for row in rows] == [(name, len(make()), "413") for name, (_, make, _) in chosen.items()]
    assert all(0 < wait < 10_000 for row in rows for wait in row[3:])
    assert TOGETHER > 1
