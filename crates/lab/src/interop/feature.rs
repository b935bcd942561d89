//! The rows of the matrix.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{OUR_ASN, OUR_LARGE, OURS, Scene, THEIR_LARGE, Wish, mentions};

const LIMIT: Duration = Duration::from_secs(40);
/// Large communities that make an UPDATE longer than 4096 octets.
const MANY: u32 = 400;

/// A row.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feature {
    /// IPv4 unicast over IPv4.
    Ipv4,
    /// IPv6 unicast over IPv6.
    Ipv6,
    /// RFC 2385.
    Md5,
    /// RFC 5082.
    Gtsm,
    /// RFC 6793.
    FourOctetAs,
    /// RFC 2918.
    RouteRefresh,
    /// RFC 8092.
    LargeCommunities,
    /// RFC 8654.
    ExtendedMessages,
}

impl Feature {
    /// All rows.
    pub const ALL: [Self; 8] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::Md5,
        Self::Gtsm,
        Self::FourOctetAs,
        Self::RouteRefresh,
        Self::LargeCommunities,
        Self::ExtendedMessages,
    ];

    /// As in the first column.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Md5 => "TCP-MD5",
            Self::Gtsm => "GTSM",
            Self::FourOctetAs => "four-octet AS",
            Self::RouteRefresh => "route refresh",
            Self::LargeCommunities => "large communities",
            Self::ExtendedMessages => "extended messages",
        }
    }

    /// What [`Self::judge`] looks at.
    pub fn judgement(self) -> &'static str {
        match self {
            Self::Ipv4 => "a route each way over a session over IPv4",
            Self::Ipv6 => "a route each way over a session over IPv6",
            Self::Md5 => "the same with a key on both sides",
            Self::Gtsm => "the same with TTL security on both sides",
            Self::FourOctetAs => {
                "its AS is 4200000001, and stands in the path here; ours stands in the path there"
            }
            Self::RouteRefresh => "it asks for our routes again, and we answer",
            Self::LargeCommunities => "each side's large community is seen on the other",
            Self::ExtendedMessages => {
                "a route with 400 large communities, over 4096 octets, arrives there whole"
            }
        }
    }

    /// What it asks of the stock router.
    pub fn wish(self) -> Wish {
        let wish = Wish::default();
        match self {
            Self::Ipv4 | Self::RouteRefresh => wish,
            Self::Ipv6 => Wish { ipv6: true, ..wish },
            Self::Md5 => Wish { md5: Some("sesame"), ..wish },
            Self::Gtsm => Wish { gtsm: true, ..wish },
            Self::FourOctetAs => Wish { asn: 4_200_000_001, ..wish },
            Self::LargeCommunities => Wish { large: true, ..wish },
            Self::ExtendedMessages => Wish { extended: true, ..wish },
        }
    }

    /// Our configuration.
    pub fn configuration(self, wish: &Wish) -> String {
        let network = OURS[usize::from(wish.ipv6)];
        let (address, asn) = (wish.near(), wish.asn);
        let mut peer = format!("address = \"{address}\"\nasn = {asn}\n");
        let mut say = |line: String| peer.push_str(&(line + "\n"));
        wish.md5.iter().for_each(|key| say(format!("md5 = \"{key}\"")));
        if wish.gtsm {
            say("ttl-security = true".into());
        }
        let [a, b, c] = OUR_LARGE;
        let then = match self {
            Self::LargeCommunities => {
                format!("then = {{ add-communities = [\"{a}:{b}:{c}\"], action = \"accept\" }}")
            }
            Self::ExtendedMessages => {
                let many: Vec<_> = (0..MANY).map(|n| format!("\"65000:8:{n}\"")).collect();
                format!("then = {{ add-communities = [{}], action = \"accept\" }}", many.join(", "))
            }
            _ => "then = \"accept\"".into(),
        };
        format!(
            "[router]\nid = \"10.0.0.1\"\nasn = {OUR_ASN}\n[rib]\nenabled = false\n[bgp]\nconnect-retry = 1\n\
             [[bgp.peer]]\nname = \"stock\"\nimport = \"accept-all\"\nexport = \"out\"\n{peer}\
             [[bgp.network]]\nprefix = \"{network}\"\n[[policy]]\nname = \"out\"\n[[policy.term]]\n{then}\n"
        )
    }

    /// Looks at both routers.
    ///
    /// # Errors
    /// It does not work.
    pub fn judge(self, scene: &Scene<'_>) -> Result<()> {
        let path = scene.until_ours()?;
        let ours = |text: &str| mentions(text, &[OUR_ASN]);
        match self {
            Self::Ipv4 | Self::Ipv6 | Self::Md5 | Self::Gtsm => drop(scene.until_theirs(ours)?),
            Self::FourOctetAs => {
                scene.until_theirs(ours)?;
                ensure!(mentions(&path.to_string(), &[scene.wish.asn]), "{path}");
            }
            Self::LargeCommunities => {
                ensure!(mentions(&path.to_string(), &THEIR_LARGE), "{path}");
                scene.until_theirs(|text| mentions(text, &OUR_LARGE))?;
            }
            Self::ExtendedMessages => {
                scene.until_theirs(|text| {
                    mentions(text, &[65_000, 8, 0]) && mentions(text, &[65_000, 8, MANY - 1])
                })?;
            }
            Self::RouteRefresh => {
                scene.until_theirs(ours)?;
                let sent = |shown: &Value| shown["messageStats"]["updatesSent"].as_u64();
                let before = sent(&scene.router.neighbor("stock")?);
                scene.stock.refresh()?;
                scene.router.until_neighbor("stock", LIMIT, |shown| {
                    shown["messageStats"]["routeRefreshRecv"].as_u64() > Some(0) && sent(shown) > before
                })?;
                scene.until_theirs(ours)?;
            }
        }
        Ok(())
    }
}
