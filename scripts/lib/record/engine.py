"""The process structure of vLLM: a front end that spawns an engine process, which does the work."""
import multiprocessing

import torch


def engine(requests, answers):
    a = torch.randn(1024, 1024, device="cuda")
    while (count := requests.get()) is not None:
        torch.cuda.nvtx.range_push("execute_model")
        for _ in range(count):
            a = torch.mm(a, a).clamp_(-1, 1)
        answers.put(a.sum().item())
        torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    requests, answers = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=engine, args=(requests, answers), name="EngineCore")
    process.start()
    for _ in range(50):
        requests.put(20)
        answers.get(timeout=120)
    requests.put(None)
    process.join()
    print("engine exit code", process.exitcode)
