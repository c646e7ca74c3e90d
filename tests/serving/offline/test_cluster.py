"""A job on a Ray cluster of several nodes on this machine, of which one is killed. `make test-ray` runs it."""

import json
import os
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from headrace.errors import ClassifyError
from headrace.serving.offline.classifier import identify, load
from headrace.serving.offline.cluster import Worker, _Reports, classify_on_ray
from headrace.serving.offline.config import ClassifyConfig
from headrace.serving.offline.job import open_job
from headrace.serving.offline.stages import Shares

WANTED = os.environ.get("HEADRACE_TEST_RAY")
with_ray = pytest.mark.skipif(not WANTED, reason="needs Ray and a minute; `make test-ray` runs it")
IMAGES, PER_SHARD = 480, 8


@pytest.fixture(scope="module")
def cluster():
    """A head without cores and three nodes with one each, which only processes with the same token can join."""
    before = dict(os.environ)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            made.add_node(num_cpus=1)
        made.wait_for_nodes()
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        os.environ.clear()
        os.environ |= before


@pytest.fixture
def source(tmp_path, make_photo):
    root = tmp_path / "photos"
    root.mkdir()
    photos = [make_photo(number, kind="JPEG") for number in range(40)]
    for number in range(IMAGES):
        (root / f"{number:04}.jpg").write_bytes(photos[number % 40])
    (root / "0007.jpg").write_bytes(b"no image")
    return root


def raylets_of(node):
    return [info.process for info in node.all_processes["raylet"]]


@with_ray
def test_the_kill_of_a_node_loses_and_doubles_no_image(cluster, source, busy_models, tmp_path, rows_of):
    out = tmp_path / "out"
    config = ClassifyConfig(
        source=str(source), model=busy_models, out=out, shard_images=PER_SHARD, batch=8, threads=1, decode_threads=1, readers=1
    )
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(classify_on_ray, config)
        workers: set[int] = set()
        while len(list(out.glob("part-*"))) < 6 or len(workers) < 2:
            assert not working.done(), working.result()
            writing = [int(path.name.split("-")[2]) for path in out.glob(".headrace/aside-*")]
            workers |= set(writing)
            time.sleep(0.005)
        before = len(list(out.glob("part-*")))
        # The node whose worker is writing a file now; a worker is a child of its node's raylet.
        raylets = {process.pid: node for node in cluster.worker_nodes for process in raylets_of(node)}
        victim = next(pid for pid in [*writing, *workers] if psutil.pid_exists(pid))
        cluster.remove_node(raylets[psutil.Process(victim).ppid()], allow_graceful=False)
        summary = working.result(400)
    assert not psutil.pid_exists(victim)
    assert before < IMAGES // PER_SHARD
    rows = rows_of(out)
    assert [row["image"] for row in rows] == [f"{number:04}.jpg" for number in range(IMAGES)]
    assert [row["image"] for row in rows if row["error"]] == ["0007.jpg"]
    assert (summary.images, summary.errors, summary.complete) == (IMAGES, 1, True)
    assert set(summary.busy) == {"read", "decode", "model", "write"}
    assert summary.starved == summary.blocked == summary.model_stages == {}
    again = classify_on_ray(config)
    assert (again.before, again.images) == (IMAGES, IMAGES)


@with_ray
def test_one_machine_and_a_cluster_do_the_same_job(cluster, source, busy_models, tmp_path, rows_of, job):
    """Begun on one machine, interrupted, and finished by the cluster; the files are those of one machine alone."""
    options = {"model": busy_models, "shard_images": 40, "batch": 8, "threads": 1, "decode_threads": 1}
    out, alone = tmp_path / "out", tmp_path / "alone"
    begun, _ = job(source, out=out, stopped=(out / "part-000002.parquet").exists, **options)
    assert not begun.complete
    summary = classify_on_ray(ClassifyConfig(source=str(source), out=out, **options))
    assert (summary.complete, summary.before) == (True, begun.images)
    job(source, out=alone, **options)
    assert rows_of(out) == rows_of(alone)


@with_ray
def test_too_many_errors_end_a_job_of_a_cluster(cluster, source, busy_models, tmp_path):
    config = ClassifyConfig(
        source=str(source), model=busy_models, out=tmp_path / "out", batch=8, threads=1, shard_images=40, max_errors=0
    )
    with pytest.raises(ClassifyError, match="more than --max-errors 0 allows"):
        classify_on_ray(config)


def test_what_workers_report_is_averaged_over_images():
    reports = _Reports()
    assert (reports.report(), reports.bottleneck()) == ([], "")
    reports.add(30, {"read": 0.25, "model": 1.0})
    reports.add(10, {"read": 0.75, "model": 0.2})
    assert reports.shares() == {"read": Shares(0.375), "model": Shares(0.8)}
    assert reports.bottleneck() == "model"
    [read, _] = reports.report()
    assert (read.name, read.shares.starved, read.recent, read.queue) == ("read", None, None, None)


def test_a_worker_does_a_shard_once_and_names_the_stage_that_fails(job, folder, jpegs, models, tmp_path):
    out = tmp_path / "out"
    begun, _ = job(folder, out=out, stopped=lambda: True)
    assert begun.images == 0
    config = ClassifyConfig(
        source=str(folder), model=models / "tiny", out=out, batch=8, threads=1, decode_threads=2, shard_images=16
    )
    kept = json.loads((out / ".headrace/job.json").read_text())
    with open_job(config, identify(load(config))) as opened:
        worker = Worker(config, opened.plan.folder, opened.plan.base, opened.digest)
        answer = worker({"shard": 0})
        assert (answer["images"], answer["errors"], set(answer["busy"])) == (16, 0, {"read", "decode", "model", "write"})
        assert worker({"shard": 0}) == answer | {"busy": {}}, "a lost node had done it"
        folder.rename(tmp_path / "moved")
        with pytest.raises(ClassifyError, match="read failed before the first image: cannot read .*photos: No such file"):
            worker({"shard": 1})
    assert kept == json.loads((out / ".headrace/job.json").read_text())


def test_without_a_cluster_the_command_says_what_to_do(models, tmp_path, make_photo):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(make_photo(1))
    line = ["classify", tmp_path / "photos", "--model", models / "tiny", "--out", tmp_path / "out", "--ray"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *map(str, line)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment | {"RAY_TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'headrace[ray]'" in done.stderr or "ray start --head" in done.stderr
    assert json.loads((tmp_path / "out/.headrace/job.json").read_text())["format"] == 1
