#!/usr/bin/env python3
"""A routing protocol in a process of its own: what it knows is typed on its standard input. See README.md.

    add PREFIX [via ADDRESS] [dev INTERFACE] [metric N] [tag N]
    del PREFIX
    watch ADDRESS        says how the address is reached, and again whenever that changes
    unwatch ADDRESS

It shows all that a protocol needs: it registers with the Finder, brings routes to the RIB, watches ranges, and lives on
when any process of the router dies.
"""

import argparse
import ipaddress
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

from holdfast_xrl import Api, Router, XrlError, until_connected, wait  # noqa: E402

ROUTES_IN_A_BATCH = 1024
# Failures that are over when whoever died is back.
PASSING = {"disconnected", "unavailable", "timeout", "not found"}


def say(text):
    print(text, flush=True)


class Toy:
    def __init__(self, arguments):
        self.api = Api(arguments.api)
        self.path = os.path.join(arguments.runtime_dir, f"protocol-{arguments.name}.sock")
        self.name = arguments.name
        # Prefix to (gateway, interface, metric, tag).
        self.routes, self.watched = {}, {}
        self.router = self.rib = self.invalidations = self.origin = None
        self.handles, self.input, self.refusal = {}, b"", ""
        # Known before we register: what the rib has of an earlier life and does not hear again until EndOfSync goes.
        for line in arguments.routes or []:
            self.line(line)

    def join(self):
        """Registers with the Finder: whoever watches our class learns that we live. While another one of us does, we
        wait in its shadow."""
        router = Router.connect(self.path, self.api)
        try:
            router.register(self.name, f"{self.name}-{os.getpid()}", sole=True)
        except XrlError as error:
            if error.text != self.refusal:
                self.refusal = error.text
                say(f"waiting: {error.text}")
            router.finder.close()
            raise
        self.router, self.refusal = router, ""

    def attach(self):
        """Becomes an origin of routes. The rib keeps what an earlier life of ours left until we have said all."""
        rib = self.router.resolve("rib", "rib.v1.Rib", wait=True)
        self.origin = rib.call("AddOrigin", name=self.name, distance=120).origin
        self.rib, self.handles = rib, {}
        self.invalidations = rib.stream("Invalidations")
        say(f"registered as origin {self.origin}")
        self.announce(self.routes)
        rib.call("EndOfSync", origin=self.origin)
        say(f"synced {len(self.routes)} routes")
        for address in self.watched:
            self.look_up(address)

    def announce(self, prefixes):
        """Sends what we know of these prefixes: a batch is of one family and one tag."""
        batches = {}
        for prefix in sorted(prefixes, key=str):
            _, _, _, tag = self.routes.get(prefix, ("", "", 0, 0))
            batches.setdefault((prefix.version, tag), []).append(prefix)
        for (version, tag), batch in batches.items():
            for at in range(0, len(batch), ROUTES_IN_A_BATCH):
                self.send(1 if version == 4 else 2, tag, batch[at : at + ROUTES_IN_A_BATCH])

    def send(self, afi, tag, prefixes):
        define, next_hops, metrics = [], [], []
        for prefix in prefixes:
            gateway, interface, metric, _ = self.routes.get(prefix, (None, None, 0, 0))
            next_hops.append(self.handle(gateway, interface, define) if prefix in self.routes else 0)
            metrics.append(metric)
        batch = self.api.type("routes.v1.RouteBatch")(
            afi=afi,
            tag=tag,
            define=define,
            addresses=b"".join(prefix.network_address.packed for prefix in prefixes),
            lengths=bytes(prefix.prefixlen for prefix in prefixes),
            runs=[1] * len(prefixes),
            next_hops=next_hops,
            metrics=metrics,
        )
        # The reply is the back-pressure.
        self.rib.call("Routes", origin=self.origin, batch=batch)

    def handle(self, gateway, interface, define):
        """The number of a next hop, which the rib is told before its first use."""
        if (gateway, interface) not in self.handles:
            number = self.handles[gateway, interface] = len(self.handles) + 1
            hop = self.api.type("routes.v1.NextHop")(gateway=gateway.packed if gateway else b"", interface=interface or "")
            define.append(self.api.type("routes.v1.NextHopSet")(handle=number, members=[hop]))
        return self.handles[gateway, interface]

    def look_up(self, address):
        """Asks how an address is reached. The answer holds for a range, until that is invalidated."""
        answer = self.rib.call("Register", address=address.packed)
        self.watched[address] = ipaddress.ip_network(answer.range)
        way = f"by {answer.route}" if answer.reachable else "nowhere"
        say(f"{address} is reached {way}, as is {answer.range}")

    def command(self, line):
        """One line of standard input."""
        verb, *words = line.split()
        if verb == "add":
            prefix, options = ipaddress.ip_network(words[0]), dict(zip(words[1::2], words[2::2]))
            via = ipaddress.ip_address(options["via"]) if "via" in options else None
            self.routes[prefix] = (via, options.get("dev"), int(options.get("metric", 0)), int(options.get("tag", 0)))
            self.tell([prefix])
        elif verb == "del":
            prefix = ipaddress.ip_network(words[0])
            if self.routes.pop(prefix, None):
                self.tell([prefix])
        elif verb == "watch":
            address = ipaddress.ip_address(words[0])
            self.watched[address] = None
            if self.rib:
                self.look_up(address)
        elif verb == "unwatch":
            address = ipaddress.ip_address(words[0])
            self.watched.pop(address, None)
            if self.rib:
                self.rib.call("Unregister", address=address.packed)
        else:
            raise ValueError(f"what is {verb!r}?")

    def tell(self, prefixes):
        if self.rib:
            self.announce(prefixes)
        say("ok")

    def read_commands(self):
        """What has been typed; false at the end of it."""
        data = os.read(0, 1 << 16)
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            self.line(line.decode())
        return bool(data)

    def line(self, line):
        line = line.split("#")[0].strip()
        try:
            if line:
                self.command(line)
        except (ValueError, IndexError) as error:
            say(f"error: {error}")

    def take_invalidations(self):
        while (invalidation := self.invalidations.poll()) is not None:
            gone = ipaddress.ip_network(invalidation.range)
            say(f"invalidated {gone}")
            for address, range in list(self.watched.items()):
                if range is None or address in gone:
                    self.look_up(address)

    def run(self):
        listening = True
        while True:
            # The manager, and with it the Finder, may die alone: the rib goes on with us.
            if self.router is None or self.router.finder.ended:
                until_connected(self.join)
            try:
                if self.rib is None:
                    self.attach()
                sources = [self.router.finder, self.rib] + ([sys.stdin] if listening else [])
                if sys.stdin in wait(sources):
                    listening = self.read_commands()
                self.take_invalidations()
                if self.rib.ended:
                    raise self.rib.ended
            except XrlError as error:
                if error.kind not in PASSING:
                    raise
                if self.rib is None or self.rib.ended:
                    say(f"lost the rib: {error.text}")
                    self.rib = None
                    time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    directory = os.environ.get("HOLDFAST_RUNTIME_DIR", "/run/holdfast")
    parser.add_argument("--runtime-dir", default=directory, help="where the router's sockets are")
    parser.add_argument("--name", default="toy", help="as in [[protocol]]")
    parser.add_argument("--routes", type=argparse.FileType(), help="file of such lines, read before all others")
    parser.add_argument("--api", help="folder of the interfaces; the one of this repository by default")
    try:
        Toy(parser.parse_args()).run()
    except XrlError as error:
        sys.exit(f"toy.py: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
