"""BentoML, after https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html: one worker, batches of 8."""

import os
from pathlib import Path

import bentoml
import numpy as np
from classifier import BATCH, Classifier, announce, arguments

MODEL, SESSION = (os.environ.get(f"PEER_{name}", "") for name in ("MODEL", "SESSION"))


@bentoml.service(workers=1, traffic={"timeout": 60})
class Service:
    def __init__(self):
        self.classifier = Classifier(MODEL, SESSION)

    @bentoml.api(batchable=True, max_batch_size=BATCH, max_latency_ms=1000)
    def classify(self, images: list[Path]) -> list[dict]:
        rows = np.stack([self.classifier.decode(image.read_bytes()) for image in images])
        return self.classifier.answers(self.classifier.scores(rows))


if __name__ == "__main__":
    given = arguments()
    os.environ |= {"PEER_MODEL": str(given.model.resolve()), "PEER_SESSION": given.session}
    announce(given)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    bentoml.serve("bentoml_service:Service", host="127.0.0.1", port=given.port, blocking=True)
