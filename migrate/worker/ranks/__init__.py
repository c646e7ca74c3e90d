"""Scripts of many processes, each a rank, on this machine's CPU."""
