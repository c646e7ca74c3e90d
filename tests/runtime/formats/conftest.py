"""What every format must do."""

import numpy as np
import pytest


@pytest.fixture
def answers(opened_net):
    """Rows, and what the package answers to them."""
    rows = np.random.default_rng(5).normal(size=(3, 3, 16, 16)).astype(np.float32)
    session = opened_net.artifact.open()
    (wanted,) = session.run([rows])
    session.close()
    return rows, wanted


@pytest.fixture
def images():
    return np.random.default_rng(6).normal(size=(32, 3, 16, 16)).astype(np.float32)
