//! Chat templates, without a system message.

use std::ops::Range;

use super::align::not_aligned;
use crate::{ModelError, Tokenizer};

/// A chat template: the text before a user message, and the text after it up to the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatStyle(&'static str, &'static str);

/// A text with messages in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The whole text.
    pub text: String,
    /// The bytes of each message, in order.
    pub messages: Vec<Range<usize>>,
}

impl Rendered {
    /// A message without a template.
    pub fn raw(text: &str) -> Self {
        Self { text: text.to_owned(), messages: std::iter::once(0..text.len()).collect() }
    }
}

impl ChatStyle {
    /// Qwen, with an empty thinking block before the answer.
    pub const QWEN_THINKING: Self =
        Self("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");

    /// Qwen.
    pub const QWEN: Self = Self("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n");

    /// Llama 3.
    pub const LLAMA: Self = Self(
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    );

    /// The first template whose special tokens the tokenizer of `model` has.
    pub fn of(tokenizer: &Tokenizer, model: &str) -> Result<Self, ModelError> {
        let special = |text: &'static str| text.split_inclusive('>').filter_map(|part| Some(&part[part.find('<')?..]));
        let has_all = |text| special(text).all(|token| tokenizer.id_of(token).is_some());
        let mut known = [Self::QWEN_THINKING, Self::QWEN, Self::LLAMA].into_iter();
        known.find(|Self(before, after)| has_all(before) && has_all(after)).ok_or_else(|| {
            not_aligned(&format!(
                "no chat template can be rendered for `{model}`: it has neither <|im_start|> and <|im_end|> of Qwen nor \
                 <|begin_of_text|>, <|start_header_id|>, <|end_header_id|>, <|eot_id|> of Llama"
            ))
        })
    }

    /// A user message in the template.
    pub fn render(self, message: &str) -> Rendered {
        let Self(before, after) = self;
        let place = before.len()..before.len() + message.len();
        Rendered { text: format!("{before}{message}{after}"), messages: std::iter::once(place).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn messages_are_at_their_ranges() {
        for style in [ChatStyle::QWEN_THINKING, ChatStyle::QWEN, ChatStyle::LLAMA] {
            let rendered = style.render("say é");
            assert_eq!(&rendered.text[rendered.messages[0].clone()], "say é");
            assert!(rendered.text.ends_with("\n\n") || rendered.text.ends_with("assistant\n"));
        }
        assert_eq!(Rendered::raw("hello").messages.first(), Some(&(0..5)));
    }

    #[test]
    fn a_tokenizer_without_a_known_template_is_refused() {
        let bytes = Tokenizer::bytes(&Config::from_preset("tiny").unwrap()).unwrap();
        let error = ChatStyle::of(&bytes, "tiny").unwrap_err().to_string();
        assert!(error.contains("no chat template can be rendered for `tiny`: it has neither <|im_start|>"), "{error}");
    }
}
