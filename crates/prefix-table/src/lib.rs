//! Prefix tables: block tries over a paged pool, with cursors that survive change
