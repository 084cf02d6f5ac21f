"""Weights by the formula of `crates/models/src/synthetic.rs`, in 32 bits throughout."""

import math

import numpy
import torch

MASK = 0xFFFFFFFF


def mix(h):
    h = h ^ (h >> numpy.uint32(16))
    h = h * numpy.uint32(0x85EBCA6B)
    h = h ^ (h >> numpy.uint32(13))
    h = h * numpy.uint32(0xC2B2AE35)
    return h ^ (h >> numpy.uint32(16))


def key_of(seed, name):
    key = 0xCBF29CE484222325
    for byte in seed.to_bytes(8, "little") + name.encode():
        key = ((key ^ byte) * 0x100000001B3) & (2**64 - 1)
    return key


def numbers(key, count, deviation):
    """The numbers of `synthetic::value`, in 32 bits throughout."""
    with numpy.errstate(over="ignore"):
        outer = mix(mix(numpy.array([key & MASK], numpy.uint32)) ^ numpy.uint32(key >> 32))
        hashes = mix(numpy.arange(count, dtype=numpy.uint32) ^ outer)
    u = (hashes >> numpy.uint32(8)).astype(numpy.float32) * numpy.float32(2.0**-24)
    amplitude = numpy.float32(math.sqrt(3.0) * deviation)
    return amplitude * (numpy.float32(2.0) * u - numpy.float32(1.0))


def tensor(seed, name, shape, deviation, mean=0.0):
    made = numbers(key_of(seed, name), math.prod(shape), deviation).reshape(shape)
    return torch.from_numpy(made + numpy.float32(mean) if mean else made)
