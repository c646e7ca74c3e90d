"""The tables against the Lightning that is installed."""

import inspect

import pytest

from headrace.migrate.reading.lightning_2 import HOOKS, LOADERS

lightning = pytest.importorskip("pytorch_lightning")


@pytest.mark.parametrize("old", HOOKS)
def test_the_step_and_the_new_hook_are_a_modules_and_the_old_one_is_not(old):
    assert not hasattr(lightning.LightningModule, old)
    assert all(callable(getattr(lightning.LightningModule, name)) for name in HOOKS[old])


@pytest.mark.parametrize("method", LOADERS)
def test_the_trainer_takes_loaders_by_the_new_name_alone(method):
    old, new = LOADERS[method]
    taken = inspect.signature(getattr(lightning.Trainer, method)).parameters
    assert (old in taken, new in taken) == (False, True)
