"""TorchInductor with max-autotune on GPUs: kernels are chosen by measuring them, which takes minutes.

A plan tries it where `max_tuning_seconds` allows that, beside inductor's own choice of kernels.
"""

from __future__ import annotations

from .inductor import InductorBackend

# The captured example has two rows, for which other tiles win than for the batches that a server under load runs.
_ROWS = 32

BACKEND = InductorBackend(
    name="inductor_autotuned",
    devices=("cuda",),
    preparation_seconds=300.0,  # some 50 convolutions and products of a usual model, each in 10 to 20 forms, 2 cores to compile
    autotuned_at=_ROWS,
)
