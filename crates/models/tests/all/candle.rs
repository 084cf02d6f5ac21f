//! The decoder on the CPU next to a decoder on candle, which is itself compared with every fixture.

use crate::common::{TRAINED, distance, fixture};
use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, Options, Tokens, Weights, cpu,
};

/// One of each kind: norms by head and a tied head; biases; scaled RoPE.
const MODELS: [&str; 3] = ["tiny", "tiny-qwen2", "tiny-llama"];

fn decoder(config: &Config, weights: &Weights, attention: Attention) -> Box<dyn Decoder> {
    let options = Options {
        dtype: Dtype::F32,
        attention,
        kept: None,
        batch: 1,
        capacity: CacheCapacity::Growing,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    };
    cpu::decoder(config.clone(), weights, options, 2).unwrap()
}

#[test]
fn the_reference_gives_the_logits_of_every_fixture_that_can_be_trained() {
    for name in TRAINED {
        let fixture = fixture(name);
        let logits = crate::reference::logits(&fixture.config, &fixture.weights, &fixture.tokens()).unwrap();
        assert!(distance(&logits, &fixture.logits()) < 1e-4, "{name}");
    }
}

#[test]
fn logits_match_the_reference_in_forward_prefill_and_step() {
    for model in MODELS {
        let config = Config::from_preset(model).unwrap();
        let weights = Weights::synthetic(&config, 3);
        let ids: Vec<u32> = (0..70).map(|at| (at * 7919 % 500) as u32).collect();
        let expected = crate::reference::logits(&config, &weights, &Tokens::one(ids.clone())).unwrap();
        let row = |at: usize| &expected[at * config.vocab..][..config.vocab];
        for attention in [Attention::Naive, Attention::Dense] {
            let mut decoder = decoder(&config, &weights, attention);
            decoder.forward(&Tokens::one(ids.clone())).unwrap();
            assert!(distance(&decoder.logits().unwrap(), &expected) < 1e-5, "{model} {attention:?}");
            decoder.prefill(&Tokens::one(ids[..60].to_vec())).unwrap();
            for at in 60..70 {
                assert!(distance(&decoder.logits().unwrap(), row(at - 1)) < 1e-4, "{model} {attention:?} at {at}");
                decoder.set_next(&ids[at..=at]).unwrap();
                decoder.step().unwrap();
            }
        }
    }
}
