"""The gRPC server stops: what was cancelled leaves the queue, everything else is answered."""

import signal
import threading
import time
import urllib.request

import tritonclient.grpc as triton

from tests.serving.inputs import input_of, noise


def test_cancelled_calls_leave_the_queue_and_draining_answers_the_others(start, slow_models):
    server = start(slow_models)
    with triton.InferenceServerClient(server.grpc) as own:
        answers: list = []
        done = threading.Event()

        def collect(result, error) -> None:
            answers.append((result, error))
            if len(answers) == 24:
                done.set()

        calls = [own.async_infer("slow", [input_of(triton, noise(1))], callback=collect) for _ in range(24)]
        end = time.monotonic() + 60
        while _accepted(server) < 12:
            assert time.monotonic() < end
            time.sleep(0.005)
        for call in calls[12:]:
            call.cancel()
        server.process.send_signal(signal.SIGTERM)
        assert done.wait(60)
    kept = [result for result, error in answers if error is None]
    assert len(kept) >= 12
    for result in kept:
        assert result.as_numpy("scores").shape == (1, 7)
    assert server.process.wait(60) == 0, server.output


def _accepted(server) -> float:
    """Requests that wait or were answered."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
        lines = response.read().decode().splitlines()
    counted = ("nv_inference_pending_request_count{", "nv_inference_request_success{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(counted))
