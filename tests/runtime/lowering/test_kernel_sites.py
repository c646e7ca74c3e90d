"""Which sites are found, and that each computes what torch's nodes did.

On a CPU operators are their references here; backends/test_kernels.py runs this again in Triton's interpreter."""

import functools

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from headrace.runtime.capture.programs import in_float64, runnable
from headrace.runtime.capture.rewrite import ProgramEditor
from headrace.runtime.lowering.kernel_sites import find_sites, functional, put_kernels
from headrace.runtime.lowering.precision import in_precision

TOLERANCE = {"fp32": 1e-5, "bf16": 4e-2, "fp16": 5e-3}
IMAGES, ROWS = (2, 3, 6, 5), (2, 3, 12)


class Model(nn.Module):
    """A function of itself, which has layers for it, and the input."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.conv, self.plain = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.odd = nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2))
        self.grouped, self.norm2d = nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d(3)
        self.same, self.uneven = nn.Conv2d(3, 4, 5, padding="same"), nn.Conv2d(3, 4, 2, padding="same")
        self.up, self.down, self.bare = nn.Linear(12, 20), nn.Linear(20, 12), nn.Linear(12, 20, bias=False)
        self.norm, self.naked = nn.LayerNorm(12), nn.LayerNorm(12, elementwise_affine=False)
        self.wide = nn.LayerNorm((3, 12))

    def forward(self, x):
        results = self.function(self, x)
        return results if isinstance(results, tuple) else (results,)


@functools.cache
def exported(function, shape, *, training=False, dtype=torch.float32):
    """Which nothing changes."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    model = Model(function).to(dtype).train(training)
    with torch.no_grad():
        return torch.export.export(model, (x,), dynamic_shapes=({0: Dim("batch", min=1, max=64)},), strict=False)


def found(program):
    return {(site.operator, site.names) for site in find_sites(ProgramEditor(functional(program)))}


def written(m, x):
    y = m.plain(x)
    y += x
    return y.relu_()


def each(value, *functions):
    return tuple(function(value) for function in functions)


def doubled(value):
    return value + value


def sum_used_on_both_sides(m, x):
    total = x + m.down(F.relu(m.up(x)))
    return total * 2, m.norm(total), total - 1


CONV, CONV_ADD, CONV_RELU = (("conv2d", ("conv2d", *names)) for names in ((), ("add",), ("relu",)))
BLOCK, SUM = ("conv2d", ("conv2d", "add", "relu")), ("add_relu", ("add", "relu"))
CUDNN_RELU, CUDNN_BLOCK = ("cudnn_convolution_relu", CONV_RELU[1]), ("cudnn_convolution_add_relu", BLOCK[1])
GELU, NORM = ("bias_gelu", ("linear", "gelu")), ("layer_norm", ("layer_norm",))
RESIDUAL = ("add_layer_norm", ("add", "layer_norm"))
POOL = ("max_pool2d", ("max_pool2d",))
BEST = ("softmax_topk", ("softmax", "topk", "getitem", "getitem"))

FOUND = {
    "convolution": (lambda m, x: m.conv(x), IMAGES, {CONV}),
    "odd convolution": (lambda m, x: F.relu(m.odd(x)), IMAGES, {CONV, CONV_RELU, CUDNN_RELU}),
    "groups": (lambda m, x: F.relu(m.grouped(x)), IMAGES, {CUDNN_RELU}),
    "same padding": (lambda m, x: m.same(x), IMAGES, {CONV}),
    "end of a block": (lambda m, x: F.relu(m.plain(x) + x), IMAGES, {CONV, CONV_ADD, BLOCK, CUDNN_BLOCK, SUM}),
    "written in place": (written, IMAGES, {CONV, CONV_ADD, BLOCK, CUDNN_BLOCK, SUM}),
    "two convolutions": (lambda m, x: F.relu(x + m.conv(x) - 1) + m.plain(x), IMAGES, {CONV, CONV_ADD}),
    "sum and relu": (lambda m, x: F.relu(x + x.flip(2)), IMAGES, {SUM}),
    "strided sum": (lambda m, x: F.relu(x[:, :, ::2] + x[:, :, 1::2].flip(1).expand(-1, 3, -1, -1)), (2, 3, 8, 7), {SUM}),
    "gelu": (lambda m, x: F.gelu(m.up(x)), ROWS, {GELU}),
    "tanh gelu of rows": (lambda m, x: F.gelu(m.up(x), approximate="tanh"), (2, 12), {GELU}),
    "layer norm": (lambda m, x: m.norm(x.transpose(1, 2).flip(2)), (2, 12, 12), {NORM}),
    "layer norm alone": (lambda m, x: m.naked(x), (2, 12), {NORM}),
    "residual": (sum_used_on_both_sides, ROWS, {NORM, RESIDUAL}),
    "narrow residual": (lambda m, x: m.up(m.norm(doubled(m.down(m.up(x))))), ROWS, {NORM, RESIDUAL}),
    "two norms of a sum": (lambda m, x: (m.norm(x + x.flip(1)), m.naked(x + x.flip(1))), ROWS, {NORM, RESIDUAL}),
    "largest of windows": (lambda m, x: F.max_pool2d(m.conv(x), 3, 2, 1), IMAGES, {CONV, POOL}),
    "largest of windows that touch": (lambda m, x: F.max_pool2d(x, (2, 3)), IMAGES, {POOL}),
    "top-k": (lambda m, x: tuple(x.softmax(1).topk(3)), (2, 11), {BEST}),
    "top-1 classes": (lambda m, x: x.softmax(-1).topk(1).indices, (2, 11), {("softmax_topk", ("softmax", "topk", "getitem"))}),
}
ABSENT = {
    "groups without a relu": (lambda m, x: m.grouped(x), IMAGES, set()),
    "uneven padding": (lambda m, x: m.uneven(x), IMAGES, set()),
    "one dimension": (lambda m, x: F.relu(F.conv1d(x, m.conv.weight[0])), (2, 3, 9), set()),
    "an image without a batch": (lambda m, x: m.conv(x[0]) + x, IMAGES, set()),
    "convolution used twice": (lambda m, x: (m.conv(x).relu(), m.conv(x)[:, :1]), IMAGES, {CONV, CONV_RELU, CUDNN_RELU}),
    "its result and its relu": (lambda m, x: each(m.conv(x), F.relu, torch.neg), IMAGES, {CONV}),
    "its result is given back": (lambda m, x: each(m.conv(x), torch.Tensor.contiguous, F.relu), IMAGES, {CONV}),
    "sum with itself": (lambda m, x: doubled(m.conv(x)), IMAGES, {CONV}),
    "broadcast sum": (lambda m, x: F.relu(m.conv(x) + x[:, :1]), IMAGES, {CONV}),
    "sum with a row": (lambda m, x: F.relu(x + x.mean(0, keepdim=True)), IMAGES, set()),
    "sum with a number": (lambda m, x: F.relu(x + 1), IMAGES, set()),
    "scaled sum": (lambda m, x: F.relu(torch.add(x, x.flip(2), alpha=2)), IMAGES, set()),
    "sum used elsewhere": (lambda m, x: each(x + x.flip(2), F.relu, torch.neg), IMAGES, set()),
    "written elsewhere": (lambda m, x: each(x + x.flip(2), torch.relu_, torch.neg), IMAGES, {SUM}),
    "gelu of a sum": (lambda m, x: F.gelu(x), ROWS, set()),
    "gelu without bias": (lambda m, x: F.gelu(m.bare(x)), ROWS, set()),
    "linear used elsewhere": (lambda m, x: each(m.up(x), F.gelu, torch.neg), ROWS, set()),
    "two dimensions normed": (lambda m, x: m.wide(x), ROWS, set()),
    "computed weight": (lambda m, x: F.layer_norm(x, (12,), x.mean((0, 1))), ROWS, set()),
    "norm of a broadcast sum": (lambda m, x: m.norm(x + m.norm.bias), ROWS, {NORM}),
    "windows rounded up": (lambda m, x: F.max_pool2d(x, 2, ceil_mode=True), IMAGES, set()),
    "softmax over rows": (lambda m, x: x.softmax(2).topk(3)[0], ROWS, set()),
    "softmax used elsewhere": (lambda m, x: each(x.softmax(1), lambda y: y.topk(3)[0], torch.neg), (2, 11), set()),
    "least of a softmax": (lambda m, x: x.softmax(1).topk(3, largest=False)[0], (2, 11), set()),
    "named strides": (lambda m, x: m.conv(x).as_strided((x.shape[0], 3), (9, 3)), IMAGES, set()),
}


@pytest.mark.parametrize("name", FOUND)
def test_sites_are_found(name):
    function, shape, wanted = FOUND[name]
    assert found(exported(function, shape)) == wanted


@pytest.mark.parametrize("name", ABSENT)
def test_nothing_is_found_where_it_would_be_wrong(name):
    function, shape, wanted = ABSENT[name]
    assert found(exported(function, shape)) == wanted


def test_a_norm_or_a_dropout_in_training_mode_stands_between():
    assert found(exported(lambda m, x: F.relu(m.norm2d(m.conv(x))), IMAGES, training=True)) == {CONV}
    assert found(exported(lambda m, x: F.gelu(F.dropout(m.up(x), training=m.training)), ROWS, training=True)) == set()


@pytest.mark.parametrize("name", ["end of a block", "gelu", "residual", "top-k"])
def test_float64_is_left_alone(name):
    function, shape, _ = FOUND[name]
    assert found(exported(function, shape, dtype=torch.float64)) == set()


def test_conversions_around_a_layer_norm_belong_to_it():
    """bf16 goes in and out of what is computed in float32, as in the kernel; in fp16 the sums go on in float32."""

    def block(m, x):
        y = m.down(m.up(x))
        return m.up(m.norm(y + m.down(m.up(y))))

    between = ("to", "layer_norm", "to")
    program = in_precision(functional(exported(block, ROWS)), "bf16")
    assert found(program) == {NORM, ("layer_norm", between), ("add_layer_norm", ("add", *between))}
    program = in_precision(functional(exported(block, ROWS)), "fp16")
    assert NORM in found(program)


@pytest.mark.parametrize(
    ("name", "precision"),
    [(name, "fp32") for name in FOUND]
    + [  # each operator in one of them, and those that round in between in both
        pytest.param(name, precision, marks=pytest.mark.slow if at % 2 == place and "residual" not in name else [])
        for at, name in enumerate(
            ("odd convolution", "groups", "end of a block", "gelu", "residual", "narrow residual", "top-k")
        )
        for place, precision in enumerate(("bf16", "fp16"))
    ],
)
def test_each_site_computes_what_torch_did(cudnn_on_cpu, name, precision):
    function, shape, _ = FOUND[name]
    exact = exported(function, shape)
    program = in_precision(functional(exact), precision)
    reference = runnable(in_float64(exact))
    count = len(find_sites(ProgramEditor(program)))
    assert count
    for index in range(count):
        editor = ProgramEditor(program)
        put_kernels(editor, [(find_sites(editor)[index], None)])
        changed = editor.finish()
        assert any("headrace" in str(node.target) or "cudnn" in str(node.target) for node in changed.graph.nodes)
        for batch in (1, 2, 3):
            x = torch.randn(batch, *shape[1:], generator=torch.Generator().manual_seed(batch))
            with torch.no_grad():
                for given, wanted in zip(runnable(changed)(x), reference(x.double()), strict=True):
                    if wanted.is_floating_point():
                        scale = float(wanted.abs().max())
                        torch.testing.assert_close(given.double(), wanted, rtol=0, atol=TOLERANCE[precision] * scale)
                    else:
                        assert precision != "fp32" or torch.equal(given, wanted)


def test_sites_that_follow_each_other_are_put_together():
    def model(m, x):
        y = F.relu(m.plain(F.relu(m.conv(x))) + x)
        rows = y.flatten(2)[:, :, :12]
        return m.norm(rows + m.down(F.gelu(m.up(m.norm(rows)))))

    exact = exported(model, IMAGES)
    editor = ProgramEditor(functional(exact))
    taken, chosen = set(), []
    for site in sorted(find_sites(editor), key=lambda site: (site.by_cudnn, -len(site.nodes))):
        if taken.isdisjoint(site.nodes):
            taken.update(site.nodes)
            chosen.append((site, None))
    put_kernels(editor, chosen)  # in an order that is not the program's
    changed = editor.finish()
    kernels = [str(node.target).split(".")[1] for node in changed.graph.nodes if "headrace" in str(node.target)]
    assert sorted(kernels) == ["add_layer_norm", "bias_gelu", "conv2d", "conv2d", "layer_norm"]
    x = torch.randn(3, *IMAGES[1:])
    with torch.no_grad():
        (given,), (wanted,) = runnable(changed)(x), runnable(in_float64(exact))(x.double())
    torch.testing.assert_close(given.double(), wanted, rtol=1e-5, atol=1e-5)
