//! Background workers: their state, their logs, and how they end.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard},
    task::AbortHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Event, Pve, access::Identity, answer::Refusal, hands::TaskFault, state::State, upid::Upid};

/// A worker, running or done.
#[derive(Debug)]
pub struct Task {
    /// Its id.
    pub upid: Upid,
    /// Lines so far.
    pub log: Vec<String>,
    /// How it ended.
    pub exit: Option<String>,
    /// When the task ended, in Unix time.
    pub endtime: Option<i64>,
    /// Asks the worker to stop.
    pub interrupt: CancellationToken,
    /// Kills the worker.
    pub abort: Option<AbortHandle>,
}

impl Task {
    /// Whether the task still runs.
    pub fn running(&self) -> bool {
        self.exit.is_none()
    }

    /// Returns the task's row for task lists. The row contains the token in `user` if the task is running,
    /// and in `tokenid` if the task has finished.
    pub fn row(&self) -> Value {
        let upid = &self.upid;
        let mut row = json!({
            "upid": upid.to_string(), "node": upid.node, "pid": upid.pid, "pstart": upid.pstart,
            "starttime": upid.starttime, "type": upid.kind, "id": upid.id, "user": upid.user,
        });
        match &self.exit {
            None => {
                row["status"] = "RUNNING".into();
                row["saved"] = "0".into();
            }
            Some(exit) => {
                split_token(&mut row, &upid.user);
                row["status"] = exit.as_str().into();
                row["endtime"] = self.endtime.into();
            }
        }
        row
    }

    /// The answer to a `tasks/{upid}/status` call.
    pub fn status(&self) -> Value {
        let mut row = self.row();
        split_token(&mut row, &self.upid.user);
        if let Some(members) = row.as_object_mut() {
            members.remove("saved");
            members.remove("endtime");
        }
        row["status"] = if self.running() { "running" } else { "stopped" }.into();
        if let Some(exit) = &self.exit {
            row["exitstatus"] = exit.as_str().into();
        }
        row
    }
}

fn split_token(row: &mut Value, user: &str) {
    let (user, token) = user.split_once('!').map_or((user, None), |(user, token)| (user, Some(token)));
    row["user"] = user.into();
    if let Some(token) = token {
        row["tokenid"] = token.into();
    }
}

/// What a worker's code uses to reach its task and the cluster.
#[derive(Clone)]
pub struct Worker {
    /// The cluster.
    pub pve: Pve,
    /// Its own id.
    pub upid: Upid,
    interrupt: CancellationToken,
}

impl Worker {
    /// Adds a line to the log.
    pub fn log(&self, line: impl Into<String>) {
        let mut state = self.pve.state();
        if let Some(task) = state.tasks.get_mut(&self.upid.to_string()) {
            task.log.push(line.into());
        }
    }

    /// Waits until a client asks the task to stop.
    pub async fn interrupted(&self) {
        self.interrupt.cancelled().await;
    }

    /// Marks the task as killed, although a part of its work continues.
    pub fn vanish(&self) {
        let endtime = self.pve.now().as_second();
        if let Some(task) = self.pve.state().tasks.get_mut(&self.upid.to_string()) {
            task.exit.get_or_insert_with(|| "unexpected status".to_owned());
            task.endtime = Some(endtime);
        }
    }

    /// Simulates work for the given time, unless a client stops the task.
    pub async fn work(&self, time: Duration) -> Result<(), Refusal> {
        tokio::select! {
            biased;
            () = self.interrupt.cancelled() => Err(Refusal::failed("received interrupt")),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }
}

/// The number of tasks that the archive keeps.
const ARCHIVE: usize = 20_000;

impl State {
    fn forget_old_tasks(&mut self) {
        if self.task_order.len() <= ARCHIVE {
            return;
        }
        let oldest =
            self.task_order.iter().position(|upid| self.tasks.get(upid).is_none_or(|task| !task.running()));
        if let Some(at) = oldest {
            let upid = self.task_order.remove(at);
            self.tasks.remove(&upid);
        }
    }
}

/// A lock on a VM. Dropping it releases the lock.
#[derive(Debug)]
pub enum VmLock {
    /// Other readers may hold the lock, too.
    Shared(#[expect(dead_code, reason = "dropping it releases the lock")] OwnedRwLockReadGuard<()>),
    /// Only this holder has the lock.
    Exclusive(#[expect(dead_code, reason = "dropping it releases the lock")] OwnedRwLockWriteGuard<()>),
}

impl Pve {
    /// Starts a worker and returns its id.
    pub fn spawn_worker<F, W>(&self, node: &str, kind: &str, id: &str, who: &Identity, work: F) -> String
    where
        F: FnOnce(Worker) -> W,
        W: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let interrupt = CancellationToken::new();
        let fault = self.state().take_task_fault(kind);
        let upid = {
            let mut state = self.state();
            let pid = state.new_pid();
            let uptime = state.hosts.get(node).map_or(0, |host| host.booted.elapsed().as_millis() / 10);
            let upid = Upid {
                node: node.to_owned(),
                pid,
                pstart: 400_000 + u64::try_from(uptime).unwrap_or(0),
                starttime: self.now().as_second(),
                kind: kind.to_owned(),
                id: id.to_owned(),
                user: who.token.clone(),
            };
            let (log, interrupt) = (Vec::new(), interrupt.clone());
            let task = Task { upid: upid.clone(), log, exit: None, endtime: None, interrupt, abort: None };
            state.tasks.insert(upid.to_string(), task);
            state.task_order.push(upid.to_string());
            state.forget_old_tasks();
            upid
        };
        self.announce(Event::TaskStarted { upid: upid.to_string() });
        let worker = Worker { pve: self.clone(), upid: upid.clone(), interrupt };
        let running = work(worker.clone());
        let (pve, key) = (self.clone(), upid.to_string());
        let handle = tokio::spawn(async move { pve.see_through(&key, worker, running, fault).await });
        if let Some(task) = self.state().tasks.get_mut(&upid.to_string()) {
            task.abort = Some(handle.abort_handle());
        }
        upid.to_string()
    }

    /// Runs a worker's code and applies the fault, if there is one.
    async fn see_through(
        &self,
        upid: &str,
        worker: Worker,
        work: impl Future<Output = Result<(), Refusal>>,
        fault: Option<TaskFault>,
    ) {
        match fault {
            None => self.end_task(upid, work.await),
            Some(TaskFault::Fails(text)) => self.end_task(upid, Err(Refusal::failed(text))),
            Some(TaskFault::FailsLate(text)) => {
                let done = work.await.and_then(|()| Err(Refusal::failed(text)));
                self.end_task(upid, done);
            }
            Some(TaskFault::Warns(text)) => {
                worker.log(format!("WARN: {text}"));
                self.end_task(upid, work.await);
            }
            Some(TaskFault::Dies(after)) => match timeout(after, work).await {
                Ok(result) => self.end_task(upid, result),
                Err(_) => worker.vanish(),
            },
            Some(TaskFault::Forgotten) => {
                self.end_task(upid, work.await);
                let mut state = self.state();
                state.tasks.remove(upid);
                state.task_order.retain(|known| known != upid);
            }
        }
    }

    fn end_task(&self, upid: &str, result: Result<(), Refusal>) {
        let endtime = self.now().as_second();
        let exit = {
            let mut state = self.state();
            let Some(task) = state.tasks.get_mut(upid) else { return };
            if task.exit.is_some() {
                return;
            }
            let warnings = task.log.iter().filter(|line| line.starts_with("WARN")).count();
            let exit = match result {
                Ok(()) if warnings > 0 => format!("WARNINGS: {warnings}"),
                Ok(()) => "OK".to_owned(),
                // Proxmox VE removes the line break after the last parameter; `task_text` does not add one.
                // All other line breaks become spaces.
                Err(refusal @ Refusal::Parameters(_)) => refusal.task_text().replace('\n', " "),
                Err(refusal) => refusal.task_text().trim_end().replace('\n', " "),
            };
            let last = match exit.as_str() {
                "OK" => "TASK OK".to_owned(),
                text if warnings > 0 && text.starts_with("WARNINGS") => format!("TASK {text}"),
                text => format!("TASK ERROR: {text}"),
            };
            task.log.push(last);
            task.exit = Some(exit.clone());
            task.endtime = Some(endtime);
            exit
        };
        self.announce(Event::TaskEnded { upid: upid.to_owned(), exit });
    }

    /// Ends a worker as a crash would: nothing is cleaned up, and the outcome is unknown.
    pub fn kill_task(&self, upid: &str) {
        let endtime = self.now().as_second();
        let mut state = self.state();
        let Some(task) = state.tasks.get_mut(upid).filter(|task| task.running()) else { return };
        if let Some(abort) = task.abort.take() {
            abort.abort();
        }
        task.exit = Some("unexpected status".to_owned());
        task.endtime = Some(endtime);
        drop(state);
        self.announce(Event::TaskEnded { upid: upid.to_owned(), exit: "unexpected status".to_owned() });
    }

    /// Takes the VM's lock on its node exclusively. Fails if the lock is not free within `wait`.
    pub(super) async fn lock_vm(&self, node: &str, vmid: u32, wait: Duration) -> Result<VmLock, Refusal> {
        let lock = self.vm_lock(node, vmid);
        let held = timeout(wait, lock.write_owned()).await;
        held.map(VmLock::Exclusive).map_err(|_| lock_timeout(vmid))
    }

    /// Takes the VM's lock on its node, shared with other readers. Fails if the lock is not available within
    /// `wait`.
    pub(super) async fn share_vm(&self, node: &str, vmid: u32, wait: Duration) -> Result<VmLock, Refusal> {
        let lock = self.vm_lock(node, vmid);
        let held = timeout(wait, lock.read_owned()).await;
        held.map(VmLock::Shared).map_err(|_| lock_timeout(vmid))
    }

    fn vm_lock(&self, node: &str, vmid: u32) -> Arc<tokio::sync::RwLock<()>> {
        let mut locks = self.locks();
        Arc::clone(locks.entry((node.to_owned(), vmid)).or_default())
    }
}

fn lock_timeout(vmid: u32) -> Refusal {
    Refusal::failed(format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout"))
}
