//! Announcements that wait for their signatures.
