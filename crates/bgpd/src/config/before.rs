//! Peers as a manager says them that does not send them as JSON: an upgrade replaces `bgp` before it.

use std::{net::IpAddr, time::Duration};

use holdfast_api::bgp::v1 as api;
use holdfast_config::schema::{
    AddPath, Bgpsec, GracefulRestart, LimitAction, LocalAsnMode, NextHopRule, Orf, PathRules, Peer, PeerAsn,
    PeerRules, PrefixLimit, PrivateAsnRule, Remote, SendPaths, SessionRules, Size, Trust,
};
use holdfast_policy::AsnRange;
use holdfast_types::{Asn, BgpRole, Prefix};
use holdfast_xrl::XrlError;

use holdfast_types::address;

use super::bad;

pub(crate) fn peer(old: &api::Peer) -> Result<Peer, XrlError> {
    Ok(Peer {
        name: old.name.clone(),
        vrf: None,
        remote: remote(old).ok_or_else(|| bad("address of peer", &old.name))?,
        local_address: address(&old.local_address),
        asn: asn(old).ok_or_else(|| bad("AS numbers of", &old.name))?,
        families: old.families.iter().filter_map(|name| name.parse().ok()).collect(),
        import: some(&old.import),
        export: some(&old.export),
        transports: Vec::new(),
        trust: Trust::default(),
        md5: None,
        hold_time: seconds(old.hold_time),
        next_hop_ipv4: <[u8; 4]>::try_from(old.next_hop_v4.as_slice()).ok().map(Into::into),
        next_hop_ipv6: <[u8; 16]>::try_from(old.next_hop_v6.as_slice()).ok().map(Into::into),
        paths: paths(old)?,
        session: session(old),
        rules: rules(old),
        add_path: AddPath {
            receive: old.receive_paths,
            send: match u8::try_from(old.send_best_paths) {
                Ok(most @ 1..) => Some(SendPaths::Best(most)),
                Ok(0) | Err(_) => old.send_all_paths.then_some(SendPaths::All),
            },
        },
        bgpsec: Bgpsec::default(),
        bfd: None,
        nonstop: old.nonstop,
        damping: old.damping,
        group: some(&old.group),
        limits: old.limits.iter().map(limit).collect::<Result<_, _>>()?,
        orf_prefix_set: None,
    })
}

/// A peer without what such a manager leaves out.
pub(super) fn said(peer: &Peer) -> Peer {
    Peer { vrf: None, transports: Vec::new(), ..peer.clone() }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

fn remote(old: &api::Peer) -> Option<Remote> {
    match (address(&old.address), old.interface.as_str()) {
        (Some(network), _) if old.is_range => {
            Prefix::new(network, u8::try_from(old.range_length).ok()?).map(Remote::Range)
        }
        (Some(IpAddr::V6(address)), name) if !name.is_empty() => {
            Some(Remote::LinkLocal(address, name.to_owned()))
        }
        (Some(address), _) => Some(Remote::Address(address)),
        (None, name) if old.address.is_empty() => some(name).map(Remote::Interface),
        (None, _) => None,
    }
}

fn asn(old: &api::Peer) -> Option<PeerAsn> {
    let range = |range: &api::AsnRange| AsnRange::new(Asn(range.first), Asn(range.last));
    match old.asn {
        0 if old.asns.is_empty() => Some(PeerAsn::Any),
        0 => old.asns.iter().map(range).collect::<Option<_>>().map(PeerAsn::OneOf),
        asn => Some(PeerAsn::One(Asn(asn))),
    }
}

fn session(old: &api::Peer) -> SessionRules {
    // Newer keys are not said.
    let role_strict = old.paths.is_some_and(|rules| rules.role_strict);
    let usual = SessionRules { role_strict, ..SessionRules::default() };
    SessionRules {
        passive: old.passive || old.is_range,
        connect_retry: seconds(old.connect_retry_seconds),
        graceful_restart: match old.graceful_restart.as_str() {
            "helper" => GracefulRestart::Helper,
            "full" => GracefulRestart::Full,
            _ => GracefulRestart::Off,
        },
        restart_time: seconds(old.restart_seconds),
        long_lived_stale_time: seconds(old.long_lived_stale_seconds),
        stale_time: seconds(old.stale_seconds),
        orf: match old.orf.as_str() {
            "receive" => Orf::Receive,
            "send" => Orf::Send,
            "both" => Orf::Both,
            _ => Orf::Off,
        },
        ..usual
    }
}

fn rules(old: &api::Peer) -> PeerRules {
    PeerRules {
        description: some(&old.description),
        ttl_security: old.ttl_security,
        // There, 0 is any number.
        max_octets: Size::of_octets(if old.max_octets == 0 { u64::MAX } else { old.max_octets }),
        max_cost: u8::try_from(old.max_cost).ok().filter(|percent| *percent > 0),
        disabled: old.disabled,
        shutdown_text: some(&old.shutdown_text),
        ..PeerRules::default()
    }
}

fn limit(old: &api::PrefixLimit) -> Result<PrefixLimit, XrlError> {
    let [received, accepted, announced] =
        [old.received, old.accepted, old.announced].map(|most| (most > 0).then_some(most));
    Ok(PrefixLimit {
        family: old.family.parse().map_err(|_| bad("family of a limit", &old.family))?,
        received,
        accepted,
        announced,
        warn_percent: old.warn_percent.min(100) as u8,
        action: match old.action.as_str() {
            "idle" => LimitAction::Idle,
            "restart" => LimitAction::Restart,
            "warn" => LimitAction::Warn,
            other => return Err(bad("action of a limit", other)),
        },
        restart_after: seconds(old.restart_seconds),
    })
}

fn paths(old: &api::Peer) -> Result<PathRules, XrlError> {
    let before = match old.next_hop_self {
        true => api::NextHopRule::Ourselves,
        false => api::NextHopRule::Auto,
    };
    let rules = old.paths.unwrap_or(api::PathRules { next_hop: before.into(), ..api::PathRules::default() });
    let role = match rules.role.map(|role| u8::try_from(role).ok().and_then(BgpRole::from_octet)) {
        Some(None) => return Err(bad("role of", &old.name)),
        known => known.flatten(),
    };
    // Newer keys are not said.
    let usual = PathRules { enforce_first_as: old.enforce_first_as, ..PathRules::default() };
    Ok(PathRules {
        next_hop: match rules.next_hop() {
            api::NextHopRule::Auto => NextHopRule::Auto,
            api::NextHopRule::Ourselves => NextHopRule::Ourselves,
            api::NextHopRule::Unchanged => NextHopRule::Unchanged,
        },
        route_reflector_client: rules.reflector_client,
        route_server_client: rules.route_server_client,
        own_view: rules.own_view,
        local_asn: (rules.local_asn != 0).then_some(Asn(rules.local_asn)),
        local_asn_mode: match (rules.local_asn_on_import, rules.local_asn_with_real) {
            (true, _) => LocalAsnMode::Prepend,
            (false, true) => LocalAsnMode::NoPrepend,
            (false, false) if rules.local_asn != 0 => LocalAsnMode::Replace,
            (false, false) => LocalAsnMode::Prepend,
        },
        allow_own_asn: u8::try_from(rules.allow_own_asn).unwrap_or(u8::MAX),
        remove_private_asns: match rules.private_asns() {
            api::PrivateAsns::Keep => PrivateAsnRule::Keep,
            api::PrivateAsns::Remove => PrivateAsnRule::Remove,
            api::PrivateAsns::Replace => PrivateAsnRule::Replace,
        },
        as_override: rules.as_override,
        role,
        graceful_shutdown: rules.graceful_shutdown,
        blackhole: rules.blackhole,
        default_originate: old.default_originate,
        origin_validation: !rules.unvalidated,
        accept_validity: rules.accept_validity,
        announce_validity: rules.announce_validity,
        ..usual
    })
}
