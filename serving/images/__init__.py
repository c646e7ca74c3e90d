"""Encoded images become rows: the decode pool, fast preprocessing, decoding on GPUs."""
