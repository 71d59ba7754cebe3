"""A database's URL, as people write it: SQLAlchemy's form, and libpq's with several hosts."""

from __future__ import annotations

import re

from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from penstock.core.errors import InvalidInput

EXPECTED = "Expected sqlite:///path/to/jobs.db or postgresql://user@host/database."
DRIVERS = {"postgresql": ("postgresql", "postgresql+psycopg"), "sqlite": ("sqlite", "sqlite+pysqlite")}
"""The drivers that Penstock knows by URL. An engine of the caller's own may have another."""

_PARTS = re.compile(r"(?P<scheme>[a-z0-9_+]+)://(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")


def parsed(given: str | URL) -> URL:
    """The URL, or `InvalidInput` that says what is wrong with it, without its password."""
    if isinstance(given, URL):
        return given
    text = re.sub(r"^postgres(?=\+|:)", "postgresql", str(given))
    try:
        url = make_url(_with_hosts_in_query(text))
        backend = url.get_backend_name()
    except (exc.ArgumentError, ValueError) as error:
        raise InvalidInput(f"{_without_password(text)!r} is not a database URL. {EXPECTED}") from error
    if backend in DRIVERS and url.drivername not in DRIVERS[backend]:
        raise InvalidInput(
            f"Penstock does not use the driver of {url.drivername}:// URLs. Write {backend}:// instead, or give an engine."
        )
    return url


def _with_hosts_in_query(text: str) -> str:
    """`//a:1,b:2/db`, which libpq takes, as SQLAlchemy takes it: `///db?host=a,b&port=1,2`."""
    parts = _PARTS.fullmatch(text)
    if parts is None or "," not in parts["hosts"]:
        return text
    names, ports = [], []
    for each in parts["hosts"].split(","):
        host = _HOST.fullmatch(each)
        if host is None:
            raise ValueError(f"{each!r} is no host")
        names.append(host["name"].strip("[]"))
        ports.append(host["port"] or "5432")
    path, mark, query = parts["rest"].partition("?")
    hosts = f"host={','.join(names)}&port={','.join(ports)}"
    return f"{parts['scheme']}://{parts['user'] + '@' if parts['user'] else ''}{path or '/'}?{hosts}{'&' if mark else ''}{query}"


def _without_password(text: str) -> str:
    return re.sub(r"(?<=//)([^/?#:]*):[^/?#]*@", r"\1:***@", text)
