"""A protocol over raw IP, for the test beside it: it has no socket, and `fea` relays its packets.

It says its word to a group on each interface of its section, and answers what it hears there to who said it. Once it has
been heard it tries what it may not. `show NAME` has what it heard, `show NAME tried` what came of that.
"""

import ipaddress
import json
import os
import sys
import time

from holdfast_xrl import Api, Born, XrlError, until_connected, wait

NUMBER, OSPF = 253, 89
GROUPS = {1: "224.0.0.120", 2: "ff02::120"}
OTHERS = {1: "224.0.0.5", 2: "ff02::5"}
PAUSE = 0.3


def packed(address):
    return ipaddress.ip_address(address).packed


def printed(address):
    return str(ipaddress.ip_address(address))


class There:
    """The protocol in one table: the default one, or that of a VRF, where `fea` and `socket` have another name."""

    def __init__(self, raw, vrf):
        self.raw, self.vrf = raw, vrf
        self.fea = self.sockets = self.interfaces = None
        self.streams, self.addresses = {}, {}

    def resolve(self, target, service):
        return self.raw.router.resolve(f"{target}@{self.vrf}" if self.vrf else target, service)

    def attach(self):
        # Those that live stay: a protocol may have few connections.
        if self.fea is None or self.fea.ended:
            self.fea = self.resolve("fea", "fea.v1.Fea")
        if self.sockets is None or self.sockets.ended:
            self.sockets = self.resolve("socket", "socket.v1.Socket")
        self.streams = {afi: self.sockets.stream("Receive", afi=afi, protocol=NUMBER) for afi in GROUPS}
        self.interfaces = self.fea.stream("Interfaces")

    def detach(self):
        for stream in filter(None, [self.interfaces, *self.streams.values()]):
            stream.cancel()
        self.interfaces, self.streams = None, {}

    def address(self, interface, afi):
        """An address of ours there that is not of the link only."""
        of = (printed(address) for address in self.addresses.get(interface, []) if len(address) == (4, 16)[afi - 1])
        return next((address for address in of if not ipaddress.ip_address(address).is_link_local), None)

    def send(self, interface, source, destination, payload, afi, protocol=NUMBER):
        packet = self.raw.api.type("socket.v1.Packet")(
            interface=interface, source=packed(source), destination=packed(destination), payload=payload.encode()
        )
        reply = self.sockets.call("Send", afi=afi, protocol=protocol, packets=[packet])
        if reply.sent != 1:
            raise XrlError("unavailable", reply.failure)

    def say(self):
        for entry in self.raw.settings.get("interface", []):
            for afi, group in GROUPS.items():
                source = self.address(entry["name"], afi)
                if source and entry.get("vrf") == self.vrf:
                    self.send(entry["name"], source, group, self.raw.settings["word"], afi)

    def hear(self, afi, packet):
        source, payload = printed(packet.source), packet.payload.decode()
        heard = {
            "interface": packet.interface, "source": source, "destination": printed(packet.destination),
            "hops": packet.hops, "payload": payload,
        }
        self.raw.heard.append(heard | ({"vrf": self.vrf} if self.vrf else {}))
        del self.raw.heard[:-100]
        if not payload.startswith("re: "):
            self.send(packet.interface, self.address(packet.interface, afi), source, f"re: {payload}", afi)
        elif self.raw.settings["forge"] and not any(row["afi"] == afi for row in self.raw.tried):
            self.forge(afi, packet.interface, source)

    def forge(self, afi, interface, neighbor):
        """What it may not; all would reach the neighbor."""
        ours, group = self.address(interface, afi), GROUPS[afi]
        elsewhere = next(name for name in self.addresses if name not in (interface, "lo") and self.address(name, afi))
        for what, trial in {
            "ospf": lambda: self.send(interface, ours, group, "forged", afi, OSPF),
            "ospf to one": lambda: self.send(interface, ours, neighbor, "forged", afi, OSPF),
            "source of the neighbor": lambda: self.send(interface, neighbor, group, "forged", afi),
            "source of another interface": lambda: self.send(
                interface, self.address(elsewhere, afi), neighbor, "forged", afi
            ),
            "interface": lambda: self.send(elsewhere, self.address(elsewhere, afi), group, "forged", afi),
            "group": lambda: self.send(interface, ours, OTHERS[afi], "forged", afi),
            "receiving ospf": lambda: next(iter(self.sockets.stream("Receive", afi=afi, protocol=OSPF))),
            "descriptor": lambda: self.sockets.call("Raw", interface=interface, afi=afi, protocol=NUMBER),
        }.items():
            try:
                trial()
                self.raw.tried.append({"afi": afi, "what": what, "refused": ""})
            except XrlError as error:
                self.raw.tried.append({"afi": afi, "what": what, "refused": str(error)})

    def take_in(self):
        """What has come on the streams; what ends them is raised."""
        while (event := self.interfaces.poll()) is not None:
            if event.HasField("interface"):
                self.addresses[event.interface.name] = [of.address for of in event.interface.addresses]
        for afi, stream in self.streams.items():
            while (received := stream.poll()) is not None:
                for packet in received.packets:
                    self.hear(afi, packet)

    def turn(self, is_time):
        try:
            if self.interfaces is None and is_time:
                self.attach()
            if self.interfaces:
                self.take_in()
                if is_time:
                    self.say()
        except XrlError as error:
            print(f"{self.raw.born.name}: {error}", flush=True)
            self.detach()


class Raw:
    def __init__(self, api):
        self.api, self.born = api, Born(api)
        self.router = self.settings = None
        self.tables, self.heard, self.tried = {}, [], []

    def configure(self, request):
        self.settings = json.loads(request.settings)
        wanted = {None, *(entry.get("vrf") for entry in self.settings.get("interface", []))}
        for vrf in self.tables.keys() - wanted:
            gone = self.tables.pop(vrf)
            for channel in filter(None, [gone.fea, gone.sockets]):
                channel.close()
        for vrf in wanted - self.tables.keys():
            self.tables[vrf] = There(self, vrf)
        return self.api.type("process.v1.Configured")()

    def show(self, request):
        rows = self.tried if request.command == "tried" else self.heard
        return [self.api.type("process.v1.Rows")(rows=[json.dumps(row).encode() for row in rows])]

    def join(self):
        router = self.born.router()
        methods = {"Configure": self.configure, "Show": self.show}
        router.register(self.born.name, f"{self.born.name}-{os.getpid()}", {"process.v1.Process": methods}, sole=True)
        self.router = router

    def run(self):
        next_word = 0.0
        while not self.born.keeper.ended:
            if self.router is None or self.router.finder.ended:
                until_connected(self.join)
            now = time.monotonic()
            is_time = now >= next_word
            next_word = now + PAUSE if is_time else next_word
            tables = list(self.tables.values())
            for table in tables:
                table.turn(is_time)
            channels = [self.born.keeper, self.router.finder, *self.router.callers]
            channels += [channel for table in tables if table.interfaces for channel in (table.fea, table.sockets)]
            wait(channels, PAUSE)


if __name__ == "__main__":
    Raw(Api(sys.argv[1])).run()
