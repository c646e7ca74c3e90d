"""LitServe's API class and server, as far as an API of images meets them. A server that runs does not serve here: what stands
in for that is `rehearsal.hosts.litserve`.
"""

# mypy: ignore-errors
# The names, and what their arguments may be, are those of another library.
import torch

try:
    from starlette.requests import Request
    from starlette.responses import Response
except ImportError:

    class Request: ...

    class Response: ...


class LitAPI:
    """What an API of the user's is made of; `setup` loads its model, and the rest takes a request to its answer."""

    max_batch_size, batch_timeout, api_path, stream, loop, spec, device = 1, 0.0, "/predict", False, "auto", None, None

    def __init__(
        self, max_batch_size=1, batch_timeout=0.0, api_path="/predict", stream=False, loop="auto", spec=None, mcp=None, **_
    ):
        self.max_batch_size, self.batch_timeout, self.api_path = max_batch_size, batch_timeout, api_path
        self.stream, self.loop, self.spec = stream, loop, spec

    def setup(self, device): ...

    def decode_request(self, request, **kwargs):
        return request

    def batch(self, inputs):
        if all(isinstance(item, torch.Tensor) for item in inputs):
            return torch.stack(inputs)
        return inputs

    def predict(self, x, **kwargs):
        raise NotImplementedError("predict is not implemented")

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output, **kwargs):
        return output

    def log(self, key, value): ...

    def health(self):
        return True


class LitServer:
    def __init__(self, lit_api, accelerator="auto", devices="auto", workers_per_device=1, max_batch_size=None, **options):
        self.lit_api, self.options = lit_api, options
        self.accelerator = accelerator
        for api in self.apis:
            if max_batch_size is not None:
                api.max_batch_size = max_batch_size
            if "api_path" in options:
                api.api_path = options["api_path"]

    @property
    def apis(self):
        return list(self.lit_api) if isinstance(self.lit_api, list | tuple) else [self.lit_api]

    def run(self, port=8000, **options): ...


class Callback: ...


class Logger:
    def process(self, key, value): ...


class OpenAISpec: ...


class OpenAIEmbeddingSpec: ...
