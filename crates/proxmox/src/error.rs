//! Proxmox VE errors, classified by what a caller can do about them.
//!
//! Proxmox VE does not use status 404. If a VM does not exist, it answers with status 500 and a message, or
//! with 403 if the token's rights come only from the resource pool.

use thiserror::Error;

/// The kind of an error, which determines what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The VM, template, pool, storage or task does not exist.
    NotFound,
    /// The VMID is taken, or another object that was to be created already exists.
    Exists,
    /// The token lacks a privilege.
    Forbidden,
    /// The token is unknown, disabled or expired.
    Unauthorized,
    /// The VM is locked. Only the running operation or an administrator can remove the lock.
    Locked,
    /// A lock could not be acquired in time, or a device did not answer in time. The call had no effect and
    /// can be repeated later.
    Busy,
    /// The cluster is not quorate: nothing can be written.
    NoQuorum,
    /// The guest agent does not answer (yet).
    AgentSilent,
    /// The call was malformed, or its parameters were rejected.
    BadRequest,
    /// The configuration was changed since it was read.
    Changed,
    /// The host that should answer cannot be reached. The call had no effect.
    HostUnreachable,
    /// It is not known whether the call was carried out. The state has to be read before the call is
    /// repeated.
    OutcomeUnknown,
    /// This instance does not lead, or no longer leads. The call was not made.
    Fenced,
    /// Something else.
    Other,
}

model::codes!(
    Kind {
        NotFound => "NotFound",
        Exists => "Exists",
        Forbidden => "Forbidden",
        Unauthorized => "Unauthorized",
        Locked => "Locked",
        Busy => "Busy",
        NoQuorum => "NoQuorum",
        AgentSilent => "AgentSilent",
        BadRequest => "BadRequest",
        Changed => "Changed",
        HostUnreachable => "HostUnreachable",
        OutcomeUnknown => "OutcomeUnknown",
        Fenced => "Fenced",
        Other => "Other",
    }
);

/// A call that failed.
#[derive(Clone, Debug, Error)]
#[error("{}{call}: {text}", if status.is_none() { "Proxmox did not answer " } else { "Proxmox refused " })]
pub struct Error {
    /// The kind of the error, which determines what a caller can do about it.
    pub kind: Kind,
    /// The call, e.g. `POST /nodes/pve1/qemu/9000/clone`.
    pub call: String,
    /// The HTTP status; `None` if there was no answer.
    pub status: Option<u16>,
    /// Proxmox VE's message, on one line.
    pub text: String,
}

impl Error {
    pub(super) fn new(call: &str, status: u16, text: String) -> Self {
        Self { kind: classify(status, &text), call: call.to_owned(), status: Some(status), text }
    }

    pub(super) fn without_answer(call: &str, kind: Kind, text: String) -> Self {
        Self { kind, call: call.to_owned(), status: None, text }
    }

    pub(super) fn malformed(call: &str, text: impl std::fmt::Display) -> Self {
        Self {
            kind: Kind::Other,
            call: call.to_owned(),
            status: Some(200),
            text: format!("unexpected answer: {text}"),
        }
    }
}

/// Classifies an error by its status and its text (a message, a reason phrase, or a task's exit status with
/// status 500).
pub(super) fn classify(status: u16, text: &str) -> Kind {
    let has = |part: &str| text.contains(part);
    match status {
        401 => return Kind::Unauthorized,
        403 => return Kind::Forbidden,
        400 if has("no such task") => return Kind::NotFound,
        400 if has("already exists") => return Kind::Exists,
        400 | 501 | 506 => return Kind::BadRequest,
        595 => return Kind::HostUnreachable,
        // These statuses come from a load balancer or proxy. A proxy that answers 503 has not forwarded the
        // request; with the other statuses, it may have.
        503 => return Kind::Busy,
        502 | 504 | 596..=599 => return Kind::OutcomeUnknown,
        _ => {}
    }
    if has("no quorum") || (has("conf.tmp") && has("Permission denied")) {
        Kind::NoQuorum
    } else if has("already exists") || has("File exists") {
        Kind::Exists
    } else if has("VM is locked") {
        Kind::Locked
    } else if has("does not exist")
        // Guest agents before QEMU 8.2 report this for a pid that they no longer know.
        || has("Invalid parameter 'pid'")
        || has("unable to find configuration file")
        || (has("storage") && has("is not available on node"))
    {
        Kind::NotFound
    } else if has("agent is not running") || has("qga socket") || (has("qga command") && has("got timeout")) {
        Kind::AgentSilent
    } else if has("checksum mismatch (file change") {
        Kind::Changed
    } else if has("got timeout") || has("can't lock file") || has("got no worker upid") || has("cfs-lock") {
        Kind::Busy
    } else if has("403 Permission check failed") || has("only root can set") {
        Kind::Forbidden
    } else {
        Kind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_real_cluster_are_sorted() {
        let cases = [
            (500, "Configuration file 'nodes/pve1/qemu-server/104.conf' does not exist", Kind::NotFound),
            (500, "unable to find configuration file for VM 9010 on node 'pve2'", Kind::NotFound),
            (500, "storage 'zfs-b' is not available on node 'pve1'", Kind::NotFound),
            (500, "Agent error: PID ld does not exist", Kind::NotFound),
            (500, "Agent error: Invalid parameter 'pid'", Kind::NotFound),
            (500, "only root can set 'affinity' config", Kind::Forbidden),
            (403, "Permission check failed (/vms/100, VM.Clone)", Kind::Forbidden),
            (401, "Authentication failed!", Kind::Unauthorized),
            (500, "VM is locked (clone)", Kind::Locked),
            (500, "can't lock file '/var/lock/qemu-server/lock-170.conf' - got timeout", Kind::Busy),
            (500, "unable to create VM 147: config file already exists", Kind::Exists),
            (
                500,
                "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/145.conf' failed: File exists",
                Kind::Exists,
            ),
            (500, "cluster not ready - no quorum?", Kind::NoQuorum),
            (500, "cfs-lock 'file-user_cfg' error: no quorum!", Kind::NoQuorum),
            (
                500,
                "unable to open file '/etc/pve/nodes/pve1/qemu-server/212.conf.tmp.3253' - Permission denied",
                Kind::NoQuorum,
            ),
            (500, "QEMU guest agent is not running", Kind::AgentSilent),
            (500, "VM 104 qga command 'guest-exec' failed - got timeout", Kind::AgentSilent),
            (500, "checksum mismatch (file change by other user?)", Kind::Changed),
            (400, "Parameter verification failed. newid: VM 104 already exists", Kind::Exists),
            (400, "Parameter verification failed. upid: no such task", Kind::NotFound),
            (400, "Parameter verification failed. cores: type check failed", Kind::BadRequest),
            (595, "No route to host", Kind::HostUnreachable),
            (596, "Connection timed out", Kind::OutcomeUnknown),
            (503, "Service Unavailable", Kind::Busy),
            (504, "Gateway Timeout", Kind::OutcomeUnknown),
            (500, "checksum mismatch: got 'ab' != expect 'cd'", Kind::Other),
            (500, "start failed: QEMU exited with code 1", Kind::Other),
        ];
        for (status, text, expected) in cases {
            assert_eq!(classify(status, text), expected, "{status} {text}");
        }
    }
}
