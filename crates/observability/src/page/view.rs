//! A browser's request for the page, and the other values that determine its content.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use model::{HostKey, Vmid};
use settings::Config;

/// How much of the last day the charts show. The query string of the page's address selects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Span {
    Hour,
    #[default]
    SixHours,
    Day,
}

impl Span {
    pub const ALL: [Self; 3] = [Self::Hour, Self::SixHours, Self::Day];

    fn hours(self) -> i64 {
        match self {
            Self::Hour => 1,
            Self::SixHours => 6,
            Self::Day => 24,
        }
    }

    pub fn length(self) -> SignedDuration {
        SignedDuration::from_hours(self.hours())
    }

    /// The span in words.
    pub fn words(self) -> String {
        format!("{} h", self.hours())
    }

    fn asked(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| text.strip_suffix('h') == Some(&span.hours().to_string()))
    }
}

/// What the query string of the page's address requests. Unknown parts are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(super) span: Span,
    /// Whether the page's automatic reload is turned off.
    pub(super) still: bool,
}

impl Asked {
    pub fn read(query: &str) -> Self {
        let mut asked = Self::default();
        for part in query.split('&') {
            match part.split_once('=') {
                Some(("span", text)) => asked.span = Span::asked(text).unwrap_or_default(),
                Some(("reload", text)) => asked.still = text == "no",
                _ => {}
            }
        }
        asked
    }

    /// Returns the relative address of the page with these settings, escaped for HTML.
    pub(super) fn address(self) -> String {
        let mut out = format!("?span={}h", self.span.hours());
        if self.still {
            let _ = write!(out, "&amp;reload=no");
        }
        out
    }
}

/// The addresses of the Proxmox VE clusters' web interfaces, by the prefix of each cluster's host names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(BTreeMap<String, String>);

impl Links {
    pub fn of(config: &Config) -> Self {
        let one = |cluster: &settings::Proxmox| {
            let base = cluster.web_interface()?.trim_end_matches('/').to_owned();
            Some((config.prefix(cluster.region.as_deref()).to_owned(), base))
        };
        Self(config.clusters().filter_map(one).collect())
    }

    /// The address of a machine's page in the web interface; `None` for bare-metal machines.
    pub(super) fn vm(&self, host: &HostKey, vmid: Vmid) -> Option<String> {
        let base = self.0.get(host.region()).filter(|_| !vmid.is_bare_metal())?;
        Some(format!("{base}/#v1:0:=qemu%2F{vmid}"))
    }
}

/// The values that the page depends on, besides the status.
#[derive(Debug)]
pub(crate) struct View<'v> {
    pub now: Timestamp,
    pub zone: &'v TimeZone,
    pub asked: Asked,
    pub links: Links,
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Needs, parse};

    #[test]
    fn an_address_asks_for_hours_and_for_quiet_and_for_nothing_else() {
        for (query, span, still) in [
            ("", Span::SixHours, false),
            ("span=1h", Span::Hour, false),
            ("span=24h&reload=no", Span::Day, true),
            ("span=<script>&reload=yes&x", Span::SixHours, false),
            ("span=h", Span::SixHours, false),
        ] {
            let asked = Asked::read(query);
            assert_eq!((asked.span, asked.still), (span, still), "{query}");
            assert_eq!(Asked::read(&asked.address()[1..].replace("&amp;", "&")), asked, "{query}");
        }
    }

    #[test]
    fn a_machine_is_looked_for_in_the_web_interface_of_its_own_cluster() {
        let rest = "token_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";
        let text = format!(
            "cluster = \"c\"\n[proxmox]\nregion = \"west\"\nendpoints = [\"https://a:8006\"]\n{rest}\
             [[proxmox.also]]\nregion = \"east\"\nendpoints = [\"https://b:8006\"]\nweb_interface = \"https://pve.east/\"\n{rest}"
        );
        let links = Links::of(&parse("c.toml", &text, Needs::Plan).unwrap());
        let of = |host: &str, vmid| links.vm(&host.into(), vmid).unwrap_or_default();
        assert_eq!(of("pve1", Vmid(9100)), "https://a:8006/#v1:0:=qemu%2F9100");
        assert_eq!(of("east/pve1", Vmid(9100)), "https://pve.east/#v1:0:=qemu%2F9100");
        assert_eq!(
            (of("north/pve1", Vmid(9100)), of("rack", Vmid::of_bare_metal(0))),
            (String::new(), String::new())
        );
    }
}
