//! Configurations of TLS 1.3 for one peer.

use std::{
    fmt,
    fs::File,
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{
    ClientConfig, ServerConfig,
    client::Resumption,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, DnsName, ServerName},
    server::{NoServerSessionStorage, ResolvesServerCert, danger::ClientCertVerifier},
    version::TLS13,
};
use tracing::warn;
use webpki::EndEntityCert;
use x509_parser::parse_x509_certificate;

use crate::{
    Finding, Identity, TlsError, Trust,
    finding::Noting,
    identity::provider,
    trust::{Verifier, subject},
    words,
};

/// SNI where a peer has no name: one that nobody has (RFC 6761).
const NO_NAME: &str = "peer.invalid";

/// Where the secrets of sessions are written, for those who have to read what goes over a wire (NSS key log format, the
/// `SSLKEYLOGFILE` of others). Whoever has the file can read the sessions.
#[derive(Clone)]
pub struct KeyLog(Arc<Log>);

struct Log {
    file: Mutex<File>,
    /// It could not be written to, which is said once.
    failed: AtomicBool,
}

impl KeyLog {
    /// Appends to a file that was opened for that.
    pub fn new(file: File) -> Self {
        Self(Arc::new(Log { file: Mutex::new(file), failed: AtomicBool::new(false) }))
    }
}

impl fmt::Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyLog")
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let written = self.0.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        // A session does not fail for that.
        if let Err(error) = written
            && !self.0.failed.swap(true, Ordering::Relaxed)
        {
            warn!(event = "key-log-failed", "secrets of sessions are missing in the key log: {error}");
        }
    }
}

/// Configurations of TLS 1.3 for one peer: what it has to prove, and what we show it. Cheap to clone; `Debug` shows no
/// secret.
#[derive(Clone)]
pub struct PeerTls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    verifier: Arc<Verifier>,
}

impl PeerTls {
    /// Of what we show and what the peer has to.
    ///
    /// # Errors
    /// What in the configuration cannot be used.
    pub fn new(identity: &Identity, trust: &Trust, key_log: Option<&KeyLog>) -> Result<Self, TlsError> {
        let refused = |error: rustls::Error| TlsError::Library(error.to_string());
        let provider = Arc::new(provider());
        let verifier = Verifier::new(trust, &provider)?;
        let shown = identity.shown(trust.present_raw_public_key)?;

        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(refused)?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(shown.clone());
        client.resumption = Resumption::disabled();
        client.enable_early_data = false;

        let mut server = acceptor(provider, verifier.clone(), shown).map_err(refused)?;

        if let Some(key_log) = key_log {
            client.key_log = Arc::new(key_log.clone());
            server.key_log = Arc::new(key_log.clone());
        }
        Ok(Self { client: Arc::new(client), server: Arc::new(server), verifier })
    }

    /// For who dials: mutual, TLS 1.3 only, no resumption, no early data.
    ///
    /// Over TCP a server may answer without any ALPN, and does where it is not ours: look at what was agreed.
    pub fn client(&self, alpn: &[u8]) -> Arc<ClientConfig> {
        let mut client = ClientConfig::clone(&self.client);
        client.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(client)
    }

    /// The same for a protocol that has no name (ALPN), as RTR has none (RFC 8210 section 9.2).
    pub fn unnamed_client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// For who accepts: the same.
    ///
    /// Over TCP a client that offers no ALPN at all passes: look at what was agreed.
    pub fn server(&self, alpn: &[u8]) -> Arc<ServerConfig> {
        let mut server = ServerConfig::clone(&self.server);
        server.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(server)
    }

    /// [`PeerTls::client`] for one handshake, with what is found wrong with the server in `finding`.
    pub fn client_finding(&self, alpn: &[u8], finding: &Finding) -> Arc<ClientConfig> {
        let mut client = ClientConfig::clone(&self.client);
        client.alpn_protocols = vec![alpn.to_vec()];
        client.dangerous().set_certificate_verifier(Noting::new(&self.verifier, finding));
        Arc::new(client)
    }

    /// [`PeerTls::server`] for one handshake, with what is found wrong with the client in `finding`.
    pub fn server_finding(&self, alpn: &[u8], finding: &Finding) -> Arc<ServerConfig> {
        let (provider, verifier) =
            (Arc::clone(self.server.crypto_provider()), Noting::new(&self.verifier, finding));
        let Ok(mut server) = acceptor(provider, verifier, Arc::clone(&self.server.cert_resolver)) else {
            // The one that is here was made of the same, so this one can be made as well.
            return self.server(alpn);
        };
        server.key_log = Arc::clone(&self.server.key_log);
        server.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(server)
    }

    /// SNI of who dials: the name that the peer's certificate is for, or one that nobody has. An address is not sent.
    pub fn server_name(&self) -> ServerName<'static> {
        let nobody = || ServerName::DnsName(DnsName::try_from(NO_NAME).expect("it is a DNS name").to_owned());
        self.verifier.name().cloned().unwrap_or_else(nobody)
    }

    /// What has proven who the peer is, for the operator: `certificate CN=r2, issued by CN=Lab CA, SHA-256 of its key 2b:…`
    /// or `public key, SHA-256 2b:…`. Of what it has presented in a handshake that has succeeded.
    pub fn proof(&self, presented: &[CertificateDer<'_>]) -> String {
        let Some(shown) = presented.first() else { return String::new() };
        if self.verifier.is_bare() {
            return format!("public key, SHA-256 {}", words::fingerprint_words(&words::fingerprint(shown)));
        }
        let key = EndEntityCert::try_from(shown).map(|read| read.subject_public_key_info());
        let key = key.map_or_else(
            |_| "(unreadable)".to_owned(),
            |key| words::fingerprint_words(&words::fingerprint(key.as_ref())),
        );
        let issuer = parse_x509_certificate(shown);
        let issuer = issuer
            .map_or_else(|_| "(unreadable)".to_owned(), |(_, read)| words::distinguished(read.issuer()));
        format!("certificate {}, issued by {issuer}, SHA-256 of its key {key}", subject(shown))
    }
}

/// Without tickets, and so without anything that a later handshake could leave out.
fn acceptor(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    shown: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(shown);
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.max_early_data_size = 0;
    Ok(server)
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerTls").field(&self.verifier).finish()
    }
}

#[cfg(test)]
mod tests {
    use rustls::KeyLog as _;

    use super::*;

    #[test]
    fn a_line_of_the_key_log_is_in_the_format_of_nss() {
        let path = std::env::temp_dir().join(format!("holdfast-key-log-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        KeyLog::new(file).log("CLIENT_TRAFFIC_SECRET_0", &[0x01, 0xab], &[0xff]);
        let text = std::fs::read_to_string(&path).expect("the file");
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(text, "CLIENT_TRAFFIC_SECRET_0 01ab ff\n");
    }
}
