//! Plain listeners: where no peers are expected, and for whom they are.

use std::net::SocketAddr;

use holdfast_xrl::XrlError;

/// A plain listener, and the role it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plain {
    pub(crate) address: SocketAddr,
    pub(crate) role: String,
}

/// Whether a role may have a listener there. Where peers are expected nobody else listens than the door itself; the
/// manager writes the configuration, and all others get what is configured for them.
pub(crate) fn admit(
    configured: &[Plain],
    role: &str,
    address: SocketAddr,
    plain: bool,
) -> Result<(), XrlError> {
    match (role, plain) {
        (_, false) => {
            return Err(XrlError::denied(format!(
                "the role {role} may only have plain listeners: connections of peers come from Accept"
            )));
        }
        ("manager", true) => return Ok(()),
        (_, true) => {}
    }
    let wanted = Plain { address, role: role.to_owned() };
    match configured.contains(&wanted) {
        true => Ok(()),
        false => Err(XrlError::denied(format!("nothing at {address} is for the role {role}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_listener_is_for_the_role_that_it_is_configured_for() {
        let [metrics, glass, other] = [9100, 29184, 22].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let plain = |address, role: &str| Plain { address, role: role.to_owned() };
        let configured = [plain(metrics, "metrics"), plain(glass, "glass")];
        assert_eq!(admit(&configured, "glass", glass, true), Ok(()));
        for (role, address) in [("glass", metrics), ("glass", other), ("metrics", glass), ("bgp", glass)] {
            assert!(admit(&configured, role, address, true).is_err(), "{role} {address}");
        }
        for role in ["glass", "bgp", "manager"] {
            assert!(admit(&configured, role, glass, false).is_err(), "{role} not with peers' keys");
        }
        assert_eq!(admit(&configured, "manager", other, true), Ok(()));
    }
}
