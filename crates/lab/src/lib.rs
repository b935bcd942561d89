//! Namespaces, real peers, feeders, drills (development only)
