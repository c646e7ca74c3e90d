"""The catalogue of rewrites: one rule, one file."""
