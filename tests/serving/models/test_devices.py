"""Which GPUs are taken is decided from their number, which needs none; what computes on them is in test_cuda_staging.py."""

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.errors import BackendError
from headrace.runtime.artifact.artifact import load_artifact
from headrace.runtime.base.session import Target, visible_gpus
from headrace.serving.config import ServeConfig, parse_devices
from headrace.serving.models.devices import each_device, ordinals
from headrace.serving.models.loading import load_tensor_model, open_instance
from headrace.serving.processes.messages import StartEngine
from headrace.serving.processes.wire import decode, encode


def test_a_plan_for_the_cpu_asks_for_no_gpu():
    def asked():
        raise AssertionError("the driver was asked")

    assert list(ordinals("cpu", None, asked)) == [None]
    assert list(ordinals("cpu", (0, 1), asked)) == [None]  # other models of the repository may be planned on GPUs


@pytest.mark.parametrize(
    ("wanted", "visible", "taken"),
    [(None, 4, [0, 1, 2, 3]), ((2, 0), 4, [2, 0]), ((0,), 1, [0]), (None, 0, [None])],
)
def test_gpus_are_all_or_the_named_ones(wanted, visible, taken):
    assert list(ordinals("cuda", wanted, lambda: visible)) == taken


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(
        BackendError, match=r"--devices names GPU 4, and this process sees 4 GPUs, counted from 0; name others, or all"
    ):
        ordinals("cuda", (0, 4), lambda: 4)


def test_the_command_line_names_gpus():
    assert parse_devices("all") is None
    assert parse_devices("0,2") == (0, 2)
    for text in ("", "gpu0", "0;1", "0,", "-1"):
        with pytest.raises(ValueError, match="all, or numbers of GPUs"):
            parse_devices(text)


@pytest.mark.parametrize("devices", [(), (0, 0), (-1,), (True,)])
def test_the_configuration_names_each_gpu_once(tmp_path, devices):
    with pytest.raises(ValueError, match="--devices must"):
        ServeConfig.of(models=tmp_path, devices=devices)


def test_a_target_knows_its_gpu_and_a_plan_does_not():
    assert (Target().place, Target(device="cuda").place, Target(device="cuda", ordinal=1).place) == ("cpu", "cuda", "cuda:1")
    for fields in ({"ordinal": 0}, {"device": "cuda", "ordinal": -1}):
        with pytest.raises(ValueError, match="ordinal"):
            Target(**fields)


def test_the_driver_is_asked_without_torch():
    assert visible_gpus() >= 0


def test_models_of_the_cpu_are_served_as_before(models):
    artifact = load_artifact(models / "tiny")
    openers = each_device(lambda ordinal: ordinal, artifact.plan_here(), (0,))
    assert [opener() for opener in openers] == [None]
    config = ServeConfig.of(models=models, instances=2, threads=1, devices=(0, 1))
    model = load_tensor_model(models / "tiny", config, lambda text: None, version=1)
    try:
        assert (model.instances, model.instances_per_device) == (2, 2)
    finally:
        model.close()


def test_a_session_of_the_cpu_has_no_ordinal(models):
    artifact = load_artifact(models / "tiny")
    with pytest.raises(ValueError, match="ordinal must count GPUs"):
        open_instance(artifact, artifact.plan_here(), 8, 1, ordinal=1)


def test_an_engine_of_its_own_is_told_the_devices(tmp_path):
    for devices in (None, (0, 2)):
        config = ServeConfig.of(models=tmp_path, devices=devices)
        assert decode(encode(StartEngine(config))) == StartEngine(config)


def test_the_command_refuses_what_names_no_gpu(models):
    for given, said in (("gpu0", "all, or numbers of GPUs"), ("0,0", "each once")):
        done = CliRunner().invoke(app, ["serve", str(models), "--devices", given], env={"COLUMNS": "160"})
        assert done.exit_code == 2
        assert said in done.output
