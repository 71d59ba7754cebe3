"""Nobody outside store/ writes SQL: neither as text nor with SQLAlchemy's statement builders.

The pipeline room composes expressions over its users' own tables and is allowed the builders, not the text.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "penstock"
STATEMENT = re.compile(
    r"^\s*(SELECT\s+.+\s+FROM\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|CREATE\s+TABLE\s|WITH\s+\w+\s+AS\s)",
    re.S,
)
BUILDERS = {"select", "insert", "update", "delete", "text", "exec_driver_sql"}


def faults(path: Path) -> list[str]:
    room = path.relative_to(ROOT).parts[0]
    if room == "store":
        return []
    found = []
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "sqlalchemy"
            and room != "pipeline"
        ):
            named = sorted(BUILDERS & {alias.name for alias in node.names})
            if named:
                found.append(f"{path}:{node.lineno}: imports {', '.join(named)} from SQLAlchemy")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value):
            found.append(f"{path}:{node.lineno}: SQL in a string")
    return found


if __name__ == "__main__":
    all_faults = [fault for path in sorted(ROOT.rglob("*.py")) for fault in faults(path)]
    sys.stdout.write("".join(f"{fault}\n" for fault in all_faults))
    sys.exit(1 if all_faults else 0)
