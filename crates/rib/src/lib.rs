//! The routing information base: origins, merging, next-hop resolution, registration, redistribution
