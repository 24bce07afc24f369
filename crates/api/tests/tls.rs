//! TCP: only over TLS 1.3, and only for clients with a certificate of the right authority.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{tight, wait};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use thalweg_api::axum::Router;
use thalweg_api::axum::routing::get;
use thalweg_api::{Listeners, Server, Tls, TlsFiles};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate and its key as `NAME.pem` and `NAME.key`.
fn certify(folder: &Path, name: &str, authority: &Authority) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".into()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// A folder with an authority, a server, a client, and a client of a stranger.
fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (authority(), authority());
    fs::write(folder.path().join("authority.pem"), ours.pem()).unwrap();
    for (name, authority) in [("server", &ours), ("client", &ours), ("stranger", &other)] {
        certify(folder.path(), name, authority);
    }
    folder
}

fn files(folder: &Path) -> TlsFiles {
    TlsFiles {
        certificates: folder.join("server.pem"),
        key: folder.join("server.key"),
        clients: folder.join("authority.pem"),
    }
}

fn serve(folder: &Path) -> (Server, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Tls::load(&files(folder)).unwrap();
    let listeners = Listeners { unix: None, tcp: Some((listener, tls)) };
    let router = Router::new().route("/hello", get(async || "hello"));
    (Server::start("test", listeners, tight(), router).unwrap(), address)
}

/// What the server answers to a client with the certificate `name`, or with none.
fn ask(folder: &Path, address: SocketAddr, name: Option<&str>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join("authority.pem")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let config = match name {
        None => config.with_no_client_auth(),
        Some(name) => {
            let path = |ending| folder.join(format!("{name}.{ending}"));
            let certificate = CertificateDer::from_pem_file(path("pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(path("key")).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let host = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), host).unwrap();
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(b"GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_served() {
    let folder = certificates();
    let (server, address) = serve(folder.path());
    let answer = ask(folder.path(), address, Some("client")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    assert!(ask(folder.path(), address, Some("stranger")).is_err());
    assert!(ask(folder.path(), address, None).is_err());
    wait(|| server.counts().now().handshakes_failed == 2);
    assert_eq!(server.counts().now().requests, 1);
}

#[test]
fn what_is_not_tls_or_stalls_is_disconnected_and_counted() {
    let folder = certificates();
    let (server, address) = serve(folder.path());
    for hello in [&b"GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"[..], b"", b"\x16\x03\x01\x02\0\x01"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(hello).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"));
    }
    wait(|| server.counts().now().handshakes_failed == 3);
    assert!(ask(folder.path(), address, Some("client")).is_ok());
}

#[test]
fn a_file_that_does_not_serve_is_named() {
    let folder = certificates();
    let path = |name: &str| folder.path().join(name);
    let good = files(folder.path());
    fs::write(path("empty"), "").unwrap();
    fs::write(path("broken.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        .unwrap();
    let with = |change: &dyn Fn(&mut TlsFiles)| {
        let mut files = good.clone();
        change(&mut files);
        Tls::load(&files).unwrap_err().to_string()
    };
    for (error, expected) in [
        (with(&|files| files.certificates = path("none")), "none: "),
        (
            with(&|files| files.certificates = path("empty")),
            "empty: no certificate; expected the cert",
        ),
        (with(&|files| files.key = path("empty")), "expected the private key of the server in PEM"),
        (with(&|files| files.key = path("client.key")), "client.key: "),
        (with(&|files| files.clients = path("broken.pem")), "broken.pem: "),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}
