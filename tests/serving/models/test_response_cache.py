"""The cache as a value, and through a server: same answers, counted, bounded, and gone with their version."""

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from hypothesis import given
from hypothesis import strategies as st

from headrace.serving.models.response_cache import ResponseCache, fingerprint

ROW = np.arange(8, dtype=np.float32)


def test_entries_belong_to_one_version_and_go_with_it():
    cache = ResponseCache(1 << 20)
    one, two = cache.of_model(), cache.of_model()
    one.put(b"k", [ROW])
    np.testing.assert_array_equal(one.get(b"k"), [ROW])
    assert two.get(b"k") is None
    two.put(b"k", [ROW + 1])
    two.put(b"l", [ROW + 1])
    one.clear()
    assert one.get(b"k") is None
    assert len(cache) == 2
    two.clear()
    assert (len(cache), cache.used_bytes) == (0, 0)


def test_bytes_are_bounded_and_the_least_recently_used_goes_first():
    cache = ResponseCache(4 * (1024 + ROW.nbytes))
    part = cache.of_model()
    for key in (b"a", b"b", b"c", b"d"):
        part.put(key, [ROW])
    assert part.get(b"a") is not None
    part.put(b"e", [ROW])
    assert [key for key in (b"a", b"b", b"c", b"d", b"e") if part.get(key)] == [b"a", b"c", b"d", b"e"]
    part.put(b"huge", [np.zeros(1 << 20)])
    assert part.get(b"huge") is None
    assert len(cache) == 4
    assert cache.used_bytes <= 4 * (1024 + ROW.nbytes)


def test_what_is_kept_is_a_copy_that_nobody_changes():
    part = ResponseCache(1 << 20).of_model()
    batch = np.zeros((4, 8), np.float32)
    part.put(b"k", [batch[1:2]])
    batch[:] = 1
    (kept,) = part.get(b"k")
    assert kept.base is None
    assert not kept.any()
    with pytest.raises(ValueError, match="read-only"):
        kept[0, 0] = 1


values = st.one_of(
    st.binary(max_size=8),
    st.tuples(st.sampled_from(["<f4", "<i4", "|u1"]), st.lists(st.integers(0, 3), max_size=4)).map(
        lambda p: np.array(p[1], p[0])
    ),
    st.lists(st.binary(max_size=3), min_size=1, max_size=3).map(lambda v: np.array([*v, None], dtype=object)[:-1]),
)


def _plain(inputs):
    return [value if isinstance(value, bytes) else (value.dtype.str, value.shape, tuple(value.tolist())) for value in inputs]


@given(st.lists(values, max_size=3), st.lists(values, max_size=3))
def test_fingerprints_agree_exactly_when_inputs_do(one, other):
    assert (fingerprint(one) == fingerprint(other)) == (_plain(one) == _plain(other))


def test_shapes_and_layouts_count_only_where_they_should():
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert fingerprint([square]) != fingerprint([square.reshape(2, 8)])
    assert fingerprint([square.T]) == fingerprint([np.ascontiguousarray(square.T)])
    assert fingerprint([square]) != fingerprint([square.T])


IMAGES = np.random.default_rng(5).normal(size=(2, 3, 16, 16)).astype(np.float32)


def _tensor(module, data=IMAGES):
    tensor = module.InferInput("images", list(data.shape), "FP32")
    tensor.set_data_from_numpy(data)
    return tensor


def _counts(client, name="tiny"):
    statistics = client.get_inference_statistics(name)["model_stats"][0]
    counted = statistics["inference_stats"]
    return (
        *(counted[kind]["count"] for kind in ("success", "cache_hit", "cache_miss")),
        statistics["inference_count"],
    )


def test_answers_are_kept_over_both_protocols(start, repository, make_photo):
    repository.package("tiny", scale=2)
    server = start(repository.path, response_cache_bytes=1 << 20, model_control_mode="explicit", load_models=["tiny"])
    with triton_http.InferenceServerClient(server.http) as http, triton_grpc.InferenceServerClient(server.grpc) as grpc:
        first = http.infer("tiny", [_tensor(triton_http)]).as_numpy("scores")
        assert _counts(http) == (1, 0, 1, 2)
        np.testing.assert_array_equal(grpc.infer("tiny", [_tensor(triton_grpc)]).as_numpy("scores"), first)
        assert _counts(http) == (2, 1, 1, 2)
        # What is asked of the outputs is no matter of the cache.
        asked = triton_grpc.InferRequestedOutput("scores", class_count=2)
        labeled = grpc.infer("tiny", [_tensor(triton_grpc)], outputs=[asked]).as_numpy("scores")
        assert labeled.shape == (2, 2)
        assert int(labeled[0, 0].split(b":")[1]) == int(first[0].argmax())
        assert _counts(http) == (3, 2, 1, 2)
        http.infer("tiny", [_tensor(triton_http, IMAGES[:1])])
        assert _counts(http) == (4, 2, 2, 3)
        # An image is not decoded again, by whichever way it comes.
        photo = make_photo(3)
        urls = [f"{server.url}/v1/classify/{name}" for name in ("tiny", "tiny_classify", "tiny")]
        answers = [httpx.post(url, content=photo).raise_for_status().json()["predictions"] for url in urls]
        assert answers[0] == answers[1] == answers[2]
        assert _counts(http) == (7, 4, 3, 4)
        metrics = httpx.get(f"http://{server.metrics}/metrics").text
        assert 'nv_cache_num_hits_per_model{model="tiny",version="1"} 4.0' in metrics
        assert 'nv_cache_num_misses_per_model{model="tiny",version="1"} 3.0' in metrics
        # Another content under the same number is another model.
        repository.package("tiny", scale=3)
        http.load_model("tiny")
        again = http.infer("tiny", [_tensor(triton_http)]).as_numpy("scores")
        np.testing.assert_allclose(again, first * 1.5, rtol=1e-5)


def test_a_model_may_be_left_out_and_failures_are_not_kept(start, repository):
    repository.package("tiny")
    repository.configure("tiny", "response_cache { enable: false }")
    repository.package("fragile", broken=True)
    server = start(repository.path, response_cache_bytes=1 << 20)
    with triton_http.InferenceServerClient(server.http) as http:
        for _ in range(2):
            http.infer("tiny", [_tensor(triton_http)])
            body = {"inputs": [{"name": "images", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [1e9] * 768}]}
            assert httpx.post(f"{server.url}/v2/models/fragile/infer", json=body).status_code == 500
        assert _counts(http) == (2, 0, 0, 4)
        assert _counts(http, "fragile")[1:3] == (0, 0)


def test_without_a_cache_nothing_is_counted(server):
    with triton_http.InferenceServerClient(server.http) as http:
        for _ in range(2):
            http.infer("tiny", [_tensor(triton_http)])
        assert _counts(http)[1:3] == (0, 0)
