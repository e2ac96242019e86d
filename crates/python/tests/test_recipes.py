"""The recipes: notebooks that run from their first cell to their last, which compares with numpy or pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

RECIPES = sorted((Path(__file__).resolve().parents[3] / "docs" / "recipes").glob("*.ipynb"))

#: In a process of its own, with sockets in the file system, which nobody else hears.
EXECUTE = """
import sys, nbclient, nbformat
from jupyter_client.manager import AsyncKernelManager
kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")
try:
    nbclient.NotebookClient(nbformat.read(sys.argv[1], 4), km=kernel, timeout=120).execute()
except nbclient.exceptions.CellExecutionError as error:
    sys.exit(str(error))
"""


def test_there_are_ten():
    assert len(RECIPES) == 10
    page = (RECIPES[0].parent / "README.md").read_text()
    for recipe in RECIPES:
        assert f"({recipe.name})" in page, "each is on the page"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs(path, tmp_path):
    recipe = nbformat.read(path, 4)
    code = [cell for cell in recipe.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "it is kept without outputs: they are other ones elsewhere"
    assert "assert " in code[-1].source and recipe.cells[0].source.startswith("# ")
    environment = os.environ | {"TMPDIR": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    ran = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
