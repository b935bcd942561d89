//! A route by description.

use std::{fmt::Display, net::IpAddr, str::FromStr};

use holdfast_policy::{Community, Origin, PathElement, Protocol, Route};
use holdfast_types::{Asn, Prefix};

use super::case::Case;

/// A route of no router.
#[derive(Debug)]
pub(super) struct Sample {
    prefix: Prefix,
    path: Vec<PathElement>,
    /// A set is one.
    path_length: u32,
    communities: Vec<Community>,
    origin: Origin,
    med: Option<u32>,
    local_pref: u32,
    next_hop: Option<IpAddr>,
    peer_asn: Option<Asn>,
    protocol: Protocol,
    tag: Option<u32>,
    interface: Option<String>,
    metric: Option<u32>,
}

/// What is wrong with a description.
#[derive(Debug)]
pub(super) struct BadRoute(pub(super) String);

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, BadRoute> {
    text.parse().map_err(|error: T::Err| BadRoute(error.to_string()))
}

impl Sample {
    pub(super) fn read(case: &Case, default_local_pref: u32) -> Result<Self, BadRoute> {
        let (path, path_length) = path(case.as_path.as_deref().unwrap_or_default())?;
        let nearest = path.first().map(|element| asn(*element));
        let optional = |text: &Option<String>| text.as_deref().map(parse).transpose();
        Ok(Self {
            prefix: parse(case.prefix())?,
            communities: case.community.iter().map(|text| parse(text)).collect::<Result<_, _>>()?,
            origin: case.origin.as_deref().map_or(Ok(Origin::Igp), parse)?,
            med: case.med,
            local_pref: case.local_preference.unwrap_or(default_local_pref),
            next_hop: optional(&case.next_hop)?,
            peer_asn: case.peer_as.map(Asn).or(nearest),
            protocol: case.protocol.as_deref().map_or(Ok(Protocol::Bgp), parse)?,
            tag: case.tag,
            interface: case.interface.clone(),
            metric: case.metric,
            path,
            path_length,
        })
    }
}

fn asn(element: PathElement) -> Asn {
    match element {
        PathElement::Sequence(asn)
        | PathElement::Set(asn)
        | PathElement::ConfedSequence(asn)
        | PathElement::ConfedSet(asn) => asn,
    }
}

/// `65001 65002 {65003,65004}`
fn path(text: &str) -> Result<(Vec<PathElement>, u32), BadRoute> {
    let (mut path, mut length) = (Vec::new(), 0);
    let text = text.replace(", ", ",");
    for word in text.split_ascii_whitespace() {
        length += 1;
        match word.strip_prefix('{').and_then(|set| set.strip_suffix('}')) {
            Some(set) => {
                for member in set.split(',') {
                    path.push(PathElement::Set(parse(member)?));
                }
            }
            None => path.push(PathElement::Sequence(parse(word)?)),
        }
    }
    Ok((path, length))
}

impl Route for Sample {
    fn prefix(&self) -> Prefix {
        self.prefix
    }
    fn as_path(&self) -> impl Iterator<Item = PathElement> {
        self.path.iter().copied()
    }
    fn as_path_length(&self) -> u32 {
        self.path_length
    }
    fn origin(&self) -> Origin {
        self.origin
    }
    fn med(&self) -> Option<u32> {
        self.med
    }
    fn local_pref(&self) -> Option<u32> {
        Some(self.local_pref)
    }
    fn next_hop(&self) -> Option<IpAddr> {
        self.next_hop
    }
    fn communities(&self) -> impl Iterator<Item = u32> {
        self.communities.iter().filter_map(|community| match community {
            Community::Standard(value) => Some(*value),
            _ => None,
        })
    }
    fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.communities.iter().filter_map(|community| match *community {
            Community::Large(global, first, second) => Some((global, first, second)),
            _ => None,
        })
    }
    fn ext_communities(&self) -> impl Iterator<Item = u64> {
        self.communities.iter().filter_map(|community| match community {
            Community::Extended(octets) => Some(*octets),
            _ => None,
        })
    }
    fn peer_asn(&self) -> Option<Asn> {
        self.peer_asn
    }
    fn protocol(&self) -> Protocol {
        self.protocol
    }
    fn tag(&self) -> Option<u32> {
        self.tag
    }
    fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }
    fn metric(&self) -> Option<u32> {
        self.metric
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_one_hop_of_a_path() {
        let (elements, length) = path("65001 65002 {65003, 65004}").expect("a path");
        assert_eq!((elements.len(), length), (4, 3));
        assert_eq!(elements[3], PathElement::Set(Asn(65004)));
        assert!(path("65001 x").is_err() && path("{1").is_err());
    }
}
