//! What every process does at start: descriptors, logging, privileges, Finder
