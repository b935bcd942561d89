//! `transport.v1` over the door.

use std::{os::fd::OwnedFd, rc::Rc};

use holdfast_api::{
    socket::v1 as sockets,
    transport::v1::{
        CarriedConnection, CloseRequest, Configuration, Connection, DialRequest, Empty, ListenRequest,
        Listener, MeterReply, MeterRequest, Neighbor, RefitRequest, RetireReply, RetireRequest, SilentReply,
        TransportServer,
    },
};
use holdfast_xrl::{CallContext, ReplySink, XrlError};

use crate::{
    carried::Carried,
    connect::{connect, dial},
    door::ConnectionBroker,
    peers::listening,
    side, succession,
    vrfs::Vrfs,
};

/// Serves `transport.v1`.
pub(crate) struct DoorService {
    door: Rc<ConnectionBroker>,
    /// Those of the process, if this is its own service and not one of theirs.
    vrfs: Option<Rc<Vrfs>>,
}

impl DoorService {
    /// Over this door, that of a VRF.
    pub(crate) fn of_vrf(door: Rc<ConnectionBroker>) -> Self {
        Self { door, vrfs: None }
    }

    /// Over the door of the default table; it is told of these as well.
    pub(crate) fn of_process(door: Rc<ConnectionBroker>, vrfs: Rc<Vrfs>) -> Self {
        Self { door, vrfs: Some(vrfs) }
    }

    /// The door, which lets somebody in.
    fn open(&self) -> Result<&Rc<ConnectionBroker>, XrlError> {
        match self.door.is_retired() {
            true => Err(XrlError::failed_precondition("another process has its place: it only carries on")),
            false => Ok(&self.door),
        }
    }

    fn carried(&self, number: u64) -> Result<Rc<Carried>, XrlError> {
        let carried = self.door.carried.get(number);
        carried.ok_or_else(|| XrlError::not_found(format!("no connection {number} is carried here")))
    }
}

impl TransportServer for DoorService {
    async fn configure(&self, _cx: &CallContext, request: Configuration) -> Result<Empty, XrlError> {
        let wanted = request.vrfs.clone();
        if self.vrfs.is_none() && !wanted.is_empty() {
            return Err(XrlError::invalid_argument("a VRF has no VRFs"));
        }
        self.open()?.configure(request)?;
        if let Some(vrfs) = &self.vrfs {
            vrfs.follow(&wanted);
        }
        Ok(Empty {})
    }

    async fn listen(
        &self,
        cx: &CallContext,
        request: ListenRequest,
    ) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        let address = listening(&request)?;
        self.open()?.admit_plain(&cx.peer().role, address, request.plain).await?;
        let sockets = self.door.wait_for_sockets().await?;
        let request = sockets::ListenRequest {
            address: request.address,
            afi: request.afi,
            port: request.port,
            plain: true,
            role: cx.peer().role.clone(),
        };
        let (_, fds) = sockets.listen(request).await?;
        Ok((Empty {}, fds))
    }

    async fn dial(&self, _cx: &CallContext, request: DialRequest) -> Result<(Empty, Vec<OwnedFd>), XrlError> {
        self.open()?.is_configured().await;
        // Collectors are known to whoever opens sockets, and are no peers: those have what they may use, and no other.
        if self.door.peers().named(&request.peer).is_some() {
            let peer = &request.peer;
            return Err(XrlError::denied(format!("`{peer}` is a peer: connections to it come from Connect")));
        }
        Ok((Empty {}, vec![dial(&self.door, &request.peer).await?]))
    }

    async fn neighbors(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<Neighbor>,
    ) -> Result<(), XrlError> {
        let mut heard = self.open()?.sockets().await?.neighbors(sockets::Empty {});
        while let Some(sockets::Neighbor { interface, address, link }) = heard.next().await? {
            replies.send(Neighbor { interface, address, link }).await?;
        }
        Ok(())
    }

    async fn keep(&self, _cx: &CallContext, _request: Empty, fds: Vec<OwnedFd>) -> Result<Empty, XrlError> {
        self.door.keep(fds)?;
        Ok(Empty {})
    }

    async fn accept(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<Connection>,
    ) -> Result<(), XrlError> {
        let taker = self.open()?.begin_taking();
        while let Some((connection, descriptor)) = self.door.take(taker).await {
            replies.send_with_fds(connection, vec![descriptor]).await?;
        }
        Err(XrlError::cancelled("another one takes connections now"))
    }

    async fn connect(
        &self,
        cx: &CallContext,
        request: DialRequest,
    ) -> Result<(Connection, Vec<OwnedFd>), XrlError> {
        let (connection, descriptor) = connect(self.open()?, &request.peer, &cx.peer().role).await?;
        Ok((connection, vec![descriptor]))
    }

    async fn meter(&self, _cx: &CallContext, request: MeterRequest) -> Result<MeterReply, XrlError> {
        self.carried(request.number)?.meter().map_err(|error| XrlError::internal(error.to_string()))
    }

    async fn close(&self, _cx: &CallContext, request: CloseRequest) -> Result<Empty, XrlError> {
        self.carried(request.number)?.parting.with(request.code);
        Ok(Empty {})
    }

    async fn refit(
        &self,
        _cx: &CallContext,
        request: RefitRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<Empty, XrlError> {
        let socket = match request.number {
            0 => fds.into_iter().next().ok_or_else(|| XrlError::invalid_argument("no descriptor came")),
            number => self.carried(number)?.control.socket().ok_or_else(|| {
                XrlError::failed_precondition("the connection has no socket of TCP for itself")
            }),
        };
        let sockets = self.door.wait_for_sockets().await?;
        sockets.refit(sockets::RefitRequest { peer: request.peer }, vec![socket?]).await?;
        Ok(Empty {})
    }

    async fn retire(&self, _cx: &CallContext, request: RetireRequest) -> Result<RetireReply, XrlError> {
        if self.vrfs.is_none() {
            return Err(XrlError::invalid_argument("it retires with the process, which is asked for all"));
        }
        let shared = &self.open()?.shared;
        let connections = *shared.carried.borrow();
        if connections > 0 && !request.dry_run {
            side::retire(&shared.keeper, shared.side).await?;
            shared.retires.notify_one();
        }
        Ok(RetireReply { connections: u32::try_from(connections).unwrap_or(u32::MAX) })
    }

    async fn silent(&self, _cx: &CallContext, request: Connection) -> Result<SilentReply, XrlError> {
        match self.door.is_retired() {
            true => Ok(SilentReply { numbers: succession::silent(&self.door, &request).await }),
            false => Err(XrlError::failed_precondition("it has not retired")),
        }
    }

    async fn show_listeners(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<Listener>,
    ) -> Result<(), XrlError> {
        for entry in self.door.entries() {
            replies.send(entry.show()).await?;
        }
        Ok(())
    }

    async fn show_connections(
        &self,
        _cx: &CallContext,
        _request: Empty,
        mut replies: ReplySink<CarriedConnection>,
    ) -> Result<(), XrlError> {
        for carried in self.door.carried.all() {
            replies.send(carried.show()).await?;
        }
        Ok(())
    }

    async fn update_keys(&self, _cx: &CallContext, request: DialRequest) -> Result<Empty, XrlError> {
        let all = self.door.carried.all().into_iter();
        let mut its = all.filter(|carried| carried.is_with(&request.peer)).peekable();
        if its.peek().is_none() {
            return Err(XrlError::not_found(format!("no connection to `{}` is carried here", request.peer)));
        }
        // All, also when the first could not.
        match its.filter(|carried| carried.control.update_keys()).count() {
            0 => Err(XrlError::failed_precondition(
                "its transport changes its keys by itself: only one over `quic` can be told to",
            )),
            _ => Ok(Empty {}),
        }
    }
}
