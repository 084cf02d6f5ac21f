import importlib.util
import unittest

import laptime
from helpers import InFolder


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch; `WITH=torch scripts/wheel` runs it")
class Torch(InFolder):
    def model(self):
        import torch

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(4, 4)
                self.second = torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.second(torch.relu(self.first(x)))

        return torch.nn.Sequential(Block(), torch.nn.Linear(4, 1))

    def test_modules_are_marked_in_forward_and_backward_and_no_more_after_removal(self):
        import torch

        import laptime.torch

        model = self.model()
        with laptime.record("trace.pftrace", gpu=False) as recording:
            with laptime.torch.watch(model, depth=2) as watched:
                model(torch.ones(2, 4)).sum().backward()
            model(torch.ones(2, 4)).sum().backward()
        self.assertEqual(watched.names, ["Sequential", "0", "0.first", "0.second", "1"])
        rows = recording.read().spans().rows()
        forward = [row["name"] for row in rows if not row["name"].endswith("backward")]
        self.assertEqual(forward, ["Sequential", "0", "0.first", "0.second", "1"])
        backward = {row["name"] for row in rows if row["name"].endswith("backward")}
        self.assertEqual(backward, {f"{name} backward" for name in watched.names})

    def test_a_forward_that_raises_ends_its_stages(self):
        import torch

        import laptime.torch

        model = self.model()
        with laptime.record("trace.pftrace", gpu=False) as recording, laptime.torch.watch(model):
            with self.assertRaises(RuntimeError):
                model(torch.ones(2, 3))
            with laptime.stage("after"):
                pass
        rows = recording.read().spans().rows()
        self.assertEqual([row["parent"] for row in rows if row["name"] == "after"], [None])

    def test_compiled_modules_are_marked_as_a_whole(self):
        import torch

        import laptime.torch

        model = self.model()
        model[0] = torch.compile(model[0], backend="eager")
        watched = laptime.torch.watch(model, depth=3)
        self.assertEqual((watched.names, watched.compiled), (["Sequential", "0", "1"], ["0"]))
        watched.remove()

    def test_the_backward_pass_of_a_compiled_module_ends_after_its_gradients(self):
        import torch

        import laptime.torch

        model = self.model()
        model[0] = torch.compile(model[0], backend="eager")
        for parameter in model[0].parameters():
            parameter.register_hook(lambda _: laptime.stage("gradient").__enter__().__exit__(None, None, None))
        inputs = torch.ones(2, next(model.parameters()).shape[1], requires_grad=True)
        with laptime.record("trace.pftrace", gpu=False) as recording, laptime.torch.watch(model, depth=1):
            model(inputs).sum().backward()
        rows = recording.read().spans().rows()
        parents = [rows[row["parent"]]["name"] for row in rows if row["name"] == "gradient"]
        self.assertEqual(parents, ["0 backward"] * 4, rows)

    def test_the_benchmark_of_the_course_runs_on_a_module(self):
        import torch

        from laptime.course import benchmark_forward, benchmark_forward_backward, generate_random_batch

        model = torch.nn.Sequential(torch.nn.Embedding(16, 4), torch.nn.Linear(4, 16))
        batch = generate_random_batch(2, 8, 16)
        self.assertGreater(benchmark_forward(model, batch, warmup_steps=1, measure_steps=3)[0], 0)
        mean, std = benchmark_forward_backward(model, batch, warmup_steps=1, measure_steps=3)
        self.assertTrue(mean > 0 and std >= 0)

    def test_memory_without_a_gpu_records_nothing(self):
        import laptime.torch

        with laptime.record("trace.pftrace", gpu=False) as recording:
            laptime.torch.memory()
        self.assertEqual(recording.spans, 0)
