//! Training passes on a scripted trainer: cases of a request, timed parts, and checks.

use std::sync::atomic::Ordering::Relaxed;

use laptime_bench::{Nanos, Prepared, Simulated, Workload};
use laptime_models::{Attention, Config, Dtype};

use super::{cases, model, scripted::Fault, settled, with_iteration};

#[test]
fn training_passes_come_after_the_others() {
    let line = "--model-size tiny --context-length 8 --pass-type step,backward,forward,forward_backward";
    assert_eq!(cases(line, "test"), ["forward8", "backward8", "forward_backward8", "step8"]);
    assert_eq!(cases("--preset tiny --test step64", "pass_type seq_len batch_size"), ["step 64 1"]);
    assert_eq!(cases("--preset tiny --pass-type training", "test"), ["step512"]);
    assert_eq!(cases("--model-sizes xl --reduced", "test batch_size"), ["forward_backward256 2"]);
}

/// Calls of forward, backward and update in `ready`, and in the timed `run`.
fn calls(pass: &str) -> [(u64, u64, u64); 2] {
    let mut found = [(0, 0, 0); 2];
    with_iteration(&format!("--preset tiny --pass-type {pass} --seq-len 8"), Fault::None, |iteration, calls| {
        let now = || (calls.forward.load(Relaxed), calls.backward.load(Relaxed), calls.update.load(Relaxed));
        iteration.ready().unwrap();
        found[0] = now();
        iteration.run().unwrap();
        let after = now();
        found[1] = (after.0 - found[0].0, after.1 - found[0].1, after.2 - found[0].2);
    });
    found
}

#[test]
fn each_pass_times_its_part_of_a_step() {
    assert_eq!(calls("backward"), [(1, 0, 0), (0, 1, 0)], "the forward is not timed");
    assert_eq!(calls("forward_backward"), [(0, 0, 0), (1, 1, 0)]);
    assert_eq!(calls("step"), [(0, 0, 0), (1, 1, 1)]);
}

#[test]
fn the_loss_of_every_step_is_kept() {
    with_iteration("--model-size tiny --context-length 8 --pass-type step", Fault::None, |iteration, _| {
        for step in 1..4_u32 {
            iteration.ready().unwrap();
            iteration.run().unwrap();
            let readings = iteration.readings(Nanos(1_000_000));
            assert_eq!(readings, [Some(32_000.0), None, None, Some(100.0 - f64::from(step))]);
        }
    });
}

#[test]
fn the_loss_of_the_first_update_is_kept_from_the_check() {
    let check_loss =
        |iteration: &dyn laptime_bench::Iteration| iteration.facts().into_iter().find(|fact| fact.name == "check_loss");
    with_iteration("--model-size tiny --context-length 8 --pass-type step", Fault::None, |iteration, _| {
        iteration.check().unwrap();
        iteration.run().unwrap();
        assert_eq!(check_loss(iteration).unwrap().value, laptime_bench::AxisValue::Float(99.0));
        assert_eq!(iteration.readings(Nanos(1))[3], Some(98.0));
    });
    with_iteration("--model-size tiny --context-length 8 --pass-type step", Fault::None, |iteration, _| {
        iteration.run().unwrap();
        iteration.check().unwrap();
        assert!(check_loss(iteration).is_none(), "the first update was another");
    });
}

#[test]
fn a_nan_in_a_step_fails_the_case() {
    for (fault, error) in [
        (Fault::Nan, "the loss is NaN: the weights may contain NaN or infinity"),
        (Fault::Gradient, "the gradient of tensor `model.layers.0.mlp.up_proj.weight` holds inf"),
        (Fault::NoGradient, "every gradient is 0"),
        (Fault::Update, "after an update tensor `model.embed_tokens.weight` holds NaN"),
    ] {
        with_iteration("--preset tiny --pass-type step --seq-len 8", fault, |iteration, _| {
            assert_eq!(iteration.check().unwrap_err().to_string(), error);
        });
    }
    with_iteration("--preset tiny --pass-type step --seq-len 8", Fault::None, |iteration, _| {
        iteration.check().unwrap()
    });
}

#[test]
fn training_in_f16_or_fp8_or_after_cached_tokens_does_not_apply() {
    for (line, reason) in [
        (
            "--dtype f16",
            "training in f16 is not supported, because gradients underflow without loss scaling; use bf16 or f32",
        ),
        ("--dtype fp8", "training with fp8 weights is not supported; use bf16"),
        ("--cache-tokens 3", "`step` runs without a cache; `prefill` can follow cached tokens"),
        ("--seq-len 513", "513 tokens exceed the context of `tiny` (512)"),
    ] {
        let case = settled(&format!("--preset tiny --pass-type step {line}")).unwrap().remove(0);
        match model(Fault::None).0.prepare(&case, &Simulated::new()).unwrap() {
            Prepared::DoesNotApply(shown) => assert_eq!(shown, reason),
            _ => panic!("{line} applies"),
        }
    }
}

#[test]
fn a_step_that_does_not_fit_is_reported_before_anything_is_allocated() {
    let (model, calls) = model(Fault::None);
    let case = settled("--model-size 2.7B --pass-type step").unwrap().remove(0);
    let device = Simulated::with_memory(40 << 30);
    let prepared = model.prepare(&case, &device).unwrap();
    assert!(matches!(prepared, Prepared::DoesNotFit { needed, .. } if needed > 54 << 30));
    assert_eq!(calls.loaded.load(Relaxed), 0);
}

#[test]
fn the_work_of_a_step_is_that_of_its_parts() {
    let config = Config::from_preset("small").unwrap();
    let forward = config.forward_work(4, 512, Attention::Naive, Dtype::F32).work();
    let backward = config.backward_work(4, 512, Attention::Naive, Dtype::F32).work();
    let update = config.update_work(Dtype::F32);
    for (pass, flops, bytes) in [
        ("backward", 2 * forward.flops, backward.bytes),
        ("forward_backward", 3 * forward.flops, forward.bytes + backward.bytes),
        ("step", 3 * forward.flops, forward.bytes + backward.bytes + update.bytes),
    ] {
        with_iteration(&format!("--model-size small --pass-type {pass}"), Fault::None, |iteration, _| {
            let work = iteration.work().unwrap();
            assert_eq!((work.flops, work.bytes), (flops, bytes), "{pass}");
        });
    }
}

#[test]
fn memory_of_training_is_reported() {
    with_iteration("--model-size small --pass-type step", Fault::None, |iteration, _| {
        let facts = iteration.facts();
        let fact = |name: &str| facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone());
        assert_eq!(fact("gradient_bytes"), Some((4 * 128_625_408_i64).into()));
        assert_eq!(fact("optimizer_bytes"), Some((8 * 128_625_408_i64).into()));
        assert!(fact("activation_bytes").is_some());
    });
}
