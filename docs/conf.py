"""Configuration of the documentation site: `make site` builds it into `build/site` and checks every link within it.

The pages are those of this folder, as they are read in the repository. A page outside it is not part of the site: a
link to it is shown as its text. Other files are copied.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

project = "geoemu"
author = "the geoemu authors"
copyright = "the geoemu authors, Apache-2.0"  # the name is Sphinx's
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["index.html"]
html_theme = "furo"
html_title = "geoemu"
html_show_sphinx = False
html_copy_source = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4


def _unlink_pages_outside(app: Any, name: str, source: list[str]) -> None:
    folder = Path(app.srcdir, name).parent

    def unlinked(match: re.Match[str]) -> str:
        is_inside = (folder / match[2]).resolve().is_relative_to(app.srcdir)
        return match[0] if is_inside else match[1]

    source[0] = re.sub(r"\[([^\]]*)\]\((\.\./[^)#\s]*\.md)(?:#[^)\s]*)?\)", unlinked, source[0])


def setup(app: Any) -> None:
    app.connect("source-read", _unlink_pages_outside)
