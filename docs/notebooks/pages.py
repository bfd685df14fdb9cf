"""Pages of the notebooks: a hook of MkDocs that shows each notebook as it is stored, with what its cells have put out.

Nothing is run here, and no plugin is needed: text becomes Markdown, and HTML and pictures stay as they are.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DOWNLOAD = "\n\n[Download this notebook]({name}){{download}}\n\n"
LINK = re.compile(r"(\]\([\w./-]+)\.ipynb\)(?!\{)")
SERVED = re.compile(r'<a href="http://127\.0\.0\.1[^>]*>(.*?)</a>', re.DOTALL)  # by a process that has ended


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook beside it."""
    for file in [one for one in files if one.src_uri.endswith(".ipynb")]:
        page = page_of(json.loads(file.content_string), Path(file.src_uri).name)
        files.append(File.generated(config, str(Path(file.src_uri).with_suffix(".md")), content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to notebooks lead to their pages here; where files are looked at, to the notebooks."""
    return LINK.sub(r"\1.md)", markdown)


def page_of(notebook: dict[str, Any], name: str) -> str:
    """A notebook as Markdown; a link to the file `name` follows its title."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            title, _, rest = source.partition("\n")
            parts.append(title + DOWNLOAD.format(name=name) + rest if not parts else source)
        else:
            parts += [fenced(source, "python"), *map(shown, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def shown(output: dict[str, Any]) -> str:
    """One output of a cell: its HTML or picture if it has one, or its text."""
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    if "text/html" in data:
        return f'<div class="output">{SERVED.sub(lambda link: link[1], data["text/html"])}</div>'
    if "image/png" in data:
        size = output["metadata"].get("image/png", {}).get("width", 550)
        png = data["image/png"].replace("\n", "")
        return f'<div class="output"><img alt="" style="width:{size}px" src="data:image/png;base64,{png}"></div>'
    return fenced(data.get("text/plain", "".join(output.get("text", ""))).rstrip(), "text")


def fenced(text: str, language: str) -> str:
    """A block of code, whatever backticks are in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"
