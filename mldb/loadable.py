"""Where the loadable library is: the queue's SQL functions for the sqlite3 shell and other hosts of SQLite."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

from mldb.errors import MldbError, UsageError

_LIBRARY = Path(__file__).resolve().parent / "native" / "ml_jobs.so"
_HEADERS = (Path("/usr/include/sqlite3ext.h"), Path("/usr/local/include/sqlite3ext.h"))


class Host(Protocol):
    """A connection that can load extensions: of Python's sqlite3, or of APSW."""

    def enable_load_extension(self, enable: bool, /) -> Any:
        """Allow or forbid loading."""

    def load_extension(self, path: str, /) -> Any:
        """Load a library."""


def loadable_path() -> str:
    """Give the path of the library, for `.load` in the sqlite3 shell and for load_extension anywhere.

    Raises MldbError, which says what is missing, when it was not built at the install.
    """
    if _LIBRARY.exists():
        return str(_LIBRARY)
    missing = []
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        missing.append("a C compiler (Debian: gcc)")
    if not any(header.exists() for header in _HEADERS):
        missing.append("SQLite's header sqlite3ext.h (Debian: libsqlite3-dev)")
    cure = f"install {' and '.join(missing)}, then mldb" if missing else "install mldb"
    raise MldbError(
        f"the loadable library was not built when mldb was installed; {cure} again with: "
        "pip install --force-reinstall --no-deps mldb"
    )


def load(connection: Host) -> None:
    """Load the library into a connection of Python's sqlite3 or of APSW; loading stays forbidden otherwise.

    To a connection of APSW give the queue with `mldb.attach` or `mldb.equip` instead, which predicts and runs jobs too.
    Raises MldbError when the library is not there, and UsageError when the connection cannot load extensions.
    """
    path = loadable_path()
    if not hasattr(connection, "enable_load_extension"):
        raise UsageError(
            f"{type(connection).__module__}.{type(connection).__qualname__} cannot load extensions; "
            "use a Python whose sqlite3 was built to, such as Debian's /usr/bin/python3"
        )
    connection.enable_load_extension(True)
    try:
        connection.load_extension(path)
    finally:
        connection.enable_load_extension(False)
