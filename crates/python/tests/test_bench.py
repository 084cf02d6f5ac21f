import laptime
from helpers import InFolder


class Bench(InFolder):
    def test_a_function_runs_as_often_as_was_asked(self):
        calls = []
        timings = laptime.bench(calls.append, 1, warmup=2, iterations=7)
        self.assertEqual((len(calls), len(timings.warmup), len(timings.iterations)), (9, 2, 7))
        low, high = timings.interval
        self.assertTrue(low <= timings.median <= high)
        self.assertEqual(timings["n"], [7])

    def test_an_exception_of_the_function_comes_through(self):
        def fails():
            raise ZeroDivisionError("no")

        with self.assertRaises(ZeroDivisionError):
            laptime.bench(fails)
        with self.assertRaises(ZeroDivisionError):
            laptime.ab(fails, fails)

    def test_settings_and_devices_that_make_no_sense_are_refused(self):
        with self.assertRaises(laptime.BenchError):
            laptime.bench(int, iterations=0)
        for device in ["tpu", "cuda"]:
            with self.assertRaises(laptime.DeviceError) as refused:
                laptime.bench(int, device=device)
            self.assertIsNotNone(refused.exception.hint)

    def test_two_functions_are_compared_in_blocks(self):
        table = laptime.ab(lambda: None, lambda: sum(range(20_000)), blocks=5, warmup=1, seed=1)
        self.assertEqual(table["blocks"], [5, 5])
        self.assertIn(table.facts["verdict"], ["faster", "slower", "same", "unclear"])
        self.assertNotIn("process", str(table))

    def test_the_snippet_of_the_course_runs_on_our_models(self):
        from laptime.course import MODEL_CONFIGS, benchmark_forward, benchmark_forward_backward
        from laptime.course import create_model, generate_random_batch

        self.assertEqual(MODEL_CONFIGS["small"]["d_model"], 768)
        config = MODEL_CONFIGS["small"]
        model = create_model(config, context_length=8, num_layers=1, d_model=32, num_heads=2, d_ff=64, vocab_size=64)
        input_ids = generate_random_batch(2, 8, 64, device="cpu")
        mean_time, std_time = benchmark_forward_backward(model, input_ids, warmup_steps=1, measure_steps=3)
        self.assertTrue(mean_time > 0 and std_time >= 0)
        times = benchmark_forward(model, input_ids, warmup_steps=1, measure_steps=3)
        self.assertEqual(len(times.timings.iterations), 3)

    def test_modules_are_imported_when_they_are_used(self):
        self.assertEqual(laptime.course.MODEL_CONFIGS["2.7B"]["name"], "2.7B")
        with self.assertRaises(AttributeError):
            laptime.nothing

    def test_a_model_refuses_sizes_that_it_does_not_have(self):
        from laptime.course import MODEL_CONFIGS, create_model, generate_random_batch

        with self.assertRaises(laptime.BenchError):
            create_model(MODEL_CONFIGS["small"], width=3)
        model = create_model(MODEL_CONFIGS["small"], context_length=4, num_layers=1, d_model=32, num_heads=2, d_ff=64, vocab_size=8)
        with self.assertRaises(laptime.BenchError):
            model(generate_random_batch(1, 4, 10_000))
        with self.assertRaises(laptime.DeviceError):
            create_model(MODEL_CONFIGS["small"], device="tpu")
