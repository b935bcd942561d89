//! Who has to be told what, and in which order.

use std::{collections::HashSet, sync::Arc};

use holdfast_config::{Config, schema::Vrf};
use holdfast_process::Processes;
use holdfast_xrl::XrlError;

use super::sessions::with_other_sockets;
use crate::{
    apart::apart,
    configure::{self, Message, Part},
    outsiders,
    whereabouts::site,
};

/// Who is told, in this order.
fn in_turn(processes: &Processes) -> impl Iterator<Item = &'static str> {
    std::iter::once("manager").chain(processes.as_configured().map(|process| process.name))
}

pub(super) type Messages = Vec<(&'static str, Message)>;

/// [`by_turn`], while others are answered.
pub(super) async fn what_to_tell(
    processes: &Processes,
    old: &Arc<Config>,
    new: &Arc<Config>,
) -> Result<(Messages, Messages), XrlError> {
    let (processes, old, new) = (processes.clone(), Arc::clone(old), Arc::clone(new));
    apart(move || by_turn(&processes, &old, &new)).await?
}

/// What has to be told first, since it may be refused; and what then. A VRF that moves ends where it is before it begins
/// elsewhere.
pub(super) fn by_turn(
    processes: &Processes,
    old: &Config,
    new: &Config,
) -> Result<(Messages, Messages), XrlError> {
    let staying = without_those_that_move(old, new);
    let is_there = |vrf: &String| staying.vrfs.iter().any(|known| known.name == *vrf);
    let stay =
        old.vrfs.iter().all(|vrf| is_there(&vrf.name) && new.vrfs.iter().any(|other| other.name == vrf.name));
    let is_first = |message: &Message| match (&message.part, &message.vrf) {
        // Another process is to open them: it is there only then.
        (Part::Socket(_), _) if old.rib.enabled != new.rib.enabled => false,
        (Part::Socket(_), vrf) => vrf.as_ref().is_none_or(is_there),
        (Part::Keep(_), vrf) => vrf.as_ref().is_none_or(is_there),
        // Without a VRF it says which there are.
        (Part::Transport(_), None) => stay,
        (Part::Transport(_), Some(vrf)) => is_there(vrf),
        _ => false,
    };
    let coming = differing(processes, &staying, new)?.into_iter();
    let (first, then): (Messages, Messages) = coming.partition(|(_, message)| is_first(message));
    let going = differing(processes, old, &staying)?.into_iter();
    Ok((first, going.chain(then).collect()))
}

/// A configuration without the VRFs that are somewhere else in the next one, and what is in them.
fn without_those_that_move(config: &Config, next: &Config) -> Config {
    let moves = |vrf: &Vrf| {
        next.vrfs.iter().any(|other| other.name == vrf.name && site(&other.place) != site(&vrf.place))
    };
    let moving: HashSet<String> =
        config.vrfs.iter().filter(|vrf| moves(vrf)).map(|vrf| vrf.name.clone()).collect();
    let stays = |vrf: Option<&String>| vrf.is_none_or(|vrf| !moving.contains(vrf));
    let mut config = config.clone();
    if !moving.is_empty() {
        // The door has the next key before it is told of any certificate.
        config.tls.clone_from(&next.tls);
    }
    config.vrfs.retain(|vrf| stays(Some(&vrf.name)));
    config.statics.retain(|route| stays(route.vrf.as_ref()));
    if let Some(bgp) = &mut config.bgp {
        bgp.peers.retain(|peer| stays(peer.vrf.as_ref()));
        bgp.redistribute.retain(|wanted| stays(wanted.vrf.as_ref()));
    }
    config
}

/// What has to be told, and to whom.
fn differing(processes: &Processes, old: &Config, new: &Config) -> Result<Messages, XrlError> {
    let refit = with_other_sockets(old, new);
    let mut differing = Vec::new();
    for name in in_turn(processes).chain(outsiders::names(new)) {
        let (before, after) = (configure::parts(name, old)?, configure::parts(name, new)?);
        // What the door keeps, for all tables alike, it uses from its next configuration on.
        let is_known = |part: &Part| before.iter().any(|message| message.part == *part);
        let is_kept = |message: &Message| matches!(message.part, Part::Keep(_)) && !is_known(&message.part);
        let keeps = after.iter().any(is_kept);
        for mut message in after {
            if let Part::Bgp(part) = &mut message.part {
                let is_its = |name: &&String| part.peers.iter().any(|peer| peer.name == **name);
                part.refit = refit.iter().filter(is_its).cloned().collect();
            }
            if !before.contains(&message) || keeps && matches!(message.part, Part::Transport(_)) {
                differing.push((name, message));
            }
        }
    }
    Ok(differing)
}

#[cfg(test)]
mod tests {
    use crate::reload::{
        differences::changes,
        fixtures::{config, ending, secure, whom, with_vrfs},
    };

    use super::*;

    #[test]
    fn keys_of_quic_are_kept_as_soon_as_somebody_uses_it() {
        let (old, new) = (secure(&[], ""), secure(&[("\"tls\"", "\"quic\"")], ""));
        let (first, _) = by_turn(&crate::tests::processes(), &old, &new).expect("parts");
        assert_eq!(whom(&first), ["secrets", "transport"]);
    }

    #[test]
    fn what_is_kept_is_in_use_with_the_reload_that_brings_it() {
        let logging = secure(&[("[bgp]", "key-log = \"secrets.log\"\n[bgp]")], "");
        for (old, new) in [(secure(&[], ""), logging.clone()), (logging, secure(&[], ""))] {
            assert_eq!(told(&old, &new), (["secrets", "transport"].map(str::to_owned).to_vec(), Vec::new()));
        }
    }

    fn told(old: &Config, new: &Config) -> (Vec<String>, Vec<String>) {
        let (first, then) = by_turn(&crate::tests::processes(), old, new).expect("parts");
        (whom(&first), whom(&then))
    }

    #[test]
    fn what_is_in_a_vrf_is_told_to_its_instances_only() {
        let config = with_vrfs(&[]);
        let parts = |process| configure::parts(process, &config).expect("parts");
        let mut found = Vec::new();
        for message in ["fea", "rib", "transport", "bgp"].into_iter().flat_map(parts) {
            let vrf = message.vrf.unwrap_or_default();
            found.push(match message.part {
                Part::Socket(part) => format!("socket@{vrf} {}", part.peers.len()),
                Part::Keep(_) => format!("secrets@{vrf}"),
                Part::Transport(part) => {
                    format!("transport@{vrf} {} {}", part.peers.len(), part.vrfs.join("+"))
                }
                Part::Fea(part) => format!("fea@{vrf} {} {}", part.table, part.vrfs.len()),
                Part::Rib(part) => format!("rib@{vrf} {} {}", part.statics.len(), part.vrfs.join("+")),
                Part::Bgp(part) => format!("bgp@{vrf} {} {}", part.peers.len(), part.vrfs.join("+")),
                part => panic!("{part:?}"),
            });
        }
        let expected = [
            "socket@ 2",
            "fea@ 254 2",
            "socket@blue 1",
            "fea@blue 100 0",
            "socket@red 1",
            "fea@red 254 0",
            "rib@ 1 blue+red",
            "rib@blue 1 ",
            "rib@red 0 ",
            "secrets@",
            "transport@ 2 blue+red",
            "secrets@blue",
            "transport@blue 1 ",
            "secrets@red",
            "transport@red 1 ",
            "bgp@ 2 blue+red",
            "bgp@blue 1 ",
            "bgp@red 1 ",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_vrf_comes_and_goes_and_nobody_else_is_told_more_than_that() {
        let (none, both) = (config(&[]), with_vrfs(&[]));
        let come = ["fea", "socket@blue", "fea@blue", "socket@red", "fea@red", "rib", "rib@blue", "rib@red"];
        let come = come.into_iter().chain(["secrets@blue", "transport@blue", "secrets@red", "transport@red"]);
        let come = come.chain(["bgp", "bgp@blue", "bgp@red"]);
        let come = come.map(str::to_owned).collect();
        assert_eq!(told(&none, &both), (vec!["transport".into()], come));
        let gone = ["fea", "rib", "transport", "bgp"].map(str::to_owned).into();
        assert_eq!(told(&both, &none), (Vec::new(), gone));
        let (begin, end) = (ending(&none, &both), ending(&both, &none));
        assert_eq!((begin, end), (Vec::new(), vec!["c".to_owned(), "d".to_owned()]));
        let lines =
            ["VRFs added: blue, red", "static routes added: 192.0.2.0/24 in VRF blue", "peers added: c, d"];
        assert_eq!(changes(&none, &both), lines);
    }

    #[test]
    fn a_change_in_a_vrf_is_told_there() {
        let old = with_vrfs(&[]);
        let other_key = with_vrfs(&[("asn = 65003", "asn = 65003\nmd5 = \"key\"")]);
        assert_eq!(with_other_sockets(&old, &other_key), ["c"]);
        assert_eq!(told(&old, &other_key), (vec!["socket@blue".into()], vec!["bgp@blue".into()]));
        let other_table = with_vrfs(&[("table = 100", "table = 101")]);
        assert_eq!(told(&old, &other_table), (Vec::new(), vec!["fea".into(), "fea@blue".into()]));
        assert!(ending(&old, &other_table).is_empty());
        let other_vrf = with_vrfs(&[
            ("vrf = \"red\"", "vrf = \"blue\""),
            ("10.0.1.2\"\n    asn = 65004", "10.0.1.3\"\n    asn = 65004"),
        ]);
        assert_eq!(ending(&old, &other_vrf), ["d"]);
    }

    #[test]
    fn a_vrf_that_moves_ends_before_it_begins() {
        let (old, new) = (with_vrfs(&[]), with_vrfs(&[("netns = \"red\"", "table = 9\ndevice = \"red\"")]));
        let then = [
            "fea",
            "rib",
            "transport",
            "bgp",
            "fea",
            "socket@red",
            "fea@red",
            "rib",
            "rib@red",
            "transport",
            "secrets@red",
            "transport@red",
            "bgp",
            "bgp@red",
        ];
        assert_eq!(told(&old, &new), (Vec::new(), then.map(str::to_owned).into()));
        assert_eq!(ending(&old, &new), ["d"]);
    }

    #[test]
    fn a_vrf_that_moves_while_the_certificate_changes_is_told_of_no_earlier_one() {
        let with = |tls: &str, place: &str| {
            with_vrfs(&[
                ("netns = \"red\"", place),
                ("[bgp]\n", &format!("[tls]\nkey = \"{tls}.key\"\ncertificate = \"{tls}.pem\"\n[bgp]\n")),
            ])
        };
        let (old, new) = (with("a", "netns = \"red\""), with("b", "table = 9\ndevice = \"red\""));
        let (first, then) = by_turn(&crate::tests::processes(), &old, &new).expect("parts");
        let staying = without_those_that_move(&old, &new);
        assert_eq!((staying.tls, staying.vrfs.len()), (new.tls, 1));
        assert!(!first.iter().chain(&then).any(|(_, message)| format!("{message:?}").contains("a.pem")));
    }

    #[test]
    fn who_has_no_part_in_a_change_is_not_told() {
        let (old, new) = (config(&[]), config(&[("accept-all", "reject-all")]));
        let same = |name| configure::parts(name, &old).ok() == configure::parts(name, &new).ok();
        assert_eq!(["fea", "rib", "bgp"].map(same), [true, true, false]);
    }
}
