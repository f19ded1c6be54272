"""Pages as a whole: their lengths, in whose words they are, and that what users search for stands at the top of one."""

import re
import runpy
from pathlib import Path

import pytest
from laws.test_structure import PRIVATE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Bytes of a page, and of all; a page of the reference made of signatures is short in itself.
LONGEST, MOST = 20_000, 260_000
#: Words and phrases that are nobody's: of the code that begin small, and of the pages.
WORDS = (*(word for word in PRIVATE if word[0].islower()), "dear", "dearer", "dearest", "hallucinated", "it is said")

GLOSSARY = runpy.run_path(str(ROOT / "docs" / "glossary.py"))


def name_of(page):
    return page.relative_to(ROOT).as_posix().removeprefix("docs/").removesuffix(".md")


def text_of(page):
    return page.read_text(encoding="utf-8")


def test_all_pages_are_short():
    sizes = {name_of(page): len(text_of(page).encode()) for page in PAGES}
    assert {name: size for name, size in sizes.items() if size > LONGEST} == {}
    assert sum(sizes.values()) <= MOST


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_in_the_words_of_the_field(page):
    private = re.compile(rf"\b(?:{'|'.join(WORDS)})s?\b", re.IGNORECASE)
    assert private.findall(text_of(page)) == []


def test_what_users_search_for_is_at_the_top_of_a_page():
    found = {words for page in PAGES for words in GLOSSARY["at_the_top"](text_of(page))}
    assert found == set(GLOSSARY["SEARCHED"])


def test_every_picture_is_on_a_page():
    shown = "".join(map(text_of, PAGES))
    assert [path.name for path in (ROOT / "docs" / "images").iterdir() if path.name not in shown] == []
