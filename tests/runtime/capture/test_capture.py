import dataclasses
import inspect
from pathlib import Path

import pytest
import torch
from torch import nn

from headrace.errors import CaptureError
from headrace.runtime.capture.capture import capture

ROWS = torch.randn(1, 4)


def line_of(function, text):
    """The number of the line in this file where the text stands inside the function."""
    lines, start = inspect.getsourcelines(function)
    return start + next(index for index, line in enumerate(lines) if text in line)


def refused(module, inputs=ROWS):
    with pytest.raises(CaptureError) as caught:
        capture(module, inputs)
    return caught.value.obstacles


def test_a_dynamic_batch_agrees_at_sizes_that_were_not_captured(conv_net):
    captured = capture(conv_net, torch.randn(1, 3, 20, 12))
    run = captured.program.module()
    for batch in (1, 2, 3, 7, 16):
        images = torch.randn(batch, 3, 20, 12)
        torch.testing.assert_close(run(images)[0], conv_net(images))


def test_signature_has_the_modules_names_and_a_batch(conv_net):
    signature = capture(conv_net, torch.randn(3, 3, 20, 12)).signature
    assert [(spec.name, spec.dtype, spec.shape) for spec in signature.inputs] == [("images", "float32", ("batch", 3, 20, 12))]
    assert [(spec.name, spec.shape) for spec in signature.outputs] == [("output", ("batch", 5))]


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (nn.Softmax(1), "class probabilities"),
        (nn.Sequential(nn.Softmax(1), nn.Unflatten(1, (5, 1, 1))), "class probabilities"),
        (nn.Identity(), "class scores"),
        (nn.LogSoftmax(1), "class scores"),
        (nn.Unflatten(1, (5, 1)), "class scores"),
        (nn.Sigmoid(), "multi-label probabilities, labels above 0.5"),
        (nn.Sequential(nn.Sigmoid(), nn.Unflatten(1, (5, 1, 1)), nn.Flatten()), "multi-label probabilities, labels above 0.5"),
        (nn.Sequential(nn.Sigmoid(), nn.Linear(5, 4)), "class scores"),
        (nn.Linear(5, 1), ""),
        (nn.Sequential(nn.Linear(5, 1), nn.Sigmoid()), "multi-label probabilities, labels above 0.5"),
        (nn.Sequential(nn.Linear(5, 48), nn.Unflatten(1, (3, 4, 4))), "dense map"),
    ],
)
def test_a_graph_knows_what_its_outputs_are(head, found):
    captured = capture(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), head).eval(), torch.randn(1, 3, 2, 2))
    assert str(captured.task.heads[0]) == found


def test_a_task_that_is_told_must_fit_the_outputs(conv_net):
    example = torch.randn(1, 3, 20, 12)
    assert str(capture(conv_net, example, task="multi-label:0.25").task.heads[0]) == "multi-label scores, labels above 0.25"
    with pytest.raises(ValueError, match="3 thresholds for 5 labels"):
        capture(conv_net, example, task="multi-label:0.25/0.5/0.75")


def test_rows_that_sum_to_one_for_the_example_alone_are_no_probabilities():
    class Whole(nn.Module):
        def forward(self, x):
            return x.abs()

    assert not capture(Whole(), torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])).task.heads[0].probabilities


def test_an_output_never_has_an_inputs_name():
    class Same(nn.Module):
        def forward(self, output):
            return {"output": output * 2}

    signature = capture(Same(), ROWS).signature
    assert [spec.name for spec in (*signature.inputs, *signature.outputs)] == ["output", "output_output"]


def test_outputs_keep_their_structure():
    @dataclasses.dataclass
    class Output:
        logits: torch.Tensor
        aux: object

    class Many(nn.Module):
        def forward(self, x, y):
            return Output(x + y, (x.sum(1), [None, y.argmax(1)]))

    captured = capture(Many(), (torch.randn(3, 4), torch.randn(3, 4)))
    assert [spec.name for spec in captured.signature.outputs] == ["logits", "aux_0", "aux_1_1"]
    assert captured.signature.outputs[2].dtype == "int64"
    rebuilt = captured.structure.rebuild(captured.program.module()(torch.randn(2, 4), torch.randn(2, 4)))
    assert isinstance(rebuilt, Output)
    assert rebuilt.aux[1][0] is None


class Disturbed(nn.Module):
    """Writes to itself while it runs, and may fail after that."""

    def __init__(self, fail):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.fail = fail
        self.seen = None

    def forward(self, x):
        self.seen = x * 2
        self.extra = nn.ReLU()
        self.norm.running_mean.add_(1)
        if self.fail:
            raise RuntimeError("boom")
        return self.linear(self.drop(self.norm(x)))


@pytest.mark.parametrize("fail", [False, True])
def test_the_module_is_as_it_was_even_after_an_error(fail):
    module = Disturbed(fail).train()
    module.drop.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    pointers = [value.data_ptr() for value in module.parameters()]
    obstacles = refused(module)
    assert {item.code for item in obstacles} == ({"PG100"} if fail else {"PG106"})
    assert module.training
    assert module.norm.training
    assert not module.drop.training
    assert module.seen is None
    assert not hasattr(module, "extra")
    assert [name for name, _ in module.named_children()] == ["linear", "norm", "drop"]
    assert [value.data_ptr() for value in module.parameters()] == pointers
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_dropout_and_batch_norm_run_in_evaluation_mode_whatever_the_modules_mode(settled):
    module = settled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.9))).train()
    captured = capture(module, torch.randn(5, 4))
    rows = torch.randn(3, 4)
    result = captured.program.module()(rows)[0]
    assert module.training
    torch.testing.assert_close(result, module.eval()(rows))


class IntBatch(nn.Module):
    def forward(self, x):
        groups = int(x.shape[0] / 1)
        return x.view(groups, -1)


class ValueTest(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        return x


class ToFloat(nn.Module):
    def forward(self, x):
        return x * float(x.max())


def test_a_fixed_batch_is_reported_at_its_line():
    (obstacle,) = refused(IntBatch())
    assert (obstacle.code, Path(obstacle.path).name) == ("PG121", Path(__file__).name)
    assert obstacle.line == line_of(IntBatch.forward, "int(x.shape[0]") or obstacle.line == line_of(IntBatch.forward, "x.view")


def test_a_decision_on_values_is_reported_at_its_line():
    (obstacle,) = refused(ValueTest())
    assert (obstacle.code, obstacle.line) == ("PG120", line_of(ValueTest.forward, "if x.sum"))


def test_all_obstacles_come_at_once_and_again_at_the_next_try():
    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(IntBatch(), ValueTest(), ToFloat())

        def forward(self, x):
            return {"logits": self.parts(x), "note": "text"}

    for _ in range(2):  # torch logs a file's name only once per process
        found = [(item.code, item.line) for item in refused(All())]
        assert sorted(code for code, _ in found) == ["PG103", "PG120", "PG120", "PG121"]
        assert all(line for _, line in found)


def test_an_operation_that_cannot_be_traced_is_reported_at_its_line():
    class Leaves(nn.Module):
        def forward(self, x):
            return torch.from_numpy(x.numpy() * 2)

    (obstacle,) = refused(Leaves())
    assert (obstacle.code, obstacle.line) == ("PG122", line_of(Leaves.forward, "numpy()"))


class OneIsSpecial(nn.Module):
    def forward(self, x):
        return x * 3 if x.shape[0] == 1 else x


class Squeezes(nn.Module):
    def forward(self, x):
        return x.unsqueeze(2).mean(2).squeeze()


class Mixes(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class FaintlyMixes(nn.Module):
    def forward(self, x):
        return x + 1e-4 * x.mean()


class RarelyMixes(nn.Module):
    """Divides by the batch's largest value where that is no usual one."""

    def forward(self, x):
        return x / x.abs().max().clamp(min=50)


class Counts(nn.Module):
    """One row and five rows alike, and two otherwise, by the number of rows alone."""

    def forward(self, x):
        return x + x.shape[0] % 2


class Layout(nn.Module):
    """Images whose channels come last in memory otherwise."""

    def forward(self, x):
        return x.mean((2, 3)) if x.is_contiguous() else x.amax((2, 3))


class Dropping(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x)


class Summing(nn.Module):
    def forward(self, x):
        return x.sum()


class Selecting(nn.Module):
    def forward(self, x):
        return x[x[:, 0] > -1e9]


class Broken(nn.Module):
    def forward(self, x):
        return x @ torch.zeros(9, 9)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (OneIsSpecial(), "PG111"),
        (Squeezes(), "PG111"),
        (Mixes(), "PG107"),
        (FaintlyMixes(), "PG107"),
        (RarelyMixes(), "PG107"),
        (Counts(), "PG107"),
        (nn.BatchNorm1d(4, track_running_stats=False), "PG111"),
        (Dropping(), "PG109"),
        (Summing(), "PG104"),
        (Selecting(), "PG105"),
        (Broken(), "PG100"),
        (nn.Linear(4, 4).bfloat16(), "PG100"),
        (nn.Linear(5, 4), "PG100"),
    ],
)
def test_what_would_answer_wrongly_is_refused(module, code):
    assert {item.code for item in refused(module)} == {code}


def test_what_depends_on_the_layout_of_images_is_refused():
    with pytest.raises(CaptureError, match=r"PG111 what the module answers depends on how its input lies in memory") as raised:
        capture(Layout(), torch.randn(2, 3, 8, 8))
    assert [item.code for item in raised.value.obstacles] == ["PG111"]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.recurrent = nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.recurrent(self.encoder(x))[0][:, -1]


def test_attention_and_recurrent_layers_are_not_taken_for_random():
    torch.manual_seed(0)
    module, rows = Attention().train(), torch.randn(3, 6, 4)
    result = capture(module, torch.randn(1, 6, 4)).program.module()(rows)[0]
    torch.testing.assert_close(result, module.eval()(rows))


class AttentionDrops(nn.Module):
    def forward(self, x):
        x = x[:, None, :]
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)[:, 0]


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


@pytest.mark.parametrize("module", [AttentionDrops(), Noisy(), Dropping()])
def test_what_draws_random_numbers_is_reported_at_its_line(module):
    (obstacle,) = refused(module)
    assert obstacle.code == "PG109"
    assert (
        obstacle.line
        == inspect.getsourcelines(type(module).forward)[1] + len(inspect.getsourcelines(type(module).forward)[0]) - 1
    )


@pytest.mark.parametrize(
    "inputs",
    ["text", torch.tensor(1.0), torch.zeros(0, 4), torch.zeros(2, 4).bfloat16(), (), (torch.zeros(2, 4), torch.zeros(3, 4))],
)
def test_bad_example_inputs_are_refused(inputs):
    assert {item.code for item in refused(nn.Identity(), inputs)} == {"PG101"}


def test_weights_with_nan_are_refused_by_name():
    module = nn.Linear(4, 4)
    with torch.no_grad():
        module.weight[1, 1] = float("nan")
    (obstacle,) = refused(module)
    assert obstacle.code == "PG110"
    assert "weight" in obstacle.message


def test_weights_on_another_device_are_refused():
    assert {item.code for item in refused(nn.Linear(4, 4, device="meta"))} == {"PG102"}


def test_a_lazy_module_that_never_ran_is_refused():
    assert {item.code for item in refused(nn.LazyLinear(3))} == {"PG100"}


def test_script_modules_are_refused_by_name():
    module = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.ReLU()))
    (obstacle,) = refused(module)
    assert (obstacle.code, obstacle.message.split()[0]) == ("PG108", "1")


def test_nothing_is_printed(capfd):
    refused(ValueTest())
    capture(nn.Linear(4, 4), ROWS)
    assert capfd.readouterr() == ("", "")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_capture_on_cuda(conv_net):
    captured = capture(conv_net.cuda(), torch.randn(1, 3, 16, 16, device="cuda"))
    assert captured.device == "cuda"
