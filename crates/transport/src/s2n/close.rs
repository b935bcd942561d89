//! What a peer is told when its connection is ended here.

use s2n_quic_core::{
    application,
    connection::close::{ConnectionClose, Context, Formatter},
    transport,
};

/// The number alone. Unlike the library's own choice it keeps the alerts of TLS apart: without them the other operator does
/// not learn what is wrong with their certificate.
pub(super) struct Numbers;

impl Formatter for Numbers {
    fn format_transport_error(&self, _: &Context<'_>, error: transport::Error) -> ConnectionClose<'_> {
        transport::Error::new(error.code.as_varint()).into()
    }

    fn format_application_error(&self, _: &Context<'_>, error: application::Error) -> ConnectionClose<'_> {
        error.into()
    }

    fn format_early_transport_error(
        &self,
        context: &Context<'_>,
        error: transport::Error,
    ) -> ConnectionClose<'_> {
        self.format_transport_error(context, error)
    }

    /// RFC 9000 section 10.2.3: before the handshake is done, the application says nothing.
    fn format_early_application_error(&self, _: &Context<'_>, _: application::Error) -> ConnectionClose<'_> {
        transport::Error::APPLICATION_ERROR.into()
    }
}

#[cfg(test)]
mod tests {
    use s2n_quic_core::{crypto::tls, inet::SocketAddress, varint::VarInt};

    use super::*;

    #[test]
    fn an_alert_keeps_its_number_and_loses_its_words() {
        let remote = SocketAddress::default();
        let error = transport::Error::from(tls::Error { code: 45, reason: "certificate of CN=r2" });
        let close = Numbers.format_early_transport_error(&Context::new(&remote), error);
        assert_eq!(close.error_code, VarInt::from_u32(0x100 + 45));
        assert_eq!(close.reason, None);
    }
}
