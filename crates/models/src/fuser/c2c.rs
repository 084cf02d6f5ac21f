//! A receiver, its sharers and the fusers between them: one prompt, and the tokens that follow it.

use laptime_probe::sync_point;

use super::{Fused, Fusing, Prompt, Section, SharerMask};
use crate::error::{ensure, fit};
use crate::{Decoder, Done, ModelError, Tokens};

/// Whether what is generated is fused too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Response {
    /// The receiver alone goes on from the fused prompt.
    #[default]
    Plain,
    /// These sharers run every token too, and each position is fused with them before the next token is run.
    Fused(SharerMask),
}

/// A receiver, its sharers and the fusers between them, all on one device.
///
/// A caller that times stages calls them one by one: [`C2c::run_section`] and [`C2c::share`] in either order, then
/// [`C2c::fuse_section`], for every section; then [`C2c::step`]. [`C2c::generate`] does all of it.
pub struct C2c<'a> {
    /// The model that answers.
    pub receiver: Box<dyn Decoder + 'a>,
    /// The models that are heard.
    pub sharers: Vec<Box<dyn Decoder + 'a>>,
    /// What joins them.
    pub fuser: Box<dyn Fusing + 'a>,
}

/// What was generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The tokens, the first of which follows the prompt.
    pub tokens: Vec<u32>,
    /// What was fused on the way.
    pub fused: Fused,
}

impl C2c<'_> {
    /// Refuses a prompt that cannot be run to this many new tokens, before anything is: an empty one, one that is longer
    /// than a model's context, tokens that a model does not have.
    pub fn check(&self, prompt: &Prompt, new_tokens: usize, response: Response) -> Done {
        let can_fuse = !prompt.is_aligned || response == Response::Plain;
        ensure!(can_fuse, "the response can be fused only where sharers have the receiver's tokens");
        let (given, has) = (prompt.sharers.len(), self.sharers.len());
        ensure!(given == has, "the prompt is for {given} teachers, and there are {has}");
        // The last token is chosen and never run.
        let behind = new_tokens.saturating_sub(1);
        check_tokens(&*self.receiver, &prompt.receiver, behind)?;
        for (at, (sharer, ids)) in self.sharers.iter().zip(&prompt.sharers).enumerate() {
            let heard = prompt.heard_tokens(at).min(ids.len());
            match response {
                Response::Fused(mask) if mask.has(at) => check_tokens(&**sharer, ids, behind)?,
                _ if heard == 0 => {}
                _ => check_tokens(&**sharer, &ids[..heard], 0)?,
            }
        }
        Ok(())
    }

    /// Lets every cache hold nothing.
    pub fn clear(&mut self) -> Done {
        self.receiver.truncate(0)?;
        self.sharers.iter_mut().try_for_each(|sharer| sharer.truncate(0))
    }

    /// Whether a section is one step of the receiver: one token behind others, which is the shorter way.
    fn is_step(&self, section: &Section) -> bool {
        section.positions.len() <= 1 && self.receiver.length() > 0
    }

    /// The number of the replay that running a section is, if it is one.
    pub fn section_replay(&mut self, section: &Section) -> Result<Option<u64>, ModelError> {
        match self.is_step(section) {
            true => self.receiver.next_replay(),
            false => self.receiver.next_prefill_replay(section.positions.len()),
        }
    }

    /// The number of the replay that the next step is, if it is nothing else.
    pub fn step_replay(&mut self, response: Response) -> Result<Option<u64>, ModelError> {
        if response == Response::Plain { self.receiver.next_replay() } else { Ok(None) }
    }

    /// Runs the receiver over a section, behind what its cache holds.
    pub fn run_section(&mut self, prompt: &Prompt, section: &Section) -> Done {
        let tokens = part(&prompt.receiver, section.positions.clone())?;
        if !self.is_step(section) {
            return self.receiver.prefill(&tokens);
        }
        self.receiver.set_next(&tokens.ids)?;
        self.receiver.step()
    }

    /// Runs every sharer once, over all of its tokens that are heard. Those that nobody hears are not run.
    pub fn share(&mut self, prompt: &Prompt, response: Response) -> Done {
        for (at, sharer) in self.sharers.iter_mut().enumerate() {
            let (ids, heard) = heard(prompt, response, at);
            if heard > 0 {
                sharer.prefill(&part(ids, 0..heard)?)?;
            }
        }
        Ok(())
    }

    /// The number of the replay that sharing is, if there is one sharer.
    pub fn share_replay(&mut self, prompt: &Prompt, response: Response) -> Result<Option<u64>, ModelError> {
        match self.sharers.as_mut_slice() {
            [only] => only.next_prefill_replay(heard(prompt, response, 0).1),
            _ => Ok(None),
        }
    }

    /// Fuses the positions of a section, unless nobody is heard in it.
    pub fn fuse_section(&mut self, section: &Section) -> Result<Fused, ModelError> {
        if section.mask.is_none() || section.positions.is_empty() {
            return Ok(Fused::default());
        }
        let mut sharers: Vec<&mut dyn Decoder> = self.sharers.iter_mut().map(|sharer| &mut **sharer as _).collect();
        self.fuser.fuse(&mut *self.receiver, &mut sharers, section)
    }

    /// Runs the token that was chosen last and chooses the next one; gives what was fused of it.
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

    /// Fuses the last positions of the receiver, which sharers have in the same places.
    pub fn fuse_last(&mut self, count: usize, mask: SharerMask) -> Result<Fused, ModelError> {
        let end = self.receiver.length();
        let start = end.saturating_sub(count);
        let sharer_starts = vec![start; self.sharers.len()];
        self.fuse_section(&Section { positions: start..end, sharer_starts, mask })
    }

    /// Runs a prompt from nothing, section by section: the last one leaves the first token chosen.
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

    /// Reads a prompt from nothing and goes on with the likeliest token each time.
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

/// The tokens of a sharer, and how many of them are heard.
fn heard(prompt: &Prompt, response: Response, sharer: usize) -> (&[u32], usize) {
    let ids = prompt.sharers.get(sharer).map(Vec::as_slice).unwrap_or_default();
    let count = match response {
        Response::Fused(mask) if mask.has(sharer) => ids.len(),
        _ => prompt.heard_tokens(sharer),
    };
    (ids, count)
}

fn part(ids: &[u32], positions: std::ops::Range<usize>) -> Result<Tokens, ModelError> {
    let refuse =
        || ModelError::Refused(format!("a section ends at {}, and there are {} tokens", positions.end, ids.len()));
    Ok(Tokens::one(ids.get(positions.clone()).ok_or_else(refuse)?.to_vec()))
}

fn check_tokens(decoder: &dyn Decoder, ids: &[u32], behind: usize) -> Done {
    let config = decoder.config();
    let (name, batch) = (&config.name, decoder.options().batch);
    ensure!(batch == 1, "`{name}` runs {batch} sequences together, and a prompt is one");
    ensure!(!ids.is_empty(), "the prompt is empty");
    Tokens::one(ids.to_vec()).check(config)?;
    fit(ids.len().saturating_add(behind), name, config.context)
}
