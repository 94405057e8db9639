from collections.abc import Iterator
from typing import Any
import pytest, schemathesis
from schemathesis.python.asgi import shutdown_lifespans
from whitelie.service import openapi
from service import *

@pytest.fixture(scope="module")
def app(tmp_path_factory) -> Iterator[Any]:
    store = SQLiteStore(tmp_path_factory.mktemp("s") / "a.db")
    for key in keys():
        store.save_key(key)
    engine = Engine(store, lambda: [SECRET], clock=Clock())
    yield build(Service(engine, Rules(), Limits(10**6)))
    shutdown_lifespans()

config = schemathesis.Config.from_dict({"seed": 1, "headers": {"Authorization": f"Bearer {KEYS['admin']}"},
      "generation": {"max-examples": 30, "deterministic": True, "database": "none"}, 
      })
schema = schemathesis.openapi.from_dict(openapi.document(), config=config).exclude(operation_id="stream")

@schema.parametrize()
def test_api(case: schemathesis.Case, app) -> None:
    case.call_and_validate(app=app)
