"""IANA time zones by name, refused with near matches when unknown."""

from __future__ import annotations

import difflib
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from penstock.core.errors import InvalidSchedule

# Files of the zone database that mean something else on each machine, or nothing.
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory"})


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The names this machine knows."""
    return frozenset(available_timezones() - _NOT_ZONES)


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The zone of that name, or InvalidSchedule with near matches.

    >>> zone("Europe/London").key
    'Europe/London'
    """
    if isinstance(name, str) and name in zone_names():
        return ZoneInfo(name)
    near = near_names(name) if isinstance(name, str) else []
    hint = f"Did you mean {' or '.join(near)}?" if near else "Expected an IANA name such as Europe/London or UTC."
    raise InvalidSchedule(f"timezone {str(name)[:80]!r} is not known. {hint}", field="timezone")


def near_names(name: str) -> list[str]:
    wanted = name.strip().lower().replace(" ", "_")[:80]
    by_key: dict[str, str] = {}
    for known in sorted(zone_names()):
        by_key[known.lower()] = known
        by_key.setdefault(known.rsplit("/", 1)[-1].lower(), known)
    if wanted in by_key:
        return [by_key[wanted]]
    found = [by_key[key] for key in difflib.get_close_matches(wanted, by_key, n=6, cutoff=0.7)]
    return list(dict.fromkeys(found))[:3]
