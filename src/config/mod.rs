//! The configuration: TOML as written (with spans) → checked settings. One file a table.
//!
//! A file is read in two stages. First its shape: unknown keys and wrong types end the reading at once, with the line and
//! a suggestion. Then its meaning: everything that is wrong is reported together, each finding at its own line and key.

mod health;
mod kubernetes;
mod pool;
mod proxmox;
mod report;
mod scale_down;
mod scale_up;
mod secret;
mod values;

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

pub use health::Health;
pub use kubernetes::Kubernetes;
pub use pool::Pool;
pub use proxmox::{Proxmox, ProxmoxTrust};
pub use report::{Finding, Report};
pub use scale_down::ScaleDown;
pub use scale_up::{Expander, ScaleUp};
pub use secret::{SecretError, SecretSource};

use values::Checker;

/// Checked settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// How often a round runs when nothing happens.
    pub scan_interval: Duration,
    /// How the Proxmox VE cluster is reached; not needed for snapshot files.
    pub proxmox: Option<Proxmox>,
    /// How the Kubernetes cluster is reached; not needed for snapshot files.
    pub kubernetes: Option<Kubernetes>,
    /// When and how nodes are added.
    pub scale_up: ScaleUp,
    /// When and how nodes are removed.
    pub scale_down: ScaleDown,
    /// How many unready nodes are too many.
    pub health: Health,
    /// The pools, in the order of the file.
    pub pools: Vec<Pool>,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    scan_interval: Option<Spanned<String>>,
    proxmox: Option<Spanned<proxmox::Written>>,
    kubernetes: Option<Spanned<kubernetes::Written>>,
    #[serde(default)]
    scale_up: scale_up::Written,
    #[serde(default)]
    scale_down: scale_down::Written,
    #[serde(default)]
    health: health::Written,
    #[serde(default)]
    pool: Vec<Spanned<pool::Written>>,
}

/// Reads and checks a file.
///
/// # Errors
/// A report of everything that is wrong, ready to be printed.
pub fn load(path: &Path) -> Result<Config, Report> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&name, &text),
        Err(error) => Err(Report::unreadable(&name, &error)),
    }
}

/// Checks a text; `name` stands for the file in messages.
///
/// # Errors
/// A report of everything that is wrong, ready to be printed.
pub fn parse(name: &str, text: &str) -> Result<Config, Report> {
    let written: Written = toml::from_str(text).map_err(|error| Report::syntax(name, text, &error))?;
    let mut checker = Checker::default();
    let config = Config {
        scan_interval: checker.positive(
            "scan_interval",
            written.scan_interval.as_ref(),
            Duration::from_secs(10),
        ),
        proxmox: written.proxmox.as_ref().and_then(|table| proxmox::Written::check(table, &mut checker)),
        kubernetes: written
            .kubernetes
            .as_ref()
            .and_then(|table| kubernetes::Written::check(table, &mut checker)),
        scale_up: written.scale_up.check(&mut checker),
        scale_down: written.scale_down.check(&mut checker),
        health: written.health.check(&mut checker),
        pools: pool::check_all(&written.pool, &mut checker),
    };
    if checker.findings.is_empty() { Ok(config) } else { Err(Report::new(name, text, checker.findings)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_thing_is_reported_at_once_and_at_its_place() {
        let text = "scan_interval = \"0s\"\n\n[scale_down]\nutilization_threshold = 1.5\n\n[[pool]]\nname = \"gpu\"\n\
            min = 5\nmax = 3\ncores = 4\nmemory = \"8 gigs\"\n";
        let report = parse("config.toml", text).unwrap_err().plain();
        for expected in [
            "config.toml:1:17",
            "`scan_interval` must be longer than zero",
            "config.toml:4:25",
            "pool `gpu`: `min` is greater than `max`",
            "config.toml:8:7",
            "help: raise `max`, or lower `min`",
            "config.toml:11:10",
        ] {
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }

    #[test]
    fn an_unknown_key_gets_a_suggestion() {
        let cases = [
            ("[scale_dwon]\n", "did you mean `scale_down`?"),
            ("[scale_down]\nuneeded_time = \"10m\"\n", "did you mean `unneeded_time`?"),
            ("[[pool]]\nname = \"a\"\nmaximum = 3\n", "unknown field `maximum`"),
        ];
        for (text, expected) in cases {
            let report = parse("c.toml", text).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }

    #[test]
    fn how_the_clusters_are_reached_is_checked() {
        let good = "endpoints = [\"https://127.0.0.1:8006\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";
        let cases = [
            (good.to_owned(), ""),
            (good.replace("https", "http"), "is not an endpoint"),
            (good.replace("[\"https://127.0.0.1:8006\"]", "[]"), "`endpoints` is empty"),
            (good.replace("a@pve!b", "a@pve!b=0a1b"), "is not a token's id"),
            (good.replace("token_file = \"/t\"\n", ""), "neither `token_file` nor `token_credential`"),
            (
                format!("{good}token_credential = \"t\"\n"),
                "`token_file` and `token_credential` are both given",
            ),
            (good.replace("token_file", "token"), "name it with `token_file`"),
            (good.replace("ca_file = \"/c\"\n", ""), "neither `ca_file` nor `fingerprint`"),
            (good.replace("ca_file = \"/c\"", "fingerprint = \"AB:CD\""), "not a SHA-256 fingerprint"),
            (format!("{good}request_timeout = \"soon\"\n"), "`request_timeout` is not a duration"),
        ];
        for (table, expected) in cases {
            let answer = parse("c.toml", &format!("[proxmox]\n{table}"));
            match answer {
                Ok(config) => assert!(expected.is_empty() && config.proxmox.is_some(), "{expected}"),
                Err(report) => assert!(!expected.is_empty() && report.plain().contains(expected), "{report}"),
            }
        }
        let report = parse("c.toml", "[kubernetes]\ncontext = \"home\"\n").unwrap_err().plain();
        assert!(report.contains("neither `kubeconfig_file` nor `kubeconfig_credential`"), "{report}");
    }

    #[test]
    fn a_secret_in_the_file_is_refused_and_never_shown() {
        let cases = [
            "[proxmox]\ntoken = \"S3CR3T\"\n",
            "[proxmox]\n\"token\" = \"S3CR3T\"\n",
            "proxmox = { password = \"S3CR3T\" }\n",
            "[proxmox]\nendpoints = []\ntoken_id = \"a@pve!b=S3CR3T\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n",
        ];
        for text in cases {
            let report = parse("c.toml", text).unwrap_err();
            for said in [report.plain(), report.styled(), format!("{report:?}")] {
                assert!(!said.contains("S3CR3T"), "{said}");
            }
            assert!(report.plain().contains("token_file"), "{report}");
        }
    }

    #[test]
    fn a_size_below_its_bound_is_refused() {
        for (memory, expected) in [("-8GiB", "is negative"), ("0", "is zero"), ("0GiB", "is zero")] {
            let text = format!("[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"{memory}\"\n");
            let report = parse("c.toml", &text).unwrap_err().plain();
            assert!(report.contains(expected), "{report}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let report = load(Path::new("/nonexistent/c.toml")).unwrap_err().plain();
        assert!(report.contains("cannot read `/nonexistent/c.toml`"), "{report}");
    }

    #[test]
    fn the_example_is_a_configuration_and_names_every_key() {
        let text = include_str!("../../config.example.toml");
        let config = parse("config.example.toml", text).unwrap_or_else(|report| panic!("{}", report.plain()));
        assert_eq!(config.pools.len(), 1);
        let all: String = text
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .fold(String::new(), |all, line| all + line + "\n");
        let config = parse("uncommented", &all).unwrap_or_else(|report| panic!("{}", report.plain()));
        assert_eq!(config.scale_down.unneeded_time, Duration::from_mins(10));
        for keys in
            [proxmox::KEYS, kubernetes::KEYS, scale_up::KEYS, scale_down::KEYS, health::KEYS, pool::KEYS]
        {
            for key in keys {
                let named = all.lines().any(|line| line.starts_with(&format!("{key} =")));
                assert!(named, "config.example.toml does not name `{key}`");
            }
        }
    }
}
