"""Configuration of the documentation site: `make site` builds it into `build/site` and checks every link within it.

The pages are those of this folder, as they are read in the repository; links to files outside it lead to nowhere on a
site, so they are shown as they are."""

from __future__ import annotations

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
