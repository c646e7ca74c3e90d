import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from headrace.errors import InputError
from headrace.runtime import backends
from headrace.runtime.base.session import Target
from headrace.runtime.capture.capture import capture
from headrace.runtime.images.preprocessing import Preprocessor
from headrace.runtime.lowering.uint8_input import as_rows, with_preprocessing
from headrace.runtime.passes import run_passes
from headrace.runtime.passes.fold_preprocessing import PASS
from headrace.specs import Preprocessing

RGB = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
BGR = Preprocessing(mean=(103.9, 116.8, 123.7), std=(57.4, 57.1, 58.4), scale=1.0, channels="BGR")
GREY = Preprocessing(mode="L", mean=(0.305,), std=(0.376,), channels="L")


class Net(nn.Module):
    def __init__(self, channels=3, **options):
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3, **options)
        self.norm, self.head = nn.BatchNorm2d(6), nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


class NoConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 10 * 12, 5)

    def forward(self, x):
        return self.head((x * x.sigmoid()).flatten(1))


class TwoReaders(Net):
    def forward(self, x):
        return super().forward(x) + x.mean((1, 2, 3))[:, None]


CASES = [
    (Net(), RGB, []),
    (Net(bias=False), RGB, []),
    (Net(padding=1), RGB, ["sub"]),
    (Net(padding=1, stride=2, bias=False), BGR, ["sub"]),
    (Net(), BGR, []),
    (Net(1), GREY, []),
    (Net(padding=1, padding_mode="reflect"), RGB, ["sub", "mul"]),
    (NoConvolution(), BGR, ["sub", "mul"]),
    (TwoReaders(), RGB, ["sub", "mul"]),
]


# Without a bias, of BGR, and with padding: all of them are in the case with a stride.
TOGETHER = (1, 2, 4)
# By every backend, and the others by torch's: folded whole, in part, and not at all, whose operators are all that there are.
EVERYWHERE = (0, 3, 6)


@pytest.mark.parametrize(
    ("module", "preprocessing", "left", "everywhere"),
    [pytest.param(*case, at in EVERYWHERE, marks=pytest.mark.slow if at in TOGETHER else []) for at, case in enumerate(CASES)],
)
def test_pixels_give_what_preprocessed_rows_gave(module, preprocessing, left, everywhere, settled, tmp_path):
    torch.manual_seed(0)
    module = settled(module).eval()
    channels = len(preprocessing.mean)
    captured = run_passes(capture(module, torch.randn(2, channels, 10, 12)))[0]
    before = {name: value.clone() for name, value in captured.program.state_dict.items()}
    pixels_in = with_preprocessing(captured, preprocessing)
    folded, (record,) = run_passes(pixels_in, [PASS])
    assert record.status == ("unchanged" if "mul" in left else "applied"), record
    assert all(torch.equal(value, before[name]) for name, value in captured.program.state_dict.items())
    (spec,) = folded.signature.inputs
    assert (spec.dtype, spec.shape) == ("uint8", ("batch", 10, 12, channels))
    assert (folded.passes[-1:] == ("fold_preprocessing",)) == ("mul" not in left)
    operators = [str(node.target) for node in folded.program.graph.nodes if node.op == "call_function"]
    ahead = operators[: next((i for i, name in enumerate(operators) if "conv2d" in name), 6)]
    for part in ("sub", "mul"):
        assert any(f"aten.{part}.Tensor" == name for name in ahead) == (part in left), operators
    for name in ("eager", "onnxruntime", "openvino") if everywhere else ("eager",):
        backend = backends.get(name)
        if backend.supports(Target()) is None:
            folder = tmp_path / name
            folder.mkdir()
            session = backend.open(folder, Target(), backend.prepare(folded, Target(), folder))
            for batch in (1, 2, 5):
                pixels = np.random.default_rng(batch).integers(0, 256, (batch, 10, 12, channels), dtype=np.uint8)
                rows = as_rows(torch.from_numpy(pixels), preprocessing)
                with torch.no_grad():
                    expected = module.double()(rows.double()).numpy()
                module.float()
                np.testing.assert_allclose(session.run([pixels])[0], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("preprocessing", [RGB, BGR, GREY])
def test_rows_are_those_of_the_served_preprocessing(preprocessing):
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(preprocessing.mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    wanted = Preprocessor(preprocessing.to_json()["steps"])(file.getvalue())
    given = torch.from_numpy(np.array(image).reshape(1, 10, 12, -1))
    np.testing.assert_allclose(as_rows(given, preprocessing)[0].numpy(), wanted, atol=1e-6 * np.abs(wanted).max())


def test_other_inputs_are_refused(settled):
    captured = capture(settled(Net()).eval(), torch.randn(2, 3, 10, 12))
    with pytest.raises(InputError, match="1 channels"):
        with_preprocessing(captured, GREY)
    with pytest.raises(InputError, match="uint8 images"):
        as_rows(torch.rand(1, 10, 12, 3), RGB)
    with pytest.raises(InputError, match="uint8 images"):
        as_rows(torch.zeros(1, 3, 10, 12, dtype=torch.uint8), RGB)


def test_a_compiled_graph_takes_pixels_and_its_folder_serves_images(settled, tmp_path):
    import headrace
    from headrace import GraphConfig

    model = settled(Net()).eval()
    pixels = torch.randint(0, 256, (5, 10, 12, 3), dtype=torch.uint8)
    with torch.no_grad():
        expected = model(as_rows(pixels, RGB))
    config = GraphConfig(backend="onnxruntime", buckets=(1, 4))
    graph = headrace.compile(model, pixels[:2], preprocessing=RGB, config=config)
    torch.testing.assert_close(graph(pixels), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(InputError, match="uint8 images"):
        graph(torch.rand(1, 3, 10, 12))
    folder = graph.save(tmp_path / "models" / "net", labels=list("abcde"))
    loaded = headrace.load(folder)
    torch.testing.assert_close(loaded(pixels), expected, atol=1e-4, rtol=1e-4)
    assert loaded.artifact.preprocessing == RGB
    config = (tmp_path / "models" / "net_decode" / "config.pbtxt").read_text()
    assert "TYPE_UINT8" in config
    assert "TYPE_FP32" not in config
