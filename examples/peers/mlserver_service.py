"""MLServer, after https://docs.seldon.ai/mlserver/user-guide/custom and .../adaptive-batching: in-process, batches of 8."""

import asyncio

import numpy as np
from classifier import BATCH, WAIT_SECONDS, Classifier, announce, arguments
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import Base64Codec, NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse


class Service(MLModel):
    async def load(self) -> bool:
        self.classifier = Classifier(**self.settings.parameters.extra)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        images = Base64Codec.decode_input(payload.inputs[0])
        scores = self.classifier.scores(np.stack([self.classifier.decode(image) for image in images]))
        outputs = zip(("index", "probability"), self.classifier.top(scores), strict=True)
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output(name, values) for name, values in outputs]
        )


async def main(given):
    extra = {"model": str(given.model), "session": given.session}
    model = ModelSettings(
        name="classifier", implementation=Service, max_batch_size=BATCH, max_batch_time=WAIT_SECONDS,
        parameters=ModelParameters(extra=extra),
    )  # fmt: skip
    settings = Settings(host="127.0.0.1", http_port=given.port, grpc_port=0, metrics_port=0, parallel_workers=0)
    announce(given)
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(main(arguments()))
