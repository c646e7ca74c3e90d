import numpy as np
import pytest
import torch
from PIL import Image

from headrace.errors import InputError
from headrace.runtime.tuning.judging_data import JudgingData, first_rows
from headrace.specs import Preprocessing, Resize, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="images", dtype="float32", shape=("batch", 3, 4)),),
    outputs=(TensorSpec(name="output", dtype="float32", shape=("batch", 2)),),
)


def test_tensors_and_arrays_alone_or_in_a_sequence_become_arrays():
    images = torch.randn(5, 3, 4, requires_grad=True)
    for form in (images, images.detach().numpy(), [images], (images,)):
        given = JudgingData.of(form, torch.arange(5), images[:2])
        np.testing.assert_array_equal(given.images[0], images.detach().numpy())
        np.testing.assert_array_equal(given.labels, np.arange(5))
        np.testing.assert_array_equal(given.calibration[0], images[:2].detach().numpy())
        assert torch.equal(first_rows(form)[0], images[:2])
    assert first_rows(None) == ()


@pytest.mark.parametrize(("images", "labels"), [(None, [1]), (np.zeros((5, 3, 4)), [1, 2])])
def test_labels_that_do_not_belong_to_images_are_refused(images, labels):
    with pytest.raises(InputError, match="labels"):
        JudgingData.of(images, labels, None)


def test_they_serve_graphs_of_their_row_shape_only_and_are_refused_where_they_are_wrong_otherwise():
    images = np.zeros((5, 3, 4), np.float32)
    given = JudgingData.of(images, None, images)
    assert given.for_graph(SIGNATURE) is given
    other = JudgingData.of(np.zeros((5, 3, 6), np.float32), None, images).for_graph(SIGNATURE)
    assert (other.images, other.labels) == ((), None)
    assert other.calibration[0] is images
    assert JudgingData.of(None, None, images).for_graph(SIGNATURE).calibration[0] is images
    assert JudgingData.of(None, None, images[:, :, :2]).for_graph(SIGNATURE).calibration == ()
    with pytest.raises(InputError, match="images"):
        JudgingData.of(images.astype(np.float64), None, None).for_graph(SIGNATURE)
    with pytest.raises(InputError, match="calibration: images must be float32, got float64"):
        JudgingData.of(None, None, images.astype(np.float64)).for_graph(SIGNATURE)


def test_calibration_comes_from_batches_with_or_without_labels():
    rows = torch.randn(150, 3, 4)
    for batches in (
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, torch.arange(150)), batch_size=32),
        (part for part in rows.split(40)),
    ):
        (found,) = JudgingData.of(None, None, batches).calibration
        np.testing.assert_array_equal(found, rows[:128])
    for nothing, why in ((iter(()), "gave no batch"), (5, "got a int")):
        with pytest.raises(InputError, match=why):
            JudgingData.of(None, None, nothing)


def test_calibration_comes_from_a_folder_where_the_graph_holds_the_preprocessing(tmp_path):
    for index in range(3):
        Image.fromarray(np.full((9, 12, 3), 40 * index, np.uint8)).save(tmp_path / f"{index}.png")
    steps = Preprocessing(geometry=(Resize(size=(6, 8)),), mean=(0.5,) * 3, std=(0.25,) * 3)
    (found,) = JudgingData.of(None, None, str(tmp_path), steps).calibration
    assert (found.shape, found.dtype) == ((3, 6, 8, 3), np.uint8)
    assert [row[0, 0, 0] for row in found] == [0, 40, 80]
    with pytest.raises(InputError, match="give preprocessing="):
        JudgingData.of(None, None, tmp_path)
