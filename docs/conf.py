"""How Sphinx makes the site of the pages in this folder: make docs."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ziamath
from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util import logging
from sphinx.util.inspect import stringify_signature
from sphinx.writers.html5 import HTML5Translator

from torch_kbandits import Bandit, __version__
from torch_kbandits.algorithms.registry import signature

sys.path.insert(0, str(Path(__file__).parent))
from glossary import documented, with_index, with_takers

project = "torch_kbandits"
author = "The torch_kbandits developers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
nitpicky = True
# Other packages document what is theirs.
nitpick_ignore_regex = [("py:.*", r"(?!torch_kbandits\b).*")]
# These stand in signatures of what is public, and are not public themselves.
nitpick_ignore = [
    ("py:class", f"torch_kbandits.{name}")
    for name in (
        "acquisition.climbing.Rescaled",
        "bandit.adaptation.Choice",
        "bandit.adaptation.Past",
        "bandit.advice.Questions",
        "bandit.residuals.Predictions",
        "selection.propensities.Choice",
        "selection.propensities.Chosen",
        "candidates.arms.MappedFile",
        "dictionaries.greedy.ConditionalVariances",
        "environments.base.Known",
        "evaluation.estimators.Columns",
        "posteriors.dictionary_posterior.DictionaryPosterior",
        "posteriors.exact_posterior.ExactPosterior",
        "posteriors.gaussian.Gaussian",
        "priors.learned.LastFit",
        "priors.marginal.TrainingData",
        "priors.units.Units",
        "spaces.kinds.Parameter",
    )
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = False

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "special-members": "__call__",
    # Each width has its own, which its docstring says.
    "exclude-members": "assumes, theorem",
}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 120
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = project
html_math_renderer = "mathml"
# Not every machine has a font for formulas.
html_static_path = ["static", str(Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf")]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
copybutton_selector = "div.highlight-python pre"

PAGES = (page.read_text(encoding="utf-8") for page in (Path(__file__).parent / "api").glob("*.md"))
PUBLIC = documented("".join(PAGES))
CLASSES = [name for name in PUBLIC if name.rpartition(".")[2][0].isupper()]
OFTEN = Counter(name.rpartition(".")[2] for name in CLASSES)
#: What a page may write for a public name: the last part, of a class of which there is one, or the whole.
TARGETS = {name.removeprefix("torch_kbandits."): name for name in PUBLIC} | {name: name for name in PUBLIC}
TARGETS |= {last: name for name in CLASSES if OFTEN[last := name.rpartition(".")[2]] == 1}

GOOGLE = Config(napoleon_use_ivar=True)
#: Lines that are indented below a paragraph.
FORMULA = re.compile(r"(?<=\n\n)((?: {4}.*\n)(?:(?: {4}.*)?\n)*)")


def readable_docstring(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Show the sections of a docstring as lists, indented formulas and code as they stand, and bars as bars."""
    head, *sections = re.split(r"^(?=\w+:\n)", "\n".join(lines), flags=re.MULTILINE)
    head = "".join(
        "::\n\n" + part.replace("``", "") if part.startswith(" ") else part.replace("|", r"\|")
        for part in FORMULA.split(head)
    )
    text = "".join([head, *(section.replace("|", r"\|") for section in sections)])
    # That of an attribute has no sections, and what stands before its first colon is no type.
    lines[:] = (
        text.split("\n") if what in ("attribute", "property") else GoogleDocstring(text, GOOGLE, what=what).lines()
    )


def full_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Show all that an algorithm may be given, also what it hands on to ``Bandit``."""
    if not (isinstance(obj, type) and issubclass(obj, Bandit)):
        return None
    return stringify_signature(signature(obj), show_return_annotation=False, unqualified_typehints=True), None


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """Make links of the public names in the text."""
    for literal in list(doctree.findall(nodes.literal)):
        target = TARGETS.get(literal.astext().removesuffix("()"))
        if target and not isinstance(literal.parent, nodes.title | nodes.reference | pending_xref):
            link = pending_xref("", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=True)
            literal.replace_self(link)
            link += literal


def is_alias(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of a named tuple, which the docstring of the tuple has."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def mathml(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    formula = convert(node.astext(), display=display)
    formula = re.sub("<mi>(ln|log)</mi>", r'<mo lspace="0.1em" rspace="0.1em">\1</mo>', formula)
    formula = re.sub("<mo>(&#x0007C;|&#x02016;)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', formula)
    if "\\" in formula:
        logging.getLogger(__name__).warning("no MathML for %s", node.astext(), location=node)
    self.body.append(f'<div class="math">{formula}</div>' if display == "block" else formula)
    raise nodes.SkipNode


def add_to_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Show in the glossary who takes an argument, and put into the index what users search for."""
    source[0] = with_index(with_takers(source[0]) if name == "notation" else source[0])


def setup(app: Sphinx) -> None:
    """Register what is ours."""
    app.connect("source-read", add_to_page)
    app.connect("autodoc-process-docstring", readable_docstring)
    app.connect("autodoc-process-signature", full_signature)
    app.connect("autodoc-skip-member", is_alias)
    app.connect("doctree-read", link_names)
    app.add_html_math_renderer("mathml", (mathml, None), (mathml, None))
