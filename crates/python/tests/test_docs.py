import doctest
import importlib

import laptime
from helpers import InFolder


class Docs(InFolder):
    def test_the_examples_in_the_docstrings_are_true(self):
        for name in ["laptime", "laptime._marks", "laptime._record", "laptime._reading", "laptime._bench", "laptime._tables"]:
            failed, _ = doctest.testmod(importlib.import_module(name), extraglobs={"laptime": laptime})
            self.assertEqual(failed, 0, name)
