#!/usr/bin/env python3
"""A routing protocol that the router starts by its descriptor, `hello.toml`. See README.md.

Routers say hello to a group on each interface that `[hello]` names, with the networks that they lead to. What is heard
becomes a route, and is one for as long as it is heard.

It opens nothing: the interfaces of the router are in a file (HOLDFAST_API, or the first argument), its sockets come from
`fea`, and everybody else is called over XRL.
"""

import hashlib
import hmac
import ipaddress
import json
import os
import socket
import sys
import time

from holdfast_xrl import Api, Born, XrlError, secrets, until_connected, wait

PORT, GROUP = 5355, "224.0.0.120"
# Hellos that may be missed before a neighbour is dead.
MISSED = 3
MOST_NEIGHBORS, MOST_NETWORKS, LONGEST = 256, 64, 4096
# What neighbors keep of a word.
LONGEST_WORD = 32
RETRY = 1.0


class Table:
    """The protocol in one table: the default one, or that of a VRF, where `rib` and `fea` have another name."""

    def __init__(self, hello, vrf):
        self.hello, self.api, self.vrf = hello, hello.api, vrf
        self.rib = self.opener = self.origin = None
        self.sockets, self.handles = {}, {}
        # (interface, address) to what was heard; prefix to (address, interface, cost) as the rib knows it.
        self.neighbors, self.routes = {}, {}
        self.sync_at = None

    def interfaces(self):
        """Those of the section that are in this table, by name."""
        named = self.hello.settings.get("interface", [])
        return {entry["name"]: entry for entry in named if entry.get("vrf") == self.vrf}

    def resolve(self, target, service):
        """What serves this table."""
        return self.hello.router.resolve(f"{target}@{self.vrf}" if self.vrf else target, service)

    def attach(self):
        """Becomes an origin of routes. What an earlier life left stays until its neighbours could be heard again."""
        self.rib = self.resolve("rib", "rib.v1.Rib")
        self.origin = self.rib.call("AddOrigin", name=self.hello.name).origin
        self.handles, known = {}, self.routes
        self.routes = {}
        self.tell(known)
        self.sync_at = time.monotonic() + MISSED * self.hello.settings["interval"]

    def open_sockets(self):
        """One on each interface, in the group; who is not named any more is closed."""
        wanted = self.interfaces()
        for name in [name for name in self.sockets if name not in wanted]:
            self.sockets.pop(name).close()
        for name in [name for name in wanted if name not in self.sockets]:
            # One connection for all: those that a protocol may have are few.
            if self.opener is None or self.opener.ended:
                self.opener = self.resolve("socket", "socket.v1.Socket")
            call = self.opener.start("Group", interface=name, port=PORT, afi=1)
            call.result()
            self.sockets[name] = socket.socket(fileno=call.fds[0])

    def close(self):
        """The section names nothing here any more; the rib withdraws the routes of who is gone."""
        for sock in self.sockets.values():
            sock.close()
        for channel in filter(None, [self.rib, self.opener]):
            channel.close()

    def say_hello(self):
        settings = self.hello.settings
        hello = json.dumps({"word": settings["word"], "networks": settings["networks"]}).encode()
        for name, sock in self.sockets.items():
            try:
                sock.sendto(self.hello.digest(hello) + hello, (GROUP, PORT))
            except OSError as error:
                print(f"{name}: {error}", flush=True)

    def hear(self, interface, sock):
        """A datagram is from anybody: what is not a hello is no hello."""
        try:
            data, (address, _) = sock.recvfrom(LONGEST)
            length = len(self.hello.digest(b""))
            digest, data = data[:length], data[length:]
            if not hmac.compare_digest(digest, self.hello.digest(data)):
                return
            hello = json.loads(data)
            networks = [str(ipaddress.IPv4Network(network)) for network in hello["networks"][:MOST_NETWORKS]]
            word = str(hello["word"])[:LONGEST_WORD]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return
        known = self.neighbors.get((interface, address))
        if known or len(self.neighbors) < MOST_NEIGHBORS:
            hellos = known["hellos"] + 1 if known else 1
            heard = {"word": word, "networks": networks, "hellos": hellos, "at": time.monotonic()}
            self.neighbors[interface, address] = heard

    def best(self):
        """Where each network is reached now: the cheapest interface, then the lowest address."""
        costs = {name: entry["cost"] for name, entry in self.interfaces().items()}
        dead = time.monotonic() - MISSED * self.hello.settings["interval"]
        self.neighbors = {key: heard for key, heard in self.neighbors.items() if heard["at"] > dead and key[0] in costs}
        ways = {}
        for (interface, address), heard in self.neighbors.items():
            way = (costs[interface], int(ipaddress.ip_address(address)), address, interface)
            for network in heard["networks"]:
                ways[network] = min(way, ways.get(network, way))
        return {network: (address, interface, cost) for network, (cost, _, address, interface) in ways.items()}

    def tell(self, routes):
        """Tells the rib what differs from what it knows."""
        changed = sorted(p for p in routes.keys() | self.routes.keys() if routes.get(p) != self.routes.get(p))
        define, next_hops, metrics = [], [], []
        for prefix in changed:
            address, interface, cost = routes.get(prefix, (None, None, 0))
            next_hops.append(self.handle(address, interface, define) if address else 0)
            metrics.append(cost)
        networks = [ipaddress.ip_network(prefix) for prefix in changed]
        if changed:
            batch = self.api.type("routes.v1.RouteBatch")(
                afi=1,
                define=define,
                addresses=b"".join(network.network_address.packed for network in networks),
                lengths=bytes(network.prefixlen for network in networks),
                runs=[1] * len(networks),
                next_hops=next_hops,
                metrics=metrics,
            )
            self.rib.call("Routes", origin=self.origin, batch=batch)
        self.routes = routes

    def handle(self, address, interface, define):
        """The number of a next hop, which the rib is told before its first use."""
        if (address, interface) not in self.handles:
            number = self.handles[address, interface] = len(self.handles) + 1
            gateway = ipaddress.ip_address(address).packed
            hop = self.api.type("routes.v1.NextHop")(gateway=gateway, interface=interface)
            define.append(self.api.type("routes.v1.NextHopSet")(handle=number, members=[hop]))
        return self.handles[address, interface]

    def turn(self, now, is_retry, is_hello):
        """What is due."""
        if is_retry:
            self.open_sockets()
            if self.rib is None or self.rib.ended:
                self.attach()
        if is_hello:
            self.say_hello()
        if self.rib and not self.rib.ended:
            self.tell(self.best())
            if self.sync_at and now >= self.sync_at:
                self.rib.call("EndOfSync", origin=self.origin)
                self.sync_at = None


def arguments(request):
    """Those of a command, by name."""
    try:
        return dict(json.loads(request.arguments or b"{}"))
    except (ValueError, TypeError, RecursionError):
        raise XrlError("invalid argument", "the arguments are no JSON object") from None


class Hello:
    def __init__(self, api):
        self.api, self.born = api, Born(api)
        self.name = self.born.name
        self.router = self.settings = self.key = None
        self.secrets = []
        # By VRF; the default table is None.
        self.tables = {}
        self.next_hello = self.next_try = 0.0

    def digest(self, data):
        """What proves that a neighbour has the same key; nothing where there is none."""
        return hmac.new(self.key, data, hashlib.sha256).digest() if self.key is not None else b""

    # What others call.

    def keep(self, request, fds):
        """The secrets of the section, which comes after them."""
        self.secrets = secrets(fds)
        return self.api.type("process.v1.Empty")()

    def prepare(self, request):
        """Whether the section could be this one, before it is that of any process. Nothing changes yet."""
        reply = self.api.type("prepare.v1.PrepareReply")()
        for part in request.parts:
            configuration = self.api.type("process.v1.Configuration").FromString(part.configuration)
            settings = json.loads(configuration.settings)
            if len(settings["word"]) > LONGEST_WORD:
                reply.refusals.add(key=f"{self.name}.word", reason=f"neighbors keep {LONGEST_WORD} characters of it")
            if len(settings["networks"]) > MOST_NETWORKS:
                reply.refusals.add(key=f"{self.name}.networks", reason=f"neighbors keep {MOST_NETWORKS} of them")
        return reply

    def forget(self, request):
        """What `prepare` has kept is not needed any more: it has kept nothing."""
        return self.api.type("prepare.v1.Empty")()

    def configure(self, request):
        """The section, which the router has checked. What it changes is done by the loop."""
        self.settings = json.loads(request.settings)
        # In the place of a secret is its place in the list.
        key = self.settings.get("key")
        self.key = None if key is None else self.secrets[key].encode()
        wanted = {None, *(entry.get("vrf") for entry in self.settings.get("interface", []))}
        for vrf in [vrf for vrf in self.tables if vrf not in wanted]:
            self.tables.pop(vrf).close()
        for vrf in wanted - self.tables.keys():
            self.tables[vrf] = Table(self, vrf)
        self.next_hello = self.next_try = 0.0
        return self.api.type("process.v1.Configured")()

    def show(self, request):
        rows = {
            "": self.show_neighbors,
            "neighbors": self.show_neighbors,
            "networks": self.show_networks,
        }.get(request.command)
        if rows is None:
            raise XrlError("not found", f"there is no `{request.command}` to show; there is: neighbors, networks")
        shown = [row | ({"vrf": vrf} if vrf else {}) for vrf, table in self.by_vrf() for row in rows(table)]
        # `holdfast show` has checked them; others may call as well, and what they say fits no row.
        wanted = arguments(request)
        shown = [row for row in shown if all(row.get(name) == value for name, value in wanted.items())]
        return [self.api.type("process.v1.Rows")(rows=[json.dumps(row).encode() for row in shown])]

    def by_vrf(self):
        return sorted(self.tables.items(), key=lambda item: item[0] or "")

    def show_neighbors(self, table):
        for (interface, address), heard in sorted(table.neighbors.items()):
            yield {"neighbor": heard["word"], "address": address, "interface": interface, "hellos": heard["hellos"]}

    def show_networks(self, table):
        for prefix, (address, interface, cost) in sorted(table.routes.items()):
            yield {"network": prefix, "address": address, "interface": interface, "cost": cost}

    def clear(self, request):
        if request.command not in ("", "counters"):
            raise XrlError("not found", f"there is no `{request.command}` to clear; there is: counters")
        interface = arguments(request).get("interface")
        neighbors = [item for table in self.tables.values() for item in table.neighbors.items()]
        heard = [heard for (on, _), heard in neighbors if interface in (None, on)]
        for one in heard:
            one["hellos"] = 0
        return self.api.type("process.v1.Cleared")(cleared=[f"counters of {len(heard)} neighbors"])

    # Its loop.

    def join(self):
        router = self.born.router()
        methods = {"Keep": self.keep, "Configure": self.configure, "Show": self.show, "Clear": self.clear}
        asked = {"Prepare": self.prepare, "Forget": self.forget}
        services = {"process.v1.Process": methods, "prepare.v1.Preparation": asked}
        router.register(self.name, f"{self.name}-{os.getpid()}", services, sole=True)
        self.router = router

    def turn(self):
        """What is due."""
        if self.router is None or self.router.finder.ended:
            until_connected(self.join)
        if self.settings is None:
            return
        now = time.monotonic()
        is_retry, is_hello = now >= self.next_try, now >= self.next_hello
        if is_retry:
            self.next_try = now + RETRY
        if is_hello:
            self.next_hello = now + self.settings["interval"]
        for vrf, table in self.by_vrf():
            try:
                table.turn(now, is_retry, is_hello)
            except XrlError as error:
                # Whoever it was is back in a moment; other tables do not wait for that.
                print(f"{self.name}{f'@{vrf}' if vrf else ''}: {error}", flush=True)

    def run(self):
        while not self.born.keeper.ended:
            try:
                self.turn()
            except XrlError as error:
                print(f"{self.name}: {error}", flush=True)
            due = min(self.next_hello, self.next_try) - time.monotonic() if self.settings else RETRY
            tables = self.tables.values()
            named = {sock: (table, name) for table in tables for name, sock in table.sockets.items()}
            channels = [self.born.keeper, *(table.rib for table in tables), *(table.opener for table in tables)]
            channels += [self.router.finder, *self.router.callers] if self.router else []
            ready = wait([*filter(None, channels), *named], max(due, 0.05))
            for sock in ready:
                # One that was closed meanwhile is nobody's.
                if sock in named and sock.fileno() >= 0:
                    table, name = named[sock]
                    table.hear(name, sock)


if __name__ == "__main__":
    Hello(Api(sys.argv[1] if len(sys.argv) > 1 else None)).run()
