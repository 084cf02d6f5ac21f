//! The workload on the CPU: cases of a request, refusals, and results of an iteration.

use std::io::Write;

use laptime_bench::{AxisValue, Case, Iteration, Nanos, PlanError, Prepared, Simulated, Workload};
use laptime_models::{Config, Dtype};

use super::CacheToCache;

/// The cases of these flags and values.
fn settled(given: &[(&str, &str)]) -> Result<Vec<Case>, PlanError> {
    let given: Vec<(String, Vec<String>)> =
        given.iter().map(|(name, word)| ((*name).to_owned(), vec![(*word).to_owned()])).collect();
    Ok(CacheToCache.plan(&given)?.cases())
}

fn refused(given: &[(&str, &str)]) -> String {
    settled(given).unwrap_err().to_string()
}

/// The first case of the tiny pair.
fn tiny(rest: &[(&str, &str)]) -> Case {
    let given = [&[("preset", "tiny"), ("threads", "2"), ("max_new_tokens", "4")], rest].concat();
    settled(&given).unwrap().remove(0)
}

fn ready(case: &Case, act: impl FnOnce(&mut dyn Iteration)) {
    match CacheToCache.prepare(case, &Simulated::new()).unwrap() {
        Prepared::Ready(mut iteration) => act(&mut *iteration),
        Prepared::DoesNotApply(reason) => panic!("{reason}"),
        Prepared::DoesNotFit { .. } => panic!("memory is unlimited"),
    }
}

fn fact(iteration: &dyn Iteration, name: &str) -> AxisValue {
    iteration.facts().into_iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no {name}")).value
}

#[test]
fn a_pair_is_given_by_name_or_by_its_models() {
    let models = |given: &[(&str, &str)]| {
        let case = settled(given).unwrap().remove(0);
        [case.text("base_model").unwrap().to_owned(), case.text("teacher_model").unwrap().to_owned()]
    };
    assert_eq!(models(&[("preset", "default")]), ["Qwen3-0.6B", "Qwen3-4B-Base"]);
    assert_eq!(models(&[("preset", "tiny"), ("prompt_tokens", "9")]), ["tiny", "tiny-qwen2"]);
    assert_eq!(models(&[("teacher_model", "qwen/qwen3-1.7b")]), ["auto", "Qwen3-1.7B"]);
    let lengths = settled(&[("preset", "default"), ("prompt_tokens", "32-2048*2")]).unwrap();
    assert_eq!(lengths.len(), 7);
    assert!(lengths[0].get("prompt").is_none() && lengths[0].get("preset").is_none());
}

#[test]
fn the_default_pair_and_prompt_depend_on_the_device() {
    let open = settled(&[]).unwrap().remove(0);
    assert_eq!((open.text("base_model"), open.text("prompt_tokens")), (Ok("auto"), Ok("auto")));
    let on_cpu = CacheToCache.on_device(&open, &Simulated::new());
    assert_eq!((on_cpu.text("base_model"), on_cpu.text("teacher_model")), (Ok("tiny"), Ok("tiny-qwen2")));
    assert_eq!(on_cpu.size("prompt_tokens"), Ok(256), "half of the context");
    let on_gpu = super::plan::on_device(&open, true);
    assert_eq!((on_gpu.text("base_model"), on_gpu.text("teacher_model")), (Ok("Qwen3-0.6B"), Ok("Qwen3-4B-Base")));
    assert_eq!(on_gpu.size("prompt_tokens"), Ok(512));
    assert_eq!(settled(&[("preset", "tiny")]).unwrap()[0].size("prompt_tokens"), Ok(256));
    let asked = CacheToCache.on_device(&settled(&[("prompt_tokens", "99")]).unwrap()[0], &Simulated::new());
    assert_eq!(asked.size("prompt_tokens"), Ok(99), "a length that was given stays");
}

#[test]
fn billions_of_tokens_are_refused_before_any_is_generated() {
    for (axis, models) in [("prompt_tokens", "default"), ("prompt_tokens", "auto"), ("max_new_tokens", "default")] {
        let shown = refused(&[("preset", models), (axis, "4294967295")]);
        assert!(shown.contains("exceeds the context of `"), "{shown}");
    }
}

#[test]
fn teacher_calls_include_new_tokens() {
    for (response, calls) in [("false", 1), ("true", 4)] {
        ready(&tiny(&[("prompt_tokens", "8"), ("include_response", response)]), |iteration| {
            iteration.check().unwrap();
            iteration.ready().unwrap();
            iteration.run().unwrap();
            assert_eq!(fact(iteration, "teacher_calls"), AxisValue::Int(calls), "{response}");
        });
    }
}

#[test]
fn the_default_dtype_is_that_of_the_base_model() {
    let case = CacheToCache.on_device(&settled(&[("preset", "default")]).unwrap()[0], &Simulated::new());
    assert_eq!(case.text("dtype").unwrap(), "bf16");
}

#[test]
fn a_message_is_one_prompt_and_its_tokens_are_counted() {
    let case = tiny(&[("prompt", "Say hello, in one sentence")]);
    assert_eq!(case.text("prompt").unwrap(), "Say hello, in one sentence");
    assert_eq!(case.size("prompt_tokens").unwrap(), 26);
    ready(&case, |iteration| {
        iteration.check().unwrap();
        assert_eq!(fact(iteration, "prompt_text"), "Say hello, in one sentence".into());
    });
}

#[test]
fn lines_of_a_file_are_cases() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{{\"prompt\": \"one\"}}\n\n{{\"question\": \"three\", \"id\": 3}}").unwrap();
    let name = file.path().display().to_string();
    let given = |rest: &[(&str, &str)]| {
        let given = [&[("preset", "tiny"), ("prompt_file", &*name)], rest].concat();
        settled(&given).map(|cases| cases.iter().map(|case| case.size("prompt_tokens").unwrap()).collect::<Vec<_>>())
    };
    assert_eq!(given(&[]).unwrap(), [3]);
    assert_eq!(given(&[("samples", "2")]).unwrap(), [3, 5]);
    assert_eq!(given(&[("sample", "2")]).unwrap(), [5]);
    let many = given(&[("samples", "3")]).unwrap_err().to_string();
    assert!(many.ends_with("has 2 prompts, and 3 were requested"), "{many}");
    writeln!(file, "{{\"text\": \"four\"}}").unwrap();
    let other = given(&[]).unwrap_err().to_string();
    assert!(other.contains("line 4 of") && other.ends_with("expected a `prompt` or a `question`"), "{other}");
    let missing = refused(&[("prompt_file", "nowhere.jsonl")]);
    assert!(missing.starts_with("cannot read the prompts of `nowhere.jsonl`"), "{missing}");
}

#[test]
fn invalid_pairs_and_prompts_are_refused_before_anything_is_measured() {
    assert_eq!(refused(&[("preset", "tiny"), ("prompt", " ")]), "the prompt is empty");
    let long = refused(&[("preset", "tiny"), ("prompt_tokens", "510"), ("max_new_tokens", "4")]);
    assert_eq!(long, "the prompt (510 tokens) plus 4 new tokens exceeds the context of `tiny` (512)");
    assert!(refused(&[("base_model", "qwen9")]).contains("there is no model `qwen9`"));
    let missing = refused(&[("preset", "tiny"), ("fuser_checkpoint", "./nowhere"), ("prompt_tokens", "8")]);
    assert!(missing.contains("nowhere"), "{missing}");
    let both = refused(&[("preset", "tiny"), ("prompt", "a"), ("prompt_tokens", "8")]);
    assert_eq!(both, "give only one of `prompt`, `prompt_file` and `prompt_tokens`");
    assert_eq!(refused(&[("samples", "2")]), "`samples` needs a file of prompts");
}

#[test]
fn a_length_that_is_too_long_is_a_row_if_others_fit() {
    let cases = settled(&[("preset", "tiny"), ("prompt_tokens", "16,2048")]).unwrap();
    let Prepared::DoesNotApply(reason) = CacheToCache.prepare(&cases[1], &Simulated::new()).unwrap() else {
        panic!("2048 tokens are too many")
    };
    assert!(reason.starts_with("the prompt (2048 tokens) plus 32 new tokens exceeds"), "{reason}");
}

#[test]
fn both_orders_give_the_same_tokens_and_the_same_calls() {
    let run = |order: &str| {
        let mut shown = None;
        ready(&tiny(&[("prompt_tokens", "24"), ("fuse", order)]), |iteration| {
            iteration.check().unwrap();
            iteration.ready().unwrap();
            iteration.run().unwrap();
            let calls =
                [fact(iteration, "teacher_calls"), fact(iteration, "projector_calls"), fact(iteration, "closed_paths")];
            shown = Some((fact(iteration, "response"), calls, fact(iteration, "new_tokens")));
        });
        shown.unwrap()
    };
    let (batched, by_layer) = (run("batched"), run("by-layer"));
    assert_eq!(batched, by_layer);
    assert_eq!(batched.1, [1.into(), 2.into(), 0.into()]);
    assert_eq!(batched.2, 4.into());
}

#[test]
fn a_prompt_of_one_token_is_not_fused_and_one_new_token_has_no_steps() {
    ready(&tiny(&[("prompt_tokens", "1")]).with("max_new_tokens", 1), |iteration| {
        iteration.check().unwrap();
        assert_eq!([fact(iteration, "teacher_calls"), fact(iteration, "projector_calls")], [0.into(), 0.into()]);
        let [_, each, rate, share, projection, ..] = iteration.readings(Nanos(1))[..] else { panic!("ten metrics") };
        assert_eq!([each, rate, share, projection], [None; 4]);
    });
}

#[test]
fn a_case_that_does_not_fit_is_reported_and_not_run() {
    let device = Simulated::with_memory(1 << 30);
    let case = &settled(&[("preset", "default")]).unwrap()[0];
    let Prepared::DoesNotFit { needed, .. } = CacheToCache.prepare(case, &device).unwrap() else {
        panic!("4.6 billion parameters do not fit")
    };
    // 0.6 and 4.0 billion parameters and a fuser of half a billion, in bf16.
    assert!((10_200_000_000..12_000_000_000).contains(&needed), "{needed}");
    assert_eq!(CacheToCache.parse(case, &device).unwrap().predicted_bytes(), Some(needed));
}

#[test]
fn one_more_token_is_the_work_of_one_more_step() {
    let flops = |new_tokens: i64| {
        let mut flops = 0;
        let case = tiny(&[("prompt_tokens", "32")]).with("max_new_tokens", new_tokens);
        ready(&case, |iteration| flops = iteration.work().unwrap().flops);
        flops
    };
    let step = Config::from_preset("tiny").unwrap().step_work(1, 35, Dtype::F32).work().flops;
    assert_eq!(flops(5) - flops(4), step);
}

#[test]
fn every_iteration_reports_all_metrics() {
    let metrics = CacheToCache.metrics().len();
    let c2c = tiny(&[("prompt_tokens", "8")]);
    let against = settled(&[("preset", "tiny"), ("prompt_tokens", "8"), ("against", "text"), ("text_tokens", "2")]);
    ready(&c2c, |iteration| assert!(iteration.readings(Nanos(1)).len() <= metrics));
    ready(&against.unwrap()[0], |iteration| assert_eq!(iteration.readings(Nanos(1)).len(), metrics));
}

#[test]
fn overlap_does_not_apply_without_a_second_stream() {
    let case = tiny(&[("prompt_tokens", "8"), ("overlap", "true")]);
    let Prepared::DoesNotApply(reason) = CacheToCache.prepare(&case, &Simulated::new()).unwrap() else {
        panic!("there is one stream")
    };
    assert_eq!(reason, "`simulated` has no second stream for the second prompt");
}

#[test]
fn a_fused_response_calls_the_projectors_for_every_token() {
    ready(&tiny(&[("prompt_tokens", "9"), ("include_response", "true")]), |iteration| {
        iteration.check().unwrap();
        assert_eq!(fact(iteration, "new_tokens"), 4.into());
        // The teacher processes the prompt and three steps. Two layers each: prompt, its last token, three steps.
        let calls = ["teacher_calls", "projector_calls", "response_projector_calls"].map(|name| fact(iteration, name));
        assert_eq!(calls, [4.into(), 4.into(), 6.into()]);
    });
    let plain = tiny(&[("prompt_tokens", "9")]);
    let more = tiny(&[("prompt_tokens", "9"), ("include_response", "true")]);
    let flops = |case: &Case| CacheToCache::stage_work(case).iter().map(|(_, work)| work.flops).sum::<u64>();
    assert!(flops(&more) > flops(&plain));
}

#[test]
fn the_work_of_stages_adds_up_to_that_of_an_iteration() {
    let case = tiny(&[("prompt_tokens", "32")]);
    let stages = CacheToCache::stage_work(&case);
    let names: Vec<&str> = stages.iter().map(|(name, _)| *name).collect();
    let expected = [
        "base_embedding",
        "base_prefill",
        "teacher_embedding",
        "teacher_prefill",
        "projector",
        "last_token_prefill",
        "decode",
    ];
    assert_eq!(names, expected);
    ready(&case, |iteration| {
        let whole = iteration.work().unwrap();
        assert_eq!(whole.flops, stages.iter().map(|(_, work)| work.flops).sum::<u64>());
        assert_eq!(whole.bytes, stages.iter().map(|(_, work)| work.bytes).sum::<u64>());
    });
}

#[test]
fn a_pair_is_compared_with_texts_of_several_lengths_until_the_first_token() {
    let given = [("preset", "tiny"), ("prompt_tokens", "16,32"), ("against", "text"), ("text_tokens", "1,8")];
    let cases = settled(&given).unwrap();
    assert_eq!(cases.len(), 4);
    assert!(cases.iter().all(|case| case.size("max_new_tokens").unwrap() == 1));
    assert_eq!(settled(&[("preset", "tiny"), ("prompt_tokens", "8"), ("against", "text")]).unwrap().len(), 5);
    assert!(settled(&[("preset", "tiny"), ("prompt_tokens", "8")]).unwrap()[0].get("text_tokens").is_none());
    ready(&cases[3], |iteration| {
        iteration.check().unwrap();
        iteration.run().unwrap();
        let readings = iteration.readings(Nanos(1));
        assert!([0, 10, 11].iter().all(|at| readings[*at].is_some()), "{readings:?}");
        assert!(readings[1..10].iter().all(Option::is_none), "{readings:?}");
    });
}

#[test]
fn flags_that_do_not_apply_to_a_comparison_are_refused() {
    let lone = refused(&[("preset", "tiny"), ("text_tokens", "8")]);
    assert_eq!(lone, "`text_tokens` needs `--against text`");
    let tokens = refused(&[("preset", "tiny"), ("against", "text"), ("max_new_tokens", "8")]);
    assert!(tokens.starts_with("`against` compares times to the first token"), "{tokens}");
    let long = refused(&[("preset", "tiny"), ("prompt_tokens", "500"), ("against", "text"), ("text_tokens", "64")]);
    assert_eq!(long, "the prompt (500 tokens) plus 64 tokens of text exceeds the context of `tiny` (512)");
}
