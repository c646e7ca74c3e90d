"""The embedded server, its clients and its benchmark."""

import os

# gRPC's core would print what its peers say to the standard error, line breaks and all, past our log. It reads this once, when
# it is imported. What it cannot do, such as taking a port, is an exception too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
