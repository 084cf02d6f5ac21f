//! The rules: which calls sync the host. A table, and the user's additions.

use std::borrow::Cow;

use crate::paths::Language;

/// How certain a name alone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// The name always means a sync or a read of device data.
    Certain,
    /// The name has other uses too, or syncs only in some uses.
    Likely,
}

impl Certainty {
    /// The certainty as a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
        }
    }
}

/// How a call is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `x.name()`.
    Method,
    /// A function by its path; the last components of a longer path are enough.
    Function,
    /// Either.
    Any,
    /// A Rust macro.
    Macro,
    /// The truth value of `x.name()` or `name(x)`: in a condition, or in `bool`, `int` or `float`.
    Truth,
}

/// The arguments for which a call syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Anything.
    Nothing,
    /// No positional arguments.
    NoArguments,
    /// Exactly one positional argument.
    OneArgument,
    /// The literal CPU device.
    Cpu,
}

/// A call that makes the host wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The language; both if none.
    pub language: Option<Language>,
    /// The name, or the end of a path: `to_vec1`, `torch.cuda.synchronize`.
    pub name: Cow<'static, str>,
    /// How the call is written.
    pub form: Form,
    /// What its arguments must be.
    pub needs: Needs,
    /// How certain it is.
    pub certainty: Certainty,
    /// Its result is on the host, so calls on the result do not sync.
    pub is_read: bool,
}

impl Rule {
    /// A call named by the user: a function or method of either language, or a macro with `!`.
    pub fn named(name: &str) -> Self {
        let (name, form) = match name.strip_suffix('!') {
            Some(name) => (name, Form::Macro),
            None => (name, Form::Any),
        };
        let name = Cow::Owned(name.trim_start_matches('.').trim_end_matches("()").replace("::", "."));
        let (needs, certainty) = (Needs::Nothing, Certainty::Certain);
        Self { language: None, name, form, needs, certainty, is_read: false }
    }

    /// The last part of the name.
    pub fn last_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Whether the call can only follow a `.`.
    fn needs_dot(&self) -> bool {
        self.language == Some(Language::Python) && matches!(self.form, Form::Method | Form::Truth)
    }

    fn is_for(&self, language: Language) -> bool {
        self.language.is_none_or(|known| known == language)
    }

    /// Whether a path ends with the rule's name.
    pub(crate) fn fits(&self, path: &[&str]) -> bool {
        let mut names = path.iter().rev();
        self.name.rsplit('.').all(|part| names.next().is_some_and(|name| *name == part))
    }
}

use Certainty::{Certain, Likely};
use Form::{Any, Function, Macro, Method, Truth};
use Language::{Python, Rust};
use Needs::{Cpu, NoArguments, Nothing, OneArgument};

/// Whether the result of a built-in rule is on the host.
const READ: bool = true;

/// The built-in rules: names with blanks between them, and what they have in common. The first match wins.
const BUILT_IN: [(&str, Language, Form, Needs, Certainty, bool); 23] = [
    // candle: tensor reads.
    ("to_vec0 to_vec1 to_vec2 to_vec3 to_scalar", Rust, Any, Nothing, Certain, READ),
    ("to_device", Rust, Any, Cpu, Certain, READ),
    // Devices, streams and events of candle, cudarc and Laptime; Metal command buffers.
    ("synchronize synchronise wait_until_completed", Rust, Any, Nothing, Certain, !READ),
    // cudarc: copies to the host.
    ("clone_dtoh memcpy_dtov dtoh_sync_copy", Rust, Any, Nothing, Certain, READ),
    ("dtoh_sync_copy_into dtoh_sync_copy_into_reclaim", Rust, Any, Nothing, Certain, !READ),
    // Host arrays have the first one too, and the second does not wait if it copies into pinned memory.
    ("to_cpu_storage", Rust, Any, Nothing, Likely, READ),
    ("memcpy_dtoh", Rust, Any, Nothing, Likely, !READ),
    // The CUDA API.
    (
        "cuCtxSynchronize cuStreamSynchronize cuEventSynchronize cuMemcpyDtoH_v2 cudaDeviceSynchronize \
         cudaStreamSynchronize cudaEventSynchronize",
        Rust,
        Any,
        Nothing,
        Certain,
        !READ,
    ),
    // Laptime: a marked sync.
    ("sync_point", Rust, Macro, Nothing, Certain, !READ),
    // torch: tensor reads.
    ("item cpu", Python, Method, NoArguments, Certain, READ),
    ("to", Python, Method, Cpu, Certain, READ),
    // NumPy arrays have these too.
    ("tolist numpy", Python, Method, NoArguments, Likely, READ),
    // torch.cuda, torch.mps, torch.xpu, torch.accelerator, streams and events.
    (
        "torch.cuda.synchronize torch.mps.synchronize torch.xpu.synchronize torch.accelerator.synchronize",
        Python,
        Function,
        Nothing,
        Certain,
        !READ,
    ),
    ("synchronize", Python, Any, Nothing, Certain, !READ),
    // Operations whose result size or truth value the host needs.
    ("torch.nonzero torch.argwhere", Python, Function, Nothing, Certain, !READ),
    ("torch.where", Python, Function, OneArgument, Certain, !READ),
    (
        "torch.masked_select torch.unique torch.unique_consecutive torch.equal torch.allclose torch.is_nonzero",
        Python,
        Function,
        Nothing,
        Certain,
        !READ,
    ),
    ("masked_select unique_consecutive", Python, Method, Nothing, Certain, !READ),
    ("nonzero unique", Python, Method, NoArguments, Likely, !READ),
    ("any all sum mean max min argmax argmin norm", Python, Truth, Nothing, Likely, !READ),
    // JAX and CuPy.
    ("block_until_ready", Python, Method, Nothing, Certain, !READ),
    ("jax.block_until_ready jax.device_get", Python, Function, Nothing, Certain, !READ),
    ("cupy.asnumpy", Python, Function, Nothing, Certain, READ),
];

/// The rules of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// The built-in rules.
    pub fn built_in() -> Self {
        let rules = BUILT_IN.into_iter().flat_map(|(names, language, form, needs, certainty, is_read)| {
            let rule = move |name| {
                let (language, name) = (Some(language), Cow::Borrowed(name));
                Rule { language, name, form, needs, certainty, is_read }
            };
            names.split(' ').map(rule)
        });
        Self { rules: rules.collect() }
    }

    /// Adds a rule with priority over the existing ones.
    pub fn add(&mut self, rule: Rule) {
        self.rules.insert(0, rule);
    }

    /// All rules, in order of priority.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Whether any word of a text could be a host sync; a text without one need not be parsed.
    pub fn may_occur(&self, text: &str, language: Language) -> bool {
        let mut by_letter: [Vec<&Rule>; 128] = std::array::from_fn(|_| Vec::new());
        for rule in self.of(language) {
            let letter = rule.last_name().bytes().next().filter(u8::is_ascii).unwrap_or(0);
            by_letter[usize::from(letter)].push(rule);
        }
        let is_one = |(before, word): (u8, &[u8])| {
            let rules = &by_letter[usize::from(word[0].min(127))];
            rules.iter().any(|rule| rule.last_name().as_bytes() == word && (before == b'.' || !rule.needs_dot()))
        };
        // A name that is not a single word is assumed to occur.
        !by_letter[0].is_empty()
            || language == Language::Rust && names_tests(text)
            || words(text.as_bytes()).any(is_one)
    }

    pub(crate) fn of(&self, language: Language) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.is_for(language))
    }
}

/// The number of characters after a condition in which the `mod` must appear.
const MODULE_WITHIN: usize = 200;

/// Whether a text may declare a test file: `#[cfg(test)] mod cases;`.
fn names_tests(text: &str) -> bool {
    text.match_indices("cfg(").any(|(at, _)| {
        let rest = text.get(at..text.ceil_char_boundary(at + MODULE_WITHIN)).unwrap_or_default();
        let end = rest.find(['{', ';']).unwrap_or(rest.len());
        rest[end..].starts_with(';') && rest[..end].contains("test") && rest[..end].contains("mod ")
    })
}

/// The words of a text, each with the byte before it.
fn words(text: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].iter().position(is_part)?;
        let length = text[at..].iter().position(|byte| !is_part(byte)).unwrap_or(text.len() - at);
        let word = &text[at..at + length];
        let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
        at += length;
        Some((before, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_fits_the_end_of_a_path() {
        let rule = Rule::named("cuda::synchronize");
        assert!(rule.fits(&["torch", "cuda", "synchronize"]) && rule.fits(&["cuda", "synchronize"]));
        assert!(!rule.fits(&["synchronize"]) && !rule.fits(&["xcuda", "synchronize"]));
    }

    #[test]
    fn a_text_without_names_of_rules_need_not_be_parsed() {
        let rules = Rules::built_in();
        assert!(rules.may_occur("x.item()", Python) && rules.may_occur("t.to_vec1::<f32>()?", Rust));
        assert!(!rules.may_occur("items, to_vec10, §item_, max(all(x))", Python));
        assert!(!rules.may_occur("x.item()", Rust), "a rule of Python");
        assert!(rules.may_occur("#[cfg(test)]\nmod cases;", Rust));
        assert!(!rules.may_occur("#[cfg(test)]\nmod cases { use x; }", Rust));
    }
}
