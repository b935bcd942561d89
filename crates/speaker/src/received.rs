//! What came: whether it is what was expected, and how it is told.

use std::fmt;

use holdfast_bgp_wire::{
    Attributes, Message, MessageType, MpReach, MpUnreach, Notification, Open, RouteRefresh,
    attribute::code,
    nlri,
    update::{self, AsSets, PeerKind, Rules},
};
use holdfast_types::{Family, IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::script::{Expected, Named};

/// Prefixes that are told of one message.
const MOST_TOLD: usize = 10;

/// Something that came over a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// A whole message; its header is sound.
    Message(Vec<u8>),
    /// Octets that are no message, and why; nothing after them is one.
    Broken(Vec<u8>, Notification),
    /// The end, and the error with which it came.
    End(Option<String>),
}

impl Received {
    /// The octets of it.
    pub fn octets(&self) -> &[u8] {
        match self {
            Self::Message(octets) | Self::Broken(octets, _) => octets,
            Self::End(_) => &[],
        }
    }

    pub(crate) fn message(&self) -> Option<Message<'_>> {
        match self {
            Self::Message(octets) => {
                holdfast_bgp_wire::next_message(octets, holdfast_bgp_wire::MAX_EXTENDED_LEN).ok().flatten()
            }
            Self::Broken(..) | Self::End(_) => None,
        }
    }

    /// Whether it is a KEEPALIVE.
    pub fn is_keepalive(&self) -> bool {
        self.message().is_some_and(|message| message.kind == MessageType::KeepAlive)
    }

    /// Whether nothing more is to be expected of the session.
    pub fn is_last(&self) -> bool {
        let is_notification = self.message().is_some_and(|message| message.kind == MessageType::Notification);
        is_notification || !matches!(self, Self::Message(_))
    }

    /// Whether it is what was expected.
    pub fn is(&self, expected: &Expected) -> bool {
        match (expected, self.message()) {
            (Expected::Close, _) => matches!(self, Self::End(_)),
            (Expected::Hex { pattern, is_open }, _) => {
                let octets = self.octets();
                let fits =
                    if *is_open { octets.len() >= pattern.len() } else { octets.len() == pattern.len() };
                let is_same =
                    |(wanted, octet): (&Option<u8>, &u8)| wanted.is_none_or(|wanted| wanted == *octet);
                fits && !octets.is_empty() && pattern.iter().zip(octets).all(is_same)
            }
            (_, None) => false,
            (expected, Some(message)) => is(message, expected),
        }
    }
}

fn is(message: Message<'_>, expected: &Expected) -> bool {
    match (expected, message.kind) {
        (Expected::Open { asn, capabilities }, MessageType::Open) => {
            let Ok(open) = Open::parse(message.body) else {
                return asn.is_none() && capabilities.is_empty();
            };
            let has = |code: &u8| open.capabilities.iter().any(|capability| capability.code() == *code);
            asn.is_none_or(|asn| asn == open.asn) && capabilities.iter().all(has)
        }
        (Expected::Keepalive, MessageType::KeepAlive) | (Expected::Refresh, MessageType::RouteRefresh) => {
            true
        }
        (Expected::Update { announces, withdraws, with, without }, MessageType::Update) => {
            let update = Routes::read(message.body);
            announces.iter().all(|prefix| update.announced.contains(prefix))
                && withdraws.iter().all(|prefix| update.withdrawn.contains(prefix))
                && with.iter().all(|code| update.attributes.contains(code))
                && !without.iter().any(|code| update.attributes.contains(code))
        }
        (Expected::EndOfRib(family), MessageType::Update) => {
            update::sections(message.body).ok().and_then(|sections| sections.end_of_rib()) == Some(*family)
        }
        (Expected::Notification { code, subcode }, MessageType::Notification) => {
            let Some(said) = Notification::parse(message.body) else { return false };
            code.is_none_or(|code| code == said.code) && subcode.is_none_or(|subcode| subcode == said.subcode)
        }
        _ => false,
    }
}

/// The routes of an UPDATE without path identifiers, and the types of its attributes; of one that is broken, what could be read.
#[derive(Default)]
struct Routes {
    announced: Vec<Prefix>,
    withdrawn: Vec<Prefix>,
    attributes: Vec<u8>,
}

impl Routes {
    fn read(body: &[u8]) -> Self {
        let mut routes = Self::default();
        let Ok(sections) = update::sections(body) else { return routes };
        let rules = Rules { extended_next_hop: true, ..Rules::new(PeerKind::Ebgp, AsSets::Accept) };
        routes.withdrawn = list::<Ipv4Prefix>(sections.withdrawn);
        routes.announced = list::<Ipv4Prefix>(sections.nlri);
        for attribute in Attributes(sections.attributes).iter() {
            routes.attributes.push(attribute.code);
            if attribute.code == code::MP_REACH_NLRI
                && let Ok(reach) = MpReach::parse(attribute.value, &rules)
            {
                routes.announced.extend(of_family(reach.family, reach.nlri));
            }
            if attribute.code == code::MP_UNREACH_NLRI
                && let Ok(unreach) = MpUnreach::parse(attribute.value, &rules)
            {
                routes.withdrawn.extend(of_family(unreach.family, unreach.nlri));
            }
        }
        routes
    }
}

fn of_family(family: Family, octets: &[u8]) -> Vec<Prefix> {
    match family {
        Family::IPV4_UNICAST => list::<Ipv4Prefix>(octets),
        Family::IPV6_UNICAST => list::<Ipv6Prefix>(octets),
        _ => Vec::new(),
    }
}

fn list<P: IpPrefix + Into<Prefix>>(octets: &[u8]) -> Vec<Prefix> {
    nlri::prefixes::<P>(octets).map_while(Result::ok).map(Into::into).collect()
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End(None) => f.write_str("the end of the connection"),
            Self::End(Some(error)) => write!(f, "the end of the connection ({error})"),
            Self::Broken(octets, why) => write!(f, "{} octets that are no message ({why})", octets.len()),
            Self::Message(_) => match self.message() {
                Some(message) => write!(f, "{}", Told(message)),
                None => f.write_str("no message"),
            },
        }
    }
}

/// A message in words.
struct Told<'a>(Message<'a>);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.0.body;
        match self.0.kind {
            MessageType::KeepAlive => f.write_str("KEEPALIVE"),
            MessageType::Open => match Open::parse(body) {
                Err(why) => write!(f, "OPEN that cannot be taken ({why})"),
                Ok(open) => {
                    write!(
                        f,
                        "OPEN of AS {}, hold time {} s, identifier {}",
                        open.asn, open.hold_time, open.router_id
                    )?;
                    open.capabilities.iter().try_for_each(|capability| write!(f, ", {capability}"))
                }
            },
            MessageType::Notification => match Notification::parse(body) {
                Some(said) => write!(f, "NOTIFICATION {} {}: {said}", said.code, said.subcode),
                None => f.write_str("NOTIFICATION without a code"),
            },
            MessageType::RouteRefresh => match RouteRefresh::parse(body) {
                Ok(_) => f.write_str("ROUTE-REFRESH"),
                Err(why) => write!(f, "ROUTE-REFRESH that cannot be taken ({why})"),
            },
            MessageType::Update => {
                if let Err(why) = update::sections(body) {
                    return write!(f, "UPDATE that cannot be read ({why})");
                }
                let routes = Routes::read(body);
                f.write_str("UPDATE")?;
                prefixes(f, " announces", &routes.announced)?;
                prefixes(f, " withdraws", &routes.withdrawn)?;
                routes.attributes.iter().try_for_each(|code| write!(f, ", {}", Named(*code)))
            }
        }
    }
}

fn prefixes(f: &mut fmt::Formatter<'_>, what: &str, all: &[Prefix]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    f.write_str(what)?;
    all.iter().take(MOST_TOLD).try_for_each(|prefix| write!(f, " {prefix}"))?;
    if all.len() > MOST_TOLD { write!(f, " and {} more", all.len() - MOST_TOLD) } else { Ok(()) }
}
