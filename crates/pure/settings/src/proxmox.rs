//! `[proxmox]`: how the Proxmox VE cluster is reached.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::name_rules;
use super::region::{Regions, is_here};
use super::secret::{self, Credential, SecretSource};
use super::values::Checker;

/// How an API's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxmoxTrust {
    /// Trusts only the CAs in this PEM file.
    CaFile(PathBuf),
    /// Trusts only the CAs in this systemd credential (PEM).
    CaCredential(Credential),
    /// Trusts the CAs that the system trusts.
    System,
    /// Trusts only the certificate with this SHA-256 fingerprint.
    Fingerprint(String),
}

/// Checked `[proxmox]`.
#[derive(Clone, Debug)]
pub struct Proxmox {
    /// The region's name. `None` is possible only if there is just one cluster.
    pub region: Option<String>,
    /// The API's base URLs. The first one that answers is used.
    pub endpoints: Vec<String>,
    /// The configured URL at which browsers reach the web interface.
    pub web_interface: Option<String>,
    /// The API token's id, `user@realm!name`.
    pub token_id: String,
    /// The API token's secret.
    pub token: SecretSource,
    /// How the API's certificate is verified.
    pub trust: ProxmoxTrust,
    /// Time limit for opening a connection.
    pub connect_timeout: Duration,
    /// Time limit for a call. Proxmox VE itself gives up after 30 s.
    pub request_timeout: Duration,
    /// Maximum number of concurrent guest agent calls for each host.
    pub agent_calls_per_host: usize,
    /// Maximum number of concurrent calls per host, not including guest agent calls. Calls that do not occupy
    /// one of the host's three API workers are not limited.
    pub calls_per_host: usize,
    /// The resource pool that machines are put into.
    pub resource_pool: Option<String>,
    /// Maximum number of concurrent linked clones from one storage.
    pub linked_clones_per_storage: usize,
    /// Maximum number of concurrent full clones from one storage. This is also the maximum number of guests
    /// that a host may be suspending at the same time.
    pub full_clones_per_storage: usize,
    /// Maximum number of vCPUs per CPU thread of a host, unless the pool sets `cpu_overcommit`.
    pub cpu_overcommit: f64,
    /// Maximum memory of a host's running guests, as a fraction of the host's memory, unless the pool sets
    /// `memory_overcommit`.
    pub memory_overcommit: f64,
    /// Memory in bytes that stays free on each host, unless the pool sets `memory_reserve`.
    pub memory_reserve: i64,
    /// Whether stopped VMs and containers count towards a host's usage as if they were running.
    pub count_stopped: bool,
}

/// `[proxmox]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) region: Option<Spanned<String>>,
    pub(super) endpoints: Vec<Spanned<String>>,
    web_interface: Option<Spanned<String>>,
    token_id: Spanned<String>,
    token_file: Option<Spanned<String>>,
    token_credential: Option<Spanned<String>>,
    ca_file: Option<Spanned<String>>,
    ca_credential: Option<Spanned<String>>,
    ca: Option<Spanned<String>>,
    fingerprint: Option<Spanned<String>>,
    connect_timeout: Option<Spanned<String>>,
    request_timeout: Option<Spanned<String>>,
    agent_calls_per_host: Option<Spanned<usize>>,
    calls_per_host: Option<Spanned<usize>>,
    resource_pool: Option<Spanned<String>>,
    linked_clones_per_storage: Option<Spanned<usize>>,
    full_clones_per_storage: Option<Spanned<usize>>,
    cpu_overcommit: Option<Spanned<f64>>,
    memory_overcommit: Option<Spanned<f64>>,
    memory_reserve: Option<Spanned<String>>,
    #[serde(default)]
    count_stopped: bool,
    #[serde(default)]
    pub(super) also: Vec<Spanned<Written>>,
}

/// How far machines may fill a host, unless their pool sets other limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headroom {
    pub cpu_overcommit: f64,
    pub memory_overcommit: f64,
    pub memory_reserve: i64,
}

impl Default for Headroom {
    fn default() -> Self {
        Self { cpu_overcommit: 4.0, memory_overcommit: 1.0, memory_reserve: 2 << 30 }
    }
}

impl Written {
    pub(super) fn check(
        written: &Spanned<Self>,
        regions: &Regions,
        checker: &mut Checker,
    ) -> Option<Proxmox> {
        let table = Spanned::new(written.span(), ());
        let this = written.get_ref();
        let headroom = regions.headroom_of(this);
        for endpoint in &this.endpoints {
            if !endpoint.get_ref().starts_with("https://") {
                let title = format!("`{}` is not an endpoint", endpoint.get_ref());
                checker.wrong(title, endpoint.span(), "expected e.g. \"https://127.0.0.1:8006\"", "");
            }
        }
        if this.endpoints.is_empty() {
            checker.wrong("`endpoints` is empty".to_owned(), table.span(), "name at least one endpoint", "");
        }
        let web_interface = checker.named(
            this.web_interface.as_ref(),
            is_page,
            |text| format!("`{text}` is not a valid web interface address"),
            "expected e.g. \"https://pve.example.net:8006\", without a user name",
        );
        let id = this.token_id.get_ref();
        let shape = id.split_once('!').is_some_and(|(user, name)| user.contains('@') && !name.is_empty());
        if !shape || id.contains('=') {
            let help = "put the secret into the file that `token_credential` or `token_file` names";
            let title = "`token_id` is not a valid token ID".to_owned();
            checker.wrong(title, this.token_id.span(), "expected `user@realm!name`", help);
        }
        let token = secret::source(
            checker,
            &table,
            "token",
            this.token_file.as_ref(),
            this.token_credential.as_ref(),
        );
        let ways = [
            ("ca_file", &this.ca_file),
            ("ca_credential", &this.ca_credential),
            ("fingerprint", &this.fingerprint),
            ("ca", &this.ca),
        ];
        let help = "set `ca_credential = \"pve-root-ca\"`: the package installs this credential on a \
            host of the cluster, because only root can read `/etc/pve/pve-root-ca.pem`";
        let trust = trust(ways, help, checker, &table);
        let seconds = Duration::from_secs;
        let connect_timeout = checker.positive("connect_timeout", this.connect_timeout.as_ref(), seconds(5));
        let request_timeout = checker.positive("request_timeout", this.request_timeout.as_ref(), seconds(35));
        let resource_pool = checker.named(
            this.resource_pool.as_ref(),
            name_rules::is_resource_pool,
            |text| format!("`{text}` is not a valid resource pool name"),
            "expected at most three levels, separated by `/`, each of letters, digits, `-`, `_` and `.`",
        );
        Some(Proxmox {
            region: this.region.as_ref().map(|name| name.get_ref().clone()),
            endpoints: this.endpoints.iter().map(|endpoint| endpoint.get_ref().clone()).collect(),
            web_interface,
            token_id: id.clone(),
            token: token?,
            trust: trust?,
            connect_timeout,
            request_timeout,
            agent_calls_per_host: checker.count(
                "agent_calls_per_host",
                this.agent_calls_per_host.as_ref(),
                1,
                "",
            ),
            calls_per_host: checker.count("calls_per_host", this.calls_per_host.as_ref(), 2, ""),
            resource_pool,
            linked_clones_per_storage: checker.count(
                "linked_clones_per_storage",
                this.linked_clones_per_storage.as_ref(),
                4,
                "",
            ),
            full_clones_per_storage: checker.count(
                "full_clones_per_storage",
                this.full_clones_per_storage.as_ref(),
                2,
                "",
            ),
            cpu_overcommit: headroom.cpu_overcommit,
            memory_overcommit: headroom.memory_overcommit,
            memory_reserve: headroom.memory_reserve,
            count_stopped: this.count_stopped,
        })
    }

    /// Checks the default limits on how far machines may fill a host, and returns them.
    pub(super) fn headroom(&self, checker: &mut Checker) -> Headroom {
        let default = Headroom::default();
        Headroom {
            cpu_overcommit: checker.between(
                "cpu_overcommit",
                self.cpu_overcommit.as_ref(),
                (0.1, 100.0),
                default.cpu_overcommit,
            ),
            memory_overcommit: checker.between(
                "memory_overcommit",
                self.memory_overcommit.as_ref(),
                (0.1, 10.0),
                default.memory_overcommit,
            ),
            memory_reserve: self
                .memory_reserve
                .as_ref()
                .map_or(default.memory_reserve, |size| checker.size("`memory_reserve`", size)),
        }
    }
}

impl Proxmox {
    /// Returns the URL at which browsers reach the web interface: the configured one, or else the first
    /// endpoint that is not on loopback, or else the first endpoint.
    pub fn web_interface(&self) -> Option<&str> {
        let endpoints = || self.endpoints.iter().filter(|endpoint| is_page(endpoint));
        let far = endpoints().find(|endpoint| !is_here(endpoint));
        self.web_interface.as_ref().or(far).or_else(|| endpoints().next()).map(String::as_str)
    }
}

/// Whether a browser may be sent to this URL: it is `https`, and contains no secret.
fn is_page(text: &str) -> bool {
    text.starts_with("https://") && !text.contains(['@', '?', '#']) && text.parse::<http::Uri>().is_ok()
}

/// Returns how certificates are verified. Exactly one of the keys in `ways` must be set. `help` is the hint
/// that is reported if none is set.
pub(super) fn trust(
    ways: [(&str, &Option<Spanned<String>>); 4],
    help: &str,
    checker: &mut Checker,
    table: &Spanned<()>,
) -> Option<ProxmoxTrust> {
    let mut given = ways.iter().filter_map(|(key, written)| Some((*key, written.as_ref()?)));
    let Some((key, written)) = given.next() else {
        let title = "none of `ca_credential`, `ca_file` and `fingerprint` is given".to_owned();
        checker.wrong(title, table.span(), "missing from this table", help);
        return None;
    };
    if let Some((other, second)) = given.next() {
        checker.clash(
            format!("`{key}` and `{other}` are both given"),
            second.span(),
            "only one of the two is allowed",
            written.span(),
            "remove one of the two",
        );
        return None;
    }
    match key {
        "ca_file" => Some(ProxmoxTrust::CaFile(checker.file(key, written))),
        "ca_credential" => Some(ProxmoxTrust::CaCredential(checker.credential(key, written))),
        "fingerprint" => fingerprint(written, checker),
        _ if written.get_ref() == "system" => Some(ProxmoxTrust::System),
        _ => {
            let title = format!("`{}` is not a known CA", written.get_ref());
            let help = "to use a CA file, set `ca_file`";
            checker.wrong(title, written.span(), "must be \"system\"", help);
            None
        }
    }
}

fn fingerprint(written: &Spanned<String>, checker: &mut Checker) -> Option<ProxmoxTrust> {
    let text = written.get_ref();
    let pair = |pair: &str| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit());
    if text.split(':').count() == 32 && text.split(':').all(pair) {
        return Some(ProxmoxTrust::Fingerprint(text.clone()));
    }
    let help = "to see the fingerprint, run `pvenode cert info` on the host";
    let title = "`fingerprint` is not a SHA-256 fingerprint".to_owned();
    checker.wrong(
        title,
        written.span(),
        "expected 32 pairs of hexadecimal digits, separated by colons",
        help,
    );
    None
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    fn web(more: &str) -> Result<Option<String>, String> {
        let rest = "token_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";
        let text = format!("cluster = \"c\"\n[proxmox]\n{more}\n{rest}");
        let config = parse("c.toml", &text, Needs::Plan).map_err(|report| report.plain())?;
        Ok(config.proxmox.and_then(|proxmox| proxmox.web_interface().map(ToOwned::to_owned)))
    }

    #[test]
    fn a_browser_is_led_where_other_machines_reach_and_never_with_a_secret() {
        for (endpoints, expected) in [
            (r#""https://127.0.0.1:8006", "https://10.0.0.2:8006""#, Some("https://10.0.0.2:8006")),
            (r#""https://127.0.0.1:8006""#, Some("https://127.0.0.1:8006")),
            (r#""https://root:secret@10.0.0.2:8006""#, None),
        ] {
            let read = web(&format!("endpoints = [{endpoints}]"));
            assert_eq!(read.unwrap().as_deref(), expected, "{endpoints}");
        }
        let said = |page: &str| web(&format!("endpoints = [\"https://a:8006\"]\nweb_interface = \"{page}\""));
        assert_eq!(said("https://pve.example.net").unwrap().as_deref(), Some("https://pve.example.net"));
        for page in ["javascript:alert(1)", "http://a", "https://me@a", "https://a b"] {
            assert!(said(page).unwrap_err().contains("is not a valid web interface address"), "{page}");
        }
    }
}
