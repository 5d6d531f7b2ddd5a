//! The forward proxy through which sandboxes reach the outside: default deny.
