//! The process `rpki` with real caches: StayRTR, with the world's VRPs where `HOLDFAST_DATA` has them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    caches::{Row, StayRtr, made_vrps, real_difference, real_vrps},
    keys::Signer,
    router::{Files, Router},
    topology::{ROUTER, Star},
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// A router that asks the cache in network 1, often.
const CACHE: &str = r#"
[[rpki.cache]]
name = "one"
address = "10.0.1.2"
preference = 10
refresh = 2
retry = 1
"#;

fn cache(router: &Router, name: &str) -> Result<Value> {
    let shown = router.show(&["rpki", "caches"])?;
    let caches = shown["caches"].as_array().context("caches")?;
    caches.iter().find(|cache| cache["name"] == name).cloned().with_context(|| format!("no cache {name}"))
}

fn until(router: &Router, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let shown = wait::until(name, LIMIT, || {
        let shown = cache(router, name).map_err(|error| format!("{error:#}"))?;
        if wanted(&shown) { Ok(shown) } else { Err(shown.to_string()) }
    });
    shown.with_context(|| router.log_tail())
}

/// What is published, as the operator is shown it.
fn published(router: &Router, destination: &[&str]) -> Result<BTreeSet<Row>> {
    let shown = router.show(&[&["rpki", "vrps"], destination].concat())?;
    let row = |value: &Value| {
        let number = |key: &str| value[key].as_u64();
        Some((value["prefix"].as_str()?.to_owned(), number("prefixLenMax")?, number("asn")?))
    };
    let rows = shown["prefixes"].as_array().context("prefixes")?.iter().map(row);
    rows.collect::<Option<_>>().context("a whole row")
}

fn until_published(router: &Router, wanted: &BTreeSet<Row>) -> Result<()> {
    wait::until("what is published", LIMIT, || {
        let shown = published(router, &[]).map_err(|error| format!("{error:#}"))?;
        match shown == *wanted {
            true => Ok(()),
            false => Err(format!("{} of {} VRPs", shown.intersection(wanted).count(), wanted.len())),
        }
    })
    .with_context(|| router.log_tail())
}

/// VRPs that `bgp` validates by. Counters are asked of every process, so there is no answer in the moment when one has died
/// and is still in the list.
fn heard(router: &Router) -> Result<usize> {
    wait::until("counters", LIMIT, || {
        let counted = router.cli(&["show", "counters", "holdfast_bgp_rpki_vrps"]);
        let counted = counted.map_err(|error| error.to_string())?;
        let number = counted.split_whitespace().next_back().and_then(|number| number.parse().ok());
        number.ok_or(counted)
    })
}

fn until_heard(router: &Router, wanted: usize) -> Result<()> {
    wait::until("what bgp has heard", LIMIT, || match heard(router) {
        Ok(heard) if heard == wanted => Ok(()),
        other => Err(format!("{other:?} instead of {wanted}")),
    })
    .with_context(|| router.log_tail())
}

fn some(prefixes: &[&str]) -> BTreeSet<Row> {
    prefixes.iter().map(|prefix| ((*prefix).to_owned(), 24, 64_496)).collect()
}

#[test]
fn the_worlds_vrps_come_and_what_changes_comes_as_a_difference() -> Result<()> {
    let star = Star::new(1)?;
    let real = real_vrps()?;
    if real.is_none() {
        eprintln!("HOLDFAST_DATA is not set: 40,000 VRPs that were made up take the place of the real ones");
    }
    let mut vrps = real.unwrap_or_else(|| made_vrps(40_000));
    let mut stayrtr = StayRtr::start(star.neighbor(1), &vrps, &[])?;
    let router = Router::start(&star.router, &[ROUTER, CACHE].concat())?;
    let shown = until(&router, "one", |cache| cache["state"] == "established")?;
    until_published(&router, &vrps)?;
    ensure!((shown["used"] == true) && shown["resets"] == 1, "{shown}");
    let heap = router.heap("rpki")?;
    eprintln!("{} VRPs: {} KiB of memory in rpki", vrps.len(), heap >> 10);
    ensure!(heap < (48 << 20) + 200 * vrps.len() as u64, "{heap} octets");

    let (announced, withdrawn) = real_difference()?
        .unwrap_or_else(|| (some(&["198.51.100.0/24"]), vrps.iter().take(3).cloned().collect()));
    vrps.retain(|row| !withdrawn.contains(row));
    vrps.extend(announced);
    let before = cache(&router, "one")?["serial"].clone();
    stayrtr.say(&vrps)?;
    let shown = until(&router, "one", |cache| cache["serial"] != before)?;
    until_published(&router, &vrps)?;
    ensure!(shown["resets"] == 1, "it came as a difference: {shown}");

    // A prefix: what covers it, and what is in it.
    let ((prefix, ..), inside) = (vrps.first().context("a VRP")?, vrps.first().context("a VRP")?.clone());
    ensure!(published(&router, &[prefix])?.contains(&inside), "{prefix}");
    ensure!(
        published(&router, &["0.0.0.0/0"])?.iter().all(|(prefix, ..)| !prefix.contains(':')),
        "IPv4 only"
    );

    // Another life of the cache is another session; what it said holds all the time.
    stayrtr.kill()?;
    until(&router, "one", |cache| cache["state"] != "established")?;
    ensure!(published(&router, &[])? == vrps, "it holds");
    let session = shown["sessionId"].clone();
    let _stayrtr = StayRtr::start(star.neighbor(1), &vrps, &[])?;
    until(&router, "one", |cache| cache["state"] == "established" && cache["sessionId"] != session)?;
    until_published(&router, &vrps)?;

    until_heard(&router, vrps.len())?;
    for process in ["rpki", "transport", "manager", "bgp"] {
        router.kill(process)?;
        router.wait_running()?;
        if process != "bgp" {
            ensure!(heard(&router)? == vrps.len(), "bgp loses nothing by the death of {process}");
        }
        until_heard(&router, vrps.len())?;
        until(&router, "one", |cache| cache["state"] == "established")?;
        until_published(&router, &vrps).with_context(|| format!("after the death of {process}"))?;
    }
    router.stop()
}

#[test]
fn of_two_caches_the_preferred_one_is_used_while_it_has_data() -> Result<()> {
    let star = Star::new(2)?;
    let (one, two) = (some(&["192.0.2.0/24", "198.51.100.0/24"]), some(&["192.0.2.0/24", "203.0.113.0/24"]));
    let mut preferred = StayRtr::start(star.neighbor(1), &one, &[])?;
    let _other = StayRtr::start(star.neighbor(2), &two, &[])?;
    let expire = "expire = 5\n";
    let second = CACHE.replace("\"one\"", "\"two\"").replace("10.0.1.2", "10.0.2.2");
    let stand_by = second.replace("preference = 10", "preference = 20");
    let router = Router::start(&star.router, &[ROUTER, CACHE, expire, &stand_by].concat())?;
    for name in ["one", "two"] {
        until(&router, name, |cache| cache["state"] == "established")?;
    }
    until_published(&router, &one)?;
    ensure!(cache(&router, "two")?["used"] == false, "it stands by");

    preferred.kill()?;
    // Its data hold until they expire.
    until(&router, "one", |cache| cache["state"] != "established" && cache["used"] == true)?;
    until(&router, "one", |cache| cache["used"] == false && cache["ipv4PrefixCount"] == 0)?;
    until_published(&router, &two)?;
    ensure!(
        router.log().contains("cache-expired") || router.log().contains("are not used any more"),
        "{}",
        router.log_tail()
    );
    let _preferred = StayRtr::start(star.neighbor(1), &one, &[])?;
    until(&router, "one", |cache| cache["used"] == true)?;
    until_published(&router, &one)?;

    // Of one preference both are used, and the session that stays is not touched.
    let before = cache(&router, "one")?;
    std::fs::write(router.configuration(), [ROUTER, CACHE, expire, &second].concat())?;
    let said = router.cli(&["reload"])?;
    ensure!(said.contains("RPKI caches changed: two"), "{said}");
    until_published(&router, &one.union(&two).cloned().collect())?;
    let after = cache(&router, "one")?;
    ensure!(
        before["reconnects"] == after["reconnects"] && before["resets"] == after["resets"],
        "{before} {after}"
    );
    std::fs::write(router.configuration(), [ROUTER, &second].concat())?;
    router.cli(&["reload"])?;
    until_published(&router, &two)?;
    std::fs::write(router.configuration(), ROUTER)?;
    router.cli(&["reload"])?;
    ensure!(router.show(&["processes"])?.get("rpki").is_none(), "nobody is left to be asked");
    router.stop()
}

#[test]
fn local_exceptions_hold_and_wrong_ones_change_nothing() -> Result<()> {
    let star = Star::new(1)?;
    let said = some(&["192.0.2.0/24", "198.51.100.0/24"]);
    let _stayrtr = StayRtr::start(star.neighbor(1), &said, &[])?;
    let slurm = |filtered: &str, asserted: &str| {
        let text = format!(
            r#"{{"slurmVersion": 1,
              "validationOutputFilters": {{"prefixFilters": [{{"prefix": "{filtered}"}}], "bgpsecFilters": []}},
              "locallyAddedAssertions": {{"prefixAssertions":
                [{{"asn": 64496, "prefix": "{asserted}", "maxPrefixLength": 24}}], "bgpsecAssertions": []}}}}"#
        );
        Files::from([("slurm.json".to_owned(), text)])
    };
    let configuration = [ROUTER, "[rpki]\nexceptions = [\"slurm.json\"]\n", CACHE].concat();
    let first = slurm("192.0.2.0/24", "203.0.113.0/24");
    let router = Router::start_with_files(&star.router, &configuration, &first)?;
    until_published(&router, &some(&["198.51.100.0/24", "203.0.113.0/24"]))?;
    let said = router.reload_with_files(&configuration, &slurm("198.51.100.0/24", "203.0.113.0/24"))?;
    ensure!(said.contains("local exceptions of [rpki] changed"), "{said}");
    until_published(&router, &some(&["192.0.2.0/24", "203.0.113.0/24"]))?;
    let refused = router.reload_with_files(&configuration, &slurm("198.51.100.0/33", "203.0.113.0/24"));
    let refused = format!("{:#}", refused.err().context("a wrong file was taken")?);
    ensure!(refused.contains("slurm.json"), "{refused}");
    let file = router.configuration();
    let checked = router.cli(&["check", "-c", file.to_str().context("a path")?]);
    ensure!(format!("{:#}", checked.err().context("fine?")?).contains("slurm.json"), "check says so as well");
    ensure!(published(&router, &[])? == some(&["192.0.2.0/24", "203.0.113.0/24"]), "as before");
    router.stop()
}

#[test]
fn a_cache_over_tls_proves_who_it_is() -> Result<()> {
    let star = Star::new(1)?;
    let (signer, said) = (Signer::new("Lab CA")?, some(&["192.0.2.0/24"]));
    let (ours, theirs) = (signer.sign("r1.example")?, signer.sign("rtr.example")?);
    let router_files = {
        let mut files = ours.files();
        files.insert("ca.pem".to_owned(), signer.certificate());
        files
    };
    let directory = std::env::temp_dir().join(format!("holdfast-rtr-tls-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    for (name, pem) in theirs.files() {
        std::fs::write(directory.join(name), pem)?;
    }
    let path = |name: &str| directory.join(name).display().to_string();
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    let tls = ["-tls.bind", ":324", "-tls.cert", &certificate, "-tls.key", &key];
    let _stayrtr = StayRtr::start(star.neighbor(1), &said, &tls)?;
    let trusting = |name: &str| {
        let ours = "[tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n";
        let theirs = format!("transport = \"tls\"\ntls-authorities = \"ca.pem\"\ntls-name = \"{name}\"\n");
        [ROUTER, ours, CACHE, &theirs].concat()
    };
    let router = Router::start_with_files(&star.router, &trusting("other.example"), &router_files)?;
    let refused = until(&router, "one", |cache| cache["lastError"].is_string())?;
    ensure!(refused["lastError"].as_str().is_some_and(|error| error.contains("other.example")), "{refused}");
    ensure!(published(&router, &[])?.is_empty(), "nothing of it is used");
    router.reload_with_files(&trusting("rtr.example"), &router_files)?;
    let shown = until(&router, "one", |cache| cache["state"] == "established")?;
    ensure!(shown["proof"].as_str().is_some_and(|proof| proof.contains("rtr.example")), "{shown}");
    until_published(&router, &said)?;
    // The connection was carried by the process that dies: it is made anew.
    router.kill("transport")?;
    until(&router, "one", |cache| {
        cache["state"] == "established" && cache["reconnects"].as_u64() >= Some(2)
    })?;
    until_published(&router, &said)?;
    std::fs::remove_dir_all(&directory)?;
    router.stop()
}
