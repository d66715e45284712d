//! The parsers, and what must be true for any input to them.

use bytes::Bytes;
use clap::ValueEnum;
use http::{Request, Response};
use pve_autoscaler::model::{Vmid, quantity};
use pve_autoscaler::proxmox::{Client, Settings, TaskFilter, Transport, Upid, marker};
use pve_autoscaler::settings::{self, Needs};
use pve_autoscaler::{bootstrap, planning, snapshot};
use secrecy::SecretString;
use serde_json::json;
use tokio::runtime::Runtime;
use tower::{BoxError, service_fn};

/// The pools that are used to plan for a snapshot.
const POOLS: &str = "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n";
/// The number of characters before and after the dot of a bootstrap token.
const TOKEN: (usize, usize) = (6, 16);

/// A parser that can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The configuration file
    Configuration,
    /// A snapshot of a cluster, and the plan for it
    Snapshot,
    /// A response of Proxmox VE: the status in the first line, then the body
    Answer,
    /// The output of a program in a guest
    Agent,
    /// A Kubernetes quantity
    Quantity,
    /// A property string of a VM
    Property,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 6] =
        [Self::Configuration, Self::Snapshot, Self::Answer, Self::Agent, Self::Quantity, Self::Property];

    /// The target's name, which is also the name of its folder with known inputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Snapshot => "snapshot",
            Self::Answer => "answer",
            Self::Agent => "agent",
            Self::Quantity => "quantity",
            Self::Property => "property",
        }
    }

    /// Reads one input. Returns whether the input was valid, or a description of the failure.
    pub(super) fn reads(self, input: &[u8], runtime: &Runtime) -> Result<bool, String> {
        let text = String::from_utf8_lossy(input);
        match self {
            Self::Configuration => Ok(configuration(&text)),
            Self::Snapshot => snapshot(&text),
            Self::Answer => runtime.block_on(answer(&text)),
            Self::Agent => runtime.block_on(agent(input)),
            Self::Quantity => quantity(&text),
            Self::Property => runtime.block_on(property(&text)),
        }
    }
}

fn configuration(text: &str) -> bool {
    let mut fine = false;
    for needs in [Needs::Plan, Needs::Run] {
        match settings::parse("c.toml", text, needs) {
            Ok(config) => {
                fine = true;
                for pool in &config.pools {
                    pool.labels_for("pve1", "w-1", Vmid(100));
                    let _ = pool.slots();
                }
            }
            Err(report) => {
                let _ = (report.plain(), report.styled());
                for finding in report.findings() {
                    let _ = report.position(finding);
                }
            }
        }
    }
    fine
}

fn snapshot(text: &str) -> Result<bool, String> {
    let Ok((found, _)) = snapshot::read(text) else { return Ok(false) };
    let pools = settings::parse("c.toml", POOLS, Needs::Plan).map_err(|report| report.plain())?;
    let plan = planning::plan(&found, &pools);
    if planning::plan(&found, &pools) != plan {
        return Err("the same snapshot gives two different plans".to_owned());
    }
    if let Ok(written) = snapshot::write(&found) {
        let (again, _) = snapshot::read(&written)
            .map_err(|error| format!("the written text cannot be read again: {error}"))?;
        let rewritten = snapshot::write(&again).map_err(|error| error.to_string())?;
        if rewritten != written {
            return Err("reading the text and writing it again gives a different text".to_owned());
        }
    }
    Ok(true)
}

/// A client that receives this response to every call.
fn client(status: u16, body: Vec<u8>) -> Result<Client, String> {
    let body = Bytes::from(body);
    let transport = Transport::new(service_fn(move |_: Request<Bytes>| {
        let response = Response::builder().status(status).body(body.clone());
        async move { response.map_err(BoxError::from) }
    }));
    let settings = Settings {
        endpoints: vec!["https://127.0.0.1:8006".to_owned()],
        token_id: "a@pve!b".to_owned(),
        agent_lane: 1,
        lifecycle_lane: 2,
        linked_clones: 4,
        full_clones: 2,
    };
    Client::new(transport, settings, &SecretString::from("secret")).map_err(|error| error.to_string())
}

async fn answer(text: &str) -> Result<bool, String> {
    let (status, body) = text.split_once('\n').unwrap_or(("200", text));
    let status = status.trim().parse().ok().filter(|status| (200..600).contains(status)).unwrap_or(200);
    let pve = client(status, body.as_bytes().to_vec())?;
    let Some(upid) = Upid::parse("UPID:pve1:00001234:00005678:66AABBCC:qmclone:9000:a@pve!b:") else {
        return Err("a UPID cannot be parsed".to_owned());
    };
    let filter =
        TaskFilter { vmid: Some(Vmid(9000)), kind: Some("qmclone".to_owned()), since: Some(1), limit: None };
    let mut fine = false;
    if let Ok(seen) = pve.resources().await {
        let _ = (seen.hosts(true), seen.templates().len(), seen.find("k8s-worker").len());
        fine = true;
    }
    if let Ok(config) = pve.config("pve1", Vmid(9000)).await {
        look_at(&config)?;
        fine = true;
    }
    fine |= pve.vm_status("pve1", Vmid(9000)).await.is_ok() | pve.power("pve1", Vmid(9000)).await.is_ok();
    fine |= pve.task_status(&upid).await.is_ok() | pve.task_log_tail(&upid, 20).await.is_ok();
    fine |= pve.tasks("pve1", &filter).await.is_ok() | pve.clone_target(&upid).await.is_ok();
    fine |= pve.leaked_disks(&upid).await.is_ok() | pve.disks_of("pve1", "local", Vmid(9000)).await.is_ok();
    fine |= pve.cluster_status().await.is_ok() | pve.quorate().await.is_ok() | pve.ha_status().await.is_ok();
    fine |= pve.pool_members("p").await.is_ok() | pve.bridges("pve1").await.is_ok();
    fine |= pve.privileges().await.is_ok()
        | pve.privileges_on("/").await.is_ok()
        | pve.vmid_taken(Vmid(9000)).await.is_ok();
    fine |= pve.storage_config().await.is_ok() | pve.storages_on("pve1", None).await.is_ok();
    fine |= pve.version().await.is_ok();
    fine |= pve.start("pve1", Vmid(9000)).await.is_ok() | pve.destroy("pve1", Vmid(9000)).await.is_ok();
    fine |= pve.agent_os_info("pve1", Vmid(9000)).await.is_ok()
        | pve.agent_interfaces("pve1", Vmid(9000)).await.is_ok();
    Ok(fine)
}

/// Reads every part of a VM's configuration that the daemon reads.
fn look_at(config: &pve_autoscaler::proxmox::VmConfig) -> Result<(), String> {
    let _ = (config.owner(), config.digest(), config.lock(), config.is_template(), config.agent_enabled());
    let _ = (config.upgrades_packages(), config.cloudinit_drive(), config.smbios_uuid(), config.volumes());
    let _ = (config.drives_without_backup(), config.drive_size("scsi0"));
    let set = [("bridge", "vmbr7".to_owned()), ("tag", "42".to_owned())];
    let net = config.net_with("net0", None, &set);
    let count = |key: &str| net.split(',').filter(|part| part.starts_with(key)).count();
    if count("bridge=") != 1 || count("tag=") != 1 {
        return Err(format!("a network device does not have exactly one bridge and one tag: {net}"));
    }
    Ok(())
}

/// Checks how the output of a program in a guest is read. The guest agent returns each byte of the output as
/// one character.
async fn agent(input: &[u8]) -> Result<bool, String> {
    let text: String = input.iter().map(|byte| char::from(*byte)).collect();
    let mut fine = false;
    for code in [0, 1, 71, 72, 75, 124, 127] {
        let body = json!({ "data": { "exited": 1, "exitcode": code, "out-data": text, "err-data": text } });
        let pve = client(200, body.to_string().into_bytes())?;
        let status = pve.agent_exec_status("pve1", Vmid(9000), 1).await.map_err(|error| error.to_string())?;
        if status.stdout != String::from_utf8_lossy(input) {
            return Err("the output differs from what was written".to_owned());
        }
        match bootstrap::read(&bootstrap::GuestCommand::Kubeadm, None, &status) {
            bootstrap::JoinEnd::Failed(why) => {
                if let Some(token) = token_in(&why) {
                    return Err(format!("the message contains the token {token}"));
                }
            }
            bootstrap::JoinEnd::Joined { .. } | bootstrap::JoinEnd::Busy => fine = true,
        }
    }
    Ok(fine)
}

/// A part of the text that has the form of a token.
fn token_in(text: &str) -> Option<String> {
    let like_one = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let mut pairs = words.filter_map(|word| word.split_once('.'));
    let found = pairs.find(|(id, secret)| {
        id.len() == TOKEN.0 && secret.len() == TOKEN.1 && like_one(id) && like_one(secret)
    })?;
    Some(format!("{}.{}", found.0, found.1))
}

fn quantity(text: &str) -> Result<bool, String> {
    let text = text.trim_end_matches('\n');
    let mut fine = false;
    if let Ok(milli) = quantity::milli(text) {
        fine = true;
        if quantity::milli(&quantity::from_milli(milli)) != Ok(milli) {
            return Err(format!(
                "{milli} thousandths cannot be read back from {}",
                quantity::from_milli(milli)
            ));
        }
    }
    if let Ok(units) = quantity::units(text) {
        fine = true;
        if quantity::units(&quantity::binary(units)) != Ok(units) {
            return Err(format!("{units} cannot be read back from {}", quantity::binary(units)));
        }
    }
    Ok(fine)
}

async fn property(text: &str) -> Result<bool, String> {
    let text = text.trim_end_matches('\n');
    let keys = [
        "net0",
        "scsi0",
        "ide2",
        "efidisk0",
        "smbios1",
        "agent",
        "description",
        "ipconfig0",
        "lock",
        "template",
    ];
    let data: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), text.into())).collect();
    let pve = client(200, json!({ "data": data }).to_string().into_bytes())?;
    let config = pve.config("pve1", Vmid(9000)).await.map_err(|error| error.to_string())?;
    look_at(&config)?;
    let _ = (Upid::parse(text), marker::read(Some(text)));
    Ok(true)
}
