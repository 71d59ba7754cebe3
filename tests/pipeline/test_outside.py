"""What stands around a pipeline: the command line, the populate runner and the diagram."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import penstock.pipeline as dj
from penstock.cli.pipeline import app
from penstock.pipeline.runner import ARG_SCHEMA, populate_job
from tests.pipeline.lab import Lab

MODULE = '''
import penstock.pipeline as dj

schema = dj.Schema("bench")


@schema
class Method(dj.Lookup):
    definition = """
    method : varchar(20)
    """
    contents = [("mean",), ("median",)]


@schema
class Image(dj.Manual):
    definition = """
    image_id : int
    ---
    -> [nullable] Method
    """


@schema
class FilteredImage(dj.Computed):
    definition = """
    -> Image
    ---
    value : int
    """

    class Spot(dj.Part):
        definition = """
        -> master
        spot : int
        """

    def make(self, key):
        if key["image_id"] == 13:
            raise ValueError("bad image")
        self.insert1({**key, "value": 1})
        self.Spot.insert1({**key, "spot": 1})


@schema
class Statistics(dj.Computed):
    definition = """
    -> FilteredImage
    ---
    value : int
    """

    def make(self, key):
        self.insert1({**key, "value": 2})
'''


@pytest.fixture
def module(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An importable module that declares a pipeline."""
    name = f"lab_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", home)
    monkeypatch.chdir(tmp_path)
    __import__(name)
    loaded = sys.modules[name]
    loaded.Image.insert({"image_id": i} for i in (1, 2, 13))
    yield loaded
    sys.modules.pop(name)


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_whole_way_by_command_line(module: Any) -> None:
    name = module.__name__
    refreshed = penstock("refresh", name, "--priority", "3")
    assert "bench.__filtered_image: 3 added" in refreshed.output, refreshed.output
    status = penstock("status", name)
    assert status.exit_code == 0 and "bench.__statistics" in status.output
    populated = penstock("populate", name)
    assert populated.exit_code == 1
    assert "bench.__filtered_image: 2 made, 1 failed" in populated.output
    assert "bench.__statistics: 2 made, 0 failed" in populated.output
    failed = penstock("errors", name, "--stack")
    assert "{'image_id': 13}: ValueError: bad image" in failed.output and "Traceback" in failed.output
    module.FilteredImage.jobs.errors.delete()
    assert penstock("errors", name).output == "No errors.\n"
    assert "bad image" in penstock("errors", name, "--history").output
    assert penstock("populate", name, "-t", "Statistics", "--direct").exit_code == 0


def test_the_diagram_by_command_line(module: Any, tmp_path: Path) -> None:
    assert "FilteredImage [computed] 0 rows" in penstock("diagram", module.__name__).output
    assert penstock("diagram", module.__name__, "-f", "mermaid").output.startswith("flowchart TD")
    written = tmp_path / "pipeline.svg"
    assert penstock("diagram", module.__name__, "-o", str(written)).exit_code == 0
    assert ET.fromstring(written.read_text()).tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "no_such_module"), "no module 'no_such_module'"),
        (("status", "json"), "json has no dj.Schema"),
        (("diagram", "{module}", "-f", "png"), "text, mermaid or svg"),
        (("diagram", "{module}", "-o", "a.png"), "should end in"),
        (("refresh", "{module}", "-t", "Nothing"), "no auto-populated table 'Nothing'"),
        (("refresh", "{module}", "--priority", "-4"), "priority takes a whole number"),
    ],
)
def test_bad_arguments_get_a_sentence(module: Any, arguments: tuple[str, ...], said: str) -> None:
    answer = penstock(*(argument.format(module=module.__name__) for argument in arguments))
    assert answer.exit_code == 2 and said in answer.output and "Traceback" not in answer.output


class Recorder:
    """What the worker hands a job."""

    def __init__(self, cancel_after: int | None = None) -> None:
        self.seen: list[tuple[int, int | None]] = []
        self.cancel_after = cancel_after

    def progress(self, done: int, total: int | None = None, message: str | None = None) -> None:
        self.seen.append((done, total))

    def canceled(self) -> bool:
        return self.cancel_after is not None and len(self.seen) >= self.cancel_after


def test_the_runner_populates_and_reports(module: Any) -> None:
    context = Recorder()
    result = populate_job({"table": f"{module.__name__}:FilteredImage", "batch": 1}, context)
    assert (result["made"], result["failed"], result["remaining"]) == (2, 1, 1)
    assert result["errors"] == [{"key": {"image_id": 13}, "error": "ValueError: bad image"}]
    assert context.seen[-1] == (3, 3)


def test_the_runner_heeds_restriction_limit_and_cancellation(module: Any) -> None:
    table = f"{module.__name__}:FilteredImage"
    assert populate_job({"table": table, "restriction": {"image_id": 2}}, Recorder())["made"] == 1
    assert module.FilteredImage.keys() == [{"image_id": 2}]
    assert populate_job({"table": table, "max_calls": 0}, Recorder())["made"] == 0
    module.Image.insert({"image_id": i} for i in range(20, 30))
    stopped = populate_job({"table": table, "batch": 2}, Recorder(cancel_after=1))
    assert stopped["made"] + stopped["failed"] == 2


@pytest.mark.parametrize(
    "params",
    [
        {}, {"table": "nonsense"}, {"table": "no_such:Table"}, {"table": "json:JSONDecoder"},
        {"table": "json:dumps", "restriction": "1=1"}, {"table": "{module}:FilteredImage", "restriction": "image_id = 1"},
        {"table": "{module}:Image"}, {"table": "{module}:FilteredImage", "shell": "rm"},
    ],
)  # fmt: skip
def test_the_runner_refuses_what_it_does_not_know(module: Any, params: dict[str, Any]) -> None:
    given = {name: value.format(module=module.__name__) for name, value in params.items()}
    with pytest.raises(dj.PipelineError):
        populate_job(given, Recorder())


def test_the_runner_s_parameters_are_a_schema() -> None:
    assert ARG_SCHEMA["additionalProperties"] is False and ARG_SCHEMA["required"] == ["table"]


def test_a_diagram_has_every_table_and_its_counts(module: Any) -> None:
    module.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    diagram = dj.Diagram(module.schema)
    text = diagram.text()
    assert "Method [lookup] 2 rows" in text
    assert "FilteredImage [computed] 2 rows, 1 error  <- Image" in text
    assert "FilteredImage.Spot [part] 2 rows  <- FilteredImage" in text
    mermaid = diagram.mermaid()
    assert "bench_2e__5f_5f" not in mermaid and mermaid.count("-->") == 3 and mermaid.count("-.->") == 1
    assert len(ET.fromstring(diagram.svg()).findall(".//{*}rect")) == 5
    assert diagram._repr_svg_() == diagram.svg() and str(diagram) == text


def test_a_diagram_of_a_table_shows_its_kin_only(lab: Lab) -> None:
    schema, Subject = lab.schema, lab.Subject

    @schema
    class Weight(dj.Manual):
        definition = """
        -> Subject
        ---
        grams : float
        """

    shown = dj.Diagram(lab.FilteredImage)
    assert "Weight" not in shown.text() and "Subject" in shown.text()
    assert "Weight" in (shown + dj.Diagram(Weight)).text()
    assert "lab.weight" in Subject.children()
    with pytest.raises(dj.PipelineError, match="schema or a table"):
        dj.Diagram("lab")
