#!/usr/bin/env python3
"""A routing protocol that the router starts by its descriptor, `hello.toml`. See README.md.

Routers say hello to a group on each interface that `[hello]` names, with the networks that they lead to. What is heard
becomes a route, and is one for as long as it is heard.

It opens nothing: the interfaces of the router are in a file (HOLDFAST_API, or the first argument), its sockets come from
`fea`, and everybody else is called over XRL.
"""

import ipaddress
import json
import os
import socket
import sys
import time

from holdfast_xrl import Api, Born, XrlError, until_connected, wait

PORT, GROUP = 5355, "224.0.0.120"
# Hellos that may be missed before a neighbour is dead.
MISSED = 3
MOST_NEIGHBORS, MOST_NETWORKS, LONGEST = 256, 64, 4096
RETRY = 1.0


class Hello:
    def __init__(self, api):
        self.api, self.born = api, Born(api)
        self.name = self.born.name
        self.router = self.rib = self.origin = None
        self.settings, self.sockets, self.handles = None, {}, {}
        # (interface, address) to what was heard; prefix to (address, interface, cost) as the rib knows it.
        self.neighbors, self.routes = {}, {}
        self.next_hello = self.next_try = 0.0
        self.sync_at = None

    # What others call.

    def configure(self, request):
        """The section, which the router has checked. What it changes is done by the loop."""
        self.settings = json.loads(request.settings)
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
        return [self.api.type("process.v1.Rows")(rows=[json.dumps(row).encode() for row in rows()])]

    def show_neighbors(self):
        for (interface, address), heard in sorted(self.neighbors.items()):
            yield {"neighbor": heard["word"], "address": address, "interface": interface, "hellos": heard["hellos"]}

    def show_networks(self):
        for prefix, (address, interface, cost) in sorted(self.routes.items()):
            yield {"network": prefix, "address": address, "interface": interface, "cost": cost}

    def clear(self, request):
        if request.command not in ("", "counters"):
            raise XrlError("not found", f"there is no `{request.command}` to clear; there is: counters")
        for heard in self.neighbors.values():
            heard["hellos"] = 0
        return self.api.type("process.v1.Cleared")(cleared=[f"counters of {len(self.neighbors)} neighbors"])

    # Those whom it calls.

    def join(self):
        router = self.born.router()
        methods = {"Configure": self.configure, "Show": self.show, "Clear": self.clear}
        router.register(self.name, f"{self.name}-{os.getpid()}", {"process.v1.Process": methods}, sole=True)
        self.router = router

    def attach(self):
        """Becomes an origin of routes. What an earlier life left stays until its neighbours could be heard again."""
        self.rib = self.router.resolve("rib", "rib.v1.Rib", wait=True)
        self.origin = self.rib.call("AddOrigin", name=self.name).origin
        self.handles, known = {}, self.routes
        self.routes = {}
        self.tell(known)
        self.sync_at = time.monotonic() + MISSED * self.settings["interval"]

    def open_sockets(self):
        """One on each interface of the section, in the group; who is not named any more is closed."""
        wanted = {entry["name"]: entry for entry in self.settings.get("interface", [])}
        for name in [name for name in self.sockets if name not in wanted]:
            self.sockets.pop(name).close()
        for name in [name for name in wanted if name not in self.sockets]:
            fea = self.router.resolve("socket", "socket.v1.Socket")
            call = fea.start("Group", interface=name, port=PORT, afi=1)
            call.result()
            self.sockets[name] = socket.socket(fileno=call.fds[0])
            fea.close()

    # The protocol.

    def say_hello(self):
        hello = {"word": self.settings["word"], "networks": self.settings["networks"]}
        for name, sock in self.sockets.items():
            try:
                sock.sendto(json.dumps(hello).encode(), (GROUP, PORT))
            except OSError as error:
                print(f"{name}: {error}", flush=True)

    def hear(self, interface, sock):
        """A datagram is from anybody: what is not a hello is no hello."""
        try:
            data, (address, _) = sock.recvfrom(LONGEST)
            hello = json.loads(data)
            networks = [str(ipaddress.IPv4Network(network)) for network in hello["networks"][:MOST_NETWORKS]]
            word = str(hello["word"])[:32]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return
        known = self.neighbors.get((interface, address))
        if known or len(self.neighbors) < MOST_NEIGHBORS:
            hellos = known["hellos"] + 1 if known else 1
            heard = {"word": word, "networks": networks, "hellos": hellos, "at": time.monotonic()}
            self.neighbors[interface, address] = heard

    def best(self):
        """Where each network is reached now: the cheapest interface, then the lowest address."""
        costs = {entry["name"]: entry["cost"] for entry in self.settings.get("interface", [])}
        dead = time.monotonic() - MISSED * self.settings["interval"]
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

    def turn(self):
        """What is due."""
        if self.router is None or self.router.finder.ended:
            until_connected(self.join)
        if self.settings is None:
            return
        now = time.monotonic()
        if now >= self.next_try:
            self.next_try = now + RETRY
            self.open_sockets()
            if self.rib is None or self.rib.ended:
                self.attach()
        if now >= self.next_hello:
            self.next_hello = now + self.settings["interval"]
            self.say_hello()
        if self.rib and not self.rib.ended:
            self.tell(self.best())
            if self.sync_at and now >= self.sync_at:
                self.rib.call("EndOfSync", origin=self.origin)
                self.sync_at = None

    def run(self):
        while not self.born.keeper.ended:
            try:
                self.turn()
            except XrlError as error:
                # Whoever it was is back in a moment.
                print(f"{self.name}: {error}", flush=True)
            due = min(self.next_hello, self.next_try) - time.monotonic() if self.settings else RETRY
            named = {sock: name for name, sock in self.sockets.items()}
            channels = [self.born.keeper, self.rib, *([self.router.finder, *self.router.callers] if self.router else [])]
            ready = wait([*filter(None, channels), *named], max(due, 0.05))
            for sock in ready:
                if sock in named:
                    self.hear(named[sock], sock)


if __name__ == "__main__":
    Hello(Api(sys.argv[1] if len(sys.argv) > 1 else None)).run()
