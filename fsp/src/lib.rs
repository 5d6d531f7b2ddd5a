//! Client of the Fathom Sandbox Protocol: connections, a pool of them, and what became of an execution.
