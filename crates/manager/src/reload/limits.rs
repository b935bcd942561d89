//! Which sessions have more now than another configuration lets them have: it ends them, as `bgp` does then.

use std::{collections::HashMap, time::Duration};

use holdfast_api::bgp::v1::{BgpClient, Neighbor, ShowNeighborsRequest};
use holdfast_config::{
    Config,
    schema::{LimitAction, Peer, Remote},
    whereabouts::{Whereabouts, peers},
};
use holdfast_xrl::{XrlError, scoped};
use tokio::time::timeout;

use crate::manager::Manager;

/// How long `bgp` may take to say what its peers have.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// The state of a session that is up, as `bgp` says it.
const ESTABLISHED: &str = "Established";

/// A session that has more than it may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    /// The peer, or the member of a listen range.
    pub(crate) peer: String,
    /// Its VRF.
    pub(crate) vrf: Option<String>,
    /// The peer or listen range of the configuration that it belongs to.
    pub(crate) configured: String,
    /// What it has and what it may have, in words of the operator.
    pub(crate) cause: String,
}

/// Peers that stay, with other limits than before: those before, and those that are wanted.
fn limited<'a>(old: &'a Config, new: &'a Config) -> Vec<(&'a Peer, &'a Peer)> {
    let wanted: HashMap<Whereabouts, &Peer> = peers(new).collect();
    let limits = |peer: &Peer| (peer.limits.clone(), peer.rules.max_octets, peer.rules.max_cost);
    let both = peers(old).filter_map(|(at, before)| Some((before, *wanted.get(&at)?)));
    both.filter(|(before, after)| !before.rules.disabled && limits(before) != limits(after)).collect()
}

/// Asks `bgp` what those have whose limits differ.
pub(super) async fn ask(manager: &Manager, old: &Config, new: &Config) -> Vec<Over> {
    let limited = limited(old, new);
    let mut tables: Vec<Option<String>> = limited.iter().map(|(before, _)| before.vrf.clone()).collect();
    tables.sort();
    tables.dedup();
    let mut over = Vec::new();
    for vrf in tables {
        let here = limited.iter().filter(|(before, _)| before.vrf == vrf);
        let here: Vec<_> = here.map(|(before, after)| (*before, *after)).collect();
        // One that does not answer has no sessions, or is about to lose them.
        let shown = timeout(ASK_LIMIT, neighbors(manager, vrf.as_deref(), &here)).await;
        let shown = shown.ok().and_then(Result::ok).unwrap_or_default();
        over.extend(shown.iter().filter_map(|neighbor| find(&here, neighbor)));
    }
    over
}

/// What `bgp` shows of these peers, or of all where one has members.
async fn neighbors(
    manager: &Manager,
    vrf: Option<&str>,
    limited: &[(&Peer, &Peer)],
) -> Result<Vec<Neighbor>, XrlError> {
    let bgp: BgpClient = manager.resolver.client(&scoped("bgp", vrf)).await?;
    let one = match limited {
        [(before, _)] if !matches!(before.remote, Remote::Range(_)) => before.name.clone(),
        _ => String::new(),
    };
    let (mut shown, mut found) = (bgp.show_neighbors(ShowNeighborsRequest { peer: one }), Vec::new());
    while let Some(neighbor) = shown.next().await? {
        found.push(neighbor);
    }
    Ok(found)
}

/// Why the session of a neighbor has to end, if it is of one of these.
fn find(limited: &[(&Peer, &Peer)], neighbor: &Neighbor) -> Option<Over> {
    let peer = neighbor.peer.as_ref().filter(|peer| peer.state == ESTABLISHED)?;
    let is_its = |before: &Peer| match before.remote {
        Remote::Range(_) => {
            peer.name.strip_prefix(&before.name).is_some_and(|member| member.starts_with(':'))
        }
        Remote::Address(_) | Remote::OnLink(..) | Remote::LinkLocal(..) | Remote::Interface(_) => {
            peer.name == before.name
        }
    };
    let (before, after) = limited.iter().find(|(before, _)| is_its(before))?;
    let cause = cause(after, neighbor)?;
    let (peer, configured, vrf) = (peer.name.clone(), before.name.clone(), before.vrf.clone());
    Some(Over { peer, vrf, configured, cause })
}

/// What a neighbor has more than these limits let it have.
fn cause(peer: &Peer, neighbor: &Neighbor) -> Option<String> {
    let prefixes = peer.limits.iter().filter(|limit| limit.action != LimitAction::Warn).find_map(|limit| {
        let name = limit.family.to_string();
        let has = neighbor.families.iter().find(|family| family.family == name)?;
        let counts = [
            ("received", has.received, limit.received),
            ("accepted", has.accepted, limit.accepted),
            ("announced", has.sent, limit.announced),
        ];
        let over =
            counts.into_iter().find(|(_, count, most)| most.is_some_and(|most| *count > u64::from(most)));
        over.map(|(what, count, most)| {
            format!("{count} prefixes of {name} are {what}, and `{what}` is {}", most.unwrap_or(0))
        })
    });
    let cost = neighbor.cost.clone().unwrap_or_default();
    let octets = || {
        let most = peer.rules.max_octets.octets();
        let text = format!("{} octets are kept for it, and `max-octets` is {most}", cost.kept_octets);
        (cost.kept_octets > most).then_some(text)
    };
    let waits = || {
        let most = u32::from(peer.rules.max_cost?);
        let text = format!(
            "others wait for it {} % of the time, and `max-cost` is {most}",
            cost.waited_for_permille / 10
        );
        (cost.waited_for_permille > most * 10).then_some(text)
    };
    prefixes.or_else(octets).or_else(waits)
}

#[cfg(test)]
mod tests {
    use holdfast_api::bgp::v1::{Cost, FamilyState, SummaryPeer};
    use holdfast_config::Schema;

    use super::*;

    fn config(limits: &str) -> Config {
        let text = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\n[[bgp.peer]]\nname = \"a\"\naddress = \"10.0.1.2\"\n\
             asn = 65001\n{limits}\n[[bgp.peer]]\nname = \"r\"\nlisten-range = \"10.0.2.0/24\"\nasn = 65002\n{limits}\n"
        );
        holdfast_config::parse(&text, "test", Schema::new([])).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    fn neighbor(name: &str, state: &str) -> Neighbor {
        let family = FamilyState {
            family: "ipv4-unicast".into(),
            received: 10,
            accepted: 8,
            sent: 6,
            ..FamilyState::default()
        };
        let peer = SummaryPeer { name: name.into(), state: state.into(), ..SummaryPeer::default() };
        let cost = Cost { kept_octets: 3 << 20, waited_for_permille: 125, ..Cost::default() };
        Neighbor { peer: Some(peer), families: vec![family], cost: Some(cost), ..Neighbor::default() }
    }

    fn over(limits: &str, neighbor: &Neighbor) -> Option<String> {
        let (old, new) = (config(""), config(limits));
        find(&limited(&old, &new), neighbor).map(|over| over.cause)
    }

    #[test]
    fn a_session_ends_above_a_limit_and_not_at_it() {
        let limit = |what: &str| format!("[[bgp.peer.limit]]\nfamily = \"ipv4-unicast\"\n{what}");
        let up = neighbor("a", ESTABLISHED);
        for (limits, expected) in [
            (limit("received = 10\naccepted = 8\nannounced = 6"), None),
            (limit("received = 9"), Some("10 prefixes of ipv4-unicast are received, and `received` is 9")),
            (limit("accepted = 7"), Some("8 prefixes of ipv4-unicast are accepted, and `accepted` is 7")),
            (
                limit("announced = 1\naction = \"restart\""),
                Some("6 prefixes of ipv4-unicast are announced, and `announced` is 1"),
            ),
            (limit("received = 1\naction = \"warn\""), None),
            ("max-octets = \"3 MiB\"".into(), None),
            (
                "max-octets = \"2 MiB\"".into(),
                Some("3145728 octets are kept for it, and `max-octets` is 2097152"),
            ),
            ("max-cost = 13".into(), None),
            ("max-cost = 12".into(), Some("others wait for it 12 % of the time, and `max-cost` is 12")),
        ] {
            assert_eq!(over(&limits, &up).as_deref(), expected, "{limits}");
            assert_eq!(over(&limits, &neighbor("a", "Active")), None, "{limits}");
        }
    }

    #[test]
    fn members_of_a_range_are_named_and_others_are_not() {
        let (old, new) = (config(""), config("max-octets = \"1 MiB\""));
        let limited = limited(&old, &new);
        let found = |name: &str| {
            find(&limited, &neighbor(name, ESTABLISHED)).map(|over| (over.peer, over.configured))
        };
        assert_eq!(found("r:10.0.2.9"), Some(("r:10.0.2.9".into(), "r".into())));
        assert_eq!(found("r"), None);
        assert_eq!(found("ab"), None);
        assert!(self::limited(&new, &new).is_empty(), "nothing differs");
    }
}
