"""Which of the models that a run called is the one."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.migrate.proving.worker_protocol import SeenModel
from headrace.migrate.reading.facts import Option
from headrace.migrate.reading.finding import Finding
from headrace.migrate.reading.recipe import LiveModel, Recipe, TransformRecipe
from headrace.migrate.reporting.progress import Stages
from headrace.migrate.resolving.resolved import Resolved
from headrace.migrate.stages import live_model
from headrace.migrate.stages.live_model import agree, best_of, label, shortened, why_none
from headrace.migrate.stages.migration import Migration, Options
from headrace.migrate.survey.survey import survey

SEEN = SeenModel(
    live=LiveModel(class_name="Net", ordinal=0, evaluating=True, row=(3, 8, 8)), factory="net.py:1", parameters=7,
    site="run.py:5", calls=2, dtype="float32", low=0.0, high=1.0, output="[4, 3]", tasks=("single-label",), widths=(3,),
    as_read=None, fits=None, trained=False,
    evaluates=True, in_training=(),
    feeds=(), labels=(None,), dataset=None,
)  # fmt: skip


def other(**changed: object) -> SeenModel:
    live = {name: changed.pop(name) for name in ("class_name", "ordinal", "evaluating") if name in changed}
    return replace(SEEN, live=replace(SEEN.live, **live), **changed)  # type: ignore[arg-type]


def test_the_model_that_is_evaluated_and_judged_is_taken() -> None:
    teacher = other(ordinal=1, tasks=("",), calls=9)
    trained = other(ordinal=2, evaluating=False, calls=9)
    body = other(ordinal=3, class_name="Body", calls=9, feeds=("Linear",))
    generator = other(ordinal=4, class_name="Generator", tasks=("",), widths=(None,), calls=9)
    assert best_of([teacher, trained, body, generator, SEEN], None) is SEEN
    assert best_of([teacher, SEEN], "Net#1") is teacher
    assert best_of([generator, body], None) is None


def test_of_equals_the_trained_one_is_taken_else_the_last() -> None:
    fold = other(ordinal=1, site="run.py:6")
    assert best_of([SEEN, fold], None) is fold
    assert best_of([fold, SEEN], None) is fold
    assert [label(one, [SEEN, fold]) for one in (SEEN, fold)] == ["Net#1", "Net#2"]
    assert best_of([SEEN, fold], "Net#1") is SEEN
    assert best_of([SEEN, fold], "run.py:5") is SEEN
    assert best_of([other(trained=True), fold], None).trained


def test_what_only_teaches_the_model_that_was_read_is_not_taken() -> None:
    student = other(class_name="Student", evaluating=False, evaluates=False, trained=True, as_read=True)
    teacher = other(ordinal=1, class_name="Teacher", calls=9, as_read=False)
    assert best_of([student, teacher], None) is student
    assert best_of([student, replace(teacher, fits=True)], None).fits
    assert best_of([replace(student, as_read=False), teacher], None) is teacher
    best = other(ordinal=2, class_name="Student", as_read=True)  # with the weights of the best epoch
    assert best_of([student, best, teacher], None) is best


@pytest.mark.parametrize(("script", "expected"), [("run.py", True), ("other.py", False)])
def test_a_librarys_model_is_not_the_one_that_was_read_of_another_script(script: str, expected: bool) -> None:
    read = types.SimpleNamespace(
        name="Net", factory="net.py:1", factory_name="Net", script=types.SimpleNamespace(path="run.py")
    )
    run = types.SimpleNamespace(path=script)
    assert agree(read, run, other(class_name="ResNet", factory=None), []) is expected  # type: ignore[arg-type]
    assert not agree(read, run, other(class_name="ResNet", factory="resnet.py:1"), [])  # type: ignore[arg-type]


def test_of_several_librarys_models_the_one_that_was_read_is_called_like_it() -> None:
    run = types.SimpleNamespace(path="run.py")
    read = types.SimpleNamespace(name="efficientnet_b0", factory=None, factory_name="efficientnet_b0", script=run)
    first, last = (other(class_name=name, factory=None) for name in ("EfficientNet", "ResNet"))
    assert agree(read, run, first, [first, last])  # type: ignore[arg-type]
    assert not agree(read, run, last, [first, last])  # type: ignore[arg-type]
    assert agree(read, run, last, [last])  # type: ignore[arg-type]


def test_a_model_of_another_class_of_the_repository_is_not_the_one_that_was_read() -> None:
    run = types.SimpleNamespace(path="run.py")
    read = types.SimpleNamespace(name="Small", factory="nets.py:1", factory_name="Small", script=run)
    large = other(class_name="Large", factory=None)
    assert not agree(read, run, large, [large], {"Small", "Large"})  # type: ignore[arg-type]
    assert agree(read, run, large, [large], {"Large"})  # type: ignore[arg-type]  # Small is a function that makes one


@pytest.mark.parametrize(("classes", "expected"), [(["Net"], True), (["Net", "Net"], False)])
def test_of_files_that_each_have_a_class_of_that_name_only_the_one_that_was_read_is_meant(
    classes: list[str], expected: bool
) -> None:
    run = types.SimpleNamespace(path="test_v2.py")
    read = types.SimpleNamespace(name="Net", factory="train_v1.py:2", factory_name="Net", script=run)
    assert agree(read, run, other(factory="train_v2.py:2"), [], classes) is expected  # type: ignore[arg-type]
    assert agree(read, run, other(factory="train_v1.py:2"), [], classes)  # type: ignore[arg-type]


def test_the_model_is_called_as_what_was_guessed_for_the_option_that_chooses_it() -> None:
    option = Option(flags=("-a", "--arch"), dest="arch", line=1, positional=False, required=False, default="resnet18")
    script = types.SimpleNamespace(path="run.py", options=(option,))

    def named(*standins: str) -> str | None:
        run = types.SimpleNamespace(script=script, seen=types.SimpleNamespace(standins=standins))
        return live_model._guessed_name(run)  # type: ignore[arg-type]

    assert named("data: data/train", "arguments: --arch eca_resnet18 was guessed") == "eca_resnet18"
    assert named("arguments: --data data was guessed", "arguments: --arch weights/a.pth was guessed") is None


def test_the_model_that_the_given_checkpoint_fits_is_taken() -> None:
    small = other(ordinal=1, class_name="Small", fits=True, evaluating=False, evaluates=False, tasks=("",))
    assert best_of([small, other(fits=False)], None) is small
    assert best_of([small, other(fits=True)], None).live.class_name == "Net"


def test_a_run_that_shows_no_classifier_says_why() -> None:
    def why(*models: SeenModel, reason: str | None = None) -> list[tuple[str, str | None]]:
        seen = types.SimpleNamespace(models=models, why=reason, where="run.py:2" if reason else None)
        return list(why_none(types.SimpleNamespace(best=best_of(models, None), seen=seen)))  # type: ignore[arg-type]

    body = other(class_name="Body", feeds=("Linear",))
    generator = other(class_name="Generator", tasks=("",), widths=(None,), site="run.py:9")
    ((message, where),) = why(body, generator)
    assert message.startswith("nothing that it called with images gives a row of scores")
    assert "Body (run.py:5, whose outputs go on into Linear), Generator (run.py:9); --entry" in message
    assert where is None
    ((message, _),) = why(other(class_name="Distance", together=2, widths=(1,)))
    assert "Distance (run.py:5, which takes 2 batches of images at once, to compare them or to make one of them)" in message
    assert why(reason="KeyError: 'x'") == [("stopped before it called one: KeyError: 'x'", "run.py:2")]
    ended = "came to its end and called no model with images"
    assert why(reason=f"it {ended}") == [(ended, "run.py:2")]
    assert why(body, SEEN) == why() == []


def test_of_images_that_a_table_names_one_is_told() -> None:
    told = [
        "data: all.csv",
        "data: image_0003.jpg",
        "time: batches of 2, not of 64",
        "data: photos/image_0001.jpg.png",
        "data: x/image_2.jpg",
    ]
    first = "data: image_0003.jpg and 1 more that a table or a list names"
    assert shortened(told) == ["data: all.csv", first, "time: batches of 2, not of 64", "data: x/image_2.jpg"]
    assert shortened(told[:2]) == told[:2]


def test_of_files_that_would_be_downloaded_one_of_each_kind_is_told() -> None:
    made = "was made, not downloaded"
    told = [
        f"network: categories.txt {made}",
        f"data: cat.npy {made}",
        f"data: hot air balloon.npy {made}",
        "time: batches of 4, not of 64",
        f"data: owl.npy {made}",
        f"data: owl.jpg {made}",
    ]
    assert shortened(told) == [told[0], f"data: cat.npy and 2 more {made}", told[3], told[5]]
    assert shortened(told[:2]) == told[:2]


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        ("import torch\nmapper = {0: 'ant', 1: 'bee', 2: 'cat'}\n", ("ant", "bee", "cat")),
        ("import torch\nCLASSES = ['x', 'y', 'z']\nmapper = {0: 'ant', 1: 'bee', 2: 'cat'}\n", ("x", "y", "z")),
        ("import torch\nmapper = {0: 'ant', 1: 'bee', 2: 'cat'}\nother = {0: 'x', 1: 'y', 2: 'z'}\n", None),
        ("import torch\nmapper = {0: 'ant', 1: 'bee', 2: 'cat', 3: 'dog'}\n", None),
    ],
)
def test_names_come_from_the_one_table_that_predictions_are_looked_up_in(
    tmp_path: Path, sources: str, names: tuple[str, ...] | None
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "run.py").write_text(sources)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    assert live_model._names(migration, SEEN, None) == (names,)


def test_what_reading_could_not_tell_and_a_run_shows_is_remarked_no_longer(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    print(net(x))\n")
    script = survey(tmp_path).scripts[0]
    codes = ("PS011", "PS013", "PS014", "PS113")
    findings = [Finding("run.py", 1, 0, code, "a remark", "note") for code in codes]
    static = types.SimpleNamespace(findings=[*findings, Finding("", 1, 0, "PS015", "built with its own defaults", "warning")])
    assert [item.code for item in live_model._still_true(static, script, True)] == ["PS011", "PS113"]
    assert [item.code for item in live_model._still_true(static, script, False)] == ["PS113"]


@pytest.mark.parametrize(("script", "place"), [("run.py", "data.py:9"), ("infer.py", "run.py:5")])
def test_the_place_of_a_transform_is_the_calls_where_another_script_states_one(tmp_path: Path, script: str, place: str) -> None:
    """What predicts may resize to another size than what trained and evaluated the model that is taken."""
    root = tmp_path / "repository"
    root.mkdir()
    calls = "import torch\nnet = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    print(net(x))\n"
    for name in ("run.py", "infer.py"):
        (root / name).write_text(calls)
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    scripts = {item.path: item for item in migration.surveyed.scripts}
    recipe = Recipe(root=str(root), script="run.py")
    seen = types.SimpleNamespace(standins=(), models=(SEEN,), weights_from=())
    run = live_model.Run(
        script=scripts["run.py"],
        recipe=recipe,
        seen=seen,  # type: ignore[arg-type]
        best=SEEN,
        remark=None,
        as_read=False,
    )
    stated = TransformRecipe(**{**vars(recipe), "script": script}, takes="image", source_at="data.py:9")
    static = Resolved(name="Other", recipe=recipe, factory="nets.py:3", script=scripts[script], transform_recipe=stated)
    found = live_model.resolved(migration, run, static, [])
    assert found.transform_recipe is not None
    assert (found.transform_recipe.source_at, found.stated_transform) == (place, stated if script == "run.py" else None)


@pytest.mark.parametrize(("read", "name"), [("resnet18", "resnet18"), ("my-cars", "Net")])
def test_a_model_is_called_as_its_class_where_reading_led_to_no_name(tmp_path: Path, read: str, name: str) -> None:
    """Where nothing names it, reading calls it as the folder is called."""
    root = tmp_path / "my-cars"
    root.mkdir()
    (root / "run.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    print(net(x))\n")
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    seen, best = types.SimpleNamespace(standins=(), models=(SEEN,), weights_from=()), replace(SEEN, as_read=True)
    recipe, script = Recipe(root=str(root), script="run.py"), migration.surveyed.scripts[0]
    run = live_model.Run(script=script, recipe=recipe, seen=seen, best=best, remark=None, as_read=True)  # type: ignore[arg-type]
    assert live_model.resolved(migration, run, Resolved(name=read, recipe=recipe, factory=None), []).name == name


@pytest.mark.parametrize("made", [True, False])
def test_images_that_only_a_stand_in_prepares_are_warned_of(tmp_path: Path, made: bool) -> None:
    (tmp_path / "run.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    print(net(x))\n")
    migration = Migration(scratch=tmp_path, surveyed=survey(tmp_path), options=Options(), stages=Stages(None))
    file = "preprocessor_config.json" if made else "config.json"
    standins = [f"network: {file} of models/vit was made, with the defaults of vit"] * 2
    seen = types.SimpleNamespace(standins=standins, models=(SEEN,), weights_from=())
    recipe, script = Recipe(root=str(tmp_path), script="run.py"), migration.surveyed.scripts[0]
    run = live_model.Run(script=script, recipe=recipe, seen=seen, best=SEEN, remark=None, as_read=True)  # type: ignore[arg-type]
    live_model.resolved(migration, run, None, [])
    said = [finding.message for finding in migration.findings if finding.code == "PS509"]
    assert [message.partition(":")[0] for message in said] == ["how images are prepared is nobody's"] * made


@pytest.mark.parametrize(
    ("tasks", "weights", "others", "warned"),
    [
        (("",), (), ["train.py"], True),
        (("",), ("/root/.cache/torch/hub/checkpoints/resnet18.pth",), ["train.py"], True),
        (("",), ("net.pth",), ["train.py"], False),
        (("single-label",), (), ["train.py"], False),
        (("",), (), [], False),
    ],
)
def test_features_that_may_be_meant_for_something_else_are_warned_of(
    tmp_path: Path, tasks: tuple[str, ...], weights: tuple[str, ...], others: list[str], warned: bool
) -> None:
    (tmp_path / "run.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    print(net(x))\n")
    migration = Migration(scratch=tmp_path, surveyed=survey(tmp_path), options=Options(), stages=Stages(None))
    best = replace(SEEN, tasks=tasks)
    seen = types.SimpleNamespace(standins=(), models=(best,), weights_from=weights)
    recipe, script = Recipe(root=str(tmp_path), script="run.py"), migration.surveyed.scripts[0]
    run = live_model.Run(script=script, recipe=recipe, seen=seen, best=best, remark=None, as_read=True)  # type: ignore[arg-type]
    live_model.resolved(migration, run, None, others)
    said = [item.message for item in migration.findings if item.severity == "warning"]
    assert [message.partition(",")[0] for message in said] == ["Net is taken for the model"] * warned


def test_what_its_script_says_otherwise_is_remarked_at_its_line(tmp_path: Path) -> None:
    root = tmp_path / "cars"
    root.mkdir()
    (root / "run.py").write_text("import torch\nnet = torch.nn.Linear(2, 2)\nfor x, y in loader:\n    print(net(x))\n")
    migration = Migration(scratch=tmp_path, surveyed=survey(root), options=Options(), stages=Stages(None))
    best = replace(SEEN, otherwise=(("run.py:4", "the class is chosen from the smallest number"),), beside=("ratio=1.5",))
    seen, recipe = types.SimpleNamespace(standins=(), models=(best,), weights_from=()), Recipe(root=str(root), script="run.py")
    run = live_model.Run(
        script=migration.surveyed.scripts[0],
        recipe=recipe,
        seen=seen,
        best=best,
        remark=None,
        as_read=False,  # type: ignore[arg-type]
    )
    live_model.resolved(migration, run, None, [])
    once, (code, severity, line, message) = [
        (item.code, item.severity, item.line, item.message) for item in migration.findings if item.code == "PS533"
    ]
    assert once[:2] == ("PS533", "note")
    assert once[3].startswith("Net is called with ratio=1.5 beside its images, once; the package has that for all images")
    assert (code, severity, line) == ("PS533", "warning", 4)
    assert message.startswith("the class is chosen from the smallest number; the package answers by what Net alone gives")


def test_where_reading_followed_no_script_each_place_that_loads_weights_may_load_the_models() -> None:
    sites = (types.SimpleNamespace(weights=True), types.SimpleNamespace(weights=False))
    surveyed = types.SimpleNamespace(checkpoints=sites)
    for same, expected in (
        (None, sites[:1]),
        (types.SimpleNamespace(script=None, checkpoints=()), sites[:1]),
        (types.SimpleNamespace(script="run.py", checkpoints=()), ()),
    ):
        assert live_model._checkpoints(surveyed, same) == expected  # type: ignore[arg-type]
    script = types.SimpleNamespace(script="run.py", checkpoints=())
    assert live_model._checkpoints(surveyed, script, ["net.pt"]) == sites[:1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("read", "name"),
    [
        ("load", "LeafNet"),
        ("build_model", "LeafNet"),
        ("getNet", "LeafNet"),
        ("leaf_small", "leaf_small"),
        ("loader8", "loader8"),
    ],
)
def test_a_model_is_not_called_like_a_function_that_could_make_any(tmp_path: Path, read: str, name: str) -> None:
    migration = types.SimpleNamespace(surveyed=types.SimpleNamespace(root=tmp_path / "leaves"))
    assert live_model._name(migration, "LeafNet", types.SimpleNamespace(name=read)) == name  # type: ignore[arg-type]
