#!/usr/bin/env python3
"""Prints the BGP summary of a router, and with --watch what happens to its processes and peers from then on."""

import argparse
import os
import sys

from holdfast_xrl import Router, XrlError, wait


def summary(bgp):
    """State and prefixes of each peer and family."""
    shown = bgp.call("ShowSummary")
    rows = {}
    for family in shown.families:
        for peer in family.peers:
            rows[peer.name, family.family] = (peer.address, peer.asn, peer.state, peer.prefixes_received)
    return shown, rows


def show(bgp):
    shown, rows = summary(bgp)
    print(f"router {shown.router_id}, AS {shown.asn}")
    print(f"{'peer':16} {'family':14} {'address':20} {'AS':>10} {'state':12} {'prefixes':>10}")
    for (name, family), (address, asn, state, received) in sorted(rows.items()):
        print(f"{name:16} {family:14} {address:20} {asn:>10} {state:12} {received:>10}")
    return rows


def watch(router, bgp, rows):
    """Births and deaths come by themselves; peers are looked at every second."""
    lives = router.finder.stream("Watch", **{"class": "*"})
    while True:
        wait([router.finder], timeout=1)
        while (event := lives.poll()) is not None:
            what = "lives" if event.kind == 1 else "died"
            print(f"{event.instance.name} {what}", flush=True)
        try:
            bgp = bgp if not bgp.ended else router.resolve("bgp", "bgp.v1.Bgp")
            now = summary(bgp)[1]
        except XrlError:
            continue
        for key in sorted(now.keys() | rows.keys()):
            state = now[key][2] if key in now else "gone"
            if key not in rows or rows[key][2] != state:
                print(f"{key[0]} {key[1]}: {state}", flush=True)
        rows = now


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    directory = os.environ.get("HOLDFAST_RUNTIME_DIR", "/run/holdfast")
    parser.add_argument("--runtime-dir", default=directory, help="where the router's sockets are")
    parser.add_argument("--watch", action="store_true", help="goes on until Ctrl-C")
    arguments = parser.parse_args()
    router = Router.connect(os.path.join(arguments.runtime_dir, "holdfast.sock"))
    bgp = router.resolve("bgp", "bgp.v1.Bgp")
    rows = show(bgp)
    if arguments.watch:
        watch(router, bgp, rows)


if __name__ == "__main__":
    try:
        main()
    except XrlError as error:
        sys.exit(f"summary.py: {error}")
    except KeyboardInterrupt:
        pass
