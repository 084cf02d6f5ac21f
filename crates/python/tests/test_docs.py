import ast
import doctest
import importlib
import importlib.util
import json
import pathlib
import re

import laptime
from helpers import InFolder

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(source, names):
    """Runs a cell like a notebook: the value of a last expression is returned."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


class Docs(InFolder):
    def test_the_examples_in_the_docstrings_are_true(self):
        for name in ["laptime", "laptime._marks", "laptime._record", "laptime._reading", "laptime._bench", "laptime._tables"]:
            failed, _ = doctest.testmod(importlib.import_module(name), extraglobs={"laptime": laptime})
            self.assertEqual(failed, 0, name)

    def test_the_blocks_of_the_page_run_one_after_the_other(self):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.DOTALL | re.MULTILINE)
        self.assertGreaterEqual(len(blocks), 5)
        has_torch = importlib.util.find_spec("torch") is not None
        names = {}
        for block in blocks:
            if has_torch or "import torch" not in block:
                run(block, names)

    def test_the_notebook_runs_and_shows_tables_and_the_page(self):
        cells = json.loads((ROOT / "examples/python/training.ipynb").read_text())["cells"]
        names, shown = {}, []
        for cell in cells:
            if cell["cell_type"] == "code":
                shown.append(run("".join(cell["source"]), names))
        pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
        self.assertEqual(len(pages), 5)
        self.assertIn("load", pages[0])
        self.assertIn("<iframe", pages[-1])
