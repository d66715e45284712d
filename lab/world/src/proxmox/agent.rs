//! Guest agent calls. As on the real server, each call begins with a ping, failures of the agent are reported
//! only after a delay, and non-ASCII text is garbled.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    power::AGENT_PING,
    real_agent,
    vm::Inside,
};
use crate::guest::Guest;

/// How long Proxmox VE waits for an agent command.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(5);

const AUDIT: &[&str] = &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"];
const UNRESTRICTED: &[&str] = &["VM.GuestAgent.Unrestricted"];
const FILE_READ: &[&str] = &["VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted"];
const FILE_WRITE: &[&str] = &["VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted"];

/// The error for input data with a character beyond Latin-1.
pub(super) const WIDE: &str =
    "Wide character in subroutine entry at /usr/share/perl5/PVE/QemuServer/Agent.pm line 135.";

impl Pve {
    pub(super) async fn agent(&self, what: &str, call: &ApiCall) -> Result<Answer, Refusal> {
        let privileges = match what {
            "exec" | "exec-status" => UNRESTRICTED,
            "file-read" => FILE_READ,
            "file-write" => FILE_WRITE,
            _ => AUDIT,
        };
        let (inside, time) = {
            let mut state = self.state();
            call.who.need_agent(&state, call.vmid(), privileges)?;
            let vm = state.vm_on(call.node(), call.vmid())?;
            if vm.machine.is_none() {
                return Err(Refusal::failed(format!("VM {} is not running", call.vmid())));
            }
            if !vm.has_agent() {
                return Err(Refusal::failed("No QEMU guest agent configured"));
            }
            let inside = vm.machine.as_ref().map(|machine| machine.inside.clone());
            let time = state.timings.agent_call;
            (inside, state.vary(time))
        };
        let guest = match inside {
            Some(Inside::Real(running)) => return real_agent::answer(&running, what, call).await,
            Some(Inside::Simulated(guest)) => Some(guest),
            None => None,
        };
        let Some(guest) = guest.filter(Guest::agent_answers) else {
            tokio::time::sleep(AGENT_PING).await;
            return Err(Refusal::failed("QEMU guest agent is not running"));
        };
        tokio::time::sleep(time).await;
        match what {
            "ping" => Ok(json!({ "result": {} }).into()),
            "exec" => exec(&guest, call).await,
            "exec-status" => exec_status(&guest, call),
            "file-read" => file_read(&guest, call),
            "file-write" => file_write(&guest, call),
            "get-host-name" => Ok(json!({ "result": { "host-name": guest.identity().hostname } }).into()),
            "get-osinfo" => Ok(json!({ "result": {
                "id": "debian", "name": "Debian GNU/Linux", "pretty-name": "Debian GNU/Linux 13 (trixie)", "version": "13 (trixie)",
                "version-id": "13", "machine": "x86_64", "kernel-release": "6.12.107+deb13-cloud-amd64",
                "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian 6.12.107-1 (2026-08-29)",
            } })
            .into()),
            "network-get-interfaces" => Ok(interfaces(&guest).into()),
            _ => {
                let commands = ["guest-ping", "guest-exec", "guest-exec-status", "guest-file-open", "guest-info"];
                let rows: Vec<Value> = commands
                    .iter()
                    .map(|name| json!({ "name": name, "enabled": true, "success-response": true }))
                    .collect();
                Ok(json!({ "result": { "version": "10.0.13", "supported_commands": rows } }).into())
            }
        }
    }
}

async fn exec(guest: &Guest, call: &ApiCall) -> Result<Answer, Refusal> {
    let command = call.params.list("command");
    if command.iter().any(|word| word.chars().any(|c| u32::from(c) > 255)) {
        tokio::time::sleep(COMMAND_LIMIT).await;
        guest.silence_agent(Duration::from_secs(80));
        return Err(Refusal::failed(format!(
            "VM {} qga command 'guest-exec' failed - got timeout",
            call.vmid()
        )));
    }
    let input = call.params.text("input-data").unwrap_or_default();
    let bytes: Option<Vec<u8>> = input.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    let Some(bytes) = bytes else { return Err(Refusal::failed(WIDE)) };
    if let Some(pid) = guest.exec(command, bytes) {
        Ok(json!({ "pid": pid }).into())
    } else {
        tokio::time::sleep(COMMAND_LIMIT).await;
        Err(Refusal::Bare(596, "Broken pipe".into()))
    }
}

fn exec_status(guest: &Guest, call: &ApiCall) -> Result<Answer, Refusal> {
    let status = guest.exec_status(call.params.number("pid").unwrap_or(0));
    let Some(status) = status else { return Err(Refusal::failed("Agent error: PID ld does not exist")) };
    let Some(finished) = status else { return Ok(json!({ "exited": 0 }).into()) };
    let mut answer = json!({ "exited": 1, "exitcode": finished.code });
    for (stream, bytes) in [("out", &finished.out), ("err", &finished.err)] {
        if !bytes.is_empty() {
            answer[format!("{stream}-data")] = latin1(bytes).into();
            answer[format!("{stream}-truncated")] = 0.into();
        }
    }
    Ok(answer.into())
}

/// Returns bytes as the API shows them: each byte becomes the character with that code point, so UTF-8 is
/// encoded twice.
pub(super) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn file_read(guest: &Guest, call: &ApiCall) -> Result<Answer, Refusal> {
    let path = call.params.text("file").unwrap_or_default();
    match guest.read_file(&path) {
        Some(content) => Ok(json!({ "content": latin1(&content), "bytes-read": content.len() }).into()),
        None => Err(Refusal::failed(format!(
            "Agent error: failed to open file '{path}' (mode: 'r'): No such file or directory"
        ))),
    }
}

fn file_write(guest: &Guest, call: &ApiCall) -> Result<Answer, Refusal> {
    let (path, content) =
        (call.params.text("file").unwrap_or_default(), call.params.text("content").unwrap_or_default());
    let encode = call.params.text("encode").is_none() || call.params.flag("encode");
    let bytes = if encode {
        content.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>()
    } else {
        BASE64_STANDARD.decode(content).ok()
    };
    let bytes = bytes.ok_or_else(|| Refusal::failed(WIDE))?;
    guest.write_file(&path, bytes);
    Ok(Value::Null.into())
}

fn interfaces(guest: &Guest) -> Value {
    let identity = guest.identity();
    let addresses = identity.addresses.iter().filter_map(|text| text.split_once('/')).map(|(address, prefix)| {
        let kind = if address.contains(':') { "ipv6" } else { "ipv4" };
        json!({ "ip-address": address, "ip-address-type": kind, "prefix": prefix.parse::<u8>().unwrap_or(0) })
    });
    let addresses: Vec<Value> = addresses.collect();
    let counters = ["bytes", "packets", "errs", "dropped"];
    let counters = counters.iter().flat_map(|what| [format!("rx-{what}"), format!("tx-{what}")]);
    let statistics: serde_json::Map<_, _> = counters.map(|counter| (counter, 0.into())).collect();
    json!({ "result": [
        { "name": "lo", "hardware-address": "00:00:00:00:00:00", "statistics": statistics, "ip-addresses": [
            { "ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8 },
            { "ip-address": "::1", "ip-address-type": "ipv6", "prefix": 128 } ] },
        { "name": "eth0", "hardware-address": identity.mac, "statistics": statistics, "ip-addresses": addresses },
    ] })
}
