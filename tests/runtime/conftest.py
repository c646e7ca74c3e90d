"""Small models with settled, asymmetric statistics, so that a wrong fold or a skipped normalization shows."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from headrace.runtime.base import session
from tests.warm_python import keep_exporter_tables


class ConvNet(nn.Module):
    """Convolutions with batch normalization, a residual sum, and a linear head."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.norm2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.norm1(self.stem(images)).relu()
        x = (self.norm2(self.body(x)) + x).relu()
        return self.head(x.mean((2, 3)))


def settle(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random batch-norm statistics and affine parameters, and a head whose classes differ between images."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for item in module.modules():
            if isinstance(item, nn.modules.batchnorm._BatchNorm):
                item.running_mean.normal_(0, 0.5, generator=generator)
                item.running_var.uniform_(0.3, 2.0, generator=generator)
                if item.affine:
                    item.weight.uniform_(0.5, 1.5, generator=generator)
                    item.bias.normal_(0, 0.3, generator=generator)
            if isinstance(item, nn.Linear):
                item.weight.normal_(0, 1, generator=generator)
    return module


@pytest.fixture(autouse=True)
def one_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not told how many threads to take takes one: there are as many workers as cores. How many it would take is up to
    the tests of `base`."""
    if request.path.parent.name != "base":
        monkeypatch.setattr(session, "default_threads", lambda: 1)


@pytest.fixture
def settled() -> Callable[..., nn.Module]:
    return settle


@pytest.fixture(scope="session")
def new_conv_net() -> Callable[[], nn.Module]:
    def new() -> nn.Module:
        torch.manual_seed(0)
        return settle(ConvNet()).eval()

    return new


@pytest.fixture
def conv_net(new_conv_net: Callable[[], nn.Module]) -> nn.Module:
    return new_conv_net()


@pytest.fixture
def alone():
    """A job of one rank, as a script that was started without torchrun; gone afterwards."""
    import torch.distributed as dist
    from torch.distributed.tensor._utils import ExplicitRedistributionContext

    yield 1
    if dist.is_initialized():
        dist.destroy_process_group()
    ExplicitRedistributionContext._local._active = None


@pytest.fixture
def fp8_products() -> None:
    """Skip where this torch has no kernel on CPUs for fp8 products with a scale per row, as older ones have none."""
    values, scales = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 1)
    try:
        torch._scaled_mm(values, values.t(), scales, scales.reshape(1, 16), out_dtype=torch.bfloat16)
    except (RuntimeError, ValueError):
        pytest.skip("this torch has no CPU kernel for fp8 products with a scale per row")


@pytest.fixture(params=["Pillow", "nvImageCodec", "torchvision"])
def decoder(request, pillow_decoder):
    """A decoder of JPEGs on the CPU, by each library that is there."""
    from headrace.errors import BackendError
    from headrace.runtime.images.jpeg_decoders import open_library

    if request.param == "Pillow":
        return pillow_decoder()
    try:
        return open_library(request.param, "cpu")
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", autouse=True)
def exporter_tables() -> None:
    keep_exporter_tables()


def _cudnn_by(convolve: Callable[..., torch.Tensor]) -> torch.library.Library:
    """torch's operators of cuDNN, which run on GPUs alone, on the CPU: `convolve(x, weight, bias, *geometry)` in float64, until
    the library is destroyed."""
    library = torch.library.Library("aten", "IMPL")

    def total(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: tuple, more: torch.Tensor | float = 0.0
    ) -> torch.Tensor:
        wide = convolve(x.double(), weight.double(), None if bias is None else bias.double(), *geometry)
        return (wide + more).relu().to(x.dtype)

    library.impl("cudnn_convolution_relu", lambda x, weight, bias, *geometry: total(x, weight, bias, geometry), "CPU")
    library.impl(
        "cudnn_convolution_add_relu",
        lambda x, weight, z, alpha, bias, *geometry: total(x, weight, bias, geometry, alpha * z.double()),
        "CPU",
    )
    return library


@pytest.fixture
def cudnn_on_cpu() -> Iterator[None]:
    library = _cudnn_by(torch.conv2d)
    yield
    library._destroy()


@pytest.fixture
def wrong_cudnn_on_cpu() -> Iterator[None]:
    """As a library may be wrong on one device."""
    library = _cudnn_by(lambda *given: torch.conv2d(*given) * 1.5)
    yield
    library._destroy()


@pytest.fixture(scope="session")
def packaged_net(once, new_conv_net):
    """The package of a small network with labels and preprocessing: models/net. Nobody may write there."""
    return once("packaged-net", lambda folder: _packaged_net(folder, new_conv_net))


def _packaged_net(folder, new_conv_net):
    import headrace
    from headrace import GraphConfig
    from headrace.specs import Preprocessing, Resize

    config = GraphConfig(backend="onnxruntime", buckets=(1, 4), threads=1)
    graph = headrace.compile(new_conv_net(), torch.randn(2, 3, 16, 16), config=config)
    steps = Preprocessing(geometry=(Resize(size=(16, 16)),), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    return graph.save(folder / "models" / "net", labels=["ant", "bee", "cat", "dog", "elk"], preprocessing=steps)


@pytest.fixture
def opened_net(packaged_net, tmp_path):
    """The same as an export starts from it."""
    from headrace.runtime.artifact.artifact import load_artifact
    from headrace.runtime.formats.shared.packaged import Packaged

    return Packaged(load_artifact(packaged_net), tmp_path)
