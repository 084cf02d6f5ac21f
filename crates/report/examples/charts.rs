//! Draws one chart of each kind from made-up figures: `cargo run -p laptime-report --example charts -- FOLDER`.

use std::{env, error::Error, fs, path::PathBuf};

use laptime_report::chart::Theme;

#[path = "../tests/all/figures/mod.rs"]
mod figures;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("which folder?")?);
    fs::create_dir_all(&folder)?;
    let charts = figures::charts().into_iter().map(|chart| (chart.name, chart));
    for (name, chart) in charts.chain(figures::hard_charts()) {
        for (theme, ending) in [(Theme::Light, ""), (Theme::Dark, "-dark")] {
            let file = |kind: &str| folder.join(format!("{name}{ending}.{kind}"));
            fs::write(file("svg"), chart.to_svg(theme))?;
            fs::write(file("png"), chart.to_png(theme, 800)?)?;
        }
    }
    Ok(())
}
