//! The decoder on candle: it does what is expected of every fixture, and what the decoder of ours does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{FIXTURES, distance, fixture};
use laptime_models::{
    Attention, Config, Decoder, Dtype, GraphMode, KeysValues, Marks, ModelError, Options, Replay, Room, Tokens,
    Weights,
    candle::{CandleDecoder, threads},
    cpu::CpuDecoder,
};
use laptime_trace::run::Depth;

/// One of each kind: norms by head and a tied head; biases; stretched wavelengths.
const MODELS: [&str; 3] = ["tiny", "tiny-qwen2", "tiny-llama"];

fn options() -> Options {
    Options {
        dtype: Dtype::F32,
        attention: Attention::Naive,
        kept: None,
        batch: 1,
        room: Room::Growing,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    }
}

fn decoder(model: &str, options: Options) -> CandleDecoder {
    let config = Config::from_preset(model).unwrap();
    let weights = Weights::synthetic(&config, 3);
    CandleDecoder::new(config, &weights, options, threads()).unwrap()
}

fn ids(count: usize) -> Vec<u32> {
    (0..count).map(|at| (at * 7919 % 500) as u32).collect()
}

fn forward(decoder: &mut dyn Decoder, tokens: &Tokens) -> Vec<f32> {
    decoder.forward(tokens).unwrap();
    decoder.logits().unwrap()
}

/// The tokens that follow a prompt.
fn generate(decoder: &mut dyn Decoder, prompt: &Tokens, steps: usize) -> Vec<Vec<u32>> {
    decoder.prefill(prompt).unwrap();
    let mut all = vec![decoder.chosen().unwrap()];
    for _ in 0..steps {
        decoder.step().unwrap();
        all.push(decoder.chosen().unwrap());
    }
    all
}

#[test]
fn every_fixture_comes_out_as_the_official_implementation_has_it() {
    for name in FIXTURES {
        let fixture = fixture(name);
        let tokens = fixture.tokens();
        for room in [Room::Growing, Room::Static(fixture.config.context)] {
            let options = Options { batch: tokens.batch, room, ..options() };
            let mut decoder = CandleDecoder::new(fixture.config.clone(), &fixture.weights, options, threads()).unwrap();
            let logits = forward(&mut decoder, &tokens);
            assert!(distance(&logits, &fixture.logits()) < 1e-4, "{name}");
            let steps = fixture.expected.greedy[0].len();
            decoder.prefill(&tokens).unwrap();
            assert!(distance(&decoder.logits().unwrap(), &fixture.last_logits()) < 1e-4, "{name}");
            for step in 0..steps {
                assert_eq!(decoder.chosen().unwrap(), fixture.greedy(step), "{name} at {step}");
                if step + 1 < steps {
                    decoder.step().unwrap();
                }
            }
        }
    }
}

#[test]
fn candle_and_ours_give_the_same_logits_and_tokens() {
    for model in MODELS {
        let tokens = Tokens { ids: ids(140), batch: 2 };
        let options = Options { batch: 2, ..options() };
        let config = Config::from_preset(model).unwrap();
        let mut ours = CpuDecoder::new(config.clone(), &Weights::synthetic(&config, 3), options.clone(), 1).unwrap();
        let mut candle = decoder(model, options);
        assert!(distance(&forward(&mut ours, &tokens), &forward(&mut candle, &tokens)) < 1e-5, "{model}");
        assert_eq!(generate(&mut ours, &tokens, 8), generate(&mut candle, &tokens, 8), "{model}");
        let (ours, candle) = (ours.read_cache(1).unwrap(), candle.read_cache(1).unwrap());
        assert_eq!(ours.length, candle.length);
        assert!(distance(&ours.keys, &candle.keys) < 1e-4 && distance(&ours.values, &candle.values) < 1e-4);
    }
}

#[test]
fn halves_are_near_what_f32_gives() {
    for model in MODELS {
        let tokens = Tokens { ids: ids(140), batch: 2 };
        let exact = forward(&mut decoder(model, Options { batch: 2, ..options() }), &tokens);
        let spread = exact.iter().fold(0.0, |most: f32, logit| most.max(logit.abs()));
        for (dtype, within) in [(Dtype::F16, 0.02), (Dtype::Bf16, 0.12)] {
            let halves = forward(&mut decoder(model, Options { dtype, batch: 2, ..options() }), &tokens);
            assert!(distance(&exact, &halves) < within * spread, "{model} {dtype}");
        }
    }
}

#[test]
fn a_prompt_in_pieces_is_the_prompt_at_once_whatever_the_cache() {
    for room in [Room::Growing, Room::Static(75)] {
        let options = Options { room, batch: 2, ..options() };
        let (mut once, mut pieces) = (decoder("tiny", options.clone()), decoder("tiny", options));
        let piece = |from: usize, to: usize| {
            let (first, second) = (ids(75), ids(150));
            Tokens { ids: [&first[from..to], &second[75 + from..75 + to]].concat(), batch: 2 }
        };
        once.prefill(&piece(0, 75)).unwrap();
        for (from, to) in [(0, 30), (30, 31), (31, 75)] {
            pieces.prefill(&piece(from, to)).unwrap();
        }
        assert!(distance(&once.logits().unwrap(), &pieces.logits().unwrap()) < 1e-5);
        assert_eq!(pieces.length(), 75);
    }
}

#[test]
fn forward_leaves_the_cache_as_it_is() {
    let mut decoder = decoder("tiny", options());
    decoder.prefill(&Tokens::one(ids(30))).unwrap();
    let before = decoder.read_cache(1).unwrap();
    decoder.forward(&Tokens::one(ids(200))).unwrap();
    assert_eq!((decoder.read_cache(1).unwrap(), decoder.length()), (before, 30));
}

#[test]
fn a_cache_that_is_cut_goes_on_as_if_it_had_never_been_longer() {
    for room in [Room::Growing, Room::Static(100)] {
        let mut cut = decoder("tiny", Options { room, ..options() });
        cut.prefill(&Tokens::one(ids(90))).unwrap();
        cut.truncate(33).unwrap();
        assert_eq!((cut.length(), cut.read_cache(0).unwrap().length), (33, 33));
        cut.prefill(&Tokens::one(vec![7, 8, 9])).unwrap();
        let mut fresh = decoder("tiny", Options { room, ..options() });
        fresh.prefill(&Tokens::one([ids(33), vec![7, 8, 9]].concat())).unwrap();
        assert!(distance(&cut.logits().unwrap(), &fresh.logits().unwrap()) < 1e-5);
        cut.truncate(0).unwrap();
        assert_eq!((cut.length(), cut.read_cache(0).unwrap().keys.len()), (0, 0));
    }
}

#[test]
fn a_cache_that_was_read_can_be_written_into_another_decoder() {
    for (dtype, room) in [(Dtype::F32, Room::Growing), (Dtype::Bf16, Room::Static(90)), (Dtype::F16, Room::Growing)] {
        let options = Options { dtype, room, batch: 2, ..options() };
        let mut first = decoder("tiny", options.clone());
        let expected = generate(&mut first, &Tokens { ids: ids(140), batch: 2 }, 10);
        first.truncate(70).unwrap();
        let mut second = decoder("tiny", options);
        for layer in 0..second.config().layers {
            second.write_cache(layer, 0, &first.read_cache(layer).unwrap()).unwrap();
            assert_eq!(second.length(), 0, "it is lengthened by saying so");
        }
        second.set_length(70).unwrap();
        assert_eq!(second.read_cache(1).unwrap(), first.read_cache(1).unwrap());
        second.choose(&expected[0]).unwrap();
        for expected in &expected[1..] {
            second.step().unwrap();
            assert_eq!(&second.chosen().unwrap(), expected);
        }
    }
}

#[test]
fn positions_in_the_middle_of_a_cache_are_overwritten_alone() {
    for room in [Room::Growing, Room::Static(20)] {
        let mut decoder = decoder("tiny", Options { room, ..options() });
        decoder.prefill(&Tokens::one(ids(9))).unwrap();
        let before = decoder.read_cache(0).unwrap();
        let values = KeysValues { length: 2, keys: vec![0.5; 2 * 2 * 16], values: vec![0.25; 2 * 2 * 16] };
        decoder.write_cache(0, 4, &values).unwrap();
        let after = decoder.read_cache(0).unwrap();
        for head in 0..2 {
            let at = |position: usize| (head * 9 + position) * 16;
            assert_eq!(after.keys[at(0)..at(4)], before.keys[at(0)..at(4)]);
            assert!(after.keys[at(4)..at(6)].iter().all(|key| *key == 0.5));
            assert!(after.values[at(4)..at(6)].iter().all(|value| *value == 0.25));
            assert_eq!(after.values[at(6)..at(9)], before.values[at(6)..at(9)]);
        }
    }
}

#[test]
fn a_cache_is_lengthened_only_by_what_every_layer_has() {
    let mut decoder = decoder("tiny", options());
    let values = KeysValues { length: 3, keys: vec![0.5; 2 * 3 * 16], values: vec![0.5; 2 * 3 * 16] };
    decoder.write_cache(0, 0, &values).unwrap();
    let error = decoder.set_length(3).unwrap_err();
    assert_eq!(error.to_string(), "layer 1 of the cache has 0 positions and not 3");
    decoder.write_cache(1, 0, &values).unwrap();
    decoder.set_length(3).unwrap();
    assert!(decoder.write_cache(0, 4, &values).unwrap_err().to_string().contains("beyond the 3"));
    assert!(decoder.write_cache(2, 0, &values).unwrap_err().to_string().contains("no layer 2"));
    let short = KeysValues { length: 4, ..values };
    assert!(decoder.write_cache(0, 3, &short).unwrap_err().to_string().contains("96 keys"));
}

#[test]
fn stages_that_are_marked_change_nothing() {
    let tokens = Tokens::one(ids(50));
    let plain = forward(&mut decoder("tiny", options()), &tokens);
    for depth in [Depth::Layer, Depth::Ops] {
        let marks = Marks { depth, ..Marks::default() };
        assert_eq!(forward(&mut decoder("tiny", Options { marks, ..options() }), &tokens), plain);
    }
}

#[test]
fn more_tokens_than_there_is_room_for_are_refused_before_anything_is_computed() {
    let mut decoder = decoder("tiny", Options { room: Room::Static(40), ..options() });
    decoder.prefill(&Tokens::one(ids(30))).unwrap();
    let error = decoder.prefill(&Tokens::one(ids(11))).unwrap_err();
    assert!(matches!(error, ModelError::TooLong { tokens: 41, room: 40, .. }), "{error}");
    assert_eq!(decoder.length(), 30);
    decoder.prefill(&Tokens::one(ids(10))).unwrap();
    assert!(matches!(decoder.step().unwrap_err(), ModelError::TooLong { tokens: 41, .. }));
    let error = decoder.forward(&Tokens::one(ids(513))).unwrap_err();
    assert_eq!(error.to_string(), "513 tokens do not fit: `tiny` has 512");
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let mut decoder = decoder("tiny", Options { batch: 2, ..options() });
    assert_eq!(decoder.replay(), Replay::Launches);
    let mut refusal = |tokens: Tokens| decoder.prefill(&tokens).unwrap_err().to_string();
    assert_eq!(refusal(Tokens { ids: vec![], batch: 2 }), "there are no tokens to run");
    assert_eq!(refusal(Tokens { ids: vec![1, 512], batch: 2 }), "token 512 is beyond the 512 of `tiny`");
    assert_eq!(refusal(Tokens::one(vec![1])), "1 sequences are not the 2 of the decoder");
    let no_token = "no token was chosen yet: run a prompt first";
    assert_eq!(decoder.step().unwrap_err().to_string(), no_token);
    assert_eq!(decoder.chosen().unwrap_err().to_string(), no_token);
    assert_eq!(decoder.logits().unwrap_err().to_string(), "no pass has run yet");
    assert_eq!(decoder.look(&mut |_| ()).unwrap_err().to_string(), "no pass has run yet");
    assert!(
        decoder.choose(&[1]).is_err() && decoder.choose(&[1, 2, 3, 4]).is_err() && decoder.choose(&[1, 600]).is_err()
    );
    let config = Config::from_preset("tiny").unwrap();
    let refusal = |options: Options, threads: usize| {
        let weights = Weights::synthetic(&config, 1);
        CandleDecoder::new(config.clone(), &weights, options, threads).err().unwrap().to_string()
    };
    assert!(refusal(Options { batch: 0, ..options() }, threads()).contains("at least one sequence"));
    assert!(refusal(Options { graph: GraphMode::On, ..options() }, threads()).contains("no graphs on a CPU"));
    let dense = Options { attention: Attention::Dense, ..options() };
    assert_eq!(refusal(dense, threads()), "the decoder on candle has no fused attention: take `naive`");
    let other = refusal(options(), threads() + 1);
    assert!(other.contains(&format!("set `RAYON_NUM_THREADS={}`", threads() + 1)), "{other}");
    let huge = Options { batch: usize::MAX / 4, room: Room::Static(512), ..options() };
    assert!(refusal(huge, threads()).starts_with("there is no memory for"));
}
