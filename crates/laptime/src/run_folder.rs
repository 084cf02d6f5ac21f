//! The folder of a run: `runs/<what>-<time>`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;

use crate::failure::{Hinted, place_hint};

/// Makes the folder that was asked for, or a new one named after the time.
pub fn make(asked: Option<&Path>, what: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = asked {
        if path.join("trace.pftrace").exists() {
            let error = anyhow::anyhow!("`{}` holds a trace already", path.display());
            return Err(Hinted::wrap(error, "name another folder, or leave `--out` out for a new one"));
        }
        create(path)?;
        return Ok(path.to_owned());
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let base = PathBuf::from("runs").join(format!("{what}-{}", stamp(seconds)));
    for number in 1.. {
        let path = if number == 1 { base.clone() } else { PathBuf::from(format!("{}-{number}", base.display())) };
        if !path.exists() {
            create(&path)?;
            return Ok(path);
        }
    }
    unreachable!("one of endlessly many names is free")
}

fn create(path: &Path) -> anyhow::Result<()> {
    let Err(source) = fs::create_dir_all(path) else { return Ok(()) };
    let hint = place_hint(&source).unwrap_or_else(|| "`--out DIR` names another place".to_owned());
    let failed = Err::<(), _>(source).with_context(|| format!("cannot make the folder `{}`", path.display()));
    failed.map_err(|error| Hinted::wrap(error, hint))
}

/// A moment since 1970 as `20261115-093000`, in universal time.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The date of a day counted from 1970, by eras of 400 years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_becomes_a_name_that_sorts_by_time() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_794_735_045), "20261115-093045");
    }
}
