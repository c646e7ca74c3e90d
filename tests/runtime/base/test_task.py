import pytest

from headrace.runtime.base.task import Head, Task, read_task
from headrace.specs import Labels, Signature, TensorSpec


def signature(*outputs):
    specs = [TensorSpec(name=name, dtype=dtype, shape=("batch", *row)) for name, row, dtype in outputs]
    return Signature(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, 8, 8)),), outputs=tuple(specs))


def out(name="output", row=(5,), dtype="float32"):
    return name, row, dtype


def kinds(task):
    return [head.kind for head in task.heads]


@pytest.mark.parametrize(
    ("outputs", "found", "primary"),
    [
        ([out()], ["single-label"], 0),
        ([out(row=(5, 1, 1))], ["single-label"], 0),
        ([out(row=(1,))], ["raw"], 0),
        ([out(row=())], ["raw"], 0),
        ([out(dtype="int64")], ["raw"], 0),
        ([out(row=(4, 8, 8))], ["dense"], 0),
        ([out("features", (64,)), out("logits")], ["raw", "single-label"], 1),
        ([out("logits"), out("features", (64,))], ["single-label", "raw"], 0),
        ([out("a"), out("b")], ["single-label", "raw"], 0),
    ],
)
def test_what_shapes_say(outputs, found, primary):
    task = Task.of(signature(*outputs))
    assert kinds(task) == found
    assert task.primary == primary


@pytest.mark.parametrize(
    ("told", "found", "primary"),
    [
        ("embedding", ["raw", "embedding"], 1),  # one word is of the output that the model is for: that called logits
        ("features=embedding", ["embedding", "single-label"], 1),
        ("0=embedding", ["embedding", "single-label"], 1),
        ("embedding, multi-label:0.5", ["embedding", "multi-label"], 1),
        ("single-label,single-label", ["single-label", "single-label"], 0),
        ("logits=raw,features=embedding", ["embedding", "raw"], 0),
    ],
)
def test_what_is_told_counts_more(told, found, primary):
    task = Task.of(signature(out("features", (64,)), out("logits")), told)
    assert kinds(task) == found
    assert task.primary == primary


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("multilabel", "no kind of output"),
        ("single-label:0.5", "only multi-label outputs have thresholds"),
        ("multi-label:1.5", "from 0 to 1"),
        ("multi-label:nan", "from 0 to 1"),
        ("multi-label:a", "thresholds are numbers"),
        ("multi-label:0.1/0.2", "2 thresholds for 5 labels"),
        ("scores=embedding", "no output 'scores'; it has output"),
        ("single-label,single-label", "no output '1'"),
        ("0=embedding,output=multi-label", "told twice"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(told, why):
    with pytest.raises(ValueError, match=why):
        Task.of(signature(out()), told)


@pytest.mark.parametrize("told", ["single-label", "embedding", "multi-label"])
def test_a_map_and_whole_numbers_are_neither_scores_nor_vectors(told):
    for output in (out(row=(4, 8, 8)), out(dtype="int64")):
        with pytest.raises(ValueError, match="task: output"):
            Task.of(signature(output), told)


def test_one_score_is_one_label_that_holds_or_not():
    with pytest.raises(ValueError, match="multi-label with one label"):
        Task.of(signature(out(row=(1,))), "single-label")
    assert Task.of(signature(out(row=(1,))), activated={"output": "sigmoid"}).heads[0].kind == "multi-label"


def test_thresholds_are_one_or_one_each():
    assert read_task("multi-label")[0].thresholds == (0.5,)
    task = Task.of(signature(out()), "multi-label:0.1/0.2/0.3/0.4/0.5")
    assert task.heads[0].thresholds == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert str(task.heads[0]) == "multi-label scores, labels above their thresholds"


def test_it_is_read_as_it_was_written_but_for_the_labels():
    about = signature(out("a"), out("b", (3,)), out("c", (7,)))
    task = Task.of(about, "single-label,multi-label:0.25,embedding", activated={"b": "sigmoid"})
    assert Task.from_json(task.to_json(), about) == task
    labeled = task.labeled({"b": ["x", "y", "z"], "a": Labels.of("uvwxy")}, about)
    assert labeled.heads[1].labels == ("x", "y", "z")
    assert labeled.labels == Labels.of("uvwxy")
    assert Task.from_json(labeled.to_json(), about) == task
    with pytest.raises(ValueError, match="other outputs"):
        Task.from_json(task.to_json(), signature(out("a")))


@pytest.mark.parametrize("labels", [["x"], [], {"b": ["x", "y"]}, {"nothing": ["x"]}, {"c": list("abcdefg")}])
def test_labels_are_one_per_class_of_an_output_that_has_classes(labels):
    about = signature(out("a"), out("b", (3,)), out("c", (7,)))
    with pytest.raises(ValueError, match="label"):
        Task.of(about, "single-label,multi-label,embedding").labeled(labels, about)


def test_a_label_is_a_name_and_no_text_without_end():
    """Each answer would carry it: one of 15 MB kept `headrace predict` busy with one image."""
    assert len(Labels.of(["x" * 10_000])) == 1
    with pytest.raises(ValueError, match=r"^label 'x{40}'\.\.\. has 15,000,000 characters; a label may have 10,000$"):
        Labels.of(["cat", "x" * 15_000_000])


def test_a_head_says_what_it_is():
    assert str(Head(output="y", kind="embedding")) == "embedding"
    assert str(Head(output="y", kind="single-label", probabilities=True)) == "class probabilities"
