//! `kubeadm join` as it behaves in a guest: it reads a JoinConfiguration, asks the control plane to let the
//! guest join, and sets up a kubelet.

use std::time::Duration;

use serde_json::Value;

use super::{
    KUBELET_CONF,
    control_plane::JoinRequest,
    shell::{Output, Shell},
};

/// How far a guest's clock may lag behind. Certificates are valid from shortly before their creation, so a
/// small lag does not matter.
const CLOCK_SKEW: Duration = Duration::from_mins(5);
/// How long the preflight checks take to fail.
const PREFLIGHT: Duration = Duration::from_secs(5);

pub(super) async fn run(shell: &mut Shell, words: &[&str], output: &mut Output) -> i32 {
    match words {
        ["version", ..] => {
            output.out.extend(b"v1.36.2\n");
            0
        }
        ["join", rest @ ..] => join(shell, rest, output).await,
        ["reset", ..] => {
            tokio::time::sleep(Duration::from_secs(4)).await;
            shell.guest.remove_file(KUBELET_CONF);
            0
        }
        _ => fail(output, "error: this guest's kubeadm supports only version, join and reset"),
    }
}

async fn join(shell: &mut Shell, words: &[&str], output: &mut Output) -> i32 {
    let named = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--config") {
        Some("") => words.get(at + 1).copied(),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    });
    let text = match named {
        Some("-" | "/dev/stdin") => Some(std::mem::take(&mut shell.stdin)),
        Some(path) => shell.guest.read_file(path),
        None => return fail(output, "error: this guest's kubeadm join requires --config"),
    };
    let Some(text) = text else {
        return fail(output, "error: unable to read config: no such file or directory");
    };
    // A certificate that was created while the guest was frozen is not valid yet according to the guest's
    // clock.
    if shell.guest.clock_behind() > CLOCK_SKEW {
        tokio::time::sleep(PREFLIGHT).await;
        return fail(
            output,
            "error execution phase preflight: couldn't validate the identity of the API Server: x509: certificate has expired or is not yet valid",
        );
    }
    if let Some(text) = &shell.guest.0.faults.join_fails {
        tokio::time::sleep(PREFLIGHT).await;
        return fail(output, text);
    }
    if shell.guest.0.faults.join_hangs {
        std::future::pending::<()>().await;
    }
    if shell.guest.joined() {
        tokio::time::sleep(PREFLIGHT).await;
        return fail(
            output,
            "error execution phase preflight: [preflight] Some fatal errors occurred:\n\t[ERROR \
             FileAvailable--etc-kubernetes-kubelet.conf]: /etc/kubernetes/kubelet.conf already exists",
        );
    }
    let request = match configuration(&text).and_then(|config| request(shell, &config)) {
        Ok(request) => JoinRequest { configuration: String::from_utf8_lossy(&text).into_owned(), ..request },
        Err(text) => return fail(output, &text),
    };
    output.out.extend(b"[preflight] Running pre-flight checks\n");
    tokio::time::sleep(shell.guest.0.pace.join).await;
    let guest = shell.guest.clone();
    match guest.0.control_plane.join(request).await {
        Ok(()) => {
            guest.write_file(KUBELET_CONF, b"apiVersion: v1\nkind: Config\n".to_vec());
            output.out.extend(b"\nThis node has joined the cluster:\n");
            (guest.0.on_join)();
            0
        }
        Err(failure) => {
            tokio::time::sleep(failure.after).await;
            fail(output, &failure.stderr);
            failure.exit_code
        }
    }
}

fn fail(output: &mut Output, text: &str) -> i32 {
    output.err.extend(text.bytes());
    output.err.push(b'\n');
    1
}

/// The JoinConfiguration among the documents of a config file.
fn configuration(text: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(text);
    let documents: Vec<&str> = text.split("\n---").collect();
    for document in documents {
        let value: Value = serde_saphyr::from_str(document.trim_start_matches("---"))
            .map_err(|error| format!("error: unable to decode config: {error}"))?;
        if value["kind"] == "JoinConfiguration" {
            return match value["apiVersion"].as_str() {
                Some("kubeadm.k8s.io/v1beta3" | "kubeadm.k8s.io/v1beta4") => Ok(value),
                other => {
                    Err(format!("error: no kind JoinConfiguration in version {}", other.unwrap_or("\"\"")))
                }
            };
        }
    }
    Err("error: no JoinConfiguration found in config file".into())
}

fn request(shell: &Shell, config: &Value) -> Result<JoinRequest, String> {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).map(String::from);
    let bootstrap = "/discovery/bootstrapToken";
    let token = text("/discovery/tlsBootstrapToken")
        .or_else(|| text(&format!("{bootstrap}/token")))
        .ok_or("discovery.bootstrapToken.token: Invalid value: \"\": the bootstrap token is invalid")?;
    let api_server = text(&format!("{bootstrap}/apiServerEndpoint"))
        .ok_or("discovery.bootstrapToken.apiServerEndpoint: Required value")?;
    let hashes = config.pointer(&format!("{bootstrap}/caCertHashes")).and_then(Value::as_array);
    let ca_cert_hashes: Vec<String> =
        hashes.into_iter().flatten().filter_map(Value::as_str).map(String::from).collect();
    let unsafe_skip =
        config.pointer(&format!("{bootstrap}/unsafeSkipCAVerification")) == Some(&Value::Bool(true));
    if ca_cert_hashes.is_empty() && !unsafe_skip {
        return Err("discovery.bootstrapToken: Invalid value: \"\": using token-based discovery without caCertHashes can be \
                    unsafe. Set unsafeSkipCAVerification as true in your kubeadm config file"
            .into());
    }
    let arguments = kubelet_arguments(config.pointer("/nodeRegistration/kubeletExtraArgs"));
    let argument =
        |name: &str| arguments.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    let labels = argument("node-labels").unwrap_or_default();
    let taints =
        config.pointer("/nodeRegistration/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let identity = shell.guest.identity();
    let name = text("/nodeRegistration/name").unwrap_or_else(|| identity.hostname.clone());
    Ok(JoinRequest {
        system_uuid: identity.uuid.clone(),
        api_server,
        token,
        ca_cert_hashes,
        node_name: name.to_lowercase(),
        addresses: identity
            .addresses
            .iter()
            .map(|a| a.split('/').next().unwrap_or_default().to_owned())
            .collect(),
        cpus: identity.cpus,
        memory: identity.memory,
        disk: identity.disk,
        node_labels: labels
            .split(',')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        taints: taints.iter().map(taint).collect(),
        provider_id: argument("provider-id"),
        max_pods: argument("max-pods").and_then(|text| text.parse().ok()),
        kubelet_patch: patch(shell, config)?,
        configuration: String::new(),
    })
}

/// Returns the kubelet patch from the folder that the configuration names (`app/util/patches`). kubeadm reads
/// it before it contacts a server.
fn patch(shell: &Shell, config: &Value) -> Result<Option<String>, String> {
    let Some(folder) = config.pointer("/patches/directory").and_then(Value::as_str) else { return Ok(None) };
    let file = format!("{folder}/kubeletconfiguration+merge.json");
    let Some(text) = shell.guest.read_file(&file) else { return Ok(None) };
    let text = String::from_utf8_lossy(&text).into_owned();
    let object: Result<Value, _> = serde_json::from_str(&text);
    match object {
        Ok(object) if object.is_object() => Ok(Some(text)),
        _ => {
            Err("error execution phase kubelet-start: could not apply patches to the KubeletConfiguration"
                .into())
        }
    }
}

fn taint(taint: &Value) -> String {
    let part = |name: &str| taint[name].as_str().unwrap_or_default();
    format!("{}={}:{}", part("key"), part("value"), part("effect"))
}

/// Reads kubelet arguments: a list of names and values (v1beta4), or a map (v1beta3).
fn kubelet_arguments(arguments: Option<&Value>) -> Vec<(String, String)> {
    let string = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    match arguments {
        Some(Value::Array(list)) => {
            list.iter().map(|item| (string(&item["name"]), string(&item["value"]))).collect()
        }
        Some(Value::Object(map)) => map.iter().map(|(name, value)| (name.clone(), string(value))).collect(),
        _ => Vec::new(),
    }
}
