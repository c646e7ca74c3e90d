"""Files of folders that others wrote, opened so that nothing there is waited on."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, *, links: bool = True) -> BinaryIO:
    """Open a file to read, without waiting for a pipe's writer or asking a device; without `links`, also none that appears
    meanwhile. Raises OSError, for a special file too."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if links else getattr(os, "O_NOFOLLOW", 0))
    handle = os.open(path, flags)
    found = os.fstat(handle).st_mode
    if not stat.S_ISREG(found):
        os.close(handle)
        code = errno.EISDIR if stat.S_ISDIR(found) else errno.EINVAL
        raise OSError(code, "it is a folder" if stat.S_ISDIR(found) else "it is not a regular file", str(path))
    return os.fdopen(handle, "rb")
