"""The catalog of rewrites: one rule, one file."""
