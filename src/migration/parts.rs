//! Code that several sources share: settings for reaching both clusters, and formats of individual values.

use toml::Value;

use super::draft::{Draft, Table};
use model::quantity;

/// A value of the other autoscaler, and the name of its setting.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub value: String,
    pub source: String,
}

impl Said {
    pub fn new(value: Option<String>, source: String) -> Option<Self> {
        value.map(|value| Self { value, source })
    }
}

/// The other autoscaler's settings for a Proxmox VE cluster.
#[derive(Debug, Default)]
pub(super) struct ProxmoxSide {
    /// The cluster's name, if there are several clusters.
    pub region: Option<Said>,
    /// The cluster's address or URL.
    pub endpoint: Option<Said>,
    /// The token's id, or a user.
    pub user: Option<Said>,
    /// The name of the setting with the secret, without its value.
    pub secret: Option<String>,
    /// The name of the setting that disables certificate checks.
    pub insecure: Option<String>,
    /// The resource pool of the other autoscaler's machines.
    pub resource_pool: Option<Said>,
    /// The memory in MiB that machines leave free on each host.
    pub memory_reserve: Option<Said>,
}

/// Begins a draft: the settings before all tables, then `[proxmox]` and `[kubernetes]`.
pub(super) fn begin(draft: &mut Draft, side: ProxmoxSide) {
    begin_with(draft, vec![side]);
}

/// Like [`begin`], with a `[[proxmox.also]]` table for each additional cluster.
pub(super) fn begin_with(draft: &mut Draft, sides: Vec<ProxmoxSide>) {
    let mut top = Table::new("");
    top.set(
        "mode",
        "observe",
        "pve-autoscaler only shows what it would do: compare for a day, stop the other autoscaler, then \
            remove this line",
    );
    draft.push(top);
    for (at, side) in sides.into_iter().enumerate() {
        draft.push(cluster(at, side));
    }
    let mut kubernetes = Table::new("[kubernetes]");
    kubernetes.set(
        "kubeconfig_credential",
        "kubeconfig",
        "the other autoscaler runs in the cluster; pve-autoscaler \
        runs outside it with a kubeconfig, which `pve-autoscaler setup` creates",
    );
    draft.push(kubernetes);
}

/// The table of the n-th cluster.
fn cluster(at: usize, side: ProxmoxSide) -> Table {
    let (header, own) =
        if at == 0 { ("[proxmox]", String::new()) } else { ("[[proxmox.also]]", format!("-{}", at + 1)) };
    let mut table = Table::new(header);
    if let Some(said) = side.region {
        table.must("region", said.value, format!("region{own}"), said.source);
    }
    let local = "https://127.0.0.1:8006";
    match &side.endpoint {
        Some(said) => match endpoint(&said.value) {
            Some(url) => table.must(
                "endpoints",
                list([url]),
                list([local]),
                format!("{}; if there are several endpoints, they are tried in turn", said.source),
            ),
            None => {
                table.fill("endpoints", list([local]), format!("{} is not a host's address", said.source));
            }
        },
        None => table.fill("endpoints", list([local]), "the address of a Proxmox VE host"),
    }
    let stand_in = "autoscaler@pve!agent";
    match &side.user {
        Some(said) if said.value.contains('!') => {
            // If the text has the form `ID=SECRET`, the secret is not copied.
            let id = said.value.split('=').next().unwrap_or_default();
            table.must("token_id", id, stand_in, said.source.clone());
        }
        Some(said) => {
            let why = format!(
                "{} is a user; a token is needed instead, which `pve-autoscaler setup` creates with the necessary \
                rights",
                said.source
            );
            table.fill("token_id", stand_in, why);
        }
        None => table.fill("token_id", stand_in, "a token, which `pve-autoscaler setup` creates"),
    }
    let secret = side.secret.map_or_else(String::new, |name| format!("; {name} is not copied"));
    let unit = if at == 0 {
        ""
    } else {
        ", and a `LoadCredential=` line in the unit loads it (docs/concepts/placement.md)"
    };
    let why = format!(
        "the token's secret goes into /etc/pve-autoscaler/credentials/pve-token{own}, mode 0600{unit}{secret}"
    );
    table.set("token_credential", format!("pve-token{own}"), why);
    let insecure = side
        .insecure
        .map_or_else(String::new, |name| format!("; certificates are always checked, regardless of {name}"));
    let why =
        format!("a copy of /etc/pve/pve-root-ca.pem goes into /etc/pve-autoscaler/credentials{insecure}");
    table.set("ca_credential", format!("pve-root-ca{own}"), why);
    if let Some(said) = side.resource_pool {
        table.set(
            "resource_pool",
            said.value,
            format!("{}; the token's rights over VMs can be limited to it", said.source),
        );
    }
    if let Some(said) = side.memory_reserve {
        table.set("memory_reserve", format!("{}MiB", said.value), said.source);
    }
    table
}

/// The base URL in an address or URL, without path and user.
fn endpoint(text: &str) -> Option<String> {
    let rest = text.trim().split_once("://").map_or(text.trim(), |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if host.is_empty() || !host.chars().all(fine) {
        return None;
    }
    let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
        !port.is_empty()
            && port.chars().all(|c| c.is_ascii_digit())
            && (!before.contains(':') || before.ends_with(']'))
    });
    Some(if has_port { format!("https://{host}") } else { format!("https://{host}:8006") })
}

/// A valid pool name that resembles the text.
pub(super) fn pool_name(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().take(40).map(letter).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "workers".to_owned() } else { name.to_owned() }
}

/// Seconds as a duration.
pub(super) fn seconds(number: f64) -> String {
    // No sensible duration is longer than a year, and whole seconds are precise enough.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a year")]
    let whole = number.clamp(0.0, 31_536_000.0).round() as u64;
    match whole {
        0 => "0s".to_owned(),
        whole if whole % 3600 == 0 => format!("{}h", whole / 3600),
        whole if whole % 60 == 0 => format!("{}m", whole / 60),
        whole => format!("{whole}s"),
    }
}

/// Bytes as a size, rounded down to whole MiB.
pub(super) fn size(bytes: i64) -> String {
    if bytes > 0 && bytes % (1 << 30) == 0 {
        format!("{}GiB", bytes >> 30)
    } else {
        format!("{}MiB", bytes >> 20)
    }
}

/// A Kubernetes quantity (`512Gi`, `50G`) as a size.
pub(super) fn size_of(text: &str) -> Option<String> {
    quantity::units(text).ok().filter(|bytes| *bytes >= 1 << 20).map(size)
}

/// A list of strings.
pub(super) fn list<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().map(|item| Value::String(item.into())).collect())
}

/// The number as a setting, limited to the range of `u32`.
pub(super) fn count(number: i64) -> Value {
    Value::Integer(number.clamp(0, i64::from(u32::MAX)))
}

/// A taint as `key=value:Effect`, from an object with these fields.
pub(super) fn taint(value: &serde_json::Value) -> Option<String> {
    let field = |key| value.get(key).and_then(serde_json::Value::as_str);
    let (key, effect) = (field("key")?, field("effect")?);
    Some(match field("value").filter(|value| !value.is_empty()) {
        Some(value) => format!("{key}={value}:{effect}"),
        None => format!("{key}:{effect}"),
    })
}

/// Whether a line could be the public half of an SSH key. Any other line is not copied.
pub(super) fn is_public_key(line: &str) -> bool {
    let kind = line.split_ascii_whitespace().next().unwrap_or_default();
    ["ssh-", "ecdsa-sha2-", "sk-"].iter().any(|start| kind.starts_with(start)) && !line.contains("PRIVATE")
}

/// Writes a line for each label into a table.
pub(super) fn labels(table: &mut Table, pairs: &[(String, String)], source: &str) {
    for (key, value) in pairs {
        table.set(key, value.as_str(), source);
    }
}
