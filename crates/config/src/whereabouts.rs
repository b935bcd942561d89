//! Where peers are: what tells them apart, whatever they are called.

use crate::{
    Config,
    schema::{Peer, Remote, VrfPlace},
};

/// In which VRF, at which site, and at which address.
pub type Whereabouts = (Option<(String, String, bool)>, Remote);

/// The peers of a configuration, in its order.
pub fn peers(config: &Config) -> impl Iterator<Item = (Whereabouts, &Peer)> {
    let peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
    let site_of = |name: &String| {
        let vrf = config.vrfs.iter().find(|vrf| vrf.name == *name)?;
        let (place, is_device) = site(&vrf.place);
        Some((name.clone(), place.to_owned(), is_device))
    };
    peers.map(move |peer| ((peer.vrf.as_ref().and_then(site_of), peer.remote.clone()), peer))
}

/// Where a VRF is: with another table it is still there.
pub fn site(place: &VrfPlace) -> (&str, bool) {
    match place {
        VrfPlace::Device { name, .. } => (name, true),
        VrfPlace::Netns { name, .. } => (name, false),
    }
}
