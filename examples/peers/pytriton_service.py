"""PyTriton, after https://triton-inference-server.github.io/pytriton/latest/inference_callables/decorators: batches of 8."""

import numpy as np
from classifier import BATCH, WAIT_SECONDS, Classifier, announce, arguments
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

if __name__ == "__main__":
    given = arguments()
    classifier = Classifier(given.model, given.session)

    @batch
    def classify(image):
        rows = np.stack([classifier.decode(encoded) for encoded in image.ravel()])
        return dict(zip(("index", "probability"), classifier.top(classifier.scores(rows)), strict=True))

    ports = {"http_port": given.port, "allow_grpc": False, "allow_metrics": False, "http_address": "127.0.0.1"}
    with Triton(config=TritonConfig(**ports)) as triton:
        triton.bind(
            model_name="classifier",
            infer_func=classify,
            inputs=[Tensor(name="image", dtype=bytes, shape=(1,))],
            outputs=[
                Tensor(name="index", dtype=np.int64, shape=(5,)),
                Tensor(name="probability", dtype=np.float32, shape=(5,)),
            ],
            config=ModelConfig(
                max_batch_size=BATCH, batcher=DynamicBatcher(max_queue_delay_microseconds=int(WAIT_SECONDS * 1e6))
            ),
        )
        announce(given)
        triton.serve()
