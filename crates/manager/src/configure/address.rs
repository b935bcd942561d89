//! Addresses as others are told them.

use std::net::{IpAddr, SocketAddr};

use holdfast_api::transport::v1 as transport_api;

/// What is asked for to listen where no peers are expected, and who may.
pub(crate) fn plain_listener(address: SocketAddr, role: &str) -> transport_api::ListenRequest {
    transport_api::ListenRequest {
        address: octets(address.ip()),
        afi: if address.is_ipv4() { 1 } else { 2 },
        port: address.port().into(),
        plain: true,
        role: role.into(),
    }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
