//! `[record]`: how many rounds are kept as files. The plan of a kept round can be computed again.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// The default of `directory`.
const DIRECTORY: &str = "/var/lib/pve-autoscaler/rounds";
/// The default of `max_size`.
const MAX_SIZE: i64 = 256 << 20;

/// Checked `[record]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of most recent rounds to keep; 0 keeps none.
    pub rounds: u32,
    /// The number of days for which all rounds are kept, each as its difference from the previous round; 0
    /// keeps none.
    pub days: u32,
    /// The directory in which the files are stored. It is created if it does not exist.
    pub directory: PathBuf,
    /// Maximum total size of the files in bytes.
    pub max_size: u64,
}

impl Record {
    /// Returns the maximum total size in bytes for the files of `rounds`, which is also the maximum for the
    /// files of `days`. It is half of `max_size` if both are kept, and all of `max_size` otherwise.
    pub fn share(&self) -> u64 {
        if self.rounds > 0 && self.days > 0 { self.max_size / 2 } else { self.max_size }
    }
}

/// `[record]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    rounds: Option<Spanned<u32>>,
    days: Option<Spanned<u32>>,
    directory: Option<Spanned<String>>,
    max_size: Option<Spanned<String>>,
}

/// Maximum for `rounds`.
const MOST: u32 = 100_000;
/// Maximum for `days`.
const LONGEST: u32 = 3650;

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> Record {
        let rounds = self.rounds.as_ref().map_or(0, |written| *written.get_ref());
        if let Some(written) = self.rounds.as_ref().filter(|_| rounds > MOST) {
            checker.wrong(
                "`rounds` is too large".to_owned(),
                written.span(),
                &format!("must be at most {MOST}"),
                "",
            );
        }
        let days = self.days.as_ref().map_or(0, |written| *written.get_ref());
        if let Some(written) = self.days.as_ref().filter(|_| days > LONGEST) {
            let most = format!("must be at most {LONGEST}");
            checker.wrong("`days` is too large".to_owned(), written.span(), &most, "");
        }
        let directory = self.directory.as_ref();
        let directory =
            directory.map_or_else(|| PathBuf::from(DIRECTORY), |path| checker.file("directory", path));
        let max_size = self.max_size.as_ref().map_or(MAX_SIZE, |size| checker.size("`max_size`", size));
        if let (0, Some(written)) = (max_size, self.max_size.as_ref()) {
            let help = "to keep no rounds, set `rounds = 0` and `days = 0`";
            checker.wrong("`max_size` is zero".to_owned(), written.span(), "must be more than zero", help);
        }
        Record { rounds, days, directory, max_size: u64::try_from(max_size).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    #[test]
    fn rounds_are_kept_only_when_asked_for() {
        for (text, expected) in [
            ("", Ok((0, 0, "/var/lib/pve-autoscaler/rounds", 256 << 20))),
            ("[record]\nrounds = 5", Ok((5, 0, "/var/lib/pve-autoscaler/rounds", 256 << 20))),
            (
                "[record]\nrounds = 5\ndays = 14\ndirectory = \"/r\"\nmax_size = \"1MiB\"",
                Ok((5, 14, "/r", 1 << 20)),
            ),
            ("[record]\ndays = 3651", Err("must be at most 3650")),
            ("[record]\nrounds = 100001", Err("must be at most 100000")),
            ("[record]\ndirectory = \"rounds\"", Err("c.toml:2:13")),
            ("[record]\nmax_size = \"0\"", Err("`max_size` is zero")),
            ("[record]\nmax_size = \"-1\"", Err("is negative")),
            ("[record]\nkeep = 1", Err("unknown field `keep`")),
        ] {
            match (parse("c.toml", text, Needs::Plan), expected) {
                (Ok(config), Ok(expected)) => {
                    let record = &config.record;
                    let given =
                        (record.rounds, record.days, record.directory.to_str().unwrap(), record.max_size);
                    assert_eq!(given, expected, "{text}");
                }
                (Err(report), Err(expected)) => assert!(report.plain().contains(expected), "{report}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
    }
}
