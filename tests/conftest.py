"""Settings that every test shares."""

import os

# Tests of tuning must tune, here and in the processes they start; the cache's own tests turn it on.
os.environ["PENSTOCK_CACHE"] = "off"
