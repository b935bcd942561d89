//! MRT dumps (RFC 6396): reading tables and updates
