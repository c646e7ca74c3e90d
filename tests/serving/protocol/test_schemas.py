"""The schemas of bodies and answers: each is one, and what they refer to is there."""

import json

from jsonschema import Draft202012Validator

from headrace.serving.protocol import schemas
from headrace.serving.protocol.routes import ROUTES


def test_every_schema_is_one():
    for name, schema in schemas.SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schemas.component(name) == {"$ref": f"#/components/schemas/{name}"}


def test_what_is_referred_to_is_there():
    text = json.dumps([schemas.SCHEMAS, *(part for route in ROUTES for part in (route.body, route.answer))])
    named = {found.partition('"')[0] for found in text.split('"#/components/schemas/')[1:]}
    assert named | {"Error"} == schemas.SCHEMAS.keys()
