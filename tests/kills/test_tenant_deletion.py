"""SIGKILL at every batch of a tenant's deletion: the next call goes on, and the certificate counts each row once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from penstock import NotFound, Penstock
from penstock.core.tenancy import Certificate
from penstock.queue import erase as deleting
from penstock.store import erase
from tests.support.children import start
from tests.support.tenant import counts, fill, left_of


def delete(url: str) -> None:
    erase.PAGE = 4
    with Penstock(url) as app, suppress(NotFound):  # the one before may have been killed right after the end
        app.tenants.delete("acme")


@pytest.mark.parametrize("seam", ["erase.before_commit", "commit.before", "commit.after"])
def test_killed_at_each_batch(url: str, tmp_path: Path, seam: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        tenant_id = fill(app, "acme", tmp_path)
        whole = counts(app)
        closed = False
        kills = 0
        # Each process is killed a little later than the one before, so that every batch is hit and all of them come to an end.
        while start(delete, url, failpoints=f"{seam}=exit:0:{1 + kills // 2}").killed():
            kills += 1
            with app.db.read() as tx:
                closed = closed or bool(erase.under_way(tx))
        assert kills > 2 and closed
        certificate = deleting.status(app.ground, tenant_id)
        assert isinstance(certificate, Certificate)
        assert left_of(app, {str(tenant_id), "acme"}) == []
        assert certificate.erased["jobs"] == whole["penstock_jobs"]
        assert certificate.erased["runs"] == whole["penstock_runs"]
        assert certificate.erased["audit"] >= 2
        assert list(tmp_path.glob("*.log")) == []
        assert len(app.audit.list(action="tenant.delete")) == 1
        app.audit.seal()
        assert app.doctor().clean
