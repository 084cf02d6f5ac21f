//! A message as a model of a family expects it: in its chat template, without a system's message.

use std::ops::Range;

use super::align::not_aligned;
use crate::{ModelError, Tokenizer};

/// The templates that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatStyle {
    /// That of Qwen: `<|im_start|>`, role, message, `<|im_end|>`.
    Qwen {
        /// Whether the answer begins with thoughts, which are left empty.
        thinks: bool,
    },
    /// That of Llama 3: `<|start_header_id|>`, role, `<|end_header_id|>`, message, `<|eot_id|>`.
    Llama,
}

/// A text, and where in it messages are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The whole text.
    pub text: String,
    /// The bytes of each message, in order.
    pub messages: Vec<Range<usize>>,
}

impl Rendered {
    /// A text that is a message as it stands, without a template.
    pub fn raw(text: &str) -> Self {
        Self { text: text.to_owned(), messages: std::iter::once(0..text.len()).collect() }
    }
}

const QWEN: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
const THOUGHTS: [&str; 2] = ["<think>", "</think>"];
const LLAMA: [&str; 4] = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];

impl ChatStyle {
    /// The template that a tokenizer has the marks of; `model` is whose it is.
    pub fn of(tokenizer: &Tokenizer, model: &str) -> Result<Self, ModelError> {
        let has = |marks: &[&str]| marks.iter().all(|mark| tokenizer.id_of(mark).is_some());
        if has(&QWEN) {
            return Ok(Self::Qwen { thinks: has(&THOUGHTS) });
        }
        if has(&LLAMA) {
            return Ok(Self::Llama);
        }
        let marks = format!("neither {} of Qwen nor {} of Llama", QWEN.join(" and "), LLAMA.join(", "));
        Err(not_aligned(&format!("no chat template can be rendered for `{model}`: it has {marks}")))
    }

    /// A user's message in the template, up to where the answer begins.
    pub fn render(self, message: &str) -> Rendered {
        let (before, behind) = match self {
            Self::Qwen { thinks } => {
                let thoughts = if thinks { "<think>\n\n</think>\n\n" } else { "" };
                ("<|im_start|>user\n", format!("<|im_end|>\n<|im_start|>assistant\n{thoughts}"))
            }
            Self::Llama => (
                "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
                "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n".to_owned(),
            ),
        };
        let place = before.len()..before.len() + message.len();
        Rendered { text: format!("{before}{message}{behind}"), messages: std::iter::once(place).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn messages_stand_where_they_are_said_to() {
        for style in [ChatStyle::Qwen { thinks: true }, ChatStyle::Qwen { thinks: false }, ChatStyle::Llama] {
            let rendered = style.render("say é");
            assert_eq!(&rendered.text[rendered.messages[0].clone()], "say é");
            assert!(rendered.text.ends_with("\n\n") || rendered.text.ends_with("assistant\n"));
        }
        assert_eq!(Rendered::raw("hello").messages.first(), Some(&(0..5)));
    }

    #[test]
    fn a_tokenizer_without_the_marks_of_a_template_is_told() {
        let bytes = Tokenizer::bytes(&Config::from_preset("tiny").unwrap()).unwrap();
        let error = ChatStyle::of(&bytes, "tiny").unwrap_err().to_string();
        assert!(error.contains("no chat template can be rendered for `tiny`: it has neither <|im_start|>"), "{error}");
    }
}
