//! What a peer has made the router keep is given back when it has gone: all processes together, the log's memory included.
//!
//! `make test` sends a part of what `make drills` does.

use std::net::Shutdown;

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    recipe::{self, Recipe},
    wait,
};

use crate::hostile::{CONFIGURATION, LIMIT, PROCESSES, Scene, cost::attack, guest};

/// What processes that have worked hold more than those that have just started: room for messages, lists that are empty again.
const SLACK: u64 = 4 << 20;
/// What `bgp` may keep when all has gone. Its program, of which the kernel has up to 17 MiB resident, is not counted.
const MOST_OF_BGP: u64 = 8 << 20;

/// A policy that looks at each prefix: what it makes of attributes is kept beside them.
const MARKS: &str = r#"
[[policy]]
name = "marks"
term = [
    { from = { prefix = ["0.0.0.0/0 le 32"] }, then = { add-communities = ["65000:1"], action = "accept" } },
]
"#;

/// Resident octets of all processes, what they share counted once; not those of the binary, which are the kernel's to drop.
fn resident(scene: &Scene) -> Result<u64> {
    PROCESSES.iter().map(|name| scene.router.kept(name)).sum()
}

fn per_process(scene: &Scene) -> Result<String> {
    let lines = PROCESSES.iter().map(|name| {
        let [all, own] = [scene.router.kept(name)?, scene.router.heap(name)?];
        Ok(format!("{name} {} KiB ({} its own)", all >> 10, own >> 10))
    });
    Ok(lines.collect::<Result<Vec<_>>>()?.join(", "))
}

fn comes_back(recipe: &Recipe, octets: usize, import: &str) -> Result<()> {
    let configuration = CONFIGURATION.replace("import = \"accept-all\"", &format!("import = \"{import}\""));
    let scene = Scene::new(&format!("{configuration}max-octets = \"4 GiB\"\n{MARKS}"))?;
    let before = resident(&scene)?;
    let sent = recipe.clone();
    let stream = scene.outside.run(move || attack(&sent, octets))??;
    wait::until("everything read", LIMIT * 10, || {
        let neighbors = scene.router.show(&["bgp", "neighbors"]).map_err(|error| error.to_string())?;
        let read = neighbors[guest(1).to_string()]["cost"]["octets_in"].as_u64();
        if read >= Some(octets as u64) { Ok(()) } else { Err(format!("{read:?}")) }
    })?;
    let most = resident(&scene)?;
    println!(
        "{}: {} KiB before, {} KiB when all was read: {}",
        recipe.what,
        before >> 10,
        most >> 10,
        per_process(&scene)?
    );
    // Also for whoever reads what it is told.
    stream.shutdown(Shutdown::Both)?;
    let back = wait::until("the memory is given back", LIMIT, || {
        let now = resident(&scene).map_err(|error| error.to_string())?;
        if now <= before + before / 5 + SLACK {
            Ok(now)
        } else {
            Err(per_process(&scene).map_err(|error| error.to_string())?)
        }
    })
    .with_context(|| recipe.what.clone())?;
    let of_bgp = scene.router.kept("bgp")?;
    println!(
        "{} ({import}): {} KiB afterwards: {}; bgp with its program {} KiB",
        recipe.what,
        back >> 10,
        per_process(&scene)?,
        scene.router.resident("bgp")? >> 10
    );
    ensure!(of_bgp <= MOST_OF_BGP, "{}: bgp keeps {} KiB", recipe.what, of_bgp >> 10);
    ensure!(most > 2 * before, "it took next to nothing: {before}, then {most} octets");
    scene.is_unharmed()
}

#[test]
fn what_a_peer_has_made_us_keep_is_given_back_when_it_has_gone() -> Result<()> {
    let is_drill = std::env::var_os("HOLDFAST_DRILLS").is_some();
    let recipes = recipe::all()?;
    let named = |name: &str| {
        let found = recipes.iter().find(|(path, _)| path.ends_with(name));
        found.map(|(_, recipe)| recipe.clone()).with_context(|| name.to_owned())
    };
    let (long, many) = (named("long-attributes.toml")?, named("sets.toml")?);
    if is_drill {
        // 110 octets an UPDATE with 8 routes.
        comes_back(&long.ordinary(), 2_000_000 / 8 * 110, "accept-all")?;
    }
    comes_back(&long, if is_drill { 1 << 30 } else { 128 << 20 }, "accept-all")?;
    comes_back(&many, if is_drill { 256 << 20 } else { 4 << 20 }, "marks")
}
