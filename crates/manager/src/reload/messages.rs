//! Who has to be told what, and in which order.

use std::{borrow::Cow, collections::HashSet};

use holdfast_api::socket::v1::SocketClient;
use holdfast_config::{Config, schema::Vrf, whereabouts::site};
use holdfast_process::{Processes, Refit};
use holdfast_xrl::{Client, XrlError};

use crate::{
    birth::MANAGER,
    configure::{Message, messages},
    outsiders,
};

/// What processes are told, by name, in this order.
pub type Messages = Vec<(&'static str, Message)>;

/// Who is told, in this order.
fn in_turn(processes: &Processes) -> impl Iterator<Item = &'static str> {
    std::iter::once(MANAGER).chain(processes.as_configured().map(|process| process.name))
}

/// What has to be told first, before processes begin and end; and what then. A VRF that moves ends where it is before it begins
/// elsewhere.
pub(super) fn by_turn(
    processes: &Processes,
    old: &Config,
    new: &Config,
    refit: &Refit,
) -> Result<(Messages, Messages), XrlError> {
    let staying = without_those_that_move(old, new);
    let is_there = |vrf: &String| staying.vrfs.iter().any(|known| known.name == *vrf);
    let vrfs_stay =
        old.vrfs.iter().all(|vrf| is_there(&vrf.name) && new.vrfs.iter().any(|other| other.name == vrf.name));
    // Where another process is to open the sockets, it is there only then.
    let openers_stay = old.rib.enabled == new.rib.enabled;
    let is_first = |Message { vrf, request }: &Message| {
        request.opens
            && vrf.as_ref().is_none_or(is_there)
            && (vrfs_stay || !request.names_vrfs)
            && (openers_stay || request.service.id != SocketClient::SERVICE.id)
    };
    let coming = differing(processes, &staying, new, refit)?.into_iter();
    let (first, then): (Messages, Messages) = coming.partition(|(_, message)| is_first(message));
    let going = match &staying {
        Cow::Borrowed(_) => Messages::new(),
        Cow::Owned(staying) => differing(processes, old, staying, &Refit::new())?,
    };
    Ok((first, going.into_iter().chain(then).collect()))
}

/// A configuration without the VRFs that are somewhere else in the next one, and what is in them.
fn without_those_that_move<'c>(config: &'c Config, next: &Config) -> Cow<'c, Config> {
    let moves = |vrf: &Vrf| {
        next.vrfs.iter().any(|other| other.name == vrf.name && site(&other.place) != site(&vrf.place))
    };
    let moving: HashSet<String> =
        config.vrfs.iter().filter(|vrf| moves(vrf)).map(|vrf| vrf.name.clone()).collect();
    if moving.is_empty() {
        return Cow::Borrowed(config);
    }
    let stays = |vrf: Option<&String>| vrf.is_none_or(|vrf| !moving.contains(vrf));
    let mut config = config.clone();
    // The door has the next key before it is told of any certificate.
    config.tls.clone_from(&next.tls);
    config.vrfs.retain(|vrf| stays(Some(&vrf.name)));
    config.statics.retain(|route| stays(route.vrf.as_ref()));
    if let Some(bgp) = &mut config.bgp {
        bgp.peers.retain(|peer| stays(peer.vrf.as_ref()));
        bgp.redistribute.retain(|wanted| stays(wanted.vrf.as_ref()));
    }
    Cow::Owned(config)
}

/// What has to be told, and to whom.
fn differing(processes: &Processes, old: &Config, new: &Config, refit: &Refit) -> Result<Messages, XrlError> {
    let mut differing = Vec::new();
    for name in in_turn(processes).chain(outsiders::names(new)) {
        let before = messages(processes, name, old, &Refit::new())?;
        for mut message in messages(processes, name, new, refit)? {
            if before.contains(&message) {
                continue;
            }
            let same = before.iter().find(|before| before.vrf == message.vrf);
            if same.is_some_and(|same| same.request.secrets == message.request.secrets) {
                // It has them.
                message.request.secrets = None;
            }
            if same.is_some_and(|same| same.request.files == message.request.files) {
                message.request.files = None;
            }
            differing.push((name, message));
        }
    }
    Ok(differing)
}
