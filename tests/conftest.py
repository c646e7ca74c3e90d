"""Settings that every test shares."""

import os
import signal

import pytest

# Tests of tuning must tune, here and in the processes they start; the cache's own tests turn it on.
os.environ["PENSTOCK_CACHE"] = "off"

# A shell starts its background jobs with SIGINT ignored, and what they start inherits that: tests that interrupt would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "write what the migrator says about tests/migrate/corpus today as what it shall say; review the difference by eye"
    parser.addoption("--update-goldens", action="store_true", help=text)
