"""The code that runs in Spark's tasks, as one zip for machines that do not have it.

`spark-submit --py-files geoemu.zip` sends the zip that `python -m spark_jobs.pack` writes. Without it the session
sends one itself, so that tasks run the same code as their driver.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = "geoemu.zip"
CODE_HOME = Path(__file__).resolve().parents[2]
"""Directory of the packages, or the zip from which they are imported."""
_CONTENT = {"spark_jobs": ("*.py", "templates/*"), "emulator": ("*.py",)}
"""Package -> patterns of its files."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def pack_code(archive: Path) -> None:
    """Write the zip, byte for byte the same for the same code. Spark adds it to the import path of tasks."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package, patterns in _CONTENT.items():
            files = {file for pattern in patterns for file in (CODE_HOME / package).rglob(pattern)}
            for file in sorted(files):
                info = zipfile.ZipInfo(str(file.relative_to(CODE_HOME)), _LONG_AGO)
                info.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(info, file.read_bytes())


def ship_code(session: SparkSession, folder: Path) -> None:
    """Send the code to the executors of a session, unless they have it already. Call it before a data source is
    registered. `folder`: where the zip is written; it must exist as long as the session."""
    from pyspark import SparkFiles

    context = session.sparkContext
    if ARCHIVE not in {Path(one).name for one in context.listFiles} and is_packable():
        pack_code(folder / ARCHIVE)
        context.addPyFile(str(folder / ARCHIVE))
    here = Path(SparkFiles.get(ARCHIVE))
    # Spark 4.3 does not give these files to the process beside the driver that plans a stream: it gets the variable.
    context.environment["PYTHONPATH"] = str(here if here.is_file() else CODE_HOME)


def is_packable() -> bool:
    """Return whether this code is files. If it is imported from a zip, `--py-files` has sent that zip."""
    return CODE_HOME.is_dir()
