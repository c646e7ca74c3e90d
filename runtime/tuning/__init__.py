"""The plan: every candidate built, held to parity, and measured."""
