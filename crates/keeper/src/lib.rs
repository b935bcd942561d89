//! The keeper: starts processes, keeps their descriptors, never dies
