"""Writes ml_sql.h, the header that carries the texts of sql/ and the lists of the Python front end into the C one.

    python mldb/native/generate.py build/ml_sql.h

The C files hold no SQL and no list of their own, so a statement, an allowed function or a column that INSERT may set
changes in one place. Only the standard library is needed: the lists are read from the text of the modules.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

HOUSE = Path(__file__).resolve().parent.parent.parent
GROUPS = ("connection", "jobs", "submit")
# Where each list stands: the name in C, the module, and the name there.
LISTS = (
    ("SANDBOX_OUR_TABLES", "sandbox", "OUR_TABLES"),
    ("SANDBOX_FUNCTIONS", "sandbox", "FUNCTIONS"),
    ("SANDBOX_TABLE_FUNCTIONS", "sandbox", "TABLE_FUNCTIONS"),
    ("SANDBOX_PRAGMAS", "sandbox", "_PRAGMAS"),
    ("JOB_STATUSES", "job", "STATUSES"),
    ("JOB_TERMINAL", "job", "TERMINAL"),
    ("INSERT_COLUMNS", "jobs_table", "_SUBMITTED"),
    ("INSERT_OPTION_COLUMNS", "jobs_table", "_SUBMITTED"),
)
NUMBERS = (
    ("SANDBOX_MAX_VALUE_BYTES", "sandbox", "MAX_VALUE_BYTES"),
    ("SANDBOX_MAX_SQL_CHARACTERS", "sandbox", "MAX_SQL_CHARACTERS"),
    ("BUSY_TIMEOUT_MS", "connection", "BUSY_TIMEOUT_MS"),
)


def header(house: Path = HOUSE) -> str:
    """Give the text of the header. Raises when a list or a statement is not where it is expected."""
    reader = _module(house / "mldb" / "statements.py")
    sql = house / "sql"
    statements: dict[str, str] = {}
    for group in GROUPS:
        for name, text in reader.parse((sql / f"{group}.sql").read_text("utf-8")).items():
            if name in statements:
                raise ValueError(f"statement {name!r} stands in two files")
            statements[name] = text
    steps = [sql / "schema.sql", *sorted((sql / "migrations").glob("*.sql"))]
    parts = [
        "/* Made by mldb/native/generate.py from sql/ and the Python front end; do not edit. */",
        "#ifndef ML_SQL_H\n#define ML_SQL_H",
        # C promises only 4095 characters in a literal; every compiler that we meet takes more.
        '#if defined(__GNUC__)\n#pragma GCC diagnostic ignored "-Woverlength-strings"\n#endif',
        f"#define ML_VERSION {_literal(str(_assigned(house, '__init__', '__version__')))}",
        *(f"#define {name} {_assigned(house, module, there)}" for name, module, there in NUMBERS),
        *(f"#define SQL_{name} \\\n  {_literal(text)}" for name, text in statements.items()),
        "#define SCHEMA_STEPS \\\n" + ", \\\n".join(f"  {_literal(step.read_text('utf-8'))}" for step in steps),
        *(f"#define {name} \\\n  {_words(name, _assigned(house, module, there))}" for name, module, there in LISTS),
        f"#define SPEC_QUERIES \\\n  {_queries(_assigned(house, 'registry', '_BUILT_IN_QUERIES'))}",
        "#endif",
    ]
    return "\n\n".join(parts) + "\n"


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_mldb_" + path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _assigned(house: Path, module: str, name: str) -> Any:
    """Give the value that a module assigns to a name at its top, without importing the module."""
    for node in ast.parse((house / "mldb" / f"{module}.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            text = ast.Expression(value)
            return eval(compile(text, module, "eval"), {"frozenset": frozenset})  # noqa: S307 - our own text
    raise LookupError(f"mldb/{module}.py does not assign {name}")


def _words(name: str, values: Any) -> str:
    if name == "INSERT_OPTION_COLUMNS":
        values = [column for column, option in values.items() if option]
    ordered = values if isinstance(values, (tuple, list, dict)) else sorted(values)
    return ", ".join(_literal(value) for value in ordered) + ", 0"


def _queries(kinds: dict[str, tuple[str, ...]]) -> str:
    pairs = [f"{{{_literal(kind)}, {_literal(key)}}}" for kind, keys in kinds.items() for key in keys]
    return ", ".join([*pairs, "{0, 0}"])


def _literal(text: str) -> str:
    lines = []
    for line in text.splitlines(keepends=True) or [""]:
        escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("?", "\\?")
        if not escaped.isascii():
            raise ValueError(f"not ASCII: {line!r}")
        lines.append(f'"{escaped}"')
    return " \\\n  ".join(lines)


def main(place: str) -> None:
    """Write the header, only when it changes, so that make knows."""
    target = Path(place)
    text = header()
    if not target.exists() or target.read_text("utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
