"""What is said of a disk that fails."""

import errno
import resource
import shutil

import pytest

from headrace.errors import disk_fault


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "no space"), "no space"),
        (OSError(errno.EROFS, "read-only", "/cache/x"), "read-only (/cache/x)"),
        (OSError(errno.EXDEV, "text", "/a", None, "/b"), None),
        (PermissionError(errno.EACCES, "denied", "/cache"), "denied (/cache)"),
        (PermissionError(errno.EPERM, "of no path"), None),
        (FileNotFoundError(errno.ENOENT, "text", "/cache"), None),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/full', '/full/too']"),
            "No temporary folder can be written to (/full, /full/too)",
        ),
        (shutil.Error([]), None),
    ],
)
def test_disks_and_rights_are_told_from_everything_else(error, said):
    found = disk_fault(error)
    assert (None if found is None else str(found)) == said


def test_the_first_of_what_copying_a_tree_gathers(tmp_path):
    (tmp_path / "from").mkdir()
    for name in ("a", "b"):
        (tmp_path / "from" / name).write_bytes(bytes(1000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(shutil.Error) as raised:
            shutil.copytree(tmp_path / "from", tmp_path / "to")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    found = disk_fault(raised.value)
    assert found.reason == "File too large"
    assert found.place in (str(tmp_path / "to" / "a"), str(tmp_path / "to" / "b"))
