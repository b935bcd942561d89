//! `holdfast check --host`: settings of this host's kernel that a configuration needs otherwise. Nothing is changed.

use std::{fmt, fs};

use holdfast_config::{
    Config,
    schema::{Backend, Remote, VrfPlace},
};
use holdfast_types::Prefix;
use serde::Serialize;

/// Octets that MD5 keys of a listener take in `net.core.optmem_max`, each.
const OCTETS_OF_A_KEY: u64 = 130;
/// Octets that a socket of QUIC asks for.
const ROOM_OF_QUIC: u64 = 4 << 20;
/// Neighbors of the kernel beside those on the links of peers.
const OTHER_NEIGHBORS: u64 = 128;

/// A setting that is not as the configuration needs it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Setting {
    /// As `sysctl` calls it.
    pub(crate) sysctl: String,
    /// Its value here.
    pub(crate) value: String,
    /// As it should be.
    pub(crate) should_be: String,
    /// The effect of the present value.
    pub(crate) because: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sysctl, value, should_be, because } = self;
        write!(f, "{sysctl} is {value} and should be {should_be}: {because}")
    }
}

/// The value of a setting here, or `None` where the kernel has no such setting.
pub(crate) fn read(sysctl: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
    fs::read_to_string(path).ok().map(|value| value.trim().to_owned())
}

/// The settings that are not as the configuration needs them. `read` is asked for values: [`read`].
pub(crate) fn settings(config: &Config, read: &dyn Fn(&str) -> Option<String>) -> Vec<Setting> {
    let mut wrong = Wrong { read, settings: Vec::new() };
    let installs = config.rib.enabled && config.fea.backend == Backend::Linux;
    let peers = || config.bgp.iter().flat_map(|bgp| &bgp.peers);
    if installs {
        forwarding(config, &mut wrong);
    }
    if installs && config.bgp.as_ref().is_some_and(|bgp| bgp.max_paths > 1) {
        for family in ["ipv4", "ipv6"] {
            let name = format!("net.{family}.fib_multipath_hash_policy");
            wrong.unless(
                &name,
                |value| value >= 1,
                "1",
                "flows between two hosts all take one of several paths",
            );
        }
    }
    if installs && config.bgp.is_some() {
        wrong.unless(
            "net.ipv4.nexthop_compat_mode",
            |value| value == 0,
            "0",
            "the kernel walks over the whole table, half a second for 1M routes, whenever next hops change",
        );
    }
    if config.vrfs.iter().any(|vrf| matches!(vrf.place, VrfPlace::Device { .. })) {
        for name in ["tcp", "udp", "raw"] {
            let name = format!("net.ipv4.{name}_l3mdev_accept");
            let because = "listeners of other programs outside of VRFs take connections from inside of them";
            wrong.unless(&name, |value| value == 0, "0", because);
        }
    }
    let keys = peers().filter(|peer| peer.md5.is_some()).count() as u64;
    if keys > 0 {
        let least = keys * OCTETS_OF_A_KEY;
        let because = format!("a listener has no room for {keys} MD5 keys");
        wrong.unless("net.core.optmem_max", |value| value >= least, &least.to_string(), &because);
    }
    if peers().any(|peer| peer.transports.iter().any(|transport| transport.is_quic())) {
        let because = "QUIC loses datagrams that come in a burst";
        wrong.unless("net.core.rmem_max", |value| value >= ROOM_OF_QUIC, &ROOM_OF_QUIC.to_string(), because);
    }
    for (family, is_ipv4) in [("ipv4", true), ("ipv6", false)] {
        let neighbors = peers().filter(|peer| is_of(&peer.remote, is_ipv4)).count() as u64;
        let least = neighbors + OTHER_NEIGHBORS;
        let because =
            format!("the kernel forgets some of {neighbors} neighbors, and drops packets meanwhile");
        let name = format!("net.{family}.neigh.default.gc_thresh3");
        wrong.unless(&name, |value| value >= least, &(2 * least).to_string(), &because);
    }
    wrong.settings
}

/// Packets that are not for this host.
fn forwarding(config: &Config, wrong: &mut Wrong<'_>) {
    let statics = || config.statics.iter().map(|route| route.prefix);
    let ipv4 = config.bgp.is_some() || statics().any(|prefix| matches!(prefix, Prefix::V4(_)));
    let ipv6 = config.bgp.is_some() || statics().any(|prefix| matches!(prefix, Prefix::V6(_)));
    let because = "packets that are not for this host are dropped";
    if ipv4 || !config.sections.is_empty() {
        wrong.unless("net.ipv4.ip_forward", |value| value == 1, "1", because);
        wrong.unless(
            "net.ipv4.conf.all.rp_filter",
            |value| value != 1,
            "0, or 2",
            "packets that come by another way than answers would go are dropped",
        );
    }
    if ipv6 || !config.sections.is_empty() {
        wrong.unless("net.ipv6.conf.all.forwarding", |value| value == 1, "1", because);
        wrong.unless(
            "net.ipv6.conf.all.keep_addr_on_down",
            |value| value == 1,
            "1",
            "IPv6 addresses are lost when an interface goes down, and somebody has to put them there again",
        );
        // Kernels up to 6.2 count routes of every kind against this.
        let because = "the kernel of this host has no room for a full IPv6 table";
        let limits = read_kernel(&(wrong.read)("kernel.osrelease").unwrap_or_default());
        if limits.is_some_and(|release| release < (6, 3)) {
            wrong.unless("net.ipv6.route.max_size", |value| value >= 1 << 20, "1048576", because);
        }
    }
}

/// The first two numbers of a release.
fn read_kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn is_of(remote: &Remote, is_ipv4: bool) -> bool {
    match remote {
        Remote::Address(address) | Remote::OnLink(address, _) => address.is_ipv4() == is_ipv4,
        Remote::LinkLocal(..) | Remote::Interface(_) => !is_ipv4,
        Remote::Range(range) => range.address().is_ipv4() == is_ipv4,
    }
}

struct Wrong<'a> {
    read: &'a dyn Fn(&str) -> Option<String>,
    settings: Vec<Setting>,
}

impl Wrong<'_> {
    /// Notes a setting that is there, and not as it should be.
    fn unless(&mut self, sysctl: &str, is_right: impl Fn(u64) -> bool, should_be: &str, because: &str) {
        let Some(value) = (self.read)(sysctl) else { return };
        if !value.parse().is_ok_and(is_right) {
            let (sysctl, should_be, because) = (sysctl.to_owned(), should_be.to_owned(), because.to_owned());
            self.settings.push(Setting { sysctl, value, should_be, because });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ROUTER: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n";

    fn wrong(text: &str, values: &[(&str, &str)]) -> Vec<String> {
        let config = holdfast_config::parse(&format!("{ROUTER}{text}"), "test", Schema::new([]));
        let values: BTreeMap<_, _> = values.iter().copied().collect();
        let read = |name: &str| values.get(name).map(|value| (*value).to_owned());
        let settings = settings(&config.expect("no errors"), &read);
        settings.into_iter().map(|setting| setting.sysctl).collect()
    }

    use holdfast_config::Schema;

    #[test]
    fn a_host_that_does_not_forward_is_named_where_routes_are_installed() {
        let forwarding = ("net.ipv4.ip_forward", "0");
        assert_eq!(wrong("[bgp]\n", &[forwarding]), ["net.ipv4.ip_forward"]);
        assert_eq!(wrong("[bgp]\n", &[("net.ipv4.ip_forward", "1")]), [""; 0]);
        assert_eq!(wrong("[bgp]\n[fea]\nbackend = \"none\"\n", &[forwarding]), [""; 0]);
        assert_eq!(wrong("[bgp]\n[rib]\nenabled = false\n", &[forwarding]), [""; 0]);
        let rp_filter = |value| wrong("[bgp]\n", &[("net.ipv4.conf.all.rp_filter", value)]).len();
        assert_eq!(["0", "1", "2"].map(rp_filter), [0, 1, 0]);
    }

    #[test]
    fn several_paths_are_used_by_flows_if_the_kernel_looks_at_ports() {
        let policy = [("net.ipv4.fib_multipath_hash_policy", "0")];
        assert_eq!(wrong("[bgp]\n", &policy), [""; 0]);
        assert_eq!(wrong("[bgp]\nmax-paths = 4\n", &policy), ["net.ipv4.fib_multipath_hash_policy"]);
    }

    #[test]
    fn room_is_asked_for_by_the_number_of_peers() {
        let peers = |count: u32, more: &str| -> String {
            (0..count)
                .map(|n| {
                    let address = std::net::Ipv4Addr::from_bits(0x0a00_0002 + n);
                    format!("[[bgp.peer]]\nname = \"p{n}\"\naddress = \"{address}\"\nasn = 65002\n{more}")
                })
                .collect()
        };
        let keys = [("net.core.optmem_max", "20480")];
        let md5 = "md5 = \"secret\"\n";
        assert_eq!(wrong(&peers(100, md5), &keys), [""; 0]);
        assert_eq!(wrong(&peers(400, md5), &keys), ["net.core.optmem_max"]);
        assert_eq!(wrong(&peers(400, ""), &keys), [""; 0]);
        let neighbors = [("net.ipv4.neigh.default.gc_thresh3", "1024")];
        assert_eq!(wrong(&peers(800, ""), &neighbors), [""; 0]);
        assert_eq!(wrong(&peers(1000, ""), &neighbors), ["net.ipv4.neigh.default.gc_thresh3"]);
    }

    #[test]
    fn old_kernels_have_a_limit_of_ipv6_routes() {
        let values = |release| [("kernel.osrelease", release), ("net.ipv6.route.max_size", "4096")];
        assert_eq!(wrong("[bgp]\n", &values("5.10.0-28-amd64")), ["net.ipv6.route.max_size"]);
        for release in ["6.3.0", "6.18.44-x", "unknown"] {
            assert_eq!(wrong("[bgp]\n", &values(release)), [""; 0], "{release}");
        }
    }

    #[test]
    fn what_this_kernel_says_is_read() {
        assert!(read("kernel.osrelease").is_some_and(|release| read_kernel(&release).is_some()));
        assert_eq!(read("net.ipv4.no-such-setting"), None);
    }
}
