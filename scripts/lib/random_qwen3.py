"""Writes the same random weights of Qwen3-0.6B as a GGUF file and as a folder with a checkpoint, in f16 or bf16.

    random_qwen3.py FOLDER f16|bf16

The folder gets `model.gguf`, `config.json` and `model.safetensors`. Needs numpy and gguf.
"""

import json
import pathlib
import sys

import gguf
import numpy

HIDDEN, LAYERS, FFN, HEADS, KV_HEADS, HEAD, VOCABULARY, CONTEXT = 1024, 28, 3072, 16, 8, 128, 151_936, 40_960
LAYER = [
    ("attn_norm", "input_layernorm", (HIDDEN,)),
    ("attn_q", "self_attn.q_proj", (HEADS * HEAD, HIDDEN)),
    ("attn_k", "self_attn.k_proj", (KV_HEADS * HEAD, HIDDEN)),
    ("attn_v", "self_attn.v_proj", (KV_HEADS * HEAD, HIDDEN)),
    ("attn_q_norm", "self_attn.q_norm", (HEAD,)),
    ("attn_k_norm", "self_attn.k_norm", (HEAD,)),
    ("attn_output", "self_attn.o_proj", (HIDDEN, HEADS * HEAD)),
    ("ffn_norm", "post_attention_layernorm", (HIDDEN,)),
    ("ffn_gate", "mlp.gate_proj", (FFN, HIDDEN)),
    ("ffn_up", "mlp.up_proj", (FFN, HIDDEN)),
    ("ffn_down", "mlp.down_proj", (HIDDEN, FFN)),
]
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
    "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
    "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rope_theta": 1_000_000, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
}


def tensors():
    """GGUF's name, the checkpoint's name and the shape of each tensor."""
    yield "token_embd", "model.embed_tokens", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        for short, long, shape in LAYER:
            yield f"blk.{layer}.{short}", f"model.layers.{layer}.{long}", shape
    yield "output_norm", "model.norm", (HIDDEN,)


def halves(numbers, dtype):
    """The bits of f32 numbers in a dtype of 16 bits; bf16 is cut off."""
    return numbers.astype("<f2").view("<u2") if dtype == "f16" else (numbers.view("<u4") >> 16).astype("<u2")


def writer_of(path, dtype):
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if dtype == "f16" else gguf.LlamaFileType.MOSTLY_BF16)
    # A vocabulary must be there, though nothing is tokenized.
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{token}>" for token in range(VOCABULARY)])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
    writer.add_token_merges(["<0> <1>"])
    writer.add_eos_token_id(CONFIG["eos_token_id"])
    return writer


def main(folder, dtype):
    random = numpy.random.default_rng(0)
    writer = writer_of(folder / "model.gguf", dtype)
    kind = gguf.GGMLQuantizationType.F16 if dtype == "f16" else gguf.GGMLQuantizationType.BF16
    header, at = {}, 0
    with open(folder / "numbers", "wb") as numbers:
        for short, long, shape in tensors():
            is_norm = len(shape) == 1
            values = numpy.ones(shape, "<f4") if is_norm else random.standard_normal(shape, "<f4") * numpy.float32(0.02)
            bits = halves(values, dtype)
            if is_norm:
                writer.add_tensor(f"{short}.weight", values)
            else:
                writer.add_tensor(f"{short}.weight", bits.view(numpy.uint8), raw_dtype=kind)
            numbers.write(bits.tobytes())
            entry = {"dtype": dtype.upper(), "shape": shape, "data_offsets": [at, at + bits.nbytes]}
            header[f"{long}.weight"], at = entry, at + bits.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file, open(folder / "numbers", "rb") as numbers:
        file.write(len(text).to_bytes(8, "little") + text)
        while block := numbers.read(1 << 24):
            file.write(block)
    (folder / "numbers").unlink()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "torch_dtype": {"f16": "float16", "bf16": "bfloat16"}[dtype]}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
