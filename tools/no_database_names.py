"""Nobody but the sibling packages `store/postgresql/` and `store/sqlite/` knows which database it is on.

Elsewhere no module imports a driver, SQLAlchemy's dialects or a sibling package, and no string of the code is the name of a
database or of a driver, because code that names one is about to branch on it. What differs belongs behind `store/dialect.py`.
Texts for people (docstrings, help, errors, examples of URLs) say more than a bare name, and are not looked at.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "penstock"
NAMES = {"postgresql", "postgres", "sqlite", "psycopg", "psycopg2", "asyncpg", "sqlite3", "pysqlite", "aiosqlite"}
MODULES = ("psycopg", "sqlite3", "sqlalchemy.dialects", "penstock.store.postgresql", "penstock.store.sqlite")
SIBLINGS = ("store/postgresql/", "store/sqlite/")

ALLOWED = {
    "store/dialect.py": "chooses the package by the name in a URL",
    "store/urls.py": "reads URLs, which name their database",
    "store/types.py": "names the variant of SQLAlchemy's JSON type, which is chosen by name",
    "store/differences.py": "to be moved: columns, indexes and constraints are asked for in each catalogue's own way",
    "store/doctor.py": "to be moved: has warnings of each database",
    "store/erase.py": "to be moved: waits for transactions that only PostgreSQL has side by side",
    "store/listing.py": "to be moved: converts the driver's own values",
    "store/recovery.py": "to be moved: turns plans of PostgreSQL off",
    "store/rotation.py": "to be moved: rewrites SQLite's file",
    "store/migrations/": "writes the tables of each database; what has landed is frozen",
}


def faults(path: Path, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            named = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            yield f"{path}:{node.lineno}: names the database {node.value!r}"
            continue
        else:
            continue
        known = next((each for each in MODULES for name in named if name == each or name.startswith(f"{each}.")), None)
        if known is not None:
            yield f"{path}:{node.lineno}: imports {known}"


def all_faults(root: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).as_posix()
        if not inside.startswith((*SIBLINGS, *ALLOWED)):
            found += faults(path, path.read_text())
    return found


if __name__ == "__main__":
    found = all_faults(SOURCE)
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    sys.exit(1 if found else 0)
