"""The batcher's policy under traffic, in virtual time: no clocks, no threads, the same answer for the same seed."""
