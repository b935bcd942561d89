//! The way to a running router.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use holdfast_xrl::{Client, Dialer, ErrorKind, Resolver, Secret, XrlError, finder_api::v1::ListRequest};
use tokio::task::LocalSet;

use crate::Failure;

/// Name of the operator's socket in the runtime directory.
const SOCKET: &str = "holdfast.sock";

/// How the place of a router begins that is reached over TCP.
const TCP: &str = "tcp://";
/// Variables of the environment with the key for it.
const KEY: &str = "HOLDFAST_KEY";
const KEY_FILE: &str = "HOLDFAST_KEY_FILE";

/// The manager accepts at once; while it is not there, the keeper holds its socket and nobody answers.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
/// A router answers at once; one that takes this long has a fault.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the Finder of a router, as operator.
pub(crate) struct Router(Resolver);

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
        Ok(Self(Resolver::dial(Dialer::new(address, name, key()?)).await?))
    }

    fn connect(directory: &Path) -> Result<Self, Failure> {
        let connected = UnixStream::connect(directory.join(SOCKET));
        let socket =
            connected.map_err(|error| Failure::NoRouter { directory: directory.to_owned(), error })?;
        Ok(Self(Resolver::connect(socket.into())?))
    }

    /// Whether anybody is there.
    async fn greet(&self) -> Result<(), Failure> {
        let finder = self.0.finder()?;
        match tokio::time::timeout(FIRST_PATIENCE, finder.list(ListRequest {})).await {
            Ok(answer) => Ok(answer.map(|_| ())?),
            Err(_) => Err(Failure::NoAnswer(
                "its manager is starting, or hangs; if this lasts, the log of `holdfast run` says why"
                    .to_owned(),
            )),
        }
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.0
    }

    /// A client for a class of process.
    pub(crate) async fn client<C: Client>(&self, class: &'static str) -> Result<C, Failure> {
        let found = tokio::time::timeout(PATIENCE, self.0.client(class)).await;
        found.unwrap_or_else(|_| Err(late(PATIENCE))).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::NotRunning { class, reason: error.message().to_owned() },
            _ => error.into(),
        })
    }
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
