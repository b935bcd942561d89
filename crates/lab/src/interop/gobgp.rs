//! GoBGP.

use std::{
    net::{SocketAddrV6, UdpSocket},
    time::Duration,
};

use anyhow::{Result, ensure};
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index};

use super::{CONFEDERATION, Feature, LINK, LINK_LOCAL, Running, Stock, THEIR_LARGE, THEIRS, Wish};
use crate::{
    netns::Namespace,
    peers::{self, Programs},
    wait,
};

/// GoBGP.
#[derive(Debug)]
pub(super) struct GoBgp(pub(super) Programs);

impl Stock for GoBgp {
    fn name(&self) -> &'static str {
        "GoBGP"
    }

    fn version(&self) -> Result<String> {
        self.0.version("gobgpd")
    }

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        match feature {
            Feature::RouteRefresh => Some("keeps what it was sent, and asks for no refresh"),
            Feature::Role => Some("this version does not have roles"),
            Feature::ExtendedMessages => Some("this version does not have extended messages"),
            // Seen with 3.36: sixteen octets of zero, which are treated as withdrawn here.
            Feature::Unnumbered if self.0 != Programs::Machine => {
                Some("this version announces its own routes with the next hop `::` over link-local addresses")
            }
            _ => None,
        }
    }

    fn start(&self, host: &Namespace, wish: &Wish) -> Result<Box<dyn Running>> {
        let (family, asn, our_asn) = (wish.family(), wish.asn, wish.our_asn);
        let (far, near, place, other) = match wish.unnumbered {
            true => {
                let place = format!("neighbor-interface = \"{LINK}\"");
                let other = "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv6-unicast\"\n";
                be_heard(host)?;
                (LINK_LOCAL[0].to_owned(), LINK_LOCAL[1].to_owned(), place, other)
            }
            false => (wish.far(), wish.near(), format!("neighbor-address = \"{}\"", wish.far()), ""),
        };
        let transport = match wish.unnumbered {
            true => String::new(),
            false => format!("[neighbors.transport.config]\nlocal-address = \"{near}\"\n"),
        };
        let password = wish.md5.map(|key| format!("auth-password = \"{key}\"\n")).unwrap_or_default();
        let gtsm =
            if wish.gtsm { "[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n" } else { "" };
        let confederation = if wish.confederation {
            format!(
                "[global.confederation.config]\nenabled = true\nidentifier = {CONFEDERATION}\nmember-as-list = [{our_asn}]\n"
            )
        } else {
            String::new()
        };
        let (restart, family_restart) = if wish.graceful_restart {
            (
                "[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 60\n",
                "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n",
            )
        } else {
            ("", "")
        };
        let paths = if wish.add_path {
            "[neighbors.afi-safis.add-paths.config]\nreceive = true\nsend-max = 8\n"
        } else {
            ""
        };
        let configuration = format!(
            "[global.config]
as = {asn}
router-id = \"10.0.1.2\"
{confederation}[[neighbors]]
[neighbors.config]
{place}
peer-as = {our_asn}
{password}[neighbors.timers.config]
connect-retry = 5
{transport}{gtsm}{restart}[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = \"{family}-unicast\"
{family_restart}{paths}{other}"
        );
        let gobgpd = peers::GoBgp::start_of(self.0.clone(), host, &configuration)?;
        let [a, b, c] = THEIR_LARGE.map(|number| number.to_string());
        let large = format!("{a}:{b}:{c}");
        let mut add = vec!["global", "rib", "-a", family, "add", wish.prefix()];
        if wish.large {
            add.extend(["large-community", &large]);
        }
        gobgpd.gobgp(&add)?;
        if wish.unnumbered {
            gobgpd.gobgp(&["global", "rib", "-a", "ipv6", "add", THEIRS[1]])?;
        }
        Ok(Box::new(Started { gobgpd, far }))
    }
}

/// GoBGP asks its kernel for the neighbour on an interface, once, at its start: the kernel knows whom it has sent something.
fn be_heard(host: &Namespace) -> Result<()> {
    host.run(|| {
        let index = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None)
            .and_then(|socket| name_to_index(&socket, LINK))?;
        let socket = UdpSocket::bind("[::]:0")?;
        socket.send_to(&[0], SocketAddrV6::new(LINK_LOCAL[0].parse()?, 9, 0, index))?;
        anyhow::Ok(())
    })??;
    wait::until("the neighbour in the kernel", Duration::from_secs(10), || {
        let text = host.ip(&["-6", "neighbor", "show", "dev", LINK]).map_err(|error| error.to_string())?;
        if text.contains("lladdr") { Ok(()) } else { Err(text) }
    })
}

struct Started {
    gobgpd: peers::GoBgp,
    far: String,
}

impl Running for Started {
    fn route(&self, prefix: &str) -> Result<String> {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        let text = self.gobgpd.gobgp(&["global", "rib", "-a", family, prefix])?;
        ensure!(text.contains(prefix), "{text}");
        Ok(text)
    }

    fn refresh(&self) -> Result<()> {
        self.gobgpd.gobgp(&["neighbor", &self.far, "softresetin"]).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        self.gobgpd.kill()
    }
}
