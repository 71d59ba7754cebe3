"""Every error that we raise is explained: in the terminal, in a traceback, by the service and in the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import DefinitionArchived, InvalidInput, PenstockError
from penstock.core.explain import EXPLANATIONS, explain
from penstock.pipeline.errors import PipelineError

ROOT = Path(__file__).parent.parent.parent


def every(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from every(below)


def codes_of_the_service() -> set[str]:
    source = "".join(path.read_text() for path in (ROOT / "src" / "penstock" / "server").rglob("*.py"))
    raised = set(re.findall(r'(?:Problem|render)\(\s*\d{3},\s*"(\w+)"', source))
    return raised | set(re.findall(r'\d{3}: "([a-z]+_[a-z_]+)"', source))


def test_every_error_class_is_explained() -> None:
    assert issubclass(PipelineError, PenstockError)
    assert {kind.code for kind in every(PenstockError) if kind.__module__.startswith("penstock")} <= set(EXPLANATIONS)


def test_every_code_of_the_service_is_explained() -> None:
    found = codes_of_the_service()
    assert {"unauthenticated", "rate_limited", "method_not_allowed", "internal_error"} <= found
    assert found <= set(EXPLANATIONS)


@pytest.mark.parametrize("code", EXPLANATIONS)
def test_each_names_a_page_that_is_there(code: str) -> None:
    assert (ROOT / "docs" / explain(code).page).is_file()


@pytest.mark.parametrize("code", EXPLANATIONS)
def test_no_advice_names_a_verb_that_is_not(code: str) -> None:
    verbs = set(re.findall(r"^## `(penstock [\w -]+)`", (ROOT / "docs" / "reference" / "cli.md").read_text(), re.M))
    for named in re.findall(r"`(penstock [a-z]+(?: [a-z]+)?)", explain(code).do):
        assert named in verbs or named.rsplit(" ", 1)[0] in verbs, named


def test_a_traceback_says_where_to_read_more() -> None:
    assert DefinitionArchived("sync").__notes__ == ["More: penstock explain definition_archived"]


def test_an_unknown_code_gets_the_nearest() -> None:
    with pytest.raises(InvalidInput, match="Did you mean not_found"):
        explain("not_fund")
    assert explain("Not-Found").code == "not_found"
