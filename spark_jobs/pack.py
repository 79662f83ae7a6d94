"""`python -m spark_jobs.pack DIR`: write what `spark-submit` needs, without an installed geoemu.

DIR/geoemu.zip         the code, for `--py-files`
DIR/geoemu_submit.py   the program (`submit.py`)
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from spark_jobs.engines.shipped_code import ARCHIVE, CODE_HOME, is_packable, pack_code

PROGRAM = "geoemu_submit.py"


def main(arguments: list[str] | None = None) -> int:
    folder: Path = _options(arguments).directory
    if not is_packable():
        print(f"{CODE_HOME} is such a zip already: copy it", file=sys.stderr)
        return 2
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pack_code(folder / ARCHIVE)
        shutil.copyfile(CODE_HOME / "spark_jobs" / "submit.py", folder / PROGRAM)
    except OSError as problem:
        print(f"{folder} cannot be written: {problem}", file=sys.stderr)
        return 2
    print(f"spark-submit --master URL --py-files {folder / ARCHIVE} {folder / PROGRAM} verify RUN_DIR")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.pack",
        description=f"Write the code as {ARCHIVE} and the program {PROGRAM}, for spark-submit.",
        epilog="example: python -m spark_jobs.pack /shared/geoemu",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the two files")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
