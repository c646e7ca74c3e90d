import asyncio

import pytest
import torch


def test_decorators_leave_what_they_decorate(library):
    bentoml = library("bentoml")

    @bentoml.service(resources={"cpu": "1"})
    class Mine:
        @bentoml.api(batchable=True)
        def classify(self, image):
            return image

    assert Mine().classify(3) == 3
    assert bentoml.service(Mine) is Mine


def test_a_model_that_was_saved_is_run_and_no_other(library):
    bentoml = library("bentoml")
    bentoml.pytorch.save_model("twice", torch.nn.Linear(2, 3), metadata={"a": 1})
    runner = bentoml.pytorch.get("twice:latest").to_runner()
    assert asyncio.run(runner.async_run(torch.zeros(1, 2))).shape == (1, 3)
    assert bentoml.models.get("twice").info.metadata == {"a": 1}
    with pytest.raises(bentoml.NotFound, match="other:latest lies in BentoML"):
        bentoml.pytorch.get("other:latest")
