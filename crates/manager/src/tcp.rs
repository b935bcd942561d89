//! XRL over TCP: listeners come from whoever opens sockets, clients from the configuration.

use std::{
    net::{SocketAddr, TcpListener as StdListener},
    path::Path,
    rc::Rc,
    time::Duration,
};

use holdfast_api::transport::v1::TransportClient;
use holdfast_config::{Config, schema::XrlClient};
use holdfast_process::spawn_task;
use holdfast_sockets::settings;
use holdfast_xrl::{Secret, TcpClient, XrlError};
use tokio::{net::TcpListener, task::AbortHandle};
use tracing::warn;

use crate::{birth::MANAGER, manager::Manager};

/// Pause before a listener is asked for again that could not be had.
const RETRY: Duration = Duration::from_secs(2);

/// A listener that is configured.
#[derive(Debug)]
pub(crate) struct Open {
    address: SocketAddr,
    listening: AbortHandle,
}

/// Puts the keys into a configuration that are in files of their own, which are named from where its file is.
pub(crate) fn read_keys(config: &mut Config, file: &Path) -> Result<(), String> {
    let directory = file.parent().unwrap_or(Path::new(""));
    config.xrl.clients.iter_mut().try_for_each(|client| read_key(client, directory))
}

fn read_key(client: &mut XrlClient, directory: &Path) -> Result<(), String> {
    let Some(file) = client.key_file.as_ref().map(|file| directory.join(file)) else { return Ok(()) };
    let text = holdfast_sys::file::text(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let key = text.trim();
    Secret::new(key).map_err(|error| format!("{}: {}", file.display(), error.message()))?;
    client.key = holdfast_config::schema::Secret::new(key.to_owned());
    Ok(())
}

/// Lets in who is configured, listens where it is configured, and nowhere else.
pub(crate) fn follow(manager: &Rc<Manager>) -> Result<(), XrlError> {
    let config = manager.config();
    let clients = config.xrl.clients.iter().map(client).collect::<Result<_, _>>()?;
    manager.finder.set_tcp_clients(clients);
    let mut open = manager.tcp.borrow_mut();
    open.extract_if(.., |open| !config.xrl.listen.contains(&open.address))
        .for_each(|gone| gone.listening.abort());
    for &address in &config.xrl.listen {
        if open.iter().all(|open| open.address != address) {
            let listening = spawn_task(listen(Rc::clone(manager), address)).abort_handle();
            open.push(Open { address, listening });
        }
    }
    Ok(())
}

fn client(client: &XrlClient) -> Result<TcpClient, XrlError> {
    let secret = Secret::new(client.key.expose())?;
    Ok(TcpClient { name: client.name.clone(), role: client.role.name().to_owned(), secret })
}

/// Serves an address, as soon as there is a listener.
async fn listen(manager: Rc<Manager>, address: SocketAddr) {
    let mut said = String::new();
    loop {
        match open(&manager, address).await {
            Ok(listener) => return manager.finder.listen(listener).await,
            Err(error) => {
                let text = format!("xrl over tcp cannot listen on {address}: {}", error.message());
                if text != said {
                    warn!(event = "xrl-listen-failed", %address, "{text}");
                    said = text;
                }
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn open(manager: &Manager, address: SocketAddr) -> Result<TcpListener, XrlError> {
    let transport: TransportClient = manager.resolver.wait_for("transport").await?;
    let listener = settings::of_transport(settings::plain_listener(address, MANAGER));
    let (_, descriptors) = transport.listen(listener).await?;
    let listener = descriptors.into_iter().next().ok_or_else(|| XrlError::internal("no descriptor came"))?;
    TcpListener::from_std(StdListener::from(listener)).map_err(|error| XrlError::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_beside_the_configuration_and_must_be_long_enough() {
        let directory = std::env::temp_dir().join(format!("holdfast-keys-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        let (file, key) = (directory.join("router.toml"), directory.join("alice.key"));
        let text = "[router]\nid = \"10.0.0.1\"\nasn = 65001\n\
                    [[xrl.client]]\nname = \"alice\"\nkey-file = \"alice.key\"\n";
        let read = || {
            let mut config =
                holdfast_config::parse(text, "test", holdfast_config::Schema::new([])).expect("no errors");
            read_keys(&mut config, &file).map(|()| config.xrl.clients[0].key.expose().to_owned())
        };
        let missing = read().expect_err("no file");
        assert!(missing.contains("alice.key: No such file"), "{missing}");
        std::fs::write(&key, "short\n").expect("written");
        let short = read().expect_err("too short");
        assert!(short.ends_with("alice.key: a key has at least 16 octets"), "{short}");
        std::fs::write(&key, "  0123456789abcdef\n").expect("written");
        assert_eq!(read().as_deref(), Ok("0123456789abcdef"));
        std::fs::remove_file(&key).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(&key).status();
        assert!(made.is_ok_and(|made| made.success()));
        let pipe = read().expect_err("nobody writes into it");
        assert!(pipe.ends_with("alice.key: it is no regular file"), "{pipe}");
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
