//! TLS with certificates on both sides, for servers that listen on TCP.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The files that a server over TLS needs, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificates of the server, its own first.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of the authorities that sign those of clients.
    pub clients: PathBuf,
}

/// What a server encrypts its connections with: TLS 1.3, and only for clients with a certificate.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why a server cannot use TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{path}: {source}; expected {expected} in PEM", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: pem::Error,
        /// What it should hold.
        expected: &'static str,
    },
    /// A file holds nothing of use.
    #[error("{path}: no certificate; expected {expected} in PEM", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
    /// What a file holds is not valid.
    #[error("{path}: {reason}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read or is not valid, or the key is not that of the certificate.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let chain = certificates(&files.certificates, "the certificates of the server")?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::File {
            path: files.key.clone(),
            source,
            expected: "the private key of the server",
        })?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&files.clients, "the authorities of the clients")? {
            roots.add(root).map_err(|e| invalid(&files.clients, e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .build()
            .map_err(|e| invalid(&files.clients, e))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|config| {
                config.with_client_cert_verifier(verifier).with_single_cert(chain, key)
            })
            .map_err(|e| invalid(&files.key, e))?;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.clone().into()
    }
}

fn invalid(path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError::Invalid { path: path.into(), reason: reason.to_string() }
}

/// The certificates of a file, at least one.
fn certificates(
    path: &Path,
    expected: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.into(), source, expected };
    let all: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(failed)?;
    if all.is_empty() {
        return Err(TlsError::Empty { path: path.into(), expected });
    }
    Ok(all)
}
