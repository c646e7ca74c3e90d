import numpy as np
import torch


def test_tensors_types_and_configurations(library):
    utils = library("triton_python_backend_utils")
    request = utils.InferenceRequest(inputs=[utils.Tensor("A", np.zeros((2, 3), np.float32))])
    tensor = utils.get_input_tensor_by_name(request, "A")
    assert (tensor.shape(), tensor.triton_dtype(), utils.get_input_tensor_by_name(request, "B")) == ([2, 3], "TYPE_FP32", None)
    assert torch.from_dlpack(tensor).shape == (2, 3)
    assert utils.Tensor.from_dlpack("B", torch.ones(2)).as_numpy().tolist() == [1, 1]
    config = {"output": [{"name": "X", "data_type": "TYPE_STRING"}], "model_transaction_policy": {"decoupled": True}}
    kind = utils.triton_string_to_numpy(utils.get_output_config_by_name(config, "X")["data_type"])
    assert (kind, utils.using_decoupled_model_config(config)) == (np.object_, True)


def test_bytes_are_written_and_read_back(library):
    utils = library("triton_python_backend_utils")
    rows = np.array([b"ant", b"", b"bee"], dtype=object)
    assert utils.deserialize_bytes_tensor(utils.serialize_byte_tensor(rows)).tolist() == rows.tolist()
