"""bf16 and fp16 beside torch.autocast, both held to float64: what must stay in float32 does, and the rest does not."""

import copy

import pytest
import torch
from torch import nn

from headrace.runtime.capture.capture import capture
from headrace.runtime.capture.programs import runnable
from headrace.runtime.lowering.precision import DTYPES, in_precision
from headrace.runtime.passes import run_passes


class Mlp(nn.Module):
    """Residual blocks with layer normalization before and a layer scale after."""

    def __init__(self, width=24, depth=4, classes=7):
        super().__init__()
        self.stem = nn.Linear(12, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)) for _ in range(depth)]
        )
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(width)) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for norm, block, scale in zip(self.norms, self.blocks, self.scales, strict=True):
            x = x + scale * block(norm(x))
        return self.head(x)


class Attention(nn.Module):
    """Patches with a class token and positions, then attention, both torch's own and written out."""

    def __init__(self, width=16, classes=7):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width))
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True) for _ in range(2)]
        )
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        scores = (self.query(x) @ self.key(x).transpose(1, 2)) / 4
        x = x + scores.softmax(-1) @ x
        return self.head(x[:, 0])


def program_of(module, *shape, optimized=True):
    captured = capture(module, torch.randn(2, *shape))
    return (run_passes(captured)[0] if optimized else captured).program


def worst(expected, actual):
    return float(((expected - actual.double()).abs().max() / expected.abs().max()).detach())


def errors(module, program, rows, precision):
    """Ours and autocast's, as shares of the outputs' range in float64."""
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(rows.double())
        (ours,) = runnable(in_precision(program, precision))(rows)
        with torch.autocast("cpu", dtype=DTYPES[precision]):
            autocast = module(rows)
    assert ours.dtype == torch.float32
    return worst(exact, ours), worst(exact, autocast)


def dtypes(program):
    """The dtypes in which each operator gives its results."""
    found = {}
    for node in program.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor) and node.op == "call_function":
            found.setdefault(node.target._schema.name.removeprefix("aten::"), []).append(node.meta["val"].dtype)
    return found


def test_fp32_is_the_program_itself(conv_net):
    program = program_of(conv_net, 3, 8, 8)
    assert in_precision(program, "fp32") is program


# Their arithmetic is that of the mlp; which operators of theirs compute in which precision is held below.
@pytest.mark.parametrize("name", ["mlp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("conv", "attention"))])
def test_about_as_accurate_as_autocast(settled, conv_net, name):
    """Sums over seeds; bf16 rounds the residual stream, where autocast promotes it once a parameter in float32 joins in."""
    make = {
        "conv": lambda seed: settled(type(conv_net)(), seed),
        "mlp": lambda seed: Mlp(),
        "attention": lambda seed: Attention(),
    }
    shape = {"conv": (3, 9, 7), "mlp": (12,), "attention": (3, 16, 16)}[name]
    found = {(precision, optimized): [] for precision in DTYPES for optimized in (True, False)}
    for seed in range(3):
        torch.manual_seed(seed)
        module = make[name](seed).eval()
        captured, rows = capture(module, torch.randn(2, *shape)), torch.randn((1, 5, 2)[seed], *shape)
        programs = {True: run_passes(captured)[0].program, False: captured.program}
        for (precision, optimized), pairs in found.items():
            pairs.append(errors(module, programs[optimized], rows, precision))
    for (precision, _), pairs in found.items():
        ours, autocast = (sum(values) for values in zip(*pairs, strict=True))
        assert ours < 3 * (0.03 if precision == "bf16" else 0.003)
        assert ours < 2.5 * autocast


def test_weights_are_converted_once_and_back_to_back_conversions_are_none():
    program = in_precision(program_of(Attention().eval(), 3, 16, 16), "bf16")
    weights = {spec.arg.name for spec in program.graph_signature.input_specs if spec.target is not None}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.to.dtype:
            source = node.args[0]
            assert source.name not in weights
            again = [user for user in node.users if user.target is torch.ops.aten.to.dtype]
            assert not again, "converted twice"
    kept = {value.dtype for name, value in program.state_dict.items() if "norm" in name}
    assert kept == {torch.float32}
    assert all(value.dtype == torch.bfloat16 for name, value in program.state_dict.items() if "norm" not in name)


def test_which_operators_compute_in_which_precision(settled, conv_net):
    attention, convolutions = program_of(Attention().eval(), 3, 16, 16), program_of(conv_net, 3, 8, 8, optimized=False)
    for precision, dtype in DTYPES.items():
        found = dtypes(in_precision(attention, precision))
        for name in ("conv2d", "linear", "matmul", "scaled_dot_product_attention"):
            assert set(found[name]) == {dtype}, name
        assert set(found["layer_norm"] + found["softmax"]) == {torch.float32}
        assert found["add"] == [dtype if precision == "bf16" else torch.float32] * len(found["add"])  # the residual stream
        found = dtypes(in_precision(convolutions, precision))
        assert set(found["conv2d"] + found["batch_norm"] + found["relu"]) == {dtype}
        assert found["mean"] == [torch.float32]


class Affine(nn.Module):
    """ResMLP's: a product and a sum in one operator, before and beside a linear layer over the tokens."""

    def __init__(self):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.rand(1, 1, 6)), nn.Parameter(torch.rand(1, 1, 6))
        self.stem, self.tokens = nn.Linear(6, 6), nn.Linear(5, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.alpha * self.tokens(torch.addcmul(self.beta, self.alpha, x).transpose(1, 2)).transpose(1, 2)
        return x.mean(1)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_operators_on_activations_and_parameters(precision):
    torch.manual_seed(0)
    module = Affine().eval()
    ours, autocast = errors(module, program_of(module, 5, 6), torch.randn(3, 5, 6), precision)
    assert ours < 3 * max(autocast, 1e-3 if precision == "fp16" else 1e-2)


class Overflows(nn.Module):
    """Values of some ten thousands, whose sums and squares are beyond fp16, and factors far below it."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.linear, self.head = kind, nn.Linear(8, 256), nn.Linear(256, 5)
        self.gamma = nn.Parameter(torch.linspace(3e-8, 3e-7, 256))
        self.register_buffer("mask", torch.zeros(256).masked_fill(torch.arange(256) > 50, -1e9))

    def forward(self, x):
        x = 9000 * self.linear(x)
        if self.kind == "mean":
            x = x - x.abs().mean(-1, keepdim=True)
        elif self.kind == "sum":
            x = x / x.abs().sum(-1, keepdim=True)
        elif self.kind == "rms":
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        elif self.kind == "norm":
            x = x / x.norm(dim=-1, keepdim=True)
        elif self.kind == "normalize":
            x = nn.functional.normalize(x, dim=-1)
        elif self.kind == "layer norm":
            x = nn.functional.layer_norm(x, (256,))
        elif self.kind == "variance":
            x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()
        elif self.kind == "exp":
            x = (x / 1000).exp() / (x / 1000).exp().sum(-1, keepdim=True)
        elif self.kind == "large mask":
            x = (x / 9000 + self.mask).softmax(-1)
        elif self.kind == "masked fill":
            x = (x / 9000).masked_fill(self.mask < 0, -1e9).softmax(-1)
        elif self.kind == "tiny scale":
            x = 1e3 * (self.gamma * (x / 100))
        elif self.kind == "tiny number":
            x = 1e6 * (x * 1e-10)
        return self.head(x)


NAIVELY_RIGHT = ["mean", "layer norm", "large mask"]  # torch's kernels for a CPU take care of it
NAIVELY_WRONG = ["sum", "rms", "norm", "normalize", "variance", "exp", "masked fill", "tiny scale", "tiny number"]


@pytest.mark.parametrize("kind", [*NAIVELY_RIGHT, *NAIVELY_WRONG])
def test_what_would_overflow_or_vanish_stays_in_float32(kind):
    torch.manual_seed(0)
    module, rows = Overflows(kind).eval(), torch.randn(3, 8)
    program = program_of(module, 8, optimized=False)
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(rows.double())
        for precision, most in (("fp16", 0.005), ("bf16", 0.04)):
            (ours,) = runnable(in_precision(program, precision))(rows)
            assert torch.isfinite(ours).all()
            assert worst(exact, ours) < most
        try:
            naive = worst(exact, copy.deepcopy(module).half()(rows.half()))
        except RuntimeError:  # a number that fp16 does not have
            naive = float("inf")
    assert (not naive < 0.01) == (kind in NAIVELY_WRONG)


class Positions(nn.Module):
    """Features at positions computed from the size of the input: angles of hundreds of radians."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, x):
        x = self.linear(x)
        frequencies = torch.arange(8, dtype=torch.float32)[None] / 3 + 1
        angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] @ frequencies
        return x + 0 * x.mean(1, keepdim=True) + angles.sin()


class Sampled(nn.Module):
    """A spatial transformer: activations become positions in an image."""

    def __init__(self):
        super().__init__()
        self.where = nn.Linear(4, 6)
        self.conv = nn.Conv2d(1, 2, 1)

    def forward(self, x, theta):
        theta = 0.05 * self.where(theta).view(-1, 2, 3) + torch.eye(2, 3)
        grid = nn.functional.affine_grid(theta, [x.shape[0], 1, 64, 64], align_corners=False)
        return nn.functional.grid_sample(self.conv(x), grid, align_corners=False)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_positions_stay_in_float32(precision):
    torch.manual_seed(0)
    module, rows = Positions().eval(), torch.randn(3, 300, 4)
    exact = copy.deepcopy(module).double()(rows.double())
    for optimized in (True, False):
        (ours,) = runnable(in_precision(program_of(module, 300, 4, optimized=optimized), precision))(rows)
        assert worst(exact, ours) < 2e-2


def test_sampling_grids_are_computed_in_float32():
    torch.manual_seed(0)
    captured = capture(Sampled().eval(), (torch.randn(2, 1, 64, 64), torch.randn(2, 4)))
    found = dtypes(in_precision(captured.program, "bf16"))
    assert set(found["affine_grid_generator"] + found["grid_sampler"]) == {torch.float32}
    assert set(found["linear"] + found["conv2d"]) == {torch.bfloat16}


class Writes(nn.Module):
    """In-place operators: where nothing else reads the value, and where something does."""

    def __init__(self, shared):
        super().__init__()
        self.shared, self.linear, self.norm = shared, nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        x = self.linear(x)
        if self.shared:
            before = self.norm(x)
            x[:, :2].mul_(2)
            x += 1
            return self.linear(before + self.norm(x))
        return self.linear(x.relu_().add_(self.norm.weight)) + self.norm(x.square_())


@pytest.mark.parametrize(
    ("shared", "precision"),
    [
        (True, "fp16"),
        (False, "bf16"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((True, "bf16"), (False, "fp16"))),
    ],
)
def test_values_that_are_written_to(shared, precision):
    torch.manual_seed(0)
    module = Writes(shared).eval()
    ours, autocast = errors(module, program_of(module, 6), torch.randn(5, 6), precision)
    assert ours < 3 * max(autocast, 1e-3 if precision == "fp16" else 1e-2)


class Integers(nn.Module):
    """uint8 pixels in, standardized inside; scores, their classes and float64 statistics out."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, pixels):
        x = (pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.01
        features = self.conv(x).relu().mean((2, 3))
        scores = self.head(features)
        return {"scores": scores, "class": scores.argmax(1), "exact": features.double().sum(1), "half": scores.half()}


def test_inputs_and_outputs_keep_their_dtypes():
    torch.manual_seed(0)
    module = Integers().eval()
    pixels = torch.randint(0, 256, (5, 9, 9, 3), dtype=torch.uint8)
    expected = module(pixels)
    for precision in DTYPES:
        program = in_precision(capture(module, pixels).program, precision)
        given = runnable(program)(pixels)
        assert [value.dtype for value in given] == [value.dtype for value in expected.values()]
        assert worst(expected["scores"].double(), given[0]) < 0.02
        found = dtypes(program)
        assert set(found["conv2d"]) == {DTYPES[precision]}
        assert found["div"] == found["sub"] * 2 == [torch.float32] * 2


def test_the_program_given_is_left_alone_and_the_result_can_be_saved(conv_net, tmp_path):
    program = program_of(conv_net, 3, 8, 8)
    before = {name: value.clone() for name, value in program.state_dict.items()}
    graph = str(program.graph)
    reduced = in_precision(program, "bf16")
    assert str(program.graph) == graph
    assert all(torch.equal(value, before[name]) for name, value in program.state_dict.items())
    torch.export.save(reduced, tmp_path / "model.pt2")
    rows = torch.randn(7, 3, 8, 8)
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(rows)[0], runnable(reduced)(rows)[0])
