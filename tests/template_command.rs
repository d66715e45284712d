//! `template` as an operator runs it, against the embedded Proxmox VE over TLS: it creates, replaces,
//! finishes and destroys templates.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use model::Vmid;
use tempfile::TempDir;
use tokio::process::Command;
use world::proxmox::spec::{ClusterSpec, Grant, TokenSpec, VmSpec};
use world::proxmox::{Effect, Fault, Pve, TaskFault, WebImage};
use world::serve::tls::ServerTls;
use world::serve::{Serving, serve_https};

mod lab;

const URL: &str = "https://images.example/debian.qcow2";
const NEXT: &str = "https://images.example/debian-next.qcow2";
const SECRET: &str = "22222222-3333-4444-5555-666666666666";
const TOKEN: &str = "templates@pve!maker";

/// The roles of a token that creates templates, as in docs/reference/permissions.md.
const ROLES: [(&str, &str, &str); 5] = [
    (
        "/pool/k8s-templates",
        "Maker",
        "VM.Allocate VM.Audit VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType \
         VM.Config.Memory VM.Config.Network VM.Config.Options",
    ),
    ("/storage/local", "MakerImages", "Datastore.AllocateTemplate Datastore.Audit"),
    ("/storage/local-lvm", "MakerDisks", "Datastore.AllocateSpace Datastore.Audit"),
    ("/nodes", "MakerHosts", "Sys.AccessNetwork"),
    ("/sdn/zones/localnetwork/vmbr0", "MakerNetwork", "SDN.Use"),
];

struct Shop {
    pve: Pve,
    folder: TempDir,
    serving: Serving,
}

fn image(digest: char) -> WebImage {
    WebImage { size: 300 << 20, disk: 3 << 30, digest: digest.to_string().repeat(64) }
}

impl Shop {
    async fn new(change: impl FnOnce(&mut ClusterSpec)) -> Self {
        let mut spec = ClusterSpec::demo();
        spec.vms.retain(|vm| vm.vmid < 9001);
        spec.vms.iter_mut().for_each(|vm| {
            vm.config.insert("name".into(), "by-hand".into());
        });
        spec.timings.full_clone_rate = 100 << 30;
        (spec.timings.config, spec.timings.destroy) = (Duration::from_millis(20), Duration::from_millis(20));
        spec.access.tokens.push(TokenSpec {
            id: TOKEN.into(),
            secret: SECRET.into(),
            privsep: true,
            enabled: true,
        });
        for (path, role, privileges) in ROLES {
            let words = privileges.split_whitespace().map(ToOwned::to_owned).collect();
            spec.access.roles.insert(role.into(), words);
            for who in ["templates@pve", TOKEN] {
                let propagate = path == "/nodes";
                spec.access.grants.push(Grant {
                    path: path.into(),
                    who: who.into(),
                    role: role.into(),
                    propagate,
                });
            }
        }
        for who in ["templates@pve", TOKEN] {
            spec.access.grants.push(Grant {
                path: "/".into(),
                who: who.into(),
                role: "KasNode".into(),
                propagate: false,
            });
        }
        change(&mut spec);
        let pve = lab::pve(spec);
        pve.publish(URL, WebImage { size: 1 << 20, ..image('a') });
        pve.publish(NEXT, WebImage { size: 1 << 20, ..image('b') });
        let tls = ServerTls::for_loopback("Proxmox VE").unwrap();
        let served = pve.clone();
        let handler = move |request| {
            let pve = served.clone();
            async move { pve.handle(request).await }
        };
        let serving = serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
        let shop = Self { pve, folder: TempDir::new().unwrap(), serving };
        shop.write("ca.pem", &tls.ca_pem, 0o644);
        shop.write("daily", ClusterSpec::DEMO_SECRET, 0o600);
        shop.write("maker", SECRET, 0o600);
        shop.describe(URL, 'a', "");
        shop
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn describe(&self, url: &str, digest: char, more: &str) {
        let text = format!(
            "[proxmox]\nendpoints = [\"https://{}\"]\ntoken_id = \"{}\"\ntoken_file = \"{}\"\nca_file = \"{}\"\n\
             [[template]]\nname = \"k8s-worker\"\nimage = \"{url}\"\nchecksum = \"sha256:{}\"\nvmids = \"9010-9019\"\n\
             storage = \"local-lvm\"\nhosts = [\"pve1\", \"pve2\"]\ndisk = \"10GiB\"\nbridge = \"vmbr0\"\n\
             resource_pool = \"k8s-templates\"\n{more}\n",
            self.serving.address(),
            ClusterSpec::DEMO_TOKEN,
            self.path("daily"),
            self.path("ca.pem"),
            digest.to_string().repeat(64),
        );
        self.write("config.toml", &text, 0o644);
    }

    async fn run(&self, more: &[&str]) -> (i32, String) {
        let (config, maker) = (self.path("config.toml"), self.path("maker"));
        let own = ["--token-id", TOKEN, "--token-file", &maker];
        let arguments = [&["template", "--config", &config], &own[..], more].concat();
        let output =
            Command::new(env!("CARGO_BIN_EXE_pve-autoscaler")).args(arguments).output().await.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        for secret in [SECRET, ClusterSpec::DEMO_SECRET] {
            assert!(!said.contains(secret), "a secret is shown");
        }
        (output.status.code().unwrap(), said)
    }

    /// Runs the command, and asserts that it succeeds.
    async fn good(&self, more: &[&str]) -> String {
        let (status, said) = self.run(more).await;
        assert_eq!(status, 0, "{said}");
        said
    }

    /// The VMIDs of the templates with this name.
    fn named(&self, name: &str) -> Vec<u32> {
        let is = |vmid: &u32| {
            let vm = self.pve.vm(*vmid).unwrap();
            vm.config.get("name").is_some_and(|own| own == name)
                && vm.config.get("template").is_some_and(|it| it == "1")
        };
        self.pve.vmids().into_iter().filter(is).collect()
    }

    fn config(&self, vmid: Vmid) -> BTreeMap<String, String> {
        self.pve.vm(vmid.0).unwrap().config
    }

    /// Delays the answer to the quorum query, and returns while the command waits for that answer.
    async fn while_the_quorum_is_asked_for(&self) {
        let (method, path) = ("GET".to_owned(), "/cluster/status".to_owned());
        let effect = Effect::WorkThenDelay(Duration::from_secs(3));
        self.pve.inject(Fault { method, path, times: 1, effect });
        // The log shows a delayed call only once it is answered.
        while self.pve.has_faults() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_template_is_made_on_each_host_and_replaced_if_its_description_has_changed() {
    let shop = Shop::new(|_| {}).await;
    let by_hand = shop.pve.vm(9000).unwrap();
    let said = shop.good(&["--dry-run"]).await;
    assert!(said.contains("would   create k8s-worker-") && said.contains("on pve2"), "{said}");
    assert_eq!(shop.pve.vmids(), [9000], "a dry run makes nothing");

    shop.good(&[]).await;
    assert_eq!(shop.named("k8s-worker"), [9010, 9011]);
    let config = shop.config(Vmid(9010));
    for (key, part) in [
        ("scsi0", "local-lvm:base-9010-disk-0,discard=on,size=10G"),
        ("ide2", "local-lvm:vm-9010-cloudinit,media=cdrom"),
        ("agent", "enabled=1"),
        ("serial0", "socket"),
        ("net0", "bridge=vmbr0"),
        ("ciupgrade", "0"),
        ("description", "pve-autoscaler-template/v1 cluster=kubernetes template=k8s-worker version="),
    ] {
        assert!(config[key].contains(part), "{key}: {}", config[key]);
    }
    assert_eq!(shop.pve.vm(9010).unwrap().pool.as_deref(), Some("k8s-templates"));
    assert_eq!(
        (shop.pve.vm(9010).unwrap().node, shop.pve.vm(9011).unwrap().node),
        ("pve1".into(), "pve2".into())
    );

    let calls = shop.pve.calls().len();
    let said = shop.good(&[]).await;
    assert_eq!(said.matches("kept").count(), 2, "{said}");
    let writes = shop.pve.calls().split_off(calls).into_iter().filter(|call| call.method != "GET").count();
    assert_eq!(writes, 0, "existing templates are left alone");

    shop.describe(NEXT, 'b', "");
    shop.good(&[]).await;
    assert_eq!(shop.named("k8s-worker"), [9012, 9013], "the new templates have the name");
    assert!(
        shop.config(Vmid(9010))["name"].starts_with("k8s-worker-"),
        "{}",
        shop.config(Vmid(9010))["name"]
    );
    let said = shop.good(&[]).await;
    assert!(said.contains("VM 9010, version") && said.contains("was destroyed"), "{said}");
    assert_eq!(shop.pve.vmids(), [9000, 9012, 9013]);
    assert!(shop.pve.is_as(9000, &by_hand), "the template that was made by hand is unchanged");

    shop.good(&["k8s-worker", "--force"]).await;
    assert_eq!(shop.named("k8s-worker"), [9010, 9011], "`--force` replaces unchanged templates");
    let said = shop.good(&[]).await;
    assert_eq!(said.matches("kept").count(), 2, "{said}");
}

#[tokio::test]
async fn a_former_version_stays_while_linked_clones_need_it() {
    let shop = Shop::new(|_| {}).await;
    shop.good(&[]).await;
    let mut clone = VmSpec::machine(9105, "pve1", "worker-1");
    clone.config.insert("scsi0".into(), "local-lvm:vm-9105-disk-0,size=10G".into());
    assert!(shop.pve.create_by_hand(clone));
    shop.pve.link_by_hand("local-lvm:vm-9105-disk-0", "local-lvm:base-9010-disk-0");
    shop.describe(NEXT, 'b', "");
    shop.good(&[]).await;
    let said = shop.good(&[]).await;
    assert!(said.contains("is kept: clones of it are in use"), "{said}");
    assert!(!said.lines().any(|line| line.trim().starts_with("done")), "no step was done: {said}");
    assert!(shop.pve.vm(9010).is_some() && shop.pve.vm(9011).is_none(), "9011, without clones, is gone");
    shop.pve.delete_by_hand(9105);
    shop.good(&[]).await;
    assert!(shop.pve.vm(9010).is_none());
}

#[tokio::test]
async fn a_vm_that_takes_the_vmid_of_a_former_version_while_the_quorum_is_asked_for_is_left_alone() {
    let shop = Shop::new(|_| {}).await;
    shop.good(&[]).await;
    shop.describe(NEXT, 'b', "");
    shop.good(&[]).await;
    let taken = async {
        shop.while_the_quorum_is_asked_for().await;
        shop.pve.delete_by_hand(9010);
        let mut other = VmSpec::machine(9010, "pve1", "databases");
        other.pool = Some("k8s-templates".into());
        assert!(shop.pve.create_by_hand(other));
        shop.pve.vm(9010).unwrap()
    };
    let ((_, said), other) = tokio::join!(shop.run(&[]), taken);
    assert!(shop.pve.vm(9010).is_some_and(|_| shop.pve.is_as(9010, &other)), "{said}");
}

#[tokio::test]
async fn a_former_version_that_gets_the_name_again_while_the_quorum_is_asked_for_stays() {
    let shop = Shop::new(|_| {}).await;
    shop.good(&[]).await;
    shop.describe(NEXT, 'b', "");
    shop.good(&[]).await;
    let named = async {
        shop.while_the_quorum_is_asked_for().await;
        shop.pve.set_config_by_hand(9010, "name", Some("k8s-worker"));
    };
    let (said, ()) = tokio::join!(shop.good(&[]), named);
    assert!(said.contains("is kept: it now has the name that pools use"), "{said}");
    assert!(shop.pve.vm(9010).is_some(), "{said}");
}

#[tokio::test]
async fn a_vm_of_others_in_the_range_is_gone_round() {
    let shop = Shop::new(|_| {}).await;
    // An unmanaged VM in the range is skipped.
    assert!(shop.pve.create_by_hand(VmSpec::machine(9010, "pve3", "somebodys")));
    let somebodys = shop.pve.vm(9010).unwrap();
    shop.good(&[]).await;
    assert_eq!(shop.named("k8s-worker"), [9011, 9012]);
    assert!(shop.pve.is_as(9010, &somebodys));
    // If the description was rewritten, it no longer proves that the `template` command created the VM.
    shop.pve.set_config_by_hand(9011, "description", Some("mine now"));
    let (status, said) = shop.run(&[]).await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("was not created by") && shop.pve.vm(9011).is_some(), "{said}");
}

/// A user's full clone of the template, with a VMID in the range. It has the template's description, because
/// Proxmox VE copies the description to clones.
fn clone_by_hand(shop: &Shop, vmid: Vmid) {
    let mut clone = VmSpec::machine(vmid.0, "pve1", "databases");
    clone.pool = Some("k8s-templates".into());
    assert!(shop.pve.create_by_hand(clone));
    shop.pve.set_config_by_hand(vmid.0, "description", Some(&shop.config(Vmid(9010))["description"]));
}

#[tokio::test]
async fn a_clone_that_a_user_made_of_the_template_is_left_alone() {
    let shop = Shop::new(|_| {}).await;
    shop.good(&[]).await;
    clone_by_hand(&shop, Vmid(9015));
    let databases = shop.pve.vm(9015).unwrap();
    let said = shop.good(&[]).await;
    assert_eq!(said.matches("kept").count(), 2, "{said}");
    // A user's clone is also left alone if the version that it was cloned from is replaced.
    shop.describe(NEXT, 'b', "");
    shop.good(&[]).await;
    shop.good(&[]).await;
    assert!(shop.pve.is_as(9015, &databases), "{:?}", shop.pve.vm(9015));
    assert_eq!(shop.pve.vmids(), [9000, 9012, 9013, 9015]);
    // If the replaced version is needed again, it is created from its image. The user's clone is not turned
    // into that version.
    shop.describe(URL, 'a', "");
    shop.good(&[]).await;
    assert!(shop.pve.is_as(9015, &databases), "{:?}", shop.pve.vm(9015));
    assert_eq!(shop.named("k8s-worker"), [9010, 9011]);
}

#[tokio::test]
async fn a_mark_without_a_vmid_counts_only_where_no_other_vm_bears_it() {
    let shop = Shop::new(|_| {}).await;
    shop.good(&[]).await;
    // Earlier releases wrote the mark without a VMID.
    for vmid in [9010, 9011] {
        let older = shop.config(Vmid(vmid))["description"].replace(&format!(" vmid={vmid}"), "");
        assert!(older != shop.config(Vmid(vmid))["description"]);
        shop.pve.set_config_by_hand(vmid, "description", Some(&older));
    }
    let said = shop.good(&[]).await;
    assert_eq!(said.matches("kept").count(), 2, "{said}");
    clone_by_hand(&shop, Vmid(9015));
    let both = [9010, 9015].map(|vmid| shop.pve.vm(vmid).unwrap());
    for (url, digest) in [(URL, 'a'), (NEXT, 'b')] {
        shop.describe(url, digest, "");
        let (status, said) = shop.run(&[]).await;
        assert_eq!(status, 1, "{said}");
        assert!(
            said.contains("VM 9010 (k8s-worker) on pve1") && said.contains("VM 9015 (databases) on pve1"),
            "{said}"
        );
        assert!(shop.pve.is_as(9010, &both[0]) && shop.pve.is_as(9015, &both[1]), "{said}");
    }
    // If the template is gone, the clone's name still shows that the mark may not be its own.
    shop.pve.delete_by_hand(9010);
    let (status, said) = shop.run(&[]).await;
    assert!(status == 1 && said.contains("VM 9015 (databases) on pve1"), "{said}");
    assert!(shop.pve.is_as(9015, &both[1]), "{said}");
    shop.pve.set_config_by_hand(9015, "description", Some("a database"));
    let databases = shop.pve.vm(9015).unwrap();
    shop.good(&[]).await;
    assert_eq!(shop.named("k8s-worker").len(), 2);
    assert!(shop.pve.is_as(9015, &databases));
}

#[tokio::test]
async fn a_template_of_others_with_the_same_name_is_left_alone_and_told() {
    let shop = Shop::new(|spec| {
        spec.vms.push(VmSpec::template(9300, "pve3", "k8s-worker", "local-lvm"));
    })
    .await;
    let others = shop.pve.vm(9300).unwrap();
    let (status, said) = shop.run(&[]).await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("(9300 on pve3) that was not created by"), "{said}");
    assert!(shop.pve.is_as(9300, &others) && shop.pve.vmids() == [9000, 9300]);
}

#[tokio::test]
async fn what_an_interrupted_run_has_left_is_finished() {
    for kind in ["resize", "qmtemplate", "qmconfig"] {
        let shop = Shop::new(|spec| spec.hosts.truncate(1)).await;
        shop.describe(URL, 'a', "");
        let text = fs::read_to_string(shop.path("config.toml")).unwrap();
        shop.write("config.toml", &text.replace("[\"pve1\", \"pve2\"]", "[\"pve1\"]"), 0o644);
        shop.pve.inject_task(kind, TaskFault::Fails("the host has a bad day".into()));
        let (status, said) = shop.run(&[]).await;
        assert!(status == 1 || status == 4, "{kind}: {said}");
        assert!(said.contains("a bad day"), "{kind}: {said}");
        let said = shop.good(&[]).await;
        assert!(said.contains("finish ") || said.contains("rename VM"), "{kind}: {said}");
        assert_eq!(shop.named("k8s-worker"), [9010], "{kind}");
        assert_eq!(shop.pve.vmids(), [9000, 9010], "{kind}: nothing is made twice");
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_makes_nothing_twice() {
    let shop = Shop::new(|_| {}).await;
    let text = fs::read_to_string(shop.path("config.toml")).unwrap();
    shop.write("config.toml", &text.replace("[\"pve1\", \"pve2\"]", "[\"pve1\"]"), 0o644);
    for (method, path) in [("POST", "/nodes/pve1/qemu"), ("POST", "/nodes/pve1/qemu/9010/template")] {
        shop.pve.inject(Fault {
            method: method.into(),
            path: path.into(),
            times: 1,
            effect: Effect::WorkThenLose,
        });
    }
    shop.good(&[]).await;
    assert_eq!(shop.pve.vmids(), [9000, 9010]);
    assert_eq!(shop.named("k8s-worker"), [9010]);
}

#[tokio::test]
async fn a_wrong_image_makes_no_vm() {
    let shop = Shop::new(|_| {}).await;
    shop.describe(URL, 'c', "");
    let (status, said) = shop.run(&[]).await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("the download failed: checksum mismatch"), "{said}");
    assert_eq!(shop.pve.vmids(), [9000]);
}

#[tokio::test]
async fn the_daily_token_is_told_what_it_lacks_and_each_privilege_of_the_makers_is_needed() {
    let shop = Shop::new(|_| {}).await;
    let config = shop.path("config.toml");
    let mut program = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    let output = program.args(["template", "--config", &config]).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    for part in ["Datastore.AllocateTemplate", "Sys.AccessNetwork on /nodes/pve1", "VM.Allocate"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert_eq!(shop.pve.vmids(), [9000]);
    for (_, role, privileges) in ROLES {
        for privilege in privileges.split_whitespace() {
            let shop = Shop::new(|spec| {
                spec.access.roles.get_mut(role).unwrap().retain(|one| one != privilege);
            })
            .await;
            let (status, said) = shop.run(&["--dry-run"]).await;
            // If the token cannot see the storage, the command finds no host that has the storage.
            let told =
                said.contains(privilege) || said.contains("has a storage `local-lvm` that the token can see");
            assert!(status != 0 && told, "{privilege}: {said}");
        }
    }
}
