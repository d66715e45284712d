//! `[bootstrap]`: how a booted VM becomes a node.

mod command;
mod k3s;
mod kubeadm;

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

pub use command::Command;
pub use k3s::K3s;
pub use kubeadm::{Kubeadm, Ssh, TokenSource};

use super::name_rules;
use super::secret::SecretSource;
use super::values::Checker;

/// How a VM becomes a node, with the settings of the method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapMethod {
    /// `kubeadm join`, in the guest.
    Kubeadm(Kubeadm),
    /// A K3s agent from the template, started in the guest.
    K3s(K3s),
    /// A script written by the operator, run in the guest.
    Command(Command),
    /// The daemon does nothing in the guest. The guest joins by itself at its first boot, and the daemon
    /// waits for its Node to register.
    None,
}

/// Checked `[bootstrap]`.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// How a VM becomes a node.
    pub method: BootstrapMethod,
    /// Whether a guest may join even if one of its systemd units has failed.
    pub accept_degraded: bool,
    /// A TCP port that a booted guest listens on. The daemon probes it before it calls the guest agent.
    /// `None`: no probe.
    pub probe_port: Option<u16>,
}

impl Bootstrap {
    /// Returns the settings of `kubeadm join`, if that is the method.
    pub fn kubeadm(&self) -> Option<&Kubeadm> {
        match &self.method {
            BootstrapMethod::Kubeadm(kubeadm) => Some(kubeadm),
            _ => None,
        }
    }

    /// The control plane node on which bootstrap tokens are created over SSH, if any.
    pub fn ssh(&self) -> Option<&Ssh> {
        match &self.kubeadm()?.token {
            TokenSource::Ssh(ssh) => Some(ssh),
            TokenSource::Api => None,
        }
    }

    /// The secrets that are read for each machine, each with its description.
    pub fn secrets(&self) -> Vec<(&'static str, &SecretSource)> {
        let secret = match &self.method {
            BootstrapMethod::Kubeadm(_) => self.ssh().map(|ssh| ("the SSH key for tokens", &ssh.key)),
            BootstrapMethod::K3s(k3s) => Some(("the K3s token", &k3s.token)),
            BootstrapMethod::Command(command) => {
                command.input.as_ref().map(|input| ("the input of `bootstrap.command`", input))
            }
            BootstrapMethod::None => None,
        };
        secret.into_iter().collect()
    }

    /// Whether the daemon runs commands in the guest and therefore needs the guest agent.
    pub fn needs_agent(&self) -> bool {
        self.method != BootstrapMethod::None
    }
}

/// The names of the methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    #[default]
    Kubeadm,
    K3s,
    Command,
    None,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Command => "command",
            Self::None => "none",
        }
    }
}

/// `[bootstrap]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    method: Kind,
    token: Option<Spanned<String>>,
    ssh_host: Option<Spanned<String>>,
    ssh_port: Option<Spanned<u16>>,
    ssh_user: Option<Spanned<String>>,
    ssh_key_file: Option<Spanned<String>>,
    ssh_key_credential: Option<Spanned<String>>,
    ssh_host_key: Option<Spanned<String>>,
    api_server: Option<Spanned<String>>,
    token_ttl: Option<Spanned<String>>,
    accept_degraded: Option<Spanned<bool>>,
    #[serde(default)]
    ignore_preflight_errors: Vec<Spanned<String>>,
    probe_port: Option<Spanned<u16>>,
    server_token_file: Option<Spanned<String>>,
    server_token_credential: Option<Spanned<String>>,
    command: Option<Spanned<String>>,
    input_file: Option<Spanned<String>>,
    input_credential: Option<Spanned<String>>,
}

impl Written {
    /// Checks a `[pool.bootstrap]`, in which some settings are not allowed.
    pub(super) fn check_of_pool(written: &Spanned<Self>, checker: &mut Checker) -> Option<Bootstrap> {
        if let Some(port) = &written.get_ref().probe_port {
            let title = "`probe_port` applies to all pools".to_owned();
            checker.wrong(title, port.span(), "not allowed in a pool", "set it in `[bootstrap]`");
        }
        Self::check(written, checker)
    }

    pub(super) fn check(written: &Spanned<Self>, checker: &mut Checker) -> Option<Bootstrap> {
        let this = written.get_ref();
        let table = Spanned::new(written.span(), ());
        this.unused(checker);
        if let Some(server) =
            this.api_server.as_ref().filter(|it| !name_rules::is_host_and_port(it.get_ref()))
        {
            let title = format!("`{}` is not the address of an API server", server.get_ref());
            let help = "set the address at which nodes reach the API server, without `https://`";
            checker.wrong(title, server.span(), "expected e.g. \"10.10.10.2:6443\"", help);
        }
        checker.port("probe_port", this.probe_port.as_ref());
        let method = match this.method {
            Kind::Kubeadm => this.kubeadm(&table, checker).map(BootstrapMethod::Kubeadm),
            Kind::K3s => this.k3s(&table, checker).map(BootstrapMethod::K3s),
            Kind::Command => this.command(&table, checker).map(BootstrapMethod::Command),
            Kind::None => Some(BootstrapMethod::None),
        };
        Some(Bootstrap {
            method: method?,
            accept_degraded: this.accept_degraded.as_ref().is_none_or(|it| *it.get_ref()),
            probe_port: this.probe_port.as_ref().map(|it| *it.get_ref()),
        })
    }

    /// `token_ttl` as written, with its place in the file.
    pub(super) fn token_ttl(&self) -> Option<&Spanned<String>> {
        self.token_ttl.as_ref()
    }

    /// `command` as written, with its place in the file.
    pub(super) fn script(&self) -> Option<&Spanned<String>> {
        self.command.as_ref()
    }

    /// Reports settings that only another method uses.
    fn unused(&self, checker: &mut Checker) {
        use Kind::{Command, K3s, Kubeadm};
        type Setting = (&'static str, Option<Range<usize>>, &'static [Kind]);
        fn at<T>(written: Option<&Spanned<T>>) -> Option<Range<usize>> {
            written.map(Spanned::span)
        }
        let settings: [Setting; 17] = [
            ("token", at(self.token.as_ref()), &[Kubeadm]),
            ("ssh_host", at(self.ssh_host.as_ref()), &[Kubeadm]),
            ("ssh_port", at(self.ssh_port.as_ref()), &[Kubeadm]),
            ("ssh_user", at(self.ssh_user.as_ref()), &[Kubeadm]),
            ("ssh_key_file", at(self.ssh_key_file.as_ref()), &[Kubeadm]),
            ("ssh_key_credential", at(self.ssh_key_credential.as_ref()), &[Kubeadm]),
            ("ssh_host_key", at(self.ssh_host_key.as_ref()), &[Kubeadm]),
            ("api_server", at(self.api_server.as_ref()), &[Kubeadm, K3s]),
            ("token_ttl", at(self.token_ttl.as_ref()), &[Kubeadm]),
            ("accept_degraded", at(self.accept_degraded.as_ref()), &[Kubeadm, K3s, Command]),
            ("ignore_preflight_errors", at(self.ignore_preflight_errors.first()), &[Kubeadm]),
            ("probe_port", at(self.probe_port.as_ref()), &[Kubeadm, K3s, Command]),
            ("server_token_file", at(self.server_token_file.as_ref()), &[K3s]),
            ("server_token_credential", at(self.server_token_credential.as_ref()), &[K3s]),
            ("command", at(self.command.as_ref()), &[Command]),
            ("input_file", at(self.input_file.as_ref()), &[Command]),
            ("input_credential", at(self.input_credential.as_ref()), &[Command]),
        ];
        for (key, at, methods) in settings {
            let Some(at) = at.filter(|_| !methods.contains(&self.method)) else { continue };
            let title = format!("`{key}` has no effect with `method = \"{}\"`", self.method.name());
            let names: Vec<String> =
                methods.iter().map(|it| format!("`method = \"{}\"`", it.name())).collect();
            checker.wrong(title, at, "not used", &format!("it applies only to {}", names.join(" or ")));
        }
    }
}
