//! `orphans`: what happens to VMs that bear the mark of this cluster and have no record.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// What is done about orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Orphans {
    /// Report them and leave them alone.
    #[default]
    Report,
    /// Destroy at most one orphan an hour, if every check passes.
    Collect,
}

/// The minimum of `orphans_after`. Within a shorter time, the daemon does not see a VM often enough to be
/// sure that it is an orphan.
const LEAST: Duration = Duration::from_mins(30);
/// The default of `orphans_after`: one day, so that an administrator sees the report first.
const DEFAULT: Duration = Duration::from_hours(24);

/// How long a VM must have been an orphan before it is destroyed.
pub(super) fn after(written: Option<&Spanned<String>>, checker: &mut Checker) -> Duration {
    let after = checker.duration("orphans_after", written, DEFAULT);
    if let (true, Some(written)) = (after < LEAST, written) {
        checker.wrong(
            "`orphans_after` is too short".to_owned(),
            written.span(),
            "must be \"30m\" or more",
            "within a shorter time, the daemon does not see a VM often enough to be sure that it is an \
                orphan",
        );
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    #[test]
    fn orphans_are_reported_unless_the_file_says_otherwise() {
        for (text, orphans, after) in [
            ("", Orphans::Report, DEFAULT),
            ("orphans = \"report\"", Orphans::Report, DEFAULT),
            ("orphans = \"collect\"\norphans_after = \"30m\"", Orphans::Collect, LEAST),
        ] {
            let config = parse("c.toml", text, Needs::Plan).unwrap();
            assert_eq!((config.orphans, config.orphans_after), (orphans, after), "{text}");
        }
        let report = parse("c.toml", "orphans_after = \"29m\"", Needs::Plan).unwrap_err();
        assert_eq!(report.findings()[0].title, "`orphans_after` is too short");
        assert!(parse("c.toml", "orphans = \"destroy\"", Needs::Plan).is_err());
    }
}
