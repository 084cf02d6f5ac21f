//! `laptime man`: manual pages.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use laptime_trace::format::write_whole;

use crate::{app::App, cli, cli::Status, failure::Hinted, output::say};

/// Writes manual pages: one for the program and one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime man | man -l -\n  laptime man --out ~/.local/share/man/man1")]
pub struct Args {
    /// Folder for all pages; without it the program's page goes to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let command = cli::command(app);
    match &args.out {
        None => out.write_all(&page(command)?)?,
        Some(folder) => write_all(&command, folder)?,
    }
    out.flush()?;
    Ok(Status::Done)
}

fn page(command: clap::Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}

fn write_all(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|error| Hinted::wrap(error, format!("`{}` cannot be made; name another folder", folder.display())))?;
    let mut pages = vec![("laptime".to_owned(), command.clone())];
    for inner in command.get_subcommands() {
        let name = format!("laptime-{}", inner.get_name());
        pages.push((name.clone(), inner.clone().name(name)));
    }
    for (name, command) in &pages {
        let page = page(command.clone())?;
        write_whole(&folder.join(format!("{name}.1")), |file| file.write_all(&page))?;
    }
    say(&format!("{} pages in {}", pages.len(), folder.display()));
    Ok(())
}
