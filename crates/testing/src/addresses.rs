//! Addresses of interfaces that a test has just given them.

use std::{
    net::Ipv6Addr,
    process::Command,
    time::{Duration, Instant},
};

/// A kernel that has not taken an address by then never will.
const LIMIT: Duration = Duration::from_secs(10);

/// Waits until the kernel delivers what is sent to these IPv6 addresses of its own. `ip` are the arguments of `ip` before its
/// command: `["-n", "router"]` for a network namespace of that name, none for this one.
///
/// `ip address add … nodad` returns before: the kernel makes the route of the address itself (table `local`) in a worker of
/// its own, which waits for whatever else changes interfaces, in all namespaces. A packet to the address that leaves before that
/// asks the link for a neighbor of this address, and is lost. The address shows no flag for this time.
///
/// # Panics
/// `ip` of iproute2 cannot be run, or the kernel does not take the addresses within 10 s.
pub fn until_delivered(ip: &[&str], addresses: &[Ipv6Addr]) {
    let begin = Instant::now();
    loop {
        let missing: Vec<_> = {
            let taken = delivered(ip);
            addresses.iter().filter(|address| !taken.contains(address)).collect()
        };
        if missing.is_empty() {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "the kernel does not deliver to {missing:?}");
    }
}

/// The IPv6 addresses to which packets are delivered here.
fn delivered(ip: &[&str]) -> Vec<Ipv6Addr> {
    let show = ["-6", "route", "show", "table", "local", "type", "local"];
    let shown = Command::new("ip").args(ip).args(show).output().expect("ip of iproute2 runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let address = |line: &str| line.split_whitespace().find_map(|word| word.parse().ok());
    shown.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_delivered_and_no_other_is() {
        until_delivered(&[], &[Ipv6Addr::LOCALHOST]);
        let foreign: Ipv6Addr = "2001:db8::1".parse().expect("an address");
        assert!(!delivered(&[]).contains(&foreign));
    }
}
