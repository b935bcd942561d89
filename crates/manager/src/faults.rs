//! What the kernel has refused since the configuration is in effect: it runs, with faults.

use std::{net::IpAddr, time::Duration};

use holdfast_api::transport::v1::{Empty, Listener, TransportClient};
use holdfast_xrl::{XrlError, scoped};
use tokio::time::{sleep, timeout};

use crate::{manager::Manager, replacement::CARRIES};

/// How long `transport` may take to say where it listens.
const ANSWER: Duration = Duration::from_millis(200);
/// A listener of a new configuration is there, or is not, within this time.
const SETTLED: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

/// The name of the process that has a fault, and the fault in words of the operator.
pub(crate) type Fault = (&'static str, String);

/// The faults that there are now.
pub(crate) async fn now(manager: &Manager) -> Vec<Fault> {
    listeners(manager).await.into_iter().filter_map(fault).collect()
}

/// Those that are new since `before`, as soon as it is known of all listeners whether they are there.
pub(crate) async fn since(before: &[Fault], manager: &Manager) -> Vec<String> {
    let all = async {
        while listeners(manager).await.iter().any(|(_, listener)| listener.opening) {
            sleep(LOOK).await;
        }
    };
    // One that takes longer is told by `show processes` in the end.
    let _ = timeout(SETTLED, all).await;
    let new = now(manager).await.into_iter().filter(|fault| !before.contains(fault));
    new.map(|(name, fault)| format!("{name}: {fault}")).collect()
}

/// All listeners, with their VRF.
async fn listeners(manager: &Manager) -> Vec<(Option<String>, Listener)> {
    let config = manager.config();
    let mut all = Vec::new();
    if manager.pid(CARRIES).is_none() {
        return all;
    }
    for vrf in std::iter::once(None).chain(config.vrfs.iter().map(|vrf| Some(vrf.name.clone()))) {
        // What does not answer has no listeners, or is about to lose them.
        let found = timeout(ANSWER, of_table(manager, vrf.as_deref())).await;
        let found = found.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default();
        all.extend(found.into_iter().map(|listener| (vrf.clone(), listener)));
    }
    all
}

async fn of_table(manager: &Manager, vrf: Option<&str>) -> Result<Vec<Listener>, XrlError> {
    let transport: TransportClient = manager.resolver.client(&scoped(CARRIES, vrf)).await?;
    let (mut found, mut replies) = (Vec::new(), transport.show_listeners(Empty {}));
    while let Some(listener) = replies.next().await? {
        found.push(listener);
    }
    Ok(found)
}

fn fault((vrf, listener): (Option<String>, Listener)) -> Option<Fault> {
    if listener.fault.is_empty() {
        return None;
    }
    let address = <[u8; 4]>::try_from(&*listener.address).map(IpAddr::from);
    let address = address.or_else(|_| <[u8; 16]>::try_from(&*listener.address).map(IpAddr::from));
    let address = address.map_or_else(|_| "?".to_owned(), |address| address.to_string());
    let vrf = vrf.map(|vrf| format!(" in VRF {vrf}")).unwrap_or_default();
    Some((CARRIES, format!("cannot listen at {address} port {}{vrf}: {}", listener.port, listener.fault)))
}
