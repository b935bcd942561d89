//! What it costs to validate routes by what the RPKI says.

use std::{cell::RefCell, hint::black_box, rc::Rc, time::Instant};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::Attributes;
use holdfast_lab::{
    caches::{made_vrps, real_vrps},
    table::{Synthetic, Table},
};
use holdfast_origin_validation::{Authorizations, Delta, VrpTable};
use holdfast_types::{Asn, Family, HashKey, Prefix, Vrp};

use super::{ROUTES, SLICE, Speaker, announcement, ipv4, measured};
use crate::rows::{Kind, Tables};

/// VRPs that change at once in a delta of every few minutes.
const DELTA: usize = 100;
/// VRPs without `HOLDFAST_DATA`.
const MADE: u32 = 700_000;

/// Routes with their origins.
fn origins(table: &Table) -> Vec<(Prefix, Option<Asn>)> {
    let origin = |set: &u32| Attributes(&table.sets[*set as usize].bytes).as_path().origin_as();
    table.routes.iter().map(|(prefix, set)| (*prefix, origin(set))).collect()
}

/// Of the routes of a table every other may be originated by whom it comes from, and every eighth by somebody else.
fn grants(table: &Table) -> Result<Vec<Vrp>> {
    let wanted = origins(table).into_iter().enumerate().filter(|(number, _)| number % 2 == 0);
    let grant = |(number, (prefix, origin)): (usize, (Prefix, Option<Asn>))| {
        let asn = if number % 8 == 0 { Asn(1) } else { origin.unwrap_or(Asn(1)) };
        Ok(Vrp::new(prefix, prefix.length(), asn)?)
    };
    wanted.map(grant).collect()
}

/// A lookup for each route of a table.
pub(super) fn validate() -> Result<usize> {
    let table = ipv4(1);
    let mut vrps = VrpTable::new();
    grants(&table)?.into_iter().for_each(|vrp| {
        vrps.insert(vrp);
    });
    let routes = origins(&table);
    measured(|| {
        for (prefix, origin) in &routes {
            black_box(vrps.validate(*prefix, *origin));
        }
    });
    Ok(ROUTES)
}

/// UPDATE to log, everything new, with validation.
pub(super) fn receive() -> Result<usize> {
    let table = ipv4(1);
    let octets = announcement(&table, 1)?;
    let mut speaker = Speaker::new(1, Family::IPV4_UNICAST)?;
    let authorizations = Rc::new(RefCell::new(Authorizations::new(HashKey::new([1, 0]))));
    authorizations.borrow_mut().apply(&Delta { announced: grants(&table)?, ..Delta::default() });
    speaker.pipeline.set_authorizations(Some(authorizations));
    measured(|| speaker.update(1, &octets))?;
    Ok(ROUTES)
}

/// Tables of the real world where `HOLDFAST_DATA` has them: memory, lookups, a load, and a change that takes effect.
pub(crate) fn run() -> Result<()> {
    let rows = real_vrps()?.unwrap_or_else(|| made_vrps(MADE));
    let vrp = |(prefix, max_length, asn): &(String, u64, u64)| -> Result<Vrp> {
        Ok(Vrp::new(prefix.parse()?, u8::try_from(*max_length)?, Asn(u32::try_from(*asn)?))?)
    };
    let all: Vec<Vrp> = rows.iter().map(vrp).collect::<Result<_>>()?;
    let began = Instant::now();
    let mut authorizations = Authorizations::new(HashKey::new([1, 0]));
    authorizations.apply(&Delta { announced: all.clone(), ..Delta::default() });
    let octets = authorizations.vrps.memory() as f64 / all.len() as f64;
    println!("{} VRPs in {:.0?}, {octets:.1} octets each", all.len(), began.elapsed());

    let is_real = std::env::var_os("HOLDFAST_DATA").is_some();
    let tables = Tables::default();
    let get = |ipv6| match (is_real, ipv6) {
        (true, _) => tables.get(Kind::Real { ipv6 }),
        (false, false) => Ok(Synthetic::ipv4(1, 1_000_000).build().into()),
        (false, true) => Ok(Synthetic::ipv6(1, 200_000).build().into()),
    };
    let (v4, v6) = (get(false)?, get(true)?);
    for (name, table) in [("IPv4", &v4), ("IPv6", &v6)] {
        let routes = origins(table);
        let mut counts = [0; 3];
        let began = Instant::now();
        for (prefix, origin) in &routes {
            counts[authorizations.vrps.validate(*prefix, *origin) as usize] += 1;
        }
        let each = began.elapsed().as_secs_f64() * 1e6 / routes.len() as f64;
        println!("{name}: {} routes, {each:.3} us each; valid, invalid, not found: {counts:?}", routes.len());
    }

    let octets = announcement(&v4, 1)?;
    let shared = Rc::new(RefCell::new(authorizations));
    let mut speaker = Speaker::new(1, Family::IPV4_UNICAST)?;
    let before = load(&mut speaker, &octets)?;
    drop(speaker);
    let mut speaker = Speaker::new(1, Family::IPV4_UNICAST)?;
    speaker.pipeline.set_authorizations(Some(shared.clone()));
    let with = load(&mut speaker, &octets)?;
    println!("a load of {} routes: {before:.2} s, validated {with:.2} s", v4.routes.len());
    let sets = speaker.pipeline.attribute_sets();
    println!("{sets} attribute sets, {} MB", speaker.pipeline.memory().total() >> 20);

    // VRPs of routes that are there.
    let covering = v4
        .routes
        .iter()
        .step_by(v4.routes.len() / (4 * DELTA))
        .filter_map(|(prefix, _)| shared.borrow().vrps.covering(*prefix).first().copied());
    let withdrawn: Vec<Vrp> = covering.take(DELTA).collect();
    ensure!(!withdrawn.is_empty(), "no route is covered");
    let delta = Delta { withdrawn, ..Delta::default() };
    let began = Instant::now();
    let affected = shared.borrow_mut().apply(&delta);
    speaker.pipeline.authorizations_changed(&affected);
    let longest = settle(&mut speaker);
    println!(
        "a delta of {} VRPs: {:.1?}, longest slice {longest:.1?}",
        delta.withdrawn.len(),
        began.elapsed()
    );
    let began = Instant::now();
    speaker.pipeline.revalidate();
    let longest = settle(&mut speaker);
    println!("everything again: {:.0?}, longest slice {longest:.1?}", began.elapsed());
    Ok(())
}

fn load(speaker: &mut Speaker, octets: &[u8]) -> Result<f64> {
    let began = Instant::now();
    speaker.update(1, octets).context("a table")?;
    let took = began.elapsed().as_secs_f64();
    settle(speaker);
    Ok(took)
}

/// Background work until there is none, with its longest slice.
fn settle(speaker: &mut Speaker) -> std::time::Duration {
    let mut longest = std::time::Duration::ZERO;
    loop {
        let began = Instant::now();
        let more = speaker.pipeline.work(SLICE);
        longest = longest.max(began.elapsed());
        speaker.pull();
        if !more && speaker.pipeline.is_settled() {
            return longest;
        }
    }
}
