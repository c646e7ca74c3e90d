"""Settings that every test shares."""

import os
import signal

# Tests of tuning must tune, here and in the processes they start; the cache's own tests turn it on.
os.environ["PENSTOCK_CACHE"] = "off"

# A shell starts its background jobs with SIGINT ignored, and what they start inherits that: tests that interrupt would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
