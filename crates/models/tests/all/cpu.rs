//! The decoder on the CPU: however a sequence is run, the same comes out.

use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, KeysValues, Marks, ModelError, Options, Replay,
    Tokens, Weights,
    attention::{Kept, Pattern},
    cpu,
};

/// One of each kind: norms by head and a tied head; biases; stretched wavelengths; a sliding window and post-norms.
const MODELS: [&str; 4] = ["tiny", "tiny-qwen2", "tiny-llama", "tiny-gemma3"];

fn options() -> Options {
    Options {
        dtype: Dtype::F32,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        capacity: CacheCapacity::Growing,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    }
}

fn decoder(model: &str, options: Options, threads: usize) -> Box<dyn Decoder> {
    let config = Config::from_preset(model).unwrap();
    let weights = Weights::synthetic(&config, 3);
    cpu::decoder(config, &weights, options, threads).unwrap()
}

fn ids(count: usize) -> Vec<u32> {
    (0..count).map(|at| (at * 7919 % 500) as u32).collect()
}

fn assert_near(left: &[f32], right: &[f32], within: f32) {
    assert_eq!(left.len(), right.len());
    for (at, (left, right)) in left.iter().zip(right).enumerate() {
        assert!((left - right).abs() <= within, "at {at}: {left} and {right}");
    }
}

fn forward(model: &str, options: Options, threads: usize, tokens: &Tokens) -> Vec<f32> {
    let mut decoder = decoder(model, options, threads);
    decoder.forward(tokens).unwrap();
    decoder.logits().unwrap()
}

/// The tokens that follow a prompt.
fn generate(decoder: &mut dyn Decoder, prompt: &Tokens, steps: usize) -> Vec<Vec<u32>> {
    decoder.prefill(prompt).unwrap();
    let mut all = vec![decoder.sampled().unwrap()];
    for _ in 0..steps {
        decoder.step().unwrap();
        all.push(decoder.sampled().unwrap());
    }
    all
}

#[test]
fn naive_and_fused_attention_give_the_same_logits() {
    for model in MODELS {
        for (batch, length) in [(1, 1), (1, 300), (2, 70)] {
            let tokens = Tokens { ids: ids(batch * length), batch };
            let naive = Options { attention: Attention::Naive, batch, ..options() };
            let dense = Options { batch, ..options() };
            assert_near(&forward(model, naive, 2, &tokens), &forward(model, dense, 2, &tokens), 1e-5);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_logits() {
    let tokens = Tokens::one(ids(130));
    for attention in [Attention::Naive, Attention::Dense] {
        let options = Options { attention, ..options() };
        let alone = forward("tiny", options.clone(), 1, &tokens);
        assert_near(&alone, &forward("tiny", options, 3, &tokens), 1e-5);
    }
}

#[test]
fn prefill_gives_the_last_logits_of_forward_and_samples_the_largest() {
    for model in MODELS {
        let tokens = Tokens { ids: ids(80), batch: 2 };
        let options = Options { batch: 2, ..options() };
        let all = forward(model, options.clone(), 2, &tokens);
        let mut decoder = decoder(model, options, 2);
        decoder.prefill(&tokens).unwrap();
        let vocab = decoder.config().vocab;
        let logits = decoder.logits().unwrap();
        assert_near(&logits[..vocab], &all[39 * vocab..40 * vocab], 1e-5);
        assert_near(&logits[vocab..], &all[79 * vocab..], 1e-5);
        let best = |row: &[f32]| row.iter().enumerate().fold(0, |best, (at, x)| if *x > row[best] { at } else { best });
        assert_eq!(decoder.sampled().unwrap(), [best(&logits[..vocab]) as u32, best(&logits[vocab..]) as u32]);
        assert_eq!(decoder.length(), 40);
    }
}

#[test]
fn a_prompt_in_pieces_gives_the_same_logits_with_any_cache() {
    let kinds = [("tiny", Attention::Naive), ("tiny", Attention::Dense), ("tiny-gemma3", Attention::Dense)];
    for (model, attention) in kinds {
        for capacity in [CacheCapacity::Growing, CacheCapacity::Static(150)] {
            let options = Options { attention, capacity, ..options() };
            let (mut once, mut pieces) = (decoder(model, options.clone(), 2), decoder(model, options, 2));
            once.prefill(&Tokens::one(ids(150))).unwrap();
            for piece in [0..70, 70..71, 71..150] {
                pieces.prefill(&Tokens::one(ids(150)[piece].to_vec())).unwrap();
            }
            assert_near(&once.logits().unwrap(), &pieces.logits().unwrap(), 1e-5);
        }
    }
}

#[test]
fn steps_give_the_logits_of_forward() {
    for model in MODELS {
        for attention in [Attention::Naive, Attention::Dense] {
            let mut decoder = decoder(model, Options { attention, ..options() }, 2);
            let prompt = Tokens::one(ids(20));
            let chosen = generate(&mut *decoder, &prompt, 8);
            let steps = decoder.logits().unwrap();
            let all: Vec<u32> = prompt.ids.into_iter().chain(chosen[..8].concat()).collect();
            decoder.forward(&Tokens::one(all)).unwrap();
            let forward = decoder.logits().unwrap();
            assert_near(&steps, &forward[forward.len() - steps.len()..], 1e-5);
        }
    }
}

#[test]
fn growing_and_static_caches_give_the_same_tokens() {
    let prompt = Tokens { ids: ids(120), batch: 2 };
    let growing = Options { batch: 2, ..options() };
    let fixed = Options { capacity: CacheCapacity::Static(100), ..growing.clone() };
    let tokens = [growing, fixed].map(|options| generate(&mut *decoder("tiny", options, 2), &prompt, 40));
    assert_eq!(tokens[0], tokens[1]);
}

#[test]
fn forward_does_not_change_the_cache() {
    let mut decoder = decoder("tiny", options(), 1);
    decoder.prefill(&Tokens::one(ids(30))).unwrap();
    let before = decoder.read_cache(1).unwrap();
    decoder.forward(&Tokens::one(ids(200))).unwrap();
    assert_eq!((decoder.read_cache(1).unwrap(), decoder.length()), (before, 30));
}

#[test]
fn a_truncated_cache_continues_as_if_it_had_never_been_longer() {
    let mut cut = decoder("tiny", options(), 2);
    cut.prefill(&Tokens::one(ids(90))).unwrap();
    cut.truncate(33).unwrap();
    assert_eq!((cut.length(), cut.read_cache(0).unwrap().length), (33, 33));
    cut.prefill(&Tokens::one(vec![7, 8, 9])).unwrap();
    let mut fresh = decoder("tiny", options(), 2);
    fresh.prefill(&Tokens::one([ids(33), vec![7, 8, 9]].concat())).unwrap();
    assert_near(&cut.logits().unwrap(), &fresh.logits().unwrap(), 1e-5);
    cut.truncate(0).unwrap();
    assert_eq!(cut.length(), 0);
}

#[test]
fn a_cache_can_be_copied_to_another_decoder() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let options = Options { dtype, batch: 2, ..options() };
        let mut first = decoder("tiny", options.clone(), 2);
        let expected = generate(&mut *first, &Tokens { ids: ids(140), batch: 2 }, 10);
        first.truncate(70).unwrap();
        let mut second = decoder("tiny", options, 1);
        for layer in 0..second.config().layers {
            let values = first.read_cache(layer).unwrap();
            assert_eq!(values.keys.len(), 2 * 2 * 70 * 16);
            second.write_cache(layer, 0, &values).unwrap();
            assert_eq!(second.length(), 0, "it is lengthened by saying so");
        }
        second.set_length(70).unwrap();
        assert_eq!(second.read_cache(1).unwrap(), first.read_cache(1).unwrap());
        second.set_next(&expected[0]).unwrap();
        for expected in &expected[1..] {
            second.step().unwrap();
            assert_eq!(&second.sampled().unwrap(), expected);
        }
    }
}

#[test]
fn a_cache_is_only_as_long_as_its_shortest_layer() {
    let mut decoder = decoder("tiny", options(), 1);
    let values = KeysValues { length: 3, keys: vec![0.5; 2 * 3 * 16], values: vec![0.5; 2 * 3 * 16] };
    decoder.write_cache(0, 0, &values).unwrap();
    let error = decoder.set_length(3).unwrap_err();
    assert_eq!(error.to_string(), "layer 1 of the cache has 0 positions, not 3");
    decoder.write_cache(1, 0, &values).unwrap();
    decoder.set_length(3).unwrap();
    assert!(decoder.write_cache(0, 4, &values).unwrap_err().to_string().contains("after the end of layer 0 (3)"));
    assert!(decoder.write_cache(2, 0, &values).unwrap_err().to_string().contains("layer 2 is out of range"));
    let short = KeysValues { length: 4, ..values };
    assert!(decoder.write_cache(0, 3, &short).unwrap_err().to_string().contains("96 of keys"));
}

#[test]
fn too_many_tokens_are_refused_before_anything_is_computed() {
    let mut decoder = decoder("tiny", Options { capacity: CacheCapacity::Static(40), ..options() }, 1);
    decoder.prefill(&Tokens::one(ids(30))).unwrap();
    let error = decoder.prefill(&Tokens::one(ids(11))).unwrap_err();
    assert!(matches!(error, ModelError::TooLong { tokens: 41, capacity: 40, .. }), "{error}");
    assert_eq!(decoder.length(), 30);
    decoder.prefill(&Tokens::one(ids(10))).unwrap();
    assert!(matches!(decoder.step().unwrap_err(), ModelError::TooLong { tokens: 41, .. }));
    let error = decoder.forward(&Tokens::one(ids(513))).unwrap_err();
    assert_eq!(error.to_string(), "513 tokens do not fit: `tiny` has 512");
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let mut decoder = decoder("tiny", Options { batch: 2, ..options() }, 1);
    let mut refusal = |tokens: Tokens| decoder.prefill(&tokens).unwrap_err().to_string();
    assert_eq!(refusal(Tokens { ids: vec![], batch: 2 }), "there are no tokens to run");
    assert_eq!(refusal(Tokens { ids: vec![1], batch: 0 }), "there are no tokens to run");
    assert_eq!(
        refusal(Tokens { ids: vec![1, 2, 3], batch: 2 }),
        "3 tokens cannot be divided into 2 sequences of equal length"
    );
    assert_eq!(refusal(Tokens { ids: vec![1, 512], batch: 2 }), "token 512 is outside the vocabulary of `tiny` (512)");
    assert_eq!(refusal(Tokens::one(vec![1])), "expected 2 sequences, got 1");
    let no_token = "no token was sampled yet: run a prompt first";
    assert_eq!(decoder.step().unwrap_err().to_string(), no_token);
    assert_eq!(decoder.sampled().unwrap_err().to_string(), no_token);
    assert_eq!(decoder.logits().unwrap_err().to_string(), "no pass has run yet");
    assert_eq!(decoder.inspect_logits(&mut |_| ()).unwrap_err().to_string(), "no pass has run yet");
    assert!(decoder.set_next(&[1]).is_err());
    assert!(decoder.set_next(&[1, 2, 3, 4]).is_err());
    assert!(decoder.set_next(&[1, 600]).is_err());
    let config = Config::from_preset("tiny").unwrap();
    let weights = Weights::synthetic(&config, 1);
    for wrong in [Options { batch: 0, ..options() }, Options { graph: GraphMode::On, ..options() }] {
        assert!(cpu::decoder(config.clone(), &weights, wrong, 1).is_err());
    }
    let huge = Options { batch: usize::MAX / 4, capacity: CacheCapacity::Static(512), ..options() };
    let error = cpu::decoder(config, &weights, huge, 1).err().unwrap();
    assert!(error.to_string().starts_with("cannot allocate"), "{error}");
}

#[test]
fn steps_on_a_cpu_are_launches() {
    assert_eq!(decoder("tiny", options(), 1).replay(), Replay::Launches);
}

#[test]
fn bf16_and_f16_are_close_to_f32() {
    for model in MODELS {
        for attention in [Attention::Naive, Attention::Dense] {
            let tokens = Tokens { ids: ids(140), batch: 2 };
            let exact = forward(model, Options { attention, batch: 2, ..options() }, 2, &tokens);
            let spread = exact.iter().fold(0.0, |most: f32, logit| most.max(logit.abs()));
            for (dtype, within) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.06)] {
                let halves = forward(model, Options { dtype, attention, batch: 2, ..options() }, 2, &tokens);
                assert_near(&exact, &halves, within * spread);
            }
        }
    }
}

/// A causal pattern of this window alone.
fn window(window: usize) -> Option<Kept> {
    let pattern = Pattern { window, global: 0, random: 0, ..Pattern::preset("small").unwrap() };
    Some(Kept::Pattern(pattern))
}

#[test]
fn a_window_as_wide_as_the_sequence_is_dense_attention() {
    for (model, dtype, within) in
        [("tiny", Dtype::F32, 1e-5), ("tiny-llama", Dtype::F32, 1e-5), ("tiny", Dtype::Bf16, 0.2)]
    {
        let tokens = Tokens { ids: ids(2 * 150), batch: 2 };
        let dense = Options { batch: 2, dtype, ..options() };
        let wide = Options { kept: window(300), ..dense.clone() };
        assert_near(&forward(model, wide, 2, &tokens), &forward(model, dense, 2, &tokens), within);
    }
}

#[test]
fn tokens_outside_the_window_change_nothing() {
    let last = |first: u32| {
        let mut tokens = ids(150);
        tokens[0] = first;
        let mut decoder =
            decoder("tiny", Options { kept: window(20), capacity: CacheCapacity::Static(200), ..options() }, 1);
        decoder.prefill(&Tokens::one(tokens.clone())).unwrap();
        let prefilled = decoder.logits().unwrap();
        let logits = forward("tiny", Options { kept: window(20), ..options() }, 1, &Tokens::one(tokens));
        let last = logits[logits.len() - prefilled.len()..].to_vec();
        assert_near(&last, &prefilled, 1e-5);
        last
    };
    // Two layers look back by ten tokens each.
    assert_eq!(last(3), last(4));
    let all = |first: u32| forward("tiny", options(), 1, &Tokens::one([&[first][..], &ids(150)[1..]].concat()));
    assert_ne!(all(3)[149 * 512..], all(4)[149 * 512..]);
}

#[test]
fn a_sliding_window_hides_earlier_tokens_and_refuses_sparse_attention() {
    let config = |size| {
        let window = laptime_models::SlidingWindow { size, full_every: 3, theta: 1e4 };
        Config { window: Some(window), ..Config::from_preset("tiny-gemma3").unwrap() }
    };
    let last = |size: usize, first: u32, attention| {
        let weights = Weights::synthetic(&config(size), 3);
        let mut decoder = cpu::decoder(config(size), &weights, Options { attention, ..options() }, 2).unwrap();
        decoder.prefill(&Tokens::one([&[first][..], &ids(299)].concat())).unwrap();
        decoder.set_next(&[7]).unwrap();
        decoder.step().unwrap();
        decoder.logits().unwrap()
    };
    for attention in [Attention::Naive, Attention::Dense] {
        // Two layers, and position 300 sees 149 positions before its own in each: position 2 is the furthest.
        assert_eq!(last(150, 3, attention), last(150, 4, attention), "{attention:?}");
        assert_ne!(last(151, 3, attention), last(151, 4, attention), "{attention:?}");
    }
    let weights = Weights::synthetic(&config(150), 3);
    let sparse = Options { kept: window(20), ..options() };
    let error = cpu::decoder(config(150), &weights, sparse, 1).err().unwrap().to_string();
    assert!(error.starts_with("sparse attention does not support the sliding window of `tiny-gemma3`"), "{error}");
}

#[test]
fn sparse_attention_is_refused_after_a_cache() {
    let mut decoder = decoder("tiny", Options { kept: window(20), ..options() }, 1);
    decoder.prefill(&Tokens::one(ids(30))).unwrap();
    let error = decoder.step().unwrap_err().to_string();
    assert!(error.contains("starts at the first token"), "{error}");
}
