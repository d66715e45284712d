//! Reads the existing templates, carries out the steps one at a time, and reads back each result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::Vmid;
use thiserror::Error;
use tokio::time::Instant;

use super::mark::TemplateMark;
use super::survey::{Found, Place, Step};
use proxmox::{Client, ClusterResources, Download, Error, Exit, Kind, Upid, VmConfig, WaitError};
use settings::Template;

/// The initial interval for polling a task, and the initial pause between two attempts.
const LOOK: Duration = Duration::from_millis(300);
/// How long an unanswered call can still take effect: Proxmox VE's proxy gives up after 30 s.
const ON_ITS_WAY: Duration = Duration::from_secs(45);
/// The limit for a step that usually takes seconds.
const SHORT: Duration = Duration::from_mins(5);
/// The maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// The creation of a VM is given up after this many calls without effect.
const TRIES: u32 = 3;

/// Why a step was not completed.
#[derive(Debug, Error)]
pub enum Stop {
    /// A call failed permanently.
    #[error(transparent)]
    Proxmox(#[from] Error),
    /// A task could not be polled, or took too long.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A task failed.
    #[error("{what} failed: {text}")]
    Task {
        /// The task's purpose.
        what: &'static str,
        /// Proxmox VE's message.
        text: String,
    },
    /// All VMIDs of the template are taken.
    #[error("no VMID in {0}-{1} is free: widen `vmids`, or remove unneeded guests")]
    NoVmid(u32, u32),
    /// The VM with this VMID does not bear the template's mark.
    #[error("VM {0} no longer bears this template's mark, so the VM is left alone")]
    NotOurs(Vmid),
    /// The VM is missing or in an unexpected state.
    #[error("VM {0}: {1}")]
    Wrong(Vmid, &'static str),
    /// The Proxmox VE cluster has no quorum, so no template is destroyed.
    #[error("the Proxmox VE cluster is not quorate: no template is destroyed")]
    NoQuorum,
}

impl Stop {
    fn passes(&self) -> bool {
        let kind = match self {
            Self::Proxmox(error) => error.kind,
            Self::Task { text, .. } => match Exit::Failed(text.clone()).problem() {
                Some(kind) => kind,
                None => return false,
            },
            _ => return false,
        };
        matches!(
            kind,
            Kind::Busy | Kind::HostUnreachable | Kind::OutcomeUnknown | Kind::Changed | Kind::NoQuorum
        )
    }
}

/// The places that need the template, and the hosts that are left out because they are offline.
pub fn places(template: &Template, seen: &ClusterResources) -> (Vec<Place>, Vec<String>) {
    let wanted = |host: &&String| template.hosts.is_empty() || template.hosts.contains(host);
    let (online, offline): (Vec<&String>, Vec<&String>) =
        seen.hosts.keys().partition(|host| seen.hosts[*host].online);
    let on = |host: &str| seen.storages.iter().find(|one| one.host == host && one.name == template.storage);
    let with: Vec<&String> = online.into_iter().filter(|host| on(host).is_some()).collect();
    let shared = with.iter().any(|host| on(host).is_some_and(|storage| storage.size.shared));
    let left_out = offline.into_iter().filter(wanted).cloned().collect();
    let places = if shared {
        let first = with.iter().copied().find(wanted).into_iter();
        let hosts: Vec<String> = seen.hosts.keys().cloned().collect();
        first.map(|host| Place { host: host.clone(), hosts: hosts.clone() }).collect()
    } else {
        let own = with.into_iter().filter(wanted);
        own.map(|host| Place { host: host.clone(), hosts: vec![host.clone()] }).collect()
    };
    (places, left_out)
}

/// Finds the VMs that bear the template's mark, and unmanaged templates with the template's name. Makes one
/// call for each candidate.
///
/// # Errors
/// Returns an error if the configuration of a candidate cannot be read.
pub async fn look(
    client: &Client,
    cluster: &str,
    template: &Template,
    seen: &ClusterResources,
) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    let ours = |vmid: Vmid| template.vmids.contains(&vmid.0);
    let named = |name: Option<&str>| name == Some(&template.name);
    let guests = seen.guests.values().filter(|guest| !guest.container);
    for guest in guests.filter(|guest| ours(guest.vmid) || named(guest.name.as_deref())) {
        if !seen.hosts.get(&guest.host).is_some_and(|host| host.online) {
            continue;
        }
        let config = match client.config(&guest.host, guest.vmid).await {
            Ok(config) => config,
            // The VM has disappeared, or the token cannot see it.
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Forbidden) => continue,
            Err(error) => return Err(error),
        };
        let mark = TemplateMark::read(config.get("description"))
            .filter(|mark| mark.cluster == cluster && mark.template == template.name)
            // A clone made by hand inherits a mark that names another VM.
            .filter(|mark| mark.vmid.is_none_or(|own| own == guest.vmid));
        if mark.is_some() || config.is_template() && named(config.get("name")) {
            found.push(Found { vmid: guest.vmid, host: guest.host.clone(), config, mark });
        }
    }
    Ok(found)
}

/// Carries out one step, and reports its progress and its result.
///
/// # Errors
/// Returns an error if the step failed. The next run continues from the current state.
pub async fn make(
    client: &Client,
    template: &Template,
    step: &Step,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<(), Stop> {
    let work = Work { client, template };
    match step {
        Step::Keep(..) | Step::Blocked(..) => Ok(()),
        Step::Make(host, mark) => {
            let file = work.download(host, say).await?;
            let vmid = work.create(host, mark, &file, say).await?;
            work.finish(vmid, host, &mark.given_to(vmid), say).await
        }
        Step::Finish(vmid, host, mark) => work.finish(*vmid, host, mark, say).await,
        Step::Serve(vmid, host, mark) => work.rename(*vmid, host, mark, &template.name, say).await,
        Step::Aside(vmid, host, mark) => work.rename(*vmid, host, mark, &mark.aside(), say).await,
        Step::Destroy(vmid, host, mark) => work.destroy(*vmid, host, mark, say).await,
    }
}

struct Work<'a> {
    client: &'a Client,
    template: &'a Template,
}

type Say<'a> = &'a mut (dyn FnMut(String) + Send);

impl Work<'_> {
    /// Downloads the image to the host's storage, and returns its volume.
    async fn download(&self, host: &str, say: Say<'_>) -> Result<String, Stop> {
        let image = &self.template.image;
        let file = format!("{}-{:.16}.{}", self.template.name, image.checksum.digest, image.format);
        say(format!("{host}: downloading {} to {}", public(&image.url), image.storage));
        let download = Download {
            url: image.url.clone(),
            file: file.clone(),
            algorithm: image.checksum.algorithm.clone(),
            digest: image.checksum.digest.clone(),
        };
        patiently(self.template.timeout, async || {
            let upid = self.client.download_image(host, &image.storage, &download).await?;
            self.ended("the download", &upid, self.template.timeout).await
        })
        .await?;
        Ok(format!("{}:import/{file}", image.storage))
    }

    /// Creates a VM whose disk does not have its final size yet, and returns its VMID.
    async fn create(&self, host: &str, mark: &TemplateMark, file: &str, say: Say<'_>) -> Result<Vmid, Stop> {
        let pool = self.template.resource_pool.as_deref();
        let (mut taken, mut tries) = (BTreeSet::new(), 0);
        loop {
            let vmid = self.free(&taken).await?;
            say(format!("{host}: creating VM {vmid}, importing its disk to {}", self.template.storage));
            let mark = mark.given_to(vmid);
            let options = options(self.template, &mark, file);
            let (sent, mut limit) = (Instant::now(), self.template.timeout.max(SHORT));
            match self.client.create_vm(host, vmid, &options, pool).await {
                Ok(upid) => match self.client.wait_task(&upid, self.template.timeout, LOOK).await? {
                    Exit::Ok | Exit::Warnings(_) => {}
                    // The task's worker was killed, so waiting longer would not help.
                    Exit::Unknown => limit = SHORT,
                    Exit::Failed(text) if is_taken(&text) => {
                        taken.insert(vmid);
                        continue;
                    }
                    Exit::Failed(text) => return Err(Stop::Task { what: "the creation", text }),
                },
                Err(error) if error.kind == Kind::Exists => {
                    taken.insert(vmid);
                    continue;
                }
                Err(error) if Stop::from(error.clone()).passes() => {
                    tracing::debug!(%error, vmid = vmid.0, "it is unknown whether a VM is being created");
                }
                Err(error) => return Err(error.into()),
            }
            if self.settled(vmid, host, &mark, sent, sent.elapsed() + limit).await? {
                return Ok(vmid);
            }
            tries += 1;
            if tries >= TRIES {
                return Err(Stop::Wrong(vmid, "the creation of the VM had no effect"));
            }
        }
    }

    /// The first free VMID.
    async fn free(&self, taken: &BTreeSet<Vmid>) -> Result<Vmid, Stop> {
        for vmid in self.template.vmids.clone().filter(|vmid| !taken.contains(&Vmid(*vmid))) {
            if !patiently(SHORT, async || Ok(self.client.vmid_taken(Vmid(vmid)).await?)).await? {
                return Ok(Vmid(vmid));
            }
        }
        Err(Stop::NoVmid(*self.template.vmids.start(), *self.template.vmids.end()))
    }

    /// Waits until a VM that is being created exists, is unlocked and bears the mark. Returns `false` if the
    /// creation had no effect.
    async fn settled(
        &self,
        vmid: Vmid,
        host: &str,
        mark: &TemplateMark,
        sent: Instant,
        limit: Duration,
    ) -> Result<bool, Stop> {
        loop {
            match self.client.config(host, vmid).await {
                Ok(config) if config.lock().is_some() => {}
                Ok(config) if bears(&config, vmid, mark) => return Ok(true),
                Ok(_) => return Err(Stop::NotOurs(vmid)),
                // A token with rights only on a resource pool cannot see the VM until the VM is in that pool.
                Err(error) if matches!(error.kind, Kind::NotFound | Kind::Forbidden) => {
                    if sent.elapsed() >= ON_ITS_WAY && !self.client.vmid_taken(vmid).await? {
                        return Ok(false);
                    }
                }
                Err(error) if Stop::from(error.clone()).passes() => {}
                Err(error) => return Err(error.into()),
            }
            if sent.elapsed() >= limit {
                return Err(Stop::Wrong(
                    vmid,
                    "the VM does not exist, or is still locked: run `qm config` on its host to see which",
                ));
            }
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    /// Turns a VM with its disk into the template that pools use.
    async fn finish(&self, vmid: Vmid, host: &str, mark: &TemplateMark, say: Say<'_>) -> Result<(), Stop> {
        let config = self.ours(vmid, host, mark).await?;
        let size = config.drive_size("scsi0").ok_or(Stop::Wrong(vmid, "the VM has no disk scsi0"))?;
        if config.cloudinit_drive().is_none() {
            return Err(Stop::Wrong(vmid, "the VM has no cloud-init drive"));
        }
        if let Some(bytes) = self.template.disk.filter(|bytes| *bytes > size && !config.is_template()) {
            patiently(SHORT, async || {
                self.ours(vmid, host, mark).await?;
                let upid = self.client.resize(host, vmid, "scsi0", bytes).await?;
                self.ended("the resize", &upid, SHORT).await
            })
            .await?;
        }
        say(format!("{host}: converting VM {vmid} to a template"));
        patiently(SHORT, async || {
            if self.ours(vmid, host, mark).await?.is_template() {
                return Ok(());
            }
            let upid = self.client.convert_to_template(host, vmid).await?;
            self.ended("the conversion", &upid, SHORT).await
        })
        .await?;
        if !self.ours(vmid, host, mark).await?.is_template() {
            return Err(Stop::Wrong(vmid, "the VM is still not a template after the conversion"));
        }
        self.rename(vmid, host, mark, &self.template.name, say).await
    }

    async fn rename(
        &self,
        vmid: Vmid,
        host: &str,
        mark: &TemplateMark,
        name: &str,
        say: Say<'_>,
    ) -> Result<(), Stop> {
        patiently(SHORT, async || {
            let config = self.ours(vmid, host, mark).await?;
            if config.get("name") == Some(name) {
                return Ok(());
            }
            let set = BTreeMap::from([("name".to_owned(), name.to_owned())]);
            let digest = config.digest().unwrap_or_default();
            match self.client.set_config(host, vmid, &set, &[], digest, 20).await? {
                Some(upid) => self.ended("the new name", &upid, SHORT).await,
                None => Ok(()),
            }
        })
        .await?;
        say(format!("{host}: VM {vmid} was renamed to {name}"));
        Ok(())
    }

    async fn destroy(&self, vmid: Vmid, host: &str, mark: &TemplateMark, say: Say<'_>) -> Result<(), Stop> {
        const DESTROYED: &str = "was destroyed";
        let outcome = patiently(SHORT, async || {
            if !self.client.quorate().await? {
                return Err(Stop::NoQuorum);
            }
            // The last check, right before the VM is destroyed.
            match self.ours(vmid, host, mark).await {
                Err(Stop::Proxmox(error)) if error.kind == Kind::NotFound => return Ok(DESTROYED),
                Err(stop) => return Err(stop),
                // Since the last read, the VM has been given the name that pools use.
                Ok(config) if config.get("name") == Some(&self.template.name) => {
                    return Ok("is kept: it now has the name that pools use");
                }
                Ok(_) => {}
            }
            let upid = self.client.destroy(host, vmid).await?;
            match self.ended("the destruction", &upid, SHORT).await {
                // Proxmox VE looks for clones itself, under the storage's lock, before it removes anything.
                Err(Stop::Task { text, .. }) if text.contains("is still in use by linked clone") => {
                    Ok("is kept: clones of it are in use")
                }
                other => other.map(|()| DESTROYED),
            }
        })
        .await?;
        say(format!("{host}: VM {vmid}, version {}, {outcome}", mark.version));
        Ok(())
    }

    /// The VM's configuration, if it still bears the mark.
    async fn ours(&self, vmid: Vmid, host: &str, mark: &TemplateMark) -> Result<VmConfig, Stop> {
        let config = self.client.config(host, vmid).await?;
        if bears(&config, vmid, mark) { Ok(config) } else { Err(Stop::NotOurs(vmid)) }
    }

    async fn ended(&self, what: &'static str, upid: &Upid, limit: Duration) -> Result<(), Stop> {
        match self.client.wait_task(upid, limit, LOOK).await? {
            // If the worker vanished, reading the VM back shows the outcome.
            Exit::Ok | Exit::Warnings(_) | Exit::Unknown => Ok(()),
            Exit::Failed(text) => Err(Stop::Task { what, text }),
        }
    }
}

/// Whether the VM bears this mark, and the mark was given to this VM.
fn bears(config: &VmConfig, vmid: Vmid, mark: &TemplateMark) -> bool {
    let borne = TemplateMark::read(config.get("description"));
    borne.as_ref() == Some(mark) && mark.may_be_of(vmid, config.get("name"))
}

fn is_taken(text: &str) -> bool {
    Exit::Failed(text.to_owned()).problem() == Some(Kind::Exists)
}

/// Removes the parts of a URL that may be secret.
fn public(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// The options of the VM that becomes the template.
fn options(template: &Template, mark: &TemplateMark, file: &str) -> BTreeMap<String, String> {
    let about =
        format!("pve-autoscaler template {}.\nMade from {}.", template.name, public(&template.image.url));
    let tag = template.vlan.map(|vlan| format!(",tag={vlan}")).unwrap_or_default();
    let mut options: BTreeMap<String, String> = [
        ("name", mark.aside()),
        ("description", mark.describe(&about)),
        ("cores", template.cores.to_string()),
        ("memory", (template.memory >> 20).to_string()),
        ("ostype", "l26".to_owned()),
        ("scsihw", "virtio-scsi-single".to_owned()),
        ("scsi0", format!("{}:0,import-from={file},discard=on", template.storage)),
        ("ide2", format!("{}:cloudinit", template.storage)),
        ("boot", "order=scsi0".to_owned()),
        ("agent", "enabled=1".to_owned()),
        ("ciupgrade", "0".to_owned()),
        ("net0", format!("virtio,bridge={}{tag}", template.bridge)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if template.serial {
        options.insert("serial0".to_owned(), "socket".to_owned());
        options.insert("vga".to_owned(), "serial0".to_owned());
    }
    options.extend(template.vm_options.clone());
    options
}

/// Repeats an operation that is safe to repeat, until it succeeds or fails permanently, or until the limit is
/// exceeded.
async fn patiently<T>(limit: Duration, mut attempt: impl AsyncFnMut() -> Result<T, Stop>) -> Result<T, Stop> {
    let (started, mut pause) = (Instant::now(), LOOK);
    loop {
        match attempt().await {
            Err(stop) if stop.passes() && started.elapsed() + pause < limit => {
                tracing::debug!(error = %stop, ?pause, "trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            outcome => return outcome,
        }
    }
}
