"""Settings of the documentation: Sphinx, pages in Markdown, nothing fetched from elsewhere."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from types import ModuleType

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

import geoveil
from geoveil import client

project = "Geoveil"
author = "The Geoveil authors"
copyright = "The Geoveil authors, Apache License 2.0"
version = release = geoveil.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["decisions/template.md"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3
default_role = "py:obj"

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
napoleon_custom_sections = ["Law", "Guarantee", "Cost", "Units", "Reference"]

html_theme = "furo"
html_title = "Geoveil"
html_math_renderer = "mathml"
html_static_path = ["style"]
html_css_files = ["geoveil.css"]
html_show_sphinx = False
html_copy_source = False

# What each package of geoveil is for, in the order of the loop.
LAYERS = {
    "space": "Spaces",
    "channel": "Channels, guarantees and tallies",
    "mechanism": "Mechanisms",
    "document": "Documents, exact draws and certificates",
    "estimate": "Estimators",
    "measure": "Measures",
    "optimal": "Optimal noise and mechanisms",
    "campaign": "Campaigns",
    "release": "Releasing counts",
    "verify": "Audits and robustness",
    "table": "Files and frames",
}


def layer_of(item: object) -> str:
    """The package of geoveil that defines a public name; "" for modules at the top."""
    module = getattr(item, "__module__", "")
    parts = str(module).split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else ""


def directive(name: str, item: object) -> str:
    kind = "class" if inspect.isclass(item) else "function" if callable(item) else "data"
    inherits = kind == "class" and getattr(item, "__bases__", (object,)) != (object,)
    return f".. auto{kind}:: {name}\n" + "   :show-inheritance:\n" * inherits


def write_page(path: Path, title: str, body: str) -> None:
    path.write_text(f"{title}\n{'=' * len(title)}\n\n{body}\n", encoding="utf-8")


def write_reference(app: Sphinx) -> None:
    """One page of reference for each layer, from the public names of geoveil."""
    folder = Path(app.srcdir) / "reference"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = [name for name in geoveil.__all__ if not name.startswith("__")]
    items = {name: getattr(geoveil, name) for name in names}
    items = {name: item for name, item in items.items() if not isinstance(item, ModuleType)}
    pages = []
    for layer, title in {**LAYERS, "": "Everything else"}.items():
        public = {name: item for name, item in items.items() if layer_of(item) == layer}
        if public:
            pages.append(layer or "other")
            body = "\n".join(map(directive, public, public.values()))
            write_page(folder / f"{pages[-1]}.rst", title, f".. currentmodule:: geoveil\n\n{body}")
    devices = {name: getattr(client, name) for name in client.__all__}
    public = {f"geoveil.client.{name}": item for name, item in devices.items() if callable(item)}
    body = "\n".join(map(directive, public, public.values()))
    write_page(folder / "client.rst", "The device", body)
    pages.insert(-1, "client")
    write_page(folder / "index.rst", "Reference", ".. toctree::\n\n   " + "\n   ".join(pages))


def inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Formulas as MathML, which browsers draw themselves: no script, no fonts to fetch."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def display_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_reference)
    app.add_html_math_renderer("mathml", (inline_math, None), (display_math, None))
