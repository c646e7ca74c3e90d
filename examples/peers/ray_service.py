"""Ray Serve, after https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html: one replica, batches of 8."""

import os
import signal
import threading

import numpy as np
import ray
from classifier import BATCH, WAIT_SECONDS, Classifier, arguments, write_ready
from ray import serve
from starlette.requests import Request


@serve.deployment(max_ongoing_requests=256)
class Service:
    def __init__(self, model, session):
        self.classifier = Classifier(model, session)

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT_SECONDS)
    async def classify(self, images: list[bytes]) -> list[dict]:
        return self.classifier.answers(self.classifier.scores(np.stack([self.classifier.decode(image) for image in images])))

    async def __call__(self, request: Request) -> dict:
        return await self.classify(await request.body())


if __name__ == "__main__":
    given = arguments()
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this machine alone, on loopback
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # small machines need more than the 30 that are given
    ray.init(
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(__file__)}},
    )
    serve.start(http_options={"host": "127.0.0.1", "port": given.port})
    serve.run(Service.bind(given.model, given.session), route_prefix="/")
    write_ready(given)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    serve.shutdown()
    ray.shutdown()
