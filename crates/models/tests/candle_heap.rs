//! A decoder on candle uses no more memory than was predicted, and not far less.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod counting;

use laptime_models::{
    Attention, Config, Decoder, Dtype, GraphMode, Marks, Options, Room, Tokens, Weights,
    candle::{CandleDecoder, needed_bytes, threads},
    cpu::Pass,
};

/// What the process may allocate beside the decoder: its threads' first words, and the harness.
const BESIDE: u64 = 1 << 20;

/// Tokens of each sequence.
const TOKENS: usize = 120;

/// Models in which one part or another is the widest: scores, logits, the feed-forward part, the weights.
fn models() -> Vec<Config> {
    let tiny = Config::from_preset("tiny").unwrap();
    let scores = Config { hidden: 128, heads: 16, kv_heads: 2, head_dim: 64, ..tiny.clone() };
    let logits = Config { vocab: 30_000, hidden: 64, ..tiny.clone() };
    let ffn = Config { hidden: 128, ffn: 4096, ffn_bias: true, qkv_bias: true, ..tiny.clone() };
    let heads = Config { hidden: 64, heads: 24, kv_heads: 24, head_dim: 64, layers: 4, ..tiny };
    vec![scores, logits, ffn, heads]
}

/// Runs a decoder from its beginning.
fn run(config: &Config, options: &Options, pass: Pass) {
    let weights = Weights::synthetic(config, 1);
    let mut decoder = CandleDecoder::new(config.clone(), &weights, options.clone(), threads()).unwrap();
    let ids = vec![3; options.batch * TOKENS];
    match pass {
        Pass::Forward => decoder.forward(&Tokens { ids, batch: options.batch }).unwrap(),
        Pass::Cached => {
            let first = ids[..options.batch * (TOKENS - 2)].to_vec();
            decoder.prefill(&Tokens { ids: first, batch: options.batch }).unwrap();
            decoder.step().unwrap();
            decoder.step().unwrap();
        }
    }
}

/// One test alone: the counts are the whole process's.
#[test]
fn a_decoder_uses_no_more_than_was_predicted() {
    for config in models() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            for (pass, room) in
                [(Pass::Forward, Room::Growing), (Pass::Cached, Room::Growing), (Pass::Cached, Room::Static(512))]
            {
                let (attention, graph, marks) = (Attention::Naive, GraphMode::Auto, Marks::default());
                let options = Options { dtype, attention, kept: None, batch: 2, room, graph, marks, offload: None };
                let needed = needed_bytes(&config, &options, pass, TOKENS, threads());
                let peak = counting::peak_of(|| run(&config, &options, pass));
                assert!(peak <= needed + BESIDE, "{dtype} {pass:?} {room:?}: {peak} of {needed}");
                assert!(peak + 2 * BESIDE >= needed / 2, "{dtype} {pass:?} {room:?}: {peak} of {needed}");
            }
        }
    }
}
