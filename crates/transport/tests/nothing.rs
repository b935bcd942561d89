//! A dialer that shows nothing.

use std::sync::Arc;

use holdfast_tls::rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};

#[derive(Debug)]
pub(crate) struct Nothing;

impl ResolvesClientCert for Nothing {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
