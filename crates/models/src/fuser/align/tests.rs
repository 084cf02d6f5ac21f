use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{Config, fuser::ChatStyle};

/// A tokenizer of these words, made of single letters where a word is none of them.
fn tokenizer(words: &[&str], marks: &[&str], roles: &str) -> (TempDir, Tokenizer) {
    let folder = tempfile::tempdir().unwrap();
    let letters: Vec<String> = ('a'..='z').chain([' ', '\n', '.']).map(String::from).collect();
    let mut vocab = serde_json::Map::new();
    for word in ["[UNK]"].into_iter().chain(letters.iter().map(String::as_str)).chain(words.iter().copied()) {
        let id = vocab.len();
        vocab.insert(word.to_owned(), id.into());
    }
    let first = vocab.len();
    let added = |(at, mark): (usize, &&str)| {
        let special = !mark.contains("think");
        serde_json::json!({"id": first + at, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": special})
    };
    let added: Vec<serde_json::Value> = marks.iter().enumerate().map(added).collect();
    // Words are merged of their letters one by one, so that they are found whole.
    let merges = merges_of(words);
    for (at, merged) in merges.iter().map(|(a, b)| format!("{a}{b}")).enumerate() {
        vocab.entry(merged).or_insert_with(|| (10_000 + at).into());
    }
    let merges: Vec<[&String; 2]> = merges.iter().map(|(a, b)| [a, b]).collect();
    let file = serde_json::json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "dropout": null, "unk_token": "[UNK]", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges}});
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), roles).unwrap();
    let opened = open(folder.path());
    (folder, opened)
}

fn merges_of(words: &[&str]) -> Vec<(String, String)> {
    let mut merges = Vec::new();
    for word in words {
        let letters: Vec<char> = word.chars().collect();
        for end in 1..letters.len() {
            let merge = (letters[..end].iter().collect(), letters[end].to_string());
            if !merges.contains(&merge) {
                merges.push(merge);
            }
        }
    }
    merges
}

fn open(folder: &Path) -> Tokenizer {
    Tokenizer::open(folder, &Config::from_preset("tiny").unwrap()).unwrap()
}

const QWEN: [&str; 5] = ["<|im_start|>", "<|im_end|>", "<|end|>", "<think>", "</think>"];
const LLAMA: [&str; 6] =
    ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|pad|>", "<|im_end|>"];

const QWEN_ROLES: &str = r#"{"pad_token": "<|end|>", "eos_token": {"content": "<|im_end|>"}, "unk_token": null}"#;
const LLAMA_ROLES: &str = r#"{"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|pad|>"}"#;

/// One with whole words, and one that has only halves of them.
fn both() -> [(TempDir, Tokenizer); 2] {
    [tokenizer(&["say", "hello"], &QWEN, QWEN_ROLES), tokenizer(&["he", "llo", "say"], &LLAMA, LLAMA_ROLES)]
}

fn ids_of(tokenizer: &Tokenizer, tokens: &[&str]) -> Vec<u32> {
    tokens.iter().map(|token| tokenizer.id_of(token).unwrap()).collect()
}

#[test]
fn tokens_of_a_message_are_paired_and_templates_padded() {
    let [(_first, receiver), (_second, sharer)] = both();
    let styles = [ChatStyle::of(&receiver, "receiver").unwrap(), ChatStyle::of(&sharer, "sharer").unwrap()];
    assert_eq!(styles, [ChatStyle::QWEN_THINKING, ChatStyle::LLAMA]);
    let [ours, theirs] = styles.map(|style| style.render("say hello"));
    for (choice, hello) in [(Choice::First, "he"), (Choice::Longest, "llo")] {
        let aligned = Aligner::new(&receiver, &sharer, choice).align(&ours, &theirs).unwrap();
        let length = aligned.receiver.len();
        let lists = [&aligned.receiver_padding, &aligned.sharer_padding, &aligned.is_message];
        assert!(aligned.sharer.len() == length && lists.iter().all(|list| list.len() == length));
        let message: Vec<usize> = (0..length).filter(|at| aligned.is_message[*at]).collect();
        let found = |ids: &[u32]| -> Vec<u32> { message.iter().map(|at| ids[*at]).collect() };
        assert_eq!(found(&aligned.receiver), ids_of(&receiver, &["say", " ", "hello"]));
        assert_eq!(found(&aligned.sharer), ids_of(&sharer, &["say", " ", hello]));
        // Nothing is lost of either template.
        let whole = |tokenizer: &Tokenizer, text: &str| -> Vec<u32> {
            tokenizer.encode_with_places(text).unwrap().into_iter().map(|(id, _)| id).collect()
        };
        assert_eq!(aligned.receiver_ids(), whole(&receiver, &ours.text));
        assert_eq!(aligned.sharer_ids().len(), whole(&sharer, &theirs.text).len() - 1);
        let pads = |ids: &[u32], is_padding: &[bool], pad: u32| {
            ids.iter().zip(is_padding).filter(|(_, is)| **is).all(|(id, _)| *id == pad)
        };
        assert!(pads(&aligned.receiver, &aligned.receiver_padding, receiver.id_of("<|end|>").unwrap()));
        assert!(pads(&aligned.sharer, &aligned.sharer_padding, sharer.id_of("<|pad|>").unwrap()));
        assert_ne!(aligned.receiver_padding.contains(&true), aligned.sharer_padding[..8].contains(&true));
    }
}

#[test]
fn a_prompt_of_aligned_tokens_fuses_only_the_message() {
    let [(_first, receiver), (_second, sharer)] = both();
    let (ours, theirs) = (ChatStyle::QWEN_THINKING.render("say hello"), ChatStyle::LLAMA.render("say hello"));
    let aligned = Aligner::new(&receiver, &sharer, Choice::First).align(&ours, &theirs).unwrap();
    let prompt = Aligned::prompt(std::slice::from_ref(&aligned), SharerMask::FIRST).unwrap();
    assert!(prompt.is_aligned);
    assert_eq!((prompt.receiver.clone(), &prompt.sharers[0]), (aligned.receiver_ids(), &aligned.sharer_ids()));
    let masks: Vec<u64> = prompt.sections.iter().map(|section| section.mask.0).collect();
    assert_eq!(masks, [0, 1, 0]);
    let message = &prompt.sections[1];
    assert_eq!(prompt.receiver[message.positions.clone()], ids_of(&receiver, &["say", " ", "hello"]));
    let there = &prompt.sharers[0][message.sharer_starts[0]..][..3];
    assert_eq!(there, ids_of(&sharer, &["say", " ", "he"]));
    let ends: Vec<usize> = prompt.sections.iter().map(|section| section.positions.end).collect();
    assert_eq!((prompt.sections[0].positions.start, ends[2]), (0, prompt.receiver.len()));
    assert_eq!(prompt.shared_tokens(0), message.sharer_starts[0] + 3);
}

#[test]
fn the_last_token_of_a_text_is_not_fused() {
    let [(_first, receiver), (_second, sharer)] = both();
    let mut aligner = Aligner::new(&receiver, &sharer, Choice::First);
    let of = |aligner: &mut Aligner<'_>, text: &str| {
        let aligned = aligner.align(&Rendered::raw(text), &Rendered::raw(text)).unwrap();
        Aligned::prompt(&[aligned], SharerMask::FIRST)
    };
    let sections = of(&mut aligner, "say hello").unwrap().sections;
    let found: Vec<_> = sections.iter().map(|section| (section.positions.clone(), section.mask.0)).collect();
    assert_eq!(found, [(0..2, 1), (2..3, 0)]);
    assert_eq!(of(&mut aligner, "say").unwrap().sections.len(), 1);
    assert_eq!(of(&mut aligner, "").unwrap_err().to_string(), "the prompt is empty, or there are no sharers");
}

#[test]
fn special_tokens_are_found_by_role_then_by_text() {
    let [(_first, receiver), (_second, sharer)] = both();
    let mut aligner = Aligner::new(&receiver, &sharer, Choice::First);
    let mut found = |token: &str| sharer.text_of(aligner.one(receiver.id_of(token).unwrap()).unwrap()).unwrap();
    // It ends a sequence with both, though the sharer has one that is written the same.
    assert_eq!(found("<|im_end|>"), "<|eot_id|>");
    assert_eq!(found("<|end|>"), "<|pad|>");
    let error = aligner.one(receiver.id_of("<|im_start|>").unwrap()).unwrap_err();
    let message = error.to_string();
    let is_named = message.ends_with("which is `<|im_start|>`");
    assert!(message.contains("the sharer has no token for ") && is_named, "{message}");
    assert!(error.hint().is_some());
    let mut back = Aligner::new(&sharer, &receiver, Choice::First);
    let written_the_same = back.one(sharer.id_of("<|im_end|>").unwrap()).unwrap();
    assert_eq!(written_the_same, receiver.id_of("<|im_end|>").unwrap());
}

#[test]
fn texts_that_cannot_be_aligned_are_refused() {
    let (_first, receiver) = tokenizer(&["say"], &QWEN, "{}");
    let (_second, sharer) = tokenizer(&["say"], &LLAMA, "{}");
    let (ours, theirs) = (ChatStyle::QWEN.render("say"), ChatStyle::LLAMA.render("say"));
    let error = Aligner::new(&receiver, &sharer, Choice::First).align(&ours, &theirs).unwrap_err().to_string();
    assert!(error.contains("has neither `pad_token` nor `eos_token`"), "{error}");
    let none = Rendered { text: "say".to_owned(), messages: Vec::new() };
    let error = Aligner::new(&receiver, &sharer, Choice::First).align(&ours, &none).unwrap_err().to_string();
    assert!(error.ends_with("1 and 0 messages were rendered"), "{error}");
    let error = ChatStyle::of(&tokenizer(&[], &[], "{}").1, "it").unwrap_err().to_string();
    assert!(error.contains("no chat template can be rendered for `it`"), "{error}");
}

#[test]
fn tokenizers_that_agree_need_no_alignment() {
    let [(_first, receiver), (_second, sharer)] = both();
    let same = Aligner::new(&receiver, &receiver, Choice::First);
    let other = Aligner::new(&receiver, &sharer, Choice::First);
    let (letters, words) = (ids_of(&receiver, &["a", "b"]), ids_of(&receiver, &["a", "hello"]));
    assert!(same.is_shared(&words) && other.is_shared(&letters) && !other.is_shared(&words));
    let bytes = Tokenizer::bytes(&Config::from_preset("tiny").unwrap()).unwrap();
    assert!(Aligner::new(&bytes, &bytes, Choice::First).is_shared(&[3, 255]));
    assert!(!Aligner::new(&bytes, &receiver, Choice::First).is_shared(&[3]));
}

#[test]
fn choices_are_read_in_any_case() {
    assert_eq!("Longest".parse::<Choice>().unwrap(), Choice::Longest);
    assert_eq!("first".parse::<Choice>().unwrap(), Choice::First);
    assert!("last".parse::<Choice>().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_message_gives_lists_of_one_length_and_sections_of_everything(message in "[a-z .]{0,40}") {
        let [(_first, receiver), (_second, sharer)] = both();
        let (ours, theirs) = (ChatStyle::QWEN_THINKING.render(&message), ChatStyle::LLAMA.render(&message));
        let aligned = Aligner::new(&receiver, &sharer, Choice::Longest).align(&ours, &theirs).unwrap();
        let length = aligned.receiver.len();
        prop_assert!([aligned.sharer.len(), aligned.is_message.len()] == [length; 2]);
        let prompt = Aligned::prompt(&[aligned], SharerMask::FIRST).unwrap();
        let mut end = 0;
        for section in &prompt.sections {
            prop_assert_eq!(section.positions.start, end);
            end = section.positions.end;
        }
        prop_assert_eq!(end, prompt.receiver.len());
        prop_assert!(prompt.sections.last().is_some_and(|section| section.mask.is_none()));
        prop_assert!(prompt.shared_tokens(0) <= prompt.sharers[0].len());
    }
}
