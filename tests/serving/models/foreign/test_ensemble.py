"""Ensembles of any steps: which configs are refused, and when one is there."""

import pytest

from headrace.errors import ArtifactError, InputError, NotFoundError, OverloadedError


def chain(foreign, name="both", batch=8, **options):
    foreign.ensemble(name, [("one", {"x": "x"}, {"y": "middle"}), ("two", {"x": "middle"}, {"y": "y"})], batch=batch, **options)


def rows_of(repository, name):
    return [(row["state"], row["reason"]) for row in repository.index() if row["name"] == name]


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ([], "has 0 steps"),
        ([("one", {}, {"y": "y"})], "needs model_name, input_map and output_map"),
        ([("one", {"x": "nowhere"}, {"y": "y"})], "nothing makes 'nowhere', which 'one' takes"),
        ([("one", {"x": "x"}, {"y": "z"})], "no step makes the output 'y'"),
        ([("one", {"x": "x"}, {"y": "x"})], "'x' is made twice"),
        ([("a", {"x": "b"}, {"y": "a"}), ("b", {"x": "a"}, {"y": "b"}), ("c", {"x": "a"}, {"y": "y"})], "wait for each other"),
    ],
)  # fmt: skip
def test_wiring_that_cannot_run(foreign, load, steps, wrong):
    foreign.ensemble("e", steps)
    with pytest.raises(ArtifactError, match=wrong):
        load("e")


def test_steps_run_in_an_order_in_which_they_can(foreign, load):
    foreign.ensemble("e", [("two", {"x": "middle"}, {"y": "y"}), ("one", {"x": "x"}, {"y": "middle"})])
    assert [step.model for step in load("e").steps] == ["one", "two"]


def test_it_is_there_as_long_as_its_steps_are(foreign, repository_of):
    foreign.add("one")
    foreign.add("two")
    chain(foreign, batch=4)
    repository = repository_of(model_control_mode="explicit", load_models=("both",))
    assert repository.get("both").version == "1"  # and loading it loaded its steps
    repository.start_unload("one").result(60)
    with pytest.raises(NotFoundError, match="its step 'one' is not served"):
        repository.get("both")
    assert rows_of(repository, "both")[0][0] == "UNAVAILABLE"
    assert "both" not in {model.name for model in repository.ready_models()}
    repository.start_load("both").result(60)
    assert rows_of(repository, "both") == [("READY", "")]
    repository.start_unload("both", dependents=True).result(60)
    assert {row["state"] for row in repository.index()} <= {"UNAVAILABLE", "UNLOADING"}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"batch": 16}, "max_batch_size 16 is more than 'one' takes, 4"),
        ({"kind": "TYPE_INT32", "batch": 4}, "'x' is INT32 from the ensemble, and its step 'one' takes FP32"),
    ],
)
def test_steps_that_do_not_fit(foreign, repository_of, change, wrong):
    foreign.add("one")
    foreign.add("two")
    chain(foreign, **change)
    repository = repository_of()
    assert wrong in rows_of(repository, "both")[0][1]
    with pytest.raises(NotFoundError, match="both"):
        repository.get("both")


@pytest.mark.parametrize(
    ("given", "made", "wrong"),
    [
        ({"z": "x"}, {"y": "y"}, "input 'x' of its step 'one' gets nothing"),
        ({"x": "x", "z": "x"}, {"y": "y"}, "has no input 'z'; it has x"),
        ({"x": "x"}, {"z": "y"}, "has no output 'z'; it has y"),
    ],
)
def test_tensors_that_a_step_does_not_have(foreign, repository_of, given, made, wrong):
    foreign.add("one")
    foreign.ensemble("e", [("one", given, made)], batch=4)
    assert wrong in rows_of(repository_of(), "e")[0][1]


def test_circles_of_ensembles_end(foreign, repository_of):
    foreign.add("one")
    foreign.ensemble("self", [("self", {"x": "x"}, {"y": "y"})], batch=4)
    foreign.ensemble("left", [("right", {"x": "x"}, {"y": "y"})], batch=4)
    foreign.ensemble("right", [("left", {"x": "x"}, {"y": "y"})], batch=4)
    repository = repository_of()
    for name in ("self", "left", "right"):
        assert "it comes back to itself" in rows_of(repository, name)[0][1]
    assert repository.get("one")


def test_ensembles_of_ensembles_are_looked_at_once_each(foreign, repository_of):
    """Ten of eight steps each would be a thousand million ways."""
    foreign.add("e0")
    names = [f"m{number}" for number in range(8)]
    for level in range(1, 11):
        steps = [(f"e{level - 1}", {"x": "x"}, {"y": name}) for name in names[1:]]
        foreign.ensemble(f"e{level}", [(f"e{level - 1}", {"x": "x"}, {"y": "y"}), *steps], batch=4)
    repository = repository_of()
    assert repository.get("e10")


def test_a_step_out_of_the_repository_is_not_looked_for(foreign, repository_of, tmp_path):
    foreign.add("one")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.pbtxt").write_text("garbage {")
    foreign.ensemble("e", [("../outside", {"x": "x"}, {"y": "y"})])
    repository = repository_of(model_control_mode="explicit", load_models=("e", "one"))
    assert "is not served" in rows_of(repository, "e")[0][1]
    with pytest.raises((InputError, NotFoundError), match="outside"):
        repository.start_load("e").result(60)


def test_a_name_of_a_step_that_is_not_there(foreign, repository_of):
    foreign.add("one")
    foreign.ensemble("e", [("absent", {"x": "x"}, {"y": "y"})])
    with pytest.raises((NotFoundError, OverloadedError), match="absent"):
        repository_of().get("e")


def test_one_in_another(foreign, repository_of):
    foreign.add("one")
    foreign.add("two")
    chain(foreign, "inner", batch=4)
    foreign.ensemble("outer", [("inner", {"x": "x"}, {"y": "z"}), ("one", {"x": "z"}, {"y": "y"})], batch=4)
    repository = repository_of(model_control_mode="explicit", load_models=("outer",))
    assert repository.get("outer").steps[0].model == "inner"
    assert {model.name for model in repository.ready_models()} == {"one", "two", "inner", "outer"}
