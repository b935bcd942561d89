//! Big configurations: thousands of peers, tens of thousands of prefixes in sets.

use std::{
    fmt::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// How big, and who may be there.
#[derive(Copy, Clone, Debug)]
pub struct Scale {
    /// Configured peers; nobody answers at their addresses unless a test puts somebody there.
    pub peers: u32,
    /// Entries of prefix sets, in sets of up to [`LARGEST_SET`].
    pub prefixes: u32,
    /// Every so many-th peer has an MD5 key; 0 for none.
    pub md5_every: u32,
}

/// Entries of the largest prefix set.
pub const LARGEST_SET: u32 = 10_000;
/// Every so many-th peer is reached over IPv6.
const V6_EVERY: u32 = 5;
/// Policies of each direction.
const POLICIES: u32 = 16;

impl Default for Scale {
    /// The size that has to start and reload within five seconds.
    fn default() -> Self {
        Self { peers: 5_000, prefixes: 45_000, md5_every: 0 }
    }
}

impl Scale {
    /// Prefix sets, policies and peers as TOML, to be put behind `[router]` and `[bgp]`.
    pub fn configuration(&self) -> String {
        let mut text = String::new();
        let sets = self.sets(&mut text);
        policies(&mut text, sets);
        (0..self.peers).for_each(|number| text.push_str(&self.peer(number)));
        text
    }

    /// One peer as TOML. Its import policy is `import-N` with N = number % 16, `export-N` likewise.
    pub fn peer(&self, number: u32) -> String {
        let (name, address, policy) = (Self::name(number), Self::address(number), number % POLICIES);
        let mut text = format!(
            "\n[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {}\n\
             description = \"port {number} of the exchange\"\nimport = \"import-{policy}\"\nexport = \"export-{policy}\"\n",
            100_000 + number
        );
        if self.md5_every > 0 && number.is_multiple_of(self.md5_every) {
            text.push_str(&format!("md5 = \"secret of {name}\"\n"));
        }
        if number % 7 == 3 {
            text.push_str("passive = true\n");
        }
        if number % 11 == 5 {
            text.push_str("hold-time = 30\n");
        }
        text
    }

    /// What a peer is called.
    pub fn name(number: u32) -> String {
        format!("member-{number}")
    }

    /// Where a peer is: in 198.18.0.0/15 or 2001:db8:5ca1::/48.
    pub fn address(number: u32) -> IpAddr {
        if number % V6_EVERY == V6_EVERY - 1 {
            let [high, low] = [number >> 16, number & 0xffff].map(|part| part as u16);
            Ipv6Addr::new(0x2001, 0xdb8, 0x5ca1, 0, 0, 0, high, low.wrapping_add(1)).into()
        } else {
            Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(198, 18, 0, 1)) + number).into()
        }
    }

    /// Writes the sets; their number.
    fn sets(&self, text: &mut String) -> u32 {
        let count = self.prefixes.div_ceil(LARGEST_SET).max(1);
        for set in 0..count {
            let first = set * LARGEST_SET;
            let last = self.prefixes.min(first + LARGEST_SET);
            text.push_str(&format!("\n[[prefix-set]]\nname = \"set-{set}\"\nprefixes = [\n"));
            for number in first..last {
                writeln!(text, "  \"{}\",", range(number)).expect("writing to a string");
            }
            text.push_str("]\n");
        }
        count
    }
}

/// An entry of a set: most are one prefix, some have lengths, some are of IPv6.
fn range(number: u32) -> String {
    // An odd factor permutes the numbers: neighbours in the text are far apart in the address space.
    let network = Ipv4Addr::from_bits((number.wrapping_mul(40_503) & 0x3f_ffff) << 8 | 0x4000_0000);
    match number % 10 {
        3 => format!("{network}/24 le 28"),
        6 => format!("2a00:{:x}:{:x}::/48", number >> 16, number & 0xffff),
        _ => format!("{network}/24"),
    }
}

fn policies(text: &mut String, sets: u32) {
    for number in 0..POLICIES {
        let set = number % sets;
        text.push_str(&format!(
            "\n[[policy]]\nname = \"import-{number}\"\n\
             [[policy.term]]\nname = \"too-long\"\nfrom = {{ as-path-length = {{ min = 50 }} }}\nthen = \"reject\"\n\
             [[policy.term]]\nname = \"registered\"\nfrom = {{ prefix-set = \"set-{set}\" }}\n\
             then = {{ local-preference = {}, add-communities = [\"65000:{number}\"], action = \"accept\" }}\n\
             \n[[policy]]\nname = \"export-{number}\"\n\
             [[policy.term]]\nname = \"members\"\nfrom = {{ community = \"65000:*\" }}\nthen = \"accept\"\n",
            100 + number
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_big_configuration_is_a_right_one() {
        let scale = Scale { peers: 500, prefixes: 25_000, md5_every: 10 };
        let text = format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\n{}", scale.configuration());
        let config =
            holdfast_config::parse(&text, "big", holdfast_config::Schema::new([])).expect("no errors");
        assert_eq!(config.bgp.map(|bgp| bgp.peers.len()), Some(500));
        assert_eq!(config.policy.prefix_sets.iter().map(|set| set.prefixes.len()).sum::<usize>(), 25_000);
        assert_eq!(config.policy.prefix_sets.iter().map(|set| set.prefixes.len()).max(), Some(10_000));
    }
}
