"""Every kind of message between processes: whatever was sent arrives, with its types, however the stream is cut."""

import struct
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.runtime.artifact.model_config import ConfigTensor, ModelConfig
from headrace.runtime.base.task import Head, Task
from headrace.serving.config import ServeConfig
from headrace.serving.processes import messages, wire
from headrace.specs import CenterCrop, Preprocessing, Resize, Signature, TensorSpec

U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
SECONDS = st.floats(allow_nan=False)
TEXT = st.text(max_size=50)
TENSOR = messages.TensorDescription(
    number=1,
    name="m",
    version="3",
    config=ModelConfig(
        name="m",
        backend="onnxruntime",
        max_batch_size=8,
        inputs=(ConfigTensor(name="x", datatype="FP32", shape=(3, 224, 224)),),
        outputs=(ConfigTensor(name="y", datatype="FP32", shape=(2,), label_filename="labels.txt"),),
    ),
    signature=Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, 224, 224)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
    ),
    preprocessing=Preprocessing(
        source="here",
        mode="RGB",
        geometry=(Resize(size=256, interpolation="bilinear"), CenterCrop(size=(224, 224))),
        scale=1 / 255,
        mean=(0.5, 0.5, 0.5),
        std=(0.2, 0.2, 0.2),
        channels="RGB",
    ),
    task=Task((Head(output="y", kind="multi-label", thresholds=(0.5, 0.25), labels=("a", "b")),)),
    instances=2,
    cached=True,
    account={"device": "cpu", "gains": {"1": {}}},
    seconds={1: 0.001, 8: 0.004},
)
COMMON = {"number": 2, "name": "n", "version": "3", "config": TENSOR.config}
MODELS = st.sampled_from(
    [
        TENSOR,
        messages.DecodeDescription(target=1, **COMMON),
        messages.ClassifyDescription(target=1, outputs={"scores": "y"}, **COMMON),
    ]
)
CONFIG = ServeConfig.of(models=Path("/models"), frontends=2, http_port=0, max_queue=7)
MESSAGES = st.one_of(
    st.builds(messages.Alive),
    st.builds(messages.Admit, U64, U32, U32, U64, U32, U64, SECONDS, SECONDS, SECONDS),
    *(
        st.builds(kind, U64)
        for kind in (
            messages.Submit,
            messages.Cancel,
            messages.Expire,
            messages.Rejected,
            messages.AskStatistics,
            messages.AskHistory,
        )
    ),
    st.builds(messages.Done, U64, SECONDS, SECONDS, U32),
    st.builds(messages.Count, U32, U8, U32, U64),
    st.builds(messages.Failed, U64, U16, U32, TEXT),
    st.builds(messages.Seen, U64),
    st.builds(messages.Released, U32),
    st.builds(messages.Settled, U64, U16, U32, TEXT),
    st.builds(
        messages.Catalog,
        serial=U64,
        loaded=st.booleans(),
        ready=st.booleans(),
        index=st.lists(st.fixed_dictionaries({"name": TEXT, "state": TEXT}), max_size=3).map(tuple),
        models=st.lists(MODELS, max_size=3).map(tuple),
    ),
    st.builds(
        messages.Statistics,
        U64,
        st.dictionaries(U32, st.builds(messages.ModelCounts, st.just({"inference_count": 3}), st.just({"depth": 0.5}))),
    ),
    st.builds(
        messages.History,
        U64,
        st.dictionaries(TEXT, st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=3)),
    ),
    st.builds(messages.LoadModel, U64, TEXT, st.none() | TEXT),
    st.builds(messages.UnloadModel, U64, TEXT, st.booleans()),
    st.builds(messages.StartEngine, st.just(CONFIG), st.booleans()),
    st.builds(messages.StartFrontEnd, st.just(CONFIG), st.dictionaries(st.sampled_from(["http", "grpc"]), U16), st.booleans()),
    st.builds(messages.Connect),
    st.builds(messages.Stop),
    st.builds(messages.Loaded, st.lists(TEXT, max_size=3).map(tuple), TEXT),
    st.builds(messages.Serving),
    st.builds(messages.Controlled),
)


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_messages_arrive_in_order_however_the_stream_is_cut(sent, cuts):
    stream = b"".join(wire.encode(message) for message in sent)
    reader, arrived, at, turn = wire.Reader(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        arrived += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert arrived == sent
    assert [type(message) for message in arrived] == [type(message) for message in sent]


def test_every_kind_of_message_is_tried_above():
    # hypothesis tries each branch of one_of; a kind that is added must be added there too.
    assert len(wire._KINDS) == len(get_args(messages.Message)) == 26


def test_a_signature_that_is_none_is_named():
    catalog = messages.Catalog(serial=1, loaded=True, ready=True, index=(), numbers=(TENSOR.number,), models=(TENSOR,))
    data = wire.encode(catalog).replace(b'"signature": {"inputs"', b'"signature": {"outsets"')
    body = data[5:]
    with pytest.raises(wire.WireError, match="a Catalog message"):
        wire.decode(struct.pack("<BI", data[0], len(body)) + body)
