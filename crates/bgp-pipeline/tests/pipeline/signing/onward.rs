//! How each path goes on, to each kind of peer.
