"""Which plan wins on simulated meshes, and what is said where none can be."""

import itertools
import json

import pytest
from torch import nn

from headrace.errors import CaptureError, InputError
from headrace.runtime.parallel.planner.operators import Model
from headrace.runtime.parallel.planner.plan import plan, read_keep, read_memory, read_mesh
from headrace.runtime.parallel.planner.rates import Link
from tests.runtime.parallel.planner.simulated import FAST, SLOW, deep, rates, read


def convolutional(classes):
    def build():
        sizes = (3, 64, 128, 256, 512)
        blocks = [
            (nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in itertools.pairwise(sizes)
        ]
        parts = [part for block in blocks for part in block]
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))

    return build


def test_a_convolutional_net_with_a_small_head_is_trained_data_parallel():
    found = plan(read(convolutional(10), 512, 3, 224, 224), (2, 4), rates(FAST), 80e9)
    assert found.best.title == "data parallel over data and model"
    assert found.best.layouts == {}
    assert found.best.inputs == ("split(0)", "split(0)")
    assert any("BatchNorm" in remark for remark in found.remarks)


@pytest.mark.parametrize("classes", [1_000_000, 85_742])  # the second, MS1M's, does not divide by 8
def test_a_head_of_very_many_classes_is_split(classes):
    found = plan(read(convolutional(classes), 2048, 3, 224, 224), (8,), rates(SLOW), 160e9)
    assert found.best.layouts == {"14.weight": ("split(0)",)}
    assert found.best.inputs == ("split(0)",)  # and the rest is data parallel
    assert ("14", "linear", ("split(0)",), ("broadcast",)) in found.best.boxed
    (data,) = [other for other in found.others if other.title == "data parallel over data"]
    assert data.seconds > found.best.seconds
    assert "moves" in data.why


def test_a_deep_net_that_does_not_fit_becomes_a_pipeline():
    model = read(deep(), 1024, 4096)
    found = plan(model, (8,), rates(SLOW), 80e9)
    assert "pipeline" not in found.best.title or found.best.seconds < min(other.seconds for other in found.others if other.fits)
    whole = sum(model.weights.values()) * 4  # with gradients and Adam's states
    found = plan(model, (8,), rates(SLOW), whole / 5)
    assert found.best.title == "pipeline of 8 stages over data"
    assert len(found.best.stages) == 8
    assert found.best.memory <= whole / 5
    assert found.best.microbatches >= 8
    assert any(other.why.startswith("needs") for other in found.others)


def test_a_pipeline_beside_data_parallelism_lies_over_the_slow_links():
    found = plan(read(deep(), 1024, 4096), (4, 2), rates(SLOW, FAST), 6e9)
    assert found.best.axis == "data" or not found.best.stages


def test_memory_decides_for_zero_in_a_pipeline():
    model, links = read(deep(16), 1024, 4096), rates(SLOW, FAST)
    title = "pipeline of 4 stages over data, data parallel over model"

    def by_rows(memory):
        found = plan(model, (4, 2), links, memory)
        fits = [one for one in (found.best, *found.others) if one.title.startswith(title) and one.fits]
        return min(fits, key=lambda one: one.zero)

    whole, split = by_rows(1.1e9), by_rows(1e9)
    assert (whole.title, whole.zero, whole.zero_axis) == (title, 0, "")
    assert (split.title, split.zero, split.zero_axis) == (f"{title}, ZeRO 1 over model", 1, "model")
    assert split.memory <= 1e9 < whole.memory
    least = by_rows(0.6e9)
    assert (least.title, least.zero) == (f"{title}, ZeRO 3 over model", 3)
    assert least.seconds > split.seconds, "each microbatch gathers parameters"
    sgd = plan(model, (4, 2), links, 80e9, optimizer="sgd")  # which keeps nothing that could be split
    assert not any(one.zero for one in (sgd.best, *sgd.others) if one.stages)


def test_memory_decides_for_zero():
    model = read(deep(8, 2048), 8192, 2048)
    link = Link(1e-5, 300e9)
    needed = plan(model, (8,), rates(link), 80e9).best.memory
    smaller = plan(model, (8,), rates(link), needed * 0.7).best
    assert smaller.memory <= needed * 0.7
    assert smaller.zero or smaller.layouts or smaller.stages


def test_what_is_kept_is_kept():
    model = read(convolutional(1000), 512, 3, 112, 112)
    for mesh in ((8,), (2, 4)):
        kept = read_keep(["14=split(0)"], model, mesh)
        best = plan(model, mesh, rates(FAST), 80e9, kept=kept).best
        assert [word for word in best.layouts["14.weight"] if word != "broadcast"] == ["split(0)"]
    kept = read_keep(["14.weight=broadcast,split(1)"], model, (2, 4))
    assert plan(model, (2, 4), rates(FAST), 80e9, kept=kept).best.layouts["14.weight"] == ("broadcast", "split(1)")
    million = read(convolutional(1_000_000), 512, 3, 112, 112)
    assert not plan(million, (8,), rates(SLOW), 80e9, kept=read_keep(["14=broadcast"], million, (8,))).best.layouts


@pytest.mark.parametrize("given", ["14", "14=sideways", "14=split(0),split(1),split(0)", "tail=split(0)"])
def test_what_cannot_be_kept_is_an_error(given):
    with pytest.raises(InputError, match="--keep"):
        read_keep([given], read(convolutional(10), 8, 3, 32, 32), (2, 4))


def test_a_placement_that_does_not_exist_is_an_error():
    model = read(convolutional(10), 8, 3, 32, 32)
    with pytest.raises(InputError, match="leave out --keep"):
        plan(model, (4,), rates(FAST), 80e9, kept=read_keep(["14=split(2)"], model, (4,)))


def test_too_little_memory_for_anything_says_how_much_is_needed():
    with pytest.raises(InputError, match=r"nothing fits into 1 MB a rank: the least is .* GB.*more ranks"):
        plan(read(deep(8, 8192), 1024, 8192), (2, 2), rates(FAST), 1e6)


@pytest.mark.parametrize(
    "mesh",
    [  # four axes, and one of one rank between others, are more of the same
        *((1,), (1, 1), (3,), (7, 5), (1, 8), (2, 2, 2), (1000,)),
        pytest.param((2, 1, 3, 2), marks=pytest.mark.slow),
    ],
)
def test_meshes_of_any_shape_have_a_plan(mesh):
    found = plan(read(convolutional(10), 24, 3, 32, 32), mesh, rates(FAST), 80e9)
    assert found.best.fits
    assert found.best.seconds > 0


def test_shared_weights_lie_one_way_and_on_one_stage():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.middle, self.last = (nn.Linear(256, 256, bias=False) for _ in range(3))
            self.last.weight = self.first.weight

        def forward(self, x):
            return self.last(self.middle(self.first(x)).relu())

    model = read(Tied, 64, 256)
    assert sum(model.weights.values()) == 2 * 256 * 256 * 4
    kept = read_keep(["first=split(0)"], model, (4,))
    best = plan(model, (4,), rates(FAST), 80e9, kept=kept).best
    assert best.layouts["first.weight"] == ("split(0)",)
    found = plan(model, (2,), rates(FAST), 80e9)
    assert any("cut into 1 stages" in remark for remark in found.remarks)


def test_a_model_without_a_graph_is_an_error_with_a_remedy():
    class Deciding(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match="only a graph can be planned"):
        read(Deciding, 2, 8)
    with pytest.raises(CaptureError, match="--input-size"):
        read(convolutional(10), 2, 8)


def test_serving_has_no_gradients_and_no_pipeline():
    model = read(convolutional(1_000_000), 64, 3, 112, 112)
    found = plan(model, (8,), rates(FAST), 80e9, training=False)
    assert all(not other.zero and not other.stages for other in (found.best, *found.others))
    kept = read_keep(["14=broadcast"], model, (8,))
    serving, training = (plan(model, (8,), rates(FAST), 80e9, kept=kept, training=one).best.memory for one in (False, True))
    assert serving < training


def test_it_is_json_and_the_description_too():
    model = read(convolutional(10), 8, 3, 32, 32)
    assert Model.from_json(json.loads(json.dumps(model.to_json()))) == model
    found = plan(model, (2, 4), rates(FAST), 80e9)
    assert json.loads(json.dumps(found.to_json()))["plan"]["title"] == found.best.title
    with pytest.raises(ValueError, match="description"):
        Model.from_json({"operators": 3})


def test_words_are_read():
    assert read_mesh("2x4") == (2, 4)
    assert read_memory("80GB") == 80e9
    assert read_memory("1.5GiB") == 1.5 * 2**30
    for wrong in ("", "0", "2x", "x2", "-1", "2x0", "1x1x1x1x1", "2*4"):
        with pytest.raises(InputError, match="--mesh"):
            read_mesh(wrong)
    for wrong in ("80", "0GB", "GB", "-1GB", "80 GBs"):
        with pytest.raises(InputError, match="--memory"):
            read_memory(wrong)
