//! `laptime compare` of two traces, through the program.

use crate::common::{Place, assert_golden};

/// Six steps of torch.profiler: a product of so many microseconds and a norm, with or without a wait after each step.
fn write(place: &Place, name: &str, product_us: u64, waits: bool) {
    write_steps(place, name, product_us, waits, 6);
}

fn write_steps(place: &Place, name: &str, product_us: u64, waits: bool, steps: u64) {
    let mut events = Vec::new();
    let mut call = 0;
    let mut at = 0;
    for step in 0..steps {
        let start = at;
        for (kernel, length) in [("sm90_xmma_gemm_bf16", product_us), ("rms_norm_kernel", 40)] {
            call += 1;
            events.push(format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{at},"dur":5,"args":{{"correlation":{call}}}}}"#
            ));
            let on_device = at + 10;
            events.push(format!(
                r#"{{"ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":7,"ts":{on_device},"dur":{length},"args":{{"correlation":{call},"device":0,"stream":7}}}}"#
            ));
            at = on_device + length;
        }
        if waits {
            let from = at - 40;
            events.push(format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":1,"tid":1,"ts":{from},"dur":60}}"#
            ));
            at += 60;
        }
        let length = at - start;
        events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{step}","pid":1,"tid":1,"ts":{start},"dur":{length}}}"#
        ));
    }
    let text = format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(",\n"));
    std::fs::write(place.path(name), text).unwrap();
}

#[test]
fn the_steps_of_the_difference_add_up_to_it() {
    let place = Place::new();
    write(&place, "before.json", 500, true);
    write(&place, "after.json", 450, false);
    assert_golden("compare/traces.txt", &place.laptime(["compare", "before.json", "after.json"]).done());
    let json = place.laptime(["compare", "before.json", "after.json", "--format", "json"]).done();
    let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
    let changes: Vec<f64> =
        answer["steps"].as_array().unwrap().iter().map(|step| step["change_ms"].as_f64().unwrap()).collect();
    let (total, steps) = changes.split_last().unwrap();
    let nanos = |change: &f64| (change * 1e6).round() as i64;
    assert_eq!(steps.iter().map(nanos).sum::<i64>(), nanos(total), "{changes:?}");
    assert!(*total < -0.05, "{total}");
}

#[test]
fn a_slower_trace_fails_the_command_only_with_a_threshold() {
    let place = Place::new();
    write(&place, "a.json", 500, false);
    write(&place, "b.json", 600, false);
    assert_eq!(place.laptime(["compare", "a.json", "b.json"]).status, Some(0));
    assert_eq!(place.laptime(["compare", "a.json", "b.json", "--threshold", "5%"]).status, Some(1));
    assert_eq!(place.laptime(["compare", "a.json", "b.json", "--threshold", "50%"]).status, Some(0));
    assert_eq!(place.laptime(["compare", "b.json", "a.json", "--threshold", "5%"]).status, Some(0));
}

#[test]
fn a_trace_with_a_run_and_flags_of_the_other_kind_are_refused() {
    let place = Place::new();
    write(&place, "a.json", 500, false);
    let refused = |words: &[&str]| {
        let printed = place.laptime(words.iter().copied());
        assert_eq!(printed.status, Some(2), "{}", printed.err);
        printed.err
    };
    assert!(refused(&["compare", "a.json", "results.jsonl"]).contains("is a trace and"));
    assert!(refused(&["compare", "a.json", "a.json", "--anyway"]).contains("`--anyway` applies to runs"));
    assert!(refused(&["compare", "x.jsonl", "y.jsonl", "--by", "group"]).contains("`--by` applies to traces"));
    assert!(
        refused(&["compare", "a.json", "a.json", "--lap", "token"]).contains("nothing in the trace is named `token`")
    );
    assert!(refused(&["compare", "a.json", "a.json", "--device", "3"]).contains("no such device"));
}

#[test]
fn a_trace_with_more_of_the_same_laps_is_equal() {
    let place = Place::new();
    write_steps(&place, "few.json", 500, true, 2);
    write_steps(&place, "many.json", 500, true, 40);
    let printed = place.laptime(["compare", "few.json", "many.json", "--threshold", "0.1%", "--format", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    let total = answer["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((printed.status, total["change_ms"].as_f64()), (Some(0), Some(0.0)), "{total}");
}

#[test]
fn a_trace_without_devices_is_not_compared_with_one_that_has_some() {
    let place = Place::new();
    write(&place, "with.json", 500, false);
    let host = r#"[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":5}]"#;
    std::fs::write(place.path("without.json"), host).unwrap();
    let printed = place.laptime(["compare", "with.json", "without.json"]);
    assert_eq!(printed.status, Some(2));
    assert!(printed.err.contains("`with.json` contains GPU work and `without.json` does not"), "{}", printed.err);
}

#[test]
fn the_exit_status_is_1_even_if_nobody_reads_the_output() {
    let place = Place::new();
    write(&place, "a.json", 500, false);
    write(&place, "b.json", 600, false);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.command();
    command.args(["compare", "a.json", "b.json", "--threshold", "5%"]).stdout(writer);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
}
