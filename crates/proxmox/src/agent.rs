//! Calls to the guest agent. They check whether the agent answers, run programs in the guest, and read the
//! results.

use model::Vmid;
use runtime::boxed;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::answer::{flag_of, number_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::{Error, Kind};

/// The state of a program in the guest. The output is empty until the program has ended. Once a call has
/// reported that the program has ended, the guest agent discards this state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecStatus {
    /// Whether the program has ended.
    pub exited: bool,
    /// The exit status; `None` while the program runs, or if a signal ended it.
    pub exit_code: Option<i64>,
    /// The signal that ended the program, if any.
    pub signal: Option<i64>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The guest's operating system, as the guest agent reports it. Fields that the agent does not report are
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsInfo {
    /// The distribution, e.g. `debian`.
    pub id: String,
    /// The distribution's release, e.g. `13`.
    pub version_id: String,
    /// The display name, e.g. `Debian GNU/Linux 13 (trixie)`.
    pub pretty_name: String,
    /// The kernel's release.
    pub kernel: String,
    /// The architecture, e.g. `x86_64`.
    pub machine: String,
}

/// Maximum size of a program's standard input, in bytes.
const INPUT_LIMIT: usize = 64 * 1024;

fn agent(host: &str, vmid: Vmid, what: &str) -> String {
    format!("/nodes/{}/qemu/{vmid}/agent/{what}", encode(host))
}

impl Client {
    /// Whether the agent answers. Each unanswered call occupies one of the host's workers for 3 s.
    #[boxed]
    pub async fn agent_ping(&self, host: &str, vmid: Vmid) -> Result<bool, Error> {
        match self.post(Lane::Agent(host), &agent(host, vmid, "ping"), &[]).await {
            Ok(data) => refused("ping", &data).map(|()| true),
            Err(error) if error.kind == Kind::AgentSilent => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts a program in the guest and returns its pid. Run programs through `/bin/sh -c`: if the guest
    /// agent is asked to start a program that does not exist, Proxmox VE hangs for 5 s and then answers with
    /// status 596.
    ///
    /// The command and the input must be ASCII; otherwise this returns an error, because other characters
    /// make the agent stop answering.
    #[boxed]
    pub async fn agent_exec(
        &self,
        host: &str,
        vmid: Vmid,
        command: &[&str],
        input: Option<&SecretString>,
    ) -> Result<i64, Error> {
        let path = agent(host, vmid, "exec");
        let call = format!("POST {path}");
        let wrong = |text: &str| Error::without_answer(&call, Kind::BadRequest, text.to_owned());
        let input = input.map(ExposeSecret::expose_secret);
        if !command.iter().all(|word| word.is_ascii()) || !input.is_none_or(str::is_ascii) {
            return Err(wrong("the guest agent only accepts ASCII"));
        }
        if input.is_some_and(|input| input.len() > INPUT_LIMIT) {
            return Err(wrong("the guest agent accepts at most 64 KiB of input"));
        }
        let mut form: Vec<_> = command.iter().map(|word| ("command", (*word).to_owned())).collect();
        form.extend(input.map(|input| ("input-data", input.to_owned())));
        let data = self.post(Lane::Agent(host), &path, &form).await?;
        number_of(&data, "pid").ok_or_else(|| Error::malformed(&call, "no pid"))
    }

    /// Returns the state of a program. Once a call has reported that the program has ended, the guest agent
    /// discards its state, and further calls fail with [`Kind::NotFound`].
    #[boxed]
    pub async fn agent_exec_status(&self, host: &str, vmid: Vmid, pid: i64) -> Result<ExecStatus, Error> {
        let path = agent(host, vmid, "exec-status");
        let data = self.get(Lane::Agent(host), &path, &[("pid", pid.to_string())]).await?;
        Ok(ExecStatus {
            exited: flag_of(&data, "exited"),
            exit_code: number_of(&data, "exitcode"),
            signal: number_of(&data, "signal"),
            stdout: output(&data, "out-data"),
            stderr: output(&data, "err-data"),
        })
    }

    /// Returns the guest's operating system. The call is allowed even if running programs is not.
    #[boxed]
    pub async fn agent_os_info(&self, host: &str, vmid: Vmid) -> Result<OsInfo, Error> {
        let data = self.get(Lane::Agent(host), &agent(host, vmid, "get-osinfo"), &[]).await?;
        refused("get-osinfo", &data)?;
        let result = data.get("result").ok_or_else(|| Error::malformed("agent get-osinfo", "no result"))?;
        let text = |field| text_of(result, field).unwrap_or_default();
        Ok(OsInfo {
            id: text("id"),
            version_id: text("version-id"),
            pretty_name: text("pretty-name"),
            kernel: text("kernel-release"),
            machine: text("machine"),
        })
    }

    /// The guest's IP addresses, by MAC address (in lower case), as the guest's kernel reports them.
    #[boxed]
    pub async fn agent_interfaces(
        &self,
        host: &str,
        vmid: Vmid,
    ) -> Result<Vec<(String, Vec<String>)>, Error> {
        let path = agent(host, vmid, "network-get-interfaces");
        let data = self.get(Lane::Agent(host), &path, &[]).await?;
        refused("network-get-interfaces", &data)?;
        let interfaces = data.get("result").and_then(Value::as_array).into_iter().flatten();
        let read = |interface: &Value| {
            let mac = text_of(interface, "hardware-address")?.to_lowercase();
            let addresses = interface.get("ip-addresses").and_then(Value::as_array).into_iter().flatten();
            Some((mac, addresses.filter_map(|one| text_of(one, "ip-address")).collect()))
        };
        Ok(interfaces.filter_map(read).collect())
    }
}

/// Returns the agent's own error if the answer contains one. Simple commands report an error inside `result`,
/// with HTTP status 200.
fn refused(what: &str, data: &Value) -> Result<(), Error> {
    let Some(error) = data.get("result").and_then(|result| result.get("error")) else { return Ok(()) };
    let text = text_of(error, "desc")
        .unwrap_or_else(|| "the guest agent reported an error without a description".to_owned());
    Err(Error { kind: Kind::Other, call: format!("agent {what}"), status: Some(200), text })
}

/// Decodes output in which each byte arrives as a separate character: collects the bytes and reads them as
/// UTF-8.
fn output(data: &Value, field: &str) -> String {
    let text = text_of(data, field).unwrap_or_default();
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    match bytes {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => text,
    }
}
