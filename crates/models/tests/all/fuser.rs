//! Fusers on the CPU against a plain reference: fused caches, first logits and generated tokens.

use crate::common::{
    c2c::{Case, c2c, decoder, expected, fuser, prompt},
    distance,
};
use laptime_models::{
    Decoder, Dtype, Tokens, cpu,
    fuser::{C2c, FuseMode, FuseOptions, FuseOrder, Fused, Generated, Prompt, Response, Section, SharerMask, sections},
};
use proptest::prelude::*;

/// Tolerance of f32 results, relative to the largest value.
const WITHIN: f32 = 1e-5;

fn of_case(case: &Case, name: &str, dtype: Dtype) -> C2c<'static> {
    let sharers: Vec<&str> = case.sharers.iter().map(String::as_str).collect();
    c2c(&sharers, dtype, if name == "parallel" { FuseMode::Parallel } else { FuseMode::Sequential })
}

fn response(name: &str) -> Response {
    if name == "response" { Response::Fused(SharerMask::FIRST) } else { Response::Plain }
}

/// The largest error relative to the largest expected value.
fn off(found: &[f32], expected: &[f32]) -> f32 {
    distance(found, expected) / expected.iter().fold(0.0, |most: f32, number| most.max(number.abs()))
}

/// The error of the receiver's cache.
fn cache_off(c2c: &mut C2c<'_>, case: &Case) -> f32 {
    let layers = case.cache.iter().enumerate().map(|(layer, [keys, values])| {
        let found = c2c.receiver.read_positions(layer, 0..10).unwrap();
        off(&found.keys, keys).max(off(&found.values, values))
    });
    layers.fold(0.0, f32::max)
}

#[test]
fn fused_caches_logits_and_tokens_equal_the_expected_ones() {
    let expected = expected();
    assert_eq!(expected.cases.len(), 5);
    for (name, case) in &expected.cases {
        let mut c2c = of_case(case, name, Dtype::F32);
        let prompt = prompt(&expected, case.sharers.len());
        c2c.read(&prompt, response(name)).unwrap();
        let (cache, logits) = (cache_off(&mut c2c, case), off(&c2c.receiver.logits().unwrap(), &case.logits));
        assert!(cache < WITHIN && logits < WITHIN, "{name}: cache {cache}, logits {logits}");
        let generated = c2c.generate(&prompt, case.greedy.len(), response(name)).unwrap();
        assert_eq!(generated.tokens, case.greedy, "{name}");
    }
}

#[test]
fn half_precision_is_close() {
    let expected = expected();
    for (name, case) in &expected.cases {
        for (dtype, within) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.06)] {
            let mut c2c = of_case(case, name, dtype);
            c2c.read(&prompt(&expected, case.sharers.len()), response(name)).unwrap();
            let (cache, logits) = (cache_off(&mut c2c, case), off(&c2c.receiver.logits().unwrap(), &case.logits));
            assert!(cache < within && logits < within, "{name}, {dtype}: cache {cache}, logits {logits}");
        }
    }
}

#[test]
fn fusing_changes_the_generated_tokens() {
    let expected = expected();
    let mut alone = decoder("qwen3", Dtype::F32);
    alone.prefill(&Tokens::one(expected.ids.clone())).unwrap();
    let off = off(&alone.logits().unwrap(), &expected.cases["long"].logits);
    assert!(off > 0.1, "{off}");
}

#[test]
fn closed_gates_are_skipped_and_counted() {
    let expected = expected();
    let mut c2c = c2c(&["long", "short"], Dtype::F32, FuseMode::Sequential);
    let fused = c2c.read(&prompt(&expected, 2), Response::Plain).unwrap();
    assert_eq!(fused, Fused { layers: 6, paths: 10, closed: 2 });
    let gates = c2c.fuser.gates();
    assert_eq!(gates[0].0, [[true; 2]; 3]);
    assert_eq!(gates[1].0, [[true, true], [false, true], [true, false]]);
    assert_eq!(Fused::of(&gates[1]), Fused { layers: 3, paths: 4, closed: 2 });
}

#[test]
fn a_closed_gate_leaves_the_cache_unchanged() {
    let ids = expected().ids;
    let mut plain = decoder("qwen3", Dtype::F32);
    plain.prefill(&Tokens::one(ids[..10].to_vec())).unwrap();
    let mut c2c = c2c(&["short"], Dtype::F32, FuseMode::Sequential);
    c2c.read(&prompt(&expected(), 1), Response::Plain).unwrap();
    let (before, after) = (plain.read_cache(1).unwrap(), c2c.receiver.read_positions(1, 0..10).unwrap());
    assert_eq!(before.keys, after.keys);
    assert_ne!(before.values, after.values);
    assert_eq!(plain.read_cache(2).unwrap().values, c2c.receiver.read_positions(2, 0..10).unwrap().values);
}

#[test]
fn the_order_of_layers_does_not_change_results() {
    let expected = expected();
    let prompt = prompt(&expected, 1);
    let mut caches = [FuseOrder::Batched, FuseOrder::ByLayer].map(|order| {
        let (config, weights) = fuser("long");
        let options = FuseOptions { order, ..FuseOptions::new(Dtype::F32) };
        let mut c2c = c2c(&["long"], Dtype::F32, FuseMode::Sequential);
        c2c.fuser = cpu::fuser(vec![(config, &weights)], options, 1).unwrap();
        c2c.read(&prompt, Response::Plain).unwrap();
        c2c.receiver.read_cache(2).unwrap()
    });
    let [batched, by_layer] = &mut caches;
    assert_eq!(batched, by_layer);
}

#[test]
fn a_mask_selects_the_sharers() {
    let expected = expected();
    let run = |mask: SharerMask| {
        let mut c2c = c2c(&["long", "short"], Dtype::F32, FuseMode::Sequential);
        let prompt = Prompt::shared(expected.ids.clone(), 2, mask).unwrap();
        let Generated { tokens, fused } = c2c.generate(&prompt, 16, Response::Plain).unwrap();
        (tokens, fused, c2c.sharers.iter().map(|sharer| sharer.length()).collect::<Vec<_>>())
    };
    let (tokens, fused, lengths) = run(SharerMask(1));
    assert_eq!((tokens, fused.layers, lengths), (expected.cases["long"].greedy.clone(), 3, vec![10, 0]));
    let (tokens, fused, lengths) = run(SharerMask(2));
    assert_eq!((tokens, fused.closed, lengths), (expected.cases["short"].greedy.clone(), 2, vec![0, 10]));
    let (tokens, fused, lengths) = run(SharerMask::NONE);
    assert_eq!((fused, lengths), (Fused::default(), vec![0, 0]));
    let mut alone = decoder("qwen3", Dtype::F32);
    alone.prefill(&Tokens::one(expected.ids.clone())).unwrap();
    assert_eq!(tokens[..1], alone.sampled().unwrap());
}

#[test]
fn two_equal_sharers_add_twice_in_parallel() {
    let expected = expected();
    let mut twice = c2c(&["long", "long"], Dtype::F32, FuseMode::Parallel);
    twice.read(&prompt(&expected, 2), Response::Plain).unwrap();
    let mut plain = decoder("qwen3", Dtype::F32);
    plain.prefill(&Tokens::one(expected.ids[..10].to_vec())).unwrap();
    for (layer, [keys, _]) in expected.cases["long"].cache.iter().enumerate() {
        let clean = plain.read_cache(layer).unwrap().keys;
        let doubled: Vec<f32> = clean.iter().zip(keys).map(|(clean, fused)| 2.0 * fused - clean).collect();
        let found = twice.receiver.read_positions(layer, 0..10).unwrap().keys;
        assert!(off(&found, &doubled) < WITHIN, "layer {layer}");
    }
}

#[test]
fn sequences_of_a_batch_are_fused_like_single_ones() {
    let expected = expected();
    let (config, weights) = fuser("long");
    let mut fuser = cpu::fuser(vec![(config, &weights)], FuseOptions::new(Dtype::F32), 2).unwrap();
    let ids = &expected.ids[..10];
    let backwards: Vec<u32> = ids.iter().rev().copied().collect();
    let mut run = |rows: &[&[u32]]| {
        let tokens = Tokens { ids: rows.concat(), batch: rows.len() };
        let [mut receiver, mut sharer] = ["qwen3", "c2c/long"].map(|name| of_batch(name, rows.len()));
        receiver.prefill(&tokens).unwrap();
        sharer.prefill(&tokens).unwrap();
        let section = &sections(11, 1, SharerMask::FIRST)[0];
        fuser.fuse(&mut *receiver, &mut [&mut *sharer], section).unwrap();
        receiver.read_cache(1).unwrap()
    };
    let both = run(&[ids, &backwards]);
    let (first, second) = (run(&[ids]), run(&[&backwards]));
    assert!(distance(&both.keys, &[first.keys, second.keys].concat()) < 1e-5);
    assert!(distance(&both.values, &[first.values, second.values].concat()) < 1e-5);
}

fn of_batch(name: &str, batch: usize) -> Box<dyn Decoder> {
    use laptime_models::{CacheCapacity, Config, GraphMode, Marks, Options, Weights, cpu};
    let config = Config::from_folder(&crate::common::folder(name)).unwrap();
    let weights = Weights::open(&crate::common::folder(name), &config).unwrap();
    let (attention, graph, marks) = (config.attention_type, GraphMode::Auto, Marks::default());
    let options = Options {
        dtype: Dtype::F32,
        attention,
        batch,
        capacity: CacheCapacity::Growing,
        graph,
        marks,
        kept: None,
        offload: None,
    };
    cpu::decoder(config, &weights, options, 2).unwrap()
}

#[test]
fn a_sharer_may_have_the_same_tokens_at_other_positions() {
    let ids = expected().ids;
    let run = |start: usize, prepare: &dyn Fn(&mut dyn Decoder)| {
        let mut c2c = c2c(&["long"], Dtype::F32, FuseMode::Sequential);
        prepare(&mut *c2c.sharers[0]);
        c2c.receiver.prefill(&Tokens::one(ids.clone())).unwrap();
        let section = Section { positions: 0..10, sharer_starts: vec![start], mask: SharerMask::FIRST };
        c2c.fuse_section(&section).unwrap();
        c2c.receiver.read_cache(1).unwrap()
    };
    let longer = Tokens::one([&[7, 8, 9], &ids[..]].concat());
    let apart = run(3, &|sharer| sharer.prefill(&longer).unwrap());
    // The same keys and values, moved to the beginning.
    let moved = run(0, &|sharer| {
        sharer.prefill(&longer).unwrap();
        let layers: Vec<_> = (0..5).map(|layer| sharer.read_positions(layer, 3..13).unwrap()).collect();
        sharer.truncate(0).unwrap();
        layers.iter().enumerate().for_each(|(layer, part)| sharer.write_cache(layer, 0, part).unwrap());
        sharer.set_length(10).unwrap();
    });
    assert_eq!(apart, moved);
    let other = run(0, &|sharer| sharer.prefill(&longer).unwrap());
    assert_ne!(apart, other);
}

#[test]
fn invalid_prompts_are_refused_before_anything_runs() {
    let expected = expected();
    let mut c2c = c2c(&["long"], Dtype::F32, FuseMode::Sequential);
    let shared = |ids: Vec<u32>, sharers| Prompt::shared(ids, sharers, SharerMask::FIRST).unwrap();
    let mut refused = |prompt: &Prompt, new: usize, response: Response| {
        let error = c2c.generate(prompt, new, response).unwrap_err().to_string();
        assert_eq!(c2c.receiver.length(), 0);
        error
    };
    let ids = expected.ids;
    let plain = Response::Plain;
    assert_eq!(refused(&shared(vec![1; 120], 1), 10, plain), "129 tokens do not fit: `qwen3` has 128");
    assert_eq!(refused(&shared(vec![1, 199], 1), 1, plain), "token 199 is outside the vocabulary of `qwen3` (199)");
    assert_eq!(refused(&shared(ids.clone(), 2), 1, plain), "the prompt is for 2 sharers, but there are 1");
    let mut aligned = shared(ids, 1);
    aligned.sharers[0][0] = 300;
    assert_eq!(refused(&aligned, 1, plain), "token 300 is outside the vocabulary of `long` (199)");
    aligned.is_aligned = true;
    let fused = Response::Fused(SharerMask::FIRST);
    assert!(refused(&aligned, 1, fused).starts_with("the response can be fused only if"));
}

#[test]
fn positions_outside_the_caches_are_refused() {
    let expected = expected();
    let mut c2c = c2c(&["long"], Dtype::F32, FuseMode::Sequential);
    c2c.receiver.prefill(&Tokens::one(expected.ids.clone())).unwrap();
    let section = |positions, mask| Section { positions, sharer_starts: vec![0], mask };
    let mut refused = |section: Section| c2c.fuse_section(&section).unwrap_err().to_string();
    let first = SharerMask::FIRST;
    assert_eq!(refused(section(0..12, first)), "positions 0 to 12 are not in the cache of `qwen3`, which has 11");
    assert_eq!(refused(section(0..4, first)), "positions 0 to 4 are not in the cache of `long`, which has 0");
    assert_eq!(refused(section(0..4, SharerMask::all(2))), "there is no sharer 2: there are 1");
    c2c.sharers[0] = decoder("c2c/short", Dtype::F32);
    c2c.sharers[0].prefill(&Tokens::one(expected.ids)).unwrap();
    let error = c2c.fuse_section(&section(0..4, first)).unwrap_err().to_string();
    assert_eq!(error, "the fuser is for `long`, not for `short`");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_section_in_two_parts_is_fused_like_one(cut in 1_usize..10) {
        let ids = expected().ids;
        let run = |cuts: &[std::ops::Range<usize>]| {
            let mut c2c = c2c(&["long"], Dtype::F32, FuseMode::Sequential);
            c2c.receiver.prefill(&Tokens::one(ids.clone())).unwrap();
            c2c.sharers[0].prefill(&Tokens::one(ids.clone())).unwrap();
            for positions in cuts {
                let sharer_starts = vec![positions.start];
                let section = Section { positions: positions.clone(), sharer_starts, mask: SharerMask::FIRST };
                c2c.fuse_section(&section).unwrap();
            }
            (0..3).map(|layer| c2c.receiver.read_cache(layer).unwrap()).collect::<Vec<_>>()
        };
        let (whole, parts) = (run(&[0..10, 10..10]), run(&[0..cut, cut..10]));
        for (whole, parts) in whole.into_iter().zip(parts) {
            prop_assert!(distance(&whole.keys, &parts.keys) < 1e-5);
            prop_assert!(distance(&whole.values, &parts.values) < 1e-5);
        }
    }
}
