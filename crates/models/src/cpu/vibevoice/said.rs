//! What is being said: all that a speech model keeps between two tokens, beside its caches.

use std::ops::Range;

use super::tokenizer::Stream;
use crate::{
    ModelError,
    vibevoice::{Guidance, Solver},
};

/// What is being said.
pub struct Speech<T> {
    pub guidance: Guidance,
    pub solver: Option<Solver>,
    /// A row for the time of each step of the solver.
    pub times: Vec<T>,
    pub most_tokens: usize,
    pub tokens: usize,
    /// What the positive stream runs next, unless it is the prompt.
    pub next: Option<Vec<T>>,
    /// What it ran last, unless it was the prompt.
    pub last: Option<Vec<T>>,
    /// What both streams left: the positive row, then the negative one.
    pub hidden: [Vec<T>; 2],
    /// What the negative stream left where it ran beside the positive one, until a token is chosen.
    pub beside: Option<Vec<T>>,
    pub latents: Vec<f32>,
    pub samples: Vec<f32>,
    pub heard: Vec<f32>,
    /// How the acoustic decoder and the semantic encoder go on.
    pub streams: Option<[Stream<T>; 2]>,
    pub has_begun: bool,
    pub is_over: bool,
}

impl<T> Speech<T> {
    /// Nothing yet.
    pub fn nothing() -> Self {
        Self {
            guidance: Guidance::default(),
            solver: None,
            times: Vec::new(),
            most_tokens: 0,
            tokens: 0,
            next: None,
            last: None,
            hidden: [Vec::new(), Vec::new()],
            beside: None,
            latents: Vec::new(),
            samples: Vec::new(),
            heard: Vec::new(),
            streams: None,
            has_begun: false,
            is_over: false,
        }
    }
    /// The samples of some tokens of audio, each of which has this many.
    pub fn samples_of(&self, tokens: &Range<usize>, [latent, samples]: [usize; 2]) -> Result<&[f32], ModelError> {
        self.check(tokens, latent)?;
        Ok(&self.samples[tokens.start * samples..tokens.end * samples])
    }

    /// The latents of some tokens of audio, each of which has this many numbers.
    pub fn latents_of(&self, tokens: &Range<usize>, latent: usize) -> Result<&[f32], ModelError> {
        self.check(tokens, latent)?;
        Ok(&self.latents[tokens.start * latent..tokens.end * latent])
    }

    /// Refuses tokens of audio that were not made.
    fn check(&self, tokens: &Range<usize>, latent: usize) -> Result<(), ModelError> {
        let (Range { start, end }, made) = (tokens.clone(), self.latents.len() / latent);
        match start <= end && end <= made {
            true => Ok(()),
            false => {
                let reason = format!("tokens of audio {start} to {end} were not made: there are {made}");
                Err(ModelError::Refused(reason))
            }
        }
    }
}
