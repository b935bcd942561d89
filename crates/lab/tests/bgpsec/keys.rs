//! The router's private keys: they reach the process that signs, and nobody else; which is in use follows caches and reloads.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    router::{Files, Router, binary},
    topology::{ROUTER, Star},
    wait,
};
use serde_json::{Value, json};

use super::{Directory, LIMIT, Running, key, serve};

/// What the router originates.
const NETWORK: &str = "192.0.2.0/24";

/// Signs with these keys, which a cache is asked about.
fn configuration(keys: &[&str]) -> String {
    let keys: Vec<_> = keys.iter().map(|name| format!("{{ asn = 65000, file = \"{name}.pem\" }}")).collect();
    format!(
        r#"{ROUTER}
[[bgp.peer]]
name = "peer"
address = "10.0.1.2"
asn = 64511
passive = true
export = "accept-all"
bgpsec = {{ send = true }}
[[rpki.cache]]
name = "keys"
address = "10.0.1.2"
port = 8282
refresh = 1
retry = 1
[[bgp.network]]
prefix = "{NETWORK}"
[bgpsec]
keys = [{}]
"#,
        keys.join(", ")
    )
}

/// Makes a key of AS 65000: its private file as text, its public file, and its SKI.
fn make(directory: &Directory, name: &str) -> Result<(String, PathBuf, String)> {
    let own = directory.0.join(name);
    fs::create_dir_all(&own)?;
    let public = key(&own, 65_000)?;
    let file = public.file_name().context("a name")?.to_string_lossy().into_owned();
    let ski = file.split('.').nth(1).context("AS.SKI.WHAT")?.to_owned();
    Ok((fs::read_to_string(own.join("65000.pem"))?, public, ski))
}

/// SKI and state of each private key.
fn states(router: &Router) -> Result<Vec<(Value, Value)>, String> {
    let shown = router.show(&["bgpsec"]).map_err(|error| format!("{error:#}"))?;
    let keys = shown["private_keys"].as_array().cloned().unwrap_or_default();
    Ok(keys.iter().map(|key| (key["ski"].clone(), key["state"].clone())).collect())
}

fn until(router: &Router, wanted: &[(&str, &str)]) -> Result<()> {
    let wanted: Vec<_> = wanted.iter().map(|(ski, state)| (json!(ski), json!(state))).collect();
    let found = wait::until(&format!("{wanted:?}"), LIMIT, || {
        let states = states(router)?;
        if states == wanted { Ok(()) } else { Err(format!("{states:?}")) }
    });
    found.with_context(|| router.log_tail())
}

fn reload(router: &Router, keys: &[&str]) -> Result<String> {
    fs::write(router.configuration(), configuration(keys))?;
    router.cli(&["reload"])
}

fn cache(star: &Star, directory: &Path) -> Result<Running> {
    let program = binary()?;
    let mut cache = star.neighbor(1).command(program.to_str().context("the path is text")?);
    cache
        .args(["spki-cache", "--listen", "10.0.1.2:8282", "--look", "1", "--notify", "1"])
        .arg(directory.join("keys"));
    Running::start(cache)
}

#[test]
fn private_keys_follow_caches_reloads_and_deaths_and_are_seen_by_nobody() -> Result<()> {
    let (star, directory) = (Star::new(1)?, Directory::new("private")?);
    let [a, b, c] = ["a", "b", "c"].map(|name| make(&directory, name));
    let [(text_a, public_a, a), (text_b, public_b, b), (text_c, _, c)] = [a?, b?, c?];
    serve(&directory.0, &public_a)?;
    let mut cache = cache(&star, &directory.0)?;
    let texts = [("a.pem", &text_a), ("b.pem", &text_b), ("c.pem", &text_c)];
    let files: Files = texts.map(|(name, text)| (name.to_owned(), text.clone())).into();
    let router = Router::start_with_files(&star.router, &configuration(&["a", "b"]), &files)?;

    until(&router, &[(&a, "in-use"), (&b, "unpublished")])?;
    let served = serve(&directory.0, &public_b)?;
    until(&router, &[(&a, "superseded"), (&b, "in-use")])?;
    // The manager gives keys to whoever comes next.
    for process in ["pathsec", "manager"] {
        router.kill(process)?;
        until(&router, &[(&a, "superseded"), (&b, "in-use")])?;
    }
    fs::remove_file(&served)?;
    until(&router, &[(&a, "in-use"), (&b, "withdrawn")])?;

    // The process that runs has other keys.
    let pathsec = router.pid("pathsec")?;
    let said = reload(&router, &["a", "c"])?;
    ensure!(said.contains("private keys added: c.pem") && said.contains("removed: b.pem"), "{said}");
    until(&router, &[(&a, "in-use"), (&c, "unpublished")])?;
    let text = router.cli(&["show", "bgpsec"])?;
    ensure!(text.lines().any(|line| line.starts_with('!') && line.contains(&c)), "{text}");
    ensure!(router.pid("pathsec")? == pathsec, "{}", router.log_tail());

    let shown = router.log();
    ensure!(shown.contains("private-key-in-use") && shown.contains("private-key-withdrawn"), "{shown}");
    let secret = text_a.lines().nth(1).context("base64")?;
    ensure!(!shown.contains(secret), "{shown}");
    cache.still_runs()
}

/// Takes two announcements in one session, and saves each.
fn neighbour(star: &Star, directory: &Directory) -> Result<Running> {
    let await_signed = format!("await update announces {NETWORK} with 33 without 2 within 60s");
    let script = format!(
        "connect 10.0.1.1\nopen as 64511 hold 30 family ipv4-unicast bgpsec receive ipv4 capability 64:0000\n\
         establish\n{await_signed}\nsave first\n{await_signed}\nsave second\nexpect nothing for 300s\n"
    );
    fs::write(directory.0.join("script"), script)?;
    let program = binary()?;
    let mut speaker = star.neighbor(1).command(program.to_str().context("the path is text")?);
    speaker.args(["speaker", "--timeout", "400s"]).arg(directory.0.join("script"));
    Running::start(speaker)
}

/// What was saved is valid for whoever has the public keys: the SKI of the key that has signed it.
fn signed_with(directory: &Directory, saved: &str) -> Result<Value> {
    let saved = directory.0.join(saved);
    wait::until("the neighbour has heard", LIMIT, || match fs::metadata(&saved) {
        Ok(file) if file.len() > 0 => Ok(()),
        _ => Err(saved.display().to_string()),
    })?;
    let mut verify = Command::new(binary()?);
    verify.args(["bgpsec", "verify", "--local-as", "64511", "--peer-as", "65000", "--json", "--update"]);
    verify.arg(format!("@{}", saved.display())).arg("--key-dir").arg(directory.0.join("keys"));
    let output = verify.output()?;
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(verdict["verdict"] == "Valid", "{verdict}");
    Ok(verdict["hops"][0]["signatures"][0]["ski"].clone())
}

#[test]
fn a_neighbour_is_sent_what_the_key_in_use_has_signed() -> Result<()> {
    let (star, directory) = (Star::new(1)?, Directory::new("signed")?);
    let [a, b] = ["a", "b"].map(|name| make(&directory, name));
    let [(text_a, public_a, a), (text_b, public_b, b)] = [a?, b?];
    serve(&directory.0, &public_a)?;
    let _cache = cache(&star, &directory.0)?;
    let files = [("a.pem", text_a), ("b.pem", text_b)].map(|(name, text)| (name.to_owned(), text));
    let router = Router::start_with_files(&star.router, &configuration(&["a", "b"]), &files.into())?;
    until(&router, &[(&a, "in-use"), (&b, "unpublished")])?;
    let mut speaker = neighbour(&star, &directory)?;
    ensure!(signed_with(&directory, "first").with_context(|| router.log_tail())? == a.as_str());
    serve(&directory.0, &public_b)?;
    until(&router, &[(&a, "superseded"), (&b, "in-use")])?;
    ensure!(signed_with(&directory, "second").with_context(|| router.log_tail())? == b.as_str());
    speaker.still_runs()
}
