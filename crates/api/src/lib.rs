//! The interfaces between processes, generated from api/*.proto
