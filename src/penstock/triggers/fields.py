"""The fields of a trigger, each checked once at the edge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.core import check
from penstock.core.cron import DST_GAP, DST_OVERLAP, Cron
from penstock.core.errors import InvalidInput
from penstock.core.outside import outside_if_large
from penstock.core.payload import plain, require_object
from penstock.core.reach import Trigger
from penstock.core.schedule import CATCH_UP, MAX_JITTER, MAX_WINDOW, OVERLAP
from penstock.core.status import one_of
from penstock.core.template import check as check_template
from penstock.triggers.making import EVENT_ROOTS, SCHEDULE_ROOTS

POLICIES: Mapping[str, Any] = {
    "catch_up": "latest",
    "catch_up_window_seconds": 86400,
    "overlap": "allow",
    "jitter_seconds": 0,
    "dst_gap": "shift",
    "dst_overlap": "first",
    "dedupe_window_seconds": 0,
}
"""What a trigger does unless told otherwise."""

_CHOICES = {"catch_up": CATCH_UP, "overlap": OVERLAP, "dst_gap": DST_GAP, "dst_overlap": DST_OVERLAP}
_SECONDS = {
    "catch_up_window_seconds": (60, MAX_WINDOW),
    "jitter_seconds": (0, MAX_JITTER),
    "dedupe_window_seconds": (0, 366 * 86400),
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:-]*(\.[A-Za-z0-9_:-]+)*")


def checked_policies(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = given.keys() - POLICIES.keys()
    if unknown:
        raise InvalidInput(f"A trigger has no {', '.join(sorted(unknown))}. Its policies are {', '.join(POLICIES)}.")
    for name, value in given.items():
        if name in _CHOICES:
            one_of(name, value, _CHOICES[name])
        else:
            check.integer(name, value, *_SECONDS[name])
    return dict(given)


def checked_template(params: Any, trigger_type: str) -> None:
    require_object("params", params)

    def compute() -> None:
        plain("params", params)
        check_template(params, SCHEDULE_ROOTS if trigger_type == "schedule" else EVENT_ROOTS)

    outside_if_large(("check template", trigger_type), params, compute)


def event_name(name: Any) -> str:
    """A name such as `orders.paid`: words joined by dots."""
    check.text("event name", name)
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"The event name {name!r} cannot be used: it is made of letters, digits, _, : and -, joined by dots."
        )
    return str(name)


def event_pattern(name: Any) -> str:
    """An event's name, or `prefix.*` for every name below it, or `*` for all."""
    if name == "*":
        return "*"
    if isinstance(name, str) and name.endswith(".*"):
        return event_name(name[:-2]) + ".*"
    return event_name(name)


def patterns_for(name: str) -> list[str]:
    """Every pattern that answers this name.

    >>> patterns_for("a.b.c")
    ['a.b.c', 'a.b.*', 'a.*', '*']
    """
    words = name.split(".")
    return [name, *(".".join(words[:count]) + ".*" for count in range(len(words) - 1, 0, -1)), "*"]


def renamed(found: Trigger, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes under the names of the row, each checked."""
    changes = dict(changes)
    changes.pop("key", None)
    wanted: dict[str, Any] = {}
    if "label" in changes:
        wanted["label"] = check.text("label", changes.pop("label"))
    if "params" in changes:
        params = changes.pop("params")
        checked_template(params, found.trigger_type)
        wanted["payload_template"] = dict(params)
    if "priority" in changes:
        wanted["priority"] = changes.pop("priority")
        if wanted["priority"] is not None:
            check.integer("priority", wanted["priority"])
    if "enabled" in changes:
        wanted["is_enabled"] = bool(changes.pop("enabled"))
        reason = changes.pop("disabled_reason", "disabled by hand")
        wanted["disabled_reason"] = None if wanted["is_enabled"] else check.text("reason", reason, 500)
    wanted |= _when(found, changes)
    wanted |= checked_policies(changes)
    return wanted


def _when(found: Trigger, changes: dict[str, Any]) -> dict[str, Any]:
    if found.trigger_type == "event":
        return {"event_name": event_pattern(changes.pop("event_name"))} if "event_name" in changes else {}
    if "event_name" in changes:
        raise InvalidInput(f"The trigger {found.label!r} is a schedule; it has no event_name.")
    if not {"cron", "timezone", "dst_gap", "dst_overlap"} & changes.keys():
        return {}
    cron = changes.pop("cron", found.cron_expr)
    timezone = changes.pop("timezone", found.timezone)
    gap, overlap = changes.get("dst_gap", found.dst_gap), changes.get("dst_overlap", found.dst_overlap)
    return {"cron_expr": Cron.parse(cron, timezone, gap, overlap).expression, "timezone": timezone}
