use super::*;
use model::Vmid;
use proxmox::Power;
use settings::{Needs, parse};

const UUID: &str = "8d7c0a6e-0000-4000-8000-000000000001";
const NAME: &str = "workers-b2x9k";

fn config() -> Config {
    let text = "cluster = \"home\"\norphans = \"collect\"\norphans_after = \"1h\"\n[[pool]]\nname = \"workers\"\n\
                max = 3\ncores = 2\nmemory = \"4GiB\"\nvmids = \"9100-9109\"\n";
    parse("c.toml", text, Needs::Plan).unwrap()
}

/// A VM that meets all conditions for an orphan, unless a test changes one of them.
struct Case {
    config: Config,
    owner: Owner,
    vmid: Vmid,
    set: Vec<(&'static str, String)>,
    marker: Marker,
    steady: (Duration, u32),
    record: Option<Record>,
    unreadable: bool,
    node: Option<Node>,
    twins: Vec<Vmid>,
    live: Option<Live>,
}

impl Case {
    fn new() -> Self {
        let marker = Marker {
            cluster: "home".to_owned(),
            region: None,
            pool: "workers".into(),
            machine: "m-1".into(),
            kubernetes: Some("uid-1".to_owned()),
        };
        let set = [
            ("name", NAME.to_owned()),
            ("smbios1", format!("uuid={UUID}")),
            ("scsi0", "local-lvm:vm-9100-disk-0,size=10G".to_owned()),
            ("ide2", "local-lvm:vm-9100-cloudinit,media=cdrom".to_owned()),
            ("ipconfig0", "ip=10.0.0.11/24".to_owned()),
        ];
        let status = VmStatus { power: Power::Running, ha_managed: false, lock: None };
        Self {
            config: config(),
            owner: Owner { cluster: "home".to_owned(), kubernetes: Some("uid-1".to_owned()) },
            vmid: Vmid(9100),
            set: set.into(),
            marker,
            steady: (Duration::from_hours(1), LOOKS),
            record: None,
            unreadable: false,
            node: None,
            twins: Vec::new(),
            live: Some(Live { quorate: true, status, tasks: Vec::new(), sees_tasks: true }),
        }
    }

    fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self::new();
        change(&mut case);
        case
    }

    fn set(key: &'static str, value: &str) -> Self {
        Self::with(|case| case.set.push((key, value.to_owned())))
    }

    fn live(change: impl FnOnce(&mut Live)) -> Self {
        Self::with(|case| change(case.live.as_mut().unwrap()))
    }

    fn verdict(&self) -> Verdict {
        let notes = ("description", self.marker.describe(""));
        let all = std::iter::once(&notes).chain(&self.set);
        let vm: VmConfig = all.map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let (steady, looks) = self.steady;
        let vm = Vm { vmid: self.vmid, host: &HostKey::from("pve1"), config: &vm, steady, looks };
        let records: Vec<&Record> = self.record.iter().collect();
        let nodes: Vec<&Node> = self.node.iter().collect();
        let around = Around {
            config: &self.config,
            owner: &self.owner,
            records: &records,
            unreadable: self.unreadable,
            nodes: &nodes,
            twins: &self.twins,
            live: self.live.as_ref(),
        };
        verdict(vm, &around)
    }
}

#[test]
fn a_vm_of_which_everything_is_proven_is_an_orphan() {
    for case in [
        Case::new(),
        // Marks from early versions have no cluster uid.
        Case::with(|case| case.marker.kubernetes = None),
        Case::with(|case| case.record = Some(Record::example())),
        Case::with(|case| case.node = Some(Node { name: "other".to_owned(), ..Node::default() })),
    ] {
        let verdict = case.verdict();
        assert_eq!(verdict.missing, []);
        assert!(verdict.is_proven());
        assert_eq!(verdict.proof.len(), 9, "{verdict:?}");
    }
}

#[test]
fn each_proof_that_is_missing_keeps_it() {
    let node = |change: fn(&mut Node)| {
        let mut node = Node::default();
        change(&mut node);
        Case::with(|case| case.node = Some(node))
    };
    let record = |change: fn(&mut Record)| {
        let mut record = Record::example();
        change(&mut record);
        Case::with(|case| case.record = Some(record))
    };
    let age = |steady, looks| Missing::Age { steady, after: Duration::from_hours(1), looks };
    let cases = vec![
        (Case::with(|case| case.marker.cluster = "shop".into()), Missing::OtherCluster("shop".into())),
        (
            Case::with(|case| case.marker.kubernetes = Some("uid-2".into())),
            Missing::OtherKubernetes("uid-2".into()),
        ),
        (Case::with(|case| case.owner.kubernetes = None), Missing::UidUnknown),
        (Case::with(|case| case.marker.pool = "gone".into()), Missing::NoPool("gone".into())),
        (Case::with(|case| case.vmid = Vmid(9110)), Missing::Vmid(Vmid(9110), "workers".into())),
        (Case::set("name", "mine"), Missing::Name("mine".into(), "workers".into())),
        (record(|record| record.id = "m-1".into()), Missing::Record(Record::example().name)),
        (record(|record| record.slot.vmid = Vmid(9100)), Missing::Record(Record::example().name)),
        (record(|record| record.smbios_uuid = Some(UUID.into())), Missing::Record(Record::example().name)),
        (record(|record| record.name = NAME.into()), Missing::Record(NAME.into())),
        (Case::with(|case| case.unreadable = true), Missing::UnreadableRecord),
        (node(|node| node.name = NAME.into()), Missing::Node(NAME.into())),
        (node(|node| node.system_uuid = UUID.into()), Missing::Node(String::new())),
        (node(|node| node.internal_ips = vec!["10.0.0.11".into()]), Missing::Node(String::new())),
        (Case::set("smbios1", "base64=1"), Missing::Uuid),
        (Case::with(|case| case.twins = vec![Vmid(9105)]), Missing::Twin(Vmid(9105))),
        (Case::with(|case| case.steady.0 = Duration::from_mins(59)), age(Duration::from_mins(59), LOOKS)),
        (Case::with(|case| case.steady.1 = LOOKS - 1), age(Duration::from_hours(1), LOOKS - 1)),
        (Case::set("template", "1"), Missing::Template),
        (Case::set("lock", "backup"), Missing::Locked("backup".into())),
        (Case::set("protection", "1"), Missing::Protected),
        (Case::set("parent", "before"), Missing::Snapshot("before".into())),
        (Case::live(|live| live.quorate = false), Missing::Quorum),
        (Case::live(|live| live.tasks = vec!["vzdump".into()]), Missing::Task("vzdump".into())),
        (Case::live(|live| live.sees_tasks = false), Missing::TasksHidden),
        (Case::live(|live| live.status.lock = Some("migrate".into())), Missing::Locked("migrate".into())),
        (Case::live(|live| live.status.ha_managed = true), Missing::Ha),
    ];
    for (case, missing) in cases {
        let verdict = case.verdict();
        assert!(!verdict.is_proven());
        assert_eq!(verdict.missing, [missing]);
    }
    let disk = Case::set("scsi3", "local-lvm:vm-9100-disk-7,size=1G").verdict();
    assert!(matches!(disk.missing.as_slice(), [Missing::Disk(what)] if what.contains("`scsi3`")), "{disk:?}");
}

#[test]
fn what_was_not_asked_yet_proves_nothing_and_is_missing_nowhere() {
    let verdict = Case::with(|case| case.live = None).verdict();
    assert!(verdict.is_proven());
    assert!(!verdict.proof.contains(&Proof::Quorum));
}
