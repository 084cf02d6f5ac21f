//! Host syncs in Rust sources with known answers.

use laptime_audit::{Audited, Certainty, Rule, Rules, Site, audit_rust};

fn audited(text: &str) -> Audited {
    let audited = audit_rust(text, &Rules::built_in());
    assert_eq!(audited.problem, None, "{text}");
    audited
}

/// Line, call, function and depth of every site.
fn sites(text: &str) -> Vec<(u32, String, String, u32)> {
    let fields = |site: Site| (site.line, site.call, site.function, site.loop_depth);
    audited(text).sites.into_iter().map(fields).collect()
}

fn calls(text: &str) -> Vec<String> {
    audited(&format!("fn f() {{ {text} }}")).sites.into_iter().map(|site| site.call).collect()
}

fn depth(text: &str) -> u32 {
    let audited = audited(&format!("fn f() {{ {text} }}"));
    assert_eq!(audited.sites.len(), 1, "{text}");
    audited.sites[0].loop_depth
}

fn site(line: u32, call: &str, function: &str, depth: u32) -> (u32, String, String, u32) {
    (line, call.to_owned(), function.to_owned(), depth)
}

#[test]
fn a_site_has_its_line_its_function_and_its_loops() {
    let text = "mod model {
    impl<T> Sampler<T> {
        fn sample(&self) -> u32 {
            for row in rows {
                while more {
                    row
                        .argmax(0)?
                        .to_scalar::<u32>()?;
                }
            }
        }
    }
    trait Read { fn read(&self) { Tensor::to_vec1(&self.x) } }
}
static X: u8 = x.synchronize();
";
    assert_eq!(
        sites(text),
        [
            site(8, "to_scalar", "model::Sampler::sample", 2),
            site(13, "to_vec1", "model::Read::read", 0),
            site(15, "synchronize", "", 0)
        ]
    );
    let first = &audited(text).sites[0];
    assert_eq!((first.column, first.function_lines, first.certainty), (26, (3, 11), Certainty::Certain));
}

#[test]
fn every_built_in_call_is_found() {
    assert_eq!(calls("a.to_vec0()?; a.to_vec1()?; a.to_vec2()?; a.to_vec3()?; a.to_scalar()?").len(), 5);
    assert_eq!(calls("d.synchronize()?; s.clone_dtoh(&x)?; s.dtoh_sync_copy(&x)?").len(), 3);
    assert_eq!(calls("unsafe { sys::cuStreamSynchronize(s) }"), ["cuStreamSynchronize"]);
    assert_eq!(calls("x.to_vec(); x.to_vec10(); scalar(); synchronize;"), [""; 0]);
    let likely = audited("fn f() { s.memcpy_dtoh(&a, &mut b)?; }");
    assert_eq!(likely.sites[0].certainty, Certainty::Likely);
}

#[test]
fn a_copy_to_the_cpu_needs_a_literal_device() {
    assert_eq!(calls("x.to_device(&Device::Cpu)?; x.to_device(&candle_core::Device::Cpu)?").len(), 2);
    let others = audited("fn f() { x.to_device(device)?; x.to_device(&y.device())?; x.to_device(&Device::Cuda(c)); }");
    assert_eq!((others.sites.len(), others.unknown), (0, 3));
}

#[test]
fn calls_on_the_result_of_a_read_are_not_sites() {
    assert_eq!(calls("x.to_device(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?"), ["to_device(Cpu)"]);
    assert_eq!(calls("x.to_vec2()?[0].to_scalar()"), ["to_vec2"]);
    assert_eq!(calls("x.to_vec1(y.to_scalar()?)").len(), 2, "an argument is no part of the chain");
}

#[test]
fn closures_of_iterators_are_loops_and_those_of_options_are_not() {
    assert_eq!(depth("xs.iter().map(|x| x.to_scalar()).collect()"), 1);
    assert_eq!(depth("(0..n).map(|at| x.get(at)?.to_scalar()).collect()"), 1);
    assert_eq!(depth("xs.for_each(|x| { for y in x { y.to_scalar(); } })"), 2);
    assert_eq!(depth("option.map(|x| x.to_scalar())"), 0);
    assert_eq!(depth("for x in y.to_vec1()? {}"), 0, "what a loop goes through is read once");
    assert_eq!(depth("while x.to_scalar()? > 0 {}"), 1);
    assert_eq!(depth("loop { fn inner() { x.to_scalar(); } }"), 0, "a function has loops of its own");
}

#[test]
fn macros_are_searched() {
    assert_eq!(calls("println!(\"{} {x}\", t.to_scalar()?, x = u.to_vec1()?);"), ["to_scalar", "to_vec1"]);
    assert_eq!(calls("assert_eq!(t.to_vec1()?, [1.0]); let x = vec![t.to_scalar()?; 3];"), ["to_vec1", "to_scalar"]);
    assert_eq!(calls("select! { x = wait() => { for _ in y { t.to_vec1::<f32>()?; } } }"), ["to_vec1"]);
    assert_eq!(depth("select! { let x = 1; for _ in y { t.to_vec1::<f32>()?; } }"), 1);
    let rules = sites("macro_rules! read { ($x:expr, $t:ty) => { $x.to_vec1::<$t>()? }; }");
    assert_eq!(rules, [site(1, "to_vec1", "read!", 0)]);
    assert_eq!(calls("macro_rules! m { () => { fn to_scalar(self) {} } }"), [""; 0], "a definition is no call");
}

#[test]
fn a_sync_point_is_one_site_including_its_content() {
    let text = "fn f() { for _ in x { let t = sync_point!(\"read_token\", bytes = 4 => x.to_scalar()?); } }";
    assert_eq!(sites(text), [site(1, "sync_point! read_token", "f", 1)]);
    assert_eq!(calls("laptime_probe::sync_point!(\"a\", b.to_vec1()?)"), ["sync_point! a"]);
}

#[test]
fn tests_are_distinguished() {
    let is_test = |text: &str| audited(text).sites[0].is_test;
    assert!(is_test("#[test] fn f() { x.to_vec1(); }"));
    assert!(is_test("#[tokio::test] async fn f() { x.to_vec1(); }"));
    assert!(is_test("#[cfg(test)] mod tests { fn f() { x.to_vec1(); } }"));
    assert!(is_test("#[cfg(all(test, unix))] impl X { fn f() { x.to_vec1(); } }"));
    assert!(is_test("#![cfg(test)] fn f() { x.to_vec1(); }"));
    assert!(!is_test("#[cfg(any(test, unix))] fn f() { x.to_vec1(); }"));
    assert!(!is_test("#[cfg(not(test))] fn f() { x.to_vec1(); }"));
    assert_eq!(audited("#[cfg(test)] mod cases; mod other;").test_modules, ["cases"]);
}

#[test]
fn a_comment_allows_a_site_on_its_line_above_it_and_above_its_statement() {
    let allowed = |text: &str| audited(text).sites[0].allowed.clone();
    assert_eq!(allowed("fn f() { x.to_vec1(); } // sync: allowed, once").as_deref(), Some("once"));
    assert_eq!(allowed("fn f() {\n  // sync: allowed: at the end\n  x.to_vec1();\n}").as_deref(), Some("at the end"));
    assert_eq!(allowed("fn f() {\n  // sync: allowed\n  let x = y\n    .z()\n    .to_vec1();\n}").as_deref(), Some(""));
    let arm =
        "fn f() {\n  match x {\n    // sync: allowed\n    A => y\n      .to_vec1(),\n    B => z.to_vec1(),\n  }\n}";
    assert_eq!(audited(arm).sites.iter().map(|site| site.allowed.is_some()).collect::<Vec<_>>(), [true, false]);
    assert_eq!(
        allowed("fn f() {\n  // sync: allowed\n  g(|x| {\n    x\n  },\n  y.to_vec1());\n}").as_deref(),
        Some("")
    );
    assert_eq!(allowed("fn f() {\n  // sync: allowed\n  for x in y {\n    x.to_vec1();\n  }\n}"), None);
    assert_eq!(allowed("fn f() {\n  let s = \"// sync: allowed\"; x.to_vec1();\n}"), None, "this is a text");
    assert_eq!(allowed("fn f() {\r\n  // sync: allowed - why\r\n  x.to_vec1();\r\n}\r\n").as_deref(), Some("why"));
}

#[test]
fn a_user_adds_calls() {
    let mut rules = Rules::built_in();
    for name in ["read_back", "gpu::wait()", "fetch!"] {
        rules.add(Rule::named(name));
    }
    let audited = audit_rust("fn f() { x.read_back(); gpu::wait(); other::wait(); fetch!(x); }", &rules);
    let calls: Vec<&str> = audited.sites.iter().map(|site| site.call.as_str()).collect();
    assert_eq!(calls, ["read_back", "gpu.wait", "fetch!"]);
}

#[test]
fn invalid_rust_is_reported_with_its_line() {
    let problem = audit_rust("fn f() {\n  x.to_vec1(\n", &Rules::built_in()).problem.unwrap();
    assert!(problem.line.is_some(), "{problem:?}");
    let problem = audit_rust("fn f() {}\nfn 7() {}\n", &Rules::built_in()).problem.unwrap();
    assert_eq!(problem.line, Some(2));
}

#[test]
fn a_byte_order_mark_and_a_shebang_are_skipped() {
    assert_eq!(sites("\u{feff}#!/usr/bin/env run\nfn f() { x.to_vec1(); }")[0].0, 2);
    assert_eq!(sites("#![allow(x)]\nfn f() { x.to_vec1(); }")[0].0, 2);
}

#[test]
fn deep_nesting_ends_in_an_answer() {
    let nested = |open: &str, close: &str, times: usize| {
        format!("fn f() {{ {}x.to_vec1(){} }}", open.repeat(times), close.repeat(times))
    };
    for (open, close) in [("(", ")"), ("{", "}"), ("!", ""), ("x + ", ""), ("vec![", "]"), ("if a {} else ", "{}")] {
        for times in [500, 1900, 2600, 3900, 7900, 100_000] {
            let audited = audit_rust(&nested(open, close, times), &Rules::built_in());
            let is_read = audited.problem.is_none() && audited.sites.len() == 1;
            let is_refused =
                audited.problem.as_ref().is_some_and(|problem| problem.reason.contains("nesting is deeper"));
            assert!(is_read || is_refused || open.starts_with("if"), "{open} {times}: {:?}", audited.problem);
            assert!(is_read || times > 1000 || open.starts_with("if"), "{open} {times}: {:?}", audited.problem);
        }
    }
    for text in ["(".repeat(100_000), "type T = ".to_owned() + &"A<u8, ".repeat(50_000)] {
        assert!(audit_rust(&text, &Rules::built_in()).problem.is_some());
    }
    let types = |times: usize| format!("type T = {}u8{};", "A<u8, ".repeat(times), ">".repeat(times));
    for times in [1000, 3900, 50_000] {
        audit_rust(&types(times), &Rules::built_in());
    }
}
