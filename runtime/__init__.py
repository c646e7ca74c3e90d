"""Graph mode: capture, passes, backends, plan, artifact."""

import os

# ONNX Runtime's wheels for Linux (since 1.31, as seen) write a device id and a database of events into the user's cache, to be
# sent to Microsoft. It reads this when it is imported. Whoever wants that sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
