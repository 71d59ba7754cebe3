"""What can go wrong in a pipeline, as one tree.

PenstockError
└── PipelineError (alias DataJointError)
    ├── DefinitionError      a definition cannot be read: table, line, and what was expected
    ├── RestrictionError     a condition does not parse, or names nothing that is there
    ├── QueryError           a relation cannot be formed or fetched as asked
    ├── InvalidRow           a row does not fit the table; nothing was written
    ├── DuplicateError       a row with this key is there already
    ├── MissingParentError   a row points at nothing, or still has children
    ├── AccessError          insert into a computed table outside make(), delete of a part without its master, …
    ├── BlobError            a value cannot be stored in a blob, or a blob cannot be read
    ├── JobTransitionError   the job is not in a state that allows this
    ├── ReservationLost      the job passed to another worker; nothing was written
    ├── EmptyMake            make() inserted no row for its key
    ├── InputChanged         what make_fetch() saw changed before the result could be inserted
    ├── TransientError       raise it in make() to have the key tried again later
    └── MissingExtra         an optional package is not installed
"""

from __future__ import annotations

from penstock.core.errors import PenstockError


def _rebuilt(cls: type[PipelineError], args: tuple[object, ...], state: dict[str, object]) -> PipelineError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class PipelineError(PenstockError):
    """Base of every error that pipelines raise on purpose."""

    code = "pipeline_error"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the message and the attributes, whatever the arguments of the class are: processes send errors home."""
        return _rebuilt, (type(self), self.args, self.__dict__)


class DefinitionError(PipelineError):
    """A table's definition cannot be used. Nothing was created."""

    code = "invalid_definition"

    def __init__(self, table: str, message: str, *, line: int | None = None, text: str = "") -> None:
        where = f"{table}, line {line}" if line is not None else table
        shown = f"\n    {text.strip()}" if text.strip() else ""
        super().__init__(f"{where}: {message}{shown}")
        self.table = table
        self.line = line


class RestrictionError(PipelineError):
    """A restriction does not parse, or names no attribute of the relation."""

    code = "invalid_restriction"


class QueryError(PipelineError):
    """A relation cannot be formed, or does not hold what was asked of it."""

    code = "invalid_query"


class InvalidRow(PipelineError):
    """A row does not fit its table. Nothing was written."""

    code = "invalid_row"


class DuplicateError(PipelineError):
    """A row with this key is there already."""

    code = "duplicate"


class MissingParentError(PipelineError):
    """A row points at a parent that is not there, or a parent still has children."""

    code = "missing_parent"


class AccessError(PipelineError):
    """The table takes no such change from here."""

    code = "access_denied"


class BlobError(PipelineError):
    """A value cannot be stored in a blob, or stored bytes cannot be read."""

    code = "invalid_blob"


class JobTransitionError(PipelineError):
    """The job is not in a state that allows this. Nothing was written."""

    code = "illegal_transition"

    def __init__(self, verb: str, key: object, status: str, expected: str) -> None:
        super().__init__(f"Cannot {verb} the job {key}: it is {status}, and must be {expected}.")
        self.status = status


class ReservationLost(PipelineError):
    """The job passed on to another worker, or back to the queue. Nothing was written."""

    code = "lease_lost"


class EmptyMake(PipelineError):
    """make() ended well but inserted no row for its key."""

    code = "empty_make"


class InputChanged(PipelineError):
    """What make_fetch() saw changed before the result could be inserted."""

    code = "input_changed"


class TransientError(PipelineError):
    """Raise it in make() for a fault that time may heal: the key is tried again by the retry policy."""

    code = "transient"


class MissingExtra(PipelineError):
    """An optional package is not installed."""

    code = "missing_extra"

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}. Install it with: pip install 'penstock[pipeline]'")


DataJointError = PipelineError
"""The name that the seeds use for `PipelineError`."""
