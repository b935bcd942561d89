#!/bin/sh
# Drives a router with `holdfast call`: every method that an operator may call, without a line of generated code.
# Usage: router.sh processes | neighbors | clear PEER | routes [PROTOCOL] | watch [PROTOCOL] | interfaces
# HOLDFAST names the binary, HOLDFAST_RUNTIME_DIR the directory with the router's sockets.
set -eu

call() { "${HOLDFAST:-holdfast}" call "$@"; }

# Keeps one field of JSON objects, one a line: `field name` prints the values of "name".
field() { tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\"]*\)\"\{0,1\}.*/\1/p"; }

case ${1:-} in
processes)
    call manager/manager.v1/ShowProcesses --json | field name
    ;;
neighbors)
    # A stream: one object for each neighbour.
    call bgp/bgp.v1/ShowNeighbors --json | while read -r neighbor; do
        name=$(printf '%s' "$neighbor" | field name | head -1)
        state=$(printf '%s' "$neighbor" | field state | head -1)
        printf '%s %s\n' "$name" "$state"
    done
    ;;
clear)
    call "bgp/bgp.v1/Clear?peer:txt=${2:?whose session?}"
    ;;
routes)
    call "rib/rib.v1/ShowRoutes${2:+?origin:txt=$2}" --json | field prefix
    ;;
watch)
    # All routes of a protocol, then `synced`, then every change, until Ctrl-C.
    call "rib/rib.v1/Redistribute?${2:+origins:txt=$2&}afi:u32=1" --json
    ;;
interfaces)
    call --list | sed -n 's/^# //p'
    ;;
*)
    sed -n '3s/^# //p' "$0" >&2
    exit 2
    ;;
esac
