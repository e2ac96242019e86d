"""What the site changes of the pages: links that lead out of docs/ go to the repository."""

import posixpath
import re

LINK = re.compile(r"(\[[^\]\n]*\]\()((?:\.\./)+[^)#\s]+)((?:#[^)\s]*)?\))")
# GitHub shows a notebook; a site does not.
NOTEBOOK = re.compile(r"(\[[^\]\n]*\]\()([^)\s/]+\.ipynb)(\))")


def on_page_markdown(markdown, page, config, files):
    directory = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def outward(match):
        path = posixpath.normpath(posixpath.join(directory, match[2]))
        if path.startswith("docs/"):
            return match[0]
        return f"{match[1]}{config.repo_url}/blob/main/{path}{match[3]}"

    def notebook(match):
        return f"{match[1]}{config.repo_url}/blob/main/{directory}/{match[2]}{match[3]}"

    return NOTEBOOK.sub(notebook, LINK.sub(outward, markdown))
