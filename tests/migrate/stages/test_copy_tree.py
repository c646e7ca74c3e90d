"""Copies of repositories: complete, never out through a link, and frugal with big data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headrace.migrate.stages.copy_tree import copy_tree


def make(root: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def listed(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_every_file_mode_and_empty_folder(tmp_path: Path) -> None:
    source = make(tmp_path / "a", **{"train.py": b"x = 1\r\n", "data__test__0.png": b"\x89PNG"})
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "empty").mkdir()
    done = copy_tree(source, tmp_path / "b")
    assert listed(tmp_path / "b") == listed(source)
    assert (tmp_path / "b/train.py").read_bytes() == b"x = 1\r\n"
    assert os.access(tmp_path / "b/run.sh", os.X_OK)
    assert (done.linked, done.left_out) == ([], [])


def test_links_inside_stay_links_and_links_out_are_not_followed(tmp_path: Path) -> None:
    outside = make(tmp_path / "outside", secret=b"s")
    source = make(tmp_path / "a", **{"model.py": b"m"})
    (source / "sub").mkdir()
    (source / "sub/inside.py").symlink_to("../model.py")
    (source / "absolute.py").symlink_to(source / "model.py")
    (source / "data").symlink_to("../outside")
    (source / "loop").symlink_to(".")
    (source / "dangling").symlink_to("nowhere")
    copy_tree(source, tmp_path / "b")
    copy = tmp_path / "b"
    assert (copy / "sub/inside.py").resolve() == copy / "model.py"
    assert (copy / "absolute.py").resolve() == copy / "model.py"
    assert (copy / "data").is_symlink()
    assert (copy / "data").resolve() == outside
    assert (copy / "loop").is_symlink()
    assert os.readlink(copy / "dangling") == "nowhere"


def test_environments_caches_pipes_and_former_outputs_stay_out(tmp_path: Path) -> None:
    source = make(
        tmp_path / "a",
        **{"m.py": b"", "env__pyvenv.cfg": b"", "env__big.so": b"", "__pycache__.x": b"", "out__headrace-report.json": b"{}"},
    )
    make(source, **{"pkg____pycache____m.pyc".replace("____", "__"): b""})
    (source / "cache").mkdir()
    (source / "cache/__pycache__").mkdir()
    os.mkfifo(source / "pipe")
    target = source / "build/here"
    done = copy_tree(source, target, leave_out=(target,))
    assert (target / "m.py").exists()
    assert not (target / "env").exists()
    assert not (target / "out").exists()
    assert not (target / "pipe").exists()
    assert not (target / "build/here").exists()
    assert not (target / "cache/__pycache__").exists()
    assert {"env", "out", "pipe"} <= set(done.left_out)


def test_big_data_becomes_a_link_but_never_code(tmp_path: Path) -> None:
    source = make(
        tmp_path / "a",
        **{
            "m.py": b"x" * 500,
            "data__train__1.jpg": b"x" * 5000,
            "data__train__2.jpg": b"x" * 5000,
            "data__note.txt": b"n",
            "w.pth": b"x" * 600,
        },
    )
    done = copy_tree(source, tmp_path / "b", huge=2000)
    assert done.linked == ["data"]
    assert (tmp_path / "b/data").is_symlink()
    assert (tmp_path / "b/data/train/1.jpg").stat().st_size == 5000
    assert not (tmp_path / "b/m.py").is_symlink()
    assert not (tmp_path / "b/w.pth").is_symlink()


def test_progress_ends_at_one(tmp_path: Path) -> None:
    seen: list[float] = []
    copy_tree(make(tmp_path / "a", one=b"1", two=b"22"), tmp_path / "b", progress=lambda fraction, _: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_file_that_the_disk_does_not_take_is_named(tmp_path: Path) -> None:
    make(tmp_path / "a", big=bytes(200_000))
    (tmp_path / "other").mkdir()
    limited = (
        "import resource, signal, sys; from pathlib import Path; from headrace.migrate.stages import copy_tree\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "copy_tree.FICLONE = 0\n"  # which would take no room
        "copy_tree.copy_tree(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, tmp_path / "a", tmp_path / "b"], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip().endswith(f"File too large: '{tmp_path / 'b' / 'big'}'")
