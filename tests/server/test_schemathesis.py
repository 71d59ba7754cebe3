"""Generated requests on every operation of the OpenAPI document, with each role's token, on both databases.

No answer is a 5xx, every answer has a status, a content type and a body that the document tells of. PENSTOCK_EXAMPLES
sets how many requests each operation gets from each role; `make soak` asks for 100,000 and more on each database, at random.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock import Penstock
from penstock.server import Settings, create_app
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.conftest import BACKENDS
from tests.server.support import ROLES, Loop, World
from tests.server.table import STREAMS

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "3"))
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)


@pytest.fixture(scope="module", params=BACKENDS)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, loop: Loop) -> Iterator[World]:
    drop = None
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('schema') / 'penstock.db'}"
        db = Database(url)
        upgrade(db)
        db.close()
    else:
        server = request.getfixturevalue("postgres")
        drop = server.create_database(server.template)
        url = server.url(drop)
    with Penstock(url) as penstock:
        penstock.tenants.create("acme")
        penstock.define("echo", runner="command")
        penstock.as_tenant("acme").enqueue("echo")
        yield World(penstock, create_app(penstock, Settings(rate_limit=1e9)), loop)
    if drop is not None:
        request.getfixturevalue("postgres").drop_database(drop)


@pytest.mark.parametrize("role", ROLES)
def test_generated_requests_are_answered_as_documented(service: World, role: str) -> None:
    schema = schemathesis.openapi.from_dict(service.app.openapi(), config=SchemathesisConfig())
    client = service.client(role)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 70
    faults = []
    sent = 0
    for operation in operations:
        if (operation.method.upper(), operation.path) in STREAMS:
            continue

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=not SOAK, suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def attack(case: schemathesis.Case) -> None:
            nonlocal sent
            sent += 1
            _send(client, case)

        try:
            attack()
        except (Exception, BaseExceptionGroup) as error:
            faults.append(f"{operation.method.upper()} {operation.path}: {type(error).__name__}: {error}")
    print(f"{role}: {sent:,} requests to {len(operations)} operations")
    assert not faults, "\n\n".join(faults)


def _send(client: httpx.Client, case: schemathesis.Case) -> None:
    sent = case.as_transport_kwargs(base_url="http://penstock.test")
    headers = {
        name: value for name, value in dict(sent.get("headers") or {}).items() if name.lower() != "authorization"
    }
    answer = client.request(
        sent["method"], sent["url"], params=sent.get("params"), headers=headers, json=sent.get("json"),
        content=sent.get("data") if sent.get("json") is None else None,
    )  # fmt: skip
    answer.elapsed = timedelta()  # a transport of our own does not measure it
    case.validate_response(schemathesis.Response.from_httpx(answer, verify=True), checks=CHECKS)
