"""With this folder on PYTHONPATH the stages of a pipeline wait in each of their batches for as many seconds as STAGES_WAIT
lists: they are busy at the same time on however few cores."""

import os
import sys
import time

if "headrace.runtime.artifact.pipeline.stage" in sys.orig_argv:
    from headrace.runtime.backends.shared import onnx_session

    # "stage 1 of 3"
    SECONDS = float(os.environ["STAGES_WAIT"].split()[int(sys.orig_argv[-1].split()[1])])

    class WaitingSession(onnx_session.OnnxSession):
        def run(self, inputs):
            time.sleep(SECONDS)
            return super().run(inputs)

    onnx_session.OnnxSession = WaitingSession
