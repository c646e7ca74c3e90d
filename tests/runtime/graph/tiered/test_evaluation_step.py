"""The evaluation graph of a model that is trained meanwhile: same answers, and compiled only where that pays."""

from __future__ import annotations

import copy
import io
import logging
from typing import Any

import pytest
import torch
from torch import nn

import headrace
from headrace.runtime.graph.tiered.evaluation_step import EvaluationStep, _sizes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 5)
        nn.init.normal_(self.body[1].running_mean)
        nn.init.uniform_(self.body[1].running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


def close(step: Any, model: nn.Module, rows: int) -> None:
    images = torch.randn(rows, 3, 9, 11)
    with torch.no_grad():
        outputs = step(images)
        wanted = copy.deepcopy(model).double()(images.double())
    torch.testing.assert_close(outputs.double(), wanted, rtol=1e-4, atol=1e-5)


def test_it_computes_what_the_model_computes_while_weights_change() -> None:
    model = Net().eval()
    step = headrace.evaluation_step(model, patience=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for rows in (4, 4, 1, 3, 2):
            close(step, model, rows)
        assert step.graph.captures >= 1, f"patience 0 compiles at the first call (epoch {epoch})"
        model.train()
        model(torch.randn(6, 3, 9, 11)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()


def test_short_evaluations_stay_eager_and_long_ones_do_not() -> None:
    model = Net().eval()
    patient = headrace.evaluation_step(model, patience=1e6)
    for _ in range(5):
        close(patient, model, 4)
    assert patient.graph.captures == 0
    assert headrace.evaluation_step(model, patience=0) is not patient
    eager = headrace.evaluation_step(model, patience=1e-9)
    close(eager, model, 4)
    assert eager.graph.captures == 0, "one batch must show what eager costs"
    close(eager, model, 4)
    assert eager.graph.captures == 1


def test_the_same_model_has_one_step() -> None:
    model = Net()
    step = headrace.evaluation_step(model)
    assert headrace.evaluation_step(model) is step
    assert headrace.evaluation_step(Net()) is not step
    assert headrace.evaluation_step(model, config=headrace.GraphConfig(precision="fp32")) is not step


def test_training_mode_and_gradients_go_to_the_model_itself() -> None:
    model = Net()
    step = headrace.evaluation_step(model, patience=0)
    before = model.body[1].running_mean.clone()
    with torch.no_grad():
        step(torch.randn(4, 3, 9, 11))
    assert not torch.equal(before, model.body[1].running_mean), "batch-norm statistics are updated, as the script did"
    model.eval()
    step(torch.randn(4, 3, 9, 11)).sum().backward()
    assert model.head.weight.grad is not None
    model.body[3].train()  # Monte-Carlo dropout
    with torch.no_grad():
        images = torch.randn(4, 3, 9, 11)
        step(images)
        assert not torch.equal(step(images), step(images))
    assert step.graph.captures == 0


def test_a_model_that_cannot_be_captured_stays_eager_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    class Branching(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if float(x.sum()) > 0 else -super().forward(x)

    model = Branching().eval()
    step = headrace.evaluation_step(model, patience=0)
    with caplog.at_level(logging.WARNING):
        for sign in (1, -1, 1):
            images = torch.rand(4, 3, 9, 11) * sign
            with torch.no_grad():
                torch.testing.assert_close(step(images), model(images))
    assert step.refused
    assert len([record for record in caplog.records if "stays eager" in record.message]) == 1
    assert "eager" in repr(step)


def test_a_model_in_half_precision_stays_as_it_is() -> None:
    model = Net().eval().bfloat16()
    step = headrace.evaluation_step(model, patience=0)
    with torch.no_grad():
        images = torch.randn(4, 3, 9, 11).bfloat16()
        assert torch.equal(step(images), model(images))
    assert step(images).dtype == torch.bfloat16
    assert step.graph.captures == 0


def test_outputs_keep_their_structure() -> None:
    class Heads(Net):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            outputs = super().forward(x)
            return {"main": outputs, "aux": outputs * 2}

    model = Heads().eval()
    step = headrace.evaluation_step(model, patience=0)
    with torch.no_grad():
        images = torch.randn(4, 3, 9, 11)
        outputs = step(images)
        assert type(outputs) is dict
        torch.testing.assert_close(outputs, model(images), rtol=1e-4, atol=1e-5)
    assert step.graph.captures == 1


def test_wrappers_are_taken_off() -> None:
    model = nn.DataParallel(Net()).eval()
    step = headrace.evaluation_step(model, patience=0)
    close(step, model.module, 4)
    assert step.graph.captures == 1


def test_copies_and_pickles_of_the_model_leave_it_out() -> None:
    model = Net().eval()
    torch.save(model, plain := io.BytesIO())
    step = headrace.evaluation_step(model, patience=0)
    close(step, model, 2)
    ema = copy.deepcopy(model)
    assert headrace.evaluation_step(ema, patience=0).model is ema
    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"headrace" not in buffer.getvalue().replace(b"_headrace_evaluation", b"")
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    for saved in (plain, buffer):
        saved.seek(0)
    unsafe = torch.serialization.get_unsafe_globals_in_checkpoint
    assert sorted(unsafe(buffer)) == sorted(unsafe(plain))  # whoever allows the classes of the model needs to allow no more
    assert list(again.state_dict()) == list(model.state_dict())
    assert not any("headrace" in key for key in model.state_dict())


def test_inside_a_capture_it_is_the_model() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.step = headrace.evaluation_step(self.net, patience=0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.step(x).softmax(1)

    outer = Outer().eval()
    images = torch.randn(3, 3, 9, 11)
    graph = headrace.compile(outer, images)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), outer.net(images).softmax(1), rtol=1e-4, atol=1e-5)


def test_what_is_no_module_or_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nn\.Module, got a list"):
        headrace.evaluation_step([Net()])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="patience"):
        EvaluationStep(Net(), patience=-1.0)


def test_what_can_be_called_and_is_no_module_stays_as_it_is() -> None:
    nets = [Net().eval(), Net().eval()]

    def ensemble(images: torch.Tensor) -> torch.Tensor:
        return nets[0](images) + nets[1](images)

    with pytest.warns(UserWarning, match=r"a function is no nn\.Module"):
        assert headrace.evaluation_step(ensemble) is ensemble


def test_patience_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PATIENCE", "3.5")
    assert headrace.evaluation_step(Net()).patience == 3.5
    monkeypatch.setenv("HEADRACE_PATIENCE", "soon")
    with pytest.raises(headrace.errors.InputError, match="HEADRACE_PATIENCE"):
        headrace.evaluation_step(Net())


class Named(nn.Module):
    """Called and answering as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, pixel_values: Any = None, head_mask: Any = None, labels: Any = None) -> dict[str, torch.Tensor]:
        logits = self.net(pixel_values) if head_mask is None else self.net(pixel_values) * head_mask
        return {"logits": logits} if labels is None else {"logits": logits, "loss": logits.mean()}


def test_inputs_by_name_are_those_by_place_and_what_is_more_stays_eager() -> None:
    model = Named().eval()
    step = headrace.evaluation_step(model, patience=0)
    images = torch.randn(3, 3, 8, 8)
    with torch.no_grad():
        wanted = model(images)["logits"]
        torch.testing.assert_close(step(pixel_values=images)["logits"], wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(step(images, None)["logits"], wanted, rtol=1e-4, atol=1e-5)
        assert step.graph.captures == 1
        assert "loss" in step(pixel_values=images, labels=torch.zeros(3))
        masked = step(images, head_mask=torch.full((3, 1), 2.0))["logits"]
        torch.testing.assert_close(masked, 2 * wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(TypeError, match="unknown"):
            step(unknown=images)


def linear_and_images():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
    images = torch.randn(4, 3, 2, 2)
    return model, images


def test_weights_written_through_data_are_seen_by_the_next_evaluation(monkeypatch):
    """As averages of weights are, and what some optimizers update; torch counts no such writes."""
    monkeypatch.setattr("headrace.runtime.graph.tiered.evaluation_step._PAUSE", 0.0)
    model, images = linear_and_images()
    with torch.no_grad():
        for _ in range(3):
            step = headrace.evaluation_step(model, patience=0)
            torch.testing.assert_close(step(images), model(images))
            assert step.graph.captures == 1
            assert headrace.evaluation_step(model, patience=0).graph.captures == 1
            for weight in model.parameters():
                weight.data.mul_(0.5)


def test_a_write_to_one_element_after_the_first_call_of_a_graph_is_seen(monkeypatch):
    monkeypatch.setattr("headrace.runtime.graph.tiered.evaluation_step._PAUSE", 0.0)
    model, images = linear_and_images()
    with torch.no_grad():
        for at in range(3):
            step = headrace.evaluation_step(model, patience=0)
            torch.testing.assert_close(step(images), model(images))
            assert step.graph.captures == 1
            model[1].weight.data[at, 1] += 1.0  # which is none of those that are looked at for each call


def test_weights_are_looked_through_where_a_graph_answers_alone(monkeypatch):
    """That takes as long as a call with one image where most of a model is a large layer, and a page asks image by image."""
    module = "headrace.runtime.graph.tiered.evaluation_step"
    looks: list[int] = []
    monkeypatch.setattr(f"{module}._PAUSE", 0.0)
    monkeypatch.setattr(f"{module}._sizes", lambda tensors: looks.append(len(tensors)) or _sizes(tensors))
    model, images = linear_and_images()
    with torch.no_grad():
        for _ in range(3):
            headrace.evaluation_step(model)(images)
        assert looks == []
        for _ in range(3):
            headrace.evaluation_step(model, patience=0)(images)
    assert looks == [2, 2, 2]


def test_weights_of_which_torch_has_no_norm_are_no_obstacle():
    model = nn.Linear(3, 2).eval()
    model.register_buffer("scale", torch.ones(2, dtype=torch.float8_e4m3fn))
    model.register_buffer("empty", torch.ones(0))
    images = torch.randn(4, 3)
    with torch.no_grad():
        assert torch.equal(headrace.evaluation_step(model)(images), model(images))
