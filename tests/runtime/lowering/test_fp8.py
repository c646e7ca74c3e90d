"""fp8 layers held to float64, by the definition of `_scaled_mm` and by torch's own kernel for CPUs, where this torch has one.

No GPU is needed: what a GPU demands of the operands is asked of torch's checks, which know the device and no values.
"""

import copy
import functools

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from headrace.errors import BackendError
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import read_program, runnable, write_program
from headrace.runtime.lowering.fp8 import _scaled, in_fp8
from headrace.runtime.lowering.precision import in_precision
from headrace.runtime.passes import run_passes

FP8, PRODUCT = torch.float8_e4m3fn, torch.ops.aten._scaled_mm.default


class Definition(torch.fx.Interpreter):
    """Runs a program in which every fp8 product is computed in float64 from what the operator is defined to be."""

    def call_function(self, target, args, kwargs):
        if target is not PRODUCT:
            return super().call_function(target, args, kwargs)
        left, right, left_scale, right_scale, bias, _, dtype, _ = args
        result = (left.double() * left_scale.double()) @ (right.double() * right_scale.double())
        return (result if bias is None else result + bias.double()).to(dtype)


def by_definition(program, *inputs):
    with torch.no_grad():
        return Definition(runnable(program)).run(*inputs)


def by_torch(program, *inputs):
    with torch.no_grad():
        return runnable(program)(*inputs)


@pytest.fixture(params=["by definition", "by torch"])
def run(request):
    """What computes a program's results."""
    if request.param == "by torch":
        request.getfixturevalue("fp8_products")
        return by_torch
    return by_definition


class Layers(nn.Module):
    """A wide layer, and a head after it; both results are outputs."""

    def __init__(self, *, bias=True, given=256, made=272):
        super().__init__()
        self.wide, self.head = nn.Linear(given, made, bias=bias), nn.Linear(made, 5)

    def forward(self, x):
        y = self.wide(x)
        return y, self.head(y)


class Turned(Layers):
    """The rows lie one beside another, not one after another."""

    def forward(self, x):
        return super().forward(x.t().contiguous().t())


class Several(nn.Module):
    """Layers of all kinds: one row three times, one layer twice, too narrow, not a multiple of 16, and two heads."""

    def __init__(self):
        super().__init__()
        self.narrow, self.odd, self.back = nn.Linear(64, 256), nn.Linear(256, 264), nn.Linear(264, 256)
        self.q, self.k, self.v = (nn.Linear(256, 256) for _ in range(3))
        self.twice = nn.Linear(256, 256, bias=False)
        self.heads = nn.ModuleList([nn.Linear(256, 512), nn.Linear(256, 5)])

    def forward(self, x):
        x = self.back(self.odd(self.narrow(x)).relu())
        x = x + F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
        x = self.twice(self.twice(x).relu()).mean(1)
        return tuple(head(x) for head in self.heads)


class Written(nn.Module):
    """The rows of one layer are written to before another reads them."""

    def __init__(self):
        super().__init__()
        self.one, self.other, self.head = nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 5)

    def forward(self, x):
        x = x.sin()
        y = self.one(x).relu_()
        x.mul_(-3.0)
        return self.head(y + self.other(x))


class Transformer(nn.Module):
    """A small ViT."""

    def __init__(self, width=256, classes=6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.1 * torch.randn(1, 17, width))
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def lowered(program):
    return in_fp8(in_precision(program, "bf16"))


def program_of(module, *shape):
    return run_passes(capture(module.eval(), torch.randn(2, *shape)))[0].program


@functools.cache
def transformer():
    """It and its program, which nothing changes."""
    torch.manual_seed(0)
    module = Transformer().eval()
    return module, program_of(module, 3, 16, 16)


def named(program, target):
    return [node for node in program.graph.nodes if node.target is target]


def of_fp8(*shape, powers):
    """Values that fp8 holds once each row is divided by its power of two; the largest of each row is 448 times that."""
    values = (torch.randn(shape) * 60).clamp(-448, 448).to(FP8).float()
    values[..., 3] = -448
    rows = values.flatten(0, -2)
    rows *= 2.0 ** torch.tensor(powers).repeat(len(rows))[: len(rows), None]
    return values


@pytest.mark.parametrize(
    ("inner", "bias"),
    [
        *(((), True), ((7,), False), ((3, 2), True)),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in (((), False), ((7,), True), ((3, 2), False))),
    ],
)
def test_what_fp8_holds_is_multiplied_exactly(run, bias, inner):
    """Rows and channels far apart, each with its own scale; batches of any size, also of rows that do not lie in order."""
    torch.manual_seed(0)
    module = Layers(bias=bias)
    with torch.no_grad():
        module.wide.weight.copy_(of_fp8(272, 256, powers=[0, -30, 7]))
        if bias:
            module.wide.bias.copy_(torch.randint(-50, 50, (272,)))
    program = lowered(program_of(module, *inner, 256))
    (product,) = named(program, PRODUCT)
    for batch in (1, 2, 5):
        rows = of_fp8(batch, *inner, 256, powers=[0, -40, 90, 3])
        layer = copy.deepcopy(module.wide).double()
        exact = layer(rows.double()).detach()
        for given in (rows, rows.transpose(0, -1).contiguous().transpose(0, -1)):
            wide, head = run(program, given)
            assert wide.dtype == head.dtype == torch.float32
            assert head.shape == (batch, *inner, 5)
            if run is by_definition:
                assert torch.equal(wide, exact.to(torch.bfloat16).float())
            else:  # whose sum of 256 products rounds
                most = 2**-8 * exact.abs() + 1e-5 * rows.abs().amax(-1, keepdim=True) * module.wide.weight.abs().amax(-1) * 256
                assert ((wide - exact).abs() <= most).all()
    assert product.args[6:] == (torch.bfloat16, True)


def test_rounding_stays_within_its_bound(run):
    """Three bits after the point: each factor is off by a sixteenth of itself, or by half of the least step of its row."""
    torch.manual_seed(1)
    module, rows = Layers(), torch.randn(5, 9, 256) * torch.rand(5, 9, 256) ** 6
    wide, _ = run(lowered(program_of(module, 9, 256)), rows)
    x, weight, bias = (item.detach().double() for item in (rows, module.wide.weight, module.wide.bias))

    def off(value):
        return value.abs() * (2**-4 + 2**-8) + value.abs().amax(-1, keepdim=True) / 448 * 2**-10

    exact = F.linear(x, weight, bias)
    most = F.linear(x.abs() + off(x), weight.abs() + off(weight)) - F.linear(x.abs(), weight.abs())
    error = (wide - exact).abs()
    assert (error <= most + 2**-7 * (exact.abs() + bias.abs()) + 1e-6).all()
    assert error.square().mean().sqrt() < 0.06 * (exact - bias).square().mean().sqrt()


def test_zeros_give_the_bias_and_what_is_no_number_stays_in_its_row(run):
    torch.manual_seed(2)
    module = Layers()
    program, rows = lowered(program_of(module, 6, 256)), torch.randn(5, 6, 256)
    rows[0, 1], rows[0, 2] = 0.0, 1e-38
    before, _ = run(program, rows)
    bias = module.wide.bias.detach().to(torch.bfloat16).float()
    assert torch.equal(before[0, 1], bias)
    assert torch.equal(before[0, 2], bias)
    assert before.isfinite().all()
    for value in (float("nan"), float("inf"), -float("inf")):
        rows[1, 3, 7], rows[4, 0, 255] = value, value
        after, head = run(program, rows)
        hit = torch.zeros(5, 6, dtype=torch.bool)
        hit[1, 3] = hit[4, 0] = True
        assert after[hit].isnan().all()
        assert head[hit].isnan().all()
        assert torch.equal(after[~hit], before[~hit])


def test_every_row_uses_the_whole_range_and_never_leaves_it():
    """Every magnitude that bf16 has above the least, the largest too, where a division could round past 448."""
    bits = torch.arange(0, 0x7F80, dtype=torch.int32).to(torch.int16)
    largest = bits.view(torch.bfloat16)
    rows = torch.stack([largest, -largest, largest / 3, torch.zeros_like(largest)], dim=1)
    values, scales = _scaled(rows)
    assert values.float().isfinite().all()
    assert scales.dtype == torch.float32
    assert (scales > 0).all()
    used = largest >= 2.0**-100
    assert used.sum() > 20_000
    assert (values[used, 0].float() == 448).all()
    assert (values[used, 1].float() == -448).all()
    assert (values[:, 3].float() == 0).all()
    restored = values.float() * scales
    assert (restored[~used, 0] - largest[~used].float()).abs().max() <= 2.0**-104  # a sixteenth, as of any value
    torch.testing.assert_close(restored[used, 0], largest[used].float(), rtol=1e-6, atol=0)


def test_a_row_that_is_no_number_has_a_scale_that_is_none():
    """Whatever a conversion makes of NaN; some make 448 of it."""
    rows = torch.ones(5, 16).bfloat16()
    rows[0, 3], rows[1, 15], rows[2, 0] = float("nan"), float("inf"), -float("inf")
    _, scales = _scaled(rows)
    assert scales.isnan().flatten().tolist() == [True, True, True, False, False]


def test_which_layers_are_lowered():
    torch.manual_seed(0)
    module, before = Several(), program_of(Several(), 9, 64)
    program = lowered(before)
    products, linears = named(program, PRODUCT), named(program, torch.ops.aten.linear.default)
    assert len(products) == 5  # q, k, v, and one layer twice
    assert len(named(program, torch.ops.aten.amax.default)) == 3  # q, k and v share theirs
    assert len({node.args[1] for node in products}) == 4
    stored = [value for value in program.state_dict.values() if value.dtype is FP8]
    assert [tuple(value.shape) for value in stored] == [(256, 256)] * 4
    left = {tuple(node.args[1].meta["val"].shape) for node in linears}
    assert left == {(256, 64), (264, 256), (256, 264), (512, 256), (5, 256)}
    assert {node.meta["val"].dtype for node in linears} == {torch.bfloat16}
    rest = {value.dtype for value in program.state_dict.values()} - {FP8}
    assert rest == {torch.bfloat16, torch.float32}  # the float32 are scales
    assert sum(value.numel() for value in program.state_dict.values() if value.dtype is torch.float32) == 4 * 256
    module = module.eval()
    assert len(by_definition(lowered(program_of(module, 9, 64)), torch.randn(3, 9, 64))) == 2


def test_rows_that_are_written_to_are_scaled_anew():
    torch.manual_seed(0)
    module, rows = Written().eval(), torch.randn(5, 256)
    with torch.no_grad():
        expected = copy.deepcopy(module).double()(rows.double())
    (actual,) = by_definition(lowered(capture(module, rows).program), rows)
    assert (actual - expected).abs().max() < 0.06 * expected.abs().max()


def test_a_transformer_keeps_its_classes(run):
    module, program = transformer()
    torch.manual_seed(0)
    images = torch.randn(64, 3, 16, 16) + 2 * torch.randn(64, 3, 1, 1)
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(images.double())
    program = lowered(program)
    assert len(named(program, PRODUCT)) == 8  # four in each layer
    (scores,) = run(program, images)
    error = (scores - exact).square().mean().sqrt() / exact.std()
    assert error < 0.1
    top = exact.topk(2).values
    clear = top[:, 0] - top[:, 1] > 0.2 * exact.std()
    assert clear.sum() > 32
    assert torch.equal(scores.argmax(1)[clear], exact.argmax(1)[clear])
    assert (scores.argmax(1) == exact.argmax(1)).double().mean() > 0.9


def test_the_batch_stays_symbolic_and_the_program_given_is_left_alone():
    _, program = transformer()
    graph, state = str(program.graph), {name: value.clone() for name, value in program.state_dict.items()}
    in_eight = lowered(program)
    assert str(program.graph) == graph
    assert all(torch.equal(value, state[name]) for name, value in program.state_dict.items())
    assert {name: value.dtype for name, value in program.state_dict.items()} == {name: state[name].dtype for name in state}
    assert str(in_eight.range_constraints) == str(program.range_constraints)
    *wide, _ = named(in_precision(program, "bf16"), torch.ops.aten.linear.default)
    for one, other in zip(named(in_eight, PRODUCT), wide, strict=True):
        rows = one.args[0].meta["val"].shape[0]
        assert isinstance(rows, torch.SymInt)
        assert str(rows) == str(other.args[0].meta["val"].flatten(0, -2).shape[0])
    for batch in (1, 2, 5, 33):
        assert by_definition(in_eight, torch.randn(batch, 3, 16, 16))[0].shape == (batch, 6)


def test_a_program_is_written_and_read(tmp_path):
    torch.manual_seed(0)
    program, images = lowered(transformer()[1]), torch.randn(5, 3, 16, 16)
    write_program(program, tmp_path / "model.pt2")
    again = read_program(tmp_path / "model.pt2", Target())
    for node in named(again, PRODUCT):
        assert node.args[1].meta["val"].stride()[0] == 1
    assert torch.equal(by_definition(again, images)[0], by_definition(program, images)[0])


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Layers(bias=False), (256,)),
        (Turned(), (256,)),
        (Several(), (9, 64)),
        pytest.param(Transformer(), (3, 16, 16), marks=pytest.mark.slow),  # whose products are of the kinds above
    ],
)
def test_torchs_checks_for_gpus_accept_every_product(module, shape):
    """The registration that traces an operator for CUDA: strides, multiples of 16, scales and their layout."""
    graph = runnable(lowered(program_of(module, *shape)))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for name, value in [*graph.named_parameters(), *graph.named_buffers()]:
            holder, _, last = name.rpartition(".")
            placed = mode.from_tensor(value.detach()).to("cuda:0")
            owner = graph.get_submodule(holder)
            delattr(owner, last)
            setattr(owner, last, placed)
        for batch in (1, 5):
            given = torch.empty(batch, *shape, device="cuda:0")
            results = torch.fx.Interpreter(graph).run(given)
            assert all(value.device.type == "cuda" and len(value) == batch for value in results)


def test_where_no_layer_is_wide_enough_it_says_so(conv_net):
    for module, shape in ((conv_net, (3, 8, 8)), (nn.Linear(256, 256), (256,)), (Layers(made=264), (256,))):
        with pytest.raises(BackendError, match="fp8 gains nothing here"):
            lowered(program_of(module, *shape))
