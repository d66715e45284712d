//! A QEMU process: its start, its monitor, its end.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    process::{Child, Command},
    sync::{Mutex, Notify},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Hardware, HardwareError,
    agent::{self, AgentError},
    command::Accelerator,
    hang, network, tool,
    tpm::Tpm,
};

const PROGRAM: &str = "qemu-system-x86_64";
/// How long QEMU may take until its monitor answers.
const START: Duration = Duration::from_secs(30);
/// How long the monitor may take for a command.
const MONITOR: Duration = Duration::from_secs(5);
/// How long QEMU may take to end after it was asked to. After that, it is killed.
const QUIT: Duration = Duration::from_secs(3);
/// How long the firmware may take to find out that there is nothing to boot.
const FIRMWARE: Duration = Duration::from_secs(10);

/// A VM's process. Clones share the process. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Running(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vmid: u32,
    pid: u32,
    directory: PathBuf,
    /// Asks the supervisor to end the process. The supervisor is also notified when the last [`Running`] is
    /// dropped.
    kill: Arc<Notify>,
    ended: CancellationToken,
    agent: Mutex<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.kill.notify_one();
    }
}

/// Starts QEMU and waits for its monitor. The TPM ends with QEMU.
pub async fn start(
    vmid: u32,
    directory: &Path,
    arguments: Vec<String>,
    taps: Vec<String>,
    tpm: Option<Tpm>,
) -> Result<Running, HardwareError> {
    for left in ["qmp", "qga", "console"] {
        let _ = std::fs::remove_file(directory.join(left));
    }
    let errors = directory.join("stderr");
    let stderr = File::create(&errors).map_err(tool::file(format!("write {}", errors.display())))?;
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).kill_on_drop(true);
    let spawned = command.spawn();
    let child = spawned.map_err(|source| HardwareError::Missing { program: PROGRAM.to_owned(), source })?;
    let (kill, ended) = (Arc::new(Notify::new()), CancellationToken::new());
    let pid = child.id().unwrap_or(0);
    let inner = Inner {
        vmid,
        pid,
        directory: directory.to_owned(),
        kill: kill.clone(),
        ended: ended.clone(),
        agent: Mutex::default(),
    };
    let running = Running(Arc::new(inner));
    tokio::spawn(supervise(child, tpm, kill, ended, taps));
    let failed = |said: String| HardwareError::Process { vmid, said };
    let up = async {
        while running.command("query-status", &Value::Null).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        biased;
        () = running.ended() => {
            let said = std::fs::read_to_string(&errors).unwrap_or_default();
            Err(failed(format!("exited at once: {}", said.trim())))
        }
        up = timeout(START, up) => {
            up.map(|()| running.clone()).map_err(|_| failed("has no monitor".to_owned()))
        }
    }
}

/// Waits until a process ends or is to be killed. Then ends its TPM and removes its taps.
async fn supervise(
    mut child: Child,
    tpm: Option<Tpm>,
    kill: Arc<Notify>,
    ended: CancellationToken,
    taps: Vec<String>,
) {
    tokio::select! {
        biased;
        () = kill.notified() => {
            // The process may have ended by itself.
            let _ = child.kill().await;
        }
        _ = child.wait() => {}
    }
    if let Some(tpm) = tpm {
        tpm.end().await;
    }
    for tap in taps {
        network::unplug(&tap).await;
    }
    ended.cancel();
}

impl Running {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Waits until the process and its TPM have ended and its taps have been removed.
    pub async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// Kills the process, as a loss of power does. Returns at once.
    pub fn kill(&self) {
        self.0.kill.notify_one();
    }

    /// Asks the process through its monitor to end, and kills it if that takes too long. Returns once the
    /// process has ended.
    pub async fn stop(&self) {
        let _ = self.command("quit", &Value::Null).await;
        if timeout(QUIT, self.ended()).await.is_err() {
            self.kill();
            self.ended().await;
        }
    }

    /// Presses the power button.
    ///
    /// # Errors
    /// Returns an error if the monitor does not answer.
    pub async fn press_power(&self) -> Result<(), HardwareError> {
        self.command("system_powerdown", &Value::Null).await.map(drop)
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// Returns an error if the monitor does not answer.
    pub async fn press_reset(&self) -> Result<(), HardwareError> {
        self.command("system_reset", &Value::Null).await.map(drop)
    }

    /// Watches the guest's first boot, and resets the guest if it hangs; see [`hang`].
    pub(super) fn reset_if_it_hangs(&self) {
        // The watching task must not keep the process alive.
        let (inner, ended) = (Arc::downgrade(&self.0), self.0.ended.clone());
        let (vmid, console) = (self.0.vmid, self.0.directory.join("console"));
        let reset = move |number| {
            let running = inner.upgrade().map(Running);
            async move {
                let Some(running) = running else { return };
                tracing::warn!(vmid, number, "the guest's console showed no output; resetting the guest");
                if let Err(error) = running.press_reset().await {
                    tracing::warn!(vmid, number, %error, "the guest was not reset");
                }
            }
        };
        tokio::spawn(async move { ended.run_until_cancelled(hang::until_it_speaks(&console, reset)).await });
    }

    pub(super) async fn grow(&self, drive: &str, bytes: u64) -> Result<(), HardwareError> {
        let arguments = json!({ "device": format!("drive-{drive}"), "size": bytes });
        self.command("block_resize", &arguments).await.map(drop)
    }

    /// Sends a command to the guest agent; see [`AgentError`] for its errors. Concurrent calls run one after
    /// another.
    ///
    /// # Errors
    /// Returns an error if the agent does not answer within `patience`, does not finish the command within
    /// `limit`, or refuses it.
    pub async fn agent(
        &self,
        patience: Duration,
        limit: Duration,
        command: &Value,
    ) -> Result<Value, AgentError> {
        let turn = timeout(patience + limit, self.0.agent.lock()).await;
        let _turn = turn.map_err(|_| AgentError::Silent)?;
        agent::call(&self.0.directory.join("qga"), patience, limit, command).await
    }

    /// Asks the guest agent to shut the guest down. The agent does not acknowledge this command, so success
    /// only means that the command was sent.
    ///
    /// # Errors
    /// Returns an error if the command cannot be sent within `patience`.
    pub async fn agent_shutdown(&self, patience: Duration) -> Result<(), AgentError> {
        let _turn = timeout(patience, self.0.agent.lock()).await.map_err(|_| AgentError::Silent)?;
        agent::tell(&self.0.directory.join("qga"), patience, &json!({ "execute": "guest-shutdown" })).await
    }

    /// Sends a command to the monitor, without arguments if `arguments` is `null`.
    pub(super) async fn command(&self, name: &str, arguments: &Value) -> Result<Value, HardwareError> {
        match arguments {
            Value::Null => self.monitor(&json!({ "execute": name })).await,
            _ => self.monitor(&json!({ "execute": name, "arguments": arguments })).await,
        }
    }

    pub(super) fn failed(&self, said: String) -> HardwareError {
        HardwareError::Process { vmid: self.0.vmid, said }
    }

    async fn monitor(&self, command: &Value) -> Result<Value, HardwareError> {
        let failed = |said: String| self.failed(said);
        match timeout(MONITOR, ask(&self.0.directory.join("qmp"), command)).await {
            Ok(Some(answer)) if answer.get("error").is_none() => Ok(answer),
            Ok(Some(answer)) => Err(failed(format!("refused: {}", answer["error"]["desc"]))),
            _ => Err(failed("does not answer on its monitor socket".to_owned())),
        }
    }
}

/// One conversation with a monitor: greeting, capabilities, command.
async fn ask(socket: &Path, command: &Value) -> Option<Value> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await.ok()?);
    next(&mut stream).await?;
    let mut answer = Value::Null;
    for command in [&json!({ "execute": "qmp_capabilities" }), command] {
        stream.write_all(format!("{command}\n").as_bytes()).await.ok()?;
        answer = next(&mut stream).await?;
    }
    Some(answer)
}

/// The next message that is not an event.
async fn next(stream: &mut BufReader<UnixStream>) -> Option<Value> {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let message: Value = serde_json::from_str(&line).ok()?;
        if message.get("event").is_none() {
            return Some(message);
        }
    }
}

/// Whether the processor supports virtualization, according to the kernel.
fn virtualizes(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    flags.flat_map(str::split_whitespace).any(|flag| flag == "vmx" || flag == "svm")
}

/// Returns KVM if it can be trusted, otherwise emulation. Even if `/dev/kvm` exists, guests may hang or QEMU
/// may crash. A kernel that offers virtualization without the processor's support (`kvm-pvm`) was observed to
/// run firmware, but no boot loader. So the processor has to support virtualization, and the firmware of a
/// test machine without a disk has to report that it finds nothing to boot.
pub async fn find_accelerator(directory: &Path) -> Accelerator {
    if !virtualizes(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()) {
        return Accelerator::Tcg;
    }
    let log = directory.join("firmware");
    let _ = std::fs::remove_file(&log);
    let chardev = format!("file,id=firmware,path={}", log.display());
    let mut command = Command::new(PROGRAM);
    command.args(Accelerator::Kvm.arguments());
    command.args([
        "-machine",
        "type=pc",
        "-m",
        "128",
        "-nodefaults",
        "-display",
        "none",
        "-chardev",
        &chardev,
    ]);
    command.args(["-device", "isa-debugcon,iobase=0x402,chardev=firmware"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let Ok(mut child) = command.spawn() else { return Accelerator::Tcg };
    let booted = async {
        loop {
            let text = std::fs::read(&log).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains("No bootable device") {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let found = tokio::select! {
        _ = child.wait() => Accelerator::Tcg,
        booted = timeout(FIRMWARE, booted) => if booted.is_ok() { Accelerator::Kvm } else { Accelerator::Tcg },
    };
    // QEMU may have ended by itself.
    let _ = child.kill().await;
    found
}

impl Hardware {
    /// Kills the process of a VM from outside, as the kernel does when memory runs out.
    pub fn kill(&self, vmid: u32) {
        if let Some(running) = self.running().get(&vmid) {
            running.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_virtualizes_where_its_flags_say_so() {
        for (cpuinfo, expected) in [
            ("processor : 0\nflags\t\t: fpu vmx ssse3\n", true),
            ("processor : 0\nflags\t\t: fpu svm_lock svm\n", true),
            ("processor : 0\nflags\t\t: fpu hypervisor\nvmx flags\t: vnmi\n", false),
            ("", false),
        ] {
            assert_eq!(virtualizes(cpuinfo), expected, "{cpuinfo}");
        }
    }
}
