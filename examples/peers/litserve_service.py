"""LitServe, after https://lightning.ai/docs/litserve/features/batching: one worker, batches of 8."""

import litserve as ls
import numpy as np
from classifier import BATCH, WAIT_SECONDS, Classifier, announce, arguments


class Api(ls.LitAPI):
    def __init__(self, given):
        super().__init__(max_batch_size=BATCH, batch_timeout=WAIT_SECONDS)
        self.given = given

    def setup(self, device):
        self.classifier = Classifier(self.given.model, self.given.session)

    def decode_request(self, request):
        return self.classifier.decode(request["image"].file.read())

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, batch):
        return self.classifier.answers(self.classifier.scores(batch))

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    given = arguments()
    announce(given)
    server = ls.LitServer(Api(given), accelerator="cpu", devices=1, workers_per_device=1)
    server.run(host="127.0.0.1", port=given.port, generate_client_file=False)
