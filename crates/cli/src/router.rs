//! The way to a running router.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use holdfast_api::manager::v1::{Empty, ManagerClient};
use holdfast_xrl::{
    Client, Dialer, ErrorKind, Resolver, Secret, XrlError,
    finder_api::v1::{Instance, ListRequest},
    scoped,
};
use tokio::task::LocalSet;

use crate::Failure;

/// Name of the operator's socket in the runtime directory.
const SOCKET: &str = "holdfast.sock";

/// The process that carries what it had before an upgrade, beside the new `transport`.
pub(crate) const OLD_TRANSPORT: &str = "transport-old";

/// How the place of a router begins that is reached over TCP.
const TCP: &str = "tcp://";
/// Variables of the environment with the key for it.
const KEY: &str = "HOLDFAST_KEY";
const KEY_FILE: &str = "HOLDFAST_KEY_FILE";

/// The manager accepts at once; while it is not there, the keeper holds its socket and nobody answers.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
/// A router answers at once; one that takes this long has a fault.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which of the router's tables.
#[derive(Clone, Debug, Args)]
pub struct Table {
    /// Of this VRF instead of the default table.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) vrf: Option<String>,
}

/// A connection to the Finder of a router, as operator, for one of its tables.
pub(crate) struct Router {
    resolver: Resolver,
    /// `None`: the default table.
    vrf: Option<String>,
}

/// Connects and runs `command` on an event loop of its own.
pub(crate) fn with(
    directory: &Path,
    command: impl AsyncFnOnce(Router) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let router = match directory.to_str().and_then(|place| place.strip_prefix(TCP)) {
            Some(place) => Router::dial(place).await?,
            None => Router::connect(directory)?,
        };
        router.greet().await?;
        command(router).await
    })
}

/// The key for a router over TCP: itself, or the file that it is in.
fn key() -> Result<Secret, Failure> {
    let octets = match (std::env::var(KEY), std::env::var_os(KEY_FILE).map(PathBuf::from)) {
        (Ok(key), _) => key,
        (_, Some(file)) => {
            std::fs::read_to_string(&file).map_err(|error| Failure::Unreadable { file, error })?
        }
        _ => return Err(Failure::NoKey),
    };
    Ok(Secret::new(octets.trim())?)
}

impl Router {
    /// `NAME@HOST:PORT`
    async fn dial(place: &str) -> Result<Self, Failure> {
        let (name, address) = place
            .split_once('@')
            .ok_or_else(|| XrlError::invalid_argument(format!("{TCP}{place} is not {TCP}NAME@HOST:PORT")))?;
        Ok(Self::over(Resolver::dial(Dialer::new(address, name, key()?)).await?))
    }

    fn connect(directory: &Path) -> Result<Self, Failure> {
        let connected = UnixStream::connect(directory.join(SOCKET));
        let socket =
            connected.map_err(|error| Failure::NoRouter { directory: directory.to_owned(), error })?;
        Ok(Self::over(Resolver::connect(socket.into())?))
    }

    fn over(resolver: Resolver) -> Self {
        Self { resolver, vrf: None }
    }

    /// The same router, where others are asked about this table.
    pub(crate) fn of(&self, table: &Table) -> Self {
        Self { resolver: self.resolver.clone(), vrf: table.vrf.clone() }
    }

    /// The same router, where processes are asked that have no table.
    pub(crate) fn whole(&self) -> Self {
        Self { resolver: self.resolver.clone(), vrf: None }
    }

    /// The VRF of the table; `None`: the default one.
    pub(crate) fn vrf(&self) -> Option<&str> {
        self.vrf.as_deref()
    }

    /// Whether anybody is there.
    async fn greet(&self) -> Result<(), Failure> {
        let finder = self.resolver.finder()?;
        match tokio::time::timeout(FIRST_PATIENCE, finder.list(ListRequest {})).await {
            Ok(answer) => Ok(answer.map(|_| ())?),
            Err(_) => Err(Failure::NoAnswer(
                "its manager is starting, or hangs; if this lasts, the log of `holdfast run` says why"
                    .to_owned(),
            )),
        }
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// A client for a class of process, or for what it has of the VRF.
    pub(crate) async fn client<C: Client>(&self, class: &str) -> Result<C, Failure> {
        let class = scoped(class, self.vrf());
        let found = tokio::time::timeout(PATIENCE, self.resolver.client(&class)).await;
        let error = match found.unwrap_or_else(|_| Err(late(PATIENCE))) {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            Err(error) => return Err(error.into()),
        };
        match self.vrf() {
            Some(vrf) if !self.instances().await?.iter().any(|it| split(&it.class).1 == Some(vrf)) => {
                Err(Failure::NothingFound(format!("there is no VRF `{vrf}` (see `holdfast show vrf`)")))
            }
            _ => {
                let is_expected = self.has_process(split(&class).0).await;
                Err(Failure::NotRunning { class, reason: error.message().to_owned(), is_expected })
            }
        }
    }

    /// Whether the manager has such a process, which does not run at the moment, or has not said yet what it serves.
    async fn has_process(&self, name: &str) -> bool {
        let asked = async {
            let manager: ManagerClient = self.resolver.client("manager").await?;
            manager.show_processes(Empty {}).await
        };
        let shown = answer_within(FIRST_PATIENCE, asked).await;
        shown.is_ok_and(|shown| shown.processes.iter().any(|process| process.name == name))
    }

    /// Everybody that the Finder knows.
    pub(crate) async fn instances(&self) -> Result<Vec<Instance>, Failure> {
        Ok(answer(self.resolver.finder()?.list(ListRequest {})).await?.instances)
    }
}

/// A class without its VRF, and that.
pub(crate) fn split(class: &str) -> (&str, Option<&str>) {
    class.split_once('@').map_or((class, None), |(process, vrf)| (process, Some(vrf)))
}

fn late(patience: Duration) -> XrlError {
    XrlError::timeout(format!("no answer within {} s", patience.as_secs()))
}

/// The answer of a call, or of the next step of a stream, if it comes in time.
pub(crate) async fn answer<T>(call: impl Future<Output = Result<T, XrlError>>) -> Result<T, Failure> {
    answer_within(PATIENCE, call).await
}

/// The same for what may take longer.
pub(crate) async fn answer_within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, XrlError>>,
) -> Result<T, Failure> {
    Ok(tokio::time::timeout(patience, call).await.unwrap_or_else(|_| Err(late(patience)))?)
}
