"""Which paths of a folder's packages are kept, and when a server does not start."""

import os
import shutil

import pytest

from headrace.errors import HeadraceError
from headrace.runtime.artifact.manifest import read_content, write_manifest
from headrace.runtime.artifact.routes.answer_template import Name, Pick
from headrace.runtime.artifact.routes.kept_route import RESERVED, ImageForm, KeptRoute
from headrace.serving.config import ServeConfig
from headrace.serving.models.kept_routes import KeptRoutes, kept_routes
from headrace.serving.protocol.routes import ROUTES


def route(path="/predict"):
    form = ImageForm(kind="file", name="file")
    return KeptRoute(path=path, image=form, template=Name(pick=Pick(rank=0)), proved=12, source="app.py:1")


@pytest.fixture
def folder(models, tmp_path):
    """`one` and `two`, of which tests have the routes that they write."""
    for name in ("tiny",):
        shutil.copytree(models / name, tmp_path / "models" / name)
    return tmp_path / "models"


def write(folder, name, *routes):
    place = folder / name / "1"
    write_manifest(place, {**read_content(place), "routes": [one.to_json() for one in routes]})


def config(folder, **options):
    return ServeConfig.of(models=folder, **{"keep_routes": True, **options})


def test_every_path_stands_for_one_of_the_servers_own(folder):
    write(folder, "tiny", route(), route("/api/top"))
    kept = kept_routes(config(folder))
    assert kept.paths == {"/predict": "/v1/kept/tiny/0", "/api/top": "/v1/kept/tiny/1"}
    assert kept.served == [("/predict", "tiny"), ("/api/top", "tiny")]
    assert kept.get("tiny", "1") == route("/api/top")
    for model, number in (("tiny", "2"), ("tiny", "-1"), ("tiny", "x"), ("tiny", "9" * 4000), ("tiny", "²"), ("other", "0")):
        assert kept.get(model, number) is None


def test_nothing_is_kept_unless_it_was_asked_for(folder):
    write(folder, "tiny", route())
    assert kept_routes(config(folder, keep_routes=False)) is None


def test_a_folder_without_proved_routes_is_an_error_that_says_what_to_do(folder):
    with pytest.raises(HeadraceError, match=r"no model in .* has a route that was proved; headrace migrate"):
        kept_routes(config(folder))


def test_two_models_at_one_path_are_refused(folder):
    write(folder, "tiny", route())
    shutil.copytree(folder / "tiny", folder / "other")
    with pytest.raises(HeadraceError, match="other and tiny would both answer /predict"):
        kept_routes(config(folder))


def test_no_kept_path_can_be_one_of_the_servers_own():
    """What a package may not say and what the server answers are stated in two places; this holds them together."""
    for row in ROUTES:
        for path in row.paths:
            assert path == "/" or any(f"{path}/".startswith(f"/{begin}/") for begin in RESERVED), path


def test_a_package_that_is_damaged_keeps_nothing(folder):
    write(folder, "tiny", route())
    shutil.copytree(folder / "tiny", folder / "bad")
    manifest = folder / "bad" / "1" / "headrace.json"
    manifest.write_text(manifest.read_text().replace("/predict", "/perdict"))
    assert kept_routes(config(folder)).paths == {"/predict": "/v1/kept/tiny/0"}


@pytest.mark.parametrize("tables", [(), (tuple(f"n{number}" for number in range(7)),)])
def test_a_process_that_is_started_later_has_them_from_a_file(folder, tables):
    form = ImageForm(kind="body")
    template = Name(pick=Pick(index=6), table=len(tables))
    write(
        folder, "tiny", KeptRoute(path="/a", image=form, template=template, tables=tables, proved=1, source="app.py:1"), route()
    )
    kept = kept_routes(config(folder))
    with kept.to_file() as file:
        for _ in range(2):
            assert KeptRoutes.from_file(os.dup(file.fileno())) == kept
