"""Pure rewrites of a captured graph: one pass, one file."""
