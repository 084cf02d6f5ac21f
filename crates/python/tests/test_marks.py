import asyncio
import threading

import laptime
from helpers import InFolder


class Marks(InFolder):
    def recorded(self, program):
        with laptime.record("trace.pftrace") as recording:
            program()
        self.assertEqual(recording.dropped, 0)
        return recording.read()

    def rows(self, trace, fields=()):
        return trace.spans(fields).rows()

    def test_a_stage_is_a_span_with_its_fields(self):
        def program():
            with laptime.stage("prefill", tokens=512, ratio=0.5, name_of="a", is_first=True, shape=(1, 2)):
                with laptime.stage("inner"):
                    pass

        outer, inner = self.rows(self.recorded(program), ["tokens", "ratio", "name_of", "is_first", "shape"])
        self.assertEqual((outer["name"], outer["parent"], inner["name"], inner["parent"]), ("prefill", None, "inner", 0))
        fields = [outer[name] for name in ["tokens", "ratio", "name_of", "is_first", "shape"]]
        self.assertEqual(fields, [512, 0.5, "a", True, "(1, 2)"])
        self.assertIsNone(inner["tokens"])

    def test_nothing_is_recorded_before_and_after(self):
        with laptime.stage("before"):
            trace = self.recorded(lambda: None)
        self.assertEqual(self.names(trace), [])
        self.assertFalse(laptime.is_recording())

    def test_a_stage_that_began_before_the_recording_does_not_end_one_inside_it(self):
        outer = laptime.stage("work")
        with outer:
            with laptime.record("trace.pftrace") as recording:
                with outer:
                    with laptime.stage("inner"):
                        pass
        self.assertEqual([row["parent"] for row in self.rows(recording.read())], [None, 0])

    def test_functions_generators_and_coroutines_are_decorated_with_and_without_a_name(self):
        @laptime.stage
        def plain(number):
            return number + 1

        @laptime.stage("chosen", layer=3)
        def named():
            return 2

        @laptime.stage("numbers")
        def numbers():
            yield 1
            yield 2

        @laptime.stage("waits")
        async def waits():
            return 4

        def program():
            self.assertEqual((plain(1), named(), list(numbers()), asyncio.run(waits())), (2, 2, [1, 2], 4))

        rows = self.rows(self.recorded(program), ["layer"])
        self.assertEqual([row["name"].split(".")[-1] for row in rows], ["plain", "chosen", "numbers", "waits"])
        self.assertEqual(rows[1]["layer"], 3)
        self.assertEqual(plain.__name__, "plain")

    def test_laps_contain_the_wait_for_the_next_item(self):
        trace = self.recorded(lambda: list(laptime.laps(range(3), "step")))
        rows = self.rows(trace, ["lap"])
        self.assertEqual([row["lap"] for row in rows if row["name"] == "step"], [0, 1, 2])
        inside = [rows[row["parent"]]["name"] for row in rows if row["name"] == "next" and row["parent"] is not None]
        self.assertEqual(inside, ["step"] * 3)
        self.assertEqual(len(trace.laps()), 2)

    def test_a_loop_that_is_left_ends_its_lap(self):
        def program():
            for number in laptime.laps(range(10), "step"):
                if number == 1:
                    break
            with laptime.stage("after"):
                pass

        rows = self.rows(self.recorded(program))
        self.assertEqual([row["parent"] for row in rows if row["name"] == "after"], [None])

    def test_an_exception_ends_the_stage_and_keeps_the_trace(self):
        with self.assertRaises(ValueError):
            with laptime.record("trace.pftrace"):
                with laptime.stage("fails"):
                    raise ValueError("no")
        self.assertEqual(self.names(laptime.read("trace.pftrace")), ["fails"])

    def test_threads_have_tracks_of_their_own(self):
        def program():
            def work():
                with laptime.stage("work"):
                    pass

            threads = [threading.Thread(target=work) for _ in range(3)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]

        tracks = [row["track"] for row in self.rows(self.recorded(program))]
        self.assertEqual(len(set(tracks)), 3)

    def test_tasks_that_overlap_have_tracks_of_their_own(self):
        async def task(number, barrier):
            with laptime.stage("task", number=number):
                barrier[0] += 1
                while barrier[0] < 3:
                    await asyncio.sleep(0)
                with laptime.stage("inner"):
                    await asyncio.sleep(0)

        async def main():
            barrier = [0]
            await asyncio.gather(*[task(number, barrier) for number in range(3)])

        rows = self.rows(self.recorded(lambda: asyncio.run(main())))
        self.assertEqual(len({row["track"] for row in rows}), 3)
        parents = [rows[row["parent"]] for row in rows if row["name"] == "inner"]
        self.assertEqual([parent["name"] for parent in parents], ["task"] * 3)
        self.assertEqual(len({parent["track"] for parent in parents}), 3)

    def test_tasks_one_after_the_other_stay_on_their_thread(self):
        async def task():
            with laptime.stage("task"):
                await asyncio.sleep(0)

        async def main():
            await task()
            await asyncio.create_task(task())

        rows = self.rows(self.recorded(lambda: asyncio.run(main())))
        self.assertEqual({row["kind"] for row in rows}, {"host thread"})

    def test_a_sync_knows_its_line(self):
        def program():
            with laptime.sync_point():
                pass
            with laptime.sync_point():
                pass

        rows = self.rows(self.recorded(program), ["file", "line"])
        self.assertEqual([row["category"] for row in rows], ["sync", "sync"])
        self.assertEqual(rows[1]["line"] - rows[0]["line"], 2)
        self.assertEqual({row["file"] for row in rows}, {__file__})

    def test_values_and_marks_are_in_the_trace(self):
        def program():
            laptime.value("loss", 0.5)
            laptime.value("memory", 7, unit="bytes")
            laptime.mark("saved", step=3)

        self.recorded(program)
        self.laptime("convert", "trace.pftrace", "trace.json")
        text = (self.folder / "trace.json").read_text()
        for expected in ["loss", "memory", "bytes", "saved"]:
            self.assertIn(expected, text)

    def test_bad_arguments_are_refused(self):
        with self.assertRaises(TypeError):
            laptime.stage(3)
        with self.assertRaises(TypeError):
            laptime.stage("name")(3)
        with laptime.record("trace.pftrace"), self.assertRaises(ValueError):
            laptime.value("loss", "high")
