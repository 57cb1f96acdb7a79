"""The shell behind `mldb shell`; imported only there, since APSW's shell takes a while to load."""

from __future__ import annotations

from collections.abc import Sequence

import apsw.shell

INTRO = """\
mldb {version}, SQLite {sqlite}. No job runs in here; to run them: mldb work {path}
Try SELECT ml_submit('noop', 'try', NULL); then SELECT * FROM ML_JOBS; .help lists the commands, .quit leaves.
"""


def intro(path: str) -> str:
    """Give the lines that greet a person."""
    from mldb import __version__

    return INTRO.format(version=__version__, sqlite=apsw.sqlite_lib_version(), path=path)


def serve(connection: apsw.Connection, path: str, statements: Sequence[str]) -> bool:
    """Run statements, or else what stdin says; False when something failed that no person at a terminal saw."""
    shell = QueueShell(db=connection)
    if statements:
        for text in statements:
            shell.run(text)
    else:
        shell.cmdloop(intro(path))
    return bool(shell.interactive) or not shell.failed


class QueueShell(apsw.shell.Shell):
    """APSW's shell, which also remembers whether something failed."""

    failed = False

    def run(self, text: str) -> None:
        """Run one statement or .command as if it had been typed."""
        self.interactive = False
        try:
            self.process_complete_line(text)
        except Exception:  # noqa: BLE001 - the shell prints whatever went wrong
            self.handle_exception()

    def handle_exception(self) -> None:
        """Print the error on stderr, as APSW's shell does."""
        self.failed = True
        super().handle_exception()
