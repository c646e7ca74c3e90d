"""Long JSON, read in pieces: the same values as Python's own reader has, the same rejections, and bounds."""

import json
import random

import pytest

from headrace.errors import InputError, TooLargeError
from headrace.serving.protocol import json_limits
from headrace.serving.protocol.json_limits import parse_json, weight

DAMAGE = b'[]{},:"0123456789.eE+- \n\\tfnNI\xff\x00'


def _value(random, depth=0):
    match random.randrange(9 if depth < 4 else 6):
        case 0:
            return random.choice([True, False, None, float("inf")])
        case 1:
            return random.randrange(-(10 ** random.randrange(1, 20)), 10 ** random.randrange(1, 20))
        case 2:
            return random.choice([random.random() * 10.0 ** random.randrange(-5, 9), -0.0, 1e300])
        case 3:
            return "".join(random.choice('ab"\\[]{},:1\n\té\U0001f600 ') for _ in range(random.randrange(6)))
        case 4:
            return [random.random() for _ in range(random.randrange(20))]
        case 5:
            return [random.randrange(9) for _ in range(random.randrange(8))]
        case 6:
            return [_value(random, depth + 1) for _ in range(random.randrange(5))]
        case _:
            return {
                "".join(random.choice('ab"c') for _ in range(3)): _value(random, depth + 1) for _ in range(random.randrange(4))
            }


def _damaged(random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(random.randrange(4)):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randrange(3)] = bytes(random.choice(DAMAGE) for _ in range(random.randrange(2)))
    return bytes(data)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_the_same_as_pythons_own(seed, monkeypatch):
    monkeypatch.setattr(json_limits, "SMALL_JSON", -1)
    choose = random.Random(seed)
    right = wrong = 0
    for _ in range(2000):
        monkeypatch.setattr(json_limits, "_PIECE", choose.choice([40, 64, 4096]))
        text = json.dumps(_value(choose), indent=choose.choice([None, None, 1]), ensure_ascii=choose.random() < 0.5)
        data = _damaged(choose, text.encode())
        try:
            expected = json.dumps(json.loads(data.decode()))
        except ValueError:
            with pytest.raises(InputError):
                parse_json(data, max_depth=50)
            wrong += 1
        else:
            assert json.dumps(parse_json(data, max_depth=50)) == expected, data
            right += 1
    assert min(right, wrong) > 200


def test_long_numbers_are_whole_where_pieces_meet():
    values = [number * 1.37 for number in range(60_000)]
    assert parse_json(json.dumps({"data": values}).encode())["data"] == values


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" + b"1," * 5000 + b"1]" + b" " * 70_000, "5,000 numbers"),
        (b"[" + b"[]," * 300_000 + b"[]]", "lists, objects and strings"),
        (b"{" + b'"a":"",' * 300_000 + b'"a":1}', "lists, objects and strings"),
        (b'["' + b"x" * (1 << 20) + b'"]', "a string"),
        (b'["' + b"\\n" * (1 << 20), "a string"),
    ],
)
def test_each_of_its_parts_is_bounded(body, said):
    with pytest.raises(TooLargeError, match=said):
        parse_json(body, max_values=5000)


@pytest.mark.parametrize("body", [b"[" * 40 + b"1" + b"]" * 40 + b" " * 65_000, b'{"a":' * 40 + b" " * 65_000])
def test_depth_is_bounded(body):
    with pytest.raises(InputError, match=r"exceeds maximum allowed limit \(32\)"):
        parse_json(body, max_depth=32)


def test_an_error_says_where():
    body = b"[" + b"1,\n" * 40_000 + b"}]"
    with pytest.raises(InputError, match=f"near byte {len(body) - 1}"):
        parse_json(body)


@pytest.mark.parametrize("tail", [b"", b"1", b"]", b'"', b",1]", b"\xff" * 9])
@pytest.mark.parametrize("padding", [b"", b" " * 70_000])
def test_what_follows_the_document_is_no_part_of_it(tail, padding):
    for document in (b"[1, -2]", b'{"a": "b"}', b"[1, -2" + padding + b"]", b'["a"' + padding + b"]"):
        assert parse_json(padding + document + tail, end=len(padding + document)) == json.loads(document)
    for cut in (b"[1, -", b'["a', b"[tru", b"["):
        with pytest.raises(InputError):
            parse_json(padding + cut + b"1e]]", end=len(padding + cut))


def test_what_it_becomes_is_estimated_before():
    assert weight(b"[1,2,3]") == 80


@pytest.mark.parametrize("body", [b"%b{}", b"{}%b", b'{"a":%b[1,%b2]}', b"[1%b,2]"])
def test_blanks_are_as_many_as_one_likes(body):
    assert parse_json(body.replace(b"%b", b" \n" * 100_000)) == json.loads(body.replace(b"%b", b""))


def test_long_strings_read_in_pieces_are_the_same(monkeypatch):
    """Neither an escape, nor a pair of them, nor a character of several bytes is cut; what is wrong stays so."""
    drawn = random.Random(4)
    monkeypatch.setattr(json_limits, "_PIECE", 32)
    parts = ["a", "é", "猫", "😀", '\\"', "\\\\", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\udc00", "x" * 20]
    damage = ["\\x", "\\u12", "\\", '"', "\x01", "\\uZZZZ"]
    large = 0
    for _ in range(5000):
        text = "".join(drawn.choice(parts) for _ in range(drawn.randrange(25)))
        if drawn.random() < 0.2:
            at = drawn.randrange(len(text) + 1)
            text = text[:at] + drawn.choice(damage) + text[at:]
        data = f'["{text}"{drawn.choice(["]", ",1]", "x", ""])}'.encode()
        if drawn.random() < 0.05:
            at = drawn.randrange(len(data) + 1)
            data = data[:at] + bytes([drawn.randrange(128, 256)]) + data[at:]
        most = drawn.choice([10**6, 40])
        try:
            wanted = json.loads(data.decode())
        except ValueError:
            wanted = None
        try:
            found = json_limits._Reading(data, len(data), 32, 100, most).document()
        except TooLargeError:
            assert most == 40
            large += 1
            continue
        except (InputError, UnicodeDecodeError):
            found = None
        assert found == wanted, data
    assert 0 < large < 4000
