//! Which storage a new machine's disks are placed on, and what happens if no storage has room.

use model::Plan;
use model::plan::PodOutcome;
use settings::{self, Config, Needs};

use crate::cluster::Cluster;

/// Pool `w`, whose machines are full clones with 40 GiB disks.
fn pool(more: &str) -> Config {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\nclone = \"full\"\ndisk = \"40GiB\"\n{more}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// Hosts `a` and `b` with these storages and machines, and this many pods that each need a machine.
fn plan(config: &Config, pods: usize, storages: &str, machines: &str) -> Plan {
    with_inventory(pods, storages, machines).plan(config)
}

fn with_inventory(pods: usize, storages: &str, machines: &str) -> Cluster {
    let host = |name: &str| format!("{{name: {name}, cores: 64, memory: 512Gi, storage: {{{storages}}}}}");
    let inventory = format!(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{}, {}]\nmachines: [{machines}]",
        host("a"),
        host("b")
    );
    let cluster = (0..pods).fold(Cluster::new(), |all, number| all.pod(&format!("p{number}"), "3", ""));
    cluster.with(&inventory)
}

/// The host and the storage of each new machine.
fn places(plan: &Plan) -> Vec<String> {
    let machines = plan.scale_up.iter().flat_map(|one| &one.machines);
    machines.map(|it| format!("{} {}", it.host, it.storage.as_deref().unwrap_or("-"))).collect()
}

#[test]
fn the_storage_with_the_most_free_space_is_taken_until_all_are_full() {
    let config = pool("storage = [\"xx\", \"yy\"]\nhosts = [\"a\"]");
    let plan = plan(&config, 6, "xx: {total: 100Gi, used: 0}, yy: {total: 200Gi, used: 70Gi}", "");
    assert_eq!(places(&plan), ["a yy", "a xx", "a yy", "a xx", "a yy"]);
    let left = plan.pods.iter().find(|pod| pod.verdict == PodOutcome::NoHostCapacity).unwrap();
    let message = &left.reasons()[0].message;
    for part in ["a has 20Gi left on storage `xx`, but a machine needs 40Gi", "has 10Gi left on storage `yy`"]
    {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }
}

#[test]
fn a_storage_that_hosts_share_is_counted_once() {
    let config = pool("storage = \"nas\"\nplacement = \"spread\"");
    let plan = plan(&config, 5, "nas: {total: 130Gi, used: 0, shared: true}", "");
    assert_eq!(places(&plan), ["a nas", "b nas", "a nas"]);
}

#[test]
fn all_disks_of_the_template_count_for_a_full_clone() {
    let memory = |bytes: i64| {
        format!(
            "\n---\napiVersion: pve-autoscaler/v1\nkind: AutoscalerState\npools: {{w: {{cloneBytes: {bytes}}}}}\n"
        )
    };
    let config = pool("storage = \"xx\"\nhosts = [\"a\"]");
    let made = |bytes: i64| {
        let cluster = with_inventory(6, "xx: {total: 100Gi, used: 0}", "").with(&memory(bytes));
        places(&cluster.plan(&config)).len()
    };
    // The pool sets the disk size to 40 GiB, so a full clone takes at least that much. 0 means that the size
    // of the template is unknown.
    assert_eq!([0, 10 << 30, 40 << 30, 60 << 30, 101 << 30].map(made), [2, 2, 2, 1, 0]);
}

#[test]
fn a_clone_of_another_hosts_template_goes_to_a_storage_that_hosts_share() {
    let storages = "local: {total: 900Gi, used: 0}, nas: {total: 100Gi, used: 0, shared: true}";
    let memory = "\n---\napiVersion: pve-autoscaler/v1\nkind: AutoscalerState\npools: {w: {reach: [a, b], across: [b]}}\n";
    let cluster = |storage: &str| {
        let config = pool(&format!("{storage}\nplacement = \"spread\""));
        with_inventory(3, storages, "").with(memory).plan(&config)
    };
    assert_eq!(places(&cluster("storage = [\"local\", \"nas\"]")), ["a local", "b nas", "a local"]);
    let plan = cluster("storage = \"local\"\nhosts = [\"b\"]");
    assert_eq!(places(&plan), [""; 0]);
    let message = &plan.pods[0].reasons()[0].message;
    assert!(
        message.contains("b has no template of its own, and storage `local` is not shared"),
        "{message:?}"
    );
}

#[test]
fn what_stays_free_and_what_is_on_its_way_is_left_alone() {
    let own = "xx: {total: 130Gi, used: 0}";
    let coming = "{name: w-1, pool: w, vmid: 9101, host: a, cores: 4, memory: 8Gi, phase: Cloning, madeOf: {stored_on: xx}}";
    for (more, machines, expected) in [
        ("", "", 3),
        ("storage_reserve = \"20GiB\"", "", 2),
        ("extra_disks = [{ device = \"scsi1\", size = \"25GiB\", storage = \"xx\" }]", "", 2),
        ("extra_disks = [{ device = \"scsi1\", size = \"25GiB\", storage = \"zz\" }]", "", 0),
        ("", coming, 2),
        ("", &coming.replace("Cloning", "Starting"), 3),
        ("", &coming.replace("Cloning", "Starting, justStored: true"), 2),
        ("", &coming.replace("Cloning", "Deleting, justStored: true"), 2),
    ] {
        let config = pool(&format!("storage = \"xx\"\nhosts = [\"a\"]\n{more}"));
        // A machine that is being created takes one of the pods, so one pod is added.
        let pods = 5 + usize::from(!machines.is_empty() && !machines.contains("Deleting"));
        assert_eq!(places(&plan(&config, pods, own, machines)).len(), expected, "{more} {machines}");
    }
}

#[test]
fn pools_that_name_no_storage_ask_for_no_room_on_any() {
    let config = pool("hosts = [\"a\"]");
    assert_eq!(places(&plan(&config, 2, "xx: {total: 1Gi, used: 1Gi}", "")), ["a -", "a -"]);
}

/// How many machines a pool on host `a` creates ahead of demand, and why there are no more.
fn kept(more: &str, storages: &str, machines: &str) -> (usize, String) {
    let plan = plan(&pool(&format!("hosts = [\"a\"]\n{more}")), 0, storages, machines);
    let made = plan.keep.iter().map(|one| one.machines.len()).sum();
    (made, plan.keep_refused.first().map(|one| one.message.clone()).unwrap_or_default())
}

#[test]
fn machines_are_kept_suspended_where_there_is_room_for_their_memory() {
    // A machine needs 40 GiB for its disk, and twice 8 GiB plus 500 MiB for its memory.
    let suspended = "storage = \"xx\"\nwarm = { count = 2, state = \"suspended\" }";
    let named = format!("{suspended}\nvm_options = {{ vmstatestorage = \"yy\" }}");
    let beside =
        format!("{suspended}\nextra_disks = [{{ device = \"scsi1\", size = \"1GiB\", storage = \"nas\" }}]");
    let stopped = suspended.replace("suspended", "stopped");
    let (xx, yy) = ("xx: {total: 100Gi, used: 0}", "yy: {total: 20Gi, used: 0}");
    let all = format!("{xx}, {yy}");
    let shared = format!("{xx}, nas: {{total: 30Gi, used: 0, shared: true}}");
    let coming = "{name: w-1, pool: w, vmid: 9101, host: a, cores: 4, memory: 8Gi, phase: Booting, warm: suspended, \
                  madeOf: {stored_on: xx}}";
    let there = coming.replace("Booting", "Warm");
    let just = coming.replace("Booting", "Warm, justStored: true");
    for (more, storages, machines, made, why) in [
        (&stopped, xx, "", 2, ""),
        (
            &suspended.to_owned(),
            xx,
            "",
            1,
            "a has 44556Mi left on storage `xx`, but a machine needs 57844Mi, including its memory",
        ),
        (&named, &all, "", 1, "left on storage `yy`, but a machine needs 16884Mi, including its memory"),
        (&named, xx, "", 0, "has no storage `yy`"),
        (&beside, &shared, "", 1, "left on storage `nas`, but a machine needs 17908Mi, including its memory"),
        // A booting machine has its disk on the storage, but its memory is not saved there yet. A suspended
        // machine has both there.
        (&suspended.to_owned(), "xx: {total: 110Gi, used: 40Gi}", coming, 0, "left on storage `xx`"),
        (&suspended.to_owned(), "xx: {total: 114Gi, used: 57Gi}", &there, 1, ""),
        (&suspended.to_owned(), "xx: {total: 114Gi, used: 57Gi}", &just, 0, "left on storage `xx`"),
    ] {
        let (seen, said) = kept(more, storages, machines);
        assert_eq!(seen, made, "{more} {storages} {machines}: {said}");
        assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{why:?} is not in {said:?}");
    }
}
