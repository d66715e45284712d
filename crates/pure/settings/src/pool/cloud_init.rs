//! `[pool.cloud_init]`: how a machine receives its configuration at its first boot.

use serde::Deserialize;
use toml::Spanned;

use super::Written as Pool;
use crate::name_rules;
use crate::values::Checker;

/// The default of `meta-data`.
const META: &str = "instance-id: {{ machine.id }}\nlocal-hostname: {{ machine.name }}\n";

/// How a machine receives its configuration at its first boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CloudInit {
    /// From Proxmox VE's own cloud-init drive.
    #[default]
    Drive,
    /// From an image with a NoCloud seed that the daemon writes and uploads.
    Seed(Seed),
}

/// The contents of a seed: texts that are filled in for each machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The storage that the seed is uploaded to.
    pub storage: String,
    /// `user-data`.
    pub user_data: String,
    /// `meta-data`.
    pub meta_data: String,
    /// `network-config`; `None`: derived from the pool's addresses.
    pub network_config: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    #[default]
    Drive,
    Seed,
}

/// `[pool.cloud_init]` as written in the configuration file.
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
    /// Returns the seed's texts, each with its key and its place in the file.
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
            let title = format!(
                "pool `{name}`: Proxmox VE's own cloud-init drive does not use `storage`, `user_data`, \
                    `meta_data` or `network_config`"
            );
            checker.wrong(title, other.span(), "only for `method = \"seed\"`", "");
        }
        return CloudInit::Drive;
    }
    let storage = checker.named(
        this.storage.as_ref(),
        name_rules::is_storage,
        |text| format!("pool `{name}`: `{text}` is not a valid storage name"),
        "letters, digits, `-`, `_` and `.`",
    );
    for (key, missing) in [("storage", storage.is_none()), ("user_data", this.user_data.is_none())] {
        if missing {
            let title = format!("pool `{name}`: the seed needs `{key}`");
            checker.wrong(
                title,
                written.span(),
                "this table",
                "docs/guides/cloud-init.md has a complete example",
            );
        }
    }
    if let Some(key) = pool.user.as_ref().map(Spanned::span).or(pool.ssh_keys.first().map(Spanned::span)) {
        let title = format!("pool `{name}`: `user` and `ssh_keys` do not apply to a seed");
        checker.wrong(
            title,
            key,
            "only for Proxmox VE's own drive",
            "define users and their keys in `user_data`",
        );
    }
    if let (Some(search), true, None) = (&pool.search, pool.dns.is_empty(), &this.network_config) {
        let title = format!("pool `{name}`: with a seed, `search` needs `dns`");
        let help = "set `dns` as well: unlike Proxmox VE's own drive, a seed does not contain the host's name servers";
        checker.wrong(title, search.span(), "has no effect without `dns`", help);
    }
    let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.get_ref().clone());
    CloudInit::Seed(Seed {
        storage: storage.unwrap_or_default(),
        user_data: text(&this.user_data).unwrap_or_default(),
        meta_data: text(&this.meta_data).unwrap_or_else(|| META.to_owned()),
        network_config: text(&this.network_config),
    })
}
