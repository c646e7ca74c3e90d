"""PS104: things of the standard library that Python 3 has elsewhere."""

from ..rewriting.renames import Renames, table
from ..rewriting.rule import diff

_VALID_1 = """\
import torch
from collections import OrderedDict, defaultdict
from collections.abc import Iterable

x = isinstance([], Iterable)  # collections.Iterable
"""
_EXAMPLE_1 = diff("""\
import torch
import collections
-from collections import Iterable, OrderedDict
+from collections.abc import Iterable
+from collections import OrderedDict

-x = isinstance([], collections.Sequence), collections.Counter()
+x = isinstance([], collections.abc.Sequence), collections.Counter()
""")
_EXAMPLE_2 = diff("""\
import torch
import time
-import cPickle as pickle
+import pickle
from itertools import (
    repeat,  # kept
-    izip_longest,
+    zip_longest as izip_longest,
)

-start = time.clock()
+start = time.perf_counter()
""")


class StandardLibraryMoved(Renames):
    """What it does: renames modules and functions of the standard library that later versions of Python moved.

    Why: the import fails, or the name is missing.

    Example: `from collections import Iterable` becomes `from collections.abc import Iterable`.

    Fix safety: safe; it is the same thing. Imports with a fallback of their own stay.
    """

    safety = "safe"
    reason = "is gone from the standard library"
    gone = frozenset(["urllib2", "urlparse", "StringIO", "cStringIO"])
    modules = table("""
        cPickle -> pickle
        Queue -> queue
        ConfigParser -> configparser
        __builtin__ -> builtins
        StringIO.StringIO -> io.StringIO
        cStringIO.StringIO -> io.StringIO
    """)
    names = table("""
        collections -> collections.abc: Iterable Iterator Sequence MutableSequence Mapping MutableMapping Set MutableSet
        collections -> collections.abc: Callable Hashable Sized Container Generator KeysView ValuesView ItemsView Awaitable
        collections -> collections.abc: Coroutine
        time.clock -> time.perf_counter
        fractions.gcd -> math.gcd
        urllib -> urllib.request: urlretrieve urlopen
        urllib -> urllib.parse: quote unquote urlencode
        urllib2 -> urllib.request: urlopen Request
        urllib2 -> urllib.error: URLError HTTPError
        urlparse -> urllib.parse: urlparse urljoin
        itertools.izip -> zip
        itertools.imap -> map
        itertools.ifilter -> filter
        itertools.izip_longest -> itertools.zip_longest
        os.getcwdu -> os.getcwd
    """)
    VALID = (_VALID_1,)
    INVALID = (_EXAMPLE_1, _EXAMPLE_2)
