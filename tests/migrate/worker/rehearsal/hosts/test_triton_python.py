import pytest

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

MODEL = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.kind = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, "SCORES")["data_type"])

    def execute(self, requests):
        answers = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            scores = NET(TAKEN).detach().numpy().astype(self.kind)
            answers.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("SCORES", np.array(scores.shape))]))
        return answers
"""
CONFIG = """
name: "net"
backend: "python"
max_batch_size: %d
input [{ name: "IMAGE" data_type: %s dims: [ %s ] }]
output [{ name: "SCORES" data_type: TYPE_FP32 dims: [ 3 ] }]
"""


@pytest.mark.parametrize(
    ("taken", "config"),
    [
        ("opened(images.ravel()[0])", (0, "TYPE_STRING", "1")),
        ("opened(images[0][0])", (8, "TYPE_STRING", "1")),
        ("opened(images[0].tobytes())", (8, "TYPE_UINT8", "-1")),
        ("torch.from_numpy(images)[:, :, :8, :8]", (8, "TYPE_FP32", "3, 8, 8")),
        ("torch.from_numpy(images).permute(0, 3, 1, 2)[:, :, :8, :8].float()", (8, "TYPE_UINT8", "-1, -1, 3")),
        ("torch.from_numpy(images)[None]", (0, "TYPE_FP32", "3, 8, 8")),
    ],
)
def test_a_model_executes_a_request_of_its_configuration(rehearsed, taken, config):
    files = {"net/config.pbtxt": CONFIG % config, "net/1/model.py": OPENING + MODEL.replace("TAKEN", taken)}
    done = rehearsed(files, script="net/1/model.py")
    assert done.stdout == 'TritonPythonModel of Triton: {"SCORES": [1, 3]}\n', done.stderr


def test_without_a_configuration_the_inputs_are_those_that_are_asked_for(rehearsed):
    text = MODEL.replace("TAKEN", "opened(base64.b64decode(images.ravel()[0]))").replace(
        "        config = ", "        return\n        config = "
    )
    text = text.replace(".astype(self.kind)", "")
    done = rehearsed({"main.py": OPENING + text})
    assert done.stdout == 'TritonPythonModel of Triton: {"SCORES": [1, 3]}\n', done.stderr


def test_a_model_that_calls_another_of_its_server_says_so(rehearsed):
    text = MODEL.replace("TAKEN", "pb_utils.InferenceRequest(model_name='resnet', inputs=[]).exec()")
    files = {"net/config.pbtxt": CONFIG % (0, "TYPE_STRING", "1"), "net/1/model.py": OPENING + text}
    done = rehearsed(files, script="net/1/model.py")
    assert done.report.ended == "stopped"
    assert "calls the model 'resnet' of its server" in done.report.why
