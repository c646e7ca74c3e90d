"""A program's beginning, for tests that run as root and ask what another user may do."""

# Root reads everything, and removes from any folder; in a user namespace that maps it to another user it does not.
AS_USER = """
import ctypes, json, os, stat, sys
from pathlib import Path
if os.geteuid() == 0:
    libc = ctypes.CDLL(None)
    assert libc.unshare(0x10000000) == 0
    for name, line in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
"""
