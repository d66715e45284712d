//! The K3s agent as a systemd unit of the guest. It reads its configuration files, and tries to join its
//! server until it succeeds.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    Guest,
    control_plane::{JoinRequest, K3sRequest},
};

/// The certificate that an agent receives when it joins its server.
pub(super) const CERTIFICATE: &str = "/var/lib/rancher/k3s/agent/client-kubelet.crt";
/// The log of the agent's unit.
pub(super) const JOURNAL: &str = "/run/log/k3s-agent";
/// This file exists if the unit has failed.
pub(super) const FAILED: &str = "/run/systemd/failed-k3s-agent";

const CONFIGURATION: &str = "/etc/rancher/k3s/config.yaml";
const MORE: &str = "/etc/rancher/k3s/config.yaml.d/";
/// The time between two attempts to join.
const AGAIN: Duration = Duration::from_secs(5);

/// Restarts the agent's unit.
pub(super) fn restart(guest: &Guest) {
    guest.remove_file(FAILED);
    let running = guest.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = running.0.off.cancelled() => {}
            () = run(&running) => {}
        }
    });
}

async fn run(guest: &Guest) {
    let request = match request(guest) {
        Ok(request) => request,
        Err(text) => {
            log(guest, &format!("level=fatal msg=\"Error: {text}\""));
            return guest.write_file(FAILED, Vec::new());
        }
    };
    if guest.0.faults.join_hangs {
        std::future::pending::<()>().await;
    }
    log(guest, &format!("level=info msg=\"Starting k3s agent\" server={}", request.machine.api_server));
    loop {
        tokio::time::sleep(guest.0.pace.join).await;
        match guest.0.control_plane.join_k3s(request.clone()).await {
            Ok(()) => break,
            Err(text) => log(guest, &format!("level=error msg=\"{text}\"")),
        }
        tokio::time::sleep(AGAIN).await;
    }
    guest.write_file(CERTIFICATE, b"-----BEGIN CERTIFICATE-----\n".to_vec());
    (guest.0.on_join)();
}

fn log(guest: &Guest, line: &str) {
    let mut journal = guest.read_file(JOURNAL).unwrap_or_default();
    journal.extend(format!("{line}\n").bytes());
    guest.write_file(JOURNAL, journal);
}

/// Returns the content of all configuration files, merged in this order: `config.yaml`, then the other files
/// by name. A list under a key that ends in `+` is appended to the list under the plain key.
fn configuration(guest: &Guest) -> Result<Map<String, Value>, String> {
    let mut files = vec![CONFIGURATION.to_owned()];
    let below = guest.files_below(MORE);
    files
        .extend(below.into_iter().filter(|path| path.rsplit_once('.').is_some_and(|(_, end)| end == "yaml")));
    let mut whole = Map::new();
    for path in files {
        let Some(content) = guest.read_file(&path) else { continue };
        let read: Map<String, Value> = serde_saphyr::from_str(&String::from_utf8_lossy(&content))
            .map_err(|error| format!("failed to parse {path}: {error}"))?;
        for (key, value) in read {
            match (key.strip_suffix('+'), value) {
                (Some(list), Value::Array(more)) => add(&mut whole, list, more),
                (_, value) => drop(whole.insert(key, value)),
            }
        }
    }
    Ok(whole)
}

fn add(whole: &mut Map<String, Value>, key: &str, more: Vec<Value>) {
    match whole.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(list) => list.extend(more),
        other => *other = Value::Array(more),
    }
}

fn request(guest: &Guest) -> Result<K3sRequest, String> {
    let config = configuration(guest)?;
    let text = |key: &str| config.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    let list = |key: &str| -> Vec<String> {
        let items = config.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let server = text("server").ok_or("--server is required")?;
    let token = text("token").ok_or("--token is required")?;
    let identity = guest.identity();
    let own = identity.addresses.iter().map(|it| it.split('/').next().unwrap_or_default().to_owned());
    let arguments = list("kubelet-arg");
    let argument = |name: &str| {
        let found = arguments.iter().filter_map(|one| one.split_once('=')).rfind(|(key, _)| *key == name);
        found.map(|(_, value)| value.to_owned())
    };
    let labels = list("node-label");
    let labels = labels.iter().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let machine = JoinRequest {
        system_uuid: identity.uuid.clone(),
        api_server: server.trim_start_matches("https://").to_owned(),
        token: String::new(),
        ca_cert_hashes: Vec::new(),
        node_name: text("node-name").unwrap_or_else(|| identity.hostname.clone()).to_lowercase(),
        addresses: text("node-ip").map_or_else(|| own.collect(), |address| vec![address]),
        cpus: identity.cpus,
        memory: identity.memory,
        disk: identity.disk,
        node_labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: list("node-taint"),
        provider_id: argument("provider-id"),
        max_pods: argument("max-pods").and_then(|text| text.parse().ok()),
        kubelet_patch: None,
        configuration: String::new(),
    };
    Ok(K3sRequest { machine, token })
}
