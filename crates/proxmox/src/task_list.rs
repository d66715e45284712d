//! Lists tasks, and reads from their logs what they created or left behind. After a restart, the daemon uses
//! the lists to find the tasks that it started earlier.

use super::answer::{number_of, text_of};
use super::client::{Client, Lane, encode};
use super::error::Error;
use super::task::{Exit, TaskStatus};
use super::upid::Upid;
use model::Vmid;
use runtime::boxed;

/// The maximum number of rows in a list, unless the filter sets one.
const ROWS: u32 = 500;

/// A filter for the list of a host's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only tasks for this VMID. A clone task is listed under the VMID of its **template**: see
    /// [`Client::clone_target`].
    pub vmid: Option<Vmid>,
    /// Only tasks of this kind, e.g. `qmclone`.
    pub kind: Option<String>,
    /// Only tasks that began at this Unix time (seconds) or later.
    pub since: Option<i64>,
    /// The maximum number of rows; by default, 500.
    pub limit: Option<u32>,
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Its id.
    pub upid: Upid,
    /// The id of the object that the task works on, usually a VMID.
    pub about: String,
    /// The user that started the task: `user@realm!token`, or `user@realm`.
    pub user: String,
    /// When the task began, as Unix time in seconds.
    pub started: i64,
    /// When the task ended, as Unix time in seconds.
    pub ended: Option<i64>,
    /// Whether the task is running, or how it ended.
    pub status: TaskStatus,
}

impl Client {
    /// A host's tasks, running and ended, newest first. Without `Sys.Audit` on the host, only the token's own
    /// tasks are listed.
    #[boxed]
    pub async fn tasks(&self, host: &str, filter: &TaskFilter) -> Result<Vec<TaskRow>, Error> {
        let path = format!("/nodes/{}/tasks", encode(host));
        let limit = filter.limit.unwrap_or(ROWS);
        // Without `source`, only ended tasks are listed.
        let mut query = vec![("source", "all".to_owned()), ("limit", limit.to_string())];
        query.extend(filter.vmid.map(|vmid| ("vmid", vmid.to_string())));
        query.extend(filter.kind.clone().map(|kind| ("typefilter", kind)));
        query.extend(filter.since.map(|since| ("since", since.to_string())));
        let data = self.get(Lane::Free, &path, &query).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET tasks", "no list"))?;
        Ok(rows.iter().filter_map(row).collect())
    }

    /// The latest tasks of all hosts, about twenty per host. Without `Sys.Audit` on `/`, the list is empty:
    /// it does not even contain the token's own tasks.
    #[boxed]
    pub async fn cluster_tasks(&self) -> Result<Vec<TaskRow>, Error> {
        let data = self.get(Lane::Free, "/cluster/tasks", &[]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET /cluster/tasks", "no list"))?;
        Ok(rows.iter().filter_map(row).collect())
    }

    /// The VMID of the VM that a clone task creates. It is read from the task's log, because the task's id
    /// only contains the template's VMID.
    ///
    /// Returns `None` if the log's first line has not been written yet. Also returns `None` if qemu-server is
    /// older than 9.1.6, because its log does not contain the VMID.
    #[boxed]
    pub async fn clone_target(&self, upid: &Upid) -> Result<Option<Vmid>, Error> {
        let path = format!("/nodes/{}/tasks/{}/log", encode(upid.node()), encode(upid.as_str()));
        let data = self.get(Lane::Lifecycle(upid.node()), &path, &[("limit", "5".to_owned())]).await?;
        let lines = data.as_array().into_iter().flatten().filter_map(|line| text_of(line, "t"));
        Ok(lines.into_iter().find_map(|line| target(&line)))
    }

    /// The volume ids of the disks that a destroy task could not remove. An administrator has to remove them.
    /// `None` if the task's log is gone.
    ///
    /// Check this after every destroy task. Since qemu-server 9.1.19, a task that leaves disks behind ends
    /// with warnings; before that, it ends with `OK`.
    #[boxed]
    pub async fn leaked_disks(&self, upid: &Upid) -> Result<Option<Vec<String>>, Error> {
        let lines = self.task_log_tail(upid, usize::MAX).await?;
        // If the log is gone, Proxmox VE does not return an error but a log that only consists of this line.
        // A query for the task's status would fail.
        if let [line] = &*lines
            && line.starts_with("unable to open file")
        {
            return Ok(None);
        }
        Ok(Some(lines.iter().filter_map(|line| leaked(line)).collect()))
    }
}

fn row(data: &serde_json::Value) -> Option<TaskRow> {
    let upid = Upid::parse(&text_of(data, "upid")?)?;
    let ended = number_of(data, "endtime");
    let status = match text_of(data, "status") {
        Some(text) if text != "RUNNING" => TaskStatus::Ended(Exit::read(&text)),
        None if ended.is_some() => TaskStatus::Ended(Exit::Unknown),
        _ => TaskStatus::Running,
    };
    // For a running task, the row contains the token in `user`; for an ended task, in a separate field.
    let user = text_of(data, "user").unwrap_or_default();
    let user = match text_of(data, "tokenid") {
        Some(token) if !user.contains('!') => format!("{user}!{token}"),
        _ => user,
    };
    let started = number_of(data, "starttime").unwrap_or(0);
    Some(TaskRow { upid, about: text_of(data, "id").unwrap_or_default(), user, started, ended, status })
}

/// Parses `creating a clone of VM 9000 with ID 120`.
fn target(line: &str) -> Option<Vmid> {
    line.strip_prefix("creating a clone of VM ")?.split_once(" with ID ")?.1.trim().parse().ok()
}

/// Parses `Could not remove disk 'local-lvm:vm-120-disk-0', check manually: …`, as a warning or as a plain
/// line.
fn leaked(line: &str) -> Option<String> {
    let rest = line.split_once("ould not remove disk '")?.1;
    Some(rest.split_once('\'')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const UPID: &str = "UPID:pve1:00000B8B:0008A7C7:6B00E73E:qmclone:9010:autoscaler@pve!agent:";

    #[test]
    fn running_and_ended_rows_name_the_same_user() {
        let running = json!({"upid": UPID, "status": "RUNNING", "saved": "0", "id": "9010", "starttime": 5,
            "user": "autoscaler@pve!agent"});
        let ended = json!({"upid": UPID, "status": "WARNINGS: 1", "id": "9010", "starttime": "5", "endtime": 9,
            "user": "autoscaler@pve", "tokenid": "agent"});
        let (running, ended) = (row(&running).unwrap(), row(&ended).unwrap());
        assert_eq!(running.status, TaskStatus::Running);
        assert_eq!(ended.status, TaskStatus::Ended(Exit::Warnings(1)));
        assert_eq!((&running.user, running.started), (&ended.user, ended.started));
        assert_eq!(row(&json!({"upid": "nonsense"})), None);
    }

    #[test]
    fn logs_tell_the_new_vmid_and_the_disks_that_stay() {
        assert_eq!(target("creating a clone of VM 9010 with ID 120"), Some(Vmid(120)));
        assert_eq!(target("create full clone of drive scsi0 (local:120/vm-120-disk-0.raw)"), None);
        let lines = [
            "WARN: Could not remove disk 'shared:212/vm-212-disk-0.qcow2', check manually: cfs-lock 'storage-shared' error: no quorum!",
            "Could not remove disk 'tank:vm-7-disk-1', check manually: dataset is busy",
        ];
        assert_eq!(
            lines.map(|line| leaked(line).unwrap_or_default()),
            ["shared:212/vm-212-disk-0.qcow2", "tank:vm-7-disk-1"]
        );
        assert_eq!(leaked("purging VM 120 from related configurations.."), None);
    }
}
