//! Reading single values: durations, sizes, fractions. What is wrong is noted, and a default stands in for it.

use std::ops::Range;
use std::time::Duration;

use jiff::SignedDuration;
use toml::Spanned;

use super::report::Finding;
use crate::model::quantity;

/// Collects what is wrong.
#[derive(Default)]
pub(super) struct Checker {
    pub findings: Vec<Finding>,
}

impl Checker {
    pub(super) fn wrong(&mut self, title: String, at: Range<usize>, label: &str, help: &str) {
        self.findings.push(Finding {
            title,
            at: Some((at, label.to_owned())),
            because: None,
            help: (!help.is_empty()).then(|| help.to_owned()),
        });
    }

    /// A duration such as `90s`, `10m` or `1h30m`.
    pub(super) fn duration(
        &mut self,
        key: &str,
        written: Option<&Spanned<String>>,
        default: Duration,
    ) -> Duration {
        let Some(written) = written else { return default };
        let parsed =
            written.get_ref().parse::<SignedDuration>().ok().and_then(|it| Duration::try_from(it).ok());
        parsed.unwrap_or_else(|| {
            let title = format!("`{key}` is not a duration");
            self.wrong(title, written.span(), "expected e.g. \"90s\", \"10m\" or \"1h30m\"", "");
            default
        })
    }

    /// A duration longer than zero.
    pub(super) fn positive(
        &mut self,
        key: &str,
        written: Option<&Spanned<String>>,
        default: Duration,
    ) -> Duration {
        let value = self.duration(key, written, default);
        if let (true, Some(written)) = (value.is_zero(), written) {
            self.wrong(
                format!("`{key}` must be longer than zero"),
                written.span(),
                "must be at least \"1s\"",
                "",
            );
        }
        value
    }

    /// A size such as `8GiB`, `8Gi`, `512MiB` or a number of bytes.
    pub(super) fn size(&mut self, key: &str, written: &Spanned<String>) -> i64 {
        let text = written.get_ref().trim();
        let text = text.strip_suffix('B').unwrap_or(text);
        let Ok(bytes) = quantity::units(text) else {
            let title = format!("{key} is not a size");
            self.wrong(title, written.span(), "expected e.g. \"8GiB\" or \"512MiB\"", "");
            return 0;
        };
        if bytes < 0 {
            self.wrong(format!("{key} is negative"), written.span(), "must not be less than zero", "");
        }
        bytes
    }

    /// A number between two bounds, both included.
    pub(super) fn between(
        &mut self,
        key: &str,
        written: Option<&Spanned<f64>>,
        bounds: (f64, f64),
        default: f64,
    ) -> f64 {
        let Some(written) = written else { return default };
        let value = *written.get_ref();
        if !(bounds.0..=bounds.1).contains(&value) {
            let title = format!("`{key}` must be between {} and {}", bounds.0, bounds.1);
            self.wrong(title, written.span(), &format!("must be from {} to {}", bounds.0, bounds.1), "");
        }
        value
    }
}
