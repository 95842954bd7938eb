"""Sphinx's settings of the site; build.py has the sources in order before Sphinx reads them."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import irt_dask

project = "irt_dask"
author = "the authors of irt_dask"
version = release = irt_dask.__version__
html_title = f"irt_dask {version}"

extensions = [
    "myst_nb",  # pages in Markdown; code cells are executed
    "sphinx.ext.autodoc",  # reference from docstrings ...
    "sphinx.ext.napoleon",  # ... in NumPy's style
    "sphinx_design",  # cards of the landing page
    "mathml",  # formulas without a script
]
exclude_patterns = ["_ext", "_build"]

# Nothing comes from a network, neither in the build nor in the reader's browser.
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/icon.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],  # without its text: the header is one line
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "choose": [], "start": [], "overview": []}
copyright = "the authors of irt_dask, BSD-3-Clause"

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

nb_execution_mode = "force"
nb_execution_timeout = 900
nb_execution_in_temp = True
nb_execution_raise_on_error = (
    False  # a failing cell is a warning, and so an error of a strict build
)
nb_merge_streams = True

autodoc_typehints = "none"  # the sections of parameters have the types, in words
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Cost", "notes"), ("Sources", "references")]
add_module_names = False
toc_object_entries = False

# References that do not resolve are warnings of a strict build; types of parameters are words.
nitpick_ignore_regex = [
    ("py:class", ".*"), ("py:exc", ".*"),
    ("py:mod", ".*"), ("py:func", r"irt_dask\.\w+\..*"),  # what is not public has no page
]  # fmt: skip


def _literal(app, what, name, obj, options, lines):
    """In docstrings a word that ends in an underscore is a name, not a link."""
    for k, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[k] = re.sub(
                r"(?<![`\w])([A-Za-z]\w*_)(?=[\s,).;:]|$)",
                lambda found: found[1][:-1] + "\\_",
                line,
            )


def setup(app):
    """Tell Sphinx of what is above."""
    app.connect("autodoc-process-docstring", _literal, priority=900)
