//! What differs between two configurations, in lines for people.

use std::collections::{HashMap, HashSet};

use holdfast_config::{
    Config,
    schema::{Admission, Bgp, Signing, StaticRoute},
};

/// What is said of processes in whose place others are.
pub(super) const REPLACED: &str = "processes replaced";

/// Names in one line of what has changed.
const MOST_NAMES: usize = 10;

/// What is different, for people.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let identity = |config: &Config| (config.router.id, config.router.asn);
    if identity(old) != identity(new) {
        lines.push("[router] changed".to_owned());
    }
    if old.router.hang_limit != new.router.hang_limit {
        lines.push("hang-limit changed".to_owned());
    }
    let (metrics, fea, rib) = (old.metrics != new.metrics, old.fea != new.fea, old.rib != new.rib);
    lines.extend(
        [(metrics, "[metrics] changed"), (fea, "[fea] changed"), (rib, "[rib] changed")]
            .iter()
            .filter(|c| c.0)
            .map(|c| c.1.to_owned()),
    );
    if old.log != new.log {
        lines.push("[log] changed".to_owned());
    }
    let confinement = |config: &Config| (config.sandbox.mode, config.sandbox.first_user);
    if confinement(old) != confinement(new) {
        lines.push("[sandbox] changed".to_owned());
    }
    if old.sandbox.limits != new.sandbox.limits {
        lines.push("[sandbox.limits] changed".to_owned());
    }
    if old.glass != new.glass {
        lines.push("[glass] changed".to_owned());
    }
    if old.rpki.exceptions != new.rpki.exceptions {
        lines.push("local exceptions of [rpki] changed".to_owned());
    }
    compare(&mut lines, "RPKI caches", &old.rpki.caches, &new.rpki.caches, |cache| cache.name.clone());
    match (&old.store, &new.store) {
        (None, Some(_)) => lines.push("[nonstop.store] added".to_owned()),
        (Some(_), None) => lines.push("[nonstop.store] removed".to_owned()),
        (before, now) if before != now => lines.push("[nonstop.store] changed".to_owned()),
        (_, _) => {}
    }
    lines.extend(changes_of_signing(&old.bgpsec, &new.bgpsec));
    lines.extend(changes_of_door(old, new));
    if old.xrl.listen != new.xrl.listen {
        lines.push("xrl listeners changed".to_owned());
    }
    lines.extend(changes_of_sections(old, new));
    compare(&mut lines, "xrl clients", &old.xrl.clients, &new.xrl.clients, |client| client.name.clone());
    compare(&mut lines, "VRFs", &old.vrfs, &new.vrfs, |vrf| vrf.name.clone());
    let name = |route: &StaticRoute| in_vrf(route.prefix.to_string(), route.vrf.as_deref());
    compare(&mut lines, "static routes", &old.statics, &new.statics, name);
    compare(&mut lines, "protocols", &old.protocols, &new.protocols, |protocol| protocol.name.clone());
    let (before, now) = (&old.policy, &new.policy);
    compare(&mut lines, "prefix-sets", &before.prefix_sets, &now.prefix_sets, |set| set.name.clone());
    compare(&mut lines, "community-sets", &before.community_sets, &now.community_sets, |set| {
        set.name.clone()
    });
    compare(&mut lines, "as-path-sets", &before.as_path_sets, &now.as_path_sets, |set| set.name.clone());
    compare(&mut lines, "policies", &before.policies, &now.policies, |policy| policy.name.clone());
    match (&old.bgp, &new.bgp) {
        (Some(old), Some(new)) => changes_of_bgp(&mut lines, old, new),
        (None, Some(_)) => lines.push("[bgp] added".to_owned()),
        (Some(_), None) => lines.push("[bgp] removed".to_owned()),
        (None, None) => {}
    }
    lines
}

fn changes_of_bgp(lines: &mut Vec<String>, old: &Bgp, new: &Bgp) {
    if settings(old) != settings(new) {
        lines.push("[bgp] changed".to_owned());
    }
    let listeners = |bgp: &Bgp| (bgp.port, bgp.listen.clone(), bgp.quic_port, bgp.quic_s2n_port);
    if listeners(old) != listeners(new) {
        lines.push("listeners changed".to_owned());
    }
    compare(lines, "networks", &old.networks, &new.networks, ToString::to_string);
    compare(lines, "aggregates", &old.aggregates, &new.aggregates, |it| it.prefix.to_string());
    compare(lines, "redistribution of", &old.redistribute, &new.redistribute, |it| {
        in_vrf(it.from.clone(), it.vrf.as_deref())
    });
    if old.rib_policy != new.rib_policy {
        lines.push("rib-policy changed".to_owned());
    }
    compare(lines, "dumps", &old.mrt, &new.mrt, |mrt| mrt.file.clone());
    compare(lines, "collectors", &old.bmp, &new.bmp, |bmp| bmp.name.clone());
    compare(lines, "peers", &old.peers, &new.peers, |peer| peer.name.clone());
}

/// What of `[bgp]` has no line of its own.
fn settings(bgp: &Bgp) -> impl PartialEq + '_ {
    // Without `..`: a field that is new has to go to one side or the other.
    let Bgp {
        as_sets,
        local_preference,
        max_paths,
        bgpsec_pace,
        nonstop,
        nonstop_memory,
        damping,
        cluster_id,
        decision,
        consistency_check,
        confederation,
        port: _,
        listen: _,
        quic_port: _,
        quic_s2n_port: _,
        peers: _,
        networks: _,
        aggregates: _,
        redistribute: _,
        rib_policy: _,
        mrt: _,
        bmp: _,
    } = bgp;
    let paths = (as_sets, local_preference, max_paths, bgpsec_pace, cluster_id, decision, confederation);
    (paths, nonstop, nonstop_memory, damping, consistency_check)
}

/// Of sections that belong to one process each.
fn changes_of_sections(old: &Config, new: &Config) -> Vec<String> {
    let sections = |config: &Config| Vec::from_iter(config.sections.clone());
    let mut lines = Vec::new();
    compare(&mut lines, "sections", &sections(old), &sections(new), |section| section.0.to_owned());
    lines
}

/// Of what paths are signed with. A file that holds another key counts, too, and so does the order of the keys.
fn changes_of_signing(old: &Signing, new: &Signing) -> Vec<String> {
    let mut lines = Vec::new();
    compare(&mut lines, "private keys", &old.keys, &new.keys, |key| key.key.file.clone());
    if lines.is_empty() && old.keys != new.keys {
        lines.push("order of private keys changed".to_owned());
    }
    let numbers = |signing: &Signing| Signing { keys: Vec::new(), ..signing.clone() };
    if numbers(old) != numbers(new) {
        lines.push("[bgpsec] changed".to_owned());
    }
    lines
}

/// Of keys, certificates and admission. A file that holds something else counts, too.
fn changes_of_door(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if old.tls != new.tls {
        lines.push("[tls] changed".to_owned());
    }
    let numbers = |config: &Config| Admission { sets: Vec::new(), ..config.admission.clone() };
    if numbers(old) != numbers(new) {
        lines.push("[admission] changed".to_owned());
    }
    let (before, now) = (&old.admission.sets, &new.admission.sets);
    compare(&mut lines, "sets of admission", before, now, |set| set.name.clone());
    lines
}

/// What is called so in a VRF, or in the default table.
fn in_vrf(name: String, vrf: Option<&str>) -> String {
    match vrf {
        Some(vrf) => format!("{name} in VRF {vrf}"),
        None => name,
    }
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
pub(super) fn line(what: &str, names: &[impl AsRef<str>]) -> Option<String> {
    let shown: Vec<_> = names.iter().take(MOST_NAMES).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        _ if names.is_empty() => None,
        0 => Some(format!("{what}: {shown}")),
        more => Some(format!("{what}: {shown} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<_> = (0..12).map(|number| number.to_string()).collect();
        assert_eq!(
            line("peers added", &names).as_deref(),
            Some("peers added: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more")
        );
        assert_eq!(line("peers added", &[""; 0]), None);
    }
}
