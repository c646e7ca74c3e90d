"""What is measured here is the embedded server with the models of its own tests."""

from tests.runtime.conftest import conv_net, new_conv_net
from tests.serving.bench.conftest import colors, measured_once
from tests.serving.conftest import busy_models, make_photo, models, server, start

__all__ = ["busy_models", "colors", "conv_net", "make_photo", "measured_once", "models", "new_conv_net", "server", "start"]
