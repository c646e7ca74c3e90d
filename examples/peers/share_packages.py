"""Let a peer's environment import this project and what it needs, behind the peer's own packages.

python examples/peers/share_packages.py build/peers/NAME
"""

import sys
import sysconfig
from pathlib import Path

own = sysconfig.get_paths()["purelib"]
(theirs,) = Path(sys.argv[1]).glob("lib/python3.*/site-packages")
(theirs / "zz_headrace.pth").write_text(f"import site; site.addsitedir({own!r})\n")
