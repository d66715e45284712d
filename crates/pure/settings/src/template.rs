//! `[[template]]`: a template that `pve-autoscaler template` creates from a cloud image.

use model::Vmid;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::name_rules;
use super::one_or_many::Scalar;
use super::pool::{Pool, free_options};
use super::region::Regions;
use super::values::Checker;

/// Secure checksum algorithms that Proxmox VE supports, each with the number of hexadecimal digits in its
/// checksums.
const ALGORITHMS: [(&str, usize); 4] = [("sha224", 56), ("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// A disk image that hosts download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its URL.
    pub url: String,
    /// Its checksum.
    pub checksum: Checksum,
    /// `qcow2`, `raw` or `vmdk`.
    pub format: String,
    /// The file-based storage that the image is downloaded to.
    pub storage: String,
}

/// A file's expected checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// E.g. `sha256`.
    pub algorithm: String,
    /// The checksum in lower-case hexadecimal digits.
    pub digest: String,
}

/// A checked `[[template]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The template's name, which pools refer to.
    pub name: String,
    /// The region that the template is created in; `None` if the only cluster has no name.
    pub region: Option<String>,
    /// The image that the template's disk is created from.
    pub image: Image,
    /// VMIDs for the template and its earlier versions.
    pub vmids: RangeInclusive<u32>,
    /// The storage for the template's disk and cloud-init drive.
    pub storage: String,
    /// The hosts on which a template is created if the storage is not shared; empty: all hosts.
    pub hosts: Vec<String>,
    /// The size in bytes to which the template's disk is grown. If `None`, the disk keeps the image's size.
    pub disk: Option<i64>,
    /// The template's number of vCPUs. Machines use their pool's value instead.
    pub cores: u32,
    /// The template's memory in bytes. Machines use their pool's value instead.
    pub memory: i64,
    /// The bridge of the template's network device.
    pub bridge: String,
    /// The VLAN.
    pub vlan: Option<u16>,
    /// Whether the template has a serial console, which is also its display.
    pub serial: bool,
    /// The resource pool that the template is put into.
    pub resource_pool: Option<String>,
    /// Additional VM options for the template.
    pub vm_options: BTreeMap<String, String>,
    /// Any text that the operator uses to distinguish versions.
    pub version: String,
    /// Time limit for downloading the image, and for importing it as a disk.
    pub timeout: Duration,
}

/// A `[[template]]` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: Spanned<String>,
    region: Option<Spanned<String>>,
    image: Spanned<String>,
    checksum: Spanned<String>,
    format: Option<Spanned<String>>,
    image_storage: Option<Spanned<String>>,
    vmids: Spanned<String>,
    storage: Spanned<String>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    disk: Option<Spanned<String>>,
    cores: Option<Spanned<u32>>,
    memory: Option<Spanned<String>>,
    bridge: Spanned<String>,
    vlan: Option<Spanned<u16>>,
    serial: Option<bool>,
    resource_pool: Option<Spanned<String>>,
    #[serde(default)]
    vm_options: BTreeMap<Spanned<String>, Spanned<Scalar>>,
    version: Option<String>,
    timeout: Option<Spanned<String>>,
}

/// Checks each template by itself, against the other templates, and against the pools' VMIDs.
pub(super) fn check_all(
    written: &[Spanned<Written>],
    pools: &[Pool],
    regions: &Regions,
    checker: &mut Checker,
) -> Vec<Template> {
    let mut seen: Vec<(Template, Range<usize>, Range<usize>)> = Vec::new();
    for one in written {
        let this = one.get_ref();
        let mut template = this.check(checker);
        let what = format!("template `{}`", template.name);
        template.region = regions.place(&what, this.region.as_ref(), this.name.span(), checker).region;
        let (named, numbered) = (this.name.span(), this.vmids.span());
        for (other, name, vmids) in seen.iter().filter(|(other, ..)| other.region == template.region) {
            if other.name == template.name {
                let title = format!("two templates are called `{}`", template.name);
                checker.clash(title, named.clone(), "must be unique", name.clone(), "rename one of them");
            }
            if meets(&other.vmids, &template.vmids) {
                let title = format!("templates `{}` and `{}` share VMIDs", other.name, template.name);
                let help = "two templates must not share a VMID: narrow one of the ranges";
                checker.clash(title, numbered.clone(), "overlaps", vmids.clone(), help);
            }
        }
        let here = |pool: &&Pool| pool.region == template.region;
        let mut pools = pools.iter().filter(here);
        let pool = pools.find(|pool| pool.vmids.iter().any(|range| meets(range, &template.vmids)));
        if let Some(pool) = pool {
            let title = format!("template `{}` and pool `{}` share VMIDs", template.name, pool.name);
            checker.wrong(title, numbered.clone(), "overlaps", "give the template its own range");
        }
        seen.push((template, named, numbered));
    }
    seen.into_iter().map(|(template, _, _)| template).collect()
}

fn meets(one: &RangeInclusive<u32>, other: &RangeInclusive<u32>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

impl Written {
    fn check(&self, checker: &mut Checker) -> Template {
        let name = self.name.get_ref();
        if !name_rules::is_domain(name) || name.len() > 40 || name.chars().all(|c| c.is_ascii_digit()) {
            let title = format!("`{name}` is not a valid template name");
            let label = "expected at most 40 letters, digits, `-` and `.`, and not only digits";
            checker.wrong(title, self.name.span(), label, "");
        }
        let memory = self.memory.as_ref().map_or(2 << 30, |size| {
            let bytes = checker.size(&format!("template `{name}`: `memory`"), size);
            if bytes < 16 << 20 {
                let title = format!("template `{name}`: `memory` is too small");
                checker.wrong(title, size.span(), "must be at least \"16MiB\"", "");
            }
            bytes
        });
        let disk = self.disk.as_ref().map(|size| checker.size(&format!("template `{name}`: `disk`"), size));
        let storage = self.storage(Some(&self.storage), checker).unwrap_or_default();
        for host in
            self.hosts.iter().filter(|host| !name_rules::is_label(&host.get_ref().to_ascii_lowercase()))
        {
            let title = format!("template `{name}`: `{}` is not a valid host name", host.get_ref());
            let help = "use the host's name in Proxmox VE, not its address";
            checker.wrong(title, host.span(), "expected e.g. \"pve1\"", help);
        }
        let bridge = checker.named(
            Some(&self.bridge),
            name_rules::is_bridge,
            |text| format!("template `{name}`: `{text}` is not a valid bridge name"),
            "expected e.g. \"vmbr0\"",
        );
        if let Some(vlan) = self.vlan.as_ref().filter(|vlan| !(1..=4094).contains(vlan.get_ref())) {
            let title = format!("template `{name}`: `vlan` is not a VLAN tag");
            checker.wrong(title, vlan.span(), "must be from 1 to 4094", "");
        }
        let resource_pool = checker.named(
            self.resource_pool.as_ref(),
            name_rules::is_resource_pool,
            |text| format!("template `{name}`: `{text}` is not a valid resource pool name"),
            "expected at most three levels, separated by `/`, each of letters, digits, `-`, `_` and `.`",
        );
        Template {
            name: name.clone(),
            region: None,
            image: self.image(checker),
            vmids: self.range(checker),
            storage,
            hosts: self.hosts.iter().map(|host| host.get_ref().clone()).collect(),
            disk,
            cores: checker.count("cores", self.cores.as_ref(), 2, ""),
            memory,
            bridge: bridge.unwrap_or_default(),
            vlan: self.vlan.as_ref().map(|vlan| *vlan.get_ref()),
            serial: self.serial.unwrap_or(true),
            resource_pool,
            vm_options: self.options(checker),
            version: self.version.clone().unwrap_or_default(),
            timeout: checker.positive("timeout", self.timeout.as_ref(), Duration::from_hours(1)),
        }
    }

    fn options(&self, checker: &mut Checker) -> BTreeMap<String, String> {
        let name = self.name.get_ref();
        for key in self.vm_options.keys().filter(|key| key.get_ref().starts_with("hostpci")) {
            let title = format!("template `{name}`: `{}` can only be set in a pool", key.get_ref());
            checker.wrong(title, key.span(), "a device serves one VM at a time", "set it in `[[pool]]`");
        }
        free_options(&format!("template `{name}`"), &self.vm_options, checker)
    }

    fn storage(&self, written: Option<&Spanned<String>>, checker: &mut Checker) -> Option<String> {
        let name = self.name.get_ref();
        let title = |text: &str| format!("template `{name}`: `{text}` is not a valid storage name");
        checker.named(written, name_rules::is_storage, title, "letters, digits, `-`, `_` and `.`")
    }

    fn range(&self, checker: &mut Checker) -> RangeInclusive<u32> {
        let text = self.vmids.get_ref();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|vmid| Vmid::RANGE.contains(vmid));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..=last,
            _ => {
                let title = format!("template `{}`: `{text}` is not a range of VMIDs", self.name.get_ref());
                checker.wrong(title, self.vmids.span(), "expected e.g. \"9000-9019\"", "");
                0..=0
            }
        }
    }

    fn image(&self, checker: &mut Checker) -> Image {
        let (name, url) = (self.name.get_ref(), self.image.get_ref());
        if !(url.starts_with("https://") || url.starts_with("http://")) || url.contains(char::is_whitespace) {
            let title = format!("template `{name}`: `image` is not a valid HTTP or HTTPS URL");
            checker.wrong(title, self.image.span(), "expected `https://…`", "");
        }
        if url.split_once("://").is_some_and(|(_, rest)| rest.split('/').next().unwrap_or("").contains('@')) {
            let title = format!("template `{name}`: `image` contains a password");
            let help = "use a URL that needs no password: task logs show the URL";
            checker.wrong(title, self.image.span(), "the password would be visible to others", help);
        }
        let (algorithm, digest) = self.checksum.get_ref().split_once(':').unwrap_or_default();
        let digest = digest.to_ascii_lowercase();
        let whole = ALGORITHMS.iter().any(|(known, digits)| *known == algorithm && digest.len() == *digits);
        if !whole || !digest.chars().all(|c| c.is_ascii_hexdigit()) {
            let title = format!("template `{name}`: `checksum` is not a valid checksum");
            let help = "copy the checksum that the image's publisher lists, e.g. in a SHA512SUMS file";
            checker.wrong(title, self.checksum.span(), "expected the full checksum, e.g. \"sha512:…\"", help);
        }
        let ending = url.rsplit(['/', '?']).next().unwrap_or_default().rsplit('.').next().unwrap_or_default();
        let format = match (&self.format, ending) {
            (Some(format), _) => format.get_ref().clone(),
            (None, "raw" | "vmdk") => ending.to_owned(),
            // Ubuntu's `.img` files are also qcow2.
            (None, _) => "qcow2".to_owned(),
        };
        if let Some(written) = self.format.as_ref().filter(|_| !["qcow2", "raw", "vmdk"].contains(&&*format))
        {
            let title = format!("template `{name}`: `{format}` is not an image format");
            checker.wrong(title, written.span(), "must be \"qcow2\", \"raw\" or \"vmdk\"", "");
        }
        let storage = self.storage(self.image_storage.as_ref(), checker);
        Image {
            url: url.clone(),
            checksum: Checksum { algorithm: algorithm.to_owned(), digest },
            format,
            storage: storage.unwrap_or_else(|| "local".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    const GOOD: &str = "[[template]]\nname = \"k8s\"\nimage = \"https://a.example/b.img\"\nvmids = \"9000-9009\"\n\
                        storage = \"local-lvm\"\nbridge = \"vmbr0\"\n";

    fn with(lines: &str) -> String {
        format!("{GOOD}checksum = \"sha256:{}\"\n{lines}\n", "0".repeat(64))
    }

    #[test]
    fn a_template_needs_little() {
        let template = parse("c.toml", &with(""), Needs::Plan).unwrap().templates.remove(0);
        assert_eq!((template.image.format.as_str(), template.image.storage.as_str()), ("qcow2", "local"));
        assert_eq!((template.cores, template.memory, template.serial), (2, 2 << 30, true));
    }

    #[test]
    fn what_is_wrong_with_a_template_is_said() {
        for (text, expected) in [
            (with("disk = \"x\""), "`disk` is not a size"),
            (with("memory = \"1MiB\""), "`memory` is too small"),
            (with("format = \"iso\""), "`iso` is not an image format"),
            (with("vlan = 5000"), "`vlan` is not a VLAN tag"),
            (with("hosts = [\"10.0.0.1\"]"), "`10.0.0.1` is not a valid host name"),
            (with("image_storage = \"/x\""), "`/x` is not a valid storage name"),
            (with("resource_pool = \"a b\""), "is not a valid resource pool name"),
            (with("timeout = \"0s\""), "`timeout` must be longer than zero"),
            (with("vm_options = { args = \"-S\" }"), "template `k8s`: `args` can only be set by root"),
            (with("vm_options = { hostpci0 = \"mapping=gpu\" }"), "`hostpci0` can only be set in a pool"),
            (format!("{GOOD}checksum = \"sha256:00\"\n"), "`checksum` is not a valid checksum"),
            (format!("{GOOD}checksum = \"md5:{}\"\n", "0".repeat(32)), "`checksum` is not a valid checksum"),
            (with("").replace("https://", "ftp://"), "`image` is not a valid HTTP or HTTPS URL"),
            (with("").replace("https://", "https://me:secret@"), "`image` contains a password"),
            (with("").replace("9000-9009", "9009-9000"), "is not a range of VMIDs"),
            (with("").replace("\"k8s\"", "\"9000\""), "is not a valid template name"),
            (with(&with("")), "two templates are called `k8s`"),
            (with(&with("").replace("\"k8s\"", "\"other\"")), "templates `k8s` and `other` share VMIDs"),
            (
                with("[[pool]]\nname = \"w\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\nvmids = \"9005\""),
                "template `k8s` and pool `w` share VMIDs",
            ),
        ] {
            let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
            assert!(report.contains(expected), "no {expected:?} in\n{report}");
        }
    }
}
