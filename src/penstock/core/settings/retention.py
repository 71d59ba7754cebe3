"""Settings of what is kept, and of what counts as overdue."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.base import Group, setting


@dataclass(frozen=True, kw_only=True)
class RetentionSettings(Group):
    """How long history is kept, and what `doctor` allows."""

    retention_days: float = setting(30.0, more_than=0)
    """Days for which `prune()` keeps finished jobs if it is called without `older_than`."""
    grace_seconds: float = setting(60.0, more_than=0)
    """Seconds that `doctor()` gives recovery before it calls an expired lease or an overdue job a violation. It must be longer than
    `recover_seconds`, or healthy installations are reported."""
