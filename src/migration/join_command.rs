//! Converts the parts of kproximate's join command for which there is a setting. Secrets in the command are
//! not copied.

/// The settings in a join command.
#[derive(Debug, Default)]
pub(super) struct JoinCommand {
    /// `host:port` of the API server.
    pub server: Option<String>,
    /// Kubelet arguments, without leading dashes.
    pub kubelet_args: Vec<(String, String)>,
    pub labels: Vec<(String, String)>,
    /// `key=value:Effect`.
    pub taints: Vec<String>,
    /// kubeadm preflight checks whose failures are ignored.
    pub ignored_checks: Vec<String>,
    /// Parts that are not converted: the name of each, and the reason.
    pub told: Vec<String>,
}

/// Agent options that are not converted, because the daemon sets them in another way or does not need them;
/// each with the reason.
const MEANT_OTHERWISE: [(&str, &str); 5] = [
    ("with-node-id", "machine names are already unique"),
    ("node-name", "each node is named after its machine"),
    ("node-ip", "the daemon uses the address of the machine's slot"),
    ("node-external-ip", "not set; a cloud controller can set it"),
    ("discovery-token-unsafe-skip-ca-verification", "the cluster's CA is always checked"),
];
/// Options with secrets or the cluster's identity, both of which the daemon supplies for each machine.
const GIVEN_BY_THE_DAEMON: [&str; 7] = [
    "token",
    "t",
    "token-file",
    "agent-token",
    "discovery-token",
    "discovery-token-ca-cert-hash",
    "tls-bootstrap-token",
];
/// Options without a value.
const SWITCHES: [&str; 5] =
    ["with-node-id", "debug", "docker", "rootless", "discovery-token-unsafe-skip-ca-verification"];

/// Reads a command that installs or starts a K3s agent.
pub(super) fn of_k3s(command: &str) -> JoinCommand {
    let words = arguments(command);
    let mut found = JoinCommand::default();
    let mut options = after_the_shell(&words);
    for (name, value) in words.iter().filter_map(|word| assignment(word)) {
        match name {
            "K3S_URL" => found.server = server(value),
            "K3S_TOKEN" | "K3S_TOKEN_FILE" | "K3S_CLUSTER_SECRET" => {}
            "INSTALL_K3S_EXEC" | "K3S_EXEC" => options.extend(self::arguments(value)),
            "K3S_NODE_NAME" => found.told.push(format!("{name}: each node is named after its machine")),
            _ if name.starts_with("INSTALL_K3S_") => {
                found.told.push(format!(
                    "{name}: K3s is already installed in the template (docs/guides/template.md)"
                ));
            }
            _ if name.starts_with("K3S_") => {
                found.told.push(format!(
                    "{name}: not converted; if you need it, set it in the template's K3s \
                        configuration"
                ));
            }
            _ => {}
        }
    }
    found.take(&options, "set it in the template's /etc/rancher/k3s/config.yaml");
    found
}

/// Reads `kubeadm join`.
pub(super) fn of_kubeadm(command: &str) -> JoinCommand {
    let words = arguments(command);
    let mut found = JoinCommand::default();
    let after = words.iter().skip_while(|word| *word != "join").skip(1);
    let options: Vec<String> = after.take_while(|word| !is_end(word)).cloned().collect();
    found.take(&options, "the daemon supplies kubeadm's configuration");
    found
}

impl JoinCommand {
    /// Reads options with their values. `otherwise` is the hint for an option that is not converted.
    fn take(&mut self, options: &[String], otherwise: &str) {
        let mut rest = options.iter().peekable();
        while let Some(word) = rest.next() {
            let Some(option) = word.strip_prefix('-').map(|word| word.trim_start_matches('-')) else {
                if self.server.is_none() {
                    self.server = server(word);
                }
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None if SWITCHES.contains(&option) => (option, None),
                None => (option, rest.next_if(|next| !next.starts_with('-')).cloned()),
            };
            self.option(name, value, otherwise);
        }
    }

    fn option(&mut self, name: &str, value: Option<String>, otherwise: &str) {
        let pair = |text: &str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let value = value.unwrap_or_default();
        match name {
            "server" | "s" => self.server = server(&value),
            "kubelet-arg" => match pair(value.trim_start_matches('-')) {
                Some(argument) => self.kubelet_args.push(argument),
                None => self.told.push(format!("--{name}: not converted, because its value has no `=`")),
            },
            "node-label" => self.labels.extend(value.split(',').filter_map(pair)),
            "node-taint" => self.taints.extend(value.split(',').map(ToOwned::to_owned)),
            "ignore-preflight-errors" => {
                self.ignored_checks.extend(value.split(',').map(ToOwned::to_owned));
            }
            _ if GIVEN_BY_THE_DAEMON.contains(&name) => {}
            _ => {
                let known = MEANT_OTHERWISE.iter().find(|(option, _)| *option == name);
                let why =
                    known.map_or_else(|| format!("not converted: {otherwise}"), |(_, why)| (*why).to_owned());
                // The name may be anything, even a secret, so the message contains it only if it looks like
                // an option.
                let fine = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && name.len() < 64;
                self.told.push(if fine { format!("--{name}: {why}") } else { format!("an option: {why}") });
            }
        }
    }
}

/// Returns the arguments of the agent itself: the words after `sh -s -`, or else after `agent`.
fn after_the_shell(words: &[String]) -> Vec<String> {
    let piped = words.windows(2).position(|pair| pair[0] == "-s" && pair[1] == "-").map(|at| at + 2);
    let plain = || words.iter().position(|word| word == "agent").map(|at| at + 1);
    let Some(from) = piped.or_else(plain) else { return Vec::new() };
    words[from..].iter().take_while(|word| !is_end(word)).cloned().collect()
}

fn is_end(word: &str) -> bool {
    ["|", ";", "&&", "||", "&"].contains(&word)
}

/// Splits `NAME=value`, an assignment before a command or after `export`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let fine = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (!name.is_empty() && name.chars().all(fine)).then_some((name, value))
}

/// Returns `host:port` from a URL or address, without a path. Returns `None` if the text has any other part,
/// such as a user, because that part could be secret.
fn server(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
    let host = rest.split('/').next().unwrap_or_default();
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if host.is_empty() || host.starts_with('-') || !host.chars().all(fine) {
        return None;
    }
    let port = host.rsplit_once(':').filter(|(before, _)| !before.contains(':') || before.ends_with(']'));
    match port {
        Some((_, port)) => port.parse::<u16>().is_ok().then(|| host.to_owned()),
        None => scheme.map(|_| format!("{host}:6443")),
    }
}

/// Splits a command into words as a shell does, but without expansion.
fn arguments(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (Some('"') | None, '\\') => {
                // An escaped newline joins two lines.
                let next = letters.next().filter(|next| *next != '\n');
                if let Some(next) = next {
                    word.get_or_insert_default().push(next);
                }
            }
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, letter) if letter.is_whitespace() => {
                words.extend(word.take());
                if letter == '\n' {
                    words.push(";".to_owned());
                }
            }
            (None, '|' | ';' | '&') => {
                words.extend(word.take());
                words.push(letter.to_string());
            }
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_k3s_are_taken_over_or_told() {
        let command = "curl -sfL https://get.k3s.io | INSTALL_K3S_VERSION=v1.30.4+k3s1 K3S_URL=https://10.0.0.100:6443 \
                       K3S_TOKEN=secret INSTALL_K3S_EXEC='agent --kubelet-arg=cloud-provider=external --with-node-id \
                       --node-label a=b,c=d --node-taint e=f:NoSchedule --token secret --flannel-iface eth1' sh -";
        let read = of_k3s(command);
        assert_eq!(read.server.as_deref(), Some("10.0.0.100:6443"));
        assert_eq!(read.kubelet_args, [("cloud-provider".to_owned(), "external".to_owned())]);
        assert_eq!(read.labels.len(), 2);
        assert_eq!(read.taints, ["e=f:NoSchedule"]);
        let told: Vec<&str> = read.told.iter().filter_map(|one| one.split(':').next()).collect();
        assert_eq!(told, ["INSTALL_K3S_VERSION", "--with-node-id", "--flannel-iface"]);
        assert!(!format!("{read:?}").contains("secret"));
    }

    #[test]
    fn servers_are_found_in_every_form() {
        for (command, expected) in [
            ("K3S_URL=https://k3s.home:6443 sh -", Some("k3s.home:6443")),
            ("K3S_URL=\"https://k3s.home\" sh -", Some("k3s.home:6443")),
            ("export K3S_URL=https://[fd00::1]:6443; sh -", Some("[fd00::1]:6443")),
            ("curl x | sh -s - agent --server https://10.0.0.1:6443 --token s", Some("10.0.0.1:6443")),
            ("k3s agent -s https://10.0.0.1:6443 -t s", Some("10.0.0.1:6443")),
            ("K3S_URL=$URL sh -", None),
            ("K3S_TOKEN=s sh -", None),
        ] {
            assert_eq!(of_k3s(command).server.as_deref(), expected, "{command}");
        }
        for (command, expected) in [
            ("kubeadm join 10.0.0.2:6443 --token s", Some("10.0.0.2:6443")),
            ("kubeadm join --token s:1 10.0.0.2:6443", Some("10.0.0.2:6443")),
            ("kubeadm join --config /etc/join.yaml", None),
        ] {
            assert_eq!(of_kubeadm(command).server.as_deref(), expected, "{command}");
        }
    }
}
