//! For any text, both languages give an answer, and sites lie within the text.

use laptime_audit::{Audited, Rules, RulesFile, audit_python, audit_rust};
use proptest::{prelude::*, sample::select};

/// Fragments of source code in any order: closer to Rust and Python than random characters.
fn pieces() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "fn f() {",
        "}",
        "(",
        ")",
        "[",
        "]",
        "{",
        ".to_vec1()",
        ".item()",
        "x",
        " + ",
        "for x in y ",
        ":\n",
        "\n    ",
        "\n",
        "def f():\n",
        "class A:\n",
        "if ",
        " else ",
        "sync_point!(\"a\", ",
        "// sync: allowed\n",
        "# sync: allowed\n",
        "\"",
        "'",
        "\\",
        "/*",
        "*/",
        "r#\"",
        "é",
        "\u{feff}",
        "\r\n",
        ";",
        ",",
        "|x| ",
        "impl A ",
        "#[cfg(test)]",
        "mod t;",
        ".to(\"cpu\")",
        ".to_device(&Device::Cpu)",
        "lambda x: ",
        "import torch as t\n",
        "t.cuda.synchronize()",
        "println!(",
        "<",
        ">",
        "=>",
        "\0",
        "match x {",
        "=",
        "async ",
        "await ",
        "f\"{x.item()}\"",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn check(text: &str, audited: &Audited) {
    let lines: Vec<&str> = text.split('\n').collect();
    let count = lines.len() as u32;
    for site in &audited.sites {
        assert!((1..=count).contains(&site.line) && (site.line..=count).contains(&site.last_line), "{site:?}");
        let letters = lines[site.line as usize - 1].chars().count() as u32;
        assert!((1..=letters + 1).contains(&site.column), "{site:?}");
        assert!(site.function_lines.0 <= site.line && site.last_line <= site.function_lines.1, "{site:?}");
        let rest: String = lines[site.line as usize - 1].chars().skip(site.column as usize - 1).collect();
        assert!(
            rest.starts_with(&site.name) || site.name == "synchronize" || site.name == "sync_point",
            "{site:?} {rest}"
        );
    }
    if let Some(line) = audited.problem.as_ref().and_then(|problem| problem.line) {
        assert!((1..=count).contains(&line), "{audited:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pieces_of_source_never_panic_and_sites_lie_in_the_text(text in pieces()) {
        let rules = Rules::built_in();
        check(&text, &audit_rust(&text, &rules));
        check(&text, &audit_python(&text, &rules));
    }

    #[test]
    fn any_letters_never_panic(text in "\\PC{0,200}|[ -~\n\t\r]{0,200}") {
        let rules = Rules::built_in();
        check(&text, &audit_rust(&text, &rules));
        check(&text, &audit_python(&text, &rules));
        let _ = RulesFile::parse(&text);
        let _ = rules.may_occur(&text, laptime_audit::Language::Python);
    }
}
