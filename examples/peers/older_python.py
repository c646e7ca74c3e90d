"""Print a Python of this minor version that PyTriton runs under; nothing where there is none.

PyTriton embeds an interpreter of its own, which finds the environment's standard library. That of later patch releases asks
it for `RLock._recursion_count`, which it lacks: whoever asks for that is too new.
"""

import os
import subprocess
import sys
from pathlib import Path

TOO_NEW = "import inspect, multiprocessing.resource_tracker as r, sys; sys.exit('_recursion_count' in inspect.getsource(r))"

name = f"python3.{sys.version_info.minor}"
places = dict.fromkeys(["/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(os.pathsep)])
for candidate in (Path(place) / name for place in places if place):
    command = [candidate, "-c", TOO_NEW]
    if os.access(candidate, os.X_OK) and subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        print(candidate)
        break
