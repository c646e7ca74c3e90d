"""Why cases of NVIDIA's server tests cannot pass here."""

OPTIONAL = "optional inputs"
CUDA, TENSORRT = "CUDA shared memory", "TensorRT"
SEQUENCES = "sequences: these models keep no state between requests"
CONTROL = "a control call of more than 64 KiB, refused before it is read (413)"
WORDS = "other words for the same refusal"
STATUS = "another status for the same refusal"
KEYS = "a refused key is always refused in the same words, which tell nothing of the machine"
TRACES = "Triton's trace extension, which stays off"

_AIO, _HTTP = "L0_grpc/python_grpc_aio_test.py TestGrpcAioClient", "L0_http/http_test.py HttpTest"
_CHUNKS = "L0_http/http_request_many_chunks.py HTTPRequestManyChunksTest"
_INPUTS, _MEMORY = "L0_input_validation/input_validation_test.py", "L0_shared_memory/shared_memory_test.py SharedMemoryTest"
_STATUS, _CYCLE = "L0_server_status/server_status_test.py", "L0_lifecycle/lifecycle_test.py LifeCycleTest"

# By file, case and, where both protocols run it, CLIENT_TYPE.
CANNOT = {
    f"{_AIO}.test_load_model": STATUS,
    f"{_AIO}.test_unload_model": STATUS,
    f"{_AIO}.test_register_cuda_shared_memory": CUDA,
    f"{_AIO}.test_register_system_shared_memory": STATUS,
    "L0_grpc/python_unit_test.py *test_bytes_contents_many_elements_serialization": "ten million strings; here four at most",
    f"{_HTTP}.test_buffer_size_overflow": WORDS,
    f"{_HTTP}.test_content_encoding_chunked_manually": "Content-Length beside Transfer-Encoding, refused: it smuggles requests",
    f"{_HTTP}.test_loading_large_invalid_model": CONTROL,
    f"{_HTTP}.test_negative_dimensions": "500 for the caller's mistake; here 400",
    f"{_HTTP}.test_repository_index_deeply_nested_json": CONTROL,
    f"{_CHUNKS}.*over_max_chunks*": "a bound on the number of chunks; here on the bytes that they add (1 MiB)",
    f"{_INPUTS} InputShapeTest.test_input_shape_validation": WORDS,
    f"{_INPUTS} InputShapeTest.test_input_string_shape_validation": WORDS,
    f"{_INPUTS} InputShapeTest.test_wrong_input_shape_tensor_size": TENSORRT,
    f"{_INPUTS} InputValTest.*_optional*": OPTIONAL,
    f"{_INPUTS} ModelNameValidationTest.test_model_name_empty_load": WORDS,
    f"{_INPUTS} ModelNameValidationTest.test_model_name_invalid_load": WORDS,
    f"{_INPUTS} ModelNameValidationTest.test_model_name_whitespace_only_load": WORDS,
    f"{_MEMORY}.test_infer_integer_overflow http": WORDS,
    f"{_MEMORY}.test_infer_offset_out_of_bound http": WORDS,
    f"{_MEMORY}.test_too_big_shm": WORDS,
    f"{_MEMORY}.test_register_invalid_shm_key": KEYS,
    f"{_MEMORY}.test_register_reserved_names": KEYS,
    "L0_nan_inf/nan_inf_test.py (the file)": "np.NINF, which NumPy 2 has not",
    "L0_trace/trace_endpoint_test.py *": TRACES,
    f"{_STATUS} ServerMetadataTest.test_basic": SEQUENCES,
    f"{_STATUS} ServerMetadataTest.test_model_latest_infer": TENSORRT,
    f"{_STATUS} ModelMetadataTest.test_infer_stats_no_model": "a repository of NVIDIA's 144 models",
    f"{_STATUS} ModelMetadataTest.test_model_versions_added": WORDS,
    f"{_CYCLE}.test_dynamic_model_load_unload": WORDS,
    f"{_CYCLE}.test_dynamic_version_load_unload": WORDS,
    f"{_CYCLE}.test_shutdown_with_live_connection": "idle connections that outlive the stop; here they are closed",
}
