from torch import nn

from headrace.migrate.worker.live.modes import draws, told_apart


def test_layers_that_compute_something_else_are_named_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2), nn.Dropout(), nn.LayerNorm(2))
    assert told_apart(model) == ("Dropout", "BatchNorm1d")


def test_dropout_draws_in_evaluation_where_it_alone_is_in_training_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    assert not draws(model)
    model.eval()
    model[2].train()
    assert not draws(model)
    model[1].train()
    assert draws(model)
