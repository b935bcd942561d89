//! Another configuration for what runs: all of it or nothing, and only to those for whom it differs.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    rc::Rc,
    sync::Arc,
};

use holdfast_api::manager::v1::{DiffReply, DiffRequest, ReloadReply};
use holdfast_config::{
    Config, Schema,
    schema::{Admission, Bgp, Peer, Remote, StaticRoute, Vrf},
    session,
};
use holdfast_process::{Processes, spawn_task};
use holdfast_xrl::XrlError;
use tracing::{info, warn};

use crate::{
    apart::apart,
    birth::is_replaced,
    births,
    configure::{self, CONFIGURE_LIMIT, Message, Part},
    doors::site,
    logging,
    manager::Manager,
    protocols, read, tcp,
    upgrade::Replacement,
};

/// Who is told, in this order.
fn told(processes: &Processes) -> impl Iterator<Item = &'static str> {
    std::iter::once("manager").chain(processes.as_configured().map(|process| process.name))
}

/// What is said of processes in whose place others are.
const REPLACED: &str = "processes replaced";

/// Names in one line of what has changed.
const MOST_NAMES: usize = 10;

/// A text that has been read, and is to become the configuration.
pub(crate) struct Candidate {
    pub(crate) text: String,
    pub(crate) config: Arc<Config>,
}

impl Candidate {
    /// Reads a text; `name` is how errors call it, and `file` where it is or is to be.
    ///
    /// # Errors
    /// `InvalidArgument` with all that is wrong with it.
    pub(crate) async fn parse(
        text: String,
        name: &str,
        file: &Path,
        schema: Schema,
    ) -> Result<Self, XrlError> {
        let (name, file) = (name.to_owned(), file.to_owned());
        let (config, text) = apart(move || (read::parse(&text, &name, &file, schema), text)).await?;
        Ok(Self { config: Arc::new(config.map_err(XrlError::invalid_argument)?), text })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub(crate) async fn read(file: &Path, schema: Schema) -> Result<Self, XrlError> {
        let text = read::read_text(file).map_err(XrlError::invalid_argument)?;
        Self::parse(text, &file.display().to_string(), file, schema).await
    }
}

/// Reads the file again. The outcome is logged as well: nobody may be there to read the answer.
pub(crate) async fn reload(manager: &Rc<Manager>) -> Result<ReloadReply, XrlError> {
    let _turn = manager.reloading.lock().await;
    let result = match Candidate::read(&manager.file, manager.schema).await {
        Ok(candidate) => replace(manager, candidate, || Ok(())).await,
        Err(error) => Err(error),
    };
    match &result {
        Ok(reply) if reply.changes.is_empty() => info!(event = "reload", "reload: nothing has changed"),
        Ok(reply) => reply.changes.iter().for_each(|change| info!(event = "reload", "reload: {change}")),
        Err(error) => {
            warn!(event = "reload-refused", "reload refused, nothing has changed: {}", error.message());
        }
    }
    result
}

/// What a reload of this text would do.
pub(crate) async fn diff(manager: &Manager, request: DiffRequest) -> Result<DiffReply, XrlError> {
    let new = Candidate::parse(request.text, &request.file, &manager.file, manager.schema).await?.config;
    let old = manager.config();
    let restart = only_with_a_restart(&old, &new).into_iter().map(str::to_owned).collect();
    let mut changes = changes(&old, &new);
    changes.extend(line(REPLACED, &replaced(manager, &old, &new)));
    Ok(DiffReply { changes, ending: ending(&old, &new), restart })
}

/// Makes a candidate the configuration. `put` is called when nobody can refuse any more, and may.
pub(crate) async fn replace(
    manager: &Rc<Manager>,
    candidate: Candidate,
    put: impl FnOnce() -> Result<(), XrlError>,
) -> Result<ReloadReply, XrlError> {
    if manager.is_stopping() {
        return Err(XrlError::failed_precondition("the router is being stopped"));
    }
    let Candidate { text, config: new } = candidate;
    let old = manager.config();
    let fixed = only_with_a_restart(&old, &new);
    if !fixed.is_empty() {
        let text = format!("only a restart of the router can change {}", fixed.join(", "));
        return Err(XrlError::failed_precondition(text));
    }
    let (sockets, others) = what_to_tell(&manager.processes, &old, &new).await?;
    // Keys and listeners are there before the sessions that need them; and the kernel may have no room for them.
    let mut result = Ok(());
    for (name, message) in sockets {
        let told = tell(manager, name, message).await;
        result = told.map(drop).map_err(|error| XrlError::failed_precondition(error.message()));
        if result.is_err() {
            break;
        }
    }
    if let Err(error) = result.and_then(|()| put()) {
        for (name, message) in what_to_tell(&manager.processes, &new, &old).await?.0 {
            tell(manager, name, message).await?;
        }
        return Err(error);
    }
    if old.notes() != new.notes() {
        read::note(&new);
    }
    manager.refit.borrow_mut().extend(with_other_sockets(&old, &new));
    // Whoever is born from now on is told the new one.
    manager.config.replace(Arc::clone(&new));
    manager.text.replace(text.into());
    manager.want(&new);
    let replaced = replaced(manager, &old, &new);
    let followed = manager.doors.follow(&new).await;
    manager.limit_hangs();
    if old.log != new.log {
        spawn_task(logging::set_filter(Rc::clone(manager), new.log.filter()));
    }
    let mut problems = protocols::follow(manager).await;
    problems.extend(followed.err().map(|error| format!("listeners: {}", error.message())));
    problems.extend(tcp::follow(manager).err().map(|error| format!("xrl: {}", error.message())));
    let mut reply = ReloadReply { changes: changes(&old, &new), problems };
    reply.changes.extend(line(REPLACED, &replaced));
    for (name, message) in others {
        if replaced.contains(&name) {
            continue;
        }
        match tell(manager, name, message).await {
            Ok(ended) => reply.changes.extend(line("sessions ended", &ended)),
            Err(error) => {
                warn!(
                    event = "configuration-refused",
                    process = name,
                    "does not take its configuration: {error}"
                );
                reply.problems.push(format!("{name}: {}", error.message()));
            }
        }
    }
    for name in replaced {
        let replacement = Replacement::of(manager, name);
        replacement.end("other settings");
        match replacement.runs().await {
            Ok(()) => {}
            Err(why) => reply.problems.push(format!("{name}: {why}")),
        }
        if name == "bgp" {
            reply.changes.extend(line("sessions ended", &ending(&old, &new)));
        }
    }
    Ok(reply)
}

/// The processes that run and have to be others, in the order in which they are replaced.
fn replaced(manager: &Manager, old: &Config, new: &Config) -> Vec<&'static str> {
    let names = manager.processes.as_replaced().map(|process| process.name);
    names.filter(|name| manager.pid(name).is_some() && is_replaced(name, old, new)).collect()
}

type Messages = Vec<(&'static str, Message)>;

/// [`by_turn`], while others are answered.
async fn what_to_tell(
    processes: &Processes,
    old: &Arc<Config>,
    new: &Arc<Config>,
) -> Result<(Messages, Messages), XrlError> {
    let (processes, old, new) = (processes.clone(), Arc::clone(old), Arc::clone(new));
    apart(move || by_turn(&processes, &old, &new)).await?
}

/// What has to be told first, since it may be refused; and what then. A VRF that moves ends where it is before it begins
/// elsewhere.
fn by_turn(processes: &Processes, old: &Config, new: &Config) -> Result<(Messages, Messages), XrlError> {
    let staying = without_those_that_move(old, new);
    let is_there = |vrf: &String| staying.vrfs.iter().any(|known| known.name == *vrf);
    let stay =
        old.vrfs.iter().all(|vrf| is_there(&vrf.name) && new.vrfs.iter().any(|other| other.name == vrf.name));
    let is_first = |message: &Message| match (&message.part, &message.vrf) {
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
    for name in told(processes) {
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

/// Tells a process, if it is there; the sessions that ended. A process that refuses is told all that holds then again
/// and again, as after its birth.
pub(crate) async fn tell(
    manager: &Rc<Manager>,
    name: &'static str,
    message: Message,
) -> Result<Vec<String>, XrlError> {
    let pid = manager.supervisor.borrow_mut().reconfigure(name);
    if pid.is_none() && name != "manager" {
        return Ok(Vec::new());
    }
    let result = tokio::time::timeout(CONFIGURE_LIMIT, configure::tell(manager, message)).await;
    let result = result.unwrap_or_else(|_| Err(XrlError::timeout("no answer to its configuration")));
    match (&result, pid) {
        (Ok(_), _) => manager.supervisor.borrow_mut().configured(name),
        (Err(error), Some(pid)) => {
            manager.supervisor.borrow_mut().refused(name, error.to_string());
            spawn_task(births::configure(Rc::clone(manager), name, pid));
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
    let confederation = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.confederation.clone());
    let fixed = [
        ("`id` in [router]", old.router.id != new.router.id),
        ("`asn` in [router]", old.router.asn != new.router.asn),
        ("`format` in [log]", old.log.format != new.log.format),
        ("`mode` in [sandbox]", old.sandbox.mode != new.sandbox.mode),
        ("`first-user` in [sandbox]", old.sandbox.first_user != new.sandbox.first_user),
        ("`enabled` in [rib]", old.rib.enabled != new.rib.enabled),
        ("whether there is [bgp]", old.bgp.is_some() != new.bgp.is_some()),
        ("`as-sets` in [bgp]", speaker(|bgp| bgp.as_sets as u64)),
        ("`nonstop` in [bgp]", speaker(|bgp| bgp.nonstop.into())),
        ("[bgp.confederation]", confederation(old) != confederation(new)),
    ];
    fixed.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

/// Where a peer is: in which VRF, at which site, and at which address.
type Whereabouts = (Option<(String, String, bool)>, Remote);

/// The peers of a configuration, in its order.
fn peers(config: &Config) -> impl Iterator<Item = (Whereabouts, &Peer)> {
    let peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
    let site_of = |name: &String| {
        let vrf = config.vrfs.iter().find(|vrf| vrf.name == *name)?;
        let (place, is_device) = site(&vrf.place);
        Some((name.clone(), place.to_owned(), is_device))
    };
    peers.map(move |peer| ((peer.vrf.as_ref().and_then(site_of), peer.remote.clone()), peer))
}

/// Peers and ranges that stay, whose sockets are made with another key or TTL from now on.
fn with_other_sockets(old: &Config, new: &Config) -> Vec<String> {
    let before: HashMap<Whereabouts, &Peer> = peers(old).collect();
    let other = |(at, peer): &(Whereabouts, &Peer)| {
        before.get(at).is_some_and(|before| !has_same_sockets(before, peer))
    };
    peers(new).filter(other).map(|(_, peer)| peer.name.clone()).collect()
}

fn has_same_sockets(peer: &Peer, other: &Peer) -> bool {
    let options = |peer: &Peer| (peer.rules.ttl_security, peer.rules.multihop);
    peer.md5 == other.md5 && options(peer) == options(other)
}

/// Peers and ranges whose sessions cannot stay: `bgp` is told the same text, and decides by it the same way.
fn ending(old: &Config, new: &Config) -> Vec<String> {
    let wanted: HashMap<Whereabouts, &Peer> = peers(new).collect();
    let stays = |at: &Whereabouts, peer: &Peer| {
        wanted.get(at).is_some_and(|wanted| !wanted.rules.disabled && session(wanted) == session(peer))
    };
    // What replaces the process leaves sessions behind that do not outlive it.
    let falls = is_replaced("bgp", old, new);
    let ends = |(at, peer): &(Whereabouts, &Peer)| {
        !peer.rules.disabled && (!stays(at, peer) || falls && !peer.nonstop)
    };
    peers(old).filter(ends).map(|(_, peer)| peer.name.clone()).collect()
}

/// What is different, for people.
fn changes(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
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
    if let (Some(old), Some(new)) = (&old.bgp, &new.bgp) {
        let listeners = |bgp: &Bgp| (bgp.port, bgp.listen.clone(), bgp.quic_port, bgp.quic_s2n_port);
        if listeners(old) != listeners(new) {
            lines.push("listeners changed".to_owned());
        }
        compare(&mut lines, "networks", &old.networks, &new.networks, ToString::to_string);
        compare(&mut lines, "aggregates", &old.aggregates, &new.aggregates, |it| it.prefix.to_string());
        compare(&mut lines, "redistribution of", &old.redistribute, &new.redistribute, |it| {
            in_vrf(it.from.clone(), it.vrf.as_deref())
        });
        if old.rib_policy != new.rib_policy {
            lines.push("rib-policy changed".to_owned());
        }
        compare(&mut lines, "dumps", &old.mrt, &new.mrt, |mrt| mrt.file.clone());
        compare(&mut lines, "collectors", &old.bmp, &new.bmp, |bmp| bmp.name.clone());
        compare(&mut lines, "peers", &old.peers, &new.peers, |peer| peer.name.clone());
    }
    lines
}

/// Of sections that belong to one process each.
fn changes_of_sections(old: &Config, new: &Config) -> Vec<String> {
    let sections = |config: &Config| Vec::from_iter(config.sections.clone());
    let mut lines = Vec::new();
    compare(&mut lines, "sections", &sections(old), &sections(new), |section| section.0.to_owned());
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
fn line(what: &str, names: &[impl AsRef<str>]) -> Option<String> {
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
    use holdfast_config::describe::{self, Default, Effect, Key, Type};

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
        holdfast_config::parse(&text, "test", Schema::new([])).expect("no errors")
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
        assert_eq!(line("peers added", &[""; 0]), None);
    }

    #[test]
    fn what_needs_a_restart_is_named_as_in_the_file() {
        let new = config(&[("65000", "65009"), ("[bgp]", "[bgp]\nas-sets = \"accept\"")]);
        let expected = ["`asn` in [router]", "`as-sets` in [bgp]"];
        assert_eq!(only_with_a_restart(&config(&[]), &new), expected);
        assert!(only_with_a_restart(&config(&[]), &config(&[("65001", "65003")])).is_empty());
    }

    /// Another value than the default, in TOML; `None` for what is not a single value.
    fn other(key: &Key) -> Option<String> {
        let is = |text: &str| matches!(key.default, Default::Is(default) if default == text);
        match key.value {
            Type::Bool => Some((!is("true")).to_string()),
            Type::Number(low, high) => Some(if is(&high.to_string()) { low } else { high }.to_string()),
            Type::Word(words) => words.iter().map(|word| format!("\"{word}\"")).find(|word| !is(word)),
            Type::Form(form) => Some(format!("\"{}\"", form.example())),
            Type::Text(_, example) => Some(format!("\"{example}\"")),
            Type::Asn => Some("65009".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn what_is_taken_at_birth_replaces_those_who_take_it() {
        let replaced = |changed: &[(&str, &str)]| {
            let (old, new) = (config(&[]), config(changed));
            assert!(only_with_a_restart(&old, &new).is_empty());
            let names = ["fea", "rib", "transport", "bgp"].into_iter();
            let names: Vec<_> = names.filter(|name| is_replaced(name, &old, &new)).collect();
            (names, ending(&old, &new))
        };
        let none = Vec::<String>::new;
        assert_eq!(
            replaced(&[("[bgp]", "[rib]\ndistance = { ebgp = 30 }\n[bgp]")]),
            (vec!["rib", "bgp"], none())
        );
        for key in ["max-paths = 4", "local-preference = 7", "cluster-id = \"10.0.0.9\"", "damping = {}"] {
            assert_eq!(replaced(&[("[bgp]", &format!("[bgp]\n{key}"))]), (vec!["bgp"], none()), "{key}");
        }
        assert_eq!(replaced(&[("[bgp]", "[bgp]\nhold-time = 9")]).0, Vec::<&str>::new());
    }

    #[test]
    fn a_session_that_does_not_outlive_its_process_ends_with_it() {
        let named = |more: &str| {
            config(&[("asn = 65001", "asn = 65001\nnonstop = false"), ("[bgp]", &format!("[bgp]\n{more}"))])
        };
        assert_eq!(ending(&named(""), &named("max-paths = 4")), ["a"]);
    }

    #[test]
    fn what_needs_a_restart_is_what_the_description_says() {
        let least: toml::Table =
            "router = { id = \"10.0.0.7\", asn = 65000 }\nbgp = {}".parse().expect("TOML");
        let config = |file: &toml::Table| holdfast_config::parse(&file.to_string(), "test", Schema::new([]));
        let old = config(&least).expect("no errors");
        let mut restarts = 0;
        for header in describe::headers(Schema::new([]).file()).iter().filter(|header| !header.many) {
            for (key, value) in header.table.keys.iter().filter_map(|key| Some((key, other(key)?))) {
                let mut file = least.clone();
                let inner: toml::Table =
                    format!("{}.{} = {value}", header.path, key.name).parse().expect("TOML");
                for (name, table) in inner {
                    let before = file.entry(name).or_insert(toml::Table::new().into()).as_table_mut();
                    before.expect("a table").extend(table.as_table().expect("a table").clone());
                }
                // Some keys need others besides: those are not tried here.
                let Ok(new) = config(&file) else { continue };
                let refused = !only_with_a_restart(&old, &new).is_empty();
                assert_eq!(refused, key.effect == Effect::Restart, "{} of {}", key.name, header.title());
                restarts += usize::from(refused);
            }
        }
        assert!(restarts >= 5, "{restarts}");
    }

    #[test]
    fn another_key_is_another_socket_and_nothing_that_bgp_sees() {
        let (old, new) = (config(&[]), config(&[("first", "second")]));
        assert_eq!(with_other_sockets(&old, &new), ["b"]);
        let parts = |config| configure::parts("bgp", config).expect("parts");
        assert_eq!(parts(&old), parts(&new));
    }

    #[test]
    fn a_session_is_left_out_of_nonstop_by_its_peer_or_by_all() {
        let told = |config: &Config| match configure::parts("bgp", config).expect("parts").as_slice() {
            [Message { part: Part::Bgp(part), vrf: None }] => {
                let peer = |n: usize| serde_json::from_slice::<Peer>(&part.peers[n].settings).expect("JSON");
                (part.nonstop, part.nonstop_octets, peer(0).nonstop, peer(1).nonstop)
            }
            parts => panic!("{parts:?}"),
        };
        let (all, but_a) = (config(&[]), config(&[("asn = 65001", "asn = 65001\nnonstop = false")]));
        assert_eq!(told(&all), (true, 1 << 30, true, true));
        assert_eq!(told(&but_a), (true, 1 << 30, false, true));
        assert_eq!(changes(&all, &but_a), ["peers changed: a"]);
        assert!(only_with_a_restart(&all, &but_a).is_empty() && with_other_sockets(&all, &but_a).is_empty());
        let none = config(&[("[bgp]", "[bgp]\nnonstop = false\nnonstop-memory = \"2 MiB\"")]);
        assert_eq!(told(&none), (false, 0, false, false));
        assert_eq!(only_with_a_restart(&all, &none), ["`nonstop` in [bgp]"]);
    }

    /// A key of a peer, in TOML: with what it needs besides, and its value before; and its value after. `None`: as
    /// [`other`] says.
    fn before_and_after(key: &Key) -> Option<[String; 2]> {
        let with = |needed: &str, before: &str, after: &str| {
            let line = |value: &str| match value {
                "" => needed.to_owned(),
                value => format!("{needed}\n{} = {value}", key.name),
            };
            Some([line(before), line(after)])
        };
        match key.name {
            // What says where a peer is makes another of it, and is tried elsewhere; these have no session of their own.
            "address" | "interface" | "listen-range" | "vrf" | "group" => None,
            "name" | "asn" => None,
            // Which proofs are asked for is a matter of the next handshake: tried elsewhere.
            name if name.starts_with("tls-") => None,
            "transport" => None,
            "families" => with("", "", "[\"ipv4-unicast\", \"ipv6-unicast\"]"),
            "import" | "export" => with("", "\"accept-all\"", "\"reject-all\""),
            "max-octets" => with("", "", "\"2 MiB\""),
            "next-hop-ipv6" => with("families = [\"ipv4-unicast\", \"ipv6-unicast\"]", "", "\"2001:db8::1\""),
            "next-hop-ipv4" => None,
            "limit" => with("", "", "[{ family = \"ipv4-unicast\", received = 7 }]"),
            "restart-time" | "stale-time" => with("graceful-restart = \"full\"", "", "7"),
            "long-lived-stale-time" => with("graceful-restart = \"full\"", "", "7"),
            "hold-time" => with("", "", "30"),
            "damping" => None,
            "nonstop" => with("", "", "false"),
            "graceful-shutdown" => with("", "", "true"),
            "disabled" => None,
            "route-reflector-client" | "accept-validity" | "announce-validity" => None,
            "own-view" => with("route-server-client = true", "", "true"),
            "local-asn-mode" => with("local-asn = 65009", "", "\"replace\""),
            "role" => with("", "", "\"provider\""),
            "role-strict" => with("role = \"provider\"", "", "true"),
            "add-path" => with("", "", "{ receive = true }"),
            "orf-prefix-set" => None,
            _ => with("", "", &other(key)?),
        }
    }

    #[test]
    fn what_ends_a_session_is_what_the_description_says() {
        let config = |lines: &str| {
            let text = FILE.replace("asn = 65001", &format!("asn = 65001\n{lines}"));
            holdfast_config::parse(&text.replace("import = \"accept-all\"", ""), "test", Schema::new([]))
        };
        let headers = describe::headers(Schema::new([]).file());
        let peer = headers.iter().find(|header| header.path == "bgp.peer").expect("the table of peers");
        let (mut tried, mut ended) = (0, 0);
        for key in peer.table.keys {
            let Some([before, after]) = before_and_after(key) else { continue };
            let [old, new] = [before, after].map(|lines| config(&lines).expect(&lines));
            let ends = !ending(&old, &new).is_empty();
            // The keys of the table below say it for that.
            let says = key.effect == Effect::Session || key.name == "add-path";
            assert_eq!(ends, says, "{}", key.name);
            let parts = |config| configure::parts("bgp", config).expect("parts");
            let [told, then] = [&old, &new].map(|config| match parts(config).remove(0).part {
                Part::Bgp(part) => part.peers[0].session.clone(),
                part => panic!("{part:?}"),
            });
            assert_eq!(told != then, says, "{} is told", key.name);
            (tried, ended) = (tried + 1, ended + usize::from(ends));
        }
        assert!(tried >= 30 && ended >= 10, "{tried} {ended}");
    }

    #[test]
    fn sessions_end_when_more_than_policies_and_words_differ() {
        let ended = |changed: &[(&str, &str)]| ending(&config(&[]), &config(changed));
        assert!(ended(&[("accept-all", "reject-all")]).is_empty());
        assert!(ended(&[("asn = 65001", "asn = 65001\ndescription = \"x\"\nnonstop = false")]).is_empty());
        let sends = |all: &str, few: &str| {
            let sent =
                |paths: &str| config(&[("asn = 65001", &format!("asn = 65001\nadd-path = {{ {paths} }}"))]);
            ending(&sent(all), &sent(few))
        };
        assert!(sends("send = \"all\"", "send = 2").is_empty(), "several stay several");
        assert_eq!(sends("", "send = 2"), ["a"]);
        assert_eq!(sends("send = 2", "send = 2, receive = true"), ["a"]);
        assert!(ended(&[("first", "second")]).is_empty() && ended(&[("md5 = \"first\"", "")]).is_empty());
        assert_eq!(ended(&[("65001", "65003"), ("10.0.2.2", "10.0.2.3")]), ["a", "b"]);
        assert!(ended(&[("\"a\"", "\"c\"")]).is_empty(), "it is the same under another name");
        assert_eq!(ended(&[("[bgp]", "[bgp]\nhold-time = 30")]), ["a", "b"]);
    }

    /// The same with peer `a` over TLS; files hold their names, and what is behind `+` in `version`.
    fn secure(changed: &[(&str, &str)], version: &str) -> Config {
        let mut text = FILE.replace("[bgp]", "[tls]\nkey = \"k.pem\"\ncertificate = \"c.pem\"\n[bgp]");
        let trust = "asn = 65001\ntransport = \"tls\"\ntls-authorities = \"ca.pem\"\ntls-name = \"r2\"";
        text = text.replace("asn = 65001", trust);
        for (old, new) in changed {
            assert!(text.contains(old), "{old}");
            text = text.replace(old, new);
        }
        let read =
            |file: &str, _: holdfast_config::Holds<'_>| Ok(vec![format!("{file}{version}").into_bytes()]);
        holdfast_config::parse_with(&text, "test", Schema::new([]), &read).expect("no errors")
    }

    #[test]
    fn other_certificates_end_no_session_and_another_list_of_transports_does() {
        let old = secure(&[], "");
        let told = |new: &Config| {
            let (first, then) = by_turn(&crate::tests::processes(), &old, new).expect("parts");
            assert!(then.is_empty(), "{then:?}");
            (changes(&old, new), ending(&old, new), with_other_sockets(&old, new), whom(&first))
        };
        let renewed = secure(&[], " of another year");
        let both = ["secrets", "transport"].map(str::to_owned).to_vec();
        let lines = ["[tls] changed", "peers changed: a"].map(str::to_owned).to_vec();
        assert_eq!(told(&renewed), (lines, Vec::new(), Vec::new(), both));
        let named = secure(&[("\"r2\"", "\"r3\"")], "");
        let transport = vec!["transport".to_owned()];
        let changed = vec!["peers changed: a".to_owned()];
        assert_eq!(told(&named), (changed.clone(), Vec::new(), Vec::new(), transport));
        let admission =
            "[admission]\nretry = \"never\"\n[[admission.set]]\nname = \"x\"\nprefixes = \"::/0\"\n[bgp]";
        let admitting = secure(&[("[bgp]", admission)], "");
        let lines = ["[admission] changed", "sets of admission added: x"].map(str::to_owned).to_vec();
        // The filter before TCP's listeners knows the sets as well.
        let sockets = ["socket", "transport"].map(str::to_owned).to_vec();
        assert_eq!(told(&admitting), (lines, Vec::new(), Vec::new(), sockets));
        assert!(only_with_a_restart(&old, &renewed).is_empty());

        let fallen = secure(&[("\"tls\"", "[\"tls\", \"tcp\"]")], "");
        assert_eq!((changes(&old, &fallen), ending(&old, &fallen)), (changed, vec!["a".to_owned()]));
        assert!(with_other_sockets(&old, &fallen).is_empty(), "another session is another socket");
    }

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

    const VRFS: &str = r#"
        [[vrf]]
        name = "blue"
        table = 100
        [[vrf]]
        name = "red"
        netns = "red"
        [[static]]
        vrf = "blue"
        prefix = "192.0.2.0/24"
        blackhole = true
        [[bgp.peer]]
        vrf = "blue"
        name = "c"
        address = "10.0.1.2"
        asn = 65003
        [[bgp.peer]]
        vrf = "red"
        name = "d"
        address = "10.0.1.2"
        asn = 65004
    "#;

    fn with_vrfs(changed: &[(&str, &str)]) -> Config {
        let text = format!("{FILE}{VRFS}");
        let text = changed.iter().fold(text, |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        holdfast_config::parse(&text, "test", Schema::new([])).expect("no errors")
    }

    /// To whom something is told: class and VRF.
    fn whom(messages: &Messages) -> Vec<String> {
        let part = |part: &Part| match part {
            Part::Socket(_) => "socket",
            Part::Keep(_) => "secrets",
            Part::Transport(_) => "transport",
            Part::Fea(_) => "fea",
            Part::Rib(_) => "rib",
            Part::Bgp(_) => "bgp",
            Part::Metrics(_) | Part::Glass(_) | Part::Monitor(_) | Part::Rpki(_) | Part::Own(..) => "other",
        };
        let scoped = |message: &Message| holdfast_xrl::scoped(part(&message.part), message.vrf.as_deref());
        messages.iter().map(|(_, message)| scoped(message)).collect()
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
            ("10.0.1.2\"\n        asn = 65004", "10.0.1.3\"\n        asn = 65004"),
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
    fn who_has_no_part_in_a_change_is_not_told() {
        let (old, new) = (config(&[]), config(&[("accept-all", "reject-all")]));
        let same = |name| configure::parts(name, &old).ok() == configure::parts(name, &new).ok();
        assert_eq!(["fea", "rib", "bgp"].map(same), [true, true, false]);
    }
}
