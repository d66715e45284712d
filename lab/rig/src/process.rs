//! Processes that end with this one, and what they log.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel, sync_channel};

use anyhow::Context as _;

/// A process that is killed when this is dropped, and by the kernel when the process that started it ends in
/// any other way.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program; what it writes goes to the end of the log.
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

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Order = (Command, std::sync::mpsc::SyncSender<io::Result<Child>>);

/// Starts it on a thread that lives as long as this process: threads of a test's runtime do not.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in taken {
                // Who ordered it waits for it.
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (answer, taken) = sync_channel(1);
    starter.send((command, answer)).map_err(|_| gone())?;
    taken.recv().map_err(|_| gone())?
}
