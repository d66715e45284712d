//! `[metrics]`: where the daemon's metrics are served.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// The default of `listen`.
const LISTEN: &str = "127.0.0.1:9736";

/// Checked `[metrics]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Where `/metrics`, `/healthz` and `/readyz` are served; `None`: nowhere.
    pub listen: Option<SocketAddr>,
    /// Whether the status page is also served at `listen`, which must then be on loopback.
    pub status_page: bool,
    /// Whether sums over all pools are also served under the names of kproximate's gauges.
    pub kproximate_names: bool,
    /// Whether metrics that Cluster Autoscaler dashboards use are also served under Cluster Autoscaler's
    /// names.
    pub cluster_autoscaler_names: bool,
}

/// `[metrics]` as written in the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    enabled: Option<bool>,
    listen: Option<Spanned<String>>,
    status_page: Option<Spanned<bool>>,
    kproximate_names: Option<bool>,
    cluster_autoscaler_names: Option<bool>,
}

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> Metrics {
        let written = self.listen.as_ref();
        let listen = written.map_or(LISTEN, |written| written.get_ref().as_str()).parse::<SocketAddr>();
        if let (Err(_), Some(written)) = (&listen, written) {
            checker.wrong(
                format!("`{}` is not an address to listen on", written.get_ref()),
                written.span(),
                "expected e.g. \"127.0.0.1:9736\" or \"[::1]:9736\"",
                "to disable metrics, set `enabled = false`",
            );
        }
        let listen = listen.ok().filter(|_| self.enabled.unwrap_or(true));
        let page = self.status_page.as_ref().filter(|page| *page.get_ref());
        if let (Some(page), Some(address)) = (page, listen.filter(|address| !address.ip().is_loopback())) {
            checker.wrong(
                format!("the status page would be visible to every client that can reach {address}"),
                page.span(),
                "served only on loopback addresses, because it needs no password and shows pod names",
                "set `listen` to 127.0.0.1 or [::1], and reach the page with `ssh -L 9736:127.0.0.1:9736 HOST`",
            );
        }
        Metrics {
            listen,
            status_page: page.is_some(),
            kproximate_names: self.kproximate_names.unwrap_or(false),
            cluster_autoscaler_names: self.cluster_autoscaler_names.unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Needs, parse};

    #[test]
    fn metrics_are_on_loopback_unless_said_otherwise() {
        for (text, expected) in [
            ("", Ok(Some("127.0.0.1:9736"))),
            ("[metrics]\nenabled = false", Ok(None)),
            ("[metrics]\nenabled = false\nlisten = \"[::1]:1\"", Ok(None)),
            ("[metrics]\nlisten = \"[::1]:9100\"", Ok(Some("[::1]:9100"))),
            ("[metrics]\nlisten = \"localhost:9100\"", Err("c.toml:2:10")),
            ("[metrics]\nlisten = \"127.0.0.1\"", Err("is not an address to listen on")),
            ("[metrics]\nstatus_page = true", Ok(Some("127.0.0.1:9736"))),
            (
                "[metrics]\nstatus_page = true\nlisten = \"0.0.0.0:9736\"",
                Err("visible to every client that can reach"),
            ),
            ("[metrics]\nport = 1", Err("unknown field `port`")),
        ] {
            match (parse("c.toml", text, Needs::Plan), expected) {
                (Ok(config), Ok(expected)) => {
                    assert_eq!(config.metrics.listen, expected.map(|text| text.parse().unwrap()), "{text}");
                }
                (Err(report), Err(expected)) => assert!(report.plain().contains(expected), "{report}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
    }
}
