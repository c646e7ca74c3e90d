import types

import pytest

from headrace.migrate.proving.rehearsal_protocol import RehearsalReport
from headrace.migrate.worker.rehearsal import Rehearsal, Stage
from headrace.migrate.worker.rehearsal.making import Maker


def stage_in(tmp_path, **fields):
    return Stage(Rehearsal(root=str(tmp_path), script="main.py", made=str(tmp_path / "made"), **fields))


def test_patches_hold_until_the_end(tmp_path):
    class Base:
        def said(self):
            return "base"

    class Own(Base):
        pass

    stage = stage_in(tmp_path)
    module = types.SimpleNamespace(value=1, double=lambda number: 2 * number)
    with stage.patched():
        stage.patch(module, "value", 2)
        stage.patch(module, "new", 3)
        stage.wrap(module, "double", lambda original, number: original(number) + 1)
        stage.wrap(module, "absent", lambda original: original())
        stage.wrap(Own, "said", lambda original, self: original(self).upper())
        assert (module.value, module.new, module.double(2), Own().said()) == (2, 3, 5, "BASE")
    assert (module.value, hasattr(module, "new"), hasattr(module, "absent"), module.double(2)) == (1, False, False, 4)
    assert "said" not in vars(Own)


def test_what_stands_in_is_told_once_and_at_once(tmp_path):
    report = tmp_path / "report.json"
    stage = stage_in(tmp_path, report=str(report))
    stage.note("data", "x.png", "main.py:3")
    stage.note("data", "x.png", "main.py:3")
    stage.weights_stand_in("resnet18.pth")
    told = RehearsalReport.from_json(report.read_text())
    assert [item.what for item in told.standins] == ["x.png", "resnet18.pth: weights that are not yours stood in"]
    assert (told.ended, told.why, told.user_weights) == ("stopped", "the process died", False)


def test_hundreds_of_them_are_told_in_few_reports(tmp_path, monkeypatch):
    stage, written = stage_in(tmp_path), []
    monkeypatch.setattr(stage, "write", written.append)
    for number in range(800):
        stage.note("data", f"{number}.png", "main.py:3")
    counts = [len(report.standins) for report in written]
    assert counts[:30] == list(range(1, 31))
    assert len(counts) < 150
    assert counts[-1] > 0.96 * 800


def test_the_next_attempt_knows_what_was_learned(tmp_path):
    stage = stage_in(tmp_path)
    assert stage.learn("cuda", True)
    assert not stage.learn("cuda", True)
    assert stage_in(tmp_path).learned == {"cuda": True}


def test_one_more_of_several_is_learned_once(tmp_path):
    stage = stage_in(tmp_path, checkpoint="/given.pth")
    assert stage.add("keys", "x")
    assert stage.add("keys", "y")
    assert not stage.add("keys", "x")
    assert stage.learned == {"keys": ["x", "y"]}
    assert stage.checkpoint == "/given.pth"
    stage.add("unfit", "/given.pth")
    assert stage_in(tmp_path, checkpoint="/given.pth").checkpoint is None


def test_known_classes_are_the_first_guess_of_all_runs_and_what_a_run_shows_is_the_next(tmp_path):
    (tmp_path / "main.py").write_text("num_classes = 4\n")
    assert Maker(stage_in(tmp_path)).classes == 4
    assert Maker(stage_in(tmp_path, classes=7)).classes == 7
    later = stage_in(tmp_path)
    assert Maker(later).classes == 7
    later.learn("classes", 3)
    assert Maker(stage_in(tmp_path, classes=7)).classes == 3


def test_what_was_learned_in_one_copy_of_the_sources_holds_in_another(tmp_path):
    """A copy of the sources as they came is run after a repaired one: it must neither run in that one nor clear it."""
    made = str(tmp_path / "made")
    roots = [tmp_path / "repository", tmp_path / "repository-as-it-came"]
    for root in roots:
        (root / "tools").mkdir(parents=True)
    first, second = (Rehearsal(root=str(root), script="tools/main.py", made=made) for root in roots)
    stage = Stage(first)
    stage.learn("directory", str(roots[0] / "tools"))
    stage.learn("wanted", {str(roots[0] / "data"): "tools/main.py:3", "/elsewhere/data": "tools/main.py:4"})
    (roots[0] / "data").mkdir()
    stage.keep(str(roots[0] / "data"))
    other = Stage(second)
    assert other.directory() == str(roots[1] / "tools")
    assert list(other.learned["wanted"]) == [str(roots[1] / "data"), "/elsewhere/data"]
    other.clear()
    assert (roots[0] / "data").is_dir()
    again = Stage(first)
    assert again.directory() == str(roots[0] / "tools")
    assert again.has_made(roots[0] / "data")
    assert not other.has_made(roots[0] / "data")
    again.clear()
    assert not (roots[0] / "data").exists()


def test_what_a_script_gives_by_name_reaches_a_wrapper_by_position(on_stage):
    world = on_stage()
    module = types.SimpleNamespace(read=lambda path, mode="r", *, encoding=None: (path, mode, encoding))
    world.stage.wrap(module, "read", lambda original, path, *args, **named: original(path.upper(), *args, **named))
    assert module.read(path="a", mode="w", encoding="x") == module.read("a", "w", encoding="x") == ("A", "w", "x")
    with pytest.raises(TypeError, match="multiple values"):
        module.read("a", path="b")


@pytest.mark.parametrize(("ranks", "left"), [(1, False), (2, True)])
def test_what_a_script_renamed_outside_of_the_repository_is_not_there_for_its_next_run(tmp_path, ranks, left):
    stage = Stage(Rehearsal(root=str(tmp_path / "tree"), script="main.py", made=str(tmp_path / "made"), ranks=ranks))
    (stage.outside / "results" / "old").mkdir(parents=True)
    stage.clear()
    assert stage.outside.exists() == left
