//! Aligns the tokens of two models over the same text.
//!
//! The receiver's tokens stay. Each token of a message gets one token of the sharer. Chat templates stay as they are, and
//! the shorter one is padded. Padding never runs: [`Aligned::prompt`] drops it, which equals masking it.

use std::{collections::HashMap, ops::Range};

use super::{Prompt, Rendered, Section, SharerMask};
use crate::{Done, ModelError, TokenRole, Tokenizer, error::ensure, words::words};

words! {
    /// Which of several sharer tokens to use for one of the receiver.
    #[derive(Default)]
    pub enum Choice ("way to align tokens") {
        /// The first.
        #[default]
        First = "first",
        /// The one with the longest text. Ties go to the first.
        Longest = "longest",
    }
}

/// Finds the sharer's tokens for those of a receiver.
#[derive(Debug)]
pub struct Aligner<'a> {
    receiver: &'a Tokenizer,
    sharer: &'a Tokenizer,
    choice: Choice,
    found: HashMap<u32, u32>,
}

/// The same text in the tokens of two models: lists of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aligned {
    receiver: Vec<u32>,
    sharer: Vec<u32>,
    receiver_padding: Vec<bool>,
    sharer_padding: Vec<bool>,
    /// Whether tokens belong to a message. Only these are fused.
    is_message: Vec<bool>,
}

impl<'a> Aligner<'a> {
    /// An aligner for two tokenizers.
    pub fn new(receiver: &'a Tokenizer, sharer: &'a Tokenizer, choice: Choice) -> Self {
        Self { receiver, sharer, choice, found: HashMap::new() }
    }

    /// Whether these tokens have the same text in both models, so that no alignment is needed.
    pub fn is_shared(&self, ids: &[u32]) -> bool {
        let same = |id: &u32| match (self.receiver.text_of(*id), self.sharer.text_of(*id)) {
            (Ok(ours), Ok(theirs)) => ours == theirs && !ours.is_empty(),
            _ => false,
        };
        (self.receiver.is_bytes() && self.sharer.is_bytes()) || ids.iter().all(same)
    }

    /// Aligns a text that was rendered for each model.
    pub fn align(&mut self, receiver: &Rendered, sharer: &Rendered) -> Result<Aligned, ModelError> {
        let (ours, theirs) = (parts(self.receiver, receiver)?, parts(self.sharer, sharer)?);
        if ours.len() != theirs.len() {
            let reason = format!("{} and {} messages were rendered", receiver.messages.len(), sharer.messages.len());
            return Err(not_aligned(&reason));
        }
        let mut aligned = Aligned::default();
        for (at, (ours, theirs)) in ours.into_iter().zip(theirs).enumerate() {
            // Messages alternate with parts of the template.
            if at % 2 == 1 {
                let found = ours.iter().map(|id| self.one(*id)).collect::<Result<_, _>>()?;
                aligned.add_message(ours, found);
            } else {
                self.add_template(&mut aligned, ours, theirs)?;
            }
        }
        Ok(aligned)
    }

    fn add_template(&self, to: &mut Aligned, mut ours: Vec<u32>, mut theirs: Vec<u32>) -> Done {
        let length = ours.len().max(theirs.len());
        let is_padding = |ids: &[u32]| -> Vec<bool> { (0..length).map(|at| at >= ids.len()).collect() };
        to.receiver_padding.extend(is_padding(&ours));
        to.sharer_padding.extend(is_padding(&theirs));
        for (ids, tokenizer) in [(&mut ours, self.receiver), (&mut theirs, self.sharer)] {
            if ids.len() < length {
                ids.resize(length, padding(tokenizer)?);
            }
        }
        to.receiver.extend(ours);
        to.sharer.extend(theirs);
        to.is_message.resize(to.receiver.len(), false);
        Ok(())
    }

    /// The sharer's token for one of the receiver.
    pub fn one(&mut self, id: u32) -> Result<u32, ModelError> {
        if let Some(found) = self.found.get(&id) {
            return Ok(*found);
        }
        let text = self.receiver.text_of(id)?;
        let found = match self.receiver.is_special(id) {
            true => self.special(id, &text),
            false => self.of_text(&text)?,
        };
        let unknown = || self.sharer.role(TokenRole::Unknown);
        let none = || not_aligned(&format!("the sharer has no token for {id}, which is `{text}`"));
        let found = found.or_else(unknown).ok_or_else(none)?;
        self.found.insert(id, found);
        Ok(found)
    }

    fn special(&self, id: u32, text: &str) -> Option<u32> {
        let is_its = |role: &TokenRole| self.receiver.role(*role) == Some(id);
        let mut roles = TokenRole::ALL.into_iter().filter(is_its);
        roles.find_map(|role| self.sharer.role(role)).or_else(|| self.sharer.id_of(text))
    }

    fn of_text(&self, text: &str) -> Result<Option<u32>, ModelError> {
        let ids: Vec<u32> = self.sharer.encode_with_places(text)?.into_iter().map(|(id, _)| id).collect();
        if self.choice == Choice::First || ids.len() < 2 {
            return Ok(ids.first().copied());
        }
        let mut longest = None;
        for id in ids {
            let length = self.sharer.text_of(id)?.chars().count();
            if longest.is_none_or(|(most, _)| length > most) {
                longest = Some((length, id));
            }
        }
        Ok(longest.map(|(_, id)| id))
    }
}

pub fn not_aligned(reason: &str) -> ModelError {
    let hint = "use two models that share a tokenizer, or a prompt without a chat template";
    ModelError::hinted(format!("the tokens of two models cannot be aligned: {reason}"), hint)
}

fn padding(tokenizer: &Tokenizer) -> Result<u32, ModelError> {
    let found = tokenizer.role(TokenRole::Padding).or_else(|| tokenizer.role(TokenRole::End));
    let reason = "a tokenizer has neither `pad_token` nor `eos_token` to pad the shorter template";
    found.ok_or_else(|| not_aligned(reason))
}

/// The tokens of a rendered text: parts of the template, possibly empty, alternating with messages.
fn parts(tokenizer: &Tokenizer, rendered: &Rendered) -> Result<Vec<Vec<u32>>, ModelError> {
    let tokens = tokenizer.encode_with_places(&rendered.text)?;
    let ids = |range: Range<usize>| tokens[range].iter().map(|(id, _)| *id).collect();
    let (mut parts, mut done) = (Vec::new(), 0);
    for message in &rendered.messages {
        // A token that overlaps a message belongs to it.
        let start = done + tokens[done..].partition_point(|(_, place)| place.end <= message.start);
        let end = start + tokens[start..].partition_point(|(_, place)| place.start < message.end);
        parts.extend([ids(done..start), ids(start..end)]);
        done = end;
    }
    parts.push(ids(done..tokens.len()));
    Ok(parts)
}

impl Aligned {
    fn add_message(&mut self, ours: Vec<u32>, theirs: Vec<u32>) {
        self.receiver.extend(ours);
        self.sharer.extend(theirs);
        let length = self.receiver.len();
        self.receiver_padding.resize(length, false);
        self.sharer_padding.resize(length, false);
        self.is_message.resize(length, true);
    }

    fn receiver_ids(&self) -> Vec<u32> {
        without(&self.receiver, &self.receiver_padding)
    }

    fn sharer_ids(&self) -> Vec<u32> {
        without(&self.sharer, &self.sharer_padding)
    }

    /// The prompt that fuses messages with the sharers of the mask, except the last token. `sharers` has the alignment with
    /// each sharer.
    pub fn prompt(sharers: &[Self], mask: SharerMask) -> Result<Prompt, ModelError> {
        let receiver = sharers.first().map(Self::receiver_ids).unwrap_or_default();
        ensure!(!receiver.is_empty(), "the prompt is empty, or there are no sharers");
        let is_same = sharers.iter().all(|other| other.receiver_ids() == receiver);
        ensure!(is_same, "the alignments with the sharers have different tokens of the receiver");
        let sections = sections(sharers, receiver.len(), mask);
        let sharers = sharers.iter().map(Self::sharer_ids).collect();
        Ok(Prompt { receiver, sharers, sections, is_aligned: true })
    }

    /// Where messages are, without padding.
    fn messages(&self) -> Vec<Message> {
        let (mut messages, mut start, mut sharer_start, mut at) = (Vec::new(), 0, 0, 0);
        for run in self.is_message.chunk_by(|a, b| a == b) {
            let tokens = |padding: &[bool]| padding[at..][..run.len()].iter().filter(|is| !**is).count();
            if run[0] {
                messages.push(Message { start, sharer_start, length: run.len() });
            }
            start += tokens(&self.receiver_padding);
            sharer_start += tokens(&self.sharer_padding);
            at += run.len();
        }
        messages
    }
}

#[derive(Debug, Clone, Copy)]
struct Message {
    start: usize,
    sharer_start: usize,
    length: usize,
}

/// The sections of this many tokens: messages are fused, the rest is not.
fn sections(sharers: &[Aligned], tokens: usize, mask: SharerMask) -> Vec<Section> {
    let messages: Vec<Vec<Message>> = sharers.iter().map(Aligned::messages).collect();
    let starts = |at: usize| messages.iter().map(|of| of.get(at).map_or(0, |message| message.sharer_start)).collect();
    let plain = |positions| Section { positions, sharer_starts: vec![0; sharers.len()], mask: SharerMask::NONE };
    let (mut sections, mut done) = (Vec::new(), 0);
    for (at, message) in messages.first().into_iter().flatten().enumerate() {
        // The last token is not fused, so that its logits follow from the fused cache.
        let end = (message.start + message.length).min(tokens.saturating_sub(1)).max(message.start);
        sections.push(plain(done..message.start));
        sections.push(Section { positions: message.start..end, sharer_starts: starts(at), mask });
        done = end;
    }
    sections.push(plain(done..tokens));
    sections.retain(|section| !section.positions.is_empty());
    sections
}

fn without(ids: &[u32], is_padding: &[bool]) -> Vec<u32> {
    ids.iter().zip(is_padding).filter(|(_, is_padding)| !**is_padding).map(|(id, _)| *id).collect()
}

#[cfg(test)]
mod tests;
