//! Child processes that end with this process, and their logs.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel, sync_channel};

use anyhow::Context as _;

/// A process that is killed when this value is dropped. If the process that started it ends without dropping
/// the value, the kernel kills it.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program. Its output is appended to the log.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("cannot write `{}`", log.display()))?;
        let other = file.try_clone().context("cannot share a log")?;
        // The kernel kills the process when the thread that started it ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(file).stderr(other);
        let child = spawn(command).with_context(|| format!("cannot start `{}`", program.display()))?;
        Ok(Self(child))
    }

    /// The exit status of the process, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Order = (Command, std::sync::mpsc::SyncSender<io::Result<Child>>);

/// Starts the command on a thread that lives as long as this process, unlike the threads of a test's runtime.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in taken {
                // The caller waits for this answer, so sending it does not fail.
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let gone = || io::Error::other("the thread that starts processes has ended");
    let (answer, taken) = sync_channel(1);
    starter.send((command, answer)).map_err(|_| gone())?;
    taken.recv().map_err(|_| gone())?
}
