//! `laptime man`: manual pages.

use std::io::Write;
use std::path::{Path, PathBuf};

use laptime_trace::format::write_whole;

use crate::{app::App, cli, cli::Status, output::say, run_folder};

/// Write manual pages for the program, its commands and workloads
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime man | man -l -\n  laptime man --out ~/.local/share/man/man1")]
pub struct Args {
    /// Folder for all pages; without it the program's page goes to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    // `build` sets full names (`laptime bench`) and adds global flags to subcommands.
    let mut command = cli::command(app).disable_help_subcommand(true);
    command.build();
    match &args.out {
        None => out.write_all(&page(&command)?)?,
        Some(folder) => write_all(&command, folder)?,
    }
    out.flush()?;
    Ok(Status::Done)
}

fn page(command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

fn write_all(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    run_folder::create(folder)?;
    let pages = write_below(command, "laptime", folder)?;
    say(&format!("{pages} pages in {}", folder.display()));
    Ok(())
}

/// Writes the pages of a command and its subcommands, and returns their number.
fn write_below(command: &clap::Command, name: &str, folder: &Path) -> anyhow::Result<usize> {
    let page = page(command)?;
    write_whole(&folder.join(format!("{name}.1")), |file| file.write_all(&page))?;
    let mut pages = 1;
    for inner in command.get_subcommands() {
        pages += write_below(inner, &format!("{name}-{}", inner.get_name()), folder)?;
    }
    Ok(pages)
}
