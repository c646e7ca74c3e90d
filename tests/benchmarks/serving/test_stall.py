"""The waits are measured by another process, while bodies are sent to a real server, and to one that discards them."""

from tests.benchmarks.serving.stall import TOGETHER, measure
from tests.serving.attacks.bodies import BODIES, field


def test_every_body_has_its_row(server):
    chosen = dict(list(BODIES.items())[:2])
    message = {"no model": lambda: field(1, b"nobody")}
    rows = measure({"http": server.http, "grpc": server.grpc}, "tiny", {**chosen, **message})
    told = [(row.name, row.bytes, row.answered) for row in rows]
    assert told == [*((name, len(make()), "413") for name, (_, make, _) in chosen.items()), ("no model", 8, "NOT_FOUND")]
    assert all(0 < wait < 60_000 for row in rows for wait in row[4:])
    assert TOGETHER > 1
