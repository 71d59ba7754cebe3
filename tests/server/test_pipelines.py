"""A pipeline over the API: the diagram with its counts, errors grouped, ignore, clear, refresh."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.server import Settings, create_app
from tests.server.support import Loop, World

MODULE = '''
import os
import penstock.pipeline as dj
from penstock import Penstock
app = Penstock(os.environ["LAB_URL"])
schema = dj.Schema("lab", app)

@schema
class Sample(dj.Manual):
    definition = """
    sample_id : int
    """

@schema
class Measured(dj.Computed):
    definition = """
    -> Sample
    ---
    value : float
    """
    def make(self, key):
        if key["sample_id"] > 2:
            raise ValueError("the probe is broken")
        self.insert1({**key, "value": 1.0})
'''


@pytest.fixture
def lab(url: str, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    (tmp_path / "lab_pipeline.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LAB_URL", url)
    with Penstock(url) as penstock:
        app = create_app(penstock, Settings(pipelines=("lab_pipeline",)))
        module = sys.modules["lab_pipeline"]
        module.Sample.insert([{"sample_id": n} for n in range(1, 5)])
        module.Measured.populate(reserve_jobs=True, suppress_errors=True)
        yield World(penstock, app, loop)
    module.app.close()
    del sys.modules["lab_pipeline"]


def test_a_pipeline_is_seen_and_steered(lab: World) -> None:
    admin = lab.client()
    [pipeline] = admin.get("/api/v1/pipelines").json()["items"]
    assert (pipeline["schema_name"], pipeline["module"]) == ("lab", "lab_pipeline")
    boxes = {table["name"]: table for table in pipeline["tables"]}
    assert (boxes["Sample"]["rows"], boxes["Measured"]["rows"], boxes["Measured"]["jobs"]) == (4, 2, {"error": 2})
    assert [(edge["parent"], edge["child"]) for edge in pipeline["edges"]] == [
        (boxes["Sample"]["id"], boxes["Measured"]["id"])
    ]
    path = "/api/v1/pipelines/lab/Measured"
    status = admin.get(path).json()
    assert (status["made"], status["remaining"], status["total"]) == (2, 2, 4)
    [group] = status["errors"]
    assert group["count"] == 2
    assert "the probe is broken" in group["error"]
    failed = admin.get(f"{path}/jobs", params={"status": "error"}).json()["items"]
    assert [job["key"] for job in failed] == [{"sample_id": 3}, {"sample_id": 4}]
    assert admin.post(f"{path}/clear", json={"keys": [{"nothing": 1}]}).status_code == 422
    assert admin.post(f"{path}/clear", json={"keys": [{"sample_id": 3}]}).json() == {"changed": 1}
    assert admin.post(f"{path}/ignore", json={"keys": [{"sample_id": 3}]}).json() == {"changed": 1}
    assert admin.post(f"{path}/clear", json={}).json() == {"changed": 1}
    assert admin.post(f"{path}/refresh", json={}).json()["counts"]["added"] == 1
    jobs = admin.get(path).json()["jobs"]
    assert (jobs["pending"], jobs["error"], jobs["ignore"]) == (1, 0, 1)
    actions = [entry["action"] for entry in admin.get("/api/v1/admin/audit").json()["items"]]
    assert actions == ["pipeline.refresh", "pipeline.clear", "pipeline.ignore", "pipeline.clear"]
