//! A store over TLS, where we log in as a user: a server that cannot prove who it is, or takes another password, is said to be
//! away, and one that can is gone on with.

use std::{fs, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use holdfast_lab::{
    keys::Signer,
    netns::Namespace,
    redis::Redis,
    router::{Files, Router},
    speaker::{Speaker, SpeakerConfig},
    table::Table,
    topology::{Side, join, v4},
    wait,
};

const LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 6390;

fn configuration(name: &str) -> String {
    let (peer, store) = (v4(1, Side::Second), SocketAddr::new(v4(2, Side::Second).into(), PORT));
    format!(
        "[router]\nid = \"10.0.0.1\"\nasn = 65000\n\
         [tls]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n\
         [nonstop.store]\nkind = \"redis\"\naddresses = [\"{store}\"]\nuser = \"holdfast\"\n\
         password-file = \"password\"\ntransport = \"tls\"\ntls-name = \"{name}\"\n\
         tls-authorities = [\"authority.pem\"]\n\
         [bgp]\n[[bgp.peer]]\nname = \"peer\"\naddress = \"{peer}\"\nasn = 65001\npassive = true\n\
         import = \"accept-all\"\nexport = \"reject-all\"\n"
    )
}

/// The keys of a server, in files.
fn server(signer: &Signer, host: &Namespace) -> Result<Redis> {
    let directory = std::env::temp_dir().join(format!("{}-keys", host.name()));
    fs::create_dir_all(&directory)?;
    let path = |name: &str| directory.join(name).display().to_string();
    for (name, text) in signer.files("store")? {
        fs::write(path(&name), text)?;
    }
    fs::write(path("users"), "user default off\nuser holdfast on >secret ~holdfast:* +@all\n")?;
    let redis = Redis::start(
        Some(host),
        &[
            "--tls-port",
            &PORT.to_string(),
            "--tls-cert-file",
            &path("certificate.pem"),
            "--tls-key-file",
            &path("key.pem"),
            "--tls-ca-cert-file",
            &path("authority.pem"),
            "--aclfile",
            &path("users"),
        ],
    );
    fs::remove_dir_all(&directory)?;
    redis
}

fn until(router: &Router, what: &str, is_it: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
    wait::until(what, LIMIT, || {
        let shown = router.show(&["nsr"]).map_err(|error| format!("{error:#}"))?;
        if is_it(&shown) { Ok(()) } else { Err(format!("{shown}\n{}", router.log_tail())) }
    })
}

#[test]
fn a_store_over_tls_proves_who_it_is_and_is_logged_in_to() -> Result<()> {
    let [host, peer, store] = ["router", "peer", "store"].map(Namespace::new);
    let (host, peer, store) = (host?, peer?, store?);
    join(1, &host, &peer)?;
    join(2, &host, &store)?;
    let signer = Signer::new("CN=stores")?;
    let _redis = server(&signer, &store)?;
    let mut files: Files = signer.files("router")?;
    files.insert("password".to_owned(), "wrong\n".to_owned());
    let router = Router::start_with_files(&host, &configuration("other.example"), &files)?;
    let mut config = SpeakerConfig::connect(v4(1, Side::Second).into(), v4(1, Side::First).into(), 65001);
    config.tables = vec![Arc::new(Table::of_24s(7, 100))];
    let speaker = peer.run(|| Speaker::spawn(config))??;
    speaker.wait_established(LIMIT)?;
    until(&router, "a server for another name", |shown| shown["store"]["trouble"] != "")?;
    ensure!(router.show(&["nsr"])?["store"]["server"] == "", "nobody is trusted");
    router.reload_with_files(&configuration("store.example"), &files)?;
    until(&router, "a wrong password", |shown| {
        shown["store"]["trouble"].as_str().is_some_and(|trouble| trouble.contains("password"))
    })?;
    files.insert("password".to_owned(), "secret\n".to_owned());
    router.reload_with_files(&configuration("store.example"), &files)?;
    let address = v4(1, Side::Second).to_string();
    until(&router, "protection", |shown| shown["peers"][&address]["tier"] == "store")?;
    ensure!(speaker.status().ended.is_none(), "the session stays");
    Ok(())
}
