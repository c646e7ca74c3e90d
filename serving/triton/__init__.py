"""A models folder and NVIDIA Triton: what it would refuse, what it is to run, and the real thing beside the embedded server."""
