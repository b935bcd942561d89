//! The rows of the matrix.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_types::Prefix;
use serde_json::Value;

use super::{
    CONFEDERATION, LINK, LINK_LOCAL, OTHERS, OUR_ASN, OUR_LARGE, OURS, Scene, THEIR_LARGE, THEIRS, Wish,
    mentions,
};
use crate::{
    kernel,
    speaker::{Speaker, SpeakerConfig},
    table::{AttributeSet, Table},
    topology::{Side, v4},
    wait,
};

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
    /// RFC 4456.
    Reflection,
    /// RFC 5065.
    Confederation,
    /// RFC 7911.
    AddPath,
    /// RFC 4724, the stock router restarting.
    RestartThere,
    /// RFC 4724, we restarting.
    RestartHere,
    /// RFC 9234.
    Role,
    /// RFC 8950 over link-local addresses.
    Unnumbered,
}

impl Feature {
    /// All rows.
    pub const ALL: [Self; 15] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::Md5,
        Self::Gtsm,
        Self::FourOctetAs,
        Self::RouteRefresh,
        Self::LargeCommunities,
        Self::ExtendedMessages,
        Self::Reflection,
        Self::Confederation,
        Self::AddPath,
        Self::RestartThere,
        Self::RestartHere,
        Self::Role,
        Self::Unnumbered,
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
            Self::Reflection => "route reflection",
            Self::Confederation => "confederation",
            Self::AddPath => "ADD-PATH",
            Self::RestartThere => "graceful restart, it restarts",
            Self::RestartHere => "graceful restart, we restart",
            Self::Role => "roles",
            Self::Unnumbered => "unnumbered",
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
            Self::Reflection => {
                "it is our client: a route of another client arrives there with originator and our cluster"
            }
            Self::Confederation => {
                "another member: our member AS stands in parentheses in the path there, and its own here"
            }
            Self::AddPath => "both of two paths of one prefix arrive there; its own comes with an identifier",
            Self::RestartThere => "its process is killed with -9: its route stays here as stale",
            Self::RestartHere => {
                "`bgp` is killed with -9 and nothing taken over (`nonstop = false`): our route is never missing there"
            }
            Self::Role => "it is our customer: our route arrives there with OTC",
            Self::Unnumbered => {
                "we know it by the interface alone: routes of IPv4 and IPv6 each way over link-local addresses, ours in the kernel"
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
            Self::Reflection => Wish { asn: OUR_ASN, ..wish },
            Self::Confederation => Wish { confederation: true, ..wish },
            Self::AddPath => Wish { add_path: true, ..wish },
            Self::RestartThere | Self::RestartHere => Wish { graceful_restart: true, ..wish },
            Self::Role => Wish { customer: true, ..wish },
            Self::Unnumbered => Wish { unnumbered: true, ..wish },
        }
    }

    /// Our configuration.
    pub fn configuration(self, wish: &Wish) -> String {
        let network = OURS[usize::from(wish.ipv6)];
        let (address, asn) = (wish.near(), wish.asn);
        let place = match self {
            Self::Unnumbered => format!("interface = \"{LINK}\""),
            _ => format!("address = \"{address}\""),
        };
        let mut peer = format!("{place}\nasn = {asn}\n");
        let mut say = |line: String| peer.push_str(&(line + "\n"));
        wish.md5.iter().for_each(|key| say(format!("md5 = \"{key}\"")));
        if wish.gtsm {
            say("ttl-security = true".into());
        }
        let mut more = String::new();
        match self {
            Self::Reflection => {
                say("route-reflector-client = true".into());
                more += &other(2, OUR_ASN, "route-reflector-client = true");
            }
            Self::AddPath => {
                say("add-path = { receive = true, send = \"all\" }".into());
                more += &(other(2, 65_011, "") + &other(3, 65_012, ""));
            }
            Self::Role => say("role = \"provider\"".into()),
            Self::Unnumbered => more += &format!("[[bgp.network]]\nprefix = \"{}\"\n", OURS[1]),
            Self::RestartThere => say("graceful-restart = \"helper\"".into()),
            Self::RestartHere => {
                say("graceful-restart = \"full\"\nnonstop = false".into());
            }
            Self::Confederation => {
                more += &format!("[bgp.confederation]\nid = {CONFEDERATION}\nmembers = [{asn}]\n");
            }
            _ => {}
        }
        // Only who keeps forwarding may say so: with the kernel's routes kept.
        let forwarding = match self {
            Self::RestartHere => "[rib]\nenabled = true\n[fea]\nkeep-routes = true",
            Self::Unnumbered => "[rib]\nenabled = true",
            _ => "[rib]\nenabled = false",
        };
        let cluster = if self == Self::Reflection { "cluster-id = \"10.99.98.97\"\n" } else { "" };
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
            "[router]\nid = \"10.0.0.1\"\nasn = {OUR_ASN}\n{forwarding}\n[bgp]\nconnect-retry = 1\n{cluster}\
             [[bgp.peer]]\nname = \"stock\"\nimport = \"accept-all\"\nexport = \"out\"\n{peer}\
             [[bgp.network]]\nprefix = \"{network}\"\n[[policy]]\nname = \"out\"\n[[policy.term]]\n{then}\n{more}"
        )
    }

    /// Looks at both routers.
    ///
    /// # Errors
    /// It does not work.
    pub fn judge(self, scene: &mut Scene<'_>) -> Result<()> {
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
            Self::Reflection => {
                let _other = speaker(scene, 2, OUR_ASN)?;
                scene.until_there(OTHERS, |text| {
                    mentions(text, &[10, 99, 98, 97]) && mentions(text, &[10, 0, 2, 2])
                })?;
            }
            Self::Confederation => {
                scene.until_theirs(|text| text.contains(&format!("({OUR_ASN})")))?;
                let text = path.to_string();
                ensure!(text.contains(&format!("({})", scene.wish.asn)), "{text}");
            }
            Self::AddPath => {
                let _others = [speaker(scene, 2, 65_011)?, speaker(scene, 3, 65_012)?];
                scene.until_there(OTHERS, |text| mentions(text, &[65_011]) && mentions(text, &[65_012]))?;
                ensure!(path["pathId"].is_u64(), "{path}");
            }
            Self::Role => drop(scene.until_theirs(|text| text.to_lowercase().contains("otc"))?),
            Self::Unnumbered => {
                scene.until_here(THEIRS[1])?;
                OURS.iter().try_for_each(|prefix| scene.until_there(prefix, ours).map(drop))?;
                let [ipv4, ipv6] = THEIRS.map(str::parse::<Prefix>);
                installed(scene, ipv4?, &format!("via inet6 {} dev {LINK}", LINK_LOCAL[1]))?;
                installed(scene, ipv6?, &format!("via {} dev {LINK}", LINK_LOCAL[1]))?;
            }
            Self::RestartThere => {
                scene.stock.kill()?;
                let down = |shown: &Value| shown["bgpState"] != "Established";
                scene.router.until_neighbor("stock", LIMIT, down)?;
                let path = scene.until_ours()?;
                ensure!(path["stale"] == true, "{path}");
            }
            Self::RestartHere => {
                scene.until_theirs(ours)?;
                scene.router.kill("bgp")?;
                let start = Instant::now();
                loop {
                    scene.stock.route(OURS[0])?;
                    let shown = scene.router.neighbor("stock");
                    if shown.is_ok_and(|shown| shown["bgpState"] == "Established") {
                        break;
                    }
                    ensure!(start.elapsed() < LIMIT, "not up again");
                }
                scene.until_theirs(ours)?;
            }
        }
        Ok(())
    }
}

/// Until our kernel has a route as wanted.
fn installed(scene: &Scene<'_>, prefix: Prefix, way: &str) -> Result<()> {
    wait::until("the kernel's route", LIMIT, || {
        let routes = kernel::routes(scene.host, matches!(prefix, Prefix::V6(_)));
        let routes = routes.map_err(|error| error.to_string())?;
        let right = routes.get(&prefix).is_some_and(|line| line.contains(way));
        if right { Ok(()) } else { Err(format!("{routes:?}")) }
    })
}

/// A further peer of ours, in another network.
fn other(network: u8, asn: u32, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"other-{network}\"\naddress = \"{}\"\nasn = {asn}\npassive = true\nimport = \"accept-all\"\n{more}\n",
        v4(network, Side::Second)
    )
}

/// That peer, which announces [`OTHERS`].
fn speaker(scene: &Scene<'_>, network: u8, asn: u32) -> Result<Speaker> {
    let (near, us) = (v4(network, Side::Second), v4(network, Side::First));
    let mut config = SpeakerConfig::connect(near.into(), us.into(), asn);
    let attributes = AttributesBuilder::new(Origin::Igp).build();
    let routes = vec![(OTHERS.parse()?, 0)];
    config.tables = vec![Arc::new(Table { sets: vec![AttributeSet { bytes: attributes }], routes })];
    let speaker = scene.others[usize::from(network) - 2].run(move || Speaker::spawn(config))??;
    speaker.wait_established(LIMIT)?;
    Ok(speaker)
}
