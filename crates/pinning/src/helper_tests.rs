//! Tests the helper on a simulated host that consists of files. A stand-in for `qm` changes these files.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::super::request::Astray;
use super::super::topology::tests::write;
use super::*;

/// A stand-in for `qm`. It is not written at run time, because a program cannot be executed while a child
/// process of another test still has it open for writing.
const QM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lab/qm");

const CONFIG: &str = "cluster = \"home\"\n[[pool]]\nname = \"fast\"\nmax = 4\ncores = 2\nmemory = \"2GiB\"\n\
    [pool.pinning]\ncpus = \"dedicated\"\nnuma = true\nhugepages = \"2MiB\"\n\
    [[pool]]\nname = \"plain\"\nmax = 2\ncores = 1\nmemory = \"1GiB\"\n";

struct Host {
    folder: TempDir,
    places: Places,
}

impl Host {
    /// A host with two NUMA nodes, each with 4 GiB of memory and two cores with two threads each.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["vms", "running", "proc"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        write(&at("system"), &[(&["0,4", "1,5"], 4096), (&["2,6", "3,7"], 4096)]);
        std::fs::write(at("config.toml"), CONFIG).unwrap();
        symlink(QM, at("qm")).unwrap();
        let places = Places {
            config: at("config.toml"),
            vms: at("vms"),
            running: at("running"),
            system: at("system"),
            proc: "/proc".into(),
            lock: at("lock"),
            qm: at("qm"),
        };
        Self { folder, places }
    }

    fn vm(&self, vmid: u32, text: &str) {
        std::fs::write(self.places.vms.join(format!("{vmid}.conf")), text).unwrap();
    }

    fn ours(&self, vmid: u32, pool: &str, more: &str) {
        let mark = format!("#pve-autoscaler/v1 cluster=home pool={pool} machine=m{vmid}");
        self.vm(vmid, &format!("{mark}\ncores: 2\nmemory: 2048\nballoon: 0\n{more}"));
    }

    fn text(&self, vmid: u32) -> String {
        std::fs::read_to_string(self.places.vms.join(format!("{vmid}.conf"))).unwrap()
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Sends this line to the helper and returns its answer.
    async fn says(&self, line: &str) -> Answer {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let asking = async {
            ours.write_all(line.as_bytes()).await.unwrap();
            ours.shutdown().await.unwrap();
            let mut text = String::new();
            ours.read_to_string(&mut text).await.unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let (served, answer) = tokio::join!(serve(theirs, &self.places), asking);
        served.unwrap();
        answer
    }

    async fn pin(&self, vmid: u32) -> Answer {
        self.says(&format!("{{\"pin\":{{\"vmid\":{vmid},\"machine\":\"m{vmid}\"}}}}\n")).await
    }
}

fn pinned(affinity: &str, changed: bool) -> Answer {
    Answer::Pinned { affinity: affinity.to_owned(), changed }
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Refused { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// Whether the helper accepts this test as a client. It does so only if root runs the tests. Otherwise, there
/// is nothing to test.
fn let_in(answer: &Answer) -> bool {
    !matches!(answer, Answer::Refused { reason } if reason.contains("only root"))
}

#[tokio::test]
async fn machines_get_cpus_one_after_the_other_and_a_second_time_nothing() {
    let host = Host::new();
    host.ours(9100, "fast", "[before]\naffinity: 0\n");
    host.vm(9000, "template: 1\naffinity: 2,6\n");
    host.vm(200, "name: other\naffinity: 3\nnuma0: cpus=0,hostnodes=1,memory=1024,policy=bind\n");
    let first = host.pin(9100).await;
    if !let_in(&first) {
        return;
    }
    // The first core of node 0 is reserved for the host; another VM is pinned to one thread of the last core
    // of node 1.
    assert_eq!(first, pinned("1,5", true));
    assert_eq!(
        host.calls(),
        ["set 9100 --digest b01726af0f0e025742c3c9e20dcfc11c5f487f32 --affinity 1,5 --hugepages 2 --numa 1 \
             --numa0 cpus=0-1,hostnodes=0,memory=2048,policy=bind"]
    );
    assert_eq!(host.pin(9100).await, pinned("1,5", false));
    assert_eq!(host.calls().len(), 1, "settings that are already correct are not changed");
    host.ours(9101, "fast", "");
    assert_eq!(host.pin(9101).await, pinned("2,6", true));
    host.ours(9102, "fast", "");
    assert_eq!(
        reason(host.pin(9102).await),
        "not enough free CPUs for 2 vCPUs (free: 0 on NUMA node 0, 0 on NUMA node 1)"
    );
    assert_eq!(host.says("{\"look\":{}}\n").await, Answer::Free { cpus: vec![(0, 0), (1, 0)] });
    assert!(host.text(9101).contains("numa0: cpus=0-1,hostnodes=1,memory=2048,policy=bind"));
}

#[tokio::test]
async fn only_what_is_ours_stopped_and_to_be_pinned_is_touched() {
    let host = Host::new();
    host.vm(200, "name: other\ncores: 2\nmemory: 2048\n");
    host.vm(201, "#pve-autoscaler/v1 cluster=other pool=fast machine=m201\ncores: 2\nmemory: 2048\n");
    host.vm(202, "#pve-autoscaler/v1 cluster=home pool=fast machine=another\ncores: 2\nmemory: 2048\n");
    host.ours(203, "plain", "");
    host.ours(204, "gone", "");
    host.ours(205, "fast", "lock: clone\n");
    host.ours(206, "fast", "template: 1\n");
    host.ours(207, "fast", "");
    std::fs::write(host.places.running.join("207.pid"), format!("{}\n", std::process::id())).unwrap();
    host.vm(208, "#pve-autoscaler/v1 cluster=home pool=fast machine=m208\ncores: 2\n");
    if !let_in(&host.says("{\"look\":{}}\n").await) {
        return;
    }
    for (vmid, said) in [
        (199, "VM 199 is not on this host"),
        (200, "VM 200 is not machine m200 of this cluster"),
        (201, "VM 201 is not machine m201 of this cluster"),
        (202, "VM 202 is not machine m202 of this cluster"),
        (203, "pool `plain` has no `[pool.pinning]`"),
        (204, "pool `gone` has no `[pool.pinning]`"),
        (205, "VM 205 is locked (clone)"),
        (206, "VM 206 is not machine m206 of this cluster"),
        (207, "VM 207 runs"),
        (208, "does not specify cores or memory"),
    ] {
        let reason = reason(host.pin(vmid).await);
        assert!(reason.contains(said), "{vmid}: {reason}");
    }
    for line in ["", "\n", "{}\n", "{\"pin\":{\"vmid\":207,\"machine\":\"m207\"}}", "GET / HTTP/1.1\r\n"] {
        assert_eq!(reason(host.says(line).await), "this is not a known request", "{line:?}");
    }
    let long = format!("{{\"pin\":{{\"vmid\":207,\"machine\":\"{}\"}}}}\n", "m".repeat(600));
    assert_eq!(reason(host.says(&long).await), "this is not a known request");
    assert!(host.calls().is_empty());
    // The VM's process has ended, but its pid file remains.
    std::fs::write(host.places.running.join("207.pid"), "4194305\n").unwrap();
    assert_eq!(host.pin(207).await, pinned("1,5", true));
}

#[tokio::test]
async fn a_machine_that_runs_on_other_cpus_than_its_own_is_named() {
    let mut host = Host::new();
    // Proxmox VE treats `0` as no affinity, so this machine may run on any CPU.
    for (vmid, affinity) in [(9100, "affinity: 0\nname: fast-1\n"), (9101, "affinity: 1,5\n"), (9102, "")] {
        host.ours(vmid, "fast", affinity);
    }
    host.ours(9103, "fast", "affinity: 2\n");
    host.vm(200, "affinity: 3\n");
    let proc = host.folder.path().join("proc");
    let us = std::process::id();
    for (vmid, pid, on) in
        [(9100, 77, "0-1"), (9101, 78, "5"), (9102, 79, "0-7"), (9103, 80, "0-7"), (200, 81, "0-7")]
    {
        std::fs::write(host.places.running.join(format!("{vmid}.pid")), format!("{pid}\n")).unwrap();
        if vmid != 9103 {
            std::fs::create_dir_all(proc.join(pid.to_string())).unwrap();
            let status = format!("Name:\tkvm\nCpus_allowed:\tff\nCpus_allowed_list:\t{on}\n");
            std::fs::write(proc.join(pid.to_string()).join("status"), status).unwrap();
        }
    }
    symlink(format!("/proc/{us}"), proc.join(us.to_string())).unwrap();
    host.places.proc = proc;
    let said = host.says("{\"runs\":{}}\n").await;
    if !let_in(&said) {
        return;
    }
    let astray =
        Astray { vmid: 9100, name: "fast-1".to_owned(), affinity: "0".to_owned(), on: "0-1".to_owned() };
    assert_eq!(said, Answer::Runs { astray: vec![astray] });
}

#[tokio::test]
async fn what_goes_wrong_on_the_way_is_said() {
    let host = Host::new();
    host.ours(9100, "fast", "");
    std::fs::write(host.folder.path().join("refuse"), "no quorum\n\n").unwrap();
    let first = host.pin(9100).await;
    if !let_in(&first) {
        return;
    }
    assert_eq!(reason(first), "`qm set` failed: no quorum");
    std::fs::remove_file(&host.places.qm).unwrap();
    symlink("/bin/true", &host.places.qm).unwrap();
    assert!(reason(host.pin(9100).await).contains("the configuration does not contain the change"));
    std::fs::remove_dir_all(&host.places.system).unwrap();
    assert!(reason(host.pin(9100).await).contains("cannot be read"));
    std::fs::write(&host.places.config, "cluster = 1\n").unwrap();
    assert!(reason(host.pin(9100).await).contains("the configuration cannot be used"));
}

#[tokio::test]
async fn a_vm_that_was_put_in_the_machines_place_meanwhile_is_not_touched() {
    let host = Host::new();
    host.ours(9100, "fast", "[PENDING]\ncores: 4\n[before]\naffinity: 0\n");
    let other = "name: other\ncores: 8\nmemory: 8192\n";
    std::fs::write(host.folder.path().join("meanwhile"), other).unwrap();
    let first = host.pin(9100).await;
    if !let_in(&first) {
        return;
    }
    assert_eq!(reason(first), "`qm set` failed: checksum mismatch (file change by other user?)");
    assert_eq!(host.text(9100), other);
    // Notes may be in any encoding. The digest is computed from the unchanged bytes.
    let mark = b"#pve-autoscaler/v1 cluster=home pool=fast machine=m9101\n#\xe9\ncores: 2\nmemory: 2048\n";
    std::fs::write(host.places.vms.join("9101.conf"), mark).unwrap();
    assert_eq!(host.pin(9101).await, pinned("1,5", true));
}

#[tokio::test]
async fn a_user_who_is_neither_root_nor_the_daemon_learns_nothing() {
    let mut host = Host::new();
    host.ours(9100, "fast", "");
    // This folder lists no processes, so only root may use the helper.
    host.places.proc = host.folder.path().join("proc");
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let uid = theirs.peer_cred().unwrap().uid();
    ours.write_all(b"{\"look\":{}}\n").await.unwrap();
    serve(theirs, &host.places).await.unwrap();
    let mut text = String::new();
    ours.read_to_string(&mut text).await.unwrap();
    assert_eq!(text.contains("only root and the daemon may ask"), uid != 0, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_another_task_holds_is_waited_for_and_no_longer() {
    let host = Host::new();
    let held = locked(&host.places.lock).await.unwrap();
    let started = tokio::time::Instant::now();
    assert!(matches!(locked(&host.places.lock).await, Err(Refusal::Busy)));
    assert!(started.elapsed() >= LOCK_LIMIT && started.elapsed() < LOCK_LIMIT * 2);
    drop(held);
    // A child process of another test may have inherited the open lock file, and keeps that file open until
    // it executes its program. That takes real time, so the paused clock is resumed.
    tokio::time::resume();
    locked(&host.places.lock).await.unwrap();
}
