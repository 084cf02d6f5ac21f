//! Transformer parts: configurations, weights, one decoder on CPU and CUDA, its KV cache, and its work.
