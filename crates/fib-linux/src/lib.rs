//! The Linux forwarding tables through netlink: nexthop objects, routes, interfaces
