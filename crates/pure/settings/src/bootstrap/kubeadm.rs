//! The settings of `kubeadm join`, and the source of its bootstrap tokens.

use std::time::Duration;

use toml::Spanned;

use super::super::name_rules;
use super::super::secret::{self, SecretSource};
use super::super::values::Checker;
use super::Written;

/// The settings of `kubeadm join`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeadm {
    /// Where bootstrap tokens come from.
    pub token: TokenSource,
    /// The `host:port` at which nodes reach the API server; `None`: the one in the `cluster-info` ConfigMap.
    pub api_server: Option<String>,
    /// How long a token is valid. A token is deleted earlier, once its node has registered.
    pub token_ttl: Duration,
    /// Preflight checks of `kubeadm join` whose failures are ignored.
    pub ignore_preflight_errors: Vec<String>,
}

/// A control plane node on which the daemon creates tokens, over SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// The host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user to log in as, who must be allowed to run `kubeadm token`.
    pub user: String,
    /// The private key.
    pub key: SecretSource,
    /// The host's public key, `ssh-ed25519 AAAA…`. The daemon refuses a host with a different key.
    pub host_key: String,
}

/// Where bootstrap tokens come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The daemon creates tokens as Secrets, through the Kubernetes API.
    Api,
    /// The daemon runs `kubeadm token create` over SSH.
    Ssh(Ssh),
}

impl Written {
    pub(super) fn kubeadm(&self, table: &Spanned<()>, checker: &mut Checker) -> Option<Kubeadm> {
        let token = self.token(table, checker);
        for error in &self.ignore_preflight_errors {
            let text = error.get_ref();
            let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if text.is_empty() || !text.chars().all(fine) {
                let title = format!("`{text}` is not a kubeadm preflight check");
                checker.wrong(title, error.span(), "expected e.g. \"NumCPU\" or \"Swap\"", "");
            }
        }
        let token_ttl = checker.positive("token_ttl", self.token_ttl.as_ref(), Duration::from_mins(30));
        let checks = self.ignore_preflight_errors.iter();
        Some(Kubeadm {
            token: token?,
            api_server: self.api_server.as_ref().map(|it| it.get_ref().clone()),
            token_ttl,
            ignore_preflight_errors: checks.map(|it| it.get_ref().clone()).collect(),
        })
    }

    /// Returns where tokens come from. A finding never quotes the value of `token`, because the user may have
    /// entered a token.
    fn token(&self, table: &Spanned<()>, checker: &mut Checker) -> Option<TokenSource> {
        match self.token.as_ref().map(|it| it.get_ref().as_str()) {
            None | Some("api") => {
                self.no_ssh(checker);
                Some(TokenSource::Api)
            }
            Some("ssh") => self.ssh(table, checker).map(TokenSource::Ssh),
            Some(_) => {
                let at = self.token.as_ref().map_or(table.span(), Spanned::span);
                let help = "a token is created for each machine: name its source, not its value";
                checker.wrong(
                    "`token` does not name a token source".to_owned(),
                    at,
                    "must be \"api\" or \"ssh\"",
                    help,
                );
                None
            }
        }
    }

    fn no_ssh(&self, checker: &mut Checker) {
        let texts = [
            ("ssh_host", &self.ssh_host),
            ("ssh_user", &self.ssh_user),
            ("ssh_key_file", &self.ssh_key_file),
            ("ssh_key_credential", &self.ssh_key_credential),
            ("ssh_host_key", &self.ssh_host_key),
        ];
        let spans = texts.iter().filter_map(|(key, it)| Some((*key, it.as_ref()?.span())));
        for (key, at) in spans.chain(self.ssh_port.as_ref().map(|it| ("ssh_port", it.span()))) {
            let title = format!("`{key}` has no effect while tokens come from the Kubernetes API");
            checker.wrong(title, at, "not used", "set `token = \"ssh\"`, or remove it");
        }
    }

    fn ssh(&self, table: &Spanned<()>, checker: &mut Checker) -> Option<Ssh> {
        let key = secret::source(
            checker,
            table,
            "ssh_key",
            self.ssh_key_file.as_ref(),
            self.ssh_key_credential.as_ref(),
        );
        checker.port("ssh_port", self.ssh_port.as_ref());
        if let Some(user) = self.ssh_user.as_ref().filter(|it| !name_rules::is_user(it.get_ref())) {
            let title = format!("`{}` is not a valid user name", user.get_ref());
            checker.wrong(title, user.span(), "lower-case letters, digits, `-` and `_`", "");
        }
        let host = self.ssh_host.as_ref();
        match host {
            None => {
                let help = "name a control plane node on which `kubeadm token create` works";
                let title = "`ssh_host` is missing".to_owned();
                checker.wrong(title, table.span(), "needed for `token = \"ssh\"`", help);
            }
            Some(host) if !name_rules::is_host(host.get_ref()) => {
                let title = format!("`{}` is not a host", host.get_ref());
                checker.wrong(
                    title,
                    host.span(),
                    "expected a name or an address",
                    "set the port with `ssh_port`",
                );
            }
            Some(_) => {}
        }
        self.host_key(table, checker);
        Some(Ssh {
            host: host?.get_ref().clone(),
            port: self.ssh_port.as_ref().map_or(22, |port| *port.get_ref()),
            user: self.ssh_user.as_ref().map_or_else(|| "root".to_owned(), |user| user.get_ref().clone()),
            key: key?,
            host_key: self.ssh_host_key.as_ref()?.get_ref().clone(),
        })
    }

    fn host_key(&self, table: &Spanned<()>, checker: &mut Checker) {
        const HELP: &str = "copy it from `/etc/ssh/ssh_host_ed25519_key.pub` on that host, or from the \
            output of `ssh-keyscan` without the host name";
        let Some(key) = &self.ssh_host_key else {
            let title = "`ssh_host_key` is missing".to_owned();
            return checker.wrong(title, table.span(), "needed for `token = \"ssh\"`", HELP);
        };
        if !name_rules::is_ssh_key(key.get_ref()) {
            let title = "`ssh_host_key` is not a public key".to_owned();
            checker.wrong(title, key.span(), "expected e.g. \"ssh-ed25519 AAAA…\"", HELP);
        } else if !key.get_ref().starts_with("ssh-ed25519 ") && !key.get_ref().starts_with("ecdsa-") {
            let title = "`ssh_host_key` has an unsupported type".to_owned();
            checker.wrong(title, key.span(), "must be Ed25519 or ECDSA", HELP);
        }
    }
}
