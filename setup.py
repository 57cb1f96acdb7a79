"""Builds the loadable library for stock SQLite hosts, where a C compiler and SQLite's header are there.

Everything else stands in pyproject.toml. Without them the install succeeds and `mldb.loadable_path()` says what is
missing.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
NATIVE = Path("mldb") / "native"


class BuildLibrary(build_ext):
    """Builds a library that SQLite loads and Python does not, so its name carries no tag of an interpreter."""

    def get_ext_filename(self, fullname: str) -> str:
        """Give the path of the library in the package."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext: Extension) -> None:
        """Make the header from sql/, then the library; always, since setuptools does not know what it depends on."""
        self.force = True
        runpy.run_path(str(HERE / NATIVE / "generate.py"))["main"](str(Path(self.build_temp) / "ml_sql.h"))
        ext.include_dirs.append(self.build_temp)
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildLibrary},
    ext_modules=[
        Extension(
            "mldb.native.ml_jobs",
            sorted(str(NATIVE / path.name) for path in (HERE / NATIVE).glob("*.c")),
            extra_compile_args=["-std=c11", "-fvisibility=hidden"],
            optional=True,
        )
    ],
)
