//! `[pool.cloud_init]`: how a machine learns at its first boot what it is.

use serde::Deserialize;
use toml::Spanned;

use super::Written as Pool;
use crate::name_rules;
use crate::values::Checker;

/// What stands in `meta-data` if nothing is written.
const META: &str = "instance-id: {{ machine.id }}\nlocal-hostname: {{ machine.name }}\n";

/// How a machine learns at its first boot what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CloudInit {
    /// By Proxmox VE's own drive.
    #[default]
    Drive,
    /// By an image with a NoCloud seed that the daemon writes and uploads.
    Seed(Seed),
}

/// What a seed is made of: texts that are filled in for each machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The storage that it is uploaded to.
    pub storage: String,
    /// `user-data`.
    pub user_data: String,
    /// `meta-data`.
    pub meta_data: String,
    /// `network-config`; `None`: made of the pool's addresses.
    pub network_config: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    #[default]
    Drive,
    Seed,
}

/// `[pool.cloud_init]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    #[serde(default)]
    method: Method,
    storage: Option<Spanned<String>>,
    user_data: Option<Spanned<String>>,
    meta_data: Option<Spanned<String>>,
    network_config: Option<Spanned<String>>,
}

impl Written {
    /// The texts with their keys and places.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'static str, &Spanned<String>)> {
        let texts = [
            ("user_data", &self.user_data),
            ("meta_data", &self.meta_data),
            ("network_config", &self.network_config),
        ];
        texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?)))
    }
}

pub(super) fn check(pool: &Pool, checker: &mut Checker) -> CloudInit {
    let Some(written) = &pool.cloud_init else { return CloudInit::Drive };
    let (name, this) = (pool.name.get_ref(), written.get_ref());
    if this.method == Method::Drive {
        let others = this.texts().map(|(_, text)| text).chain(&this.storage);
        if let Some(other) = others.into_iter().next() {
            let title = format!("pool `{name}`: Proxmox VE's own drive takes no texts");
            checker.wrong(title, other.span(), "only for `method = \"seed\"`", "");
        }
        return CloudInit::Drive;
    }
    let storage = checker.named(
        this.storage.as_ref(),
        name_rules::is_storage,
        |text| format!("pool `{name}`: `{text}` cannot be a storage"),
        "letters, digits, `-`, `_` and `.`",
    );
    for (key, missing) in [("storage", storage.is_none()), ("user_data", this.user_data.is_none())] {
        if missing {
            let title = format!("pool `{name}`: `{key}` of the seed is missing");
            checker.wrong(title, written.span(), "this table", "docs/guides/cloud-init.md shows a whole one");
        }
    }
    if let Some(key) = pool.user.as_ref().map(Spanned::span).or(pool.ssh_keys.first().map(Spanned::span)) {
        let title = format!("pool `{name}`: a seed says itself which users there are");
        checker.wrong(title, key, "only for Proxmox VE's own drive", "write them into `user_data`");
    }
    if let (Some(search), true, None) = (&pool.search, pool.dns.is_empty(), &this.network_config) {
        let title = format!("pool `{name}`: the seed has no name server to search with");
        let help =
            "give `dns` as well: a seed has no name servers of the host's, as Proxmox VE's own drive has";
        checker.wrong(title, search.span(), "nothing reads this without `dns`", help);
    }
    let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.get_ref().clone());
    CloudInit::Seed(Seed {
        storage: storage.unwrap_or_default(),
        user_data: text(&this.user_data).unwrap_or_default(),
        meta_data: text(&this.meta_data).unwrap_or_else(|| META.to_owned()),
        network_config: text(&this.network_config),
    })
}
