"""A hook of MkDocs: pages of the site that are not in docs/, and links to what is outside of it.

Pages are written to be read in the repository, where `../results/README.md` is a link that works.
On the site the same link leads to a page made of that file, or to a copy of it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Files of the repository that are pages of the site, and the page that each becomes.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "results/README.md": "results.md",
}
STARTS = {"README.md": "index.md"}  # pages of docs/ that stand for another file
COPIES = "repository/"  # where everything else that a page links to is copied
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    extensions: list[Any] = config.markdown_extensions
    extensions.append(PlainAngles())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for file in list(files.documentation_pages()):
        for place in _links(file):
            copy = COPIES + place
            if _page(place) is None and files.get_file_from_path(copy) is None:
                files.append(File.generated(config, copy, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them; those to other pages MkDocs then checks."""
    source, here = _source(page.file), posixpath.dirname(page.file.src_uri)

    def translated(link: re.Match[str]) -> str:
        before, target, anchor, after = link.groups()
        place = _place(source, target)
        found = _page(place)
        if found is None and (ROOT / place).is_file():
            found = COPIES + place
        if found is None:
            return link[0]
        return f"{before}{posixpath.relpath(found, here or '.')}{anchor or ''}{after}"

    parts = CODE.split(markdown)
    return "".join(part if CODE.fullmatch(part) else LINK.sub(translated, part) for part in parts)


def _source(file: File) -> str:
    """The file in the repository that a page is made of."""
    return {page: name for name, page in PAGES.items()}.get(file.src_uri, f"docs/{file.src_uri}")


def _place(source: str, target: str) -> str:
    """Where a link of a file leads, from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _page(place: str) -> str | None:
    """The page of the site that a file of the repository is, if it is one."""
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    return (PAGES | STARTS).get(place)


def _links(file: File) -> list[str]:
    """Files of the repository that a page links to."""
    text = CODE.sub("", file.content_string)
    places = [_place(_source(file), link[2]) for link in LINK.finditer(text)]
    return [place for place in places if (ROOT / place).is_file()]


class PlainAngles(Extension):
    """<phi, mu> is an inner product; Markdown would take it for a tag of HTML and show nothing."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.deregister("html")
