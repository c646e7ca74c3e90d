"""What is measured here is the embedded server with the models of its own tests."""

from tests.serving.conftest import make_photo, models, server, slow_models, start

__all__ = ["make_photo", "models", "server", "slow_models", "start"]
