//! A receiver with its sharers and fusers: from a prompt to generated tokens.

use std::ops::Range;

use laptime_probe::sync_point;

use super::{Fused, Fusing, Prompt, Section, SharerMask};
use crate::error::{ensure, fit};
use crate::{Decoder, Done, ModelError, Tokens};

/// Whether generated tokens are fused too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Response {
    /// The receiver continues alone from the fused prompt.
    #[default]
    Plain,
    /// These sharers also run every token, and each position is fused with them before the next token.
    Fused(SharerMask),
}

/// A receiver, its sharers and the fusers between them, all on one device.
///
/// [`C2c::generate`] does everything. To time stages, call [`C2c::run_section`] and [`C2c::share`] in either order, then
/// [`C2c::fuse_section`], for every section; then [`C2c::step`].
pub struct C2c<'a> {
    /// The model that answers.
    pub receiver: Box<dyn Decoder + 'a>,
    /// The models that share their caches.
    pub sharers: Vec<Box<dyn Decoder + 'a>>,
    /// The fusers.
    pub fuser: Box<dyn Fusing + 'a>,
}

/// Generated tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The tokens after the prompt.
    pub tokens: Vec<u32>,
    /// What was fused.
    pub fused: Fused,
}

impl C2c<'_> {
    /// Refuses an empty prompt, one that does not fit a context with this many new tokens, and tokens outside a vocabulary.
    pub fn check(&self, prompt: &Prompt, new_tokens: usize, response: Response) -> Done {
        let can_fuse = !prompt.is_aligned || response == Response::Plain;
        ensure!(can_fuse, "the response can be fused only if sharers have the receiver's tokens");
        let (given, has) = (prompt.sharers.len(), self.sharers.len());
        ensure!(given == has, "the prompt is for {given} sharers, but there are {has}");
        // The last token is sampled and never runs.
        let after = new_tokens.saturating_sub(1);
        check_tokens(&*self.receiver, &prompt.receiver, after)?;
        for (at, (sharer, ids)) in self.sharers.iter().zip(&prompt.sharers).enumerate() {
            let shared = prompt.shared_tokens(at).min(ids.len());
            match response {
                Response::Fused(mask) if mask.has(at) => check_tokens(&**sharer, ids, after)?,
                _ if shared == 0 => {}
                _ => check_tokens(&**sharer, &ids[..shared], 0)?,
            }
        }
        Ok(())
    }

    /// Clears all caches.
    pub fn clear(&mut self) -> Done {
        self.receiver.truncate(0)?;
        self.sharers.iter_mut().try_for_each(|sharer| sharer.truncate(0))
    }

    /// Whether a section is a decode step: one token after others.
    fn is_step(&self, section: &Section) -> bool {
        section.positions.len() <= 1 && self.receiver.length() > 0
    }

    /// The number of the replay that runs a section, if it is one.
    pub fn section_replay(&mut self, section: &Section) -> Result<Option<u64>, ModelError> {
        match self.is_step(section) {
            true => self.receiver.next_replay(),
            false => self.receiver.next_prefill_replay(section.positions.len()),
        }
    }

    /// The number of the replay of the next step, if the step is only a replay.
    pub fn step_replay(&mut self, response: Response) -> Result<Option<u64>, ModelError> {
        if response == Response::Plain { self.receiver.next_replay() } else { Ok(None) }
    }

    /// Runs the receiver over a section, after the positions in its cache.
    pub fn run_section(&mut self, prompt: &Prompt, section: &Section) -> Done {
        let tokens = part(&prompt.receiver, section.positions.clone())?;
        if !self.is_step(section) {
            return self.receiver.prefill(&tokens);
        }
        self.receiver.set_next(&tokens.ids)?;
        self.receiver.step()
    }

    /// Runs every sharer once over the tokens whose cache is needed.
    pub fn share(&mut self, prompt: &Prompt, response: Response) -> Done {
        for (at, sharer) in self.sharers.iter_mut().enumerate() {
            let (ids, count) = shared(prompt, response, at);
            if count > 0 {
                sharer.prefill(&part(ids, 0..count)?)?;
            }
        }
        Ok(())
    }

    /// The number of the replay of [`C2c::share`], with one sharer.
    pub fn share_replay(&mut self, prompt: &Prompt, response: Response) -> Result<Option<u64>, ModelError> {
        match self.sharers.as_mut_slice() {
            [only] => only.next_prefill_replay(shared(prompt, response, 0).1),
            _ => Ok(None),
        }
    }

    /// Fuses the positions of a section, unless its mask is empty.
    pub fn fuse_section(&mut self, section: &Section) -> Result<Fused, ModelError> {
        if section.mask.is_none() || section.positions.is_empty() {
            return Ok(Fused::default());
        }
        let mut sharers: Vec<&mut dyn Decoder> = self.sharers.iter_mut().map(|sharer| &mut **sharer as _).collect();
        self.fuser.fuse(&mut *self.receiver, &mut sharers, section)
    }

    /// Runs the last sampled token and samples the next one.
    pub fn step(&mut self, response: Response) -> Result<Fused, ModelError> {
        let Response::Fused(mask) = response else {
            self.receiver.step()?;
            return Ok(Fused::default());
        };
        let ids = sync_point!("read_token", self.receiver.sampled()?);
        self.receiver.step()?;
        for (_, sharer) in self.sharers.iter_mut().enumerate().filter(|(at, _)| mask.has(*at)) {
            sharer.set_next(&ids)?;
            sharer.step()?;
        }
        self.fuse_last(1, mask)
    }

    /// Fuses the last positions of the receiver with the same positions of sharers.
    pub fn fuse_last(&mut self, count: usize, mask: SharerMask) -> Result<Fused, ModelError> {
        let end = self.receiver.length();
        let start = end.saturating_sub(count);
        let sharer_starts = vec![start; self.sharers.len()];
        self.fuse_section(&Section { positions: start..end, sharer_starts, mask })
    }

    /// Clears the caches and runs a prompt section by section, which samples the first token.
    pub fn read(&mut self, prompt: &Prompt, response: Response) -> Result<Fused, ModelError> {
        self.clear()?;
        self.share(prompt, response)?;
        let mut fused = Fused::default();
        for section in &prompt.sections {
            self.run_section(prompt, section)?;
            fused = fused.plus(match (section.mask.is_none(), response) {
                (true, Response::Fused(mask)) => self.fuse_last(section.positions.len(), mask)?,
                _ => self.fuse_section(section)?,
            });
        }
        Ok(fused)
    }

    /// Runs a prompt and generates tokens greedily.
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        new_tokens: usize,
        response: Response,
    ) -> Result<Generated, ModelError> {
        self.check(prompt, new_tokens, response)?;
        let mut fused = self.read(prompt, response)?;
        let mut tokens = Vec::with_capacity(new_tokens.min(prompt.receiver.len().saturating_add(1024)));
        for at in 0..new_tokens {
            if at > 0 {
                fused = fused.plus(self.step(response)?);
            }
            tokens.extend(sync_point!("read_token", self.receiver.sampled()?));
        }
        Ok(Generated { tokens, fused })
    }
}

/// The tokens of a sharer, and how many of them it must run.
fn shared(prompt: &Prompt, response: Response, sharer: usize) -> (&[u32], usize) {
    let ids = prompt.sharers.get(sharer).map(Vec::as_slice).unwrap_or_default();
    let count = match response {
        Response::Fused(mask) if mask.has(sharer) => ids.len(),
        _ => prompt.shared_tokens(sharer),
    };
    (ids, count)
}

fn part(ids: &[u32], positions: Range<usize>) -> Result<Tokens, ModelError> {
    let (end, count) = (positions.end, ids.len());
    ensure!(positions.start <= end && end <= count, "a section ends at {end}, but there are {count} tokens");
    Ok(Tokens::one(ids[positions].to_vec()))
}

fn check_tokens(decoder: &dyn Decoder, ids: &[u32], after: usize) -> Done {
    let config = decoder.config();
    let (name, batch) = (&config.name, decoder.options().batch);
    ensure!(batch == 1, "`{name}` has a batch of {batch}, but a prompt is one sequence");
    ensure!(!ids.is_empty(), "the prompt is empty");
    Tokens::one(ids.to_vec()).check(config)?;
    fit(ids.len().saturating_add(after), name, config.context)
}
