"""What can run a captured graph: one backend, one file."""
