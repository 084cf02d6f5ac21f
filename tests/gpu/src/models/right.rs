//! Whether the decoder on a GPU is right.

use laptime_models::attention::{Kept, Pattern, Random};
use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, ModelError, Options, Replay, Tokens, Weights,
    cpu, gpu::GpuModel,
};

use crate::models::fixture::{Fixture, distance};
use crate::{Answer, Bench, Failed, expect};

/// How far logits in f32 may be from the fixtures'.
const F32_NEAR: f32 = 1e-4;

fn options(dtype: Dtype, attention: Attention, batch: usize) -> Options {
    Options {
        dtype,
        attention,
        kept: None,
        batch,
        capacity: CacheCapacity::Static(64),
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    }
}

const KINDS: [Attention; 2] = [Attention::Naive, Attention::Dense];

pub fn forward(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for fixture in Fixture::all(bench)? {
        let model = GpuModel::load(&bench.device, &fixture.config, &fixture.weights, Dtype::F32, None)?;
        for kind in KINDS {
            let tokens = fixture.tokens(1);
            let mut decoder = model.decoder(&bench.device, None, options(Dtype::F32, kind, tokens.batch))?;
            decoder.forward(&tokens)?;
            let apart = distance(&decoder.logits()?, &fixture.logits())?;
            expect(apart <= F32_NEAR, || format!("{} {kind:?}: {apart:e} apart", fixture.name))?;
            told.push(format!("{} {apart:.0e}", fixture.name));
        }
    }
    Ok(told.join(", "))
}

/// Runs the prompt and the expected number of steps. Returns the tokens of each step.
fn generate(decoder: &mut dyn Decoder, fixture: &Fixture, times: usize) -> Result<Vec<Vec<u32>>, Failed> {
    decoder.prefill(&fixture.tokens(times))?;
    let steps = fixture.expected.greedy[0].len();
    let mut chosen = vec![decoder.sampled()?];
    for _ in 1..steps {
        decoder.step()?;
        chosen.push(decoder.sampled()?);
    }
    Ok(chosen)
}

fn check_greedy(chosen: &[Vec<u32>], fixture: &Fixture, times: usize, how: &str) -> Result<(), Failed> {
    for (step, tokens) in chosen.iter().enumerate() {
        let expected: Vec<u32> = fixture.expected.greedy.iter().map(|row| row[step]).collect();
        let expected = expected.repeat(times);
        expect(*tokens == expected, || {
            format!("{}, {how}, step {step}: {tokens:?} and not {expected:?}", fixture.name)
        })?;
    }
    Ok(())
}

pub fn greedy(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for fixture in Fixture::all(bench)? {
        let model = GpuModel::load(&bench.device, &fixture.config, &fixture.weights, Dtype::F32, None)?;
        for (kind, graph, capacity) in [
            (Attention::Dense, GraphMode::On, CacheCapacity::Static(64)),
            (Attention::Dense, GraphMode::Off, CacheCapacity::Static(64)),
            (Attention::Dense, GraphMode::Auto, CacheCapacity::Growing),
            (Attention::Naive, GraphMode::Auto, CacheCapacity::Growing),
        ] {
            let batch = fixture.expected.ids.len();
            let options = Options { graph, capacity, ..options(Dtype::F32, kind, batch) };
            let mut decoder = model.decoder(&bench.device, None, options)?;
            let chosen = generate(&mut *decoder, &fixture, 1)?;
            check_greedy(&chosen, &fixture, 1, &format!("{kind:?} {graph:?} {capacity:?}"))?;
            if graph == GraphMode::On {
                let Replay::Graph { nodes } = decoder.replay() else {
                    return Err(Failed::Wrong(format!("{}: no graph: {:?}", fixture.name, decoder.replay())));
                };
                told.push(format!("{} {nodes} nodes", fixture.name));
            }
        }
    }
    Ok(told.join(", "))
}

pub fn many(bench: &Bench) -> Answer {
    for fixture in Fixture::all(bench)? {
        let model = GpuModel::load(&bench.device, &fixture.config, &fixture.weights, Dtype::F32, None)?;
        for times in [2, 6] {
            let batch = times * fixture.expected.ids.len();
            for graph in [GraphMode::On, GraphMode::Off] {
                let options = Options { graph, ..options(Dtype::F32, Attention::Dense, batch) };
                let mut decoder = model.decoder(&bench.device, None, options)?;
                let chosen = generate(&mut *decoder, &fixture, times)?;
                check_greedy(&chosen, &fixture, times, &format!("{batch} sequences, {graph:?}"))?;
            }
        }
    }
    Ok("4 and 12 sequences".to_owned())
}

pub fn pieces(bench: &Bench) -> Answer {
    let mut furthest = 0.0_f32;
    for fixture in Fixture::all(bench)? {
        let model = GpuModel::load(&bench.device, &fixture.config, &fixture.weights, Dtype::F32, None)?;
        let length = fixture.tokens(1).length();
        for kind in KINDS {
            for capacity in [CacheCapacity::Static(64), CacheCapacity::Growing] {
                let options = Options { capacity, ..options(Dtype::F32, kind, fixture.expected.ids.len()) };
                let mut decoder = model.decoder(&bench.device, None, options)?;
                decoder.prefill(&fixture.part(0..length / 3))?;
                decoder.prefill(&fixture.part(length / 3..length))?;
                furthest = furthest.max(distance(&decoder.logits()?, &fixture.last_logits())?);
                expect(furthest <= F32_NEAR, || format!("{} {kind:?}: {furthest:e} apart", fixture.name))?;
            }
        }
    }
    Ok(format!("at most {furthest:.0e} apart"))
}

/// Replayed prompts, and the steps after them, must be bit-identical to launches, wherever they begin.
pub fn replayed_prompts(bench: &Bench) -> Answer {
    let mut compared = 0;
    for name in ["tiny", "tiny-qwen2", "tiny-llama", "tiny-gemma3"] {
        let config = Config::from_preset(name)?;
        let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 3), Dtype::Bf16, None)?;
        for (batch, capacity) in
            [(1, CacheCapacity::Static(400)), (3, CacheCapacity::Static(400)), (1, CacheCapacity::Growing)]
        {
            let run = |graph| {
                let options = Options { capacity, graph, ..options(Dtype::Bf16, Attention::Dense, batch) };
                prompts_and_steps(&mut *model.decoder(&bench.device, None, options)?, batch)
            };
            let (launched, replayed) = (run(GraphMode::Off)?, run(GraphMode::On)?);
            let differs = launched.iter().zip(&replayed).position(|(launched, replayed)| launched != replayed);
            expect(differs.is_none(), || format!("{name}, {batch} sequences, {capacity:?}: pass {differs:?} differs"))?;
            compared += launched.len();
        }
    }
    Ok(format!("{compared} passes alike bit by bit"))
}

/// Steps and prompts are graphs. If the stand-in refuses captures, or the attention has none, they report it and are launched.
pub fn fallbacks(bench: &Bench) -> Answer {
    let config = Config::from_preset("tiny")?;
    let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 3), Dtype::Bf16, None)?;
    let mut decoder = model.decoder(&bench.device, None, options(Dtype::Bf16, Attention::Dense, 1))?;
    for _ in 0..3 {
        decoder.truncate(0)?;
        decoder.prefill(&Tokens::one((0..40).collect()))?;
        decoder.step()?;
    }
    let is_refused = std::env::var_os("STAND_IN_NO_CAPTURE").is_some();
    for (what, replay) in [("steps", decoder.replay()), ("prompts", decoder.prompt_replay())] {
        let is_right = match &replay {
            Replay::Graph { nodes } => !is_refused && *nodes > 0,
            Replay::FellBack(reason) => is_refused && reason.contains("capture"),
            Replay::Launches => false,
        };
        expect(is_right, || format!("{what}: {replay:?}"))?;
    }
    let naive = options(Dtype::Bf16, Attention::Naive, 1);
    let sparse = Options { kept: Some(Kept::All { is_causal: true }), ..options(Dtype::Bf16, Attention::Dense, 1) };
    for (options, reason) in [(naive, "naive attention"), (sparse, "sparse attention")] {
        let mut decoder = model.decoder(&bench.device, None, options)?;
        decoder.prefill(&Tokens::one((0..40).collect()))?;
        let replay = decoder.prompt_replay();
        let is_right = matches!(&replay, Replay::FellBack(found) if found.contains(reason));
        expect(is_right, || format!("prompts with {reason}: {replay:?}"))?;
    }
    Ok(String::new())
}

/// The bits of the logits after prompts of two lengths at several positions, with steps between them.
fn prompts_and_steps(decoder: &mut dyn Decoder, batch: usize) -> Result<Vec<Vec<u32>>, Failed> {
    let mut found = Vec::new();
    for (turn, length) in [40, 40, 40, 17, 17, 17, 40].into_iter().enumerate() {
        // Every third prompt starts with an empty cache; the others continue.
        if turn % 3 == 0 {
            decoder.truncate(0)?;
        }
        let ids = (0..length * batch).map(|at| ((at * 7 + turn * 31) % 200) as u32).collect();
        decoder.prefill(&Tokens { ids, batch })?;
        found.push(decoder.logits()?.into_iter().map(f32::to_bits).collect());
        decoder.step()?;
        found.push(decoder.logits()?.into_iter().map(f32::to_bits).collect());
    }
    Ok(found)
}

/// A long prompt, which attends by blocks where that is faster, must be the same prompt in pieces, which do not, and its
/// replay must be the same bits.
pub fn long_prompts(bench: &Bench) -> Answer {
    const TOKENS: usize = 1000;
    let mut furthest = 0.0_f32;
    for (name, batch) in [("Llama-3.2-1B", 1), ("Qwen3-0.6B", 2)] {
        // As wide as published, and few layers.
        let config = Config { layers: 2, ..Config::from_preset(name)? };
        let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 3), Dtype::Bf16, None)?;
        let options =
            Options { capacity: CacheCapacity::Static(1200), ..options(Dtype::Bf16, Attention::Dense, batch) };
        let mut decoder = model.decoder(&bench.device, None, options)?;
        let ids = |range: std::ops::Range<usize>| {
            let ids =
                (0..batch).flat_map(|sequence| range.clone().map(move |at| (at * 7 + sequence * 31) as u32 % 5000));
            Tokens { ids: ids.collect(), batch }
        };
        decoder.prefill(&ids(0..300))?;
        decoder.prefill(&ids(300..TOKENS))?;
        let pieces = decoder.logits()?;
        let mut whole = || -> Result<Vec<f32>, Failed> {
            decoder.truncate(0)?;
            decoder.prefill(&ids(0..TOKENS))?;
            Ok(decoder.logits()?)
        };
        let (launched, captured, replayed) = (whole()?, whole()?, whole()?);
        expect(launched == captured && launched == replayed, || format!("{name}: a replay differs"))?;
        let largest = pieces.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        furthest = furthest.max(distance(&launched, &pieces)? / largest);
        expect(furthest <= 0.06, || format!("{name}: {furthest:.3} of the largest logit apart"))?;
    }
    Ok(format!("at most {furthest:.4} of the largest logit apart"))
}

/// Room that grows after steps were captured must not be seen in the tokens.
pub fn growth(bench: &Bench) -> Answer {
    let config = Config::from_preset("tiny")?;
    let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 2), Dtype::F32, None)?;
    let mut chosen = Vec::new();
    for capacity in [CacheCapacity::Static(400), CacheCapacity::Growing] {
        let options = Options { capacity, graph: GraphMode::On, ..options(Dtype::F32, Attention::Dense, 1) };
        let mut decoder = model.decoder(&bench.device, None, options)?;
        decoder.prefill(&Tokens::one((0..240).collect()))?;
        let mut tokens = Vec::new();
        for _ in 0..100 {
            decoder.step()?;
            tokens.push(decoder.sampled()?);
        }
        chosen.push(tokens);
    }
    expect(chosen[0] == chosen[1], || "a cache that grew goes on otherwise".to_owned())?;
    Ok("100 steps alike across a growth".to_owned())
}

pub fn cache(bench: &Bench) -> Answer {
    let fixture = &Fixture::all(bench)?[0];
    let model = GpuModel::load(&bench.device, &fixture.config, &fixture.weights, Dtype::F32, None)?;
    let ready =
        || model.decoder(&bench.device, None, options(Dtype::F32, Attention::Dense, fixture.expected.ids.len()));
    let (mut first, mut second) = (ready()?, ready()?);
    first.prefill(&fixture.tokens(1))?;
    for layer in 0..fixture.config.layers {
        let kept = first.read_cache(layer)?;
        second.write_cache(layer, 0, &kept)?;
    }
    second.set_length(first.length())?;
    second.set_next(&first.sampled()?)?;
    for step in 0..8 {
        first.step()?;
        second.step()?;
        let (one, other) = (first.sampled()?, second.sampled()?);
        expect(one == other, || format!("step {step}: {one:?} and {other:?}"))?;
    }
    second.truncate(3)?;
    expect(second.read_cache(0)?.length == 3, || "a truncated cache is longer than asked".to_owned())?;
    Ok("8 steps alike".to_owned())
}

pub fn halves(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for fixture in Fixture::all(bench)? {
        let largest = fixture.logits().iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        for (dtype, near) in [(Dtype::Bf16, 0.06), (Dtype::F16, 0.01)] {
            let model = GpuModel::load(&bench.device, &fixture.config, &fixture.weights, dtype, None)?;
            for kind in KINDS {
                let tokens = fixture.tokens(1);
                let mut decoder = model.decoder(&bench.device, None, options(dtype, kind, tokens.batch))?;
                decoder.forward(&tokens)?;
                let all = distance(&decoder.logits()?, &fixture.logits())? / largest;
                decoder.prefill(&tokens)?;
                let last = distance(&decoder.logits()?, &fixture.last_logits())? / largest;
                let apart = all.max(last);
                expect(apart <= near, || format!("{} {dtype} {kind:?}: {apart:.3} of the largest", fixture.name))?;
                told.push(format!("{} {dtype} {apart:.3}", fixture.name));
            }
        }
    }
    Ok(told.join(", "))
}

pub fn against_cpu(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for preset in ["tiny", "tiny-qwen2", "tiny-llama", "tiny-gemma3", "decoder_tiny", "small"] {
        let config = Config::from_preset(preset)?;
        let weights = Weights::synthetic(&config, 3);
        let model = GpuModel::load(&bench.device, &config, &weights, Dtype::F32, None)?;
        // Long enough for a block of queries to start after the tiles that the window has left.
        let ids = (0..2 * 150).map(|at| (at * 7919 + 13) % config.vocab as u32).collect();
        let tokens = Tokens { ids, batch: 2 };
        let options = Options { capacity: CacheCapacity::Static(256), ..options(Dtype::F32, Attention::Dense, 2) };
        let mut ours = model.decoder(&bench.device, None, options.clone())?;
        let mut theirs = cpu::decoder(config.clone(), &weights, options, 8)?;
        let mut apart = 0.0_f32;
        let mut compare = |ours: &mut dyn Decoder, theirs: &mut dyn Decoder| -> Result<(), Failed> {
            let expected = theirs.logits()?;
            let largest = expected.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
            apart = apart.max(distance(&ours.logits()?, &expected)? / largest);
            Ok(())
        };
        ours.forward(&tokens)?;
        theirs.forward(&tokens)?;
        compare(&mut *ours, &mut *theirs)?;
        ours.prefill(&tokens)?;
        theirs.prefill(&tokens)?;
        compare(&mut *ours, &mut *theirs)?;
        for step in 0..5 {
            let next = [step * 3 + 1, step * 5 + 2];
            ours.set_next(&next)?;
            theirs.set_next(&next)?;
            ours.step()?;
            theirs.step()?;
            compare(&mut *ours, &mut *theirs)?;
        }
        expect(apart <= 1e-4, || format!("{preset}: {apart:e} of the largest logit apart"))?;
        told.push(format!("{preset} {apart:.0e}"));
    }
    Ok(told.join(", "))
}

pub fn sparse(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    let narrow = Pattern { window: 40, global: 5, random: 7, is_causal: true, shared: Random::PerRow, seed: 5 };
    let patterns = [narrow, Pattern { shared: Random::PerBlock, ..narrow }, Pattern { random: 0, ..narrow }];
    for (preset, length) in [("tiny", 67), ("decoder_tiny", 200), ("small", 150)] {
        let config = Config::from_preset(preset)?;
        let weights = Weights::synthetic(&config, 3);
        let model = GpuModel::load(&bench.device, &config, &weights, Dtype::F32, None)?;
        let ids = (0..2 * length).map(|at| (at * 7919 + 13) % config.vocab as u32).collect();
        let tokens = Tokens { ids, batch: 2 };
        for pattern in patterns {
            let kept = Some(Kept::Pattern(pattern));
            let options =
                Options { kept, capacity: CacheCapacity::Static(256), ..options(Dtype::F32, Attention::Dense, 2) };
            let mut ours = model.decoder(&bench.device, None, options.clone())?;
            let mut theirs = cpu::decoder(config.clone(), &weights, options, 8)?;
            let mut apart = 0.0_f32;
            for is_forward in [true, false] {
                let run = |decoder: &mut dyn Decoder| match is_forward {
                    true => decoder.forward(&tokens),
                    false => decoder.prefill(&tokens),
                };
                run(&mut *ours)?;
                run(&mut *theirs)?;
                let expected = theirs.logits()?;
                let largest = expected.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
                apart = apart.max(distance(&ours.logits()?, &expected)? / largest);
            }
            expect(apart <= 1e-4, || format!("{preset} {pattern:?}: {apart:e} of the largest logit apart"))?;
            expect(ours.step().is_err(), || "a token was chosen behind a sparse pass".to_owned())?;
            told.push(format!("{preset} {apart:.0e}"));
        }
    }
    Ok(told.join(", "))
}

pub fn refused(bench: &Bench) -> Answer {
    let config = Config::from_preset("tiny")?;
    let weights = Weights::synthetic(&config, 1);
    let model = GpuModel::load(&bench.device, &config, &weights, Dtype::F32, None)?;
    let mut decoder = model.decoder(&bench.device, None, options(Dtype::F32, Attention::Dense, 1))?;
    let logits = decoder.logits().map(drop);
    let chosen = decoder.sampled().map(drop);
    let attempts = [
        ("a prompt beyond the cache", "65", decoder.prefill(&Tokens::one(vec![1; 65]))),
        (
            "a token outside the vocabulary",
            "is outside the vocabulary",
            decoder.prefill(&Tokens::one(vec![config.vocab as u32])),
        ),
        ("a pass beyond the context", "513", decoder.forward(&Tokens::one(vec![1; config.context + 1]))),
        ("two sequences for one", "expected 1 sequence, got 2", decoder.prefill(&Tokens { ids: vec![1; 4], batch: 2 })),
        ("a length that was never written", "position", decoder.set_length(1)),
        ("a step without a token", "no token was sampled yet", decoder.step()),
        ("logits before a pass", "no pass has run yet", logits),
        ("a token before a pass", "no token was sampled yet", chosen),
    ];
    let mut told = Vec::new();
    for (what, reason, attempt) in attempts {
        told.push(refusal(what, reason, attempt)?);
    }
    decoder.prefill(&Tokens::one(vec![1; 64]))?;
    told.push(refusal("a step beyond the cache", "65", decoder.step())?);
    let naive = Options { graph: GraphMode::On, ..options(Dtype::F32, Attention::Naive, 1) };
    told.push(refusal("a graph of naive attention", "graph", model.decoder(&bench.device, None, naive).map(drop))?);
    Ok(told.join("\n"))
}

/// The words of a refusal, which names its reason; a failure of the GPU is none.
fn refusal(what: &str, reason: &str, attempt: Result<(), ModelError>) -> Answer {
    match attempt {
        Ok(()) => Err(Failed::Wrong(format!("{what} was done"))),
        Err(ModelError::Cuda(error)) => Err(Failed::Wrong(format!("{what} failed on the GPU: {error}"))),
        Err(error) if error.to_string().contains(reason) => Ok(error.to_string()),
        Err(error) => Err(Failed::Wrong(format!("{what} was refused for another reason: {error}"))),
    }
}
