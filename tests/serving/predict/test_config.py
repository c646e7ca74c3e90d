import pytest

from headrace.serving.predict.config import PredictConfig


@pytest.mark.parametrize("options", [{"top_k": 0}, {"decoding": "gpu"}, {"max_image_bytes": 0}, {"download_seconds": 0.0}])
def test_options_are_checked(options):
    with pytest.raises(ValueError, match="--"):
        PredictConfig(**options)
