"""Hooks of mkdocs: the documents as a site (mkdocs.yml), without a second list of pages.

The navigation is docs/README.md: its headings and the pages in its tables. Pages outside of docs/ that documents point
at, as CONTRIBUTING.md and the READMEs of folders, are pages of the site below `code/`. Links to other files of the
repository become plain text there, and anchors are those of GitHub.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = "docs"
CODE: Final = "code"  # the folder of the site for pages outside of docs/
_LINK: Final = re.compile(r"(!?)\[([^]\n]*)\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_WHERE: Final = re.compile(r"\A( *```\w+) ([\w -]+)$", re.MULTILINE)  # ```sql db1 db2
_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.nav = [{"Home": "README.md"}, *navigation()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(outside()):
        text = (ROOT / path).read_text("utf-8")
        files.append(File.generated(config, f"{CODE}/{path}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    at = page.file.src_uri
    path = at.removeprefix(f"{CODE}/") if at.startswith(f"{CODE}/") else f"{DOCS}/{at}"

    def link(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return found[0]
        name, hash_, anchor = target.partition("#")
        place = _place_in_site(_resolved(path, name))
        if place is None:
            return f"{text}"
        return f"{image}[{text}]({posixpath.relpath(place, posixpath.dirname(at) or '.')}{hash_}{anchor})"

    return "".join(
        _WHERE.sub(r'\1 title="\2"', part)
        if part.lstrip().startswith("```")
        else _LINK.sub(link, part)
        for part in re.split(rf"({_FENCE.pattern})", markdown, flags=re.MULTILINE | re.DOTALL)
    )


def slug(text: str, separator: str) -> str:
    """An anchor as GitHub makes it of a heading."""
    plain = re.sub(r"<[^>]*>", "", text).lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", separator)


def navigation() -> list[dict[str, list[dict[str, str]]]]:
    """The sections of docs/README.md, each with its pages in their order, each page once."""
    index = (ROOT / DOCS / "README.md").read_text("utf-8")
    seen = {f"{DOCS}/README.md"}
    found = []
    head, *parts = _HEADING.split(index)
    for name, text in [("First", head), *zip(parts[::2], parts[1::2], strict=True)]:
        pages = []
        for _, _, target in _LINK.findall(text):
            path = _resolved(f"{DOCS}/README.md", target.partition("#")[0])
            place = _place_in_site(path) if path.endswith(".md") else None
            if place is not None and path not in seen:
                seen.add(path)
                pages.append({_title(path): place})
        if pages:
            found.append({name: pages})
    rest = sorted(outside() - seen)
    if rest:
        found[-1][name] += [{_title(path): f"{CODE}/{path}"} for path in rest]
    return found


def outside() -> set[str]:
    """Pages outside of docs/ that documents point at, and those that these point at."""
    found: set[str] = set()
    todo = [str(path.relative_to(ROOT)) for path in (ROOT / DOCS).rglob("*.md")]
    while todo:
        for target in _targets(todo.pop()):
            if target.endswith(".md") and not target.startswith(f"{DOCS}/") and target not in found:
                found.add(target)
                todo.append(target)
    return found


def _targets(path: str) -> Iterator[str]:
    for _, _, target in _LINK.findall(_FENCE.sub("", (ROOT / path).read_text("utf-8"))):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            yield _resolved(path, target.partition("#")[0])


def _resolved(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _place_in_site(path: str) -> str | None:
    """Where the file of the repository is in the site; None where it is not there."""
    if path.startswith(f"{DOCS}/"):
        within = path.removeprefix(f"{DOCS}/")
        return within if (ROOT / path).is_file() and not path.endswith((".py", ".toml")) else None
    return f"{CODE}/{path}" if path.endswith(".md") and (ROOT / path).is_file() else None


def _title(path: str) -> str:
    text = _FENCE.sub("", (ROOT / path).read_text("utf-8"))
    found = _TITLE.search(text)
    return found[1].replace("`", "") if found else path
