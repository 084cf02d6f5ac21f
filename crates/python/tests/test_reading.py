import laptime
from helpers import InFolder

try:
    import pandas
except ImportError:
    pandas = None
try:
    import polars
except ImportError:
    polars = None
try:
    import pyarrow
except ImportError:
    pyarrow = None


class Reading(InFolder):
    def trace(self, stages=3):
        with laptime.record("trace.pftrace"):
            for number in range(stages):
                with laptime.stage("work", number=number):
                    pass
        return laptime.read("trace.pftrace")

    def test_a_table_prints_as_the_command_prints_it(self):
        trace = self.trace()
        self.assertEqual(trace.stages().text(width=2000), self.laptime("stages", "trace.pftrace"))
        self.assertEqual(trace.top(most=1).text(width=2000), self.laptime("top", "trace.pftrace", "--most", "1"))

    def test_tables_have_columns_rows_facts_and_html(self):
        table = self.trace().stages()
        self.assertEqual((table["name"], table["count"], len(table)), (["work"], [3], 1))
        self.assertEqual(table.rows()[0]["count"], 3)
        self.assertEqual(table.facts["dropped_events"], 0)
        self.assertIn("<table", table._repr_html_())
        with self.assertRaises(laptime.LaptimeError) as missing:
            table["nothing"]
        self.assertIn("host_ms", missing.exception.hint)

    def test_machines_get_all_rows_and_people_the_longest(self):
        with laptime.record("trace.pftrace"):
            for number in range(60):
                with laptime.stage(f"stage {number}"):
                    pass
        table = laptime.read("trace.pftrace").stages()
        self.assertEqual(len(table), 60)
        self.assertLess(len(str(table).splitlines()), 55)

    def test_options_are_the_flags_of_the_command(self):
        trace = self.trace()
        self.assertIn("group", trace.top(by="group").columns)
        self.assertEqual(len(trace.top(most=1)), 1)
        with self.assertRaises(laptime.LaptimeError) as refused:
            trace.top(by="colour")
        self.assertIn("colour", str(refused.exception))

    def test_traces_are_compared(self):
        a, b = self.trace(), self.trace()
        self.assertEqual(a.compare(b)["name"][-1], "total")

    def test_bad_input_raises_with_a_hint(self):
        (self.folder / "text.json").write_text("no trace")
        for name in ["missing.json", "text.json", "."]:
            with self.assertRaises(laptime.ReadError) as failed:
                laptime.read(name)
            self.assertIsNotNone(failed.exception.hint, name)
            self.assertIn(failed.exception.hint, str(failed.exception))
        with self.assertRaises(laptime.LaptimeError) as failed:
            self.trace().gaps()
        self.assertIn("no GPU work", str(failed.exception))

    def test_runs_of_benchmarks_are_read_and_compared(self):
        words = ["bench", "matmul", "--size", "16", "--iterations", "2", "--warmup", "0"]
        self.laptime(*words, "--out", "a")
        self.laptime(*words, "--out", "b")
        a, b = laptime.read("a"), laptime.read("b")
        self.assertEqual((a.cases()["size"], a.cases()["n"]), ([16], [2]))
        self.assertEqual(a.compare(b)["verdict"], ["unclear"])

    def test_the_page_of_a_trace_can_be_shown_inline(self):
        page = self.trace().page()
        self.assertTrue(page.html.startswith("<!doctype html>") or page.html.startswith("<!DOCTYPE html>"))
        self.assertIn("srcdoc=", page._repr_html_())
        page.save("report.html")
        self.assertTrue((self.folder / "report.html").is_file())

    def test_ctrl_c_ends_a_long_call(self):
        printed = self.python(
            "import laptime, os, signal, threading\n"
            "os.mkfifo('pipe')\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have switched it off\n"
            "def interrupt():\n"
            "    global pipe\n"
            "    pipe = os.open('pipe', os.O_WRONLY)  # waits until somebody reads\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "try:\n"
            "    threading.Thread(target=interrupt).start()\n"
            "    laptime.read('pipe')\n"
            "except KeyboardInterrupt: print('interrupted', flush=True)\n"
            "os._exit(0)\n"
        )
        self.assertEqual(printed, "interrupted\n")

    def test_numbers_are_read_where_they_lie(self):
        column = self.trace().spans()._data.all_columns()[2]
        interface = column.__array_interface__
        self.assertEqual((column.name, interface["shape"], interface["typestr"]), ("start_ns", (3,), "<u8"))

    if pandas is not None:

        def test_pandas_gets_numbers_categories_and_gaps(self):
            trace = self.trace()
            frame = trace.spans(["number"]).to_pandas()
            self.assertEqual(list(frame["name"]), ["work"] * 3)
            self.assertEqual(str(frame["name"].dtype), "category")
            self.assertEqual(list(frame["number"]), [0, 1, 2])
            self.assertEqual(int(trace.stages().to_pandas()["count"][0]), 3)

    if polars is not None:

        def test_polars_reads_the_arrow_stream(self):
            trace = self.trace()
            frame = trace.spans(["number"]).to_polars()
            self.assertEqual(frame["name"].to_list(), ["work"] * 3)
            self.assertEqual(frame["parent"].to_list(), [None] * 3)
            del trace
            self.assertEqual(frame["number"].sum(), 3)

    if pyarrow is not None:

        def test_arrow_shares_the_memory_of_the_trace(self):
            spans = self.trace().spans()
            table = spans.to_arrow()
            self.assertEqual(table["name"].to_pylist(), ["work"] * 3)
            address = table["start_ns"].chunk(0).buffers()[1].address
            self.assertEqual(address, spans._data.all_columns()[2].__array_interface__["data"][0])
            self.assertEqual(pyarrow.schema(spans), table.schema)
