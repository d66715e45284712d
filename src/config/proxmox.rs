//! `[proxmox]`: how the Proxmox VE cluster is reached.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::secret::{self, SecretSource};
use super::values::Checker;

/// Whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxmoxTrust {
    /// The authorities in this PEM file, and no others.
    CaFile(PathBuf),
    /// The certificate with this SHA-256 fingerprint.
    Fingerprint(String),
}

/// Checked `[proxmox]`.
#[derive(Clone, Debug)]
pub struct Proxmox {
    /// Base URLs; the first that answers is used.
    pub endpoints: Vec<String>,
    /// The API token's id, `user@realm!name`.
    pub token_id: String,
    /// The API token's secret.
    pub token: SecretSource,
    /// Whom to trust.
    pub trust: ProxmoxTrust,
    /// How long a connection may take to come up.
    pub connect_timeout: Duration,
    /// How long a call may take. Proxmox itself gives up after 30 s.
    pub request_timeout: Duration,
    /// Guest agent calls at a time for each host.
    pub agent_calls_per_host: usize,
    /// Other calls at a time for each host that occupy one of its three workers.
    pub calls_per_host: usize,
}

/// `[proxmox]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    endpoints: Vec<Spanned<String>>,
    token_id: Spanned<String>,
    token_file: Option<Spanned<String>>,
    token_credential: Option<Spanned<String>>,
    ca_file: Option<Spanned<String>>,
    fingerprint: Option<Spanned<String>>,
    connect_timeout: Option<Spanned<String>>,
    request_timeout: Option<Spanned<String>>,
    agent_calls_per_host: Option<usize>,
    calls_per_host: Option<usize>,
}

#[cfg(test)]
pub(super) const KEYS: &[&str] = &[
    "endpoints",
    "token_id",
    "token_file",
    "ca_file",
    "connect_timeout",
    "request_timeout",
    "agent_calls_per_host",
    "calls_per_host",
];

impl Written {
    pub(super) fn check(written: &Spanned<Self>, checker: &mut Checker) -> Option<Proxmox> {
        let table = Spanned::new(written.span(), ());
        let this = written.get_ref();
        for endpoint in &this.endpoints {
            if !endpoint.get_ref().starts_with("https://") {
                let title = format!("`{}` is not an endpoint", endpoint.get_ref());
                checker.wrong(title, endpoint.span(), "expected e.g. \"https://127.0.0.1:8006\"", "");
            }
        }
        if this.endpoints.is_empty() {
            checker.wrong("`endpoints` is empty".to_owned(), table.span(), "name at least one", "");
        }
        let id = this.token_id.get_ref();
        let shape = id.split_once('!').is_some_and(|(user, name)| user.contains('@') && !name.is_empty());
        if !shape || id.contains('=') {
            let help = "the secret goes into the file that `token_file` names";
            let title = "`token_id` is not a token's id".to_owned();
            checker.wrong(title, this.token_id.span(), "expected `user@realm!name`", help);
        }
        let token = secret::source(
            checker,
            &table,
            "token",
            this.token_file.as_ref(),
            this.token_credential.as_ref(),
        );
        let trust = this.trust(checker, &table);
        let seconds = Duration::from_secs;
        let connect_timeout = checker.positive("connect_timeout", this.connect_timeout.as_ref(), seconds(5));
        let request_timeout = checker.positive("request_timeout", this.request_timeout.as_ref(), seconds(35));
        Some(Proxmox {
            endpoints: this.endpoints.iter().map(|endpoint| endpoint.get_ref().clone()).collect(),
            token_id: id.clone(),
            token: token?,
            trust: trust?,
            connect_timeout,
            request_timeout,
            agent_calls_per_host: this.agent_calls_per_host.unwrap_or(1).max(1),
            calls_per_host: this.calls_per_host.unwrap_or(2).max(1),
        })
    }

    fn trust(&self, checker: &mut Checker, table: &Spanned<()>) -> Option<ProxmoxTrust> {
        match (&self.ca_file, &self.fingerprint) {
            (Some(file), None) => Some(ProxmoxTrust::CaFile(PathBuf::from(file.get_ref()))),
            (None, Some(written)) => {
                let text = written.get_ref();
                let pair = |pair: &str| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit());
                if text.split(':').count() == 32 && text.split(':').all(pair) {
                    return Some(ProxmoxTrust::Fingerprint(text.clone()));
                }
                let help = "`pvenode cert info` on the host shows it";
                let title = "`fingerprint` is not a SHA-256 fingerprint".to_owned();
                checker.wrong(title, written.span(), "32 hexadecimal pairs with colons", help);
                None
            }
            (Some(_), Some(written)) => {
                let title = "`ca_file` and `fingerprint` are both given".to_owned();
                checker.wrong(title, written.span(), "only one of them", "remove one of the two");
                None
            }
            (None, None) => {
                let help = "on a host of the cluster: `ca_file = \"/etc/pve/pve-root-ca.pem\"`";
                let title = "neither `ca_file` nor `fingerprint` is given".to_owned();
                checker.wrong(title, table.span(), "missing in this table", help);
                None
            }
        }
    }
}
