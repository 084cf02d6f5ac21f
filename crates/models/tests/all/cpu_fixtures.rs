//! The decoder on the CPU against what the official implementation makes of tiny models.

use crate::common::{FIXTURES, Fixture, distance, fixture};
use laptime_models::{Attention, CacheCapacity, Decoder, Dtype, GraphMode, Marks, Options, Tokens, cpu};

/// How far a logit of f32 may be from the expected one.
const WITHIN: f32 = 1e-4;

const KINDS: [Attention; 2] = [Attention::Naive, Attention::Dense];

fn decoder(
    fixture: &Fixture,
    dtype: Dtype,
    attention: Attention,
    capacity: CacheCapacity,
    batch: usize,
) -> Box<dyn Decoder> {
    let options = Options {
        dtype,
        attention,
        kept: None,
        batch,
        capacity,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    };
    cpu::decoder(fixture.config.clone(), &fixture.weights, options, 2).unwrap()
}

#[test]
fn logits_of_every_position_match_the_fixtures() {
    for name in FIXTURES {
        let fixture = fixture(name);
        for attention in KINDS {
            let mut decoder = decoder(&fixture, Dtype::F32, attention, CacheCapacity::Growing, 2);
            decoder.forward(&fixture.tokens()).unwrap();
            let off = distance(&decoder.logits().unwrap(), &fixture.logits());
            assert!(off < WITHIN, "{name}, {attention:?}: {off}");
        }
    }
}

#[test]
fn greedy_tokens_match_the_fixtures() {
    for name in FIXTURES {
        let fixture = fixture(name);
        let steps = fixture.expected.greedy[0].len();
        for (attention, capacity) in [
            (KINDS[0], CacheCapacity::Growing),
            (KINDS[1], CacheCapacity::Growing),
            (KINDS[1], CacheCapacity::Static(64)),
        ] {
            let mut decoder = decoder(&fixture, Dtype::F32, attention, capacity, 2);
            decoder.prefill(&fixture.tokens()).unwrap();
            let off = distance(&decoder.logits().unwrap(), &fixture.last_logits());
            assert!(off < WITHIN, "{name}, {attention:?}: {off}");
            for step in 0..steps {
                assert_eq!(decoder.sampled().unwrap(), fixture.greedy(step), "{name}, {attention:?}, step {step}");
                decoder.step().unwrap();
            }
        }
    }
}

#[test]
fn a_sequence_gives_the_same_alone_and_in_a_batch() {
    for name in FIXTURES {
        let fixture = fixture(name);
        let mut decoder = decoder(&fixture, Dtype::F32, Attention::Dense, CacheCapacity::Growing, 1);
        for (ids, expected) in fixture.expected.ids.iter().zip(&fixture.expected.logits) {
            decoder.forward(&Tokens::one(ids.clone())).unwrap();
            let off = distance(&decoder.logits().unwrap(), &expected.concat());
            assert!(off < WITHIN, "{name}: {off}");
        }
    }
}

#[test]
fn f16_samples_the_expected_tokens_and_bf16_comes_close() {
    for name in FIXTURES {
        let fixture = fixture(name);
        let expected = fixture.logits();
        let spread = expected.iter().fold(0.0, |most: f32, logit| most.max(logit.abs()));
        for attention in KINDS {
            for (dtype, within) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.06)] {
                let mut decoder = decoder(&fixture, dtype, attention, CacheCapacity::Growing, 2);
                decoder.forward(&fixture.tokens()).unwrap();
                let off = distance(&decoder.logits().unwrap(), &expected) / spread;
                assert!(off < within, "{name}, {attention:?}, {dtype}: {off}");
            }
            let mut decoder = decoder(&fixture, Dtype::F16, attention, CacheCapacity::Growing, 2);
            decoder.prefill(&fixture.tokens()).unwrap();
            assert_eq!(decoder.sampled().unwrap(), fixture.greedy(0), "{name}, {attention:?}");
        }
    }
}
