//! The pages: every command and link in them works, and output that does not depend on the machine is what they show.

use std::{path::Path, process::Command};

use crate::common::{Place, Printed, data};

/// Checks these pages, or all of them.
fn check(pages: &[&Path]) -> Printed {
    let mut command = Command::new("python3");
    command.arg(data("../../scripts/docs")).args(["--check", "--program", env!("CARGO_BIN_EXE_laptime")]).args(pages);
    Printed::from(command.output().expect("the pages are checked with python3"))
}

#[test]
fn every_command_on_every_page_works() {
    let printed = check(&[]);
    assert_eq!(printed.status, Some(0), "{}{}", printed.out, printed.err);
}

#[test]
fn a_wrong_command_a_wrong_output_and_a_wrong_link_are_found() {
    let mistakes = [
        ("```sh\nlaptime bench matmul --sizes 64\n```\n", "exit status 2"),
        ("```sh\nlaptime stages no-such-trace.json\n```\n", "exit status 2"),
        ("```sh\nlaptime ab --a 'true' --c 'true'\n```\n", "exit status 2"),
        ("```sh\nlaptime ab --a 'copy --op read' --b 'copy'\n```\n", "`copy` is not one case"),
        ("```sh\nlaptime profile matmul --size 64,128\n```\n", "a profile is of one case"),
        ("```sh\nlaptime list\n```\n\n```text\nnothing\n```\n", "the page shows another output"),
        ("```sh\nscripts/no-such-script\n```\n", "no such script"),
        ("```sh\ncargo install --path crates/nothing\n```\n", "there is no crate"),
        ("[a page](nothing.md)\n", "there is no `nothing.md`"),
        ("[a heading](#nothing)\n", "has no heading `#nothing`"),
    ];
    let place = Place::new();
    for (text, problem) in mistakes {
        place.write("page.md", format!("# Page\n\n```sh\nlaptime list\n```\n\n{text}"));
        let printed = check(&[&place.path("page.md")]);
        assert_eq!(printed.status, Some(1), "{text}{}{}", printed.out, printed.err);
        assert!(printed.out.contains(problem) && printed.out.ends_with("1 mistakes\n"), "{text}{}", printed.out);
    }
}
