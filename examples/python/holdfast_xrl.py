"""Talks to a Holdfast router: frames over Unix sockets, with messages made from the `.proto` files of its interfaces.

Needs Python 3.9, protobuf (Debian: python3-protobuf) and a `protoc` (Debian: protobuf-compiler; or pip: grpcio-tools).
Nothing of Holdfast is needed but the folder `api/`.

    router = Router.connect("/run/holdfast/holdfast.sock")
    bgp = router.resolve("bgp", "bgp.v1.Bgp")
    print(bgp.call("ShowSummary").router_id)
    for paths in bgp.stream("ShowRoutes"):
        ...

Everything here runs on one thread. A channel reads from its socket while somebody waits for something on it; `wait` waits
for any of several channels.
"""

import collections
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# A frame: length of the body, call, method, kind, flags, descriptors that travel along; then the body.
HEADER = struct.Struct(">IIIBBH")
HELLO, CALL, REPLY, ITEM, ERROR, CANCEL, CREDIT = range(1, 8)
# Octets of a stream that may be under way; a reader gives credit for what it has read.
STREAM_WINDOW = 256 << 10
MAX_BODY, MAX_FDS = 16 << 20, 32
KINDS = [
    "error",
    "not found",
    "denied",
    "invalid argument",
    "failed precondition",
    "unavailable",
    "disconnected",
    "cancelled",
    "timeout",
    "internal error",
]


class XrlError(Exception):
    """A call that failed: `kind` is one of KINDS."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Disconnected(XrlError):
    """The channel is closed: whoever was there is gone."""

    def __init__(self, text="the channel is closed"):
        super().__init__("disconnected", text)


class Api:
    """The interfaces, from their `.proto` files."""

    def __init__(self, folder=None):
        self.pool = descriptor_pool.DescriptorPool()
        for file in load(folder or find_api()).file:
            self.pool.Add(file) if hasattr(self.pool, "Add") else self.pool.AddSerializedFile(file.SerializeToString())

    def type(self, name):
        """The class of a message: "rib.v1.RegisterRequest"."""
        return self._class(self.pool.FindMessageTypeByName(name))

    def method(self, service, name):
        """A method of a service: its number, the classes of request and reply, and whether it streams."""
        found = self.pool.FindServiceByName(service)
        method = found.FindMethodByName(name)
        number = self._option(found, "ServiceOptions", "service").id << 16
        number |= self._option(method, "MethodOptions", "method").id
        plain = descriptor_pb2.MethodDescriptorProto()
        method.CopyToProto(plain)
        return number, self._class(method.input_type), self._class(method.output_type), plain.server_streaming

    def takes_fds(self, service, name):
        """Whether descriptors come along with a call of this method."""
        method = self.pool.FindServiceByName(service).FindMethodByName(name)
        return self._option(method, "MethodOptions", "method").request_fds

    def describe(self, service, names):
        """What the Finder is told of a service with these methods."""
        methods = []
        for name in names:
            number, _, _, streaming = self.method(service, name)
            option = self._option(self.pool.FindServiceByName(service).FindMethodByName(name), "MethodOptions", "method")
            roles = [role.strip() for role in option.roles.split(",")]
            families = [family.strip() for family in (option.families or "local,unix").split(",")]
            method = {"id": number, "name": name, "roles": roles, "since": max(option.since, 1), "streaming": streaming}
            methods.append(method | {"families": families})
        return {"name": service, "methods": methods}

    def _option(self, described, kind, name):
        options = self.type(f"google.protobuf.{kind}")()
        options.ParseFromString(described.GetOptions().SerializeToString())
        return options.Extensions[self.pool.FindExtensionByName(f"holdfast.{name}")]

    def _class(self, descriptor):
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(descriptor)
        return message_factory.MessageFactory(self.pool).GetPrototype(descriptor)


def find_api():
    """Where the interfaces are: HOLDFAST_API, or the folder beside `examples/`."""
    here = os.path.dirname(os.path.abspath(__file__))
    return os.environ.get("HOLDFAST_API") or os.path.join(here, "..", "..", "api")


def load(path):
    """The interfaces in a folder; or in a file that `holdfast_xrl.py FILE` has compiled from one, for who may start no
    compiler."""
    if not os.path.isfile(path):
        return compile_protos(path)
    with open(path, "rb") as file:
        return descriptor_pb2.FileDescriptorSet.FromString(file.read())


def compile_protos(folder):
    """All `.proto` files below a folder, as one set of descriptors."""
    names = []
    for directory, _, files in os.walk(folder):
        names += [os.path.join(directory, name) for name in files if name.endswith(".proto")]
    protoc = [shutil.which("protoc")] if shutil.which("protoc") else [sys.executable, "-m", "grpc_tools.protoc"]
    with tempfile.TemporaryDirectory() as scratch:
        known, out = os.path.join(scratch, "google.pb"), os.path.join(scratch, "api.pb")
        # google/protobuf/descriptor.proto: protoc has it as a file, or has not; Python knows it in any case.
        google = descriptor_pb2.FileDescriptorSet()
        descriptor_pb2.DESCRIPTOR.CopyToProto(google.file.add())
        with open(known, "wb") as file:
            file.write(google.SerializeToString())
        options = ["--include_imports", f"--descriptor_set_in={known}", f"--descriptor_set_out={out}", "-I", folder]
        subprocess.run([*protoc, *options, *sorted(names)], check=True)
        with open(out, "rb") as file:
            return descriptor_pb2.FileDescriptorSet.FromString(file.read())


class Channel:
    """One connection: calls both ways, many at a time."""

    def __init__(self, sock, api, service=None):
        self.sock, self.api, self.service = sock, api, service
        # What the peer may call here: method number to a function from the request's octets and descriptors to the
        # reply's octets, or to a list of those of a stream.
        self.handlers = {}
        # Of a channel on which keys are presented: what each key opens, and those that were. None: all is open.
        self.grants, self.keys = None, set()
        self.buffer, self.fds = bytearray(), collections.deque()
        self.calls, self.last_call, self.ended = {}, 0, None

    def fileno(self):
        return self.sock.fileno()

    def close(self):
        self._end(Disconnected("closed by ourselves"))

    def hello(self, key):
        """Presents a key, which opens methods from now on."""
        self._send(HELLO, 0, 0, key)

    def call(self, name, /, **fields):
        """Calls a method and waits for its reply."""
        return self.start(name, **fields).result()

    def stream(self, name, /, **fields):
        """Calls a method that replies with a stream."""
        return self.start(name, **fields)

    def start(self, name, /, **fields):
        """Begins a call: `result()` waits for its reply, iterating reads its stream. `name` is a method of the channel's
        service, or "package.Service/Method"."""
        service, _, method = name.rpartition("/")
        number, request, reply, _ = self.api.method(service or self.service, method)
        self.last_call = self.last_call % 0xFFFF_FFFF + 1
        call = Call(self, self.last_call, reply)
        if self.ended:
            raise self.ended
        self.calls[call.id] = call
        self._send(CALL, call.id, number, request(**fields).SerializeToString())
        return call

    def pump(self, timeout=None):
        """Takes in what has arrived, waiting at most so long for it; false if nothing came. Raises once the channel is
        closed."""
        if self.ended:
            raise self.ended
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        try:
            data, fds, *_ = socket.recv_fds(self.sock, 1 << 18, MAX_FDS)
        except OSError as error:
            data, fds = b"", []
            self._end(Disconnected(str(error)))
        self.fds.extend(fds)
        self.buffer += data
        if not data:
            self._end(Disconnected())
        while len(self.buffer) >= HEADER.size:
            length, call, method, kind, _, fds = HEADER.unpack_from(self.buffer)
            if length > MAX_BODY or fds > MAX_FDS:
                self._end(Disconnected("what has come is no frame"))
                break
            if len(self.buffer) < HEADER.size + length:
                break
            body = bytes(self.buffer[HEADER.size : HEADER.size + length])
            del self.buffer[: HEADER.size + length]
            self._frame(kind, call, method, body, [self.fds.popleft() for _ in range(fds)])
        return True

    def _frame(self, kind, id, method, body, fds):
        call = self.calls.get(id)
        if kind == CALL:
            return self._serve(id, method, body, fds)
        if kind == HELLO and self.grants is not None:
            return self.keys.add(body)
        if kind == ERROR and id == 0:
            return self._end(Disconnected(body[1:].decode(errors="replace")))
        if kind == ITEM and call:
            call.items.append((body, fds))
        elif kind in (REPLY, ERROR) and call:
            error = XrlError(KINDS[body[0]] if body and body[0] < len(KINDS) else KINDS[9], body[1:].decode()) if kind == ERROR else None
            call.end = (body, fds, error)
            del self.calls[id]
        else:
            # The answer to a call that was given up.
            for fd in fds:
                os.close(fd)

    def _serve(self, id, method, body, fds):
        handler = self.handlers.get(method)
        try:
            if handler is None:
                raise XrlError("not found", "there is nothing to call here")
            if self.grants is not None and not any(method in self.grants.get(key, ()) for key in self.keys):
                raise XrlError("denied", "no key opens this")
            reply = handler(body, fds)
            items = reply if isinstance(reply, list) else []
            if sum(HEADER.size + len(item) for item in items) > STREAM_WINDOW:
                raise XrlError("internal error", "the answer is longer than this client can say")
            for item in items:
                self._send(ITEM, id, 0, item)
            self._send(REPLY, id, 0, b"" if isinstance(reply, list) else reply)
        except XrlError as error:
            self._send(ERROR, id, 0, bytes([KINDS.index(error.kind)]) + error.text.encode())
        finally:
            for fd in fds:
                os.close(fd)

    def _send(self, kind, call, method, body):
        try:
            self.sock.sendall(HEADER.pack(len(body), call, method, kind, 0, 0) + body)
        except OSError as error:
            self._end(Disconnected(str(error)))
            raise self.ended from None

    def _end(self, error):
        if not self.ended:
            self.ended = error
            self.sock.close()
            for call in self.calls.values():
                call.end = (b"", [], error)
            self.calls.clear()
            while self.fds:
                os.close(self.fds.popleft())


class Call:
    """A call in progress."""

    def __init__(self, channel, id, reply):
        self.channel, self.id, self.reply = channel, id, reply
        self.items, self.end, self.read = collections.deque(), None, 0

    def result(self):
        """The reply; `fds` has the descriptors that came along."""
        while not self.end:
            self.channel.pump()
        body, self.fds, error = self.end
        if error:
            raise error
        return self.reply.FromString(body)

    def poll(self):
        """The next message of the stream if it is here, else None."""
        if self.items:
            body, self.fds = self.items.popleft()
            self.read += HEADER.size + len(body)
            if self.read >= STREAM_WINDOW // 2 and not self.end:
                self.channel._send(CREDIT, self.id, 0, struct.pack(">I", self.read))
                self.read = 0
            return self.reply.FromString(body)
        if self.end and self.end[2]:
            raise self.end[2]
        return None

    def __iter__(self):
        while True:
            message = self.poll()
            if message is not None:
                yield message
            elif self.end:
                return
            else:
                self.channel.pump()

    def cancel(self):
        """Ends a stream before its end."""
        if self.channel.calls.pop(self.id, None) and not self.channel.ended:
            self.channel._send(CANCEL, self.id, 0, b"")


class Router:
    """The way to a router: its Finder, and through it all components."""

    def __init__(self, sock, api=None):
        self.api = api or Api()
        self.finder = Channel(sock, self.api, "finder.v1.Finder")
        # Who has been introduced to us, and by which keys.
        self.callers, self.grants, self.handlers = [], {}, {}

    @classmethod
    def connect(cls, path, api=None):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(path)
        return cls(sock, api)

    def register(self, cls, instance, services=None, sole=False):
        """Registers as a component of a class, which the socket decides. `services` are those that others may call: the
        name of each with a function for each of its methods, from a request to a reply, or to a list for a stream. It is
        given the descriptors as well where some come along; they are closed when it returns. A sole component is refused
        while another of its class lives."""
        component = {"Introspect": lambda body, fds: b"", "Accept": self._accept, "Revoke": self._revoke}
        for name, handler in component.items():
            self.finder.handlers[self.api.method("component.v1.Component", name)[0]] = handler
        for service, methods in (services or {}).items():
            for name, function in methods.items():
                number, request, _, _ = self.api.method(service, name)
                self.handlers[number] = self._handler(request, function, self.api.takes_fds(service, name))
        described = [self.api.describe(service, methods) for service, methods in (services or {}).items()]
        request = {"class": cls, "instance": instance, "services": described, "sole": sole}
        self.finder.call("Register", **request)

    @staticmethod
    def _handler(request, function, takes_fds):
        def handle(body, fds):
            request_ = request.FromString(body)
            reply = function(request_, fds) if takes_fds else function(request_)
            return [item.SerializeToString() for item in reply] if isinstance(reply, list) else reply.SerializeToString()

        return handle

    def _accept(self, body, fds):
        """Somebody is introduced: a descriptor, and what the key opens that is presented on it."""
        grant = self.api.type("component.v1.AcceptRequest").FromString(body).grant
        channel = Channel(socket.socket(fileno=os.dup(fds[0])), self.api)
        channel.handlers, channel.grants = self.handlers, self.grants
        self.grants[grant.key] = set(grant.methods)
        self.callers = [caller for caller in self.callers if not caller.ended] + [channel]
        return b""

    def _revoke(self, body, fds):
        """A key is no longer valid, on any connection."""
        self.grants.pop(self.api.type("component.v1.RevokeRequest").FromString(body).key, None)
        return b""

    def resolve(self, target, service, wait=False):
        """A channel to a component, with a key for everything that we may call there."""
        call = self.finder.start("Resolve", target=target, service=service, wait=wait)
        found = call.result()
        channel = Channel(socket.socket(fileno=call.fds[0]), self.api, service)
        channel.hello(found.key)
        return channel


class Born:
    """A protocol that the router has started by its descriptor: standard input is its way to the keeper."""

    def __init__(self, api):
        self.api, self.name = api, os.environ["HOLDFAST_PROTOCOL"]
        self.keeper = Channel(socket.socket(fileno=0), api, "keeper.v1.Keeper")
        # The keeper ends who does not answer that.
        self.keeper.handlers[api.method("component.v1.Component", "Progress")[0]] = lambda body, fds: b""

    def router(self):
        """A way to the Finder. When that ends, its manager has died: ask for another one."""
        call = self.keeper.start("AttachFinder")
        call.result()
        return Router(socket.socket(fileno=call.fds[0]), self.api)


def secrets(fds):
    """The secrets that `process.v1/Keep` brings: a list of texts."""
    with open(os.dup(fds[0]), "rb") as memory:
        memory.seek(0)
        return json.loads(memory.read())


def wait(channels, timeout=None):
    """Waits until something has come on one of these (channels, or other files), takes it in, and returns those."""
    ready = select.select([c for c in channels if not getattr(c, "ended", None)], [], [], timeout)[0]
    for channel in ready:
        if isinstance(channel, Channel):
            try:
                channel.pump(0)
            except Disconnected:
                pass
    return ready


def until_connected(connect, pause=0.2):
    """Calls `connect` until it works: a router, or a part of it, is on its way."""
    while True:
        try:
            return connect()
        except (OSError, XrlError):
            time.sleep(pause)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: holdfast_xrl.py FILE (compiles the interfaces into this file)")
    with open(sys.argv[1], "wb") as compiled:
        compiled.write(compile_protos(find_api()).SerializeToString())
