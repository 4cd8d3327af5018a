//! Encryption: the server's certificate and its key.

use std::path::Path;
use std::sync::Arc;

use pgwire::api::auth::sasl::scram::ScramAuth;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::{ServerError, TlsFiles};

/// What makes connections encrypted ones. Passwords are bound to the certificate then, so that none in between can use them.
///
/// # Errors
/// [`ServerError::Certificate`] if the files cannot be read, or do not go together.
pub(crate) fn acceptor(
    files: &TlsFiles,
    scram: &mut ScramAuth,
) -> Result<TlsAcceptor, ServerError> {
    let acceptor = acceptor_for(files, b"postgresql")?;
    let pem =
        std::fs::read(&files.certificate).map_err(|error| problem(&files.certificate, &error))?;
    scram.configure_certificate(&pem).map_err(|error| problem(&files.certificate, &error))?;
    Ok(acceptor)
}

/// What makes connections of a protocol encrypted ones.
///
/// # Errors
/// As for [`acceptor`].
pub(crate) fn acceptor_for(files: &TlsFiles, protocol: &[u8]) -> Result<TlsAcceptor, ServerError> {
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .map_err(|error| problem(&files.certificate, &error))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| problem(&files.certificate, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| problem(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(&files.certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| problem(&files.certificate, &error))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn problem(file: &Path, error: &dyn std::fmt::Display) -> ServerError {
    ServerError::Certificate { file: file.to_owned(), problem: error.to_string() }
}
