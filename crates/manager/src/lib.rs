//! The manager: configuration, Finder, starting and restarting processes
