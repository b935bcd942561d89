//! BFD between Holdfast and stock routers, and ends that are made by hand: sessions of every kind, keys, changes.
//!
//! ```text
//!            ┌─n1── BIRD
//!  Holdfast ─┤
//!            └─n2── FRR
//! ```
//!
//! Here a client follows sessions that is no protocol of ours ([`Follower`]). What BGP and static routes make of them is in
//! [`clients`].

mod clients;
mod keys;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    bfd::{
        Follower, PROTOCOL, configuration, counter,
        packet::{ADMIN_DOWN, CONTROL_PLANE_INDEPENDENT, Control, DEMAND, DOWN, FINAL, POLL, UP},
        profile,
        puppet::{Puppet, SINGLE_HOP},
        rows,
        stock::{Stock, bird_protocol, frr_bfd},
        until_session, until_state,
    },
    netns::{End, Namespace, link},
    peers::{Frr, Programs},
    router::{Files, Router},
    topology::{Side, Star, join, v4},
    vrf::{Scene, TABLES},
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(40);
const PASSIVE: &str = "passive = true";

/// The link-local addresses of network N, ours and theirs.
const OURS: [&str; 3] = ["", "fe80::1:1", "fe80::2:1"];
const THEIRS: [&str; 3] = ["", "fe80::1:2", "fe80::2:2"];

/// Our addresses in network N, then theirs: IPv4, IPv6, link-local.
fn addresses(network: usize) -> [[String; 3]; 2] {
    let of = |side: usize, local: &str| {
        [format!("10.0.{network}.{side}"), format!("2001:db8:{network}::{side}"), local.to_owned()]
    };
    [of(1, OURS[network]), of(2, THEIRS[network])]
}

fn joined(network: usize, us: &Namespace, them: &Namespace) -> Result<()> {
    let interface = format!("n{network}");
    let [ours, theirs] = addresses(network)
        .map(|[v4, v6, local]| [format!("{v4}/24"), format!("{v6}/64"), format!("{local}/64")]);
    let [ours, theirs] = [&ours, &theirs].map(|all| all.each_ref().map(String::as_str));
    link(
        &End { host: us, interface: &interface, addresses: &ours },
        &End { host: them, interface: &interface, addresses: &theirs },
    )
}

/// BIRD's and FRR's end of each session of a network.
fn bird_sessions(network: usize) -> Vec<String> {
    let [ours, theirs] = addresses(network);
    let pairs = ours.iter().zip(&theirs);
    pairs.map(|(our, their)| format!("{our} dev \"n{network}\" local {their}")).collect()
}

fn frr_sessions(network: usize) -> Vec<String> {
    let [ours, theirs] = addresses(network);
    let pairs = ours.iter().zip(&theirs);
    pairs.map(|(our, their)| format!("{our} local-address {their} interface n{network}")).collect()
}

fn refs(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// Follows the three sessions of a network.
fn follow_all(router: &Router, network: usize, profile: &str) -> Result<Vec<Follower>> {
    let [ours, theirs] = addresses(network);
    let request = |(our, their): (&String, &String)| {
        // The interface has another link-local address, by which the kernel might send.
        let place = match their.starts_with("fe80") {
            true => format!("&interface=n{network}&local:ip={our}"),
            false => String::new(),
        };
        format!("remote:ip={their}&profile={profile}&hops=SINGLE{place}")
    };
    ours.iter().zip(&theirs).map(|pair| Follower::start(router, &request(pair))).collect()
}

#[test]
fn every_stock_router_is_up_over_ipv4_ipv6_and_link_local_addresses_whoever_begins() -> Result<()> {
    for programs in Programs::all() {
        for we_wait in [false, true] {
            whoever_begins(&programs, we_wait)
                .with_context(|| format!("{programs:?}, we wait: {we_wait}"))?;
        }
    }
    Ok(())
}

fn whoever_begins(programs: &Programs, we_wait: bool) -> Result<()> {
    let (us, bird, frr) = (Namespace::new("us")?, Namespace::new("bird")?, Namespace::new("frr")?);
    joined(1, &us, &bird)?;
    joined(2, &us, &frr)?;
    let profiles = profile("lab", 300, if we_wait { PASSIVE } else { "" });
    let router = Router::start(&us, &configuration(&profiles))?;
    let mut followers = follow_all(&router, 1, "lab")?;
    followers.extend(follow_all(&router, 2, "lab")?);
    wait::until("six sessions", LIMIT, || match rows(&router, "peers") {
        Ok(rows) if rows.len() == 6 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .with_context(|| router.log_tail())?;
    if we_wait {
        // A second in which an active end would have sent its first packets.
        std::thread::sleep(Duration::from_millis(1500));
        for row in rows(&router, "counters")? {
            ensure!(row["control-packet-output"] == 0, "{row}");
        }
    }
    let passive = if we_wait { "no" } else { "yes" };
    let options = format!("interval 300 ms; multiplier 4; passive {passive};");
    let bird = Stock::bird(programs, &bird, &bird_protocol(&options, &refs(&bird_sessions(1))), "")?;
    let mut lines = vec!["receive-interval 300", "transmit-interval 300", "detect-multiplier 4"];
    lines.extend((!we_wait).then_some("passive-mode"));
    let sessions = frr_sessions(2);
    let [first, second, on_link] = refs(&sessions)[..] else { anyhow::bail!("three sessions") };
    let mut frr = Stock::frr(programs, &frr, &frr_bfd(&lines, &[first, second]), "")?;
    let mut bird = bird;

    for (network, stock) in [(1, &mut bird), (2, &mut frr)] {
        let [ours, theirs] = addresses(network);
        for (our, their) in ours.iter().zip(&theirs) {
            if let (Stock::Frr(frr), true) = (&mut *stock, our.starts_with("fe80")) {
                // In its file, that session would stay silent if zebra tells bfdd of the interface a little later.
                let peer = format!("peer {on_link}");
                frr.configure("bfdd", &["configure terminal", "bfd", &peer, "profile lab"])?;
            }
            let up = until_state(&router, their, "up", LIMIT)?;
            stock.until(our, "up", LIMIT)?;
            // Of three and four packets each end has its own: the other's count (RFC 5880 section 6.8.4).
            let session = until_session(&router, their, LIMIT, |row| row["detection-time"] == 1200)?;
            ensure!(session["remote-detect-multiplier"] == 4 && session["multihop"] == false, "{session}");
            ensure!(session["interface"] == format!("n{network}"), "{session}");
            ensure!(session["remote-status"] == "up" && session["passive-mode"] == we_wait, "{session}");
            ensure!(up["diagnostic"] == "ok", "{up}");
        }
    }
    for follower in &followers {
        follower.until("UP", LIMIT)?;
    }
    for (network, stock) in [(1, bird), (2, frr)] {
        let [_, theirs] = addresses(network);
        drop(stock);
        for their in theirs {
            let down = until_state(&router, &their, "down", LIMIT)?;
            let diagnostic = &down["diagnostic"];
            ensure!(
                diagnostic == "control detection time expired"
                    || diagnostic == "neighbor signaled session down",
                "{down}"
            );
        }
    }
    router.stop()
}

/// Us, a router between, and far: 10.0.1.1 and 10.0.2.2.
struct Distance {
    us: Namespace,
    far: Namespace,
    _between: Namespace,
}

fn distance() -> Result<Distance> {
    let (us, between, far) = (Namespace::new("us")?, Namespace::new("between")?, Namespace::new("far")?);
    join(1, &us, &between)?;
    join(2, &between, &far)?;
    between.run(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
    })??;
    us.ip(&["route", "add", "10.0.2.0/24", "via", "10.0.1.2"])?;
    us.ip(&["-6", "route", "add", "2001:db8:2::/64", "via", "2001:db8:1::2"])?;
    far.ip(&["route", "add", "10.0.1.0/24", "via", "10.0.2.1"])?;
    far.ip(&["-6", "route", "add", "2001:db8:1::/64", "via", "2001:db8:2::1"])?;
    Ok(Distance { us, far, _between: between })
}

const FAR: [(&str, &str); 2] = [("10.0.1.1", "10.0.2.2"), ("2001:db8:1::1", "2001:db8:2::2")];

#[test]
fn neighbours_behind_a_router_are_up_from_the_least_ttl_on() -> Result<()> {
    Programs::all().try_for_each(|programs| {
        behind_a_router(&programs, true)?;
        behind_a_router(&programs, false)
    })
}

fn behind_a_router(programs: &Programs, with_bird: bool) -> Result<()> {
    let Distance { us, far, _between } = &distance()?;
    let options = "interval 300 ms; multiplier 3;";
    let stock = match with_bird {
        true => {
            let sessions = FAR.map(|(our, their)| format!("{our} local {their} multihop yes"));
            Stock::bird(programs, far, &bird_protocol(options, &refs(&sessions)), "")?
        }
        false => {
            let sessions = FAR.map(|(our, their)| format!("{our} multihop local-address {their}"));
            Stock::frr(programs, far, &frr_bfd(&[], &refs(&sessions)), "")?
        }
    };
    let far_off = |least: u8| configuration(&profile("far", 300, &format!("minimum-ttl = {least}")));
    // BIRD sends with the TTL of any other packet.
    let arrives = if with_bird { 63 } else { 254 };
    let router = Router::start(us, &far_off(arrives))?;
    let mut followers = Vec::new();
    // Nobody need say how far it is where no network of ours has the address.
    for ((_, their), hops) in FAR.iter().zip(["MULTIPLE", "AUTOMATIC"]) {
        followers.push(Follower::start(&router, &format!("remote:ip={their}&profile=far&hops={hops}"))?);
    }
    for (our, their) in FAR {
        let session = until_state(&router, their, "up", LIMIT)?;
        ensure!(session["multihop"] == true && session["minimum-ttl"] == arrives, "{session}");
        stock.until(our, "up", LIMIT)?;
    }
    // One that must not come from behind a router.
    router.reload_with_files(&far_off(arrives + 1), &Files::new())?;
    for (_, their) in FAR {
        until_state(&router, their, "down", LIMIT)?;
        ensure!(counter(&router, their, "misdirected")? > 0);
    }
    router.reload_with_files(&far_off(arrives - 1), &Files::new())?;
    for (_, their) in FAR {
        until_state(&router, their, "up", LIMIT)?;
    }
    router.stop()
}

#[test]
fn each_vrf_has_sessions_of_its_own() -> Result<()> {
    let scene = Scene::new()?;
    let rest = [PROTOCOL, "[bfd]\n", &profile("lab", 300, "")].concat();
    let router = Router::start(&scene.host, &scene.configuration(true, &rest))?;
    let (mut birds, mut followers) = (Vec::new(), Vec::new());
    for (number, table) in TABLES.into_iter().enumerate() {
        let bfd = bird_protocol("interval 300 ms;", &["10.0.1.1 local 10.0.1.2"]);
        birds.push(Stock::bird(&Programs::Machine, &scene.neighbors[number], &bfd, "")?);
        let vrf = if table == "main" { String::new() } else { format!("&vrf={table}") };
        followers.push(Follower::start(&router, &format!("remote:ip=10.0.1.2&profile=lab{vrf}"))?);
    }
    for (follower, bird) in followers.iter().zip(&birds) {
        follower.until("UP", LIMIT).with_context(|| router.log_tail())?;
        bird.until("10.0.1.1", "up", LIMIT)?;
    }
    let shown = rows(&router, "brief")?;
    let place = |row: &Value| [row["vrf"].clone(), row["interface"].clone(), row["status"].clone()];
    let mut found: Vec<_> = shown.iter().map(|row| place(row).map(|word| word.to_string())).collect();
    found.sort();
    let up = |vrf: &str, table: &str| [vrf, scene.interface(table), "up"].map(|word| format!("{word:?}"));
    ensure!(found == [up("blue", "blue"), up("default", "main"), up("red", "red")], "{shown:?}");

    // One falls silent, and no other session notices.
    birds[2].as_bird()?.pause()?;
    followers[2].until("DOWN", LIMIT)?;
    birds[2].as_bird()?.resume()?;
    followers[2].until("UP", LIMIT)?;
    for (follower, bird) in followers.iter().zip(&birds).take(2) {
        ensure!(follower.states().last().is_some_and(|last| last == "UP"), "{:?}", follower.said());
        ensure!(bird.downs("10.0.1.1")? == 0);
    }
    router.stop()
}

/// BIRD in network 1 and FRR in network 2, with sessions that are Up.
struct Row {
    star: Star,
    router: Router,
    ends: [Stock; 2],
    followers: Vec<Follower>,
}

const REMOTES: [&str; 2] = ["10.0.1.2", "10.0.2.2"];
const LOCALS: [&str; 2] = ["10.0.1.1", "10.0.2.1"];

fn row(programs: &Programs, profiles: &str) -> Result<Row> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &configuration(profiles))?;
    let bird = bird_protocol("interval 300 ms; multiplier 5;", &["10.0.1.1 dev \"n1\" local 10.0.1.2"]);
    let frr = frr_bfd(&["detect-multiplier 5"], &["10.0.2.1 interface n2"]);
    let ends = [
        Stock::bird(programs, star.neighbor(1), &bird, "")?,
        Stock::frr(programs, star.neighbor(2), &frr, "")?,
    ];
    let follow = |remote| Follower::start(&router, &format!("remote:ip={remote}&profile=lab"));
    let followers = REMOTES.map(follow).into_iter().collect::<Result<_>>()?;
    let row = Row { star, router, ends, followers };
    row.until_up()?;
    Ok(row)
}

impl Row {
    fn until_up(&self) -> Result<()> {
        for ((remote, local), end) in REMOTES.into_iter().zip(LOCALS).zip(&self.ends) {
            until_state(&self.router, remote, "up", LIMIT)?;
            end.until(local, "up", LIMIT)?;
        }
        Ok(())
    }

    /// How often each session was down, here and there.
    fn downs(&self) -> Result<[u64; 4]> {
        let here = REMOTES.map(|remote| counter(&self.router, remote, "session-down"));
        let there = [self.ends[0].downs(LOCALS[0])?, self.ends[1].downs(LOCALS[1])?];
        let [one, other] = here;
        Ok([one?, other?, there[0], there[1]])
    }
}

#[test]
fn intervals_and_profiles_change_while_sessions_stay_up() -> Result<()> {
    Programs::all().try_for_each(|programs| intervals_change(&programs))
}

fn intervals_change(programs: &Programs) -> Result<()> {
    let row = row(programs, &profile("lab", 300, "detect-multiplier = 5"))?;
    let before = row.downs()?;
    let reload = |profiles: &str| row.router.reload_with_files(&configuration(profiles), &Files::new());
    // Slower, faster, and with another multiplier; then the profile is not there any more.
    let slow = "transmit-interval = 700\nreceive-interval = 800";
    let given = |lines: &str| format!("[[bfd.profile]]\nname = \"lab\"\n{lines}\n");
    for (profiles, transmit, receive, multiplier) in [
        (given(&format!("{slow}\ndetect-multiplier = 4")), 700, 800, 4),
        (given("transmit-interval = 250\nreceive-interval = 260\ndetect-multiplier = 9"), 250, 260, 9),
        (given(slow), 700, 800, 3),
        (String::new(), 300, 300, 3),
    ] {
        reload(&profiles)?;
        for remote in REMOTES {
            let wanted = |row: &Value| {
                let ours = [&row["transmit-interval"], &row["receive-interval"]];
                let agreed = u64::max(300, transmit);
                let detection = 5 * u64::max(300, receive);
                ours == [transmit, receive]
                    && row["detect-multiplier"] == multiplier
                    && row["negotiated-transmit-interval"] == agreed
                    && row["detection-time"] == detection
            };
            let session = until_session(&row.router, remote, LIMIT, wanted)?;
            ensure!(session["status"] == "up", "{session}");
        }
        // The other end has heard of it, too.
        for (end, local) in row.ends.iter().zip(LOCALS) {
            until_told(end, local, u64::max(300, transmit) * multiplier)?;
        }
    }
    ensure!(row.downs()? == before, "{:?} {before:?}", row.downs()?);
    for follower in &row.followers {
        ensure!(
            follower.states().iter().filter(|state| *state == "UP").count() == 1,
            "{:?}",
            follower.said()
        );
    }
    row.router.stop()
}

/// Waits until a stock router would find a failure of ours after so many milliseconds.
fn until_told(end: &Stock, local: &str, detection: u64) -> Result<()> {
    wait::until(&format!("{local} with {detection} ms"), LIMIT, || {
        let now = detection_at(end, local).map_err(|error| format!("{error:#}"))?;
        if now == detection { Ok(()) } else { Err(format!("{now} ms")) }
    })
}

fn detection_at(end: &Stock, local: &str) -> Result<u64> {
    match end {
        Stock::Bird(bird) => {
            let text = bird.birdc("show bfd sessions")?;
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(local));
            let seconds = line.and_then(|line| line.split_whitespace().last()).context("a timeout")?;
            Ok((seconds.parse::<f64>()? * 1000.0).round() as u64)
        }
        Stock::Frr(frr) => {
            let sessions: Value = serde_json::from_str(&frr.ask("bfdd", "show bfd peers json")?)?;
            let found = sessions.as_array().into_iter().flatten().find(|session| session["peer"] == local);
            let number = |name: &str| found.and_then(|session| session[name].as_u64()).context("a number");
            let interval = u64::max(number("receive-interval")?, number("remote-transmit-interval")?);
            Ok(interval * number("remote-detect-multiplier")?)
        }
    }
}

#[test]
fn an_operator_of_either_end_ends_a_session_without_a_failure() -> Result<()> {
    Programs::all().try_for_each(|programs| an_operator_ends(&programs))
}

fn an_operator_ends(programs: &Programs) -> Result<()> {
    let mut row = row(programs, &profile("lab", 300, "detect-multiplier = 5"))?;
    let frr = row.ends[1].as_frr()?;
    let shutdown = |frr: &Frr, word: &str| {
        let peer = "peer 10.0.2.1 interface n2";
        frr.configure("bfdd", &["configure terminal", "bfd", peer, word])
    };
    shutdown(frr, "shutdown")?;
    let down = until_session(&row.router, REMOTES[1], LIMIT, |row| row["remote-status"] == "shutdown")?;
    ensure!(down["status"] == "down" && down["diagnostic"] == "neighbor signaled session down", "{down}");
    let told = row.followers[1].said();
    let last = told.last().context("a state")?;
    ensure!(last["remote_state"].as_str().is_none_or(|state| state == "ADMIN_DOWN"), "{last}");
    shutdown(frr, "no shutdown")?;
    row.until_up()?;

    // Of ours: all sessions begin anew, and the neighbours are told why they did.
    row.router.cli(&["clear", "bfd", "sessions"])?;
    wait::until("both sessions anew", LIMIT, || match row.downs() {
        Ok([one, other, _, _]) if one >= 1 && other >= 2 => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    row.until_up()?;

    // The other daemon ends without a word, and another begins.
    row.ends[0].as_bird()?.kill()?;
    let down = until_state(&row.router, REMOTES[0], "down", LIMIT)?;
    ensure!(down["diagnostic"] == "control detection time expired", "{down}");
    row.followers[0].until("DOWN", LIMIT)?;
    let bird = bird_protocol("interval 300 ms; multiplier 5;", &["10.0.1.1 dev \"n1\" local 10.0.1.2"]);
    row.ends[0] = Stock::bird(programs, row.star.neighbor(1), &bird, "")?;
    row.until_up()?;
    row.followers[0].until("UP", LIMIT)?;
    // Its neighbours are told that it ends.
    row.router.stop()?;
    for (end, local) in row.ends.iter().zip(LOCALS) {
        end.until(local, "down", LIMIT)?;
    }
    Ok(())
}

#[test]
fn a_puppet_is_answered_polled_and_left_alone_as_the_rfc_says() -> Result<()> {
    let star = Star::new(1)?;
    let [ours, theirs] = [v4(1, Side::First), v4(1, Side::Second)];
    let router = Router::start(&star.router, &configuration(&profile("lab", 200, "")))?;
    let puppet = Puppet::start(star.neighbor(1), theirs.into(), ours.into(), Control::new(77))?;
    let follower = Follower::start(&router, "remote:ip=10.0.1.2&profile=lab")?;
    puppet.until_up(LIMIT)?;
    follower.until("UP", LIMIT)?;

    // Our end goes on when processes die that depend on it, and asks for no echo.
    let up = puppet.until_heard(LIMIT, |heard| heard.intervals[..2] == [200_000, 200_000])?;
    ensure!(up.flags & CONTROL_PLANE_INDEPENDENT != 0, "{up:?}");
    ensure!((up.version, up.yours, up.intervals[2]) == (1, 77, 0), "{up:?}");
    // The end of its poll is another packet.
    puppet.until_heard(LIMIT, |heard| heard.flags & POLL == 0)?;

    // A poll is answered at once, whatever the interval.
    let poll = Control { flags: POLL, ..puppet.says() };
    puppet.send(&poll.octets(), SINGLE_HOP)?;
    puppet.until_heard(LIMIT, |heard| heard.flags & FINAL != 0)?;

    // With demand there are no periodic packets; the puppet still says that it is there.
    puppet.change(|says| says.flags = DEMAND);
    until_session(&router, "10.0.1.2", LIMIT, |row| row["remote-demand"] == true)?;
    let before = puppet.heard().1;
    std::thread::sleep(Duration::from_secs(1));
    ensure!(puppet.heard().1 - before <= 1, "{} packets in demand mode", puppet.heard().1 - before);
    puppet.change(|says| says.flags = 0);
    wait::until("periodic packets", LIMIT, || match puppet.heard().1 - before {
        count if count > 5 => Ok(()),
        count => Err(format!("{count}")),
    })?;

    // Whoever wants no packets is sent none.
    puppet.change(|says| says.intervals[1] = 0);
    until_session(&router, "10.0.1.2", LIMIT, |row| row["remote-receive-interval"] == 0)?;
    let before = puppet.heard().1;
    std::thread::sleep(Duration::from_secs(1));
    ensure!(puppet.heard().1 - before <= 1, "{} packets that nobody wants", puppet.heard().1 - before);
    puppet.change(|says| says.intervals[1] = 100_000);

    // AdminDown is no failure; silence is one.
    puppet.until_up(LIMIT)?;
    puppet.hold(ADMIN_DOWN);
    until_state(&router, "10.0.1.2", "down", LIMIT)?;
    puppet.release();
    puppet.until_up(LIMIT)?;
    puppet.set_silent(true);
    let down = until_state(&router, "10.0.1.2", "down", LIMIT)?;
    ensure!(down["diagnostic"] == "control detection time expired", "{down}");
    puppet.until_heard(LIMIT, |heard| heard.yours == 0 && heard.intervals[0] >= 1_000_000)?;
    // It comes back under another number.
    puppet.change(|says| (says.mine, says.state) = (78, DOWN));
    puppet.set_silent(false);
    puppet.until_up(LIMIT)?;
    ensure!(puppet.heard().0.is_some_and(|heard| heard.yours == 78 && heard.state == UP));
    let session = until_state(&router, "10.0.1.2", "up", LIMIT)?;
    ensure!(session["remote-id"] == 78, "{session}");
    router.stop()
}
