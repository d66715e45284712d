//! Parsing single values: durations, sizes, fractions. An error is recorded, and checking continues, so that
//! all errors are found.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use toml::Spanned;

use super::Needs;
use super::report::Finding;
use super::secret::Credential;
use model::quantity;

/// Collects errors.
pub(super) struct Checker {
    /// What the settings are used for.
    pub needs: Needs,
    /// The folder that systemd reads credentials from.
    credentials: PathBuf,
    /// The errors.
    pub findings: Vec<Finding>,
}

impl Checker {
    pub(super) fn new(needs: Needs, credentials: PathBuf) -> Self {
        Self { needs, credentials, findings: Vec::new() }
    }

    /// Whether the daemon is to run with these settings.
    pub(super) fn runs(&self) -> bool {
        self.needs == Needs::Run
    }

    /// Reports a setting that conflicts with another.
    pub(super) fn clash(
        &mut self,
        title: String,
        at: Range<usize>,
        label: &str,
        because: Range<usize>,
        help: &str,
    ) {
        self.wrong(title, at, label, help);
        if let Some(finding) = self.findings.last_mut() {
            finding.because = Some(because);
        }
    }

    pub(super) fn wrong(&mut self, title: String, at: Range<usize>, label: &str, help: &str) {
        self.findings.push(Finding {
            title,
            at: Some((at, label.to_owned())),
            because: None,
            help: (!help.is_empty()).then(|| help.to_owned()),
        });
    }

    /// Parses a duration such as `90s`, `10m` or `1h30m`.
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

    /// Parses a duration, which must be longer than zero.
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
                "must be more than \"0s\"",
                "",
            );
        }
        value
    }

    /// Parses a size such as `8GiB`, `8Gi`, `512MiB` or a number of bytes.
    pub(super) fn size(&mut self, key: &str, written: &Spanned<String>) -> i64 {
        let text = written.get_ref().trim();
        let bytes = match text.strip_suffix('B') {
            // `4GB` means 4 · 10⁹ bytes to some users, and 4 · 2³⁰ to others.
            Some(number) if !number.ends_with('i') && !number.ends_with(|c: char| c.is_ascii_digit()) => None,
            Some(number) => quantity::limited(number).ok(),
            None => quantity::limited(text).ok(),
        };
        let Some(bytes) = bytes else {
            let title = format!("{key} is not a size");
            let help = meant_size(text).map(|meant| format!("did you mean \"{meant}\"?")).unwrap_or_default();
            self.wrong(title, written.span(), "expected e.g. \"8GiB\" or \"512MiB\"", &help);
            return 0;
        };
        if bytes < 0 {
            self.wrong(format!("{key} is negative"), written.span(), "must not be less than zero", "");
        }
        bytes
    }

    /// Returns a number. Reports an error unless it is between two bounds, both included.
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
            let label = format!("must be from {} to {}", bounds.0, bounds.1);
            let help = match value {
                // The user wrote a percentage instead of a fraction.
                value if bounds.1 <= 1.0 && value > 1.0 && value <= 100.0 => {
                    format!("{value} % is written as {}", value / 100.0)
                }
                _ => String::new(),
            };
            self.wrong(title, written.span(), &label, &help);
        }
        value
    }

    /// Returns a number, which must be at least one. `way_out` explains what to do instead of setting it to
    /// zero.
    pub(super) fn count<N: Copy + Default + PartialEq>(
        &mut self,
        key: &str,
        written: Option<&Spanned<N>>,
        default: N,
        way_out: &str,
    ) -> N {
        let Some(written) = written else { return default };
        if *written.get_ref() == N::default() {
            self.wrong(format!("`{key}` is zero"), written.span(), "must be at least 1", way_out);
        }
        *written.get_ref()
    }

    /// A TCP port.
    pub(super) fn port(&mut self, key: &str, written: Option<&Spanned<u16>>) {
        self.count(key, written, 1, "");
    }

    /// Returns the path of a file. The path must be absolute, because the user does not choose the folder in
    /// which the daemon runs.
    pub(super) fn file(&mut self, key: &str, written: &Spanned<String>) -> PathBuf {
        let path = PathBuf::from(written.get_ref());
        if !path.is_absolute() {
            let title = format!("`{key}` is not an absolute path");
            let help = "use an absolute path, e.g. \"/etc/pve-autoscaler/credentials/…\"";
            self.wrong(title, written.span(), "must begin with `/`", help);
        }
        path
    }

    /// Returns a systemd credential. Its name must be a plain file name.
    pub(super) fn credential(&mut self, key: &str, written: &Spanned<String>) -> Credential {
        let name = written.get_ref();
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            let title = format!("`{key}` is not the name of a credential");
            let help = "to name a file, use the key that ends in `_file`";
            self.wrong(title, written.span(), "expected the ID in `LoadCredential=ID:/path`", help);
        }
        Credential { name: name.clone(), folder: self.credentials.clone() }
    }

    /// Returns the text of a setting. A text that `fits` does not accept is reported.
    pub(super) fn named(
        &mut self,
        written: Option<&Spanned<String>>,
        fits: impl Fn(&str) -> bool,
        title: impl Fn(&str) -> String,
        label: &str,
    ) -> Option<String> {
        let written = written?;
        let text = written.get_ref();
        if !fits(text) {
            self.wrong(title(text), written.span(), label, "");
        }
        Some(text.clone())
    }

    /// Checks that the first of two durations is not longer than the second.
    pub(super) fn ordered(&mut self, first: Timed<'_>, most: Timed<'_>) {
        if first.2 <= most.2 || most.2.is_zero() {
            return;
        }
        let help = format!("raise `{}`, or lower `{}`", most.0, first.0);
        let longer = format!("`{}` is longer than `{}`", first.0, most.0);
        match (first.1, most.1) {
            (Some(at), Some(other)) => {
                let label = format!("must be at most \"{}\"", other.get_ref());
                self.clash(longer, at.span(), &label, other.span(), &help);
            }
            (Some(at), None) => {
                let label = format!("must be at most {:?}, the default of `{}`", most.2, most.0);
                self.wrong(longer, at.span(), &label, &help);
            }
            (None, Some(at)) => {
                let title = format!("`{}` is shorter than `{}`", most.0, first.0);
                let label = format!("must be at least {:?}, the default of `{}`", first.2, first.0);
                self.wrong(title, at.span(), &label, &help);
            }
            (None, None) => {}
        }
    }
}

/// The size that a user probably meant by `4GB`, `4 gb` or `4g`.
fn meant_size(text: &str) -> Option<String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let number = number.trim();
    number.parse::<f64>().ok()?;
    let unit = unit.to_ascii_uppercase();
    let prefix = unit.trim_end_matches('B').trim_end_matches('I');
    ["K", "M", "G", "T"].contains(&prefix).then(|| format!("{number}{prefix}iB"))
}

/// A duration: its key, its text as written, and its value.
pub(super) type Timed<'a> = (&'a str, Option<&'a Spanned<String>>, Duration);
