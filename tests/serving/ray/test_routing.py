"""From a path to the model that must be there. No Ray is needed."""

import pytest

from headrace.errors import ArtifactError, UnsupportedError
from headrace.serving.ray.routing import check_control, group_of, model_groups

GROUPS = {"tiny": "tiny", "tiny_classify": "tiny", "tiny_decode": "tiny", "stats": "stats"}


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/v2/models/tiny", "tiny"),
        ("/v2/models/tiny/infer", "tiny"),
        ("/v2/models/tiny/versions/3/infer", "tiny"),
        ("/v2/models/tiny_classify/ready", "tiny"),
        ("/v1/classify/tiny_decode", "tiny"),
        ("/v2/models/stats/infer", "stats"),
        ("/v2/models/stats", ""),  # the statistics of all
        ("/v2/models/nobody/infer", ""),
        ("/v2/models/tiny\n/infer", ""),
        ("/v2/models/", ""),
        ("/v2/models", ""),
        ("/v1/classify/tiny/more", ""),
        ("/v2/repository/models/tiny/load", ""),
        ("/v2/health/ready", ""),
        ("/", ""),
    ],
)
def test_a_path_names_its_model(path, group):
    assert group_of(path, GROUPS) == group


def test_companions_come_with_their_model(models):
    groups = model_groups(models)
    assert list(dict.fromkeys(groups.values())) == ["damaged", "fragile", "tiny"]
    assert {name for name, group in groups.items() if group == "tiny"} == {"tiny", "tiny_decode", "tiny_classify"}


def test_a_folder_without_models_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="holds no models"):
        model_groups(tmp_path)


def test_models_are_not_loaded_by_hand():
    with pytest.raises(UnsupportedError, match="cannot load or unload 'tiny'"):
        check_control("POST", "/v2/repository/models/tiny/load")
    check_control("GET", "/v2/repository/models/tiny/load")
    check_control("POST", "/v2/repository/index")
