//! Another configuration for what runs: all of it or nothing, and only to those for whom it differs.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use holdfast_api::manager::v1::ReloadReply;
use holdfast_config::{
    Config,
    schema::{Bgp, Peer, Remote},
};
use holdfast_process::spawn_task;
use holdfast_xrl::XrlError;
use tracing::{info, warn};

use crate::{
    CONFIGURE_LIMIT,
    configure::{self, Part},
    read_configuration,
    service::Manager,
};

/// Who is told, in this order: who is fed by another comes before it.
const TOLD: [&str; 4] = ["manager", "fea", "rib", "bgp"];
/// Names in one line of what has changed.
const MOST_NAMES: usize = 10;

/// Reads the file again. The outcome is logged as well: nobody may be there to read the answer.
pub(crate) async fn reload(manager: &Rc<Manager>) -> Result<ReloadReply, XrlError> {
    let _turn = manager.reloading.lock().await;
    let result = replace(manager).await;
    match &result {
        Ok(reply) if reply.changes.is_empty() => info!("reload: nothing has changed"),
        Ok(reply) => reply.changes.iter().for_each(|change| info!("reload: {change}")),
        Err(error) => warn!("reload refused, nothing has changed: {}", error.message()),
    }
    result
}

async fn replace(manager: &Rc<Manager>) -> Result<ReloadReply, XrlError> {
    if manager.is_stopping() {
        return Err(XrlError::failed_precondition("the router is being stopped"));
    }
    let file = manager.file.clone();
    // A big file takes a while, in which others are answered.
    let read = tokio::task::spawn_blocking(move || read_configuration(&file)).await;
    let read = read.map_err(|error| XrlError::internal(error.to_string()))?;
    let new = Rc::new(read.map_err(XrlError::invalid_argument)?);
    let old = manager.config();
    if old == new {
        return Ok(ReloadReply::default());
    }
    let fixed = only_with_a_restart(&old, &new);
    if !fixed.is_empty() {
        let text = format!("only a restart of the router can change {}", fixed.join(", "));
        return Err(XrlError::failed_precondition(text));
    }
    let (sockets, others): (Vec<_>, Vec<_>) =
        differing(&old, &new)?.into_iter().partition(|(_, part)| matches!(part, Part::Transport(_)));
    // Keys and listeners are there before the sessions that need them; and the kernel may have no room for them.
    for (name, part) in sockets {
        tell(manager, name, part).await.map_err(|error| XrlError::failed_precondition(error.message()))?;
    }
    manager.restart.borrow_mut().extend(with_other_sockets(&old, &new));
    // Whoever is born from now on is told the new one.
    manager.config.replace(Rc::clone(&new));
    let mut reply = ReloadReply { changes: changes(&old, &new), problems: Vec::new() };
    for (name, part) in others {
        match tell(manager, name, part).await {
            Ok(ended) => reply.changes.extend(line("sessions ended", &ended)),
            Err(error) => {
                warn!(process = name, "does not take its configuration: {error}");
                reply.problems.push(format!("{name}: {}", error.message()));
            }
        }
    }
    Ok(reply)
}

/// What has to be told, and to whom.
fn differing(old: &Config, new: &Config) -> Result<Vec<(&'static str, Part)>, XrlError> {
    let mut differing = Vec::new();
    for name in TOLD {
        let before = configure::parts(name, old)?;
        for mut part in configure::parts(name, new)? {
            if let Part::Bgp(part) = &mut part {
                part.restart = with_other_sockets(old, new);
            }
            if !before.contains(&part) {
                differing.push((name, part));
            }
        }
    }
    Ok(differing)
}

/// Tells a process, if it is there; the sessions that ended. A process that refuses is told all that holds then again
/// and again, as after its birth.
async fn tell(manager: &Rc<Manager>, name: &'static str, part: Part) -> Result<Vec<String>, XrlError> {
    let pid = manager.supervisor.borrow_mut().reconfigure(name);
    if pid.is_none() && name != "manager" {
        return Ok(Vec::new());
    }
    let result = tokio::time::timeout(CONFIGURE_LIMIT, configure::tell(manager, part)).await;
    let result = result.unwrap_or_else(|_| Err(XrlError::timeout("no answer to its configuration")));
    match (&result, pid) {
        (Ok(_), _) => manager.supervisor.borrow_mut().configured(name),
        (Err(error), Some(pid)) => {
            manager.supervisor.borrow_mut().refused(name, error.to_string());
            spawn_task(crate::configure(Rc::clone(manager), name, pid));
        }
        (Err(_), None) => {}
    }
    result
}

/// What cannot change while the router runs, as the keys of the file.
fn only_with_a_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let speaker = |setting: fn(&Bgp) -> u64| {
        old.bgp.as_ref().zip(new.bgp.as_ref()).is_some_and(|(old, new)| setting(old) != setting(new))
    };
    let (near, far) = (old.rib.distance, new.rib.distance);
    let fixed = [
        ("`id` in [router]", old.router.id != new.router.id),
        ("`asn` in [router]", old.router.asn != new.router.asn),
        ("[log]", old.log != new.log),
        ("`enabled` in [rib]", old.rib.enabled != new.rib.enabled),
        ("`connected` in [rib.distance]", near.connected != far.connected),
        ("`ebgp` in [rib.distance]", near.ebgp != far.ebgp),
        ("`ibgp` in [rib.distance]", near.ibgp != far.ibgp),
        ("whether there is [bgp]", old.bgp.is_some() != new.bgp.is_some()),
        ("`as-sets` in [bgp]", speaker(|bgp| bgp.as_sets as u64)),
        ("`local-preference` in [bgp]", speaker(|bgp| bgp.local_preference.into())),
        ("`max-paths` in [bgp]", speaker(|bgp| bgp.max_paths.into())),
    ];
    fixed.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

/// Peers and ranges that stay, whose sockets are made with another key from now on.
fn with_other_sockets(old: &Config, new: &Config) -> Vec<String> {
    let peers = |config: &Config| config.bgp.clone().map(|bgp| bgp.peers).unwrap_or_default();
    let before: HashMap<Remote, Peer> = peers(old).into_iter().map(|peer| (peer.remote, peer)).collect();
    let other = |peer: &Peer| before.get(&peer.remote).is_some_and(|before| before.md5 != peer.md5);
    peers(new).into_iter().filter(other).map(|peer| peer.name).collect()
}

/// What is different, for people.
fn changes(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let (fea, rib) = (old.fea != new.fea, old.rib != new.rib);
    lines.extend(
        [(fea, "[fea] changed"), (rib, "[rib] changed")].iter().filter(|c| c.0).map(|c| c.1.to_owned()),
    );
    compare(&mut lines, "static routes", &old.statics, &new.statics, |route| route.prefix.to_string());
    let (before, now) = (&old.policy, &new.policy);
    compare(&mut lines, "prefix-sets", &before.prefix_sets, &now.prefix_sets, |set| set.name.clone());
    compare(&mut lines, "community-sets", &before.community_sets, &now.community_sets, |set| {
        set.name.clone()
    });
    compare(&mut lines, "as-path-sets", &before.as_path_sets, &now.as_path_sets, |set| set.name.clone());
    compare(&mut lines, "policies", &before.policies, &now.policies, |policy| policy.name.clone());
    if let (Some(old), Some(new)) = (&old.bgp, &new.bgp) {
        if (old.port, &old.listen) != (new.port, &new.listen) {
            lines.push("listeners changed".to_owned());
        }
        compare(&mut lines, "networks", &old.networks, &new.networks, ToString::to_string);
        compare(&mut lines, "peers", &old.peers, &new.peers, |peer| peer.name.clone());
    }
    lines
}

/// Adds a line each for what a list has gained, lost and changed; `name` tells its things apart.
fn compare<T: PartialEq>(
    lines: &mut Vec<String>,
    what: &str,
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> String,
) {
    let before: HashMap<String, &T> = old.iter().map(|thing| (name(thing), thing)).collect();
    let now: HashSet<String> = new.iter().map(&name).collect();
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for thing in new {
        let name = name(thing);
        match before.get(&name) {
            None => added.push(name),
            Some(before) if *before != thing => changed.push(name),
            Some(_) => {}
        }
    }
    let removed: Vec<_> = old.iter().map(&name).filter(|name| !now.contains(name)).collect();
    for (how, names) in [("added", added), ("removed", removed), ("changed", changed)] {
        lines.extend(line(&format!("{what} {how}"), &names));
    }
}

/// The first of some names; nothing when there are none.
fn line(what: &str, names: &[String]) -> Option<String> {
    let shown = names.get(..MOST_NAMES).unwrap_or(names).join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        _ if names.is_empty() => None,
        0 => Some(format!("{what}: {shown}")),
        more => Some(format!("{what}: {shown} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [router]
        id = "10.0.0.1"
        asn = 65000
        [[static]]
        prefix = "192.0.2.0/24"
        blackhole = true
        [bgp]
        [[bgp.network]]
        prefix = "198.51.100.0/24"
        [[bgp.peer]]
        name = "a"
        address = "10.0.1.2"
        asn = 65001
        import = "accept-all"
        [[bgp.peer]]
        name = "b"
        address = "10.0.2.2"
        asn = 65002
        md5 = "first"
    "#;

    fn config(changed: &[(&str, &str)]) -> Config {
        let mut text = FILE.to_owned();
        for (old, new) in changed {
            assert!(text.contains(old), "{old}");
            text = text.replace(old, new);
        }
        holdfast_config::parse(&text, "test").expect("no errors")
    }

    #[test]
    fn what_is_different_is_told_by_name() {
        let new = config(&[("192.0.2.0", "192.0.3.0"), ("accept-all", "reject-all"), ("\"b\"", "\"c\"")]);
        let expected = [
            "static routes added: 192.0.3.0/24",
            "static routes removed: 192.0.2.0/24",
            "peers added: c",
            "peers removed: b",
            "peers changed: a",
        ];
        assert_eq!(changes(&config(&[]), &new), expected);
        assert!(changes(&config(&[]), &config(&[])).is_empty());
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<_> = (0..12).map(|number| number.to_string()).collect();
        assert_eq!(
            line("peers added", &names).as_deref(),
            Some("peers added: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more")
        );
        assert_eq!(line("peers added", &[]), None);
    }

    #[test]
    fn what_needs_a_restart_is_named_as_in_the_file() {
        let new =
            config(&[("65000", "65009"), ("[bgp]", "[rib]\ndistance = { ebgp = 30 }\n[bgp]\nmax-paths = 4")]);
        let expected = ["`asn` in [router]", "`ebgp` in [rib.distance]", "`max-paths` in [bgp]"];
        assert_eq!(only_with_a_restart(&config(&[]), &new), expected);
        assert!(only_with_a_restart(&config(&[]), &config(&[("65001", "65003")])).is_empty());
    }

    #[test]
    fn another_key_is_another_socket_and_nothing_that_bgp_sees() {
        let (old, new) = (config(&[]), config(&[("first", "second")]));
        assert_eq!(with_other_sockets(&old, &new), ["b"]);
        let parts = |config| configure::parts("bgp", config).expect("parts");
        assert_eq!(parts(&old), parts(&new));
    }

    #[test]
    fn who_has_no_part_in_a_change_is_not_told() {
        let (old, new) = (config(&[]), config(&[("accept-all", "reject-all")]));
        let same = |name| configure::parts(name, &old).ok() == configure::parts(name, &new).ok();
        assert_eq!(["fea", "rib", "bgp"].map(same), [true, true, false]);
    }
}
