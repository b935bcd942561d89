//! The tables of VRFs: an engine each, found under a class of its own ("fea@blue").

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    rc::Rc,
    time::Duration,
};

use holdfast_api::fea::v1::{Configuration, Vrf as ApiVrf};
use holdfast_fib::TableId;
use holdfast_fib_linux::ObjectIds;
use holdfast_process::{Boot, spawn_task};
use holdfast_sockets::{FdStore, Place};
use holdfast_xrl::XrlError;
use tokio::{
    sync::{Mutex, watch},
    task::AbortHandle,
};
use tracing::{Instrument, info, warn};

use crate::{FeaService, engine::Engine, interfaces::Part, monitor::follow, serve};

/// Pause before it is tried again to reach a namespace or a kernel that did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether a namespace is still the one of its name.
const LOOK: Duration = Duration::from_secs(10);

/// The VRFs of the process, as they are configured.
pub(crate) struct Vrfs {
    boot: Rc<Boot>,
    /// The engine of the default table.
    main: Rc<Engine>,
    running: Mutex<BTreeMap<String, Vrf>>,
    configured: watch::Sender<bool>,
}

/// Dropped, it leaves the Finder; its routes stay.
struct Vrf {
    site: Site,
    engine: Rc<Engine>,
    following: AbortHandle,
    hearing: AbortHandle,
    boot: Boot,
    /// Its end has begun. Whoever asked for it may have given up since: then it is taken up by the next.
    ending: bool,
}

/// Where a VRF is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Site {
    Device(String),
    Namespace(String),
}

impl Vrfs {
    /// None yet; `main` is the engine of the default table.
    pub(crate) fn new(boot: Rc<Boot>, main: Rc<Engine>) -> Self {
        Self { boot, main, running: Mutex::default(), configured: watch::Sender::new(false) }
    }

    /// Begins those that are new, and ends those that are not there any more or are somewhere else, with their routes.
    /// Those whose table becomes another, the default one first, give up the one they have, and wait for a configuration of
    /// their own. All others are left alone.
    ///
    /// # Errors
    /// `InvalidArgument` for those that cannot be side by side; then nothing has changed. `Unavailable` when the kernel
    /// keeps a table from being given up.
    pub(crate) async fn configure(&self, request: &Configuration) -> Result<(), XrlError> {
        let wanted = sites(&request.vrfs)?;
        let mut running = self.running.lock().await;
        let stays = |name: &String, vrf: &Vrf| wanted.get(name) == Some(&vrf.site) && !vrf.ending;
        let gone: Vec<String> =
            running.iter().filter(|(name, vrf)| !stays(name, vrf)).map(|(name, _)| name.clone()).collect();
        for name in &gone {
            if let Some(vrf) = running.get_mut(name) {
                vrf.end(false).await;
            }
            running.remove(name);
        }
        let stays = |vrf: &str| wanted.contains_key(vrf) && !gone.iter().any(|gone| gone == vrf);
        FdStore::keep_vrfs(&self.boot.keeper, stays).await?;
        self.main.release_unless(request.table).await?;
        for vrf in &request.vrfs {
            if let Some(running) = running.get(&vrf.name) {
                running.engine.release_unless(vrf.table).await?;
            }
        }
        let devices = wanted.values().filter_map(|site| match site {
            Site::Device(device) => Some(device.clone()),
            Site::Namespace(_) => None,
        });
        self.main.interfaces.show(Part::Outside(devices.collect()));
        for (name, site) in wanted {
            running.entry(name).or_insert_with_key(|name| Vrf::begin(&self.boot, name, site));
        }
        self.configured.send_replace(true);
        Ok(())
    }

    /// Waits until it is known which there are.
    pub(crate) async fn are_known(&self) {
        // The sender lives as long as we do: this cannot fail.
        let _ = self.configured.subscribe().wait_for(|configured| *configured).await;
    }

    /// The end of all.
    pub(crate) async fn shut_down(&self, keep_routes: bool) {
        let mut running = self.running.lock().await;
        while let Some(mut first) = running.first_entry() {
            first.get_mut().end(keep_routes).await;
            first.remove();
        }
    }
}

impl Vrf {
    fn begin(boot: &Boot, name: &str, site: Site) -> Self {
        let boot = boot.instance(name);
        let (place, part) = match site.clone() {
            Site::Device(device) => (Place::Device(device.clone()), Part::Inside(device)),
            Site::Namespace(name) => (Place::namespace(name, boot.keeper.clone()), Part::All),
        };
        let engine = Rc::new(Engine::new(place, part, &boot));
        let hearing = serve(&boot, &engine, FeaService::new(Rc::clone(&engine)));
        boot.join();
        let following = spawn_task(stay(Rc::clone(&engine)).instrument(boot.span())).abort_handle();
        boot.span().in_scope(|| info!(event = "vrf-begun", ?site, "VRF {name} is here"));
        Self { site, engine, following, hearing, boot, ending: false }
    }

    /// To be called again if it was not waited for.
    async fn end(&mut self, keep_routes: bool) {
        self.ending = true;
        let span = self.boot.span();
        match self.engine.shut_down(keep_routes).await {
            Ok(()) => span.in_scope(|| info!(event = "vrf-ended", "gone")),
            Err(error) => span.in_scope(|| warn!(event = "vrf-ended", "its routes may have stayed: {error}")),
        }
    }
}

impl Drop for Vrf {
    fn drop(&mut self) {
        self.following.abort();
        self.hearing.abort();
    }
}

/// Follows the kernel where the VRF is. That may be there only later, or go and come back.
async fn stay(engine: Rc<Engine>) {
    let (mut said, place) = (String::new(), engine.place());
    loop {
        let followed = async {
            let monitor = engine.monitor().await?;
            engine.settle().await?;
            tokio::select! {
                ended = follow(monitor, &engine) => ended,
                // Configured meanwhile with what is not there yet.
                () = engine.is_waiting() => Ok(()),
            }
        };
        let followed = tokio::select! {
            followed = followed => followed,
            () = place.moved() => {
                warn!(event = "vrf-moved", "its namespace was deleted and made again: it goes there");
                engine.leave("its namespace was made again").await;
                continue;
            }
            never = look(&place) => match never {},
        };
        let Err(error) = followed else { continue };
        let error = format!("{error:#}");
        if error != said {
            warn!(event = "vrf-waits", "tried again until it works: {error}");
            said = error;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Has [`Place::moved`] notice what nobody else has.
async fn look(place: &Place) -> Infallible {
    loop {
        tokio::time::sleep(LOOK).await;
        // A name that nothing has now may get another namespace later.
        _ = place.netlink().await;
    }
}

/// Where each of the VRFs is, if all can be there.
/// Whether these VRFs can be side by side.
pub(crate) fn check(vrfs: &[ApiVrf]) -> Result<(), XrlError> {
    sites(vrfs).map(drop)
}

fn sites(vrfs: &[ApiVrf]) -> Result<BTreeMap<String, Site>, XrlError> {
    let mut sites = BTreeMap::new();
    let mut tables: BTreeMap<u32, u32> = BTreeMap::new();
    let mut places = BTreeSet::new();
    for vrf in vrfs {
        let fault = |fault: String| XrlError::invalid_argument(format!("VRF {:?}: {fault}", vrf.name));
        if vrf.name.is_empty() {
            return Err(fault("it has no name".to_owned()));
        }
        let site = match (vrf.device.as_str(), vrf.netns.as_str()) {
            (device, "") if !device.is_empty() => Site::Device(device.to_owned()),
            ("", netns) if !netns.is_empty() => Site::Namespace(netns.to_owned()),
            _ => return Err(fault("it is at a device or in a network namespace".to_owned())),
        };
        let group = TableId(vrf.table).0 % ObjectIds::TABLES;
        if let Site::Device(_) = site
            && let Some(other) = tables.insert(group, vrf.table)
        {
            let text = format!(
                "the tables {other} and {} cannot both be VRFs' here: they are the same modulo {}",
                vrf.table,
                ObjectIds::TABLES
            );
            return Err(fault(text));
        }
        if !places.insert((vrf.device.as_str(), vrf.netns.as_str())) {
            return Err(fault("another VRF is in the same place".to_owned()));
        }
        if sites.insert(vrf.name.clone(), site).is_some() {
            return Err(fault("there are two of this name".to_owned()));
        }
    }
    Ok(sites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vrf(name: &str, table: u32, device: &str, netns: &str) -> ApiVrf {
        ApiVrf { name: name.into(), table, device: device.into(), netns: netns.into() }
    }

    #[test]
    fn a_vrf_is_at_a_device_or_in_a_namespace() {
        let vrfs = [vrf("blue", 100, "blue", ""), vrf("red", 100, "", "red"), vrf("green", 101, "vrf-g", "")];
        let read = sites(&vrfs).expect("they can be side by side");
        assert_eq!(read["blue"], Site::Device("blue".into()));
        assert_eq!((read["red"].clone(), read.len()), (Site::Namespace("red".into()), 3));
    }

    #[test]
    fn what_cannot_be_side_by_side_is_refused() {
        let blue = vrf("blue", 100, "blue", "");
        for (other, words) in [
            (vrf("", 1, "a", ""), "no name"),
            (vrf("a", 1, "", ""), "at a device or in a network namespace"),
            (vrf("a", 1, "a", "a"), "at a device or in a network namespace"),
            (vrf("blue", 1, "a", ""), "two of this name"),
            (vrf("a", 1, "blue", ""), "the same place"),
            (vrf("a", 100, "a", ""), "100 and 100"),
            (vrf("a", 100 + ObjectIds::TABLES, "a", ""), "100 and 32868 cannot both be"),
        ] {
            let error = sites(&[blue.clone(), other]).expect_err(words);
            assert!(error.message().contains(words), "{error}");
        }
    }
}
