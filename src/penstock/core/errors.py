"""Everything that can go wrong, as one tree.

PenstockError
├── InvalidInput            the caller's argument is wrong; nothing was written
│   ├── UnknownDefinition
│   ├── DefinitionArchived
│   ├── UnknownTenant
│   ├── InvalidPayload      with the path of each fault
│   ├── InvalidSchedule     cron expression, time zone or policy
│   ├── InvalidTemplate
│   ├── PriorityOutOfRange  the tenant may not ask for this priority
│   └── NaiveDatetime
├── NotFound                no such job, run, group, trigger … for this tenant
├── IllegalTransition       the job is not in a state that allows this
├── LeaseLost               the run was closed or passed on; a late report changes nothing
├── Busy                    a reservation could not be had in time
├── Conflict                somebody else changed it first
│   └── QuotaExceeded       the tenant has as many as it may have
├── Forbidden               this principal may not do that
│   ├── ScopeMissing        its role may, but the token is limited to other things
│   ├── ExceedsParent       a token that is to be created would be allowed more than the one that creates it
│   └── AddressRefused      the token may not be used from this address
├── KeyMissing              encrypted with a key that this process does not have
├── CiphertextInvalid       an encrypted value was changed, or copied from another place
└── DatabaseError
    ├── DatabaseUnavailable
    ├── DatabaseReadOnly
    ├── DatabaseLocked
    ├── DatabaseFull
    ├── DatabaseCorrupt
    ├── SchemaTooNew        the database was written by a newer Penstock
    ├── SchemaOutdated      run `penstock db upgrade`
    └── SchemaMismatch      the tables are not those that their version promises
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PenstockError(Exception):
    """Base of every error Penstock raises on purpose."""

    code = "penstock_error"

    @property
    def help(self) -> str:
        """The command that explains this error."""
        return f"penstock explain {self.code}"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(f"More: {self.help}")


class InvalidInput(PenstockError):
    """The caller's argument is wrong; nothing was written."""

    code = "invalid_input"


class UnknownDefinition(InvalidInput):
    """No definition of this key is offered to this tenant."""

    code = "unknown_definition"

    def __init__(self, key: str, known: Sequence[str] = ()) -> None:
        hint = (
            f" Known keys: {', '.join(sorted(known)[:10])}."
            if known
            else " Define it first with app.define() or @app.job."
        )
        super().__init__(f"No definition has the key {key!r}.{hint}")
        self.key = key


class DefinitionArchived(InvalidInput):
    """The definition was archived and takes no new jobs."""

    code = "definition_archived"

    def __init__(self, key: str) -> None:
        super().__init__(f"The definition {key!r} is archived and takes no new jobs. Define it again to bring it back.")
        self.key = key


class UnknownTenant(InvalidInput):
    """No such tenant."""

    code = "unknown_tenant"

    def __init__(self, slug: str) -> None:
        super().__init__(f"There is no tenant {slug!r}. Create it with app.tenants.create({slug!r}).")
        self.slug = slug


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a payload: where, and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidPayload(InvalidInput):
    """The params do not fit the definition's schema or our limits."""

    code = "invalid_payload"

    def __init__(self, what: str, faults: Sequence[Fault]) -> None:
        super().__init__(f"{what}: " + "; ".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


class InvalidSchedule(InvalidInput):
    """A cron expression, time zone or trigger policy that cannot be used."""

    code = "invalid_schedule"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidTemplate(InvalidInput):
    """A payload template that cannot be read, or whose path is missing."""

    code = "invalid_template"

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class PriorityOutOfRange(InvalidInput):
    """The tenant may not ask for this priority; nothing was written."""

    code = "priority_out_of_range"

    def __init__(self, priority: int, low: int | None, high: int | None) -> None:
        known = f"from {low} to {high}" if low is not None and high is not None else None
        allowed = known or (f"of {low} or more" if low is not None else f"of {high} or less")
        super().__init__(
            f"priority is {priority}; this tenant may use priorities {allowed}. The operator sets the range."
        )
        self.priority = priority
        self.field = "$.priority"


class NaiveDatetime(InvalidInput):
    """A datetime without a time zone; we would have to guess."""

    code = "naive_datetime"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has no time zone. Pass an aware datetime, for example datetime.now(timezone.utc).")


class NotFound(PenstockError):
    """No such thing for this tenant. Another tenant's answers the same."""

    code = "not_found"

    def __init__(self, noun: str, id: object) -> None:
        super().__init__(f"There is no {noun} {id}.")
        self.noun = noun
        self.id = id


class IllegalTransition(PenstockError):
    """The thing is not in a state that allows this; nothing was written."""

    code = "illegal_transition"

    def __init__(self, verb: str, done: str, status: str, allowed: Sequence[str], because: str = "") -> None:
        *first, last = allowed
        choice = f"{', '.join(first)} or {last}" if first else last
        told = because or f"it is {status}. Only a job that is {choice} can be {done}"
        super().__init__(f"The job cannot be {done} because {told}.")
        self.verb = verb
        self.status = status
        self.allowed = tuple(allowed)


class LeaseLost(PenstockError):
    """The run was closed already, or its lease passed on. The report changed nothing."""

    code = "lease_lost"

    def __init__(self, run_ids: Sequence[object]) -> None:
        super().__init__(
            f"Run {', '.join(str(i) for i in run_ids)} is no longer yours: it was closed or its lease passed on."
        )
        self.run_ids = tuple(run_ids)


class Busy(PenstockError):
    """A reservation could not be had in time."""

    code = "busy"


class Conflict(PenstockError):
    """Somebody else changed it first, or it exists already."""

    code = "conflict"


class QuotaExceeded(Conflict):
    """The tenant has as many as its quota allows; nothing was written."""

    code = "quota_exceeded"

    def __init__(self, quota: str, what: str, limit: int, used: int, wanted: int = 1) -> None:
        more = f", and {wanted} more were asked for" if wanted > 1 else ""
        super().__init__(
            f"The quota {quota} of this tenant is {limit} ({what}), and {used} are in use{more}. Remove some, or ask the operator "
            "for a larger quota."
        )
        self.quota = quota
        self.limit = limit
        self.used = used
        self.wanted = wanted


class Forbidden(PenstockError):
    """This principal may not do that."""

    code = "forbidden"


class KeyMissing(PenstockError):
    """The value is encrypted with a key that this process does not have."""

    code = "key_missing"

    def __init__(self, key_id: str, same_id: bool = False) -> None:
        self.key_id = key_id
        self.short = (
            f"encrypted with another key that is also called {key_id}"
            if same_id
            else f"encrypted with key {key_id}, which this process does not have"
        )
        super().__init__(f"The value is {self.short}. Add the key to PENSTOCK_KEYS or PENSTOCK_KEYS_FILE.")


class CiphertextInvalid(PenstockError):
    """An encrypted value was changed since it was written, or copied from another place."""

    code = "ciphertext_invalid"

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.short = f"encrypted with key {key_id}, but changed since it was written, or copied from another place"
        super().__init__(
            f"The value is {self.short}. Restore the row from a backup, and find out who writes to the database."
        )


class ScopeMissing(Forbidden):
    """The role allows it, but the token is limited to other scopes or definitions."""

    code = "scope_missing"


class ExceedsParent(Forbidden):
    """A token would be allowed more than the one that creates or rotates it."""

    code = "exceeds_parent"


class AddressRefused(Forbidden):
    """The token may not be used from this address."""

    code = "address_refused"


class DatabaseError(PenstockError):
    """The database cannot be used as it is."""

    code = "database_error"


class DatabaseUnavailable(DatabaseError):
    """The database is not there or does not answer."""

    code = "database_unavailable"


class DatabaseReadOnly(DatabaseError):
    """The database cannot be written."""

    code = "database_read_only"


class DatabaseLocked(DatabaseError):
    """Another process held the SQLite write lock for longer than we wait."""

    code = "database_locked"


class DatabaseFull(DatabaseError):
    """The disk is full; nothing was acknowledged."""

    code = "database_full"


class DatabaseCorrupt(DatabaseError):
    """The file is not a healthy SQLite database."""

    code = "database_corrupt"


class SchemaTooNew(DatabaseError):
    """The database was written by a newer Penstock."""

    code = "schema_too_new"


class SchemaOutdated(DatabaseError):
    """The tables are older than the program; run `penstock db upgrade`."""

    code = "schema_outdated"


class SchemaMismatch(DatabaseError):
    """The tables are not those that the version of the schema promises."""

    code = "schema_mismatch"
