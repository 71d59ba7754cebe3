"""Settings: bounded, read from the environment, each with its reason, and each in use."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Config, InvalidInput, Penstock
from penstock.core.settings.base import BOUNDS, PREFIX, Group
from penstock.core.settings.process import ProcessSettings
from penstock.server import Settings

KINDS: tuple[type[Group], ...] = (Config, ProcessSettings, Settings)
SOURCE = Path(penstock.__file__).parent


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"lease_seconds": 0}, "lease_seconds is 0; it must be more than 0."),
        ({"lease_seconds": float("nan")}, "lease_seconds is nan; expected a number."),
        ({"lease_seconds": float("inf")}, "lease_seconds is inf; expected a number."),
        ({"lease_seconds": "30"}, "lease_seconds is '30'; expected a number."),
        ({"pool_size": 2.5}, "pool_size is 2.5; expected a whole number."),
        ({"pool_size": True}, "pool_size is True; expected a whole number."),
        ({"claim_limit": 1001}, "claim_limit is 1001; it must be at most 1000."),
        ({"max_interruptions": -1}, "max_interruptions is -1; it must be at least 0."),
        ({"default_queue": ""}, "default_queue is ''; expected the name of a queue."),
        ({"default_queue": None}, "default_queue is None; expected text."),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_is_expected(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Config(**given)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("kind", "variable", "text", "told"),
    [
        (Config, "PENSTOCK_LEASE_SECONDS", "soon", "PENSTOCK_LEASE_SECONDS is 'soon'; expected a number."),
        (Config, "PENSTOCK_CLAIM_LIMIT", "1.5", "PENSTOCK_CLAIM_LIMIT is '1.5'; expected a whole number."),
        (Config, "PENSTOCK_LEASE_SECONDS", "-1", "PENSTOCK_LEASE_SECONDS is -1; it must be more than 0."),
        (ProcessSettings, "PENSTOCK_GC_FREEZE", "yes", "PENSTOCK_GC_FREEZE is yes; expected on or off."),
        (Settings, "PENSTOCK_THREADS", "0", "PENSTOCK_THREADS is 0; it must be more than 0."),
    ],
)
def test_what_the_environment_gets_wrong_is_told_by_the_variables_name(
    kind: type[Group], variable: str, text: str, told: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        kind.from_environment({variable: text})
    assert str(refused.value).startswith(told)


def test_an_app_takes_its_settings_from_the_environment_unless_it_is_given_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LEASE_SECONDS", "7")
    monkeypatch.setenv("PENSTOCK_POLL_SECONDS", "")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with Penstock(url) as app:
        assert (app.config.lease_seconds, app.config.poll_seconds) == (7.0, 1.0)
    with Penstock(url, config=Config(poll_seconds=2)) as app:
        assert (app.config.lease_seconds, app.config.poll_seconds) == (30.0, 2)
    with Penstock(url, config=Config.from_environment(poll_seconds=2)) as app:
        assert (app.config.lease_seconds, app.config.poll_seconds) == (7.0, 2)


def test_a_setting_has_one_name_and_one_place() -> None:
    names = [each.name for kind in KINDS for each in fields(kind)]
    assert len(names) == len(set(names)), "two settings would share a variable"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_says_why_and_every_number_has_a_bound(kind: type[Group]) -> None:
    for group in kind.__mro__:
        if not issubclass(group, Group) or group is Group:
            continue
        source = inspect.getsource(group)
        for name in inspect.get_annotations(group):
            assert re.search(rf'^    {name}: [^\n]*\n    """[\w`]', source, re.M), f"{name} has no reason below it"
    for each in fields(kind):
        if str(each.type) in ("int", "float"):
            assert str(each.metadata[BOUNDS]), f"{each.name} has no bounds"


def test_every_setting_is_read_somewhere() -> None:
    source = "\n".join(
        path.read_text()
        for path in SOURCE.rglob("*.py")
        if "settings" not in path.parts and path.name not in ("config.py",)
    )
    own = (SOURCE / "core/settings/jobs.py").read_text() + (SOURCE / "server/settings/sharing.py").read_text()
    for kind in KINDS:
        for each in fields(kind):
            assert re.search(rf"\.{each.name}\b", source + own), f"nothing reads {PREFIX}{each.name.upper()}"
