"""Which of NVIDIA's server tests run here, against which models and options."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace import __version__

from .models import arithmetic, identity, unpackaged, versions, waiting

Make = Callable[[Path, Path], None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Cases of one file that have a server together.

    `models` are made in the repository, `prepare` changes the working folder before the server starts, `environment` is what
    the folder's test.sh sets, `cases` are all of the file where none are named.
    """

    file: str
    models: tuple[Make, ...]
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    prepare: tuple[Callable[[Path], object], ...] = ()


def _sum(name: str, **settings: Any) -> Make:
    return lambda models, scratch: arithmetic(models, name, scratch, **settings)


def _same(name: str, **settings: Any) -> Make:
    return lambda models, scratch: identity(models, name, scratch, **settings)


SIMPLE = _sum("simple")
SCALARS = {"dtype": "float32", "row": ()}
ZERO = _same("onnx_zero_1_float32", dtype="float32", row=(8,))
EXPLICIT = ("--model-control-mode", "explicit", "--load-model", "*")
SHARED = ("--shared-memory",)
AIO = ("--shared-memory", "--allow-settings")
FLOATS, INTEGERS = "float32_float32_float32", "int32_int32_int32"
# As in test.sh, but for test_python_client_leak, which measures the client without a server.
REGISTERED = (
    *("invalid_create_shm", "valid_create_set_register", "unregister_before_register", "unregister_after_register"),
    *("reregister_after_register", "unregister_after_inference", "register_after_inference", "too_big_shm", "mixed_raw_shm"),
    *("unregisterall", "infer_offset_out_of_bound", "infer_byte_size_out_of_bound", "infer_integer_overflow"),
    *("register_out_of_bound", "register_reserved_names", "register_invalid_shm_key", "large_shm_register_offset"),
)
POLL = ("--model-control-mode", "poll", "--repository-poll-secs", "1")
LIFECYCLE = "L0_lifecycle/lifecycle_test.py"
STATUS = "L0_server_status/server_status_test.py"


def _versions(name: str, numbers: Sequence[int], policy: str = "all { }", **settings: Any) -> Make:
    return lambda models, scratch: versions(models, name, scratch, numbers, policy=policy, **settings)


def _floats(kind: str) -> Make:
    """As NVIDIA's: of three versions the first and the last serve."""
    return _versions(f"{kind}_{FLOATS}", (1, 2, 3), "specific { versions: [1, 3] }", dtype="float32")


def _integers(kind: str, numbers: Sequence[int] = (1, 2, 3)) -> Make:
    return _versions(f"{kind}_{INTEGERS}", numbers, dtype="int32")


def _strings(given: str, made: str, other: str) -> Make:
    kinds = {"o": "object", "i": "int32"}
    first, second, third = kinds[given], kinds[made], kinds[other]
    return _sum(f"onnx_{first}_{second}_{third}", dtype=first, to=second, other_to=third, write=unpackaged)


def _queue(models: Path, scratch: Path) -> None:
    """As L0_http/test.sh has it: a batch of 8 is waited for, by one request at most."""
    policy = "default_queue_policy { max_queue_size: 1 }"
    more = f"dynamic_batching {{ max_queue_delay_microseconds: 1000000 preferred_batch_size: [ 8 ] {policy} }}"
    identity(models, "onnx_zero_1_float32_queue", scratch, dtype="float32", row=(8,), write=partial(unpackaged, more=more))


def _slow(models: Path, scratch: Path) -> None:
    """Longer than the 2 s that the tests wait, and twice it is shorter than the 10 s that they allow."""
    waiting(models, "custom_identity_int32", scratch, seconds=3)


def _aside(name: str) -> Callable[[Path], object]:
    """A model that the test copies into the repository."""
    return lambda here: shutil.move(here / "models" / name, here / name)


def _empty(name: str, *numbers: int) -> Callable[[Path], None]:
    """Versions without files."""

    def prepare(here: Path) -> None:
        for number in numbers:
            shutil.rmtree(here / "models" / name / str(number))
            (here / "models" / name / str(number)).mkdir()

    return prepare


def _copied(version: str) -> Callable[[Path], object]:
    folder = Path(f"models/libtorch_{FLOATS}")
    return lambda here: shutil.copytree(here / folder / "1", here / folder / version)


def _cycle(name: str, *models: Make, **settings: Any) -> Run:
    return Run(file=LIFECYCLE, models=models, cases=(f"LifeCycleTest.{name}",), **settings)


# Of L0_infer what its ONNX models are asked; those of uint8 it has not.
_PLAIN = ("bbb", "sss", "iii", "lll", "hhh", "fff", "hff", "bii", "ibb", "ibs", "iff", "fii", "ihs")
_STRINGS = ("ooo", "oii", "oio", "ooi", "ioo", "iio", "ioi")
_CLASSES = ("bbb", "sss", "iii", "lll", "fff", "iff")
_VERSIONS = ("latest_1", "latest_2", "all", "specific_1", "specific_1_3")
INFER = (
    *(f"InferTest.test_raw_{kinds}" for kinds in (*_PLAIN, *_STRINGS)),
    *(f"InferTest.test_raw_version_{what}" for what in _VERSIONS),
)
CLASSES = tuple(f"InferTest.test_{what}_{kinds}" for what in ("class", "mix") for kinds in _CLASSES)
_ONNX = (
    _versions("onnx_int8_int8_int8", (1, 2, 3), "latest { num_versions: 1 }", dtype="int8", write=unpackaged),
    _versions("onnx_int16_int16_int16", (1, 2, 3), "latest { num_versions: 2 }", dtype="int16", write=unpackaged),
    _versions(f"onnx_{INTEGERS}", (1, 2, 3), dtype="int32", write=unpackaged),
    *(_strings(*kinds) for kinds in _STRINGS),
    _versions("onnx_float16_float16_float16", (1, 2, 3), "specific { versions: [1] }", dtype="float16"),
    _floats("onnx"),
    _sum("onnx_int64_int64_int64", dtype="int64", write=unpackaged),
    _sum("onnx_float16_float32_float32", dtype="float16", to="float32"),
    _sum("onnx_int8_int32_int32", dtype="int8", to="int32"),
    _sum("onnx_int32_int8_int8", to="int8"),
    _sum("onnx_int32_int8_int16", to="int8", other_to="int16"),
    _sum("onnx_int32_float32_float32", to="float32"),
    _sum("onnx_float32_int32_int32", dtype="float32", to="int32"),
    _sum("onnx_int32_float16_int16", to="float16", other_to="int16"),
)


RUNS = (
    *(
        Run(
            file="L0_infer/infer_test.py",
            models=_ONNX,
            options=SHARED,
            environment={
                "BACKENDS": "onnx",
                "ENSEMBLES": "0",
                "NOBATCH": "0",
                "TRITON_SERVER_CPU_ONLY": "1",
                "TEST_SYSTEM_SHARED_MEMORY": shared,
            },
            cases=(*INFER, *classes),
        )
        for shared, classes in (("0", CLASSES), ("1", ()))  # with shared memory the file has no classification
    ),
    Run(file="L0_http/python_http_aio_test.py", models=(SIMPLE, *(_sum(f"another{n}") for n in range(6))), options=AIO),
    Run(file="L0_grpc/python_grpc_aio_test.py", models=(SIMPLE, *(_sum(f"another{n}") for n in range(7))), options=AIO),
    Run(file="L0_grpc/python_unit_test.py", models=(SIMPLE,), cases=("GrpcTest",)),
    Run(
        file="L0_http/http_test.py",
        models=(
            ZERO,
            _queue,
            _same("onnx_zero_1_float16", dtype="float16", row=(-1, -1), write=unpackaged),
            _same("onnx_zero_1_object", dtype="object", row=(-1,), write=unpackaged),
            _same("onnx_zero_1_object_1_element", dtype="object", row=(1,), write=unpackaged),
            _same("simple_identity", dtype="object", row=(-1,), write=unpackaged),
            _same("onnx_zero_3_float32", dtype="float32", row=(8,), count=3),
            _same("simple_identity_int64", dtype="int64", row=(1,)),
        ),
        options=(*EXPLICIT, "--max-queue-delay-secs", "1", "--max-json-depth", "100"),
    ),
    Run(file="L0_http/http_request_many_chunks.py", models=(SIMPLE,)),
    Run(file="L0_http/http_client_plugin_test.py", models=(ZERO,)),
    Run(
        file="L0_input_validation/input_validation_test.py",
        models=(
            _same("input_all_required", **SCALARS, count=3),
            _same("pt_identity", dtype="float32", row=(8,)),
            _strings("o", "i", "i"),
        ),
        options=(*EXPLICIT, *SHARED),
    ),
    *(
        run
        for client in ("http", "grpc")
        for run in (
            Run(
                file="L0_shared_memory/shared_memory_test.py",
                models=(SIMPLE,),
                environment={"CLIENT_TYPE": client},
                cases=("SharedMemoryTest.test_client_shm_disabled_by_default",),
            ),
            Run(
                file="L0_shared_memory/shared_memory_test.py",
                models=(SIMPLE, _sum("onnx_int32_int32_int32")),
                options=SHARED,
                environment={"CLIENT_TYPE": client, "BACKENDS": "onnx"},
                cases=tuple(f"SharedMemoryTest.test_{name}" for name in REGISTERED),
            ),
        )
    ),
    Run(file="L0_nan_inf/nan_inf_test.py", models=(SIMPLE,)),
    Run(
        file="L0_output_name/output_name_test.py",
        models=tuple(_same(f"{kind}_nobatch_zero_1_float32", **SCALARS) for kind in ("libtorch", "onnx", "plan")),
    ),
    Run(
        file="L0_scalar_io/scalar_test.py",
        models=tuple(
            _same(f"onnx_scalar_{n}dim", dtype="float32", row=(1,) * (n - 1), names=("INPUT", "OUTPUT")) for n in (1, 2)
        ),
    ),
    *(
        Run(
            file="L0_parameters/class_count_test.py",
            models=(
                _same("identity_fp32", dtype="float32", row=(-1,), write=unpackaged),
                _same("identity_bytes", dtype="object", row=(-1,), write=unpackaged),
            ),
            environment={"CLIENT_TYPE": client},
        )
        for client in ("http", "grpc")
    ),
    Run(
        file="L0_client_nobatch/client_test.py",
        models=(
            _sum("onnx_int32_int8_int8", to="int8"),
            _sum("onnx_nobatch_int32_int8_int8", to="int8", row=(), max_batch_size=16),
        ),
    ),
    Run(file="L0_logging/logging_endpoint_test.py", models=(SIMPLE,), options=("--allow-settings",)),
    Run(file="L0_trace/trace_endpoint_test.py", models=(SIMPLE,), options=("--allow-settings",)),
    Run(
        file=STATUS,
        models=(
            *(_floats(kind) for kind in ("libtorch", "onnx", "plan")),
            *(_integers(kind) for kind in ("onnx", "plan")),
            *(_sum(f"{kind}_int32_int8_int8", to="int8") for kind in ("libtorch", "onnx")),
        ),
        options=POLL,
        environment={"TRITON_SERVER_VERSION": __version__},
        cases=("ServerMetadataTest",),
    ),
    Run(
        file=STATUS,
        models=(
            *(_integers(kind, (1,)) for kind in ("libtorch", "onnx")),
            _versions("plan_float16_float32_float32", (1, 7), "latest { num_versions: 1 }", dtype="float16", to="float32"),
        ),
        options=POLL,
        environment={"TRITON_SERVER_VERSION": __version__},
        cases=("ModelMetadataTest",),
    ),
    _cycle(
        "test_parse_ignore_zero_prefixed_version",
        _versions(f"libtorch_{FLOATS}", (1,), dtype="float32"),
        prepare=(_copied("001"),),
    ),
    _cycle(
        "test_parse_ignore_non_intergral_version",
        _versions(f"libtorch_{FLOATS}", (1,), dtype="float32"),
        prepare=(_copied("abc"),),
    ),
    _cycle(
        "test_dynamic_model_load_unload",
        _floats("libtorch"),
        _floats("onnx"),
        options=POLL,
        prepare=(_aside(f"libtorch_{FLOATS}"),),
    ),
    _cycle(
        "test_dynamic_model_load_unload_disabled",
        _floats("libtorch"),
        _floats("onnx"),
        prepare=(_aside(f"libtorch_{FLOATS}"),),
    ),
    _cycle("test_dynamic_version_load_unload", _integers("libtorch"), options=POLL),
    _cycle("test_dynamic_version_load_unload_disabled", _integers("libtorch")),
    _cycle(
        "test_dynamic_file_delete",
        *(
            _versions(f"{kind}_{FLOATS}", (1, 2, 3), "specific { versions: [1, 3] }", dtype="float32", write=unpackaged)
            for kind in ("onnx", "plan")
        ),
        options=POLL,
    ),
    _cycle("test_model_control_fail", _floats("onnx"), options=EXPLICIT[:2], prepare=(_empty(f"onnx_{FLOATS}", 1, 2, 3),)),
    _cycle("test_config_override", _floats("onnx"), options=EXPLICIT[:2], prepare=(_empty(f"onnx_{FLOATS}", 1, 3),)),
    _cycle("test_model_config_overwite", _same("identity_fp32", dtype="float32"), options=EXPLICIT),
    _cycle("test_shutdown_with_live_connection", _sum("add_sub", dtype="float32", row=(), max_batch_size=16)),
    Run(
        file="L0_request_cancellation/grpc_cancellation_test.py",
        models=(_slow,),
        cases=tuple(
            f"GrpcCancellationTest.test_{name}"
            for name in ("grpc_async_infer", "grpc_stream_infer", "aio_grpc_async_infer", "aio_grpc_stream_infer")
        ),
    ),
    Run(file="L0_client_timeout/client_infer_timeout_test.py", models=(_slow,)),
)
