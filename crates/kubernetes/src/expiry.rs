//! When a kubeconfig's credentials expire, if they contain an expiry date.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::Kubeconfig;
use secrecy::{ExposeSecret, SecretString};
use x509_parser::pem::Pem;

/// A credential, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The name of the credential, e.g. `client certificate of the kubeconfig`.
    pub credential: String,
    /// When it expires.
    pub at: Timestamp,
}

/// Returns the credentials in a kubeconfig context (by default, the current one) that have an expiry date.
/// Unreadable credentials are left out, because they are reported when the client connects.
pub fn expiries(kubeconfig: &SecretString, context: Option<&str>) -> Vec<Expiry> {
    let Ok(kubeconfig) = Kubeconfig::from_yaml(kubeconfig.expose_secret()) else { return Vec::new() };
    let ends = [
        ("client certificate", client_certificate(&kubeconfig, context)),
        ("token", token(&kubeconfig, context)),
        ("certificate authority", authority(&kubeconfig, context)),
    ];
    let named = |(what, at): (&str, Option<Timestamp>)| {
        Some(Expiry { credential: format!("{what} of the kubeconfig"), at: at? })
    };
    ends.into_iter().filter_map(named).collect()
}

/// Returns the latest expiry date of these PEM certificates. Certificates that never expire (year 9999) are
/// ignored. Returns `None` if no other certificate remains.
pub fn certificates_end(pem: &[u8]) -> Option<Timestamp> {
    ends(pem).max()
}

/// The expiry of each of these certificates.
fn ends(pem: &[u8]) -> impl Iterator<Item = Timestamp> {
    Pem::iter_from_buffer(pem).filter_map(|one| {
        let ends = one.ok()?.parse_x509().ok()?.validity().not_after.timestamp();
        Timestamp::from_second(ends).ok()
    })
}

/// The expiry of a token, if it is a JSON Web Token that contains one.
fn token_ends(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

fn context<'k>(kubeconfig: &'k Kubeconfig, name: Option<&str>) -> Option<&'k kube::config::Context> {
    let name = name.or(kubeconfig.current_context.as_deref())?;
    kubeconfig.contexts.iter().find(|one| one.name == name)?.context.as_ref()
}

fn user<'k>(kubeconfig: &'k Kubeconfig, name: Option<&str>) -> Option<&'k kube::config::AuthInfo> {
    let user = context(kubeconfig, name)?.user.as_ref()?;
    kubeconfig.auth_infos.iter().find(|one| one.name == *user)?.auth_info.as_ref()
}

fn client_certificate(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Timestamp> {
    let user = user(kubeconfig, context)?;
    // The client's own certificate comes first. K3s appends the certificate of the authority that signed it.
    let chain = given(user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    ends(&chain).next()
}

fn token(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Timestamp> {
    let user = user(kubeconfig, context)?;
    // A token in a `tokenFile` is not considered, because another program renews it and the client rereads
    // the file.
    token_ends(user.token.as_ref()?.expose_secret())
}

fn authority(kubeconfig: &Kubeconfig, name: Option<&str>) -> Option<Timestamp> {
    let named = &context(kubeconfig, name)?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == *named)?.cluster.as_ref()?;
    certificates_end(&given(
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
    )?)
}

/// The inline data (base64), or the contents of the named file.
fn given(data: Option<&str>, file: Option<&str>) -> Option<Vec<u8>> {
    match (data, file) {
        (Some(data), _) => STANDARD.decode(data.trim()).ok(),
        (None, Some(file)) => std::fs::read(Path::new(file)).ok(),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn at(year: i32) -> Timestamp {
        format!("{year}-01-01T00:00:00Z").parse().unwrap()
    }

    #[test]
    fn of_several_certificates_the_last_counts() {
        assert_eq!(certificates_end(certificate(2031).as_bytes()), Some(at(2031)));
        let both = certificate(2031) + &certificate(2035);
        assert_eq!(certificates_end(both.as_bytes()), Some(at(2035)), "one valid certificate is enough");
        assert_eq!(certificates_end(b"no certificate"), None);
    }

    #[test]
    fn what_ends_of_a_kubeconfig_is_found() {
        let claims = URL_SAFE_NO_PAD.encode("{\"exp\":1893456000}");
        let kubeconfig = |user: &str| {
            let authority = STANDARD.encode(certificate(2040));
            SecretString::from(format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 clusters: [{{name: k, cluster: {{server: 'https://k:6443', certificate-authority-data: {authority}}}}}]\n\
                 users: [{{name: u, user: {{{user}}}}}]\n"
            ))
        };
        let found = |user: &str| -> Vec<(String, Timestamp)> {
            let all = expiries(&kubeconfig(user), None);
            all.into_iter().map(|one| (one.credential, one.at)).collect()
        };
        let authority = ("certificate authority of the kubeconfig".to_owned(), at(2040));
        let data = STANDARD.encode(certificate(2031) + &certificate(2040));
        let certificate = ("client certificate of the kubeconfig".to_owned(), at(2031));
        assert_eq!(found(&format!("client-certificate-data: {data}")), [certificate, authority.clone()]);
        let token = ("token of the kubeconfig".to_owned(), at(2030));
        assert_eq!(found(&format!("token: head.{claims}.signature")), [token, authority.clone()]);
        assert_eq!(found("token: opaque"), [authority], "an opaque token shows no expiry date");
        assert_eq!(expiries(&SecretString::from("{"), None), []);
    }
}
