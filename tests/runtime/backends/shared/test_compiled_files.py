"""Files of earlier starts are used whole and of this user alone, or not at all."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.runtime.backends.shared import compiled_files
from headrace.runtime.backends.shared.compiled_files import HEAD, drop, key_of, look_up, store

KEY, OTHER = "a" * 64, "b" * 64
DATA = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled"


def kept(key=KEY, data=DATA):
    return bytes(store(key, memoryview(data))[HEAD:])


def test_what_is_kept_is_found_in_a_folder_of_one_s_own(folder):
    assert look_up(KEY) is None
    assert kept() == DATA
    assert bytes(look_up(KEY)[HEAD:]) == DATA
    assert look_up(OTHER) is None
    assert [path.name for path in folder.iterdir()] == [KEY]
    assert (folder.stat().st_mode & 0o777, (folder / KEY).stat().st_mode & 0o777) == (0o700, 0o600)
    drop(KEY)
    assert look_up(KEY) is None


@pytest.mark.parametrize("at", [0, 25, 90, HEAD, HEAD + len(DATA) - 1])
def test_what_was_changed_is_not_used_and_goes(folder, at):
    kept()
    data = bytearray((folder / KEY).read_bytes())
    data[at] ^= 1
    (folder / KEY).write_bytes(data)
    assert look_up(KEY) is None
    assert not (folder / KEY).exists()


@pytest.mark.parametrize("size", [0, 1, HEAD, HEAD + 1])
def test_what_is_cut_off_is_not_used(folder, size):
    kept()
    os.truncate(folder / KEY, size)
    assert look_up(KEY) is None


def test_what_is_another_key_s_is_not_used(folder):
    kept()
    (folder / KEY).rename(folder / OTHER)
    assert look_up(OTHER) is None


def test_what_others_may_have_written_is_not_used(folder):
    kept()
    (folder / KEY).chmod(0o622)
    assert look_up(KEY) is None
    kept()
    folder.chmod(0o777)
    assert look_up(KEY) is None
    folder.chmod(0o700)
    assert look_up(KEY) is not None


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_what_belongs_to_another_user_is_not_used(folder):
    kept()
    os.chown(folder / KEY, 4321, -1)
    assert look_up(KEY) is None


def test_a_link_is_not_followed(folder, tmp_path):
    kept()
    (folder / KEY).rename(tmp_path / "elsewhere")
    (folder / KEY).symlink_to(tmp_path / "elsewhere")
    assert look_up(KEY) is None
    kept()
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert look_up(KEY) is None


def test_a_pipe_is_not_waited_for(folder):
    kept()
    (folder / KEY).unlink()
    os.mkfifo(folder / KEY)
    assert look_up(KEY) is None


def test_what_is_written_into_the_memory_does_not_reach_the_file():
    kept()
    mapped = look_up(KEY)
    mapped[HEAD] ^= 1
    assert bytes(look_up(KEY)[HEAD:]) == DATA


def test_it_is_bounded_and_the_longest_unused_goes(folder, monkeypatch):
    monkeypatch.setattr(compiled_files, "_MOST_ENTRIES", 3)
    for number in range(3):
        kept(f"{number:064x}")
        os.utime(folder / f"{number:064x}", (number + 1, number + 1))
    assert look_up(f"{0:064x}") is not None  # used just now
    kept(f"{3:064x}")
    assert sorted(int(path.name, 16) for path in folder.iterdir()) == [0, 2, 3]
    monkeypatch.setattr(compiled_files, "_MOST_BYTES", 2 * (HEAD + len(DATA)))
    kept(f"{4:064x}")
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(compiled_files, "_LARGEST", 10)
    assert store(KEY, memoryview(DATA)) is None


def test_what_a_dead_writer_left_goes_and_others_files_stay(folder):
    kept()
    left, foreign = folder / f".1-{OTHER}", folder / "notes.txt"
    for path in (left, foreign):
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    kept()
    assert (left.exists(), foreign.exists()) == (False, True)


def test_a_place_that_cannot_be_written_costs_nothing(folder):
    folder.parent.mkdir()
    folder.write_text("a file")
    assert store(KEY, memoryview(DATA)) is None
    assert look_up(KEY) is None


def test_off_is_off(monkeypatch, folder):
    monkeypatch.setenv("HEADRACE_CACHE", "off")
    assert store(KEY, memoryview(DATA)) is None
    assert not folder.exists()


def test_two_processes_and_threads_of_each_write_and_read_one_entry(folder):
    code = (
        "import sys; from headrace.runtime.backends.shared.compiled_files import HEAD, look_up, store; "
        f"data = {DATA!r}; "
        "found = [store(sys.argv[1], memoryview(data)) for _ in range(50)] + [look_up(sys.argv[1]) for _ in range(50)]; "
        "assert all(one is not None and bytes(one[HEAD:]) == data for one in found), found"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, KEY], env=os.environ) for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        assert all(found == DATA for found in pool.map(lambda _: kept(), range(50)))
    assert [process.wait(120) for process in processes] == [0, 0]
    assert [path.name for path in folder.iterdir()] == [KEY]


def test_the_key_is_of_contents_and_facts(tmp_path):
    one, other = tmp_path / "model.onnx", tmp_path / "copy.onnx"
    one.write_bytes(b"graph")
    other.write_bytes(b"graph")
    assert key_of([one], {"threads": 1}) == key_of([other], {"threads": 1})
    assert key_of([one], {"threads": 1}) != key_of([one], {"threads": 2})
    other.write_bytes(b"grape")
    assert key_of([one], {"threads": 1}) != key_of([other], {"threads": 1})


def test_the_order_of_facts_is_none_of_the_key_s_business(tmp_path):
    (tmp_path / "model").write_bytes(b"graph")
    facts = {"rows": 4, "settings": {"threads": 2}, "at": tmp_path}
    key = key_of([tmp_path / "model"], facts)
    assert key == key_of([tmp_path / "model"], dict(reversed(facts.items())))
    assert len({key, key_of([tmp_path / "model"], {**facts, "rows": 8}), key_of([], facts)}) == 3


def test_what_was_just_kept_stays_and_what_is_not_ours_too(folder, monkeypatch):
    monkeypatch.setattr(compiled_files, "_MOST_ENTRIES", 2)
    for name in "cdef":
        kept(name * 64)
        os.utime(folder / (name * 64), (4e9, 4e9))  # of a clock that was wrong
    others = [folder / ".keep", folder / f"notes on {KEY}", folder / "README"]
    for path in others:
        path.write_text("mine")
        os.utime(path, (0, 0))
    assert kept() == DATA
    assert bytes(look_up(KEY)[HEAD:]) == DATA
    assert all(path.exists() for path in others)
    assert len([path for path in folder.iterdir() if path not in others]) == 2
