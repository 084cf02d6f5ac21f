//! `laptime completions`: shell completions.

use std::io::Write;

use clap_complete::Shell;

use crate::{app::App, cli, cli::Status};

/// Print shell completions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime completions bash > ~/.local/share/bash-completion/completions/laptime\n  laptime completions fish > ~/.config/fish/completions/laptime.fish"
)]
pub struct Args {
    /// Shell to write for
    shell: Shell,
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(app), "laptime", &mut script);
    out.write_all(&script)?;
    out.flush()?;
    Ok(Status::Done)
}
