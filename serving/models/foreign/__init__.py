"""Models of any Triton repository, served as they stand: ONNX, OpenVINO, TorchScript and ensembles of these."""
