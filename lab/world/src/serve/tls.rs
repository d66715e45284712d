//! A throw-away certificate authority and a leaf certificate for loopback, created again at each start.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData as _,
};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

/// Certificates could not be created, or the TLS library refused them.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The generator failed.
    #[error("certificate generation failed")]
    Generate(#[from] rcgen::Error),
    /// The TLS library refused the configuration.
    #[error("TLS configuration refused")]
    Configure(#[from] rustls::Error),
}

/// A server's TLS configuration with the certificates that a client needs to trust it.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The CA certificate as PEM.
    pub ca_pem: String,
    /// The leaf certificate as PEM. It is valid for `localhost`, `127.0.0.1` and `::1`.
    pub certificate_pem: String,
    /// SHA-256 of the leaf certificate as Proxmox VE prints it: upper-case hex bytes with colons.
    pub fingerprint: String,
    /// SHA-256 of the CA's public key info as kubeadm pins it: `sha256:<hex>`.
    pub ca_public_key_hash: String,
    pub(super) config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Creates a CA named `ca_name`, and a leaf certificate for loopback that this CA signed.
    ///
    /// # Errors
    /// Returns an error if generating a key or signing fails.
    pub fn for_loopback(ca_name: &str) -> Result<Self, TlsError> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::new(Vec::<String>::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name = named(ca_name);
        ca.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let ca_certificate = ca.self_signed(&ca_key)?;
        let ca_public_key_hash =
            format!("sha256:{}", hex(&Sha256::digest(ca_key.subject_public_key_info()), ""));

        let key = KeyPair::generate()?;
        let names = ["localhost", "127.0.0.1", "::1"].map(String::from);
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name = named("localhost");
        leaf.use_authority_key_identifier_extension = true;
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key))?;

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private_key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone(), ca_certificate.der().clone()], private_key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            ca_pem: ca_certificate.pem(),
            certificate_pem: leaf.pem(),
            fingerprint: hex(&Sha256::digest(leaf.der()), ":").to_uppercase(),
            ca_public_key_hash,
            config: Arc::new(config),
        })
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn hex(bytes: &[u8], separator: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(separator)
}
