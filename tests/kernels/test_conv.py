"""Convolutions with their epilogues, in floats and in levels, against torch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from headrace.errors import KernelError
from headrace.kernels._tiles import MOST_SHARED_BYTES, check_tile, fitting_tiles
from headrace.kernels.conv import conv2d, conv2d_int8

INF, NAN = float("inf"), float("nan")
# Half of the last place, and as much again since the interpreter cuts bfloat16 off where a GPU rounds.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def assert_right(x, weight, bias=None, residual=None, geometry=((1, 1), (0, 0), (1, 1)), relu=False):
    given = [list(item) for item in geometry]
    got = conv2d(x, weight, bias, residual, *given, relu)
    wanted = functional.conv2d(x.double(), weight.double(), None if bias is None else bias.double(), *given)
    wanted = wanted if residual is None else wanted + residual.double()
    wanted = torch.relu(wanted) if relu else wanted
    # Sums of products of one size: an absolute error beside the relative one.
    torch.testing.assert_close(got.double(), wanted, rtol=TOLERANCE[x.dtype], atol=1e-5 * weight[0].numel(), equal_nan=True)
    assert got.dtype == x.dtype
    assert got.is_contiguous(memory_format=torch.channels_last)


@settings(max_examples=12)
@given(st.data())
def test_any_shape(data):
    def pair(least, most):
        return data.draw(st.tuples(st.integers(least, most), st.integers(least, most)))

    taps, stride, padding, dilation = pair(1, 3), pair(1, 3), pair(0, 2), pair(1, 2)
    n, c, k = data.draw(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(1, 20)))
    h, w = (step * (tap - 1) + 1 + more for step, tap, more in zip(dilation, taps, pair(0, 5), strict=True))
    generator = torch.Generator().manual_seed(c)
    x, weight = torch.randn(n, c, h, w, generator=generator), torch.randn(k, c, *taps, generator=generator)
    assert_right(x, weight, None, None, (stride, padding, dilation), relu=data.draw(st.booleans()))


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_dtypes_strides_and_the_whole_epilogue(dtype, generator, device):
    x = torch.randn(2, 40, 6, 5, generator=generator).to(device, dtype)
    weight, bias = torch.randn(33, 40, 3, 3, generator=generator).to(device, dtype) / 8, torch.randn(33, generator=generator)
    residual = torch.randn(2, 33, 6, 5, generator=generator).to(device, dtype)
    geometry = ((1, 1), (1, 1), (1, 1))
    last = {"memory_format": torch.channels_last}
    assert_right(x, weight, bias.to(device), residual, geometry, relu=True)
    assert_right(x.to(**last), weight.to(**last), bias.to(device, dtype), residual.to(**last), geometry)
    assert_right(x[:, ::2], weight[:, 1::2], None, residual[:1].expand(2, 33, 6, 5), geometry)


STEM, ODD, PATCHES = (
    (0, (7, 7), ((2, 2), (3, 3), (1, 1))), (1, (3, 3), ((1, 2), (1, 0), (2, 1))), (0, (4, 18), ((4, 18), (0, 0), (1, 1))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "taps", "geometry", "channels"),
    [
        *((*ODD, channels) for channels in (1, 4)),
        *((*STEM, channels) for channels in (1, 2)),
        *((*PATCHES, channels) for channels in (3, 4)),
        # Of counts, geometries and types that are among those above.
        *(pytest.param(*ODD, channels, marks=pytest.mark.slow) for channels in (2, 3)),
        *(pytest.param(*STEM, channels, marks=pytest.mark.slow) for channels in (3, 4)),
        *(pytest.param(*PATCHES, channels, marks=pytest.mark.slow) for channels in (1, 2)),
    ],
)
def test_images_of_few_channels(channels, number, taps, geometry, generator, device):
    """Stems and patches, of images in any layout; each count of channels and each geometry in both types."""
    dtype = (torch.float32, torch.bfloat16)[(channels + number) % 2]
    x = torch.randn(2, channels, 11, 37, generator=generator).to(device, dtype)
    weight, bias = (
        torch.randn(5, channels, *taps, generator=generator).to(device, dtype) / 8,
        torch.randn(5, generator=generator),
    )
    for images in (x, x.to(memory_format=torch.channels_last), x.expand(3, *x.shape)[1][:, :, ::2].flip(3)):
        assert_right(images, weight, bias.to(device), geometry=geometry, relu=True)


@pytest.mark.parametrize(
    ("taps", "depth"),
    [  # a tile that is less deep than a row, as deep as one, and as several, as all, and as more; the others are of these kinds
        *(((7, 7), 16), ((7, 7), 64), ((3, 3), 16), ((3, 3), 64), ((3, 18), 256)),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (((7, 7), 256), ((3, 3), 256), ((3, 18), 16), ((3, 18), 64))),
    ],
)
def test_several_rows_of_an_image_of_few_channels_are_one_step(taps, depth, generator, device):
    """A last step that has fewer rows, and rows that are deeper than the tile; what lies beyond is NaN."""
    x = torch.randn(2, 3, 11, 37, generator=generator).to(device)
    x[1] = NAN
    weight = torch.randn(5, 3, *taps, generator=generator).to(device) / 8
    geometry = [[2, 1], [1, 0], [2, 1]]
    got = conv2d(x, weight, None, None, *geometry, False, [32, 16, depth, 1, 1])
    wanted = functional.conv2d(x.double(), weight.double(), None, *geometry)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [3, 40])
def test_levels_of_floats(channels, dtype, generator, device):
    """A convolution that reads floats and gives levels, as a stem does: the level of the exact value or the one beside it."""
    x = torch.randn(2, channels, 9, 8, generator=generator).to(device, dtype)
    weight = (torch.randn(18, channels, 3, 3, generator=generator) / (9 * channels) ** 0.5).to(device, dtype)
    scale, bias = torch.rand(2, 18, generator=generator).to(device) * 40
    geometry = [[2, 1], [1, 1], [1, 1]]
    got = conv2d_int8(x, weight, scale, bias, None, 1.0, *geometry, -20)
    exact = functional.conv2d(x.double(), weight.double(), None, *geometry)
    exact = (exact * scale.double().reshape(-1, 1, 1) + bias.double().reshape(-1, 1, 1)).clamp(-20, 127)
    assert got.dtype == torch.int8
    assert (got.double() - exact).abs().max() < 0.5 + (0.01 if dtype == torch.float32 else 0.1)
    assert len(got.unique()) > 20


def test_more_than_one_tile_in_every_direction(generator, device):
    x, weight = torch.randn(2, 70, 9, 9, generator=generator), torch.randn(131, 70, 1, 1, generator=generator)
    assert_right(x.to(device), weight.to(device))


@pytest.mark.parametrize("value", [NAN, INF])
def test_what_is_not_finite_goes_where_torch_carries_it(value, device):
    x = torch.ones(1, 2, 5, 5, device=device)
    x[0, 1, 2, 2] = value
    weight = torch.ones(3, 2, 3, 3, device=device)
    geometry = [[1, 1], [1, 1], [1, 1]]
    got = conv2d(x, weight, None, None, *geometry, True)
    torch.testing.assert_close(got, torch.relu(functional.conv2d(x, weight, None, *geometry)), equal_nan=True)


@pytest.mark.parametrize("geometry", [((2, 1), (1, 1), (1, 2)), ((1, 1), (0, 0), (1, 1)), ((2, 2), (0, 0), (1, 1))])
@pytest.mark.parametrize("channels", [37, 64])
@pytest.mark.parametrize("least", [-128, -3, 0])
def test_levels(least, channels, geometry, generator, device):
    """Equal to the exact level, or to the next one where the exact value is as good as half way between."""
    taps = (1, 1) if geometry[0] == geometry[1] or not any(geometry[1]) else (3, 2)
    x, weight = (
        torch.randint(-128, 128, item, generator=generator, dtype=torch.int8).to(device)
        for item in ((2, channels, 7, 6), (18, channels, *taps))
    )
    geometry = [list(item) for item in geometry]
    exact = functional.conv2d(x.double(), weight.double(), None, *geometry)
    residual = torch.randint(-128, 128, exact.shape, generator=generator, dtype=torch.int8).to(device)
    scale, bias = torch.rand(2, 18, generator=generator).to(device)
    scale, bias = scale * 1e-3, bias * 30
    got = conv2d_int8(x, weight, scale, bias, residual, 0.3, *geometry, least)
    exact = exact * scale.double().reshape(-1, 1, 1) + bias.double().reshape(-1, 1, 1) + residual.double() * 0.3
    wrong = (got.double() - exact.round().clamp(least, 127)).abs()
    half_way = ((exact - exact.floor()) - 0.5).abs() < 1e-3
    assert bool(((wrong == 0) | ((wrong == 1) & half_way)).all())
    assert len(got.unique()) > 20
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("value", [INF, -INF])
@pytest.mark.parametrize("least", [-128, 0, 5])
def test_levels_of_what_is_not_finite(value, least, device):
    one = torch.ones(1, 1, 1, 1, dtype=torch.int8, device=device)
    bias = torch.tensor([value], device=device)
    got = conv2d_int8(one, one, torch.ones(1, device=device), bias, None, 1.0, [1, 1], [0, 0], [1, 1], least)
    assert got.item() == (127 if value == INF else least)


def test_levels_are_rounded_half_to_even(device):
    x = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).reshape(1, 1, 16, 16).to(device)
    one = torch.ones(1, 1, 1, 1, dtype=torch.int8, device=device)
    got = conv2d_int8(x, one, torch.full((1,), 0.5, device=device), None, None, 1.0, [1, 1], [0, 0], [1, 1], -128)
    assert torch.equal(got, (x.double() / 2).round().to(torch.int8))


def test_the_sums_of_levels_are_exact(device):
    """127 * 127, 2049 times, is odd and above 2^24, where a float32 that sums one by one has lost digits long before."""
    ones = torch.full((1, 2049, 1, 1), 127, dtype=torch.int8, device=device)
    scale, bias = torch.ones(1, device=device), torch.tensor([-2049.0 * 127 * 127], device=device)
    got = conv2d_int8(ones, ones, scale, bias, None, 1.0, [1, 1], [0, 0], [1, 1], -128)
    assert got.item() == 0


@pytest.mark.parametrize("taps", [3, 7])
@pytest.mark.parametrize("channels", [5, 64])
def test_what_lies_around_the_image_is_zero(taps, channels, generator, device):
    """More taps than a mask has bits, and channels that fill the depth or do not."""
    x, weight = (torch.randn(shape, generator=generator) for shape in ((2, channels, 5, 4), (3, channels, taps, taps)))
    assert_right(x.to(device), weight.to(device), geometry=((1, 2), (taps // 2, taps - 1), (1, 1)))


def test_what_does_not_fit_is_refused():
    x, weight, one = torch.zeros(1, 2, 3, 3), torch.zeros(4, 2, 3, 3), [1, 1]
    with pytest.raises(KernelError, match="x has 2 channels, the weight 1"):
        conv2d(x, weight[:, :1], None, None, one, one, one, False)
    with pytest.raises(KernelError, match="pad more"):
        conv2d(x[..., :2], weight, None, None, one, [1, 0], one, False)
    with pytest.raises(KernelError, match=r"the residual has the shape \[1, 4, 1, 1\], the result \[1, 4, 3, 3\]"):
        conv2d(x, weight, None, torch.zeros(1, 4, 1, 1), one, one, one, False)
    with pytest.raises(KernelError, match="conv2d_int8 takes levels"):
        conv2d(x.to(torch.int8), weight.to(torch.int8), None, None, one, one, one, False)
    levels = (x.to(torch.int8), weight.to(torch.int8))
    with pytest.raises(KernelError, match="3 scales and 4 output channels"):
        conv2d_int8(*levels, torch.ones(3), None, None, 1.0, one, one, one, 0)
    with pytest.raises(KernelError, match="least level of int8 is not 128"):
        conv2d_int8(*levels, torch.ones(4), None, None, 1.0, one, one, one, 128)
    with pytest.raises(KernelError, match="floats and no residual"):
        conv2d_int8(x, weight, torch.ones(4), None, torch.zeros(1, 4, 1, 1), 1.0, one, [0, 0], one, 0)
    with pytest.raises(KernelError, match="scale and bias as float32"):
        conv2d_int8(*levels, torch.ones(4), torch.ones(4, dtype=torch.bfloat16), None, 1.0, one, one, one, 0)


def test_any_tile_computes_the_same(generator, device):
    x, weight = torch.randn(2, 40, 9, 7, generator=generator), torch.randn(70, 40, 3, 3, generator=generator)
    bias, residual = torch.randn(70, generator=generator), torch.randn(2, 70, 9, 7, generator=generator)
    arguments = (*(item.to(device) for item in (x, weight, bias, residual)), [1, 1], [1, 1], [1, 1], True)
    wanted = conv2d(*arguments)
    for tile in fitting_tiles(2 * 9 * 7, 70, 40, 4):
        torch.testing.assert_close(conv2d(*arguments, tile), wanted, rtol=1e-5, atol=1e-3)


TURNS = ((40, [32, 16, 64, 1, 2, 3]), (64, [16, 32, 64, 1, 3, 16]), (20, [32, 32, 32, 1, 1, 2]))
TURNED = {(0, 0, True), (1, 2, False), (1, 2, True), (2, 1, False)}


@pytest.mark.parametrize(
    ("channels", "tile", "dtype", "adds"),
    [  # each tile, each type, and levels with an addition and without
        pytest.param(channels, tile, dtype, adds, marks=[] if (at, place, adds) in TURNED else pytest.mark.slow)
        for at, (channels, tile) in enumerate(TURNS)
        for place, dtype in enumerate((torch.float32, torch.bfloat16, torch.int8))
        for adds in (False, True)
    ],
)
def test_turns_change_nothing(channels, tile, dtype, adds, generator, device):
    """Turns that end with the rows, in them, and behind them; channels that fill the depth or do not."""
    shapes = ((3, channels, 9, 7), (70, channels, 1, 1), (3, 70, 9, 7))
    if dtype == torch.int8:
        x, weight, residual = (torch.randint(-128, 128, shape, generator=generator, dtype=dtype).to(device) for shape in shapes)
        scale, bias = torch.rand(2, 70, generator=generator).to(device)
        given = (x, weight, scale * 1e-3, bias * 30, residual if adds else None, 0.3, [1, 1], [0, 0], [1, 1], -9)
        assert torch.equal(conv2d_int8(*given, tile), conv2d_int8(*given))
    else:
        x, weight, residual = (torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes)
        bias = torch.randn(70, generator=generator).to(device)
        given = (x, weight, bias, residual if adds else None, [1, 1], [0, 0], [1, 1], True)
        torch.testing.assert_close(conv2d(*given, tile), conv2d(*given), rtol=TOLERANCE[dtype], atol=1e-3)


def test_turns_are_for_1x1_whose_depth_is_one_step(device):
    x, weight = torch.zeros(1, 40, 3, 3, device=device), torch.zeros(4, 40, 1, 1, device=device)
    for taps, stride, padding, depth in ((3, 1, 1, 64), (1, 2, 0, 64), (1, 1, 1, 64), (1, 1, 0, 32)):
        tile = [32, 16, depth, 1, 2, 2]
        with pytest.raises(KernelError, match="turns"):
            conv2d(x, weight.expand(4, 40, taps, taps), None, None, [stride] * 2, [padding] * 2, [1, 1], False, tile)


@given(
    rows=st.integers(1, 10**6),
    outputs=st.integers(1, 4096),
    channels=st.integers(1, 4096),
    element_bytes=st.sampled_from([1, 2, 4]),
    form=st.sampled_from(["flat", "narrow", ""]),
)
def test_tiles_fit_the_product_and_the_memory_and_differ(rows, outputs, channels, element_bytes, form):
    flat, narrow = form == "flat", form == "narrow"
    tiles = fitting_tiles(rows, outputs, channels, element_bytes, flat=flat, narrow=narrow)
    assert 2 <= len(tiles) <= 10 + 6 * flat + 4 * narrow
    assert len({tuple(tile) for tile in tiles}) == len(tiles)
    for height, width, depth, warps, stages, *turns in tiles:
        check_tile([height, width, depth, warps, stages, *turns])
        assert flat or not turns
        assert all(channels <= depth and height * item <= 2 * rows for item in turns)
        assert height < max(32, 2 * rows)
        assert width < max(32, 2 * outputs)
        assert depth < max(64, 2 * channels)
        memory = depth * width + stages * height * (depth + width) if turns else stages * depth * (height + width)
        assert memory * element_bytes <= MOST_SHARED_BYTES


@pytest.mark.parametrize(
    "tile",
    [
        *([], [128, 64, 64, 4], [48, 64, 64, 4, 3], [64, 64, 8, 4, 3], [64, 64, 64, 3, 3], [64, 64, 64, 4, 0]),
        *([64, 64, 64, 4, 3, 0], [64, 64, 64, 4, 3, 65], [64, 64, 64, 4, 3, 2, 2]),
    ],
)
def test_what_is_no_tile_is_refused(tile):
    x, weight = torch.zeros(1, 2, 3, 3), torch.zeros(4, 2, 3, 3)
    with pytest.raises(KernelError, match="tile"):
        conv2d(x, weight, None, None, [1, 1], [1, 1], [1, 1], False, tile)
