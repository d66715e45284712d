//! Ways out if a cluster cannot be reached, by what hinders.

use std::path::Path;

use proxmox::{Error, Kind};
use settings::{Proxmox, ProxmoxTrust};

/// What hinders a connection, as far as its error tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Nothing listens there.
    Refused,
    /// The name has no address.
    UnknownName,
    /// There is no way there.
    NoRoute,
    /// Nothing came back.
    Silence,
    /// No trusted authority has signed the certificate.
    UnknownIssuer,
    /// The certificate is another host's.
    OtherName,
    /// The certificate is too old, or not valid yet.
    Expired,
    /// It is not the pinned certificate.
    OtherFingerprint,
    /// What answers does not speak TLS.
    NoTls,
}

/// The texts are those of the operating system, of rustls, and of our own check of fingerprints.
const TEXTS: [(&str, Obstacle); 14] = [
    ("fingerprint", Obstacle::OtherFingerprint),
    ("unknownissuer", Obstacle::UnknownIssuer),
    ("caused by unknown issuer", Obstacle::UnknownIssuer),
    ("not valid for name", Obstacle::OtherName),
    ("notvalidforname", Obstacle::OtherName),
    ("expired", Obstacle::Expired),
    ("not valid yet", Obstacle::Expired),
    ("invalidcontenttype", Obstacle::NoTls),
    ("connection refused", Obstacle::Refused),
    ("lookup address", Obstacle::UnknownName),
    ("no route to host", Obstacle::NoRoute),
    ("network is unreachable", Obstacle::NoRoute),
    ("timed out", Obstacle::Silence),
    ("no answer within", Obstacle::Silence),
];

fn obstacle(text: &str) -> Option<Obstacle> {
    let text = text.to_lowercase();
    TEXTS.iter().find(|(part, _)| text.contains(part)).map(|(_, obstacle)| *obstacle)
}

/// A way out if Proxmox VE does not answer, or does not know us.
pub(super) fn proxmox(error: &Error, settings: &Proxmox) -> Option<String> {
    let (user, name) = settings.token_id.split_once('!').unwrap_or((&settings.token_id, ""));
    match error.kind {
        Kind::Unauthorized => Some(format!(
            "`pveum user token list {user}` must show `{name}`, not expired, and the secret must be that token's"
        )),
        Kind::HostUnreachable | Kind::OutcomeUnknown => {
            Some(hindered(obstacle(&error.text), &settings.trust))
        }
        _ => None,
    }
}

fn hindered(obstacle: Option<Obstacle>, trust: &ProxmoxTrust) -> String {
    const SHOW: &str = "openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem";
    match obstacle {
        Some(Obstacle::Refused) => {
            "nothing listens there: `endpoints` must name hosts of the cluster with port 8006; `systemctl status pveproxy` on the host"
                .to_owned()
        }
        Some(Obstacle::UnknownName) => {
            "this host cannot resolve that name: fix `endpoints`, DNS or /etc/hosts (`getent hosts NAME` asks the same way)".to_owned()
        }
        Some(Obstacle::NoRoute) => "this host has no way there: look at its routes, and at the address in `endpoints`".to_owned(),
        Some(Obstacle::Silence) => {
            "nothing comes back: is the address in `endpoints` right, the host up, and port 8006 open in firewalls between?".to_owned()
        }
        Some(Obstacle::UnknownIssuer) => authority(trust),
        Some(Obstacle::OtherName) => {
            "name the host in `endpoints` as its certificate does: `openssl x509 -noout -ext subjectAltName -in \
             /etc/pve/local/pve-ssl.pem` on the host shows how"
                .to_owned()
        }
        Some(Obstacle::Expired) => {
            "`pvecm updatecerts --force` on the host makes a new certificate; is the clock of this host right?".to_owned()
        }
        Some(Obstacle::OtherFingerprint) => format!(
            "if the host has a new certificate, put its fingerprint into `fingerprint`: `{SHOW}` on the host shows the right one \
             (pveproxy-ssl.pem in the same folder if the host has a certificate of its own)"
        ),
        Some(Obstacle::NoTls) => "what answers there speaks no TLS: `endpoints` must name port 8006 of a Proxmox VE host".to_owned(),
        None => {
            "`endpoints` must name hosts of the cluster with port 8006, and whom to trust must be its CA or certificate".to_owned()
        }
    }
}

/// Proxmox VE signs its certificates itself, unless others were ordered.
fn authority(trust: &ProxmoxTrust) -> String {
    const OWN: &str = "/etc/pve/pve-root-ca.pem";
    const UNIT: &str = "`ca_credential = \"pve-root-ca\"` (the unit loads it from /etc/pve-autoscaler/credentials/pve-root-ca)";
    match trust {
        ProxmoxTrust::System => format!(
            "Proxmox VE's own CA is none of the system's: copy {OWN} of a host and name it with `ca_file`, or with {UNIT}, instead of `ca`"
        ),
        ProxmoxTrust::CaFile(path) if path == Path::new(OWN) => {
            "the host has a certificate of another authority: `ca = \"system\"` if that is a public one, else its file in `ca_file`"
                .to_owned()
        }
        ProxmoxTrust::CaFile(_) | ProxmoxTrust::CaCredential(_) => format!(
            "that is another CA than the host's: its own is {OWN} on any host of the cluster; `ca = \"system\"` if the host has a \
             certificate of a public authority"
        ),
        ProxmoxTrust::Fingerprint(_) => hindered(Some(Obstacle::OtherFingerprint), trust),
    }
}

/// A way out if the API server does not answer.
pub(super) fn kubernetes(text: &str) -> String {
    let same = "`kubectl --kubeconfig FILE version` with the same kubeconfig takes the same way: try that";
    let what = match obstacle(text) {
        Some(Obstacle::Refused) => {
            "nothing listens there: is `server` in the kubeconfig right, and the API server up?"
        }
        Some(Obstacle::UnknownName) => {
            "this host cannot resolve that name: fix `server` in the kubeconfig, DNS or /etc/hosts"
        }
        Some(Obstacle::NoRoute) => {
            "this host has no way there: look at its routes, and at `server` in the kubeconfig"
        }
        Some(Obstacle::Silence) => {
            "nothing comes back: is `server` in the kubeconfig right, the API server up, and its port open in firewalls between?"
        }
        Some(Obstacle::UnknownIssuer) => {
            "`certificate-authority-data` in the kubeconfig is another CA than the API server's: /etc/kubernetes/pki/ca.crt of a \
             control plane node is kubeadm's"
        }
        Some(Obstacle::OtherName) => {
            "name the API server in the kubeconfig (`server`) as its certificate does, or say the name in `tls-server-name`"
        }
        Some(Obstacle::Expired) => {
            "`kubeadm certs check-expiration` on a control plane node says which certificate is old; is the clock of this host right?"
        }
        Some(Obstacle::NoTls) => "what answers there speaks no TLS: look at `server` in the kubeconfig",
        Some(Obstacle::OtherFingerprint) | None => return same.to_owned(),
    };
    format!("{what}; {same}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_a_way_out_of_its_own() {
        let own = || ProxmoxTrust::CaFile("/etc/pve/pve-root-ca.pem".into());
        for (text, trust, expected) in [
            ("Connection refused (os error 111)", own(), "systemctl status pveproxy"),
            ("failed to lookup address information: Name or service not known", own(), "getent hosts"),
            ("No route to host (os error 113)", own(), "routes"),
            ("operation timed out", own(), "firewalls"),
            ("invalid peer certificate: UnknownIssuer", ProxmoxTrust::System, "/etc/pve/pve-root-ca.pem"),
            ("invalid peer certificate: UnknownIssuer", own(), "ca = \"system\""),
            (
                "invalid peer certificate: certificate not valid for name \"pve9\"; certificate is only valid for DnsName(\"pve1\")",
                own(),
                "subjectAltName",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 1 (UNIX)",
                own(),
                "pvecm updatecerts",
            ),
            (
                "its certificate has the fingerprint AA, not the pinned one",
                own(),
                "openssl x509 -noout -fingerprint",
            ),
            ("received corrupt message of type InvalidContentType", own(), "no TLS"),
            ("something else", own(), "port 8006"),
        ] {
            let help = hindered(obstacle(text), &trust);
            assert!(help.contains(expected), "{text}: {help}");
            assert!(kubernetes(text).contains("kubectl"), "{text}");
        }
        let refused = kubernetes("cannot ask the API server for its version: Connection refused");
        assert!(refused.starts_with("nothing listens there"), "{refused}");
    }
}
