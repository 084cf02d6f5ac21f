//! Sampling of tokens and sums of frames, compared with the CPU.
#![allow(unsafe_code)]

use half::{bf16, f16};
use laptime_cuda::decode::{
    FrameStep, FrameTables, Frames, NextRow, Rules, SampledCode, Sampler, Sampling, SamplingPart,
};
use laptime_cuda::{Buffer, Cache, Element, EventClock, Graph};
use std::sync::Arc;

use crate::reference::decode::sample::{Chosen, sample};
use crate::{Answer, Bench, Failed, clock::stream_nanos, expect, reference};

const RULES: Rules =
    Rules { temperature: 0.9, repetition_penalty: 1.05, top_k: 50, top_p: 1.0, seed: 42, least_frames: 2, end: 2150 };

const FRAMES: u32 = 12;

/// Rules for this number of tokens.
fn cases() -> Vec<(u32, Rules)> {
    let mut cases = Vec::new();
    for vocab in [3072, 2048, 4096, 77, 1] {
        let end = vocab / 2;
        for rules in [
            RULES,
            Rules { top_p: 0.9, ..RULES },
            Rules { top_k: 0, top_p: 0.8, ..RULES },
            Rules { top_k: 0, temperature: 0.3, ..RULES },
            Rules { top_k: 1, ..RULES },
            Rules { top_k: 1000, top_p: 0.5, temperature: 2.0, ..RULES },
            Rules { temperature: 0.0, repetition_penalty: 3.0, ..RULES },
            Rules { top_p: 0.01, seed: u64::MAX, ..RULES },
        ] {
            cases.push((vocab, Rules { end, ..rules }));
        }
    }
    cases
}

pub fn choices(bench: &Bench) -> Answer {
    choices_of::<f32>(bench)?;
    choices_of::<bf16>(bench)?;
    Ok(format!("{} choices in each of three types", choices_of::<f16>(bench)?))
}

/// The number of samples.
fn choices_of<T: Element>(bench: &Bench) -> Result<usize, Failed> {
    let mut sampler = Sampler::<T>::load(&bench.device, &Cache::of_user())?;
    let mut made = 0;
    for (at, (vocab, rules)) in cases().into_iter().enumerate() {
        let last = if vocab > 100 { vocab - 60 } else { vocab };
        let suppressed: Vec<u32> = (last..vocab).filter(|token| *token != rules.end).collect();
        for by_part in [false, true] {
            Run::new(bench, vocab, &suppressed, by_part)?.follow(&mut sampler, &rules, at as u64)?;
            made += FRAMES as usize;
        }
    }
    Ok(made)
}

/// Samples a code for each of several frames, on both sides.
struct Run<'a> {
    bench: &'a Bench,
    sampling: Sampling,
    frames: Frames,
    suppressed: &'a [u32],
    vocab: u32,
    by_part: bool,
}

impl<'a> Run<'a> {
    fn new(bench: &'a Bench, vocab: u32, suppressed: &'a [u32], by_part: bool) -> Result<Self, Failed> {
        let sampling = Sampling::new(&bench.device, vocab, suppressed, true)?;
        Ok(Self { bench, sampling, frames: Frames::new(&bench.device, FRAMES, 3)?, suppressed, vocab, by_part })
    }

    fn follow<T: Element>(&mut self, sampler: &mut Sampler<T>, rules: &Rules, seed: u64) -> Result<(), Failed> {
        let stream = self.bench.device.stream();
        self.frames.begin(stream)?;
        self.sampling.begin(stream, rules)?;
        let mut position = self.bench.device.upload(&[7_u32])?;
        let mut seen = Vec::new();
        for frame in 0..FRAMES {
            let logits = spread(self.vocab, seed * 100 + u64::from(frame));
            let logits: Vec<T> = logits.iter().map(|value| T::narrowed(*value)).collect();
            let there = self.bench.device.upload(&logits)?;
            let (by, frames) = (&mut self.sampling, &mut self.frames);
            match self.by_part {
                false => {
                    sampler.sample(SamplingPart::All, stream, &there, (by, frames), reported(&mut position, frame))?
                }
                true => {
                    for part in [SamplingPart::TopK, SamplingPart::TopP, SamplingPart::Draw] {
                        sampler.sample(
                            part,
                            stream,
                            &there,
                            (&mut *by, &mut *frames),
                            reported(&mut position, frame),
                        )?;
                    }
                }
            }
            let logits: Vec<f32> = logits.into_iter().map(T::widened).collect();
            let (suppressed, place) = (self.suppressed, [frame, 1]);
            let of = Chosen { logits: &logits, suppressed, seen: &seen, place, may_end: true };
            let (expected, word) = (sample(&of, rules), self.frames.word.read()?);
            let what = || format!("frame {frame} of {} by {rules:?}: {word:?}, not {expected}", self.vocab);
            expect(word[0] == expected, what)?;
            expect((word[1] == 1) == (word[0] == rules.end), || "the end was not reported".to_owned())?;
            if !seen.contains(&word[0]) {
                seen.push(word[0]);
            }
            expect(self.frames.codes.read()?[frame as usize * 3 + 1] == word[0], || "the code is not kept".to_owned())?;
        }
        expect(position.read()? == [7 + FRAMES], || "the position did not go on".to_owned())?;
        expect(self.frames.frame.read()? == [FRAMES - 1], || "the frame did not go on".to_owned())?;
        Ok(())
    }
}

/// The code that begins a frame and is reported to the host.
fn reported<T>(position: &mut Buffer<u32>, frame: u32) -> SampledCode<'_, T> {
    SampledCode { group: 1, begins: frame > 0, position: Some(position), is_reported: true, next: None }
}

/// Logits with a few outliers, some equal ones, and one NaN.
fn spread(vocab: u32, seed: u64) -> Vec<f32> {
    let mut logits: Vec<f32> =
        reference::noise(vocab as usize, seed).into_iter().map(|value| value * value * value * 9.0).collect();
    if vocab > 10 {
        logits[5] = f32::NAN;
        logits[7] = logits[8];
    }
    logits
}

pub fn sums(bench: &Bench) -> Answer {
    sums_of::<f32>(bench, 1e-6)?;
    sums_of::<bf16>(bench, 5e-3)?;
    sums_of::<f16>(bench, 1e-3)?;
    Ok("three types".to_owned())
}

fn sums_of<T: Element>(bench: &Bench, most: f64) -> Result<(), Failed> {
    let (device, stream) = (&bench.device, bench.device.stream());
    let step = FrameStep::<T>::load(device, &Cache::of_user())?;
    let (groups, width, first_size, size) = (16_u32, 1000_u32, 30_u32, 20_u32);
    let random_rows = |rows: u32, seed| -> Result<_, Failed> {
        let values: Vec<T> = reference::noise((rows * width) as usize, seed).into_iter().map(T::narrowed).collect();
        let there = device.upload(&values)?;
        Ok((values.into_iter().map(T::widened).collect::<Vec<f32>>(), there))
    };
    let (first, others, text) = (random_rows(first_size, 1)?, random_rows((groups - 1) * size, 2)?, random_rows(4, 3)?);
    let mut frames = Frames::new(device, 9, groups)?;
    let codes: Vec<u32> =
        (0..9 * groups).map(|at| if at % groups == 0 { at % first_size } else { at * 3 % size }).collect();
    frames.codes.write(&codes)?;
    let mut x = device.upload(&vec![T::narrowed(f32::NAN); width as usize])?;
    for (frame, rows) in [(0_u32, 4_u32), (2, 4), (3, 4), (8, 4), (8, 1), (4, 0)] {
        frames.frame.write(&[frame])?;
        let text_rows = device.upload(&[rows])?;
        let (first, others, text_there) = ((&first.0, &first.1), (&others.0, &others.1), &text.1);
        let tables =
            FrameTables { first: first.1, first_size, others: others.1, size, text: text_there, text_rows: &text_rows };
        step.sum(stream, &frames, &tables, &mut x, width)?;
        let mine = &codes[(frame * groups) as usize..((frame + 1) * groups) as usize];
        let expected: Vec<f32> = (0..width as usize)
            .map(|column| {
                let at = |table: &[f32], row: u32| f64::from(table[row as usize * width as usize + column]);
                let rest =
                    (1..groups).map(|group| at(others.0, (group - 1) * size + mine[group as usize])).sum::<f64>();
                let read = if rows > 0 { at(&text.0, frame.min(rows - 1)) } else { 0.0 };
                (at(first.0, mine[0]) + rest + read) as f32
            })
            .collect();
        judge::<T>("a sum", x.read()?, &expected, most)?;
        let table = others.1.slice((2 * size * width) as usize..(3 * size * width) as usize)?;
        step.embed_code(stream, (&frames, 3), (table, size), &mut x, width)?;
        let from = ((2 * size + mine[3]) * width) as usize;
        judge::<T>("a row", x.read()?, &others.0[from..from + width as usize], 0.0)?;
    }
    sampler_row(bench, &others.1, size, &mut x, &others.0)
}

/// Sampling also looks up the embedding for the next step.
fn sampler_row<T: Element>(
    bench: &Bench,
    table: &Buffer<T>,
    size: u32,
    x: &mut Buffer<T>,
    expected: &[f32],
) -> Result<(), Failed> {
    let (device, stream) = (&bench.device, bench.device.stream());
    let mut sampler = Sampler::<T>::load(device, &Cache::of_user())?;
    let mut by = Sampling::new(device, size, &[], false)?;
    by.begin(stream, &Rules { temperature: 0.0, ..RULES })?;
    let mut logits = vec![T::narrowed(0.0); size as usize];
    logits[7] = T::narrowed(1.0);
    let (logits, mut frames) = (device.upload(&logits)?, Frames::new(device, 1, 2)?);
    let width = x.length() as u32;
    let next = Some(NextRow { table: table.all(), size, x, width });
    sampler.sample(
        SamplingPart::All,
        stream,
        &logits,
        (&mut by, &mut frames),
        SampledCode { next, ..SampledCode::code(1) },
    )?;
    expect(frames.codes.read()? == [0, 7], || "another code was chosen".to_owned())?;
    judge::<T>("the next row", x.read()?, &expected[7 * width as usize..8 * width as usize], 0.0)
}

fn judge<T: Element>(what: &str, found: Vec<T>, expected: &[f32], most: f64) -> Result<(), Failed> {
    let found: Vec<f32> = found.into_iter().map(T::widened).collect();
    let error = reference::worst_error(&found, expected);
    expect(error <= most, || format!("{what}: worst error {error:.1e}, at most {most:.0e}"))
}

/// The time of sampling, as one of twenty in a graph.
pub fn speed(bench: &Bench) -> Answer {
    let (device, stream) = (&bench.device, bench.device.stream());
    let mut sampler = Sampler::<bf16>::load(device, &Cache::of_user())?;
    let clock = EventClock::new(Arc::clone(stream))?;
    let mut words = Vec::new();
    for (vocab, rules) in [
        (3072, RULES),
        (2048, RULES),
        (3072, Rules { top_p: 0.9, ..RULES }),
        (3072, Rules { temperature: 0.0, ..RULES }),
        (3072, Rules { top_k: 0, top_p: 0.9, ..RULES }),
    ] {
        let logits: Vec<bf16> = spread(vocab, 1).into_iter().map(bf16::from_f32).collect();
        let (logits, mut by) = (device.upload(&logits)?, Sampling::new(device, vocab, &[1], true)?);
        let mut frames = Frames::new(device, 8, 16)?;
        by.begin(stream, &rules)?;
        let mut choose =
            || sampler.sample(SamplingPart::All, stream, &logits, (&mut by, &mut frames), SampledCode::code(1));
        choose()?;
        let graph = Graph::capture(stream, || (0..20).try_for_each(|_| choose()))?;
        graph.upload(stream)?;
        // SAFETY: what was captured lives until the device is synchronised.
        let replay = || unsafe { graph.launch(stream) };
        let nanos = stream_nanos(bench, &clock, || Ok(replay()?))?;
        device.synchronise()?;
        let Rules { temperature, top_k, top_p, .. } = rules;
        let micros = nanos / 20e3;
        words.push(format!("{micros:.2} us of {vocab}: temperature {temperature}, top_k {top_k}, top_p {top_p}"));
    }
    Ok(words.join("\n"))
}
