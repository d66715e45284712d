//! The serving layer over real sockets on loopback.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use world::{
    clock::WorldClock,
    guest::control_plane::{ControlPlane, JoinFailure, JoinRequest},
    proxmox::{Pve, spec::ClusterSpec},
    serve::{serve_https, tls::ServerTls},
};

struct NoControlPlane;

impl ControlPlane for NoControlPlane {
    fn join(&self, _: JoinRequest) -> futures::future::BoxFuture<'_, Result<(), JoinFailure>> {
        Box::pin(async { Ok(()) })
    }

    fn power_lost(&self, _: &str) {}

    fn booted_again(&self, _: &str) {}
}

#[tokio::test]
async fn an_answer_over_tls_has_the_reason_phrase_and_the_ca_vouches_for_loopback() {
    let clock = WorldClock::starting_at("2026-11-21T00:00:00Z".parse().expect("time"));
    let pve = Pve::new(ClusterSpec::demo(), clock, 1, Arc::new(NoControlPlane));
    let tls = ServerTls::for_loopback("Proxmox Virtual Environment").expect("certificates");
    let handler = move |request| {
        let pve = pve.clone();
        async move { pve.handle(request).await }
    };
    let serving = serve_https(handler, "127.0.0.1:0".parse().expect("address"), &tls).await.expect("bound");

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls.ca_pem.as_bytes()).expect("PEM")).expect("a CA");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(serving.address()).await.expect("connected");
    let name = ServerName::try_from("127.0.0.1").expect("name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("trusted");
    let request = format!(
        "GET /api2/json/nodes/pve1/qemu/999/config HTTP/1.1\r\nhost: localhost\r\nauthorization: PVEAPIToken={}={}\r\n\r\n",
        ClusterSpec::DEMO_TOKEN,
        ClusterSpec::DEMO_SECRET
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut bytes = Vec::new();
    // The server closes the connection after an error, with or without a TLS `close_notify`.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).expect("text");
    assert!(text.starts_with("HTTP/1.1 403 Permission check failed (/vms/999, VM.Audit)\r\n"), "{text}");
}
