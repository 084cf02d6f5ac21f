"""A training loop on the stand-in for CUDA. Loading a batch keeps the GPU waiting."""

import ctypes
import time

cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
cuda.cuInit(0)
cupti = ctypes.CDLL("libcupti.so.13", mode=ctypes.RTLD_GLOBAL)
cupti.stand_in_context()


def load_batch():
    time.sleep(0.02)  # the planted fault


def step():
    for name in (b"gemm", b"softmax", b"gemm"):
        cupti.stand_in_kernel(ctypes.c_char_p(name), 1, ctypes.c_uint64(100_000))


for _ in range(150):
    load_batch()
    step()
